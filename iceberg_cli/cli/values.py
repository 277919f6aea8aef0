"""Parsers of option values that are no verb's: whole numbers and key-value pairs."""

from __future__ import annotations

import re

import typer

from iceberg_cli.errors import UsageError


def integer(text: str) -> int:
    """A whole number, for options that take one.

    Raises:
        typer.BadParameter: anything else; typer adds the option's name.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise typer.BadParameter(f"{text!r} is no whole number")
    return int(text)


def positive(value: int | None, option: str) -> int | None:
    """`value`, if it is above zero or absent.

    Raises:
        UsageError: zero or negative.
    """
    if value is not None and value < 1:
        raise UsageError(f"{option} must be at least 1, not {value}")
    return value


def key_value(text: str, option: str) -> tuple[str, str]:
    """`K=V` as its two parts.

    Raises:
        UsageError: there is no `=`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        # What follows the first word may be a secret after a mistyped "=".
        shown = re.match(r"[\w.-]*", text)
        raise UsageError(f"{option}: {shown[0] if shown else ''!r} is not KEY=VALUE")
    return key, value

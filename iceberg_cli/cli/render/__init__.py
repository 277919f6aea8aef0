"""What all output has in common. This folder alone imports rich.

Whatever comes from a table passes `printable`: no control character of it reaches the terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from iceberg_cli.errors import IcebergCliError

if TYPE_CHECKING:
    from rich.console import Console

ERROR_SCHEMA = "iceberg-cli/error/2"
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_UNWRAPPED = 100_000


def printable(value: object) -> str:
    """Text with control and format characters, line separators and unassigned characters escaped."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )


def console(stream: TextIO | None = None, *, color: bool = True) -> Console:
    """A console that wraps nothing when its output is no terminal."""
    from rich.console import Console

    class Stream(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would leave with 1, which means a bug

    out = stream or sys.stdout
    width = None if out.isatty() else _UNWRAPPED
    return Stream(
        file=out, width=width, no_color=not color or None, highlight=False, markup=False, emoji=False
    )


def print_json(document: Mapping[str, Any], *, as_line: bool = False) -> None:
    """Print the one document on standard output; `as_line`: the last of several lines of JSON."""
    sys.stdout.write(json.dumps(document, indent=None if as_line else 2) + "\n")


def error_document(error: IcebergCliError) -> dict[str, Any]:
    """The `error/2` document, but for the fields about the table."""
    return {
        "schema": ERROR_SCHEMA,
        "exit_code": error.exit_code,
        "error": type(error).__name__,
        "message": error.message,
        "state": error.state,
        "next": error.next_step,
    }

"""What is printed on terminals of any width, and into pipes, in this process."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable

import pytest

from iceberg_cli.cli.app import run
from iceberg_cli.cli.render.screen import Screen
from tests.cli.running import Ran

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_a_terminal(
    width: int, show: Callable[[Screen], None], *, verbose: bool = False, as_of_ms: int = 0
) -> str:
    """What a function prints on a terminal so wide, without colours and blanks at the ends of lines."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        patched.setenv("TERM", "xterm-256color")
        show(Screen(stream, as_of_ms=as_of_ms, verbose=verbose))
    return plain(stream.getvalue())


_PROGRESS = re.compile(r"\r\x1b\[K[^\r\n\x1b]*")


def plain(text: str) -> str:
    """A text without colours and blanks at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in _STYLES.sub("", text).splitlines())


def run_on_a_terminal(
    width: int, *arguments: object, term: str = "xterm-256color", color: bool = False
) -> Ran:
    """Run the program on a terminal so wide; nothing is paged."""
    out, err = Terminal(), Terminal()
    with pytest.MonkeyPatch.context() as patched:
        if color:
            patched.delenv("NO_COLOR", raising=False)
        patched.setenv("COLUMNS", str(width))
        patched.setenv("TERM", term)
        patched.setenv("PAGER", "")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
    # What a slow machine shows of progress is erased before anything else is printed.
    return Ran(code, out.getvalue(), _PROGRESS.sub("", err.getvalue()))


def piped(show: Callable[[Screen], None], *, as_of_ms: int = 0) -> str:
    """What a function prints into a pipe."""
    stream = io.StringIO()
    show(Screen(stream, as_of_ms=as_of_ms))
    return stream.getvalue()

"""Standard streams that may be closed or full: no traceback, and no operation stops for a lost message."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from iceberg_cli.errors import BackendUnavailable

if TYPE_CHECKING:
    from iceberg_cli.plan.report import Report

_STATES = {
    "done": "The commit is done and the files that go are deleted.",
    "waiting": "What there was to commit is committed; the files that go wait for their grace.",
    "partial": "The commit is done; some files that may go are still there.",
}


class OutputLost(BackendUnavailable):
    """The error that standard output cannot be written."""

    default_next_step = "Give it room, or another place to write to, then run the same command again."


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno == errno.EBADF:
                raise BrokenPipeError(error.errno, error.strerror) from error
            raise OutputLost(f"Cannot write standard output: {error.strerror}") from error


class _Messages(io.FileIO):
    """Standard error, where what cannot be written is dropped without an error."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def guard_streams() -> None:
    """Replace the standard streams by ones that raise errors of their own.

    The descriptor of a closed one is opened again first, lest a table's file get it and be written into.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) < 3:
        pass
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open for as long as the process runs
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, old: TextIO | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(old, "encoding", None) or "utf-8",
        # A name that the stream's encoding does not have must not end a run, least of all behind its commit.
        errors="backslashreplace",
        line_buffering=raw.isatty() or raw.fileno() == 2,
    )


def give_up_output() -> None:
    """Drop output that is still to be written: the interpreter flushes standard output once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def after(report: Report) -> Iterator[None]:
    """Have an `OutputLost` of the block tell the state of the report."""
    try:
        yield
        sys.stdout.flush()
    except OutputLost as error:
        error.state = _STATES.get(report.status, error.state)
        if report.failed_deletes:
            error.state = "The commit is done; some files could not be deleted."
        error.next_step = "`inspect` shows the table, `resume --list` what is open."
        raise

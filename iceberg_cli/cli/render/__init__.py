"""What all output has in common, and the progress display. This folder alone imports rich.

Whatever comes from a table passes `printable`: no control character of it reaches the terminal.
"""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from iceberg_cli.engines import Event
from iceberg_cli.errors import IcebergCliError
from iceberg_cli.plan.text import age

if TYPE_CHECKING:
    from rich.console import Console

ERROR_SCHEMA = "iceberg-cli/error/2"
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_UNWRAPPED = 100_000
_QUIET_SECONDS = 1.0


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


def print_json(document: Mapping[str, Any]) -> None:
    """Print the one document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


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


@dataclass
class Progress:
    """The display of phases that take longer than a second: a bar on a terminal, elsewhere a line every few seconds."""

    stream: TextIO
    enabled: bool = True
    clock: Callable[[], float] = time.monotonic
    _phase: str = ""
    _started: float = 0.0
    _printed: float = 0.0
    _bar: Any = field(default=None)
    _task: Any = field(default=None)

    def __call__(self, event: Event) -> None:
        """Show the progress of an event."""
        now = self.clock()
        if event.phase != self._phase:
            self.close()
            self._phase, self._started, self._printed = event.phase, now, now
        if not self.enabled or now - self._started < _QUIET_SECONDS:
            return
        if self.stream.isatty():
            self._draw(event)
        elif now - self._printed >= 5 * _QUIET_SECONDS:
            self._printed = now
            self.stream.write(self._line(event, now) + "\n")
            self.stream.flush()

    def _line(self, event: Event, now: float) -> str:
        rate = event.done / (now - self._started)
        left = f", {age(int((event.total - event.done) / rate * 1_000))} left" if event.total and rate else ""
        of = f" of {event.total:,}" if event.total else ""
        return f"{event.phase}: {event.done:,}{of}, {rate:,.0f} a second{left}"

    def _draw(self, event: Event) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console(self.stream),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(event.phase, total=event.total)
        self._bar.update(self._task, completed=event.done, total=event.total)

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""The listeners of a run: the display of progress, the log file, the metrics file and the span of a trace.

Few modules are imported here, for the program imports this first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    from iceberg_cli.api import Table
    from iceberg_cli.plan.events import AnyEvent

    class RunListener(Protocol):
        """A listener of one run. What it cannot write is a warning, as is any error that it raises: the run goes on."""

        def __call__(self, event: AnyEvent, /) -> None:
            """Take note of an event."""
            ...

        def warned(self, text: str) -> None:
            """Take note of a warning that is on standard error, or would be without --quiet."""
            ...

        def end(self, exit_code: int, error: BaseException | None) -> None:
            """Take note of the end of the run, and of the error that it ended by."""
            ...


class _Run:
    """The run that is under way: its listeners and what they are told once."""

    # No dataclass: making its methods takes time at every start.
    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = words
        self.listeners: list[RunListener] = []
        self.secrets: set[str] = set()
        self.table: Table | None = None
        self.error: BaseException | None = None
        self.erase: Callable[[], None] = lambda: None
        self.is_broken = False  # a listener raised an error
        # A signal may strike between taking and releasing it: the thread that it strikes takes it once more.
        self.lock = threading.RLock()


_run = _Run()


def begin(words: Sequence[str]) -> None:
    """Record that a run begins, to which nobody listens yet.

    Args:
        words: its command line.
    """
    global _run  # noqa: PLW0603 - one command line is run at a time
    _run = _Run(words)


def add(listener: RunListener) -> None:
    """Have it listen from now on. Those that were added first are told first."""
    _run.listeners.append(listener)


def hide(options: Mapping[str, str], *, elsewhere: Iterable[str]) -> None:
    """Record the texts among the options of a storage that no listener may write down.

    Args:
        options: their values by name.
        elsewhere: the names of those whose values come from files and variables, to keep them secret.
    """
    if options:
        from iceberg_cli.storage.redaction import secrets_of

        _run.secrets.update(secrets_of(options), (options[name] for name in elsewhere))


def hidden() -> set[str]:
    """The texts that no listener may write down."""
    return _run.secrets


def words() -> Sequence[str]:
    """The command line of the run."""
    return _run.words


def opened(table: Table) -> None:
    """Record the table that the run is about."""
    _run.table = table


def table() -> Table | None:
    """The table that the run is about, once it is opened."""
    return _run.table


def shows(erase: Callable[[], None]) -> None:
    """Record what erases the display of progress."""
    _run.erase = erase


def tell(event: AnyEvent) -> None:
    """Pass on an event; those of tables that are worked on side by side one after the other."""
    with _run.lock:
        for listener in _run.listeners:
            with _going_on():
                listener(event)


def warned(text: str) -> None:
    """Pass on a warning that is printed, or not, by whoever has it."""
    for listener in _run.listeners:
        with _going_on():
            listener.warned(text)


@contextmanager
def _going_on() -> Iterator[None]:
    """Have no error of a listener end what it listens to, which may be a commit; the first one is a warning."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about no table
        if not _run.is_broken:
            _run.is_broken = True
            warn(f"progress, log or metrics may lack something, by a bug of iceberg-cli: {error!r}")


def warn(text: str) -> None:
    """Print a warning about what a listener leaves undone, also with --quiet, and pass it on."""
    from iceberg_cli.cli.render import printable

    _run.erase()
    sys.stderr.write(f"warning: {printable(text)}\n")
    warned(text)


def failed(error: BaseException) -> None:
    """Record the error that ends the run, and make room on the screen for it."""
    _run.error = error
    _run.erase()


def end(exit_code: int) -> None:
    """Pass on the end of the run, whatever its exit code."""
    while _run.listeners:
        with _going_on():
            _run.listeners.pop(0).end(exit_code, _run.error)

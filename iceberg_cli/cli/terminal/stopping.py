"""The handling of Ctrl-C and SIGTERM, by the phase of the process.

While it starts there is nothing to clean up: it ends at once. While it reads and plans, an exception ends it, so that
what is open is closed. While it changes a table, the first signal requests a stop at the next safe point and the
second one is that exception. What follows is short, and is done before the end. One more signal than that ends it at
once, wherever it is.

Little is imported here, for the program imports this first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

UNCHANGED = "Nothing was changed."
RESUMABLE = "What it had begun is in its journal: `iceberg-cli resume TABLE` finishes it."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The end of the command by a signal. Not an `Exception`: nothing that handles errors may go on after it.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Phase(Enum):
    STARTING = 0
    LOOKING = 1
    WORKING = 2
    ENDING = 3


# Nobody compares or prints it, and making the methods for that takes time at every start.
@dataclass(eq=False, repr=False)
class _Process:
    """The phase and state of this process, and the signals that it received."""

    phase: _Phase = _Phase.STARTING
    state: str = UNCHANGED
    heard: int = 0  # the first signal
    raised: bool = False
    erased: str = ""


_process = _Process()


def hear() -> None:
    """Handle the signals from now on; those that the process was started to ignore stay ignored."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    sys.unraisablehook = _on_unraisable


def begin() -> None:
    """Record that a command begins, and has changed nothing."""
    _process.phase, _process.state = _Phase.LOOKING, UNCHANGED
    _process.heard, _process.raised = 0, False


def end() -> None:
    """Record that the command has ended, but for what it still prints."""
    _process.phase = _Phase.ENDING


def changed(state: str) -> None:
    """Record that something is changed.

    Args:
        state: a sentence on what is changed, true if a signal ends the command from now on.
    """
    _process.state = state


def erase(text: str) -> None:
    """Record what is to be written to standard error before the process ends at once.

    Args:
        text: erases what is on the screen; empty where nothing is.
    """
    _process.erased = text


def state() -> str:
    """The state of the table, in a sentence."""
    return _process.state


def heard() -> int:
    """The number of the first signal that came, or 0."""
    return _process.heard


def ended_by(error: BaseException) -> Stopped | None:
    """The signal that an error is or was caused by, or None.

    An exception that strikes inside an import can come out of it as another one.
    """
    if isinstance(error, KeyboardInterrupt):
        return Stopped(signal.SIGINT)
    if isinstance(error, Stopped):
        return error
    return Stopped(_process.heard) if _process.raised else None


def at_once() -> bool:
    """Whether a signal ended a change that was under way, rather than reading and planning."""
    return _process.phase is _Phase.WORKING


@contextlib.contextmanager
def at_safe_points(*, last: bool) -> Iterator[None]:
    """Run a block that the first signal stops at a safe point only: see `heard`.

    Args:
        last: nothing follows the block but output.

    Raises:
        Stopped: a second signal came; or one did and the work had no safe point any more, and it was not the last.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    _process.phase = _Phase.WORKING
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    try:
        yield
        _process.phase = _Phase.ENDING if last else _Phase.LOOKING
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not last and _process.heard:
        raise Stopped(_process.heard)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Run a short block that no signal interrupts: what came meanwhile is handled after it.

    Unlike blocked signals, handlers are not inherited by a program that the block starts.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    came: list[int] = []
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda heard, _frame: came.append(heard))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _on_signal(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a handler
    first = not _process.heard
    _process.heard = _process.heard or number
    if _process.phase is _Phase.STARTING or _process.raised:
        _leave(number)
    if _process.phase is _Phase.LOOKING or (_process.phase is _Phase.WORKING and not first):
        _process.raised = True
        raise Stopped(number)
    if not first:
        _leave(number)


def _on_unraisable(unraisable: Any) -> None:
    """Keep a signal where Python cannot pass its exception on, as in a destructor."""
    if isinstance(unraisable.exc_value, Stopped):
        _leave(unraisable.exc_value.number)
    sys.__unraisablehook__(unraisable)


def _leave(number: int) -> NoReturn:
    """End the process at once, without any cleanup."""
    sentence = {_Phase.WORKING: RESUMABLE, _Phase.ENDING: ""}.get(_process.phase, _process.state)
    line = f"Stopped by {name_of(number)}. {sentence}\n" if sentence else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{_process.erased}{line}".encode())
    os._exit(128 + number)


def name_of(number: int) -> str:
    """The name of a signal for operators."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name

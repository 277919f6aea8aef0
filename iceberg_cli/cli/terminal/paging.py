"""Output that is longer than the terminal, shown by the operator's pager."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iceberg_cli.cli.terminal.stopping import deferred

if TYPE_CHECKING:
    from iceberg_cli.cli.render.screen import Screen

_PAGER: Final = "less"
# Keep colours, end where all fits on one screen, and leave on it what was read; an operator's own settings win.
_SETTINGS: Final = {"LESS": "FRX", "LV": "-c"}
_NOT_STARTED: Final = (126, 127)  # what a shell says of a command that it cannot run


@contextmanager
def paged(screen: Screen, *, screens: int = 1) -> Iterator[None]:
    """Show what the block prints by `$PAGER` where it is longer than the terminal.

    Where an error or signal ends the block it is written without one: the end of the program waits for no reader.

    Args:
        screen: on a terminal.
        screens: the terminal's height as often. Two where a question follows, which is about what stays in sight.
    """
    parts: list[str] = []
    pager = ""
    try:
        with screen.collected() as parts:
            yield
        pager = os.environ.get("PAGER", _PAGER).strip()
    finally:
        text = "".join(parts)
        if not (
            pager
            and _is_long(text, screens)
            and os.environ.get("TERM") != "dumb"
            and _show(text, pager, screen)
        ):
            screen.write(text)


def _is_long(text: str, screens: int) -> bool:
    return text.count("\n") >= screens * shutil.get_terminal_size().lines


def _show(text: str, pager: str, screen: Screen) -> bool:
    """Whether a pager, a shell's command, showed a text."""
    screen.stream.flush()
    viewer = None
    before = signal.getsignal(signal.SIGINT)
    try:
        with deferred():  # no pager is started that nobody ends
            viewer = subprocess.Popen(  # noqa: S602 - $PAGER is a shell's command, everywhere
                pager,
                shell=True,
                stdin=subprocess.PIPE,
                encoding=screen.stream.encoding,
                errors="replace",
                env=_SETTINGS | os.environ,
            )
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a pager is the pager's
        viewer.communicate(text)  # a pager that is left early is no error
    except BaseException:
        if viewer:
            viewer.terminate()  # it gives the terminal back as it was: whoever reads it does not end this process
            viewer.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    return viewer.returncode not in _NOT_STARTED

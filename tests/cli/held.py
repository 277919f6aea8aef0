"""The program, held at a call to local storage until it is let go: `python -m tests.cli.held FOLDER METHOD ...`.

Held is the first call of a method about a path that has in it what the file FOLDER/hold has. It opens FOLDER/gate, a
named pipe, and goes on once somebody else has opened that too; what it reads there is the name of an error of the
system, with which the call fails, or nothing; any other word is a bug. The words after METHOD are the command line.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iceberg_cli.cli.terminal import stopping
from iceberg_cli.storage.local import LocalStorage


def hold(folder: Path, name: str) -> None:
    """Have the first call of a method wait."""
    method: Callable[..., Any] = getattr(LocalStorage, name)

    def held(self: LocalStorage, path: Any, *values: Any) -> Any:
        mark = folder / "hold"
        if mark.exists() and mark.read_text() in str(path):
            mark.unlink()
            failure = _word(folder / "gate")
            if failure and not hasattr(errno, failure):
                raise AssertionError(failure)
            if failure:
                raise OSError(getattr(errno, failure), os.strerror(getattr(errno, failure)))
        return method(self, path, *values)

    setattr(LocalStorage, name, held)


def _word(pipe: Path) -> str:
    """What somebody writes into a named pipe; signals are handled while this waits."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    select.select([descriptor], [], [])
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


def main() -> None:
    """Run the program."""
    # Whoever runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping.hear()
    folder, method, *arguments = sys.argv[1:]
    hold(Path(folder), method)
    from iceberg_cli.cli import app

    app.main(arguments)


if __name__ == "__main__":
    main()

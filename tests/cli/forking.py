"""Runs the program as processes that need not import it anew: with signals at chosen moments, and many at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from iceberg_cli.cli import app as cli
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.storage.local import LocalStorage

_METHODS = ("read", "stat", "paths", "put_if_absent", "replace", "delete", "prune")
_FIRST = (
    *(f"iceberg_cli.{name}" for name in ("formats.open", "table.recovery", "cli.render.plan")),
    *(f"iceberg_cli.{name}.verb_registry" for name in ("delta", "iceberg")),
    *(f"iceberg_cli.cli.commands.{name}" for name in ("inspect", "plan", "verb", "resume")),
    "iceberg_cli.api",
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one run of the program ended; a code below 0 is the signal that killed it."""

    code: int
    out: str
    err: str
    calls: list[str]  # to the storage: method, and path or number of paths


@dataclass(frozen=True)
class Program:
    """A process that has imported the program and forks for each run of it."""

    process: subprocess.Popen[str]

    def run(self, *arguments: object, signals: Sequence[tuple[int, int]] = ()) -> Ended:
        """Run the program.

        Args:
            arguments: its command line.
            signals: each with the number of the call to the storage before which the process gets it.
        """
        [ended] = self.race(arguments, signals=signals)
        return ended

    def race(
        self, *command_lines: Sequence[object], signals: Sequence[tuple[int, int]] = (), named: bool = False
    ) -> list[Ended]:
        """Run the program several times at once.

        Args:
            command_lines: their arguments.
            signals: as in `run`, for each of them.
            named: on a system that cannot make files without a name.
        """
        lines = [[str(word) for word in line] for line in command_lines]
        targets = {"lines": lines, "signals": [(at, int(number)) for at, number in signals], "named": named}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(targets), file=self.process.stdin, flush=True)
        return [Ended(**run) for run in json.loads(self.process.stdout.readline())]


@contextmanager
def program() -> Iterator[Program]:
    """The program, imported."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forking"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Program(process)


def _started(arguments: list[str], targets: Mapping[str, Any], folder: Path) -> int:
    """Start a run; its process id."""
    process_id = os.fork()
    if process_id:
        return process_id
    try:
        for number, name in ((0, os.devnull), (1, folder / "out"), (2, folder / "err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
        _count_calls(folder / "calls", targets["signals"])
        if targets["named"]:
            _without_unnamed_files()
        stopping.hear()
        cli.main(arguments)
    finally:
        os._exit(99)  # the program has ended the process long before


def _count_calls(log: Path, signals: Sequence[tuple[int, int]]) -> None:
    """Note every call to local storage, and send this process its signals before some of them."""
    calls = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count = 0

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: LocalStorage, path: Any, *values: Any) -> Any:
            nonlocal count
            os.write(calls, f"{name} {path if isinstance(path, str) else len(path)}\n".encode())
            now, count = count, count + 1
            for at, number in signals:
                if at == now:
                    os.kill(os.getpid(), number)
            return method(self, path, *values)

        return call

    for name in _METHODS:
        setattr(LocalStorage, name, counted(name, getattr(LocalStorage, name)))


def _without_unnamed_files() -> None:
    if hasattr(os, "O_TMPFILE"):
        del os.O_TMPFILE


def _round(targets: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    folders = [folder / str(number) for number in range(len(targets["lines"]))]
    for each in folders:
        each.mkdir()
    started = [_started(line, targets, each) for line, each in zip(targets["lines"], folders, strict=True)]
    ended = []
    for process_id, each in zip(started, folders, strict=True):
        code = os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
        out, err, calls = ((each / name).read_text() for name in ("out", "err", "calls"))
        ended.append({"code": code, "out": out, "err": err, "calls": calls.splitlines()})
    return ended


if __name__ == "__main__":
    # Whoever runs the tests in the background lets them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for module in _FIRST:
        import_module(module)
    for text in sys.stdin:
        with tempfile.TemporaryDirectory() as temporary_files:
            print(json.dumps(_round(json.loads(text), Path(temporary_files))), flush=True)

"""Runs the program in a terminal, and tells what is on the screen; and in the background, held at a call to storage."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyte

from tests.paths import ROOT

PATIENCE_S = 20


@dataclass(kw_only=True)
class Gate:
    """Holds a program at a call to storage; see `tests.cli.held`."""

    folder: Path

    @classmethod
    def at(cls, folder: Path, path: str = "") -> Gate:
        """A gate in a new folder, at calls about paths with this in their names."""
        folder.mkdir()
        os.mkfifo(folder / "gate")
        (folder / "hold").write_text(path)
        return cls(folder=folder)

    def command(self, method: str, *arguments: object) -> list[str]:
        """The command that runs the program."""
        return [sys.executable, "-m", "tests.cli.held", str(self.folder), method, *map(str, arguments)]

    def wait(self) -> None:
        """Wait until the program is held."""
        until_s = time.monotonic() + PATIENCE_S
        while (self.folder / "hold").exists():
            assert time.monotonic() < until_s, "the program never calls what is held"
            time.sleep(0.01)

    def open(self, failure: str = "") -> None:
        """Let the program go on, once it waits; it fails with an error of the system, where one is named."""
        (self.folder / "gate").write_text(failure)


@dataclass(kw_only=True)
class Terminal:
    """A program in a terminal of its own, whose keys are pressed by `send`."""

    process: subprocess.Popen[bytes]
    descriptor: int
    screen: pyte.Screen
    stream: pyte.ByteStream
    output: bytearray = field(default_factory=bytearray)

    def wait_for(self, text: str) -> None:
        """Read until a text is on the screen."""
        until_s = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < until_s, f"no {text!r} on the screen: {self.text}"
            assert self._read(), f"the program has ended: {self.text}"

    def goes_on(self, seconds: float) -> bool:
        """Read what comes in this time; whether the program is still there then."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([self.descriptor], [], [], left_s)[0] and not self._read():
                return False
        return True

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self.descriptor, keys.encode())

    def end(self) -> int:
        """Read until the program ends; its exit code."""
        until_s = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < until_s, f"the program does not end: {self.text}"
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE_S)
        assert ready, f"the program prints nothing any more: {self.text}"
        try:
            data = os.read(self.descriptor, 1 << 16)
        except OSError:  # nobody has the terminal open any more
            data = b""
        self.output += data
        self.stream.feed(data)
        return bool(data)

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without the empty lines at its end."""
        return [line.rstrip() for line in self.text.rstrip().split("\n")]

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.screen.display)


@contextmanager
def terminal(
    command: Sequence[object], *, columns: int = 80, environment: dict[str, str] | None = None
) -> Iterator[Terminal]:
    """Run a command in a terminal of 24 lines."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    screen = pyte.Screen(columns, 24)
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        preexec_fn=lambda: os.login_tty(theirs),  # noqa: PLW1509 - it calls the system alone
        env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
    )
    os.close(theirs)
    try:
        yield Terminal(process=process, descriptor=ours, screen=screen, stream=pyte.ByteStream(screen))
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@contextmanager
def background(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command whose standard streams are no terminal; it is killed at the end of the block."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()

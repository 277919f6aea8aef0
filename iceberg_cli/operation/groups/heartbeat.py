"""Signs of life of a process that works on an operation for hours: a file in its folder that it renews.

Its age is its time against that of a file that whoever looks has just created there: both are the storage's. What it
holds is the first record of the journal with this process in it, so that who looks reads nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.operation.records import Begin
from iceberg_cli.operation.runtime import process_space
from iceberg_cli.storage import Storage

ALIVE_MS: Final = 600_000
"""A sign of life that is younger is that of a process at work."""
_EVERY_MS: Final = 60_000
_DOUBTFUL_MS: Final = 300_000  # long before others take it for dead
_FILE: Final = "alive"


@dataclass(kw_only=True)
class Heartbeat:
    """The signs of life of this process.

    Args:
        storage: of the folder.
        folder: of the operation.
        now_ms: the clock by which it beats.
        begin: the first record of the journal, with this process in it.
    """

    storage: Storage
    folder: str
    now_ms: Callable[[], int]
    begin: Begin
    last_ms: int | None = None
    _process_space: str = field(default_factory=process_space)

    def is_due(self) -> bool:
        """Whether the last sign of life is not young any more, or of a time to come: a clock may be set back."""
        return self.last_ms is None or not 0 <= self.now_ms() - self.last_ms < _EVERY_MS

    def beat(self) -> None:
        """Give a sign of life; where the storage fails, none is given."""
        now_ms = self.now_ms()
        with suppress(BackendUnavailable):
            data = json.dumps({**self.begin.to_json(), "process_space": self._process_space}).encode()
            self.storage.replace(f"{self.folder}/{_FILE}", data)
            self.last_ms = now_ms

    def is_certain(self) -> bool:
        """Whether others take this process for alive, without doubt."""
        return self.last_ms is not None and self.now_ms() - self.last_ms < _DOUBTFUL_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOfLife:
    """What a sign of life says.

    Args:
        begin: the first record of the operation's journal, with the process in it that gave the sign.
        process_space: of that process, see `runtime.process_space`.
    """

    begin: Begin
    process_space: str


def sign_of_life(storage: Storage, folder: str) -> SignOfLife | None:
    """The last sign of life in an operation's folder; None where that is not to be had any more."""
    path = f"{folder}/{_FILE}"
    try:
        value = loads(storage.read(path), path)
        return SignOfLife(begin=Begin.from_json(value), process_space=str(value["process_space"]))
    except (FileNotFoundError, CorruptFile, KeyError, TypeError, ValueError):
        return None


_at_work_here: Final[set[str]] = set()  # folders of the operations that a thread of this process works on


@contextmanager
def at_work_here(folder: str) -> Iterator[None]:
    """A thread of this process works on the operation in a folder meanwhile."""
    _at_work_here.add(folder)
    try:
        yield
    finally:
        _at_work_here.discard(folder)


def is_at_work_here(folder: str) -> bool:
    """Whether a thread of this process works on the operation in a folder."""
    return folder in _at_work_here


def silent_ms(storage: Storage, folder: str, *, mark: str, now_ms: int) -> int | None:
    """How long ago the process of an operation gave its last sign of life, by the storage's clock.

    Args:
        storage: of the folder.
        folder: of the operation.
        mark: of this look, which nobody else has; empty: nothing is created, and our clock has to do.
        now_ms: by our clock.

    Returns:
        None where it never gave any, as operations of one commit do not.

    Raises:
        BackendUnavailable: nothing can be created in the folder.
    """
    (alive,) = storage.stat_many([f"{folder}/{_FILE}"])
    if alive is None:
        return None
    if not mark:
        return max(0, now_ms - alive.modified_ms)
    probe = f"{folder}/looked-{mark}"
    with suppress(FileExistsError):  # our own, where the answer to it got lost
        storage.put_if_absent(probe, b"")
    try:
        (now,) = storage.stat_many([probe])
    finally:
        storage.erase([probe])
    if now is None:  # it was closed, and its files deleted
        return None
    return max(0, now.modified_ms - alive.modified_ms)

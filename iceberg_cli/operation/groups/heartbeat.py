"""Signs of life of a process that works on an operation for hours: a file in its folder that it renews.

Its age is its time against that of a file that whoever looks has just created there: both are the storage's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from iceberg_cli.errors import BackendUnavailable
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
    """

    storage: Storage
    folder: str
    now_ms: Callable[[], int]
    last_ms: int | None = None

    def beat(self) -> None:
        """Give a sign of life, unless the last one is young; where the storage fails, the next call tries again."""
        now_ms = self.now_ms()
        if self.last_ms is not None and now_ms - self.last_ms < _EVERY_MS:
            return
        with suppress(BackendUnavailable):
            self.storage.replace(f"{self.folder}/{_FILE}", b"")
            self.last_ms = now_ms

    def is_certain(self) -> bool:
        """Whether others take this process for alive, without doubt; gives a sign of life where one is due."""
        self.beat()
        return self.last_ms is not None and self.now_ms() - self.last_ms < _DOUBTFUL_MS


def silent_ms(storage: Storage, folder: str, *, mark: str) -> int | None:
    """How long ago the process of an operation gave its last sign of life, by the storage's clock.

    Args:
        storage: of the folder.
        folder: of the operation.
        mark: of this look, which nobody else has.

    Returns:
        None where it never gave any, as operations of one commit do not.

    Raises:
        BackendUnavailable: nothing can be created in the folder.
    """
    (alive,) = storage.stat_many([f"{folder}/{_FILE}"])
    if alive is None:
        return None
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

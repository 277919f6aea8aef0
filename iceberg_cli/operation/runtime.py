"""Clock, ids, limits and the stop signal of one run."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from iceberg_cli.errors import Cancelled, Interrupted
from iceberg_cli.plan.events import Listener

MAX_AHEAD_MS: Final = 86_400_000  # our clock of the storage's, where ages decide what goes


class DeletionAllowance:
    """The files and bytes that may still be deleted, by all runs that share it and in whatever threads they are.

    Args:
        files: at most so many; None: any number.
        size_bytes: at most so many bytes of files together; None: any number.
    """

    def __init__(self, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self._files, self._size_bytes = files, size_bytes
        self._lock = threading.Lock()

    @property
    def is_spent(self) -> bool:
        """Whether no file may be deleted any more; one that is larger than what is left does not tell."""
        with self._lock:
            return self._files == 0 or self._size_bytes == 0

    def take(self, sizes: Sequence[int]) -> int:
        """Take the right to delete files in their order, as many as there is room for.

        Args:
            sizes: in bytes, of n files.

        Returns:
            How many of the first ones may go.
        """
        with self._lock:
            number = len(sizes) if self._files is None else min(len(sizes), self._files)
            if self._size_bytes is not None:
                ends = list(accumulate(sizes[:number]))
                number = bisect_right(ends, self._size_bytes)
                self._size_bytes -= ends[number - 1] if number else 0
            if self._files is not None:
                self._files -= number
            return number

    def give_back(self, files: int, size_bytes: int) -> None:
        """Give back what was taken for files that stay."""
        with self._lock:
            if self._files is not None:
                self._files += files
            if self._size_bytes is not None:
                self._size_bytes += size_bytes


@dataclass(kw_only=True, repr=False)
class Runtime:
    """Clock, ids and limits of one run. Tests pass their own."""

    now_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    sleep_ms: Callable[[float], None]
    on_event: Listener
    host: str
    process_id: int
    actor: str | None = None  # who runs it, for people
    process_started: str = ""  # differs from that of a later process with the same id
    limit_deletes: int | None = None
    deadline_ms: int | None = None  # a point in time
    sweep_batch: int = 5_000  # files whose deletion is journalled at once, at first
    quick_batch_ms: int = 2_000  # a batch that takes less time is followed by one of twice as many files
    stop_requested: Callable[[], bool] = field(default=lambda: False)
    deletes_left: int = 0
    allowance: DeletionAllowance | None = None  # shared with other runs, beside the limit of this one

    def __repr__(self) -> str:
        """Its limits."""
        return f"Runtime(limit_deletes={self.limit_deletes}, deadline_ms={self.deadline_ms})"

    def __post_init__(self) -> None:
        """Start the count of deletions."""
        self.deletes_left = -1 if self.limit_deletes is None else self.limit_deletes

    def check_stop(self, state: str, *, next_step: str = "`resume` finishes it.") -> None:
        """Stop at a safe point if a signal came."""
        if self.stop_requested():
            raise Interrupted("Stopped by a signal", state=state, next_step=next_step)

    def check_cancelled(self) -> None:
        """Stop while nothing is changed, and nothing is left to resume, if a signal came."""
        if self.stop_requested():
            raise Cancelled("Stopped by a signal", next_step="Run the same command again.")

    def process(self) -> dict[str, Any]:
        """Host, id and start of this process, for the journal."""
        return {"host": self.host, "process_id": self.process_id, "process_started": self.process_started}

    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_ms is not None and self.now_ms() >= self.deadline_ms


def system_runtime(*, on_event: Listener, **values: Any) -> Runtime:
    """The clock, ids and sleep of a real run; `values` are the other fields of `Runtime`."""
    return Runtime(
        now_ms=_now_ms,
        new_uuid=lambda: time_ordered_uuid(_now_ms()),
        sleep_ms=lambda ms: time.sleep(ms / 1_000),
        on_event=on_event,
        **values,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the clock of real runs


def time_ordered_uuid(now_ms: int) -> str:
    """A new UUID of version 7: the time in ms since the epoch, then 74 random bits.

    A commit's own is the key by which a REST catalog knows a request again, which must be of this version.

    Spec: RFC 9562, section 5.7.
    """
    import secrets
    import uuid

    drawn = secrets.randbits(74)
    value = now_ms << 80 | 0x7 << 76 | drawn >> 62 << 64 | 0b10 << 62 | drawn & (1 << 62) - 1
    return str(uuid.UUID(int=value))


def process_started(process_id: int) -> str:
    """The boot, and the time since it at which a process began; empty where the system has neither."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open(f"/proc/{process_id}/stat", "rb") as stat:
            return f"{boot}/{stat.read().rsplit(b')', 1)[1].split()[19].decode()}"
    except (OSError, IndexError):
        return ""


def process_space() -> str:
    """The boot, and the namespace that this process's id is of; empty where the system has neither.

    Containers of one machine, and machines of one name, have processes of the same ids.
    """
    import os

    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""

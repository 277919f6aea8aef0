"""What a rewrite of files may take of a machine where nobody says, and how often it commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from iceberg_cli.engines.machine import processors, rows_by_default
from iceberg_cli.errors import TooLittleMemory
from iceberg_cli.operation.groups.ports import CommitPace

DEFAULT_COMMITS: Final = 10
SHARES: Final = (
    3  # of the memory of a group: rows that are held, what they are encoded into, and what is read meanwhile
)
WAITING: Final = 4  # of what is read meanwhile: what waits for its turn, or for rows to be with
_MOST_HELD_BYTES: Final = 1 << 30  # a column of text has no more than 2 GiB in one piece
_DEFAULT_COMMIT_MS: Final = 600_000
_PROCESS_BYTES: Final = 384 << 20  # for row groups as large as they are by default
_WORKER_BYTES: Final = 1 << 30  # for a group on a machine of which nothing is known


def memory_of(chosen: int | None) -> int:
    """The bytes that all rows may take which are held at a time on this machine."""
    return rows_by_default() if chosen is None else chosen


def share_of_group(
    chosen: int | None, *, processes: int, groups: int, is_distributed: bool
) -> tuple[int, int]:
    """How many groups share the memory of a machine, and the bytes of each.

    Args:
        chosen: the bytes that all rows may take on a machine; None: nobody says.
        processes: that rewrite groups.
        groups: that there are.
        is_distributed: whether groups are rewritten on other machines, where each is the only one of a task.
    """
    if is_distributed:
        return 1, _WORKER_BYTES if chosen is None else chosen
    side_by_side = max(1, min(processes, groups))
    return side_by_side, memory_of(chosen) // side_by_side


def held_bytes_of(memory_bytes: int) -> int:
    """Of the memory of a group, what rows may take that are in no row group yet."""
    return min(memory_bytes // SHARES, _MOST_HELD_BYTES)


@contextmanager
def saying_what_would_do(side_by_side: int) -> Iterator[None]:
    """Have an error say how much memory would do where so many groups share it."""
    try:
        yield
    except TooLittleMemory as error:
        mebibytes = -(-error.needed_bytes * SHARES * side_by_side // (1 << 20))
        error.next_step = f"Run it with --memory {mebibytes}MiB, or with fewer --processes."
        raise


def processes_of(chosen: int | None, memory_bytes: int) -> int:
    """How many groups are rewritten side by side on this machine: no more than there is memory for."""
    return max(1, min(processors(), memory_bytes // _PROCESS_BYTES)) if chosen is None else chosen


def pace_of(
    every: tuple[int | None, int | None], max_commits: int | None, *, single_commit: bool
) -> CommitPace:
    """How often finished groups are committed.

    Args:
        every: so many bytes or ms, or neither, see `size_or_duration`.
        max_commits: None: as many as by default.
        single_commit: all at the end.
    """
    every_bytes, every_ms = every
    return CommitPace(
        every_bytes=every_bytes,
        every_ms=_DEFAULT_COMMIT_MS if every_ms is None else every_ms,
        most_commits=1 if single_commit else DEFAULT_COMMITS if max_commits is None else max_commits,
    )

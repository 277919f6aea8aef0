"""What a rewrite of files may take of a machine where nobody says, and how often it commits."""

from __future__ import annotations

from typing import Final

from iceberg_cli.engines.machine import processors, rows_by_default
from iceberg_cli.operation.groups.ports import CommitPace

DEFAULT_COMMITS: Final = 10
_DEFAULT_COMMIT_MS: Final = 600_000
_PROCESS_BYTES: Final = 384 << 20  # for row groups as large as they are by default
_WORKER_BYTES: Final = 1 << 30  # for a group on a machine of which nothing is known


def memory_of(chosen: int | None) -> int:
    """The bytes that all rows may take which are held at a time on this machine."""
    return rows_by_default() if chosen is None else chosen


def memory_of_worker(chosen: int | None) -> int:
    """The bytes that rows of a group may take on another machine, where it is the only one of a task."""
    return _WORKER_BYTES if chosen is None else chosen


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

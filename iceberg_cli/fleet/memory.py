"""The memory that tables which are worked on side by side share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iceberg_cli.engines.machine import rows_by_default
from iceberg_cli.fleet.policy_file import GivenOptions
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.api import Table

_MEMORY: Final = "--memory"  # of verbs that rewrite rows
BUDGET_BYTES: Final = 1 << 30
# As measured by `python -m benchmarks growth`: of any table, and more for each live data file.
_ANY_TABLE_BYTES: Final = 64 << 20
_FILE_BYTES: Final = 64


class MemoryBudget:
    """Room for tables whose work takes so much memory together; one that needs more than all has it to itself.

    Args:
        size_bytes: of all together.
    """

    def __init__(self, size_bytes: int = BUDGET_BYTES) -> None:
        self._size_bytes = size_bytes
        self._taken = 0
        self._changed = threading.Condition()

    @contextmanager
    def room(self, size_bytes: int) -> Iterator[None]:
        """Wait until there is room for a table, and keep it for the block.

        Args:
            size_bytes: that its work takes, about.
        """
        taking = min(size_bytes, self._size_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + taking <= self._size_bytes)
            self._taken += taking
        try:
            yield
        finally:
            with self._changed:
                self._taken -= taking
                self._changed.notify_all()


def memory_of_rows(size_bytes: int | None, *, jobs: int) -> GivenOptions:
    """What a verb may hold of the rows of one table: its share.

    Args:
        size_bytes: for all tables that are worked on side by side; None: 2 GiB, or a quarter of the machine's memory.
        jobs: how many these are.
    """
    share = (rows_by_default() if size_bytes is None else size_bytes) // jobs
    given = "default" if size_bytes is None else _MEMORY
    source = f"{given} of maintain, shared by {count(jobs, 'tables')}"
    return GivenOptions(given={_MEMORY: share}, sources={_MEMORY: source})


def needed_by(table: Table) -> int:
    """About how many bytes the work on an opened table takes."""
    return _ANY_TABLE_BYTES + _FILE_BYTES * table.live_files

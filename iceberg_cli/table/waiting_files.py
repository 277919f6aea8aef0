"""Files that open operations delete once their grace is over: plans that find files by listings leave these to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.journal import load_plan
from iceberg_cli.plan.plan import Verdict
from iceberg_cli.plan.removal_rows import total_bytes
from iceberg_cli.plan.text import iso

if TYPE_CHECKING:
    from iceberg_cli.plan.removals import Removals
    from iceberg_cli.table.table import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingOperation:
    """An operation whose files wait for their grace.

    Args:
        operation_id: its id.
        until_ms: when the grace is over, in ms since the epoch; it may be already.
        steps: whose files are still there.
        removals: of the plan that was shown, which has files of other steps, too.
    """

    operation_id: str
    until_ms: int
    steps: frozenset[str]
    removals: Removals

    def __str__(self) -> str:
        """Which it is, and until when."""
        return f"the grace of operation {self.operation_id}, which ends at {iso(self.until_ms)}"

    def rows(self) -> Iterator[pa.Table]:
        """Rows of `removal_rows.SCHEMA` of files that are still there, a part after the other."""
        steps = pa.array(sorted(self.steps), pa.string())
        for part in self.removals.parts:
            rows = part.read()
            yield rows.filter(pc.is_in(rows["step"].cast(pa.string()), value_set=steps))


def waiting_operations(table: OpenTable) -> list[WaitingOperation]:
    """The operations on a table whose files wait, in the order of their ids.

    One that cannot be read is left out: while it is open nothing is deleted, which says so with its way out.

    Raises:
        BackendUnavailable: the storage failed.
    """
    found = []
    for operation_id in table.workspace.open_operations():
        with suppress(CorruptFile, Refused):
            journal = table.workspace.journal(operation_id)
            operation = journal.operation()
            if operation is None or operation.closed is not None:
                continue
            until_ms = operation.grace_until_ms()
            loaded = None if until_ms is None else load_plan(journal)
            if until_ms is None or loaded is None or loaded[0].removals is None:
                continue
            done = {name for name, state in operation.steps.items() if state.done}
            found.append(
                WaitingOperation(
                    operation_id=operation_id,
                    until_ms=until_ms,
                    steps=frozenset(operation.step_names) - done,
                    removals=loaded[0].removals,
                )
            )
    return found


@dataclass
class WaitingFiles:
    """The files of these operations among those that a plan found.

    Args:
        operations: that wait.
    """

    operations: Sequence[WaitingOperation]
    _totals: dict[str, tuple[int, int]] = field(default_factory=dict)  # of each operation, files and bytes

    def left_out(self, files: pa.Table) -> pa.Table:
        """Files without those that wait; columns `path`, canonical, `size_bytes` and others."""
        for operation in self.operations:
            for rows in operation.rows():
                waits = pc.is_in(
                    files["path"], value_set=rows["path"].cast(files["path"].type).combine_chunks()
                )
                sizes = files["size_bytes"].filter(waits)
                count, size_bytes = self._totals.get(operation.operation_id, (0, 0))
                self._totals[operation.operation_id] = (count + len(sizes), total_bytes(sizes, size_bytes))
                files = files.filter(pc.invert(waits))
        return files

    def operation_of(self, steps: Collection[str]) -> WaitingOperation | None:
        """The one that waits longest with files of one of these steps, or None."""
        having = [
            each
            for each in self.operations
            if any(start < stop for start, stop in map(each.removals.of_step, each.steps.intersection(steps)))
        ]
        return max(having, key=lambda each: each.until_ms, default=None)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts with the number of files that were left out for each operation."""
        return tuple(
            Verdict(
                subject="files",
                id=f"{count} of {size_bytes} bytes",
                keep=True,
                reason=f"kept: they wait for {operation}",
            )
            for operation in self.operations
            for count, size_bytes in [self._totals.get(operation.operation_id, (0, 0))]
            if count
        )

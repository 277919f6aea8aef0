"""The deletions of one step, batch by batch: intent, a look at what is live, deletion, outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from iceberg_cli.apply.ports import Table
from iceberg_cli.apply.shell import Shell
from iceberg_cli.engines import Event
from iceberg_cli.errors import BackendUnavailable, CorruptFile, DeletesFailed
from iceberg_cli.journal import Journal
from iceberg_cli.operation import StepState
from iceberg_cli.plan import Plan
from iceberg_cli.removals import Removals


@dataclass(kw_only=True)
class Sweep:
    """One step's removals on their way out. `kept_again` counts those that the table reaches again."""

    step: str
    plan: Plan
    removals: Removals
    table: Table
    shell: Shell
    journal: Journal
    kept_again: int = 0
    note: str = ""

    def failed(self) -> bool:
        """Whether a file that may go is still there."""
        operation = self.journal.operation()
        assert operation is not None
        return bool(operation.steps[self.step].failed)

    def run(self, state: StepState) -> bool:
        """Delete what the step's removals list and the table does not reach now.

        Args:
            state: what the journal knows of the step.

        Returns:
            False if something is left: a limit was reached, or a deletion failed.

        Raises:
            DeletesFailed: the table cannot be read any more, so nothing more may go.
            Refused: deletions are forbidden by now.
            Interrupted: a signal asked to stop.
        """
        start, stop = self.removals.of_step(self.step)
        batches = [*_batches(list(state.failed), self.shell.sweep_batch)]
        for first, last in _gaps(start, stop, state.swept):
            batches += _batches(range(first, last), self.shell.sweep_batch)
        done = 0
        for batch in batches:
            allowed = batch if self.shell.deletes_left < 0 else batch[: self.shell.deletes_left]
            if not allowed or self.shell.out_of_time():
                return self._stopped_at_limit()
            self.shell.check_stop("The commit is done. Some unreferenced files are still there.")
            try:
                self._rows(allowed)
            except (CorruptFile, BackendUnavailable) as error:
                raise DeletesFailed(
                    f"Cannot go on deleting: {error.message}",
                    next_step=f"`resume` goes on with operation {self.journal.operation_id}.",
                ) from error
            done += len(allowed)
            self.shell.on_event(Event(phase="deleting files", done=done, total=sum(map(len, batches))))
            if len(allowed) < len(batch):
                return self._stopped_at_limit()
        return not self.failed()

    def _stopped_at_limit(self) -> bool:
        self.note = "Stopped at the limit that was asked for; `resume` goes on."
        return False

    def _rows(self, batch: Sequence[int]) -> None:
        whole = isinstance(batch, range)
        asked = {"start": batch[0], "stop": batch[-1] + 1} if whole else {"rows": list(batch)}
        self.journal.append("sweep-intent", {"step": self.step, **asked})
        # After the record, so that as little as possible can happen between the look and the deletion.
        rows = self.table.not_live(self.removals, batch, plan=self.plan)
        self.kept_again += len(batch) - len(rows)
        table = self.removals.rows(rows)
        paths = table["path"].to_pylist()
        failures = self.table.delete(paths)
        gone = [path not in failures for path in paths]
        deleted = Removals(table.filter(pa.array(gone)) if failures else table)
        self.journal.append(
            "sweep-outcome",
            {
                "step": self.step,
                **asked,
                "by_kind": {kind: total["count"] for kind, total in deleted.by_kind.items()},
                "bytes": deleted.size_bytes,
                "failed": [row for row, is_gone in zip(rows, gone, strict=True) if not is_gone],
                "reasons": sorted(set(failures.values()))[:5],
            },
        )
        if self.shell.deletes_left >= 0:
            self.shell.deletes_left -= len(batch)


def _batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Slices of at most `size` rows."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _gaps(start: int, stop: int, done: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The row ranges of `[start, stop)` that are in none of `done`."""
    for first, last in sorted(done):
        if first > start:
            yield start, min(first, stop)
        start = max(start, last)
    if start < stop:
        yield start, stop

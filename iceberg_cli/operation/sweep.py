"""The deletions of one step, batch by batch: intent, reachability now, deletion, outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import BackendUnavailable, CorruptFile, DeletesFailed, Refused
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import StepState
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.records import SweepIntent, SweepOutcome
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.operation.withholding import check_others
from iceberg_cli.paths import folder_column
from iceberg_cli.plan.events import Event, FilesDeleted
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removal_rows import kind_totals, of_kinds, total_bytes
from iceberg_cli.plan.removals import PART_ROWS, Removals

_PHASE: Final = "deleting files"
_LOOKED_AT: Final = 1_000  # files, for what their storage does to them


@dataclass(kw_only=True)
class Sweep:
    """The deletion of one step's removals. `kept_again` counts those that are reachable again."""

    step: str
    plan: Plan
    removals: Removals
    table: Table
    runtime: Runtime
    journal: Journal
    kept_again: int = 0
    note: str = ""

    def failed(self) -> bool:
        """Whether a file that may go is still there."""
        operation = self.journal.operation()
        assert operation is not None
        return bool(operation.steps[self.step].failed)

    def run(self, state: StepState) -> bool:
        """Delete the files of the step's removals that are unreachable now.

        Args:
            state: of the step, from the journal.

        Returns:
            False if something is left: a limit was reached, or a deletion failed.

        Raises:
            DeletesFailed: the table cannot be read any more, so nothing more may go.
            Refused: deletions are forbidden by now, perhaps by another operation.
            Interrupted: a signal asked to stop.
        """
        start, stop = self.removals.of_step(self.step)
        waiting: list[Sequence[int]] = [list(state.failed)] if state.failed else []
        waiting += [range(first, last) for first, last in gaps(start, stop, state.swept)]
        if waiting:
            self._check_others()
            self._check_softness()
        total = sum(map(len, waiting))
        done, size = 0, self.runtime.sweep_batch
        if total:
            self.runtime.on_event(Event(phase=_PHASE, done=0, total=total))
        while waiting:
            rows = waiting.pop(0)
            left = len(rows) if self.runtime.deletes_left < 0 else self.runtime.deletes_left
            if self.runtime.out_of_time():
                return self._stopped_at_limit()
            self.runtime.check_stop("The commit is done. Some unreferenced files are still there.")
            batch = self._allowed(rows[: min(size, left)])
            if not batch:
                return self._stopped_at_limit()
            started_ms = self.runtime.now_ms()
            try:
                self._rows(batch)
            except (CorruptFile, BackendUnavailable) as error:
                raise self._stopped_by(error, left=total - done) from error
            done += len(batch)
            self.runtime.on_event(Event(phase=_PHASE, done=done, total=total))
            if len(batch) < len(rows):
                waiting.insert(0, rows[len(batch) :])
            if self.runtime.now_ms() - started_ms < self.runtime.quick_batch_ms:
                size = min(2 * size, PART_ROWS)
        return not self.failed()

    def _allowed(self, rows: Sequence[int]) -> Sequence[int]:
        """The first of these that may be deleted by what is shared with other runs."""
        allowance = self.runtime.allowance
        if allowance is None or not rows:
            return rows
        return rows[: allowance.take(self._sizes(rows))]

    def _sizes(self, rows: Sequence[int]) -> list[int]:
        """Sizes in bytes, 0 for one that is not known."""
        return self._sizes_in(self.removals.read_rows(rows))

    def _sizes_in(self, table: pa.Table) -> list[int]:
        sizes: list[int] = pc.fill_null(table["size_bytes"], 0).to_pylist()
        return sizes

    def _is_tagged(self, table: pa.Table) -> pa.ChunkedArray | None:
        """Of n rows n booleans: whether a deletion of the file tags it and deletes nothing; None: of none it does."""
        folders = self.table.workspace.tagged_in(table["path"])
        if not folders:
            return None
        found = folder_column(table["path"])
        return pc.is_in(found, value_set=pa.array(folders, found.type))

    def _check_softness(self) -> None:
        """Stop where files were shown as tagged that would be deleted by now.

        Raises:
            Refused: the options of the storage are others than those that the operator confirmed.
        """
        shown = self.plan.tagged
        if (
            shown is None or shown.count < self.removals.count
        ):  # some files are in storages without that option
            return
        start, stop = self.removals.of_step(self.step)
        some = self.removals.read_rows(range(start, min(stop, start + _LOOKED_AT)))["path"]
        if len(some) and not self.table.workspace.tagged_in(some):
            raise Refused(
                f"Cannot go on with {self.plan.verb} {self.plan.table['name']}: {shown.count:,} files were shown to be "
                f"tagged by {shown.option}, and the storage would delete them for good by now",
                state="The commit is done. Some unreferenced files are still there.",
                next_step=f"Set the option again and `resume`. `resume TABLE {self.journal.operation_id} --abandon` "
                "closes the operation: these files stay then.",
            )

    def _stopped_by(self, error: CorruptFile | BackendUnavailable, *, left: int) -> DeletesFailed:
        """The error where reachability cannot be found out any more."""
        operation_id = self.journal.operation_id
        next_step = f"`resume` goes on with operation {operation_id}."
        if isinstance(error, CorruptFile):
            next_step = (
                f"Once that file can be read, `resume` goes on with operation {operation_id}. "
                f"`resume TABLE {operation_id} --abandon` closes it as it is: these files stay then."
            )
        return DeletesFailed(
            f"Cannot go on deleting: {error.message}",
            state=f"The commit is done. Files that nothing may need any more and that are still there: {left:,}.",
            next_step=next_step,
        )

    def _stopped_at_limit(self) -> bool:
        self.note = "Stopped at the limit that was asked for; `resume` goes on."
        return False

    def fails_as_before(self, state: StepState) -> bool:
        """Whether all that is left are files that still cannot be deleted, for the reasons that are on record.

        They are tried without another record: the intent to delete them is on record too. Where one is gone after that,
        or stays for another reason, `run` tries again and records it.

        Args:
            state: of the step, from the journal.

        Raises:
            Refused: deletions are forbidden by now. CorruptFile, BackendUnavailable: the table cannot be read.
        """
        start, stop = self.removals.of_step(self.step)
        limited = 0 <= self.runtime.deletes_left < len(state.failed)
        if (
            limited
            or self.runtime.allowance is not None
            or not state.failed
            or any(gaps(start, stop, state.swept))
        ):
            return False
        self._check_others()
        self._check_softness()
        known = {
            reason
            for record in self.journal.records(SweepOutcome)
            if record.step == self.step
            for reason in record.reasons
        }
        for first in range(0, len(state.failed), PART_ROWS):
            if self.runtime.stop_requested() or self.runtime.out_of_time():
                return False
            batch = state.failed[first : first + PART_ROWS]
            rows = self.table.unreachable(self.removals, batch, plan=self.plan)
            failures = self._delete(self.removals.read_rows(rows))
            if len(failures) < len(batch) or not known.issuperset(_some(failures)):
                return False
        return True

    def _check_others(self) -> None:
        check_others(self.table, self.plan.table["name"], besides=self.journal.operation_id)

    def _delete(self, table: pa.Table) -> dict[str, str]:
        """Delete files, columns of `removal_rows.SCHEMA`; those that are still there, with the reason."""
        failures: dict[str, str] = {}
        for _, some in of_kinds(table, ["path"]):  # one kind before the next: storages delete side by side
            failures |= self.table.workspace.delete(some["path"].to_pylist())
        return failures

    def _rows(self, batch: Sequence[int]) -> None:
        whole = isinstance(batch, range)
        tried = SweepIntent(
            step=self.step,
            start=batch[0] if whole else None,
            stop=batch[-1] + 1 if whole else None,
            rows=None if whole else tuple(batch),
        )
        self.journal.append(tried)
        # After the record, so that as little as possible can happen between this scan and the deletion.
        rows = self.table.unreachable(self.removals, batch, plan=self.plan)
        self.kept_again += len(batch) - len(rows)
        kept = sorted(set(batch).difference(rows)) if len(rows) < len(batch) else ()
        table = self.removals.read_rows(rows)
        failures = self._delete(table)
        gone = [path not in failures for path in table["path"].to_pylist()]
        if self.runtime.allowance is not None:
            staying = [*kept, *(row for row, is_gone in zip(rows, gone, strict=True) if not is_gone)]
            self.runtime.allowance.give_back(len(staying), sum(self._sizes(sorted(staying))))
        done = table.filter(pa.array(gone)) if failures else table
        is_tagged = self._is_tagged(done)
        tagged = () if is_tagged is None else self._sizes_in(done.filter(is_tagged))
        gone_rows = done if is_tagged is None else done.filter(pc.invert(is_tagged))
        deleted = kind_totals(gone_rows)
        self.journal.append(
            SweepOutcome(
                step=self.step,
                start=tried.start,
                stop=tried.stop,
                rows=tried.rows,
                by_kind={kind: count for kind, (count, _) in deleted.items()},
                bytes=sum(size_bytes for _, size_bytes in deleted.values()),
                failed=tuple(row for row, is_gone in zip(rows, gone, strict=True) if not is_gone),
                reasons=tuple(_some(failures)),
                tagged=len(tagged) or None,
            )
        )
        self.runtime.on_event(
            FilesDeleted(
                table=self.plan.table["name"],
                verb=self.plan.verb,
                operation_id=self.journal.operation_id,
                by_kind=deleted,
                kept=len(kept),
                kept_bytes=total_bytes(self.removals.read_rows(kept)["size_bytes"]) if kept else 0,
                failures=failures,
                tagged=len(tagged),
                tagged_bytes=sum(tagged),
                paths=gone_rows["path"],
            )
        )
        if self.runtime.deletes_left >= 0:
            self.runtime.deletes_left -= len(batch)


def _some(failures: Mapping[str, str]) -> list[str]:
    """The reasons that a record keeps, each once."""
    return sorted(set(failures.values()))[:5]


def gaps(start: int, stop: int, done: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The row ranges of `[start, stop)` that are in none of `done`."""
    for first, last in sorted(done):
        if first > start:
            yield start, min(first, stop)
        start = max(start, last)
    if start < stop:
        yield start, stop

"""The file of `--metrics`: what a run did, as text that Prometheus reads.

All of them are gauges: they are about the last run of a command, and one that comes to an end counts nothing further.
The file is replaced as a whole, by a file beside it which is renamed: whoever reads it sees one run or the other. What
a run does not tell anew is not there any more, but for the last success: that is in the file until there is another.

A collector reads many of these files, and no two may have the same series. Those of one table are told apart by table
and verb; a command about many has one more label, the name of its file. The series of the whole run have no table.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from iceberg_cli.cli import subject
from iceberg_cli.cli.clock import now_ms
from iceberg_cli.cli.listening import listeners
from iceberg_cli.cli.listening.exposition import Sample, labels_of, lines_of, seconds, times_in
from iceberg_cli.cli.listening.listeners import warn
from iceberg_cli.cli.listening.table_metrics import TableMetrics
from iceberg_cli.errors import IcebergCliError, UsageError
from iceberg_cli.formats import format_of
from iceberg_cli.names import levels_of
from iceberg_cli.plan.events import (
    COMMIT,
    OPEN,
    PLAN,
    RECORD,
    RECOVER,
    STAGE,
    SWEEP,
    WAIT,
    AnyEvent,
    CommitEnded,
    FilesDeleted,
    FleetCounted,
    OperationEnded,
    PhaseBegun,
    PhaseEnded,
    PlanMade,
    TableMeasured,
)
from iceberg_cli.plan.open_phases import OpenPhases
from iceberg_cli.storage.redaction import redact

_Plan = tuple[str, str]  # the table's name and the verb
STATUSES: Final = (
    "done", "nothing_to_do", "waiting", "partial", "conflict", "unknown", "refused", "stopped", "failed", "not_run",
)  # fmt: skip
_STATUS_OF: Final = {
    11: "refused",
    12: "conflict",
    13: "unknown",
    14: "partial",
    130: "stopped",
    143: "stopped",
}
_SUCCESS: Final = (0, 3)
_PHASES: Final = (OPEN, RECOVER, PLAN, RECORD, STAGE, COMMIT, WAIT, SWEEP)
_OUTCOMES: Final = ("committed", "conflict", "unknown")
_EXIT_CODE: Final = "iceberg_cli_exit_code"
_LAST_SUCCESS: Final = "iceberg_cli_last_success_timestamp_seconds"
_DUE_BYTES: Final = "iceberg_cli_due_bytes"
_OLDEST: Final = "iceberg_cli_oldest_snapshot_timestamp_seconds"
_GRADE: Final = "iceberg_cli_grade"
_OPEN_OPERATIONS: Final = "iceberg_cli_open_operations"
_HELP: Final = {
    _EXIT_CODE: "Exit code of the last run, or of its part on one table or of one verb there.",
    "iceberg_cli_status": "1 for the status of the last run; not_run: a dry run, a list, or an answer that was no.",
    "iceberg_cli_last_run_timestamp_seconds": "When the last run ended.",
    _LAST_SUCCESS: "When the last run ended that was not a dry run and whose exit code was 0.",
    "iceberg_cli_duration_seconds": "How long the last run took.",
    "iceberg_cli_phase_duration_seconds": "How long each phase of the last run took; recover is all that it did for "
    "operations of earlier runs.",
    "iceberg_cli_reclaimed_bytes": "Bytes of the files that the last run deleted, as far as their sizes are known.",
    "iceberg_cli_deleted_files": "Files that the last run deleted, by kind.",
    "iceberg_cli_failed_deletes": "Files that the last run could not delete.",
    "iceberg_cli_commit_attempts": "Commits that the last run tried, by outcome.",
    _DUE_BYTES: "Bytes of files that the last plan would delete and that are still there.",
    "iceberg_cli_due_files": "Files that the last plan would delete and that are still there.",
    "iceberg_cli_tables": "Tables that the last survey looked at, by grade.",
    "iceberg_cli_verb_runs": "Verbs on tables that the last maintain came to, by what came of them.",
    _GRADE: "Grade of the table in the last survey: 0 ok, 1 due, 2 overdue, 3 broken, 4 unreadable.",
    _OPEN_OPERATIONS: "Operations of the table that are not closed; there where the last run could tell.",
    _OLDEST: "Time of the table's oldest snapshot, or of the oldest version in a Delta log.",
    "iceberg_cli_oldest_snapshot_age_seconds": "Age of that at the end of the last run.",
}


def listen(path: str, *, looks: bool, of_tables: bool) -> None:
    """Have a metrics file written at the end of the run, however it ends.

    Args:
        path: of the file.
        looks: nothing is to be done: a dry run or a list.
        of_tables: the run is about many tables.

    Raises:
        UsageError: no file can be written there.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.exists(target) and not os.path.isfile(target):
        raise UsageError(f"--metrics: cannot replace {path}: it is no file")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--metrics: cannot write {path}: {folder} is no folder that this user may write to")
    if not target.endswith(".prom"):
        warn(f"--metrics: the textfile collector reads only files whose names end in .prom, unlike {path}")
    run = os.path.basename(target).removesuffix(".prom")
    tables = TableMetrics(subject.command(), redact(run, listeners.hidden())) if of_tables else None
    listeners.add(MetricsFile(target, looks, tables))


@dataclass(eq=False)
class MetricsFile:
    """A listener that writes a metrics file at the end of the run.

    Args:
        path: of the file.
        looks: see `listen`.
        tables: the rows of the tables of a command about many; None: it is about one.
    """

    path: str
    looks: bool
    tables: TableMetrics | None = None
    _began_s: float = field(default_factory=time.monotonic)
    _phase_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PHASES, 0.0))
    _phases: OpenPhases[float] = field(default_factory=OpenPhases)  # with when they began
    _deleted: Counter[str] = field(default_factory=Counter)
    _attempts: Counter[str] = field(default_factory=Counter)
    _reclaimed_bytes: int = 0
    _failures: set[str] = field(default_factory=set)
    _due: dict[_Plan, tuple[int, int]] = field(
        default_factory=dict
    )  # files and bytes that each last plan takes
    _gone: dict[_Plan, tuple[int, int]] = field(default_factory=dict)  # of these
    _reports: dict[_Plan, OperationEnded] = field(default_factory=dict)
    _fleet: FleetCounted | None = None
    _settled: list[OperationEnded] = field(default_factory=list)

    def __call__(self, event: AnyEvent) -> None:
        """Count what happened."""
        match event:
            case PhaseBegun(phase=name):
                self._phases.begin(name, time.monotonic())
            case PhaseEnded(phase=name):
                self._end_phase(name)
            case PlanMade(files=files, size_bytes=size_bytes):
                plan = event.table, event.verb
                self._due[plan], self._gone[plan] = (files, size_bytes), (0, 0)
            case TableMeasured():
                if self.tables is not None:
                    self.tables.add(event)
            case FleetCounted():
                self._fleet = event
            case CommitEnded(outcome=outcome):
                self._attempts[outcome] += 1
            case FilesDeleted():
                self._count_deleted(event)
            case OperationEnded(earlier=True):
                self._settled.append(event)
            case OperationEnded():
                self._reports[event.table, event.verb] = event

    def _end_phase(self, name: str) -> None:
        begun_s = self._phases.end(name)
        if begun_s is not None and not self._phases.values and name in self._phase_s:
            self._phase_s[name] += time.monotonic() - begun_s

    def _count_deleted(self, event: FilesDeleted) -> None:
        files = sum(count for count, _ in event.by_kind.values())
        size_bytes = sum(size for _, size in event.by_kind.values())
        for kind, (count, _) in event.by_kind.items():
            self._deleted[kind] += count
        self._reclaimed_bytes += size_bytes
        self._failures.update(event.failures)
        plan = event.table, event.verb
        gone, gone_bytes = self._gone.get(plan, (0, 0))
        self._gone[plan] = (
            gone + files + event.kept + event.tagged,
            gone_bytes + size_bytes + event.kept_bytes + event.tagged_bytes,
        )

    def warned(self, text: str) -> None:
        """Nothing: warnings are for the log."""

    def end(self, exit_code: int, error: BaseException | None) -> None:
        """Write the file; where that fails, a warning says so and the exit code stays."""
        try:
            self._replace(self._lines(exit_code, error))
        except OSError as failure:
            warn(f"--metrics: cannot write {self.path}: {failure.strerror}")

    def _lines(self, exit_code: int, error: BaseException | None) -> Iterator[str]:
        """The file's content: the samples of one name stand together."""
        ended_ms = now_ms()
        of_run: dict[str, list[Sample]] = {}
        for name, more, value in self._of_run(exit_code, error, ended_ms):
            of_run.setdefault(name, []).append((labels_of({**self._labels, **more}), value))
        earlier = times_in(self.path, _LAST_SUCCESS)
        success = exit_code in _SUCCESS and self._status(exit_code) != "not_run"
        labels = labels_of(self._labels)
        of_run[_LAST_SUCCESS] = [(labels, seconds(ended_ms))] if success else self._kept(earlier, labels)
        of_tables = self._of_tables(earlier, ended_ms)
        for name, documentation in _HELP.items():
            yield from lines_of(name, documentation, chain(of_run.get(name, ()), of_tables.get(name, ())))

    def _kept(self, earlier: Mapping[str, str], labels: str) -> list[Sample]:
        """The last success of the run's labels; of a plan that could not be read, that of whatever table it was for."""
        if self.tables is not None or self._labels["table"]:
            return [(labels, earlier[labels])] if labels in earlier else []
        end = "," + labels.removeprefix("{")
        return [each for each in earlier.items() if each[0].endswith(end)]

    @property
    def _labels(self) -> dict[str, str]:
        """The labels of the whole run; those that are empty are left out."""
        if self.tables is None:
            table = redact(_table_label(), listeners.hidden())
            return {"table": table, "verb": subject.command()}
        return {"verb": subject.command(), "run": self.tables.run}

    def _of_run(
        self, exit_code: int, error: BaseException | None, ended_ms: int
    ) -> Iterator[tuple[str, Mapping[str, str], str]]:
        """The samples of the whole run, but for the last success: name, further labels, value."""
        status = self._status(exit_code)
        yield _EXIT_CODE, {}, str(exit_code)
        for each in STATUSES:
            yield "iceberg_cli_status", {"status": each}, str(int(each == status))
        yield "iceberg_cli_last_run_timestamp_seconds", {}, seconds(ended_ms)
        yield "iceberg_cli_duration_seconds", {}, f"{time.monotonic() - self._began_s:.3f}"
        for each, duration_s in self._phase_s.items():
            yield "iceberg_cli_phase_duration_seconds", {"phase": each}, f"{duration_s:.3f}"
        yield "iceberg_cli_reclaimed_bytes", {}, str(self._reclaimed_bytes)
        # Kinds that a format has and that did not occur are 0, so that no series comes and goes.
        for each in dict.fromkeys((*self._kinds(), *self._deleted)):
            yield "iceberg_cli_deleted_files", {"kind": each}, str(self._deleted[each])
        yield "iceberg_cli_failed_deletes", {}, str(len(self._failures))
        for each in _OUTCOMES:
            yield "iceberg_cli_commit_attempts", {"outcome": each}, str(self._attempts[each])
        if (left := self._left()) is not None:
            yield _DUE_BYTES, {}, str(left[1])
            yield "iceberg_cli_due_files", {}, str(left[0])
        if self._fleet is not None:
            for label, number in self._fleet.counts.items():
                yield f"iceberg_cli_{self._fleet.what}", {self._fleet.label: label}, str(number)
        if error is None and (oldest_ms := self._oldest_ms()) is not None:
            yield _OLDEST, {}, seconds(oldest_ms)
            yield "iceberg_cli_oldest_snapshot_age_seconds", {}, seconds(ended_ms - oldest_ms)

    def _of_tables(self, earlier: Mapping[str, str], ended_ms: int) -> dict[str, Iterator[Sample]]:
        """The samples of tables, and of verbs on them, in a run about many, by name."""
        if self.tables is None:
            return {}
        ended = None if self.looks else seconds(ended_ms)
        is_whole = self._fleet is not None and self._fleet.is_whole
        return {
            _EXIT_CODE: self.tables.numbers("exit_code"),
            _LAST_SUCCESS: self.tables.successes(earlier, ended, is_whole=is_whole),
            _DUE_BYTES: self.tables.numbers("due_bytes"),
            _GRADE: self.tables.numbers("grade"),
            _OPEN_OPERATIONS: self.tables.numbers("open_operations"),
            _OLDEST: self.tables.oldest_snapshots(),
        }

    def _kinds(self) -> Iterator[str]:
        """The kinds of files that the formats of the tables have which were opened or listed."""
        table = listeners.table()
        names = {table.format} if table is not None else set() if self.tables is None else self.tables.formats
        for name in sorted(names):
            yield from format_of(name).file_kinds()

    def _status(self, exit_code: int) -> str:
        """The status of the run: that of its report where nothing is left to worry about."""
        if exit_code not in _SUCCESS:
            return _STATUS_OF.get(exit_code, "failed")
        if self.looks:
            return "not_run"
        if len(self._reports) == 1 and self._fleet is None:
            return next(iter(self._reports.values())).status
        if subject.command() != "resume" and self._fleet is None:
            return "not_run"
        found = {each.status for each in (*self._settled, *self._reports.values())}
        return next(
            (each for each in ("partial", "waiting", "refused", "done") if each in found), "nothing_to_do"
        )

    def _left(self) -> tuple[int, int] | None:
        """Files and bytes that the plan takes and that are still there; None where no plan was made."""
        if self._fleet is not None and self._fleet.due is not None:
            return self._fleet.due
        if not self._due:
            return None
        left_files = left_bytes = 0
        for plan, (files, size_bytes) in self._due.items():
            report = self._reports.get(plan)
            if report is not None and report.status in ("done", "nothing_to_do"):
                continue
            gone, gone_bytes = self._gone[plan]
            left_files += max(0, files - gone)
            left_bytes += max(0, size_bytes - gone_bytes)
        return left_files, left_bytes

    def _oldest_ms(self) -> int | None:
        table = listeners.table()
        if table is None:
            return None
        try:
            return table.oldest_snapshot_ms(again=bool(self._attempts["committed"]))
        except (IcebergCliError, OSError):  # the table was read just now: what it was is in the report
            return None

    def _replace(self, lines: Iterable[str]) -> None:
        beside = f"{self.path}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
            with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, self.path)
        finally:
            with contextlib.suppress(OSError):  # it is there only where something failed
                os.unlink(beside)


def _table_label() -> str:
    """How the series name the table: as one is named that is open, also where it could not be opened."""
    name = subject.name() or ""
    if "/" not in name or name.startswith("/") or levels_of(name):
        return name
    from iceberg_cli.storage.router import located

    try:
        return located(name)
    except UsageError:
        return name

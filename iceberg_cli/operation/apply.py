"""An operation is carried out, resumed or abandoned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused
from iceberg_cli.operation.deletion_probe import check_deletable
from iceberg_cli.operation.groups.creator import remove_leftovers
from iceberg_cli.operation.groups.reporting import GROUP_COLUMNS
from iceberg_cli.operation.groups.run import GroupsRun
from iceberg_cli.operation.groups.states import abandon_groups
from iceberg_cli.operation.history import NOTHING_DONE
from iceberg_cli.operation.journal import PLAN_FILE, Journal, load_plan, load_removals
from iceberg_cli.operation.late_files import close, look_again, take_over
from iceberg_cli.operation.looks import keep_look
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Planned, Table, Verb
from iceberg_cli.operation.records import VERSION, WITH_GROUPS, Begin
from iceberg_cli.operation.removal_files import in_files, write_parts
from iceberg_cli.operation.runner import OperationRun
from iceberg_cli.operation.runtime import MAX_AHEAD_MS, Runtime
from iceberg_cli.operation.sweep import gaps
from iceberg_cli.operation.withholding import check_others
from iceberg_cli.plan.events import RECORD, phase
from iceberg_cli.plan.plan import Base, Plan, encode
from iceberg_cli.plan.removal_rows import total_bytes
from iceberg_cli.plan.removals import PART_ROWS, Removals
from iceberg_cli.plan.report import OrphanFiles, Report
from iceberg_cli.plan.text import age, iso

if TYPE_CHECKING:
    from iceberg_cli.operation.groups.ports import GroupVerb

_LISTED: Final = 100_000  # orphan files; the others are counted


def apply(planned: Planned, table: Table, verb: Verb, runtime: Runtime) -> Report:
    """Carry out a plan that an operator has seen.

    Args:
        planned: the plan, with its removals, and what builds its files.
        table: where it applies, as it was planned for.
        verb: plans again.
        runtime: clock, ids, limits.

    Returns:
        The report: done, nothing_to_do, waiting for its grace, or partial.

    Raises:
        Refused: an interlock forbids it, or our clock is wrong. StalePlan: the table moved and more would go.
        CommitConflict, CommitStateUnknown, CorruptFile, BackendUnavailable, Interrupted. AccessDenied: the storage
        refuses deletions.
    """
    started_ms = runtime.now_ms()
    plan = planned.plan
    if plan.blocked_by:
        raise Refused(
            f"Cannot {plan.verb} {plan.table['name']}: " + "; ".join(plan.blocked_by),
            next_step="--dry-run shows what would be done.",
        )
    if not plan.due:
        keep_look(plan, table, verb, runtime)
        groups = plan.groups
        return Report(
            verb=plan.verb,
            operation_id=None,
            status="nothing_to_do",
            counts=dict.fromkeys((*verb.result_columns, *(GROUP_COLUMNS if groups is not None else ())), 0),
            failed_groups=() if groups is None else groups.broken_files(),
            verified=None if groups is None else cast("GroupVerb", verb).compares_rows(plan),
            not_applicable=plan.not_applicable,
        )
    assert plan.removals is not None
    waiting = check_others(table, plan.table["name"]) if plan.removals.count else ()
    operation_id = runtime.new_uuid()
    base = table.base()
    if base.table_uuid != plan.base.table_uuid:
        raise Refused(
            f"Cannot apply this plan: it was made for table {plan.base.table_uuid}, "
            f"and {plan.table['name']} is {base.table_uuid}"
        )
    with phase(RECORD, runtime.on_event, table=plan.table["name"], operation_id=operation_id):
        if plan.removals.count:
            check_deletable(plan, table.workspace.delete, operation_id)
        journal = table.workspace.journal(operation_id)
        runtime.check_cancelled()
        removals = in_files(plan.removals)
        plan = replace(plan, removals=removals)
        document = encode(
            plan.to_json(
                removals_file=removals.file, inputs_file=None if plan.groups is None else plan.groups.file
            ),
            indent=None,
        )  # programs read it, not people
        journal.append(
            Begin(
                version=VERSION if plan.groups is None else WITH_GROUPS,
                operation=plan.verb,
                table_uuid=base.table_uuid,
                at_ms=started_ms,
                plan_digest=hashlib.sha256(document).hexdigest(),
                steps=tuple(step.name for step in plan.steps),
                actor=runtime.actor,
                undoes=plan.undoes,
                removals=_shown(removals),
                **runtime.process(),
            )
        )
        try:
            # Now that the operation has begun, a file that is left by a kill goes with it.
            table.probe(journal.probe_path)
        except Refused:
            close(journal, "refused", runtime)
            raise
        if verb.policy.place.by_age:
            _check_before_commit(plan, journal, runtime, before_ms=started_ms)
        write_parts(removals, journal.put, runtime.on_event)
        if plan.groups is not None:
            journal.put(plan.groups.file, plan.groups.data)
        journal.put(PLAN_FILE, document)
    if plan.groups is not None:
        return _groups_run(plan, removals.file, table, verb, runtime, journal).finish(
            started_ms, rewrites=True
        )
    run = OperationRun(
        shown=plan,
        shown_file=removals.file,
        build=planned.build,
        table=table,
        verb=verb,
        runtime=runtime,
        journal=journal,
        waiting=waiting,
    )
    return run.finish(started_ms)


def _shown(removals: Removals) -> Mapping[str, Any] | None:
    """What the first record says of the files that were shown to go; None: none goes."""
    if not removals.count:
        return None
    return {"count": removals.count, "bytes": removals.size_bytes, "digest": removals.digest}


def _groups_run(
    plan: Plan,
    removals_file: str,
    table: Table,
    verb: Verb,
    runtime: Runtime,
    journal: Journal,
    **values: Any,
) -> GroupsRun:
    return GroupsRun(
        shown=plan,
        shown_file=removals_file,
        table=table,
        verb=cast("GroupVerb", verb),
        runtime=runtime,
        journal=journal,
        **values,
    )


def resume(
    table: Table,
    operation_id: str,
    runtime: Runtime,
    *,
    verbs: Mapping[str, Verb],
    rewrites: bool = True,
) -> Report:
    """Finish an interrupted operation, or discard its staged files.

    Args:
        table: where its journal is.
        operation_id: of the operation.
        runtime: clock, ids, limits.
        verbs: by operation name.
        rewrites: whether groups of files that are not finished are rewritten; else only those that are are committed.

    Returns:
        The report of the operation, with the state that it was found in among its `notes`.

    Raises:
        As `apply`; CorruptFile for a journal or plan that cannot be read whole: nothing is deleted then. DeletesFailed
        where its commit showed that nothing may be deleted: only `abandon` ends it.
    """
    started_ms = runtime.now_ms()
    journal = table.workspace.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        journal.clean_up()
        return Report(verb="resume", operation_id=operation_id, status="nothing_to_do")
    _check_table(table, operation)
    if operation.verb not in verbs:
        raise Refused(
            f"Cannot resume {operation_id}: the verb {operation.verb!r} is not known here",
            state="Its journal and its files stay as they are.",
        )
    if operation.look_again is not None:
        take_over(journal, runtime)
        if operation.groups is not None:
            remove_leftovers(table.workspace, journal, operation.groups)
        return look_again(table, journal, operation, runtime)
    loaded = load_plan(journal)
    verb = verbs[operation.verb]
    if loaded is not None and loaded[0].groups is not None:
        take_over(journal, runtime)
        table.probe(journal.probe_path)
        _discard_leftovers(table, operation, journal)
        groups_run = _groups_run(*loaded, table, verb, runtime, journal, resumed=True)
        return groups_run.finish(started_ms, rewrites=rewrites)
    if loaded is not None:
        run = OperationRun(
            shown=loaded[0],
            shown_file=loaded[1],
            build=verb.unconditional(table),
            table=table,
            verb=verb,
            runtime=runtime,
            journal=journal,
            resumed=True,
        )
        if (report := run.unchanged(started_ms)) is not None:
            return report
    take_over(journal, runtime)
    table.probe(journal.probe_path)
    for state in operation.steps.values():
        if state.sweep_after_ms is not None and not state.done:
            _check_before_sweep(state.sweep_after_ms, journal, before_ms=started_ms)
    marks = _discard_leftovers(table, operation, journal)
    if loaded is None or operation.next_action() == "discard":
        table.workspace.discard(
            [path for state in operation.steps.values() for path in state.staged], marks=marks
        )
        close(journal, NOTHING_DONE, runtime)
        note = "It had stopped before its commit: the table was not changed, and nothing is left to do."
        return Report(verb=operation.verb, operation_id=operation_id, status="nothing_to_do", notes=(note,))
    return run.finish(started_ms)


def _discard_leftovers(table: Table, operation: Operation, journal: Journal) -> Sequence[str]:
    """Delete files of ours that nothing will ever reference; the marks in the names of all of ours."""
    marks = journal.marks()
    leftovers = [path for state in operation.steps.values() for path in state.leftovers]
    table.workspace.discard(leftovers, marks=marks)
    return marks


def abandon(table: Table, operation_id: str, runtime: Runtime) -> OrphanFiles | None:
    """Close an operation without finishing it: the files that it was still to delete stay.

    Returns:
        The orphan files; None if its journal cannot be read.

    Raises:
        Refused: its commit may still happen, so its outcome must be settled first.
    """
    journal = table.workspace.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        journal.clean_up()
        return OrphanFiles()
    base = table.load()
    states = operation.steps.values()
    open_intents = [state.intent for state in states if state.intent and state.outcome in (None, "unknown")]
    if any(intent.base_location == base.version for intent in open_intents):
        raise Refused(
            f"Cannot abandon {operation_id}: its commit has no known outcome yet and can still happen",
            next_step="`resume` settles it first.",
        )
    take_over(journal, runtime)
    orphans = _orphans(table, journal, operation)
    if operation.table_uuid == base.table_uuid:
        marks = journal.marks()
        for state in states:
            unreferenced = state.intent is None or state.outcome == "conflict"
            table.workspace.discard([*state.leftovers, *(state.staged if unreferenced else ())], marks=marks)
        if operation.groups is not None:
            abandon_groups(table, journal)
    journal.close("abandoned", at_ms=runtime.now_ms())
    return orphans


def _check_table(table: Table, operation: Operation) -> Base:
    """Load the table, and refuse one that is not the operation's."""
    base = table.load()
    # A version 1 table may have had no UUID when the operation began; an upgrade gives it one.
    if operation.table_uuid not in ("", base.table_uuid):
        raise Refused(
            f"Cannot go on with operation {operation.operation_id}: its journal is of table {operation.table_uuid}, "
            f"and this is {base.table_uuid}"
        )
    return base


def _check_before_commit(plan: Plan, journal: Journal, runtime: Runtime, *, before_ms: int) -> None:
    """Refuse a plan that decides by an age which only our clock shows, and close its operation.

    A plan for an earlier moment, as --as-of names one, does not depend on our clock and is not refused.

    Args:
        plan: before its first commit.
        journal: to which a record was just appended.
        runtime: to close the operation.
        before_ms: what our clock showed before that, so that a process that stood still is not taken for a wrong clock.

    Raises:
        Refused: our clock is more than a day ahead of the storage's.
    """
    storage_ms = journal.clock_ms()
    if storage_ms and min(before_ms, plan.as_of_ms) - storage_ms > MAX_AHEAD_MS:
        close(journal, "refused", runtime)
        raise _wrong_clock(f"{plan.verb} {plan.table['name']}", before_ms, storage_ms)


def _check_before_sweep(ends_ms: int, journal: Journal, *, before_ms: int) -> None:
    """Refuse to end a grace that is over by our clock alone.

    Args:
        ends_ms: the end of the grace.
        journal: see `_check_before_commit`.
        before_ms: see `_check_before_commit`.

    Raises:
        Refused: the grace is not over by the storage's clock, and ours is more than a day ahead of it.
    """
    storage_ms = journal.clock_ms()
    if storage_ms and ends_ms > storage_ms and before_ms - storage_ms > MAX_AHEAD_MS:
        error = _wrong_clock(f"end the grace of operation {journal.operation_id}", before_ms, storage_ms)
        error.state = "The commit is done, and the files that go wait on."
        raise error


def _wrong_clock(what: str, ours_ms: int, storage_ms: int) -> Refused:
    return Refused(
        f"Cannot {what}: this machine's clock shows {iso(ours_ms)}, and the storage's {iso(storage_ms)}. Ours is "
        f"{age(ours_ms - storage_ms)} ahead, so what is young would count as old",
        next_step="Set the clock, or name the time from which ages count by --as-of.",
    )


@dataclass(kw_only=True)
class _OrphanCount:
    """Orphan files as they are found. `note`: why reachability of some of them was not checked."""

    count: int = 0
    size_bytes: int = 0
    files: list[Mapping[str, Any]] = field(default_factory=list)
    note: str = ""

    def add(self, removals: Removals, rows: Sequence[int]) -> None:
        """Add files of removals, by the indices of their rows."""
        files = removals.read_rows(rows)
        self.count += files.num_rows
        self.size_bytes = total_bytes(files["size_bytes"], self.size_bytes)
        room = _LISTED - len(self.files)
        self.files += files.slice(0, room).select(["path", "kind", "size_bytes"]).to_pylist()

    def add_own(self, paths: Sequence[str]) -> None:
        """Add files that the operation wrote, and that a version of the past may name."""
        self.count += len(paths)
        room = _LISTED - len(self.files)
        self.files += [{"path": path, "kind": "own_file", "size_bytes": None} for path in paths[:room]]


def _orphans(table: Table, journal: Journal, operation: Operation) -> OrphanFiles | None:
    """The files that committed steps did not delete, and those of the operation that may be referenced or not."""
    orphans = _OrphanCount()
    try:
        loaded = load_plan(journal)
        for removals, rows in rows_left(journal, operation):
            if loaded is not None:
                orphans.add(removals, _needed_by_nobody(table, removals, rows, loaded[0], orphans))
    except (CorruptFile, FileNotFoundError):
        return None
    for state in operation.steps.values():
        unknown = state.intent is not None and state.outcome in (None, "unknown")
        if own := [*state.left, *(state.staged if unknown else ())]:
            orphans.add_own(own)
            orphans.note = orphans.note or "it cannot be proved that nothing references what it wrote itself"
    orphans.note = operation.withheld or orphans.note
    return OrphanFiles(
        count=orphans.count,
        size_bytes=orphans.size_bytes,
        files=tuple(orphans.files),
        checked=not orphans.note,
        note=orphans.note,
    )


def rows_left(journal: Journal, operation: Operation) -> Iterator[tuple[Removals, Sequence[int]]]:
    """Rows of the removals of an operation's committed steps that were not deleted, a few at a time.

    Raises:
        CorruptFile, FileNotFoundError: they cannot be read.
    """
    for name, state in operation.steps.items():
        if state.outcome != "committed" or state.done or state.removals_file is None:
            continue
        removals = load_removals(journal, state.removals_file)
        start, stop = removals.of_step(name)
        rest = [state.failed, *(range(first, last) for first, last in gaps(start, stop, state.swept))]
        for rows in rest:
            for first in range(0, len(rows), PART_ROWS):
                yield removals, rows[first : first + PART_ROWS]


def _needed_by_nobody(
    table: Table, removals: Removals, rows: Sequence[int], plan: Plan, found: _OrphanCount
) -> Sequence[int]:
    """The rows whose files are unreachable now; all of them where the table cannot be read."""
    if found.note:
        return rows
    try:
        return table.unreachable(removals, rows, plan=plan)
    except (CorruptFile, BackendUnavailable, Refused) as error:
        found.note = error.message
        return rows

"""Carries plans out, stage -> bind -> commit -> sweep: the only code that changes tables and deletes files.

1. Write order: data and delete files, manifests, manifest list, metadata, pointer. Each references only what is
   already durable. Delete order: after the pointer, bottom-up.
2. Outcomes are three. `Unknown` deletes nothing. Files are discarded only after a proved refusal.
3. Deleted is a subset of shown AND of unreachable now. Reachability is by path.
4. Before a commit, what it keeps has been read whole and counted (`iceberg/commit/verification.py`). Marking fails
   closed: a retained manifest list or manifest that cannot be read whole stops the run.
5. One `as_of_ms` per run, stored in the plan, reused by every replan.
6. A replan that would remove more than was shown stops the run (`StalePlan`).
7. Unknown fields and properties survive every rewrite of somebody's metadata.
8. Interlocks are refusals, not warnings: of the effect, not of the view.
9. Intent is journalled before each effect, the outcome after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from iceberg_cli.errors import Refused
from iceberg_cli.operation.abandonment import abandon
from iceberg_cli.operation.clocks import check_before_commit, check_before_sweep
from iceberg_cli.operation.journal import PLAN_FILE, load_plan
from iceberg_cli.operation.late_files import close, look_again, take_over
from iceberg_cli.operation.ports import Planned, Table, Verb
from iceberg_cli.operation.records import VERSION, Begin, Operation
from iceberg_cli.operation.removal_files import in_files
from iceberg_cli.operation.runner import OperationRun
from iceberg_cli.operation.runtime import Runtime, system_runtime
from iceberg_cli.plan.plan import Base, encode
from iceberg_cli.plan.report import Report

__all__ = ["Runtime", "Table", "Verb", "abandon", "apply", "resume", "system_runtime"]


def apply(planned: Planned, table: Table, verb: Verb, runtime: Runtime) -> Report:
    """Carry out a plan that an operator has seen.

    Args:
        planned: the plan, with its removals, and what builds its files.
        table: where it applies; loaded anew for every attempt.
        verb: plans again.
        runtime: clock, ids, limits.

    Returns:
        The report: done, nothing_to_do, waiting for its grace, or partial.

    Raises:
        Refused: an interlock forbids it, or our clock is wrong. StalePlan: the table moved and more would go.
        CommitConflict, CommitStateUnknown, CorruptFile, BackendUnavailable, Interrupted.
    """
    started_ms = runtime.now_ms()
    plan = planned.plan
    if plan.blocked_by:
        raise Refused(
            f"Cannot {plan.verb} {plan.table['name']}: " + "; ".join(plan.blocked_by),
            next_step="--dry-run shows what would be done.",
        )
    if not plan.due:
        counts = dict.fromkeys(verb.result_columns, 0)
        return Report(
            verb=plan.verb,
            operation_id=None,
            status="nothing_to_do",
            counts=counts,
            not_applicable=plan.not_applicable,
        )
    assert plan.removals is not None
    operation_id = runtime.new_uuid()
    base = table.load()
    if base.table_uuid != plan.base.table_uuid:
        raise Refused(
            f"Cannot apply this plan: it was made for table {plan.base.table_uuid}, "
            f"and {plan.table['name']} is {base.table_uuid}"
        )
    journal = table.workspace.journal(operation_id)
    runtime.check_cancelled()
    removals = in_files(plan.removals)
    plan = replace(plan, removals=removals)
    document = encode(plan.to_json(removals_file=removals.file), indent=None)  # programs read it, not people
    journal.append(
        Begin(
            version=VERSION,
            operation=plan.verb,
            table_uuid=base.table_uuid,
            at_ms=started_ms,
            plan_digest=hashlib.sha256(document).hexdigest(),
            steps=tuple(step.name for step in plan.steps),
            **runtime.process(),
        )
    )
    check_before_commit(plan, journal, runtime, before_ms=started_ms)
    removals.write(journal.put)
    journal.put(PLAN_FILE, document)
    run = OperationRun(
        shown=plan,
        shown_file=removals.file,
        build=planned.build,
        table=table,
        verb=verb,
        runtime=runtime,
        journal=journal,
    )
    return run.finish(started_ms)


def resume(table: Table, operation_id: str, runtime: Runtime, *, verbs: Mapping[str, Verb]) -> Report:
    """Finish an interrupted operation, or discard its staged files.

    Args:
        table: where its journal is.
        operation_id: of the operation.
        runtime: clock, ids, limits.
        verbs: by operation name.

    Returns:
        The report of the operation, with the state that it was found in among its `notes`.

    Raises:
        As `apply`; CorruptFile for a journal or plan that cannot be read whole: nothing is deleted then.
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
        return look_again(table, journal, operation, runtime)
    loaded = load_plan(journal)
    verb = verbs[operation.verb]
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
    for state in operation.steps.values():
        if state.sweep_after_ms is not None and not state.done:
            check_before_sweep(state.sweep_after_ms, journal, before_ms=started_ms)
    marks = journal.marks()
    table.workspace.discard(
        [path for state in operation.steps.values() for path in state.leftovers], marks=marks
    )
    if loaded is None or operation.next_action() == "discard":
        table.workspace.discard(
            [path for state in operation.steps.values() for path in state.staged], marks=marks
        )
        close(journal, "nothing was done", runtime)
        note = "It had stopped before its commit: the table was not changed, and nothing is left to do."
        return Report(verb=operation.verb, operation_id=operation_id, status="nothing_to_do", notes=(note,))
    return run.finish(started_ms)


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

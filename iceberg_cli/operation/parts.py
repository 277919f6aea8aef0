"""A plan carried out by several operations.

Another verb's may come first; and where the catalog takes no request as large as a commit, there is one for each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iceberg_cli.errors import (
    Cancelled,
    CommitConflict,
    IcebergCliError,
    Interrupted,
    Refused,
    RequestTooLarge,
    StalePlan,
)
from iceberg_cli.operation.apply import apply as apply_whole
from iceberg_cli.operation.ports import Planned, Table, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.policy import Policy
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.text import listed


def apply(planned: Planned, table: Table, verb: Verb, runtime: Runtime) -> Report:
    """Carry out a plan, and before it what another verb does first.

    Where its commit is too large for the catalog, there is an operation for each part of its snapshots: the oldest go
    first, and refs with the first part. A part is planned anew, bounded by what the whole plan lists; each of its
    attempts that is too large again halves the parts.

    Args:
        planned: see `apply.apply`.
        table: see `apply.apply`.
        verb: see `apply.apply`.
        runtime: see `apply.apply`.

    Returns:
        One report; of several operations, their counts added up, and the id of the last one.

    Raises:
        As `apply.apply`, and RequestTooLarge where there is nothing to divide. Interrupted for a conflict or a signal
        after the first part.
    """
    if (first := verb.first(planned.plan)) is not None and not planned.plan.blocked_by:
        return _after_another(*first, planned.plan, table, verb, runtime)
    try:
        return apply_whole(planned, table, verb, runtime)
    except RequestTooLarge as error:
        waiting = planned.plan.removed_snapshots
        if len(waiting) < 2:
            raise
        most, too_large = len(waiting) // 2, error
    reports: list[Report] = []
    while waiting and not (reports and (reports[-1].status == "partial" or runtime.out_of_time())):
        most = min(most, len(waiting))
        try:
            part = _part(planned.plan, waiting[:most], table, verb)
            reports.append(apply_whole(part, table, verb, runtime))
        except RequestTooLarge as error:
            if most < 2:
                raise _with_state(error, reports) from None
            most //= 2
            continue
        except IcebergCliError as error:
            raise _with_state(error, reports) from None
        waiting = waiting[most:]
    return _sum(reports, waiting, too_large)


def _after_another(
    first: Verb, policy: Policy, plan: Plan, table: Table, verb: Verb, runtime: Runtime
) -> Report:
    """Carry out a plan after what another verb does first; what that did stays, whatever becomes of the plan."""
    before = apply_whole(first.plan(table, policy, as_of_ms=plan.as_of_ms), table, first, runtime)
    try:
        table.load()
        own = verb.policy.of_plan(plan)
        planned = verb.plan(table, own, as_of_ms=plan.as_of_ms, within=plan)
        report = apply_whole(planned, table, verb, runtime)
    except CommitConflict as error:
        report = replace(
            before,
            verb=verb.name,
            status="partial",
            counts=dict.fromkeys(verb.result_columns, 0),
            notes=(f"{error.message}.", error.next_step),
        )
    except IcebergCliError as error:
        raise _with_state(error, [before]) from None
    commit = {"snapshot_id": before.committed_snapshot_id, "groups": 0}
    return replace(
        report,
        commits=(*((commit,) if before.committed_snapshot_id else ()), *report.commits),
        notes=(*_done_first(before), *report.notes),
        duration_ms=before.duration_ms + report.duration_ms,
    )


def _done_first(report: Report) -> Sequence[str]:
    """What another verb did first, for the notes of who came after it."""
    counts = [
        f"{number:,} {name.removesuffix('_count').replace('_', ' ')}"
        for name, number in report.counts.items()
        if number
    ]
    first = f"{report.verb} came first, by operation {report.operation_id}: {listed(counts or ['nothing'])}."
    return (first, *report.notes)


def _part(whole: Plan, snapshot_ids: Sequence[int], table: Table, verb: Verb) -> Planned:
    """The part of a plan that expires no snapshots but these, on the table as it is now."""
    table.load()
    policy = verb.policy.of_plan(whole)
    planned = verb.plan(table, policy, as_of_ms=whole.as_of_ms, within=whole.limited_to(snapshot_ids))
    plan = planned.plan
    if plan.base.table_uuid != whole.base.table_uuid:
        raise Refused(
            f"Cannot go on: {whole.table['name']} was table {whole.base.table_uuid}, and is {plan.base.table_uuid} now"
        )
    if more := plan.additions_over(whole):
        raise StalePlan(
            f"Cannot go on: the table moved, and {len(more)} things that were not shown would go, such as {more[0]}"
        )
    return planned


def _with_state(error: IcebergCliError, reports: Sequence[Report]) -> IcebergCliError:
    """The error of a part, with what was done before. None says that nothing was changed where something was."""
    if not reports:
        return error
    ids = [report.operation_id for report in reports if report.operation_id]
    before = f"Commits before it: {len(ids)}, by operations {', '.join(ids)}."
    error.state = f"{before} Of the one that failed: {error.state}"
    if isinstance(error, (CommitConflict, Cancelled)):
        return Interrupted(error.message, state=error.state, next_step="The next run goes on.")
    return error


def _sum(reports: Sequence[Report], waiting: Sequence[int], error: RequestTooLarge) -> Report:
    """The reports of parts as one."""
    last = next((report for report in reversed(reports) if report.operation_id), reports[-1])
    names = dict.fromkeys(name for report in reports for name in report.counts)
    statuses = {report.status for report in reports}
    status = next(each for each in ("partial", "waiting", "done", "nothing_to_do") if each in statuses)
    operations = sum(report.operation_id is not None for report in reports)
    notes = [f"Done by {operations} operations, as one commit was too large: {error.message}."]
    if waiting:
        status = "partial"
        notes.append(f"{len(waiting)} snapshots are still to expire; the next run goes on.")
    return replace(
        last,
        status=status,
        counts={name: sum(report.counts.get(name, 0) for report in reports) for name in names},
        reclaimed_bytes=sum(report.reclaimed_bytes for report in reports),
        waiting_files=sum(report.waiting_files for report in reports),
        waiting_bytes=sum(report.waiting_bytes for report in reports),
        failed_deletes=tuple(failure for report in reports for failure in report.failed_deletes),
        kept_again=sum(report.kept_again for report in reports),
        notes=(*notes, *(note for report in reports for note in report.notes)),
        duration_ms=sum(report.duration_ms for report in reports),
    )

"""The alarm of plans that would delete abnormally much, by what the runs before them deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iceberg_cli.operation.history import past_deletions
from iceberg_cli.plan.alarm import LEAST_FILES, MOST_RUNS, OFF, history_alarm
from iceberg_cli.plan.deleting_policy import DeletingPolicy

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.plan.policy import Policy
    from iceberg_cli.table.table import OpenTable


def with_alarm(table: OpenTable, plan: Plan, policy: Policy) -> Plan:
    """The plan, blocked where it would delete far more than the runs of its verb on this table did so far.

    Of a plan that deletes fewer than a thousand files nothing is read. Else the folder of the table's history is listed
    and the records of the last ten runs are read that deleted something, which are small files.

    Args:
        table: in whose folder the history is.
        plan: for it, with its removals.
        policy: by which it was made. Verbs that delete nothing but what the table's own properties drop have no alarm.

    Raises:
        BackendUnavailable: the history cannot be listed, or a record not be read.
    """
    if not (isinstance(policy, DeletingPolicy) and plan.due):
        return plan
    going_files, _ = plan.deletes
    if going_files < LEAST_FILES or policy.unsafe_accept_alarm or policy.alarm == OFF:
        return plan
    past = past_deletions(
        table.storage, table.location, plan.base.table_uuid, verb=plan.verb, limit=MOST_RUNS
    )
    reason = history_alarm(
        going_files, past, verb=plan.verb, factor=float(policy.alarm), as_of_ms=plan.as_of_ms
    )
    return plan if reason is None else replace(plan, blocked_by=(*plan.blocked_by, reason))

"""expire-snapshots: the plan, from metadata and what the kept snapshots' manifests use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.expire_snapshots import rules as expire_snapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.rules import ExpirePolicy
from iceberg_cli.plan.plan import Plan, StagedFile, Step, Task
from iceberg_cli.plan.removal_rows import ICEBERG_KINDS


class ExpireSnapshots:
    """Forgets snapshots, then deletes what nothing reaches."""

    operation: Final = expire_snapshots.OPERATION
    columns: Final = tuple(f"deleted_{kind}s_count" for kind in ICEBERG_KINDS)

    def plan(
        self,
        table: IcebergTable,
        document: Mapping[str, Any],
        *,
        as_of_ms: int,
        shown: Plan | None = None,  # what it shows does not bound this one: `Plan.beyond` is asked
    ) -> Plan:
        """The plan with its removals.

        Raises:
            UsageError: the policy makes no sense, or names only snapshots that are not there.
            CorruptFile: something that must be read cannot be read whole.
        """
        policy = ExpirePolicy.from_json(document)
        base = table.load()
        if shown is None:
            expire_snapshots.check_named(table.metadata, policy)
        facts = None
        if policy.clean_metadata:
            kept = expire_snapshots.kept_snapshots(table.metadata, policy, as_of_ms=as_of_ms)
            facts = table.reachability.facts(kept)
        plan = expire_snapshots.plan(
            table.metadata, policy, base=base, table=table.describe(), as_of_ms=as_of_ms, facts=facts
        )
        return table.resolve(plan, expire_snapshots.reach_of(table.metadata, policy, plan))

    def build(self, table: IcebergTable, step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:  # noqa: ARG002
        """Nothing is staged."""
        raise AssertionError(f"{step.name} has no task")


VERB: Final = ExpireSnapshots()

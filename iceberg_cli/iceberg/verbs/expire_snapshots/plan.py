"""expire-snapshots: the plan, from metadata and what the kept snapshots' manifests use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.expire_snapshots import rules as expire_snapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import VERB_NAME, ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import within_properties
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Option, Plan
from iceberg_cli.plan.removal_rows import ICEBERG_KINDS


class ExpireSnapshotsVerb(Verb):
    """Forgets snapshots, then deletes what nothing reaches."""

    name: Final = VERB_NAME
    policy: Final = ExpireSnapshots
    result_columns: Final = tuple(f"deleted_{kind}s_count" for kind in ICEBERG_KINDS)

    def plan(
        self,
        table: IcebergTable,
        policy: ExpireSnapshots,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan with its removals.

        Raises:
            UsageError: the policy makes no sense, or names only snapshots that are not there.
            CorruptFile: something that must be read cannot be read whole.
        """
        base = table.base()
        policy = within_properties(table.metadata, policy, as_of_ms=as_of_ms)
        if within is None:
            expire_snapshots.check_named(table.metadata, policy)
        facts = None
        if policy.clean_metadata:
            kept = expire_snapshots.kept_snapshots(table.metadata, policy, as_of_ms=as_of_ms, within=within)
            facts = table.reachability.facts(kept)
        plan = expire_snapshots.plan(
            table.metadata,
            policy,
            base=base,
            table=table.describe(),
            as_of_ms=as_of_ms,
            facts=facts,
            within=within,
        )
        reach = expire_snapshots.reach_of(table.metadata, policy, plan)
        return Planned(plan=table.resolve(plan, reach))

    def options(self, table: IcebergTable, policy: ExpireSnapshots, *, as_of_ms: int) -> Mapping[str, Option]:
        """As `Verb`."""
        return expire_snapshots.options_of(table.metadata, policy, as_of_ms=as_of_ms)


VERB: Final = ExpireSnapshotsVerb()

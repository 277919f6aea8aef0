"""rewrite-data-files on Delta: which groups of data files are rewritten, and why the others are not.

Spec: Delta protocol, "Add File and Remove File", "Deletion Vectors", "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.rows.column_ranges import ranges_of
from iceberg_cli.delta.spec.columns import ADD, DELETION_VECTOR, dv_ids
from iceberg_cli.delta.spec.paths import physical_column
from iceberg_cli.delta.spec.protocol import FILES_DEFAULT_MS, FILES_PROPERTY
from iceberg_cli.delta.spec.row_ids import UNKNOWN, record_counts
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.batch import batch_of, changed
from iceberg_cli.delta.verbs.rewrite_data_files.chosen_files import chosen_files
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import (
    clustering_base,
    clustering_changed,
    clustering_notes,
    clustering_obstacles,
    others_clustered,
)
from iceberg_cli.delta.verbs.rewrite_data_files.ordering import order_of, reads_now
from iceberg_cli.delta.verbs.rewrite_data_files.other_writers import notes
from iceberg_cli.delta.verbs.rewrite_data_files.partitions import partitions_of
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.delta.verbs.rewrite_data_files.purge import files_to_purge
from iceberg_cli.delta.verbs.rewrite_data_files.settings import (
    compaction_of,
    obstacles,
    partition_columns_in_files,
)
from iceberg_cli.delta.verbs.rewrite_data_files.tasks import tasks_of
from iceberg_cli.errors import UsageError
from iceberg_cli.layout.choice import choose
from iceberg_cli.layout.compaction import CompactionInputs, CompactionSettings, RewriteReason, reason_text
from iceberg_cli.layout.files.compaction_verb import CompactionVerb
from iceberg_cli.layout.files.forecast import (
    expected_duration_ms,
    expected_spill,
    group_rows,
    library_too_old,
    no_room,
)
from iceberg_cli.layout.files.ordering import OrderPlan, RowOrder, order_settings, without_order
from iceberg_cli.layout.rolling import Bools
from iceberg_cli.operation.groups.ports import Batch, GroupTasks
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.operation.ports import Build, Planned
from iceberg_cli.plan.column_reads import ColumnReads
from iceberg_cli.plan.compaction_policy import VERB_NAME
from iceberg_cli.plan.groups import FreedLater, Groups
from iceberg_cli.plan.plan import PARTITION, Change, Option, Plan, Step, Verdict
from iceberg_cli.plan.text import age, count, iso, size
from iceberg_cli.plan.where import parse_where

INPUTS_SCHEMA: Final = pa.schema(
    [
        pa.field("group", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("log_path", pa.string(), nullable=False),
        pa.field("record_count", pa.int64()),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("dv_id", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("row_commit_version", pa.int64()),
        pa.field("partition_values", ADD.field("partitionValues").type),
    ]
)
"""Of the files of groups: where they are, and what their adds say that must not have changed at the commit.

Partition values are there where new files have them too.
"""


class RewriteDataFilesVerb(CompactionVerb):
    """Few files of a good size, without deletion vectors."""

    policy = RewriteDataFiles

    def plan(
        self,
        table: DeltaTable,
        policy: RewriteDataFiles,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - the groups of `within` are compared with the table as it is
    ) -> Planned:
        """The plan for the newest version; where there is another one, its groups, of which none is planned anew.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: something that must be read cannot be read whole.
        """
        return Planned(plan=table.resolve(_plan(table, policy, as_of_ms=as_of_ms, within=within)))

    def options(
        self,
        table: DeltaTable,
        policy: RewriteDataFiles,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return compaction_of(table.snapshot, policy)[1]

    def tasks(self, table: DeltaTable, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
        """As `GroupVerb`."""
        return tasks_of(table, plan, numbers)

    def changed(self, table: DeltaTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
        """As `GroupVerb`."""
        assert plan.groups is not None
        if (reason := clustering_changed(plan.groups, table.snapshot)) is not None:
            return dict.fromkeys(numbers, reason)
        order = partial(order_of, table.snapshot, RewriteDataFiles.of_plan(plan))
        return without_order(order, numbers) or changed(table, plan, numbers)

    def reads_now(self, table: DeltaTable, plan: Plan) -> tuple[ColumnReads, ...]:
        """As `GroupVerb`."""
        return reads_now(table, RewriteDataFiles.of_plan(plan))

    def batch(
        self,
        table: DeltaTable,
        plan: Plan,
        results: Sequence[GroupResult],
        *,
        committed: Collection[int],
        earlier: Batch | None = None,
    ) -> Batch:
        """As `GroupVerb`."""
        return batch_of(table, plan, results, committed=committed, earlier=earlier)


VERB: Final = RewriteDataFilesVerb()


def _plan(table: DeltaTable, policy: RewriteDataFiles, *, as_of_ms: int, within: Plan | None) -> Plan:
    snapshot = table.snapshot
    settings, options = compaction_of(snapshot, policy)
    plan = Plan(
        verb=VERB_NAME,
        table=table.describe(),
        base=table.base(),
        as_of_ms=as_of_ms,
        options=options,
        policy=policy.to_json(),
    )
    blocked = (*obstacles(snapshot, policy), *clustering_obstacles(policy, snapshot))
    order = None
    try:
        order = order_of(snapshot, policy)
    except UsageError as error:
        if policy.order_strategy is None:
            blocked = (*blocked, error.message)
        elif within is None:  # else groups are left out whose order is none any more
            raise
    if within is not None:
        if within.groups is None:  # it lists nothing
            return within
        if (reason := clustering_changed(within.groups, snapshot)) is not None:
            blocked = (*blocked, f"{reason}: plan again")
        return replace(within, blocked_by=(*blocked, *no_room(table, table.root, policy, within.groups)))
    eligible = _eligible(table, policy)
    if not eligible.any():
        which = _which(policy)
        if others_clustered(policy, snapshot).any():
            which += f"{' and' if which else ' that'} no other program clustered in its own way (--full takes those)"
        return replace(plan, not_applicable=f"the table has no data file{which}")
    groups, verdicts = _chosen(table, settings, eligible, policy, order)
    plan = replace(plan, verdicts=verdicts, groups=groups)
    if not len(groups):
        return plan
    plan = replace(plan, warnings=(*clustering_notes(policy, snapshot), *notes(table, policy)))
    if policy.purge:
        since = iso(as_of_ms + _kept_ms(snapshot))
        what = f"Old files have what is purged until `expire-snapshots` deletes them, which is after {since}"
        plan = replace(plan, warnings=(f"{what}, and old versions can be read until then.", *plan.warnings))
    draft = CommitDraft(adds=snapshot.adds)
    refused = table.refusal(Step(name=VERB_NAME, change=Change(draft=draft)))
    blocked += () if refused is None else (refused,)
    blocked += (*no_room(table, table.root, policy, groups), *library_too_old(table.engine))
    return replace(
        plan,
        blocked_by=tuple(dict.fromkeys(blocked)),
        steps=(Step(name=VERB_NAME),),
        reason=f"{count(len(groups.inputs), 'data files')} of {size(groups.size_bytes)} where about "
        f"{groups.sum_of('expected_files'):,} would do",
        early="it rewrites rows, which is done by name, or where a policy file names it",
    )


def _eligible(table: DeltaTable, policy: RewriteDataFiles) -> Bools:
    """Which live files the policy's filters leave."""
    snapshot = table.snapshot
    eligible = ~others_clustered(policy, snapshot)
    if policy.where is not None:
        eligible &= chosen_files(parse_where(policy.where), snapshot.adds, snapshot.metadata)
    if policy.older_than_ms is not None:
        eligible &= snapshot.adds["modificationTime"].to_numpy() < policy.older_than_ms
    if policy.purge:
        eligible[eligible] = files_to_purge(table, snapshot.adds.filter(pa.array(eligible)))
    return eligible


def _kept_ms(snapshot: Snapshot) -> int:
    """How long files stay that the table names no more."""
    return snapshot.metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)


def _which(policy: RewriteDataFiles) -> str:
    where = None if policy.where is None else f"--where {policy.where} is about"
    older = None if policy.older_than_ms is None else f"was written before {iso(policy.older_than_ms)}"
    purged = "has deleted rows, or columns that were dropped" if policy.purge else None
    conditions = " and ".join(each for each in (where, older, purged) if each is not None)
    return f" that {conditions}" if conditions else ""


def _chosen(
    table: DeltaTable,
    settings: CompactionSettings,
    eligible: Bools,
    policy: RewriteDataFiles,
    order: RowOrder | None,
) -> tuple[Groups, tuple[Verdict, ...]]:
    snapshot = table.snapshot
    adds = snapshot.adds.filter(pa.array(eligible))
    adds = adds.take(
        pc.sort_indices(adds, [("modificationTime", "ascending"), ("path", "ascending")])
    ).combine_chunks()
    codes, names = partitions_of(adds, snapshot.metadata)
    rows = record_counts(adds)
    vectors = adds["deletionVector"].combine_chunks()
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy().astype(np.int64)
    candidates = CompactionInputs(
        partition=codes,
        size_bytes=adds["size"].to_numpy(),
        record_count=np.maximum(rows, 0),
        delete_files=np.asarray(vectors.is_valid().to_numpy(zero_copy_only=False), np.int64),
        deleted_rows=deleted,
        eligible=np.ones(len(adds), np.bool_),
        moves=np.zeros(len(adds), np.bool_),
    )
    ordering = None
    if order is not None:
        ordering = OrderPlan(
            order=order,
            ranges=ranges_of(adds, order.names, snapshot.metadata),
            inputs=candidates,
            settings=order_settings(policy, order, settings),
        )
        candidates = replace(candidates, orders=ordering.chosen())
    found = choose(candidates, replace(settings, rewrite_all=True) if policy.purge else settings)
    if policy.purge:
        reasons = np.full_like(found.groups.reason, RewriteReason.PURGE)
        found = replace(found, groups=replace(found.groups, reason=reasons))
    own = adds.take(pa.array(found.file))
    inputs = pa.table(
        {
            "group": pa.array(found.group, pa.int64()),
            "path": physical_column(own["path"], table.root),
            "size_bytes": own["size"],
            "log_path": own["path"],
            "record_count": pa.array(rows[found.file], mask=rows[found.file] == UNKNOWN),
            "deletion_vector": own["deletionVector"],
            "dv_id": dv_ids(own),
            "base_row_id": own["baseRowId"],
            "row_commit_version": own["defaultRowCommitVersion"],
            "partition_values": own["partitionValues"]
            if partition_columns_in_files(snapshot)
            else pa.nulls(len(own), INPUTS_SCHEMA.field("partition_values").type),
        },
        schema=INPUTS_SCHEMA,
    )
    has_vector = len(own) - own["deletionVector"].null_count
    freed = FreedLater(
        int(pc.sum(own["size"]).as_py() or 0),
        f"the tombstones of this are {age(_kept_ms(snapshot))} old",
    )
    groups = Groups(
        rows=group_rows(found, names.__getitem__, inputs["path"]),
        inputs=inputs,
        base={"version": str(snapshot.version), **clustering_base(snapshot)},
        deletes_applied=has_vector,
        delete_files_that_go=0,
        comes_back=(freed,) if len(own) else (),
        expected_duration_ms=expected_duration_ms(table, VERB_NAME, inputs["size_bytes"]),
        spill_bytes=0
        if order is None
        else expected_spill(table, policy, found.groups.size_bytes.tolist(), settings.processes),
        reads=()
        if ordering is None or not len(found.file)
        else ordering.reads(np.isin(np.arange(len(adds)), found.file)),
    )
    verdicts = tuple(
        Verdict(
            subject=PARTITION,
            id=names[int(code)],
            keep=True,
            reason=reason_text(found.reasons, row, settings, fits_nothing=not len(found.groups.files)),
        )
        for row, code in enumerate(found.reasons.partition.tolist())
    )
    return groups, verdicts

"""rewrite-data-files: which groups of a branch's data files are rewritten, and why the others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.iceberg.branch.column_ranges import ranges_of
from iceberg_cli.iceberg.branch.entry_columns import Ints
from iceberg_cli.iceberg.branch.file_filter import file_filter
from iceberg_cli.iceberg.branch.head import BranchHead, head_of
from iceberg_cli.iceberg.branch.manifest_headers import losses
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.rows.data_locations import data_locations
from iceberg_cli.iceberg.spec.manifests.manifest import waiting
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS, column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.iceberg.spec.types.partition_path import partition_path
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.assign_row_ids import plan as assign_row_ids
from iceberg_cli.iceberg.verbs.assign_row_ids.plan import AssignmentParts
from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
from iceberg_cli.iceberg.verbs.rewrite_data_files import rules
from iceberg_cli.iceberg.verbs.rewrite_data_files.batch import batch_of, changed
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles, branch_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.freed_later import freed_later
from iceberg_cli.iceberg.verbs.rewrite_data_files.key_order import UNSORTED, first_column, in_key_order
from iceberg_cli.iceberg.verbs.rewrite_data_files.ordering import (
    is_tables_own,
    order_of,
    reads_now,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import partition_values, unpartitioned
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.repartition import repartitioning
from iceberg_cli.iceberg.verbs.rewrite_data_files.rewriting import fields_in_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.settings import (
    WITH_NULL_SNAPSHOTS,
    compaction_of,
    write_settings,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.strands import stranded
from iceberg_cli.iceberg.verbs.rewrite_data_files.tasks import tasks_of
from iceberg_cli.layout.choice import choose
from iceberg_cli.layout.compaction import (
    CompactionInputs,
    CompactionSettings,
    reason_text,
)
from iceberg_cli.layout.files.compaction_verb import CompactionVerb
from iceberg_cli.layout.files.forecast import (
    expected_duration_ms,
    expected_spill,
    group_rows,
    library_too_old,
    no_room,
)
from iceberg_cli.layout.files.ordering import OrderPlan, RowOrder, order_settings, without_order
from iceberg_cli.operation.groups.ports import Batch, GroupTasks
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.column_reads import ColumnReads
from iceberg_cli.plan.compaction_policy import VERB_NAME
from iceberg_cli.plan.groups import Groups
from iceberg_cli.plan.plan import PARTITION, Option, Plan, Step, Verdict
from iceberg_cli.plan.text import count, size
from iceberg_cli.plan.where import parse_where

_READ_FORMATS: Final = ("parquet", "avro", "orc")


class RewriteDataFilesVerb(CompactionVerb):
    """Few files of a good size, without deletes."""

    policy = RewriteDataFiles

    def plan(
        self,
        table: IcebergTable,
        policy: RewriteDataFiles,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - the groups of `within` are compared with the table as it is
    ) -> Planned:
        """The plan for the head of a branch; where there is another one, its groups, of which none is planned anew.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: something that must be read cannot be read whole.
        """
        return Planned(plan=table.resolve(_plan(table, policy, as_of_ms=as_of_ms, within=within)))

    def options(
        self,
        table: IcebergTable,
        policy: RewriteDataFiles,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return compaction_of(table.metadata, policy)[1]

    def tasks(self, table: IcebergTable, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
        """As `GroupVerb`."""
        return tasks_of(table, plan, numbers)

    def changed(self, table: IcebergTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
        """As `GroupVerb`."""
        metadata, policy = table.metadata, RewriteDataFiles.of_plan(plan)
        fields, _ = fields_in_files(
            metadata.current_schema(), metadata.properties, path=table.metadata_location
        )
        return without_order(partial(order_of, metadata, policy, fields), numbers) or changed(
            table, plan, numbers
        )

    def reads_now(self, table: IcebergTable, plan: Plan) -> tuple[ColumnReads, ...]:
        """As `GroupVerb`."""
        return reads_now(table, RewriteDataFiles.of_plan(plan))

    def batch(
        self,
        table: IcebergTable,
        plan: Plan,
        results: Sequence[GroupResult],
        *,
        committed: Collection[int],
        earlier: Batch | None = None,
    ) -> Batch:
        """As `GroupVerb`."""
        return batch_of(table, plan, results, committed=committed, earlier=earlier)

    def first(self, plan: Plan) -> tuple[Verb, AssignRowIds] | None:
        """As `Verb`: row ids for the rows of the branch that have none."""
        if len(plan.steps) < 2:
            return None
        return assign_row_ids.VERB, AssignRowIds(refs=(RewriteDataFiles.of_plan(plan).branch,))


VERB: Final = RewriteDataFilesVerb()


def _plan(table: IcebergTable, policy: RewriteDataFiles, *, as_of_ms: int, within: Plan | None) -> Plan:
    metadata, ref = table.metadata, policy.branch
    settings, options = compaction_of(metadata, policy)
    plan = Plan(
        verb=VERB_NAME,
        table=table.describe(),
        base=table.base(),
        as_of_ms=as_of_ms,
        options=options,
        policy=policy.to_json(),
    )
    if ref not in metadata.refs and ref == RewriteDataFiles().branch:
        return replace(plan, not_applicable=f"{ref} has no snapshot")
    _check_branch(metadata, ref)
    fields, _ = fields_in_files(metadata.current_schema(), metadata.properties, path=table.metadata_location)
    order = order_of(metadata, policy, fields)
    where = file_filter(() if policy.where is None else parse_where(policy.where), metadata)
    head = head_of(table, ref)
    blocked, warnings = _obstacles(table, policy)
    assignment = AssignmentParts()
    blocked += head.blocked_by
    if head.rows["key_metadata"].null_count < len(head.rows):
        encrypted = head.rows.filter(pc.is_valid(head.rows["key_metadata"]))["manifest_path"]
        return replace(plan, blocked_by=(f"its manifest {encrypted[0].as_py()} is encrypted",))
    may_be_due = within is None or within.due
    if may_be_due and metadata.format_version >= WITH_ROW_IDS and waiting(head.rows).any():
        if policy.no_assign_row_ids:
            blocked += ("some rows of the branch have no ids yet; `assign-row-ids` gives them some",)
        else:
            assignment = _assignment(table, ref, within)
    strands = stranded(metadata, ref)
    if policy.unsafe_strand_branches:
        warnings += tuple(f"{each}." for each in strands)
    else:
        blocked += tuple(f"{each} (--unsafe-strand-branches carries on)" for each in strands)
    if within is not None:
        if within.groups is None:  # it lists nothing
            return within
        blocked += (*assignment.blocked_by, *no_room(table, _data_folder(metadata), policy, within.groups))
        groups = within.groups if assignment.steps else _with_row_ids(table, head, within.groups)
        return replace(
            within,
            warnings=(*warnings, *assignment.warnings),
            blocked_by=tuple(blocked),
            verdicts=(*assignment.verdicts, *(each for each in within.verdicts if each.subject == PARTITION)),
            steps=(*assignment.steps, *within.steps[-1:]),
            groups=groups,
        )
    columns = first_column(metadata)
    if order is not None:
        columns = tuple(fields[each.place].field_id for each in order.columns)
    files = branch_files(table, head, where, bounds_of=columns)
    found = _chosen(table, policy, files, settings, order, as_of_ms=as_of_ms)
    groups = found.groups
    plan = replace(plan, verdicts=found.verdicts, warnings=(*warnings, *found.warnings), groups=groups)
    if not pc.any(files.data["chosen"]).as_py():
        which = "" if policy.where is None else f" that --where {policy.where} is about"
        return replace(plan, not_applicable=f"{ref} has no data file{which}")
    if not len(groups):
        return replace(plan, warnings=(*plan.warnings, *found.blocked_by))
    lost = losses(table, metadata, head.rows.take(pa.array(found.manifests, pa.int64())))
    blocked += (
        *found.blocked_by,
        *assignment.blocked_by,
        *lost.blocked_by,
        *given_again(table, metadata, head),
    )
    blocked += (*no_room(table, _data_folder(metadata), policy, groups), *library_too_old(table.engine))
    return replace(
        plan,
        verdicts=(*assignment.verdicts, *plan.verdicts),
        warnings=(*plan.warnings, *assignment.warnings, *lost.warnings),
        blocked_by=tuple(dict.fromkeys(blocked)),
        steps=(*assignment.steps, Step(name=f"{VERB_NAME} {ref}")),
        reason=f"{count(len(groups.inputs), 'data files')} of {size(groups.size_bytes)} where about "
        f"{groups.sum_of('expected_files'):,} would do",
        early="it rewrites rows, which is done by name, or where a policy file names it",
    )


def _assignment(table: IcebergTable, ref: str, within: Plan | None) -> AssignmentParts:
    """What gives ids to the rows of a branch that have none, before any is rewritten: each keeps the one that it gets.

    Else the commit of the first groups gave ids to the files that are left, and what was read of these had none.
    """
    found = assign_row_ids.parts(
        table,
        AssignRowIds(refs=(ref,)),
        table.metadata,
        sharing="`assign-row-ids --share-ids`, before this, gives them main's",
    )
    if within is not None and len(within.steps) < 2:
        reason = "some rows of the branch have no ids, which the plan does not give them: plan again"
        return replace(found, blocked_by=(*found.blocked_by, reason))
    return found


def _with_row_ids(table: IcebergTable, head: BranchHead, groups: Groups) -> Groups:
    """The groups, of which nothing was read yet, with the ids that rows of their files have got since."""
    inputs = groups.inputs
    if table.metadata.format_version < WITH_ROW_IDS or not inputs["first_row_id"].null_count:
        return groups
    data = branch_files(table, head).data
    places = pc.index_in(inputs["path"], value_set=data["path"].combine_chunks())
    now = pc.coalesce(inputs["first_row_id"], data["first_row_id"].take(places))
    return replace(
        groups, inputs=inputs.set_column(inputs.column_names.index("first_row_id"), "first_row_id", now)
    )


def _check_branch(metadata: TableMetadata, name: str) -> None:
    ref = metadata.refs.get(name)
    if ref is None or ref.type != BRANCH:
        branches = sorted(each for each, ref in metadata.refs.items() if ref.type == BRANCH)
        what = "is a tag" if ref is not None else "is no branch of the table"
        raise UsageError(f"--branch: {name} {what}", next_step=f"Its branches: {', '.join(branches)}.")


def _obstacles(table: IcebergTable, policy: RewriteDataFiles) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why the table's files cannot be written as it asks for, and what of its properties has no effect."""
    metadata = table.metadata
    if "encryption.key-id" in metadata.properties:
        return (
            "its writers encrypt data files (table property encryption.key-id), and nothing here has keys",
        ), ()
    fields, _ = fields_in_files(metadata.current_schema(), metadata.properties, path=table.metadata_location)
    settings = write_settings(metadata, fields, policy)
    ignored = policy.unsafe_ignore_properties
    blocked = tuple(
        f"table property {name} cannot be obeyed: {reason} (--unsafe-ignore-property {name} carries on)"
        for name, reason in sorted(settings.refused.items())
        if name not in ignored
    )
    warnings = [
        f"Not obeyed: table property {name}: {reason}."
        for name, reason in sorted(settings.refused.items())
        if name in ignored
    ]
    warnings += [
        f"Without effect: --unsafe-ignore-property {name}: the table has no such property, or it is obeyed."
        for name in ignored
        if name not in settings.refused
    ]
    if settings.without_effect:
        warnings.append(
            f"Without effect on files that are written here: {', '.join(settings.without_effect)}."
        )
    return blocked, tuple(warnings)


def _data_folder(metadata: TableMetadata) -> str:
    return data_locations(metadata.location, metadata.properties).root


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    groups: Groups
    manifests: tuple[int, ...]  # rows of the head's list that are replaced
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]
    blocked_by: tuple[str, ...]


def _chosen(
    table: IcebergTable,
    policy: RewriteDataFiles,
    files: BranchFiles,
    settings: CompactionSettings,
    order: RowOrder | None,
    *,
    as_of_ms: int,
) -> _Chosen:
    metadata, snapshot = table.metadata, files.head.snapshot
    data = files.data.take(
        pc.sort_indices(files.data, [("sequence_number", "ascending"), ("path", "ascending")])
    )
    data = data.combine_chunks()
    everywhere = unpartitioned(metadata)
    # Before version 2 nothing has a number, whatever a snapshot says of itself.
    until = snapshot.sequence_number or 0 if metadata.format_version >= WITH_NULL_SNAPSHOTS else 0
    _check(data, until)
    applied = rules.applied_deletes(data, files.deletes, everywhere=everywhere, until=until)
    _check_listing(data, applied.doubts)
    rules.doubt_floating_point(
        applied.doubts, data, files.deletes, column_types(metadata), everywhere=everywhere, until=until
    )
    is_sound = (applied.doubts == rules.Doubt.NONE) & ~data["encrypted"].to_numpy()
    is_sound &= pc.is_in(data["file_format"], value_set=pa.array(_READ_FORMATS)).to_numpy()
    keys = data["key"].combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    eligible = is_sound & data["chosen"].to_numpy()
    fields, _ = fields_in_files(metadata.current_schema(), metadata.properties, path=table.metadata_location)
    moved = repartitioning(table, policy, data, files.deletes, fields, eligible=eligible, as_of_ms=as_of_ms)
    candidates = CompactionInputs(
        partition=np.where(moved.moves, len(keys.dictionary), codes),
        size_bytes=data["size_bytes"].to_numpy(),
        record_count=data["record_count"].to_numpy(),
        delete_files=applied.delete_files,
        deleted_rows=applied.deleted_rows,
        eligible=eligible,
        moves=moved.moves,
    )
    is_own = order is not None and is_tables_own(order, metadata, fields)
    ordering = None
    if order is not None:
        ordering = OrderPlan(
            order=order,
            ranges=ranges_of(
                data,
                [fields[each.place] for each in order.columns],
                write_settings(metadata, fields, policy).modes,
            ),
            inputs=candidates,
            settings=order_settings(policy, order, settings),
        )
        orders = ordering.chosen()
        if is_own:
            ids = pc.fill_null(data["sort_order_id"], UNSORTED).to_numpy()
            orders |= eligible & (ids != metadata.default_sort_order_id)
        candidates = replace(candidates, orders=orders)
    found = choose(candidates, settings)
    names = _PartitionNames(
        metadata, files, keys.dictionary.to_pylist(), data["spec_id"].to_numpy(), codes, moved.spec_id
    )
    inputs = data.take(pa.array(found.file)).append_column("group", pa.array(found.group, pa.int64()))
    inputs = inputs.append_column("position_digest", pa.array(applied.position_digests[found.file]))
    inputs = inputs.append_column("equality_digest", pa.array(applied.equality_digests[found.file]))
    inputs, unordered = in_key_order(
        inputs, metadata, fields, moves=moved.moves[found.file], sorts=None if order is None else is_own
    )
    dead = rules.dead_deletes(
        data,
        files.deletes,
        removed=found.file,
        new_keys=data["key"].take(pa.array(found.file[~moved.moves[found.file]])),
        everywhere=everywhere,
        until=until,
    )
    groups = Groups(
        rows=group_rows(found, names.of, inputs["path"]),
        deletes_applied=int(applied.delete_files[found.file].sum()),
        delete_files_that_go=int(dead.sum()),
        comes_back=freed_later(table, files.head, inputs) if len(inputs) else (),
        expected_duration_ms=expected_duration_ms(table, VERB_NAME, inputs["size_bytes"]),
        spill_bytes=0
        if order is None
        else expected_spill(table, policy, found.groups.size_bytes.tolist(), settings.processes),
        reads=()
        if ordering is None or not len(found.file)
        else ordering.reads(np.isin(np.arange(len(data)), found.file)),
        inputs=inputs.select(rules.INPUTS_SCHEMA.names).cast(rules.INPUTS_SCHEMA),
        base={
            "ref": files.head.ref,
            "snapshot_id": str(snapshot.snapshot_id),
            "sequence_number": str(until),
            **moved.base,
        },
    )
    reasons = found.reasons
    verdicts = tuple(
        Verdict(
            subject=PARTITION,
            id=names.of(int(code)),
            keep=True,
            reason=reason_text(reasons, row, settings, fits_nothing=not len(found.groups.files)),
        )
        for row, code in enumerate(reasons.partition.tolist())
    )
    doubts = list(_doubts(data, applied.doubts, names, codes))
    warnings = [*moved.warnings, *(each.text for each in doubts)]
    if len(inputs):
        warnings += _statistics_left(metadata, snapshot.snapshot_id)
    if unordered:
        warnings.append(
            f"{count(unordered, 'data files')} of the table's sort order {metadata.default_sort_order_id} are written "
            "to files that are of none: rows are not sorted by it, and these overlap or are rewritten with others."
        )
    groups = replace(groups, broken=tuple(each.of_partition for each in doubts if each.is_broken))
    manifests = {
        *inputs["manifest"].to_pylist(),
        *files.deletes["manifest"].filter(pa.array(dead)).to_pylist(),
    }
    return _Chosen(
        groups=groups,
        manifests=tuple(sorted(manifests)),
        verdicts=verdicts,
        warnings=tuple(warnings),
        blocked_by=moved.blocked_by,
    )


def _statistics_left(metadata: TableMetadata, snapshot_id: int) -> Iterator[str]:
    """What engines no longer find of the statistics of a snapshot once another one has its rows."""
    again = "engines have none of the new snapshot until they compute them again."
    if any(each.snapshot_id == snapshot_id for each in metadata.statistics):
        yield f"The statistics of snapshot {snapshot_id} are of the same rows, and stay that snapshot's: {again}"
    if any(each.snapshot_id == snapshot_id for each in metadata.partition_statistics):
        yield f"The partition statistics of snapshot {snapshot_id} count files that are replaced: {again}"


def _check(data: pa.Table, until: int) -> None:
    """Raise CorruptFile where a data file is newer than the snapshot that lists it."""
    newer = pc.greater(data["sequence_number"], until)
    if rows := np.flatnonzero(newer.to_numpy(zero_copy_only=False)).tolist():
        number = data["sequence_number"][rows[0]].as_py()
        reason = f"it is {number}, above that of the snapshot that lists it, {until}"
        raise CorruptFile(data["path"][rows[0]].as_py(), "sequence_number", reason)


def _check_listing(data: pa.Table, doubts: Any) -> None:
    """Raise CorruptFile where a data file is listed twice, or has two deletion vectors."""
    for doubt in (rules.Doubt.LISTED_TWICE, rules.Doubt.TWO_VECTORS):
        if rows := np.flatnonzero(doubts == doubt).tolist():
            raise CorruptFile(data["path"][rows[0]].as_py(), None, rules.DOUBTS[doubt])


class _LeftOut(NamedTuple):
    """Data files about which readers do not agree, of one kind."""

    text: str  # a sentence with the first of them
    of_partition: tuple[str, str]  # where it is, and why
    is_broken: bool


def _doubts(data: pa.Table, doubts: Any, names: _PartitionNames, codes: Ints) -> Iterator[_LeftOut]:
    for doubt, text in rules.DOUBTS.items():
        rows = np.flatnonzero(doubts == doubt).tolist()
        if rows:
            more = f", and {len(rows) - 1:,} more like it" if len(rows) > 1 else ""
            what = f"{data['path'][rows[0]].as_py()}{more}: {text}"
            yield _LeftOut(
                f"Not rewritten: {what}.", (names.of(int(codes[rows[0]])), what), doubt in rules.BROKEN
            )


class _PartitionNames:
    """The names of partitions by their codes, as paths of data files have them; after the last one that of a move."""

    def __init__(
        self,
        metadata: TableMetadata,
        files: BranchFiles,
        keys: Sequence[bytes],
        spec_ids: Ints,
        codes: Ints,
        moved_to: int,
    ) -> None:
        self._metadata, self._files, self._keys = metadata, files, keys
        self._moved_to = moved_to
        first = np.unique(codes, return_index=True)[1] if len(codes) else codes
        self._spec_ids = spec_ids[first]
        self._known: dict[int, str] = {}

    def of(self, code: int) -> str:
        """Of one partition."""
        if code == len(self._keys):
            return f"to spec {self._moved_to}"
        if code not in self._known:
            spec = self._metadata.partition_spec(int(self._spec_ids[code]))
            assert spec is not None  # its entries were read by it
            types = column_types(self._metadata)
            values = partition_values(spec, types, self._files.tuples[self._keys[code]])
            self._known[code] = partition_path(spec, types, values)
        return self._known[code]

"""Files that are moved to the table's current partition spec: which, and what of their rows and deletes must be so.

Equality deletes are for a partition of a spec: in another one they do not apply. So files stay for whose partition jobs
write such deletes, and where some arrive meanwhile their group is not committed.

Spec: "Partitioning", "Partition Evolution", "Scan Planning", "Column Projection".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import GroupLeftOut
from iceberg_cli.iceberg.branch.entry_columns import DELETE_COLUMNS, EQUALITY, Bools, EntryReader
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.rows.row_partitions import (
    RowPartitioner,
    StoredPartition,
    obstacle_to,
    source_types,
    stored_partition,
)
from iceberg_cli.iceberg.spec.manifests.manifest import DELETES
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.spec.types.single_value import from_bytes
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import Move
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import partition_values, unpartitioned
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.plan.groups import Groups
from iceberg_cli.plan.text import count

_SPEC: Final = "output_spec_id"  # in the base of groups
_JOBS_GO_ON_MS: Final = (
    7 * 86_400_000
)  # a job that wrote equality deletes goes on with the spec that it knows
_NO_EQUALITY: Final = ("append", "replace")  # operations of snapshots that delete no row


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioning:
    """Which of n data files are moved.

    Args:
        spec_id: of the spec to which they are.
        moves: whether each is.
        blocked_by: why none can be, as of a plan.
        warnings: what is said of those that stay.
    """

    spec_id: int
    moves: Bools
    blocked_by: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def base(self) -> dict[str, str]:
        """What groups of a plan say of it."""
        return {_SPEC: str(self.spec_id)} if self.moves.any() else {}


def repartitioning(
    table: IcebergTable,
    policy: RewriteDataFiles,
    data: pa.Table,
    deletes: pa.Table,
    fields: Sequence[NestedField],
    *,
    eligible: Bools,
    as_of_ms: int,
) -> Repartitioning:
    """Which data files are moved to the table's current spec, as the policy asks for it.

    Args:
        table: as loaded.
        policy: what the operator asked for.
        data: n live data files: `FILES_SCHEMA`.
        deletes: live deletes: `DELETES_SCHEMA`.
        fields: that new files have.
        eligible: whether each data file may be rewritten.
        as_of_ms: the time of the plan.

    Raises:
        CorruptFile: a manifest of recent deletes cannot be read whole.
    """
    metadata = table.metadata
    spec_id = metadata.default_spec_id
    none = np.zeros(len(data), np.bool_)
    moves = eligible & (data["spec_id"].to_numpy() != spec_id)
    if policy.output_spec != "current" or not moves.any():
        return Repartitioning(spec_id=spec_id, moves=none)
    spec = metadata.partition_spec(spec_id)
    assert spec is not None  # checked when the metadata was read
    if (obstacle := obstacle_to(spec, fields)) is not None:
        blocked = f"--output-spec current: nothing can be moved to partition spec {spec_id}: {obstacle}"
        return Repartitioning(spec_id=spec_id, moves=none, blocked_by=(blocked,))
    stays = none
    if not policy.unsafe_ignore_upserts:
        keys = [*_equality_keys(deletes, metadata), *_recent_keys(table, as_of_ms)]
        stays = moves & pc.is_in(data["key"], value_set=pa.array(keys, pa.binary())).to_numpy()
    moves &= ~stays
    warnings = []
    if moves.any():
        warnings.append(
            f"{count(int(moves.sum()), 'data files')} of other specs are moved to partition spec {spec_id}. Into how "
            "many partitions is seen when their rows are read; a group that would become more files stays as it is."
        )
    if stays.any():
        warnings.append(
            f"{count(int(stays.sum()), 'data files')} stay in their spec: for their partitions there are equality "
            "deletes, or were within 7 days, and a job that goes on with that spec would miss moved rows "
            "(--unsafe-ignore-upserts moves them)."
        )
    return Repartitioning(spec_id=spec_id, moves=moves, warnings=tuple(warnings))


def _equality_keys(deletes: pa.Table, metadata: TableMetadata) -> list[bytes]:
    """The partitions for which there are equality deletes, but for those that apply in all."""
    everywhere = pa.array(unpartitioned(metadata), pa.int32())
    mask = pc.equal(deletes["kind"], EQUALITY)
    mask = pc.and_(mask, pc.invert(pc.is_in(deletes["spec_id"], value_set=everywhere)))
    found: list[bytes] = pc.unique(deletes["key"].filter(mask)).to_pylist()
    return found


def _recent_keys(table: IcebergTable, as_of_ms: int) -> Iterator[bytes]:
    """The partitions for which snapshots of the last days, on any branch, added equality deletes."""
    metadata = table.metadata
    recent = [
        each
        for each in metadata.snapshots
        if each.timestamp_ms >= as_of_ms - _JOBS_GO_ON_MS and each.operation not in _NO_EQUALITY
    ]
    if not recent:
        return
    ids = pa.array([each.snapshot_id for each in recent], pa.int64())
    rows = table.reachability.manifests(
        [snapshot_files(each) for each in recent], phase="reading lists of recent deletes", required=True
    ).rows
    mask = pc.and_(pc.equal(rows["content"], DELETES), pc.is_in(rows["added_snapshot_id"], value_set=ids))
    own = rows.filter(mask)
    reader = EntryReader(
        specs={spec.spec_id: spec for spec in metadata.partition_specs},
        types=column_types(metadata),
        places=dict.fromkeys(own["manifest_path"].to_pylist(), 0),
    )
    parts = table.reachability.from_entries(
        own, DELETE_COLUMNS, reader.deletes, phase="reading recent deletes"
    )
    for part, _ in parts:
        yield from _equality_keys(part, metadata)


# -- groups of a plan --------------------------------------------------------------------------------------------------


def output_spec_id(groups: Groups) -> int | None:
    """The spec to which files of some groups are moved; None: of none."""
    found = groups.base.get(_SPEC)
    return None if found is None else int(found)


def moved_groups(groups: Groups) -> frozenset[int]:
    """The numbers of the groups whose files are moved."""
    spec_id = output_spec_id(groups)
    if spec_id is None:
        return frozenset()
    # A group is moved whole: files that are of that spec already are in other groups.
    return frozenset(
        groups.inputs["group"].filter(pc.not_equal(groups.inputs["spec_id"], spec_id)).to_pylist()
    )


def move_of(
    metadata: TableMetadata,
    fields: Sequence[NestedField],
    spec: PartitionSpec,
    inputs: pa.Table,
    tuples: Mapping[bytes, tuple[Any, ...]],
    *,
    most_files: int | None,
) -> Move:
    """How the rows of a group are moved.

    Args:
        metadata: of the table.
        fields: that new files have.
        spec: to which.
        inputs: of the group: `INPUTS_SCHEMA`.
        tuples: the partition of each key, in Avro's representation.
        most_files: see `Move`.
    """
    types, sources = column_types(metadata), source_types(fields)
    specs = {each.spec_id: each for each in metadata.partition_specs}
    pairs = zip(inputs["spec_id"].to_pylist(), inputs["key"].to_pylist(), strict=True)
    return Move(
        partitioner=RowPartitioner(spec=spec, types=sources),
        identities=tuple(
            _identities(specs[spec_id], sources, partition_values(specs[spec_id], types, tuples[key]))
            for spec_id, key in pairs
        ),
        most_files=most_files,
    )


def _identities(
    spec: PartitionSpec, types: Mapping[int, str], values: Sequence[Any]
) -> tuple[RowPartitioner, StoredPartition]:
    """The identity fields of a spec whose columns rows have, and what a partition has for them."""
    pairs = [
        (field, value)
        for field, value in zip(spec.fields, values, strict=True)
        if field.transform == "identity" and field.source_id in types
    ]
    own = replace(spec, fields=tuple(field for field, _ in pairs))
    partitioner = RowPartitioner(spec=own, types=types)
    return partitioner, stored_partition(partitioner.result_types(), [value for _, value in pairs])


# -- rows --------------------------------------------------------------------------------------------------------------


def check_identities(path: str, rows: pa.Table, identities: tuple[RowPartitioner, StoredPartition]) -> None:
    """Raise GroupLeftOut where a row has another value than the partition of its file: readers do not agree on it.

    Args:
        path: of the file.
        rows: of it.
        identities: see `Move`.
    """
    partitioner, stated = identities
    if any(partition != stated for partition, _ in partitioner(rows)):
        raise GroupLeftOut(
            f"rows of {path} have other values of a column than its partition says, and readers take either"
        )


def values_of(partition: StoredPartition, partitioner: RowPartitioner) -> tuple[Any, ...]:
    """The values of a partition, as `single_value` has them."""
    return tuple(
        None if value is None else from_bytes(type_, value, path="partition", field=field.name)
        for value, type_, field in zip(
            partition, partitioner.result_types(), partitioner.spec.fields, strict=True
        )
    )

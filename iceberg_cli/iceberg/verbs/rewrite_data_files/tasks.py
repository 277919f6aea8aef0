"""The groups of a plan as engines get them: their files with the deletes that apply, and how they are written.

Spec: "Column Projection", "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.rows.data_files import DataFile
from iceberg_cli.iceberg.rows.deleted_keys import DeletedKeys
from iceberg_cli.iceberg.rows.row_deletes import HiddenRows, row_deletes
from iceberg_cli.iceberg.rows.table_columns import scalar_of
from iceberg_cli.iceberg.spec.deletes.dv_blobs import positions_in
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS, column_types
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import GroupTask
from iceberg_cli.iceberg.verbs.rewrite_data_files.key_order import UNSORTED, ordered_columns
from iceberg_cli.iceberg.verbs.rewrite_data_files.ordering import order_of
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import partition_tuples, partition_values
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.repartition import move_of, moved_groups, output_spec_id
from iceberg_cli.iceberg.verbs.rewrite_data_files.rewriting import GroupRewriter, fields_in_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.settings import (
    compaction_of,
    write_settings,
)
from iceberg_cli.layout.files.budget import share_of_group
from iceberg_cli.layout.files.inputs import breaking_the_group
from iceberg_cli.layout.files.kept_positions import keep_positions
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.operation.groups.creator import Creator, Written
from iceberg_cli.operation.groups.ports import GroupTasks
from iceberg_cli.plan.plan import Plan

Deletes = TypeVar("Deletes")


def tasks_of(table: IcebergTable, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
    """How some groups of a plan are rewritten; none where the snapshot that they were planned on is gone.

    Raises:
        CorruptFile: the snapshot cannot be read whole. Refused: a delete file is encrypted.
    """
    assert plan.groups is not None
    metadata = table.metadata
    policy = RewriteDataFiles.of_plan(plan)
    compaction, _ = compaction_of(metadata, policy)
    processes = compaction.processes
    snapshot = metadata.snapshot(int(plan.groups.base["snapshot_id"]))
    fields, columns = fields_in_files(
        metadata.current_schema(), metadata.properties, path=table.metadata_location
    )
    settings = write_settings(metadata, fields, policy)
    inputs = plan.groups.inputs_of(numbers)
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    types = column_types(metadata)
    order = ordered_columns(metadata, fields)
    # The table may have another order by now than when it was planned.
    order_id = metadata.default_sort_order_id if order else UNSORTED
    groups: dict[int, GroupTask] = {}
    broken: Mapping[int, CorruptFile] = {}
    hidden = HiddenRows(vectors={}, equality=[], columns={}, keys={})
    if snapshot is not None:
        manifests = table.reachability.manifests(
            [snapshot_files(snapshot)], phase="reading the manifest list", required=True
        ).rows
        deletes = row_deletes(table, table.reachability, manifests, [])
        hidden, broken = read_deletes(inputs, lambda some: deletes.of(with_file_paths(some)))
        inputs = without_groups(inputs, broken)
        tuples = partition_tuples(table, manifests, inputs)
        rows = plan.groups.rows_of(numbers)
        files = _data_files(specs, types, inputs, hidden, tuples)
        starts = _starts(inputs)
        moved, moved_to = moved_groups(plan.groups), output_spec_id(plan.groups)
        for number, (begin, end) in starts.items():
            row, spec_id, move = rows[number], inputs["spec_id"][begin].as_py(), None
            if number in moved:
                assert moved_to is not None
                if moved_to not in specs:
                    continue
                spec_id, own = moved_to, inputs.slice(begin, end - begin)
                most_files = None if policy.rewrite_all else end - begin
                move = move_of(metadata, fields, specs[spec_id], own, tuples, most_files=most_files)
            first = tuples[inputs["key"][begin].as_py()]
            groups[number] = GroupTask(
                number=number,
                spec_id=spec_id,
                partition=() if move is not None else partition_values(specs[spec_id], types, first),
                move=move,
                inputs=tuple(files[begin:end]),
                expected_bytes=row["expected_bytes"],
                rolling=Rolling(
                    target_bytes=compaction.target_bytes,
                    min_bytes=compaction.min_bytes,
                    max_bytes=compaction.max_bytes,
                    leaves_rest=row["leaves_rest"],
                ),
                sort_order_id=order_id if inputs["sort_order_id"][begin].as_py() == order_id else UNSORTED,
            )
    side_by_side, memory_bytes = share_of_group(
        policy.bytes_of("memory"),
        processes=processes,
        groups=len(groups),
        is_distributed=table.engine.is_distributed,
    )
    rewriter = GroupRewriter(
        fields=fields,
        columns=columns,
        keeps_row_ids=metadata.format_version >= WITH_ROW_IDS,
        properties=settings.properties,
        modes=settings.modes,
        locations=settings.locations,
        specs=specs,
        types=types,
        order=order,
        row_order=order_of(metadata, policy, fields),
        equality=hidden.columns,
        deleted=DeletedKeys.of(hidden.keys),
        memory_bytes=memory_bytes,
        side_by_side=side_by_side,
        is_proved=not policy.no_verify_rows,
        threads=table.engine.threads,
    )
    return GroupTasks(
        rewrite=RewriteTask(rewriter), groups=groups, suffix=".parquet", processes=processes, broken=broken
    )


def read_deletes(
    inputs: pa.Table, read: Callable[[pa.Table], Deletes]
) -> tuple[Deletes, dict[int, CorruptFile]]:
    """The deletes of groups, and the groups whose deletes cannot be read: those of the others are read without them.

    Args:
        inputs: of groups: `INPUTS_SCHEMA`.
        read: reads the deletes of some of them, or raises CorruptFile.
    """
    try:
        return read(inputs), {}
    except CorruptFile:
        broken: dict[int, CorruptFile] = {}
        for number in pc.unique(inputs["group"]).to_pylist():
            try:
                read(inputs.filter(pc.equal(inputs["group"], number)).combine_chunks())
            except CorruptFile as error:
                broken[number] = error
        return read(without_groups(inputs, broken)), broken


def positions_of(blobs: Iterable[bytes]) -> Positions:
    """The positions of several deletion vectors and position deletes, ascending, each once."""
    parts = [positions_in(blob).astype(np.int64) for blob in blobs]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def without_groups(inputs: pa.Table, numbers: Collection[int]) -> pa.Table:
    """The inputs of other groups than some."""
    return inputs.filter(pa.array(~np.isin(inputs["group"].to_numpy(), [*numbers]))).combine_chunks()


def with_file_paths(inputs: pa.Table) -> pa.Table:
    """Inputs with the names of columns that readers of deletes know."""
    return inputs.rename_columns(["file_path" if name == "path" else name for name in inputs.column_names])


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrites a group, keeps where its rows went, and says what it wrote."""

    rewriter: GroupRewriter

    def __call__(self, creator: Creator, task: GroupTask) -> Written:
        """See `GroupRewriter`.

        Raises:
            CorruptFile: likewise, and where a file is gone, or is not read here: the other groups are none the worse.
            TooLittleMemory, GroupLeftOut: likewise.
        """
        with breaking_the_group(task.inputs):
            result = self.rewriter(creator, task)
        deleted = {
            place: positions_of(each.vectors) for place, each in enumerate(task.inputs) if each.vectors
        }
        keep_positions(creator, result.positions, deleted)
        return Written(paths=tuple(each.path for each in result.outputs), content=result.to_json())


def _starts(inputs: pa.Table) -> dict[int, tuple[int, int]]:
    """By group where its files begin and end; they lie together."""
    numbers = inputs["group"].to_pylist()
    found: dict[int, tuple[int, int]] = {}
    for place, number in enumerate(numbers):
        begin = found.get(number, (place, place))[0]
        found[number] = (begin, place + 1)
    return found


def _data_files(
    specs: Mapping[int, PartitionSpec],
    types: Mapping[int, Type],
    inputs: pa.Table,
    hidden: HiddenRows,
    tuples: Mapping[bytes, tuple[Any, ...]],
) -> list[DataFile]:
    spec_of_key = dict(zip(inputs["key"].to_pylist(), inputs["spec_id"].to_pylist(), strict=True))
    constants = {
        key: _identities(specs[spec_of_key[key]], types, values)
        for key, values in tuples.items()
        if key in spec_of_key
    }
    names = (
        "path", "file_format", "size_bytes", "record_count", "key", "sequence_number", "first_row_id",
    )  # fmt: skip
    return [
        DataFile(
            path=path,
            file_format=file_format,
            size_bytes=size_bytes,
            record_count=records,
            constants=constants[key],
            vectors=hidden.vectors.get(path, ()),
            equality_deletes=hidden.equality[place],
            sequence_number=sequence_number,
            first_row_id=first_row_id,
        )
        for place, (path, file_format, size_bytes, records, key, sequence_number, first_row_id) in enumerate(
            zip(*(inputs[name].to_pylist() for name in names), strict=True)
        )
    ]


def _identities(spec: PartitionSpec, types: Mapping[int, Any], values: Sequence[Any]) -> dict[int, pa.Scalar]:
    """Of a partition the values of identity fields, by the id of the column."""
    return {
        field.source_id: scalar_of(types[field.source_id], value)
        for field, value in zip(spec.fields, values, strict=True)
        if field.transform == "identity" and isinstance(types.get(field.source_id), str) and value is not None
    }

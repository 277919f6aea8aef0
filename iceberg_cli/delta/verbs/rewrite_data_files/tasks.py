"""The groups of a plan as engines get them: their files with the rows that are deleted, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.rows.data_files import vector_frames
from iceberg_cli.delta.rows.parquet_files import CODECS
from iceberg_cli.delta.rows.stored_rows import InputFile, RowIdColumns
from iceberg_cli.delta.rows.table_columns import MODE, stored_columns
from iceberg_cli.delta.spec.clustering import clustering_columns
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.row_ids import MATERIALIZED
from iceberg_cli.delta.spec.statistics_columns import statistics_type
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.group import GroupTask
from iceberg_cli.delta.verbs.rewrite_data_files.ordering import order_of
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.delta.verbs.rewrite_data_files.rewriting import GroupRewriter
from iceberg_cli.delta.verbs.rewrite_data_files.settings import (
    compaction_of,
    keeps_row_ids,
    partition_columns_in_files,
)
from iceberg_cli.delta.verbs.rewrite_data_files.written_for import written_for
from iceberg_cli.encoding.row_batches import readable, stream_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.files.budget import share_of_group
from iceberg_cli.layout.files.inputs import parts_of
from iceberg_cli.layout.moved_positions import by_group
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.operation.groups.ports import GroupTasks
from iceberg_cli.plan.plan import Plan

_CODEC: Final = "delta.parquet.compression.codec"
_DEFAULT_CODEC: Final = "snappy"  # of Delta Spark
_LOOKED_AT: Final = 3  # the largest inputs, whose codec new files have


def tasks_of(table: DeltaTable, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
    """How some groups of a plan are rewritten."""
    assert plan.groups is not None
    snapshot, policy = table.snapshot, RewriteDataFiles.of_plan(plan)
    metadata = snapshot.metadata
    compaction, _ = compaction_of(snapshot, policy)
    inputs = plan.groups.inputs_of(numbers)
    frames, broken = read_frames(
        table,
        inputs["group"].to_pylist(),
        inputs["log_path"].to_pylist(),
        inputs["deletion_vector"].to_pylist(),
    )
    rows = plan.groups.rows_of(numbers)
    members: dict[int, list[tuple[dict[str, Any], bytes]]] = {}
    for row, frame in zip(inputs.to_pylist(), frames, strict=True):
        members.setdefault(row["group"], []).append((row, frame))
    groups: dict[int, GroupTask] = {}
    for number, own in members.items():
        if number in broken:
            continue
        groups[number] = GroupTask(
            number=number,
            folder=_folder([row["log_path"] for row, _ in own]),
            inputs=tuple(_input(row, frame) for row, frame in own),
            partition=dict(own[0][0].get("partition_values") or ()),
            expected_bytes=rows[number]["expected_bytes"],
            rolling=Rolling(
                target_bytes=compaction.target_bytes,
                min_bytes=compaction.min_bytes,
                max_bytes=compaction.max_bytes,
                leaves_rest=rows[number]["leaves_rest"],
            ),
        )
    side_by_side, memory_bytes = share_of_group(
        policy.bytes_of("memory"),
        processes=compaction.processes,
        groups=len(groups),
        is_distributed=table.engine.is_distributed,
    )
    names = [metadata.configuration.get(name, "") for name, _ in MATERIALIZED]
    rewriter = GroupRewriter(
        root=table.root,
        fields=tuple(stored_columns(metadata)),
        by_ids=metadata.configuration.get(MODE, "none").lower() == "id",
        row_ids=RowIdColumns(*names) if keeps_row_ids(snapshot) else None,
        partition_columns=partition_columns_in_files(snapshot),
        codec=_codec(table, inputs),
        statistics=statistics_type(
            json.loads(metadata.schema_string),
            metadata.partition_columns,
            metadata.configuration,
            deletion_vectors=supports(snapshot.protocol, "deletionVectors"),
            always=clustering_columns(snapshot),
        ),
        written_for=written_for(snapshot),
        memory_bytes=memory_bytes,
        side_by_side=side_by_side,
        is_proved=not policy.no_verify_rows,
        threads=table.engine.threads,
        order=order_of(snapshot, policy),
    )
    return GroupTasks(
        rewrite=rewriter, groups=groups, suffix=".parquet", processes=compaction.processes, broken=broken
    )


def read_frames(
    table: DeltaTable,
    numbers: Sequence[int],
    paths: Sequence[str],
    vectors: Sequence[Mapping[str, Any] | None],
) -> tuple[list[bytes], dict[int, CorruptFile]]:
    """The frames of the deletion vectors of n data files, and the groups of which one cannot be read.

    Args:
        table: opened.
        numbers: of the groups of the files.
        paths: of the files, as the log has them.
        vectors: as the log has them.
    """
    try:
        return vector_frames(table, paths, vectors), {}
    except CorruptFile:
        frames, broken = [b""] * len(paths), dict[int, CorruptFile]()
        for number, places in by_group(np.array(numbers, np.int64)).items():
            try:
                own = vector_frames(
                    table, [paths[each] for each in places], [vectors[each] for each in places]
                )
            except CorruptFile as error:
                broken[number] = error
                continue
            for place, frame in zip(places.tolist(), own, strict=True):
                frames[place] = frame
        return frames, broken


def _input(row: dict[str, Any], frame: bytes) -> InputFile:
    vector = row["deletion_vector"]
    return InputFile(
        path=row["path"],
        size_bytes=row["size_bytes"],
        record_count=row["record_count"],
        deleted=frame,
        cardinality=0 if vector is None else vector["cardinality"],
        base_row_id=row["base_row_id"],
        row_commit_version=row["row_commit_version"],
    )


def _folder(paths: Sequence[str]) -> str:
    """Where new files go: where the first file of a group is that is below the table's root; see `GroupTask`."""
    own = next((path for path in paths if "/" in path and ":" not in path and not path.startswith("/")), "")
    return own[: own.rfind("/") + 1]


def _codec(table: DeltaTable, inputs: pa.Table) -> str:
    """The codec that the table asks for, else that of most bytes of the largest files."""
    stated = table.snapshot.metadata.configuration.get(_CODEC, "").lower()
    if stated in CODECS:
        return stated
    by_codec: dict[str, int] = {}
    largest = inputs.sort_by([("size_bytes", "descending")]).slice(0, _LOOKED_AT)
    for path in largest["path"].to_pylist():
        for codec, size in _chunks(table, path):
            by_codec[codec] = by_codec.get(codec, 0) + size
    return max(by_codec, key=by_codec.__getitem__, default=_DEFAULT_CODEC)


def _chunks(table: DeltaTable, path: str) -> Iterator[tuple[str, int]]:
    """The codecs of the column chunks of a file, and their sizes; none of one that cannot be read."""
    import pyarrow.parquet as pq

    try:
        with readable(path, "Parquet"):
            footer = pq.read_metadata(stream_of(parts_of(table.storage, path)))
    except (CorruptFile, FileNotFoundError):
        return  # whoever reads its rows says so
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            codec = chunk.compression.lower()
            if codec in CODECS:
                yield codec, chunk.total_compressed_size

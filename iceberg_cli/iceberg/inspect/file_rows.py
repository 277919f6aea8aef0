"""inspect: rows of `manifests`, `files`, `deletes`, `partitions` and `row-ids`.

Column names are those of Iceberg's metadata tables; partitions and bounds are values, not bytes. Partitions are summed
over entries batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.json_rows import json_rows
from iceberg_cli.iceberg.inspect.metadata_rows import Row, id_text
from iceberg_cli.iceberg.inspect.values import (
    is_bare,
    is_number,
    map_texts,
    partition_summary_text,
    partition_texts,
)
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import PartitionField, TableMetadata
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.transforms import parse
from iceberg_cli.plan.text import iso

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_COUNTS: Final = pa.map_(pa.int32(), pa.int64())
_BOUNDS: Final = pa.map_(pa.int32(), pa.string())
FILES_SCHEMA: Final = pa.schema(
    [
        ("content", pa.int32()),
        ("file_path", pa.string()),
        ("file_format", pa.string()),
        ("spec_id", pa.int32()),
        ("partition", _TEXTS),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("column_sizes", _COUNTS),
        ("value_counts", _COUNTS),
        ("null_value_counts", _COUNTS),
        ("nan_value_counts", _COUNTS),
        ("lower_bounds", _BOUNDS),
        ("upper_bounds", _BOUNDS),
        ("key_metadata", pa.binary()),
        ("split_offsets", pa.list_(pa.int64())),
        ("equality_ids", pa.list_(pa.int32())),
        ("sort_order_id", pa.int32()),
        ("first_row_id", pa.int64()),
        ("referenced_data_file", pa.string()),
        ("content_offset", pa.int64()),
        ("content_size_in_bytes", pa.int64()),
        ("snapshot_id", pa.int64()),
        ("sequence_number", pa.int64()),
        ("file_sequence_number", pa.int64()),
    ]
)
FILES_COLUMNS: Final = ("status", *(name for name in FILES_SCHEMA.names if name != "spec_id"))
SIZES_COLUMNS: Final = ("status", "content", "file_size_in_bytes", "content_size_in_bytes")
PARTITIONS_COLUMNS: Final = (
    "status", "content", "partition", "record_count", "file_size_in_bytes", "file_format", "snapshot_id",
)  # fmt: skip
PARTITIONS_SCHEMA: Final = pa.schema(
    [
        ("partition", _TEXTS),
        ("spec_id", pa.int32()),
        ("record_count", pa.int64()),
        ("file_count", pa.int64()),
        ("total_data_file_size_in_bytes", pa.int64()),
        ("position_delete_record_count", pa.int64()),
        ("position_delete_file_count", pa.int64()),
        ("equality_delete_record_count", pa.int64()),
        ("equality_delete_file_count", pa.int64()),
        ("dv_count", pa.int64()),
        ("last_updated_at", pa.string()),
        ("last_updated_at_ms", pa.int64()),
        ("last_updated_snapshot_id", pa.int64()),
    ]
)
ID_COLUMNS: Final = (
    "first_row_id",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "last_updated_snapshot_id",
)


def sizes_table(entries: pa.Table) -> pa.Table:
    """`content` and `size_bytes` of live entries: of a deletion vector its blob's, of anything else its file's."""
    rows = live(entries)
    sizes = pc.coalesce(rows["content_size_in_bytes"], rows["file_size_in_bytes"])
    return pa.table({"content": rows["content"], "size_bytes": sizes})


@dataclass(frozen=True, slots=True)
class _PartitionField:
    field: PartitionField
    source_type: Type


class RowFormatter:
    """Turns decoded entries into rows that people and scripts can read.

    Args:
        metadata: whose schemas and partition specs say what the values mean.
        path: of the metadata, for messages.
    """

    def __init__(self, metadata: TableMetadata, path: str) -> None:
        self._metadata = metadata
        self._path = path
        self._types = column_types(metadata)

    def bare(self) -> dict[str, set[int | str]]:
        """For `json_rows`: which bounds and partition values are numbers or booleans."""
        numbers: set[int | str] = {field_id for field_id, type_ in self._types.items() if is_number(type_)}
        fields = [field for spec in self._metadata.partition_specs for field in self._fields(spec.spec_id)]
        quoted = {f.field.name for f in fields if not is_bare(parse(f.field.transform), f.source_type)}
        partition: set[int | str] = {f.field.name for f in fields if f.field.name not in quoted}
        return {"lower_bounds": numbers, "upper_bounds": numbers, "partition": partition}

    def by_spec(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[tuple[int, pa.Table]]:
        """The live entries of a batch by partition spec id, in their order within one spec."""
        specs = np.array([source.partition_spec_id or 0 for source in sources], np.int32)
        entries = live(batch.table)
        if not entries.num_rows:
            return []
        of_entry = specs[entries["manifest"].to_numpy()]
        found = np.unique(of_entry)
        if len(found) == 1:
            return [(int(found[0]), entries)]
        return [(int(spec_id), entries.filter(pa.array(of_entry == spec_id))) for spec_id in found]

    def files(self, spec_id: int, entries: pa.Table) -> pa.Table:
        """Entries of one partition spec as rows of `FILES_SCHEMA`.

        Raises:
            CorruptFile: a bound is no value of its column's type.
        """
        columns = []
        for field in FILES_SCHEMA:
            if field.name == "spec_id":
                column = pa.array(np.full(entries.num_rows, spec_id, np.int32))
            else:
                column = entries[field.name].combine_chunks()
                if field.name == "partition":
                    column = self.partitions(spec_id, column)
                elif field.name in {"lower_bounds", "upper_bounds"}:
                    column = map_texts(column, self._types, path=self._path, name=field.name)
            columns.append(column)
        return pa.table(columns, schema=FILES_SCHEMA)

    def partitions(self, spec_id: int, column: pa.Array) -> pa.Array:
        """Partition structs of one spec as maps from field name to text; null stays null."""
        written = (
            [column.type.field(i).name for i in range(column.type.num_fields)] if _is_struct(column) else []
        )
        children = column.flatten() if written else []
        fields = self._fields(spec_id)
        by_position = len(fields) == len(written)
        names, shown = [], []
        for index, (name, values) in enumerate(zip(written, children, strict=True)):
            known = fields[index] if by_position else next((f for f in fields if f.field.name == name), None)
            names.append(known.field.name if known is not None else name)
            transform = parse("unknown" if known is None else known.field.transform)
            shown.append(
                partition_texts(transform, "unknown" if known is None else known.source_type, values)
            )
        return _maps(names, shown, len(column))

    def _fields(self, spec_id: int) -> list[_PartitionField]:
        spec = self._metadata.partition_spec(spec_id)
        if spec is None:
            return []
        return [_PartitionField(field, self._types.get(field.source_id, "unknown")) for field in spec.fields]

    def manifests(self, rows: pa.Table) -> list[Row]:
        """Rows of a manifest list as rows of the `manifests` table."""
        return [self._manifest(row) for row in rows.to_pylist()]

    def _manifest(self, row: Mapping[str, Any]) -> Row:
        counts: Row = {}
        for content, kind in ((0, "data"), (1, "delete")):
            for status in ("added", "existing", "deleted"):
                own = row["content"] == content
                counts[f"{status}_{kind}_files_count"] = row[f"{status}_files_count"] if own else 0
        return {
            "content": row["content"],
            "path": row["manifest_path"],
            "length": row["manifest_length"],
            "partition_spec_id": row["partition_spec_id"],
            "added_snapshot_id": id_text(row["added_snapshot_id"]),
            **counts,
            "partition_summaries": self._summaries(row),
            "sequence_number": id_text(row["sequence_number"]),
            "min_sequence_number": id_text(row["min_sequence_number"]),
            "added_rows_count": row["added_rows_count"],
            "existing_rows_count": row["existing_rows_count"],
            "deleted_rows_count": row["deleted_rows_count"],
            "first_row_id": id_text(row["first_row_id"]),
        }

    def _summaries(self, row: Mapping[str, Any]) -> list[Row] | None:
        if row["partitions"] is None:
            return None
        fields = self._fields(row["partition_spec_id"])
        shown = []
        for index, summary in enumerate(row["partitions"]):
            known = fields[index] if index < len(fields) else None
            transform = "unknown" if known is None else known.field.transform
            type_ = "unknown" if known is None else known.source_type
            shown.append(
                {
                    "field": None if known is None else known.field.name,
                    "contains_null": summary["contains_null"],
                    "contains_nan": summary["contains_nan"],
                    **{
                        name: partition_summary_text(
                            transform, type_, summary[name], path=row["manifest_path"]
                        )
                        for name in ("lower_bound", "upper_bound")
                    },
                }
            )
        return shown


def manifest_row_ids(rows: pa.Table) -> list[Row]:
    """The row ids of each data manifest: the first one, and how many rows get theirs by it.

    `assigned_rows` is None where the manifest list cannot tell: an existing file may have an id of its own, as all of
    them have in a manifest that was rewritten, and then takes none. Without a first id nothing is assigned.

    Spec: "First Row ID Inheritance", "First Row ID Assignment".
    """
    return [
        {
            "kind": "manifest",
            "snapshot_id": id_text(row["added_snapshot_id"]),
            "path": row["manifest_path"],
            "first_row_id": id_text(row["first_row_id"]),
            "assigned_rows": _assigned(row),
        }
        for row in rows.filter(pc.equal(rows["content"], 0)).to_pylist()
    ]


def _assigned(row: Mapping[str, Any]) -> int | None:
    if row["first_row_id"] is None:
        return 0
    return None if row["existing_files_count"] != 0 else row["added_rows_count"]


def _is_struct(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _maps(names: Sequence[str], columns: Sequence[pa.Array], size: int) -> pa.Array:
    """Maps from the same names to the values of the columns."""
    width = len(names)
    offsets = pa.array(np.arange(size + 1, dtype=np.int32) * width)
    if not width:
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
    keys = pa.array(list(names), pa.string()).take(pa.array(np.tile(np.arange(width), size)))
    # Column by column end to end, then taken row by row.
    places = (np.arange(width) * size)[None, :] + np.arange(size)[:, None]
    values = pa.concat_arrays(list(columns)).take(pa.array(places.ravel()))
    return pa.MapArray.from_arrays(offsets, keys, values)


_SUMS: Final = (
    "record_count",
    "file_count",
    "total_data_file_size_in_bytes",
    "position_delete_record_count",
    "position_delete_file_count",
    "equality_delete_record_count",
    "equality_delete_file_count",
    "dv_count",
)


class Partitions:
    """Sums by partition spec and partition. Position delete counts include deletion vectors, as in Java.

    Args:
        metadata: whose snapshots date the changes.
        shower: spells partitions.
    """

    def __init__(self, metadata: TableMetadata, shower: RowFormatter) -> None:
        self._shower = shower
        self._ids = pa.array([s.snapshot_id for s in metadata.snapshots], pa.int64())
        self._times = pa.array([s.timestamp_ms for s in metadata.snapshots], pa.int64())
        self._partitions: dict[tuple[int, str], list[tuple[str, str | None]]] = {}
        self._parts: list[pa.Table] = []

    def add(self, spec_id: int, entries: pa.Table) -> None:
        """Take live entries of one spec into account: the columns `PARTITIONS_COLUMNS`."""
        shown = self._shower.partitions(spec_id, entries["partition"].combine_chunks())
        keys = json_rows(pa.table({"p": shown}))
        for text, first in _firsts(keys):
            self._partitions.setdefault((spec_id, text), shown[first].as_py())
        content = entries["content"].to_numpy()
        records = entries["record_count"].to_numpy()
        puffin = np.asarray(pc.equal(pc.utf8_lower(entries["file_format"].combine_chunks()), "puffin"))
        data, position, equality = content == 0, content == 1, content == 2
        known = pc.index_in(entries["snapshot_id"].combine_chunks(), value_set=self._ids)
        columns = {
            "key": keys,
            "spec_id": pa.array(np.full(len(content), spec_id, np.int32)),
            "record_count": records * data,
            "file_count": data.astype(np.int64),
            "total_data_file_size_in_bytes": entries["file_size_in_bytes"].to_numpy() * data,
            "position_delete_record_count": records * position,
            "position_delete_file_count": position.astype(np.int64),
            "equality_delete_record_count": records * equality,
            "equality_delete_file_count": equality.astype(np.int64),
            "dv_count": (position & puffin).astype(np.int64),
            "last_updated_at_ms": self._times.take(known),
        }
        self._parts.append(_grouped(pa.table(columns)))

    def table(self) -> pa.Table:
        """The rows, of `PARTITIONS_SCHEMA`, by spec id and partition."""
        if not self._parts:
            return PARTITIONS_SCHEMA.empty_table()
        sums = _grouped(pa.concat_tables(self._parts)).sort_by(
            [("spec_id", "ascending"), ("key", "ascending")]
        )
        spec_ids, keys = sums["spec_id"].to_pylist(), sums["key"].to_pylist()
        shown = [self._partitions[pair] for pair in zip(spec_ids, keys, strict=True)]
        times = sums["last_updated_at_ms"].combine_chunks()
        snapshots = self._ids.take(pc.index_in(times, value_set=self._times))
        columns = {name: sums[name] for name in ("spec_id", *_SUMS, "last_updated_at_ms")}
        columns["partition"] = pa.array(shown, PARTITIONS_SCHEMA.field("partition").type)
        columns["last_updated_at"] = pa.array([iso(time) for time in times.to_pylist()], pa.string())
        columns["last_updated_snapshot_id"] = pc.if_else(pc.is_null(times), None, snapshots)
        return pa.table([columns[name] for name in PARTITIONS_SCHEMA.names], schema=PARTITIONS_SCHEMA)


def _grouped(table: pa.Table) -> pa.Table:
    sums = [(name, "sum") for name in _SUMS]
    grouped = table.group_by(["key", "spec_id"]).aggregate([*sums, ("last_updated_at_ms", "max")])
    names = {f"{name}_sum": name for name in _SUMS} | {"last_updated_at_ms_max": "last_updated_at_ms"}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


def _firsts(keys: pa.Array) -> list[tuple[str, int]]:
    """Each distinct key with the row that has it first."""
    encoded = keys.dictionary_encode()
    _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
    return list(zip(encoded.dictionary.to_pylist(), first.tolist(), strict=True))

"""inspect: the `partitions` table, summed over entries batch by batch."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.json_rows import json_rows
from iceberg_cli.iceberg.inspect.file_rows import PARTITIONS_SCHEMA, RowFormatter
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.plan.text import iso

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

"""A writer of small Iceberg tables, commit by commit: real data files, manifests and metadata in a local folder.

A builder stands in for an engine. It keeps every snapshot's manifests with all numbers resolved, so that
each commit writes what the specification asks of a writer: inherited numbers stay null in the files.

Spec: Iceberg v3, "Manifests", "Snapshots", "Row Lineage", "File System Tables".
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_cli.encoding import strict_json
from iceberg_cli.encoding.deletion_vector import DeletionVector, encode
from iceberg_cli.iceberg.spec import puffin
from iceberg_cli.iceberg.spec.manifest_writer import write_manifest, write_manifest_list
from iceberg_cli.iceberg.spec.single_value import to_bytes
from iceberg_cli.iceberg.spec.transforms import human, parse, result_type
from iceberg_cli.testing.iceberg_commits import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    Entry,
    Key,
    Manifest,
    assign_row_ids,
    key_of,
    plan_manifests,
    summarise,
)

_PATH_FIELD_ID = 2147483546  # reserved fields of position delete files
_POSITION_FIELD_ID = 2147483545
_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(9,2)": pa.decimal128(9, 2),
}
_POSITION_DELETES = {
    "fields": [
        {"id": _PATH_FIELD_ID, "name": "file_path", "required": True, "type": "string"},
        {"id": _POSITION_FIELD_ID, "name": "pos", "required": True, "type": "long"},
    ]
}


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of a table schema, with the field ids that Parquet files must have."""
    return pa.schema(
        [
            pa.field(
                field["name"],
                _ARROW_TYPES[field["type"]],
                nullable=not field["required"],
                metadata={"PARQUET:field_id": str(field["id"])},
            )
            for field in schema["fields"]
        ]
    )


def parquet_file(rows: pa.Table, types: Mapping[int, str]) -> tuple[bytes, dict[str, Any]]:
    """Encode rows as a Parquet file.

    Args:
        rows: in a schema of `arrow_schema`.
        types: the specification's type of each field id.

    Returns:
        The file, and size, record count and statistics for its manifest entry.
    """
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd")
    data = buffer.getvalue()
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in rows.schema]
    bounds = {i: _bounds(types[i], column) for i, column in zip(ids, rows.columns, strict=True)}
    return data, {
        "record_count": len(rows),
        "file_size_in_bytes": len(data),
        "column_sizes": {i: group.column(at).total_compressed_size for at, i in enumerate(ids)},
        "value_counts": dict.fromkeys(ids, len(rows)),
        "null_value_counts": {i: column.null_count for i, column in zip(ids, rows.columns, strict=True)},
        "lower_bounds": {i: lower for i, (lower, _) in bounds.items()},
        "upper_bounds": {i: upper for i, (_, upper) in bounds.items()},
        "split_offsets": [4],
    }


def position_delete_file(positions: Mapping[str, Sequence[int]]) -> tuple[bytes, dict[str, Any]]:
    """Encode deleted positions by data file path, sorted by path and position."""
    pairs = sorted((path, at) for path, some in positions.items() for at in some)
    columns = [[path for path, _ in pairs], [at for _, at in pairs]]
    rows = pa.table(columns, schema=arrow_schema(_POSITION_DELETES))
    return parquet_file(rows, {_PATH_FIELD_ID: "string", _POSITION_FIELD_ID: "long"})


def _bounds(type_: str, column: pa.ChunkedArray) -> tuple[bytes, bytes]:
    both = pc.min_max(column)
    integer = {"date": pa.int32(), "timestamptz": pa.int64()}.get(type_)
    lower, upper = ((both[end].cast(integer) if integer else both[end]).as_py() for end in ("min", "max"))
    return to_bytes(type_, lower), to_bytes(type_, upper)


class TableBuilder:
    """A table that is built commit by commit; `time_ms` is the time of the next commit."""

    def __init__(
        self,
        location: str,
        *,
        format_version: int,
        schema: Mapping[str, Any],
        spec: Mapping[str, Any],
        properties: Mapping[str, str],
        seed: str,
        time_ms: int,
    ) -> None:
        self.location = location
        self.time_ms = time_ms
        self.schema, self.spec = schema, spec
        self.types = {field["id"]: field["type"] for field in schema["fields"]}
        self.manifests: dict[int, tuple[Manifest, ...]] = {}
        self.version = 0
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, seed)
        self._named = 0
        self.metadata: dict[str, Any] = {
            "format-version": format_version,
            "table-uuid": str(self._uuid()),
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": time_ms,
            "last-column-id": max(self.types),
            "current-schema-id": schema["schema-id"],
            "schemas": [schema],
            "default-spec-id": spec["spec-id"],
            "partition-specs": [spec],
            "last-partition-id": max((field["field-id"] for field in spec["fields"]), default=999),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": dict(properties),
            "current-snapshot-id": None if format_version > 2 else -1,  # as Java spells "none"
            "refs": {},
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
        }
        if format_version > 2:
            self.metadata["next-row-id"] = 0
        self._publish()

    def live(self, ref: str = "main") -> list[Entry]:
        """The live files of a branch or tag."""
        found = self.metadata["refs"].get(ref)
        manifests = self.manifests[found["snapshot-id"]] if found else ()
        return [entry for m in manifests for entry in m.entries if entry["status"] != DELETED]

    def data_file(self, rows: pa.Table, partition: Mapping[str, Any] | None = None) -> Entry:
        """Write a data file; its entry is for `commit`."""
        file = parquet_file(rows.cast(arrow_schema(self.schema)), self.types)
        entry = self._data_entry(file, partition or {}, "")
        return entry | {"content": 0, "sort_order_id": 0}

    def position_deletes(self, positions: Mapping[str, Sequence[int]], partition: Mapping[str, Any]) -> Entry:
        """Write a position delete file for data files of one partition, by path."""
        return self._data_entry(position_delete_file(positions), partition, "-deletes") | {"content": 1}

    def deletion_vectors(self, positions: Mapping[str, Sequence[int]]) -> tuple[list[Entry], list[Key]]:
        """Write one Puffin file with a deletion vector for each data file.

        Args:
            positions: by path of a live data file, all positions that are deleted from now on.

        Returns:
            The new entries, and the keys of the vectors that they replace.
        """
        live = self.live()
        partitions = {entry["file_path"]: entry["partition"] for entry in live}
        replaced = [key_of(entry) for entry in live if entry.get("referenced_data_file") in positions]
        blobs = [
            puffin.deletion_vector_blob(
                encode(DeletionVector.of(some)), referenced_data_file=path, cardinality=len(set(some))
            )
            for path, some in positions.items()
        ]
        data = puffin.write(blobs, {"created-by": "iceberg-cli demo"})
        path = self._write(f"data/00000-{self._uuid()}-00001-deletes.puffin", data)
        entries = [
            {
                "content": 1,
                "file_path": path,
                "file_format": "PUFFIN",
                "partition": partitions[blob.properties["referenced-data-file"]],
                "record_count": int(blob.properties["cardinality"]),
                "file_size_in_bytes": len(data),
                "referenced_data_file": blob.properties["referenced-data-file"],
                "content_offset": blob.offset,
                "content_size_in_bytes": blob.length,
            }
            for blob in puffin.read_footer(data, len(data), path).blobs
        ]
        return entries, replaced

    def commit(
        self, operation: str, added: Iterable[Entry] = (), removed: Iterable[Key] = (), ref: str = "main"
    ) -> int:
        """Add a snapshot that adds and removes files, and move the branch `ref` to it.

        Raises:
            ValueError: a removed file is not live.
        """
        refs, sequence_number = self.metadata["refs"], self.metadata["last-sequence-number"] + 1
        parent = refs[ref]["snapshot-id"] if ref in refs else None
        unique = self._uuid()
        snapshot_id = (int.from_bytes(unique.bytes[:8]) ^ int.from_bytes(unique.bytes[8:])) & (1 << 63) - 1
        before = self.manifests.get(parent or 0, ())
        drafts, kept = plan_manifests(
            before, [dict(e) for e in added], set(removed), snapshot_id, sequence_number
        )
        written = [self._manifest(d, i, unique, snapshot_id, sequence_number) for i, d in enumerate(drafts)]
        manifests = sorted([*written, *kept], key=lambda m: int(m.row["content"]))
        snapshot: dict[str, Any] = {"sequence-number": sequence_number, "snapshot-id": snapshot_id}
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        first_row_id = self.metadata.get("next-row-id")
        if first_row_id is not None:
            manifests, self.metadata["next-row-id"] = assign_row_ids(manifests, first_row_id)
        listing = write_manifest_list(
            [m.row for m in manifests],
            format_version=self.metadata["format-version"],
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            first_row_id=first_row_id,
            sync=self._uuid().bytes,
        )
        counts = {
            "manifests-created": len(written),
            "manifests-kept": len(kept),
            "manifests-replaced": sum(m.row["added_files_count"] == 0 for m in written),
        }
        snapshot |= {
            "timestamp-ms": self.time_ms,
            "summary": {"operation": operation} | summarise(manifests, snapshot_id, counts),
            "manifest-list": self._write(f"metadata/snap-{snapshot_id}-1-{unique}.avro", listing),
            "schema-id": self.schema["schema-id"],
        }
        if first_row_id is not None:
            added_rows = self.metadata["next-row-id"] - first_row_id
            snapshot |= {"first-row-id": first_row_id, "added-rows": added_rows}
        self.manifests[snapshot_id] = tuple(manifests)
        self.metadata["snapshots"].append(snapshot)
        self.metadata["last-sequence-number"] = sequence_number
        self.set_ref(ref, snapshot_id, refs.get(ref, {"type": "branch"}))
        return snapshot_id

    def set_ref(self, name: str, snapshot_id: int, ref: Mapping[str, Any]) -> None:
        """Point a branch or tag at a snapshot; main is also the table's current snapshot.

        Args:
            name: of the ref.
            snapshot_id: of a snapshot of the table.
            ref: `type` and retention settings, with the names of the metadata.
        """
        self.metadata["refs"][name] = {**ref, "snapshot-id": snapshot_id}
        if name == "main":
            self.metadata["current-snapshot-id"] = snapshot_id
            self.metadata["snapshot-log"].append({"timestamp-ms": self.time_ms, "snapshot-id": snapshot_id})
        self._publish()

    def _publish(self) -> None:
        """Write the next metadata file, and point the version hint at it."""
        if self.version:
            former = {
                "timestamp-ms": self.metadata["last-updated-ms"],
                "metadata-file": f"{self.location}/metadata/v{self.version}.metadata.json",
            }
            self.metadata["metadata-log"].append(former)
        self.metadata["last-updated-ms"] = self.time_ms
        self.version += 1
        self._write(f"metadata/v{self.version}.metadata.json", strict_json.dumps(self.metadata))
        with open(f"{self.location}/metadata/version-hint.text", "w", encoding="ascii") as hint:
            hint.write(str(self.version))

    def _uuid(self) -> uuid.UUID:
        self._named += 1
        return uuid.uuid5(self._namespace, str(self._named))

    def _write(self, name: str, data: bytes) -> str:
        """Create a file below the table with the time of the commit as modification time, and return its path."""
        path = f"{self.location}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)
        os.utime(path, (self.time_ms / 1000, self.time_ms / 1000))
        return path

    def _data_entry(
        self, file: tuple[bytes, Mapping[str, Any]], partition: Mapping[str, Any], suffix: str
    ) -> Entry:
        """Write a Parquet file, given with its statistics, into its partition's folder."""
        data, statistics = file
        folder = "".join(f"{name}={self._shown(name, value)}/" for name, value in partition.items())
        path = self._write(f"data/{folder}00000-{self._uuid()}-00001{suffix}.parquet", data)
        return {"file_path": path, "file_format": "PARQUET", "partition": dict(partition), **statistics}

    def _shown(self, name: str, value: Any) -> str:
        field = next(f for f in self.spec["fields"] if f["name"] == name)
        return human(parse(field["transform"]), self.types[field["source-id"]], value)

    def _manifest(
        self, entries: Sequence[Entry], index: int, unique: uuid.UUID, snapshot_id: int, sequence_number: int
    ) -> Manifest:
        """Write a manifest; in the file, numbers of added entries are left to inheritance."""
        content = DELETES if entries[0]["content"] else DATA
        inherited = dict.fromkeys(("sequence_number", "file_sequence_number", "first_row_id"))
        data = write_manifest(
            [entry | inherited if entry["status"] == ADDED else entry for entry in entries],
            schema=self.schema,
            partition_spec=self.spec,
            format_version=self.metadata["format-version"],
            content=content,
            sync=self._uuid().bytes,
        )
        live = [e["sequence_number"] for e in entries if e["status"] != DELETED]
        row: dict[str, Any] = {
            "manifest_path": self._write(f"metadata/{unique}-m{index}.avro", data),
            "manifest_length": len(data),
            "partition_spec_id": self.spec["spec-id"],
            "content": content,
            "sequence_number": sequence_number,
            "min_sequence_number": min(live, default=sequence_number),
            "added_snapshot_id": snapshot_id,
            "partitions": [self._partition_summary(field, entries) for field in self.spec["fields"]],
        }
        for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            chosen = [e["record_count"] for e in entries if e["status"] == status]
            row |= {f"{name}_files_count": len(chosen), f"{name}_rows_count": sum(chosen)}
        return Manifest(row, tuple(entries))

    def _partition_summary(self, field: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
        values = [entry["partition"][field["name"]] for entry in entries]
        type_ = result_type(parse(field["transform"]), self.types[field["source-id"]])
        return {
            "contains_null": False,
            "contains_nan": False,
            "lower_bound": to_bytes(type_, min(values)),
            "upper_bound": to_bytes(type_, max(values)),
        }

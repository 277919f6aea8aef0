"""A writer of Iceberg tables, commit by commit, as an engine writes them: data files, deletes, manifests, metadata.

It keeps every snapshot's manifests with all numbers resolved, so that each commit writes what the specification asks
of a writer: inherited numbers stay null in the files. Nothing here encodes by code of the package.

Spec: Iceberg v3, "Manifests", "Snapshots", "Row Lineage", "Optional Snapshot Summary Fields".
"""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_cli.testing.iceberg_files import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EQUALITY_DELETES,
    EXISTING,
    POSITION_DELETES,
    Blob,
    Entry,
    Json,
    Row,
    manifest,
    manifest_list,
    manifest_row,
    position_deletes,
    puffin,
    single_value,
)
from iceberg_cli.testing.iceberg_reader import parquet_table

Key = tuple[str, int | None]  # identifies a live file: path, and offset of a deletion vector
UNPARTITIONED: Json = {"spec-id": 0, "fields": []}
_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(9,2)": pa.decimal128(9, 2),
}
_DAY_0 = dt.date(1970, 1, 1)


class Files(Protocol):
    """Where the files of a table go; a storage is one."""

    def put_if_absent(self, path: str, data: bytes, /) -> None:
        """Create a file."""
        ...


class Manifest(NamedTuple):
    """A manifest: its row in the list, and its entries with their numbers."""

    row: Row
    entries: tuple[Entry, ...]

    @property
    def live(self) -> list[Entry]:
        """Its entries that are not deleted."""
        return [entry for entry in self.entries if entry["status"] != DELETED]


class ManifestDraft(NamedTuple):
    """A manifest that is still to be written."""

    content: int
    spec_id: int
    entries: list[Entry]
    added: bool  # whether its files are new
    written: int = 0  # how many manifests of its commit were written before it
    listed: int = 0  # how many stand before it in the list


def key_of(entry: Mapping[str, Any]) -> Key:
    """The key of a live file: its path, and a deletion vector's offset, since vectors may be in one Puffin file."""
    return entry["file_path"], entry.get("content_offset")


def is_vector(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is a deletion vector."""
    return str(entry["file_format"]).upper() == "PUFFIN"


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of a table schema, with the field ids that Parquet files must have."""
    return pa.schema(
        [
            pa.field(
                each["name"],
                _ARROW_TYPES[each["type"]],
                nullable=not each["required"],
                metadata={"PARQUET:field_id": str(each["id"])},
            )
            for each in schema["fields"]
        ]
    )


def parquet_metrics(data: bytes) -> Json:
    """Size, record count and statistics of a Parquet file with field ids, for its manifest entry."""
    rows = parquet_table(data)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = {int(each.metadata[b"PARQUET:field_id"]): rows[each.name] for each in rows.schema}
    bounds = {field_id: _bounds(column) for field_id, column in columns.items()}
    return {
        "record_count": len(rows),
        "file_size_in_bytes": len(data),
        "column_sizes": {i: group.column(at).total_compressed_size for at, i in enumerate(columns)},
        "value_counts": dict.fromkeys(columns, len(rows)),
        "null_value_counts": {i: column.null_count for i, column in columns.items()},
        "lower_bounds": {i: lower for i, (lower, _) in bounds.items()},
        "upper_bounds": {i: upper for i, (_, upper) in bounds.items()},
        "split_offsets": [4],
    }


def _bounds(column: pa.ChunkedArray) -> tuple[bytes, bytes]:
    """The least and the greatest value as bytes."""
    kind = next(name for name, arrow in _ARROW_TYPES.items() if arrow == column.type)
    stored = {"date": pa.int32(), "timestamptz": pa.int64()}.get(kind)
    both = pc.min_max(column)
    lower, upper = ((both[end].cast(stored) if stored else both[end]).as_py() for end in ("min", "max"))
    return single_value(kind, lower), single_value(kind, upper)


@dataclass(kw_only=True)
class IcebergWriter:
    """A table that is written commit by commit.

    `commit` collects, `publish` writes a metadata file and returns its location; whoever owns the pointer moves it
    there. The same calls with the same `seed` write the same bytes under the same names. What a subclass writes in
    another way it overrides: names, the summary, what is left to inheritance.
    """

    storage: Files
    location: str
    format_version: int = 2
    schema: Json = field(default_factory=dict)
    spec: Json = field(default_factory=lambda: UNPARTITIONED)
    properties: Mapping[str, str] = field(default_factory=dict)
    seed: str = ""
    time_ms: int = 0  # of the next commit
    document: Json = field(default_factory=dict)
    manifests: dict[int, tuple[Manifest, ...]] = field(default_factory=dict)  # by snapshot
    version: int = 0  # how many metadata files there are
    published: str | None = None  # the newest of them

    created_by: str = "iceberg_cli.testing"

    # Numbers of new files that stay null in their manifest where they are those of the commit.
    inherited: ClassVar[tuple[str, ...]] = ("sequence_number", "file_sequence_number")
    partition_summaries: ClassVar[bool] = True
    # As Java lists manifests: those of data first, and of these the new ones; otherwise in the order of the parent.
    java_order: ClassVar[bool] = True
    json_separators: ClassVar[tuple[str, str]] = (",", ":")

    def __post_init__(self) -> None:
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, self.seed)
        self._named = 0
        self.unique = self._namespace  # of the newest commit
        self.snapshot_id = 0  # likewise
        if not self.document:
            self.document = self.first_document()

    def first_document(self) -> Json:
        """The metadata of a table without snapshots."""
        fields = self.schema["fields"]
        document: Json = {
            "format-version": self.format_version,
            "table-uuid": str(self.new_uuid()),
            "location": self.location,
            "last-sequence-number": 0,
            "last-updated-ms": self.time_ms,
            "last-column-id": max(each["id"] for each in fields),
            "current-schema-id": self.schema["schema-id"],
            "schemas": [self.schema],
            "default-spec-id": self.spec["spec-id"],
            "partition-specs": [self.spec],
            "last-partition-id": max((each["field-id"] for each in self.spec["fields"]), default=999),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": dict(self.properties),
            "current-snapshot-id": None if self.format_version > 2 else -1,  # as Java spells "none"
            "refs": {},
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
        }
        return document | ({"next-row-id": 0} if self.format_version > 2 else {})

    # -- names -------------------------------------------------------------------------------------------------

    def new_uuid(self) -> uuid.UUID:
        """The next one of those that follow from the seed."""
        self._named += 1
        return uuid.uuid5(self._namespace, str(self._named))

    def manifest_name(self, draft: ManifestDraft) -> str:
        """The name of a manifest."""
        return f"{self.unique}-m{draft.written}.avro"

    def list_name(self, snapshot_id: int) -> str:
        """The name of a manifest list."""
        return f"snap-{snapshot_id}-1-{self.unique}.avro"

    def put(self, name: str, data: bytes) -> str:
        """Write a file below the table, and return its path."""
        path = f"{self.location}/{name}"
        self.storage.put_if_absent(path, data)
        return path

    # -- files -------------------------------------------------------------------------------------------------

    def file(self, name: str, data: bytes, content: int, records: int, **others: Any) -> Entry:
        """Write a data or delete file of these bytes; its entry is for `commit`.

        Args:
            name: below `data/`.
            data: the file.
            content: `DATA`, `POSITION_DELETES` or `EQUALITY_DELETES`.
            records: rows in it.
            others: further fields of the entry, or other values of the usual ones.
        """
        path = self.put(f"data/{name}", data)
        return {
            "content": content, "file_path": path, "file_format": "PARQUET", "partition": {},
            "record_count": records, "file_size_in_bytes": len(data), **others,
        }  # fmt: skip

    def data_file(self, rows: pa.Table, partition: Mapping[str, Any] | None = None) -> Entry:
        """Write a Parquet file with its statistics."""
        out = io.BytesIO()
        pq.write_table(rows.cast(arrow_schema(self.schema)), out, compression="zstd")
        return self._parquet(out.getvalue(), DATA, partition or {}, "") | {"sort_order_id": 0}

    def position_deletes(self, positions: Mapping[str, Iterable[int]], partition: Mapping[str, Any]) -> Entry:
        """Write a position delete file for data files of one partition, by path."""
        rows = sorted((path, position) for path, some in positions.items() for position in some)
        data = position_deletes(rows, compression="zstd")
        return self._parquet(data, POSITION_DELETES, partition, "-deletes")

    def _parquet(self, data: bytes, content: int, partition: Mapping[str, Any], suffix: str) -> Entry:
        """Write a file with statistics into its partition's folder."""
        days = {each["name"] for each in self.spec["fields"] if each["transform"] == "day"}
        folder = "".join(
            f"{name}={_DAY_0 + dt.timedelta(value) if name in days else value}/"
            for name, value in partition.items()
        )
        name = f"{folder}00000-{self.new_uuid()}-00001{suffix}.parquet"
        return self.file(name, data, content, 0, partition=dict(partition), **parquet_metrics(data))

    def deletion_vectors(self, positions: Mapping[str, Iterable[int]]) -> tuple[list[Entry], list[Key]]:
        """Write one Puffin file with a deletion vector for each data file.

        Args:
            positions: by path of a live data file, all positions that are deleted from now on.

        Returns:
            The new entries, and the keys of the vectors that they replace.
        """
        live = self.live()
        partitions = {entry["file_path"]: entry["partition"] for entry in live}
        replaced = [
            key_of(each) for each in live if is_vector(each) and each["referenced_data_file"] in positions
        ]
        data, blobs = puffin(positions, {"created-by": self.created_by})
        entries = self.puffin_file(f"00000-{self.new_uuid()}-00001-deletes.puffin", data, blobs)
        return [
            entry | {"partition": partitions[entry["referenced_data_file"]]} for entry in entries
        ], replaced

    def puffin_file(self, name: str, data: bytes, blobs: Iterable[Blob], **others: Any) -> list[Entry]:
        """Write a Puffin file of these bytes; an entry for each of its deletion vectors."""
        path = self.put(f"data/{name}", data)
        return [
            {
                "content": POSITION_DELETES, "file_path": path, "file_format": "PUFFIN", "partition": {},
                "record_count": cardinality, "file_size_in_bytes": len(data), "referenced_data_file": data_file,
                "content_offset": offset, "content_size_in_bytes": size, **others,
            }
            for data_file, offset, size, cardinality in blobs
        ]  # fmt: skip

    def live(self, ref: str = "main") -> list[Entry]:
        """The live files of a branch or tag."""
        found = self.document["refs"].get(ref)
        return (
            []
            if found is None
            else [e for each in self.manifests_of(found["snapshot-id"]) for e in each.live]
        )

    # -- commits -----------------------------------------------------------------------------------------------

    def manifests_of(self, snapshot_id: int | None) -> tuple[Manifest, ...]:
        """The manifests of a snapshot; none of None."""
        return () if snapshot_id is None else self.manifests[snapshot_id]

    def commit_files(
        self,
        operation: str,
        added: Iterable[Entry] = (),
        removed: Iterable[Key] = (),
        *,
        ref: str = "main",
        parent: int | None = None,
        snapshot_id: int | None = None,
    ) -> int:
        """Add a snapshot that adds and removes files, and move the branch `ref` to it.

        Args:
            operation: of the summary.
            added: entries of new files; `spec_id` where it is not the table's default one.
            removed: keys of live files.
            ref: a branch; made if it is not there.
            parent: None: the branch's head, or for a new branch main's.
            snapshot_id: None: any that is free.

        Raises:
            ValueError: a removed file is not live.
        """
        document = self.document
        refs, sequence_number = document["refs"], document.get("last-sequence-number", 0) + 1
        head = refs.get(ref) or refs.get("main")
        parent = parent if parent is not None or head is None else head["snapshot-id"]
        self.unique = self.new_uuid()
        if snapshot_id is None:
            high, low = int.from_bytes(self.unique.bytes[:8]), int.from_bytes(self.unique.bytes[8:])
            snapshot_id = (high ^ low) & (1 << 63) - 1
        self.snapshot_id = snapshot_id
        manifests = self._next_manifests(self.manifests_of(parent), [*added], {*removed}, sequence_number)
        first_row_id = document.get("next-row-id")
        if first_row_id is not None:
            manifests, document["next-row-id"] = assign_row_ids(manifests, first_row_id)
        listing = manifest_list(
            [each.row for each in manifests],
            version=document["format-version"],
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            first_row_id=first_row_id,
            sync=self.new_uuid().bytes,
        )
        snapshot: Json = {"sequence-number": sequence_number, "snapshot-id": snapshot_id}
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        snapshot |= {
            "timestamp-ms": self.time_ms,
            "summary": {"operation": operation, **self.summary(manifests)},
            "manifest-list": self.put(f"metadata/{self.list_name(snapshot_id)}", listing),
            "schema-id": document["current-schema-id"],
        }
        if first_row_id is not None:
            snapshot |= {"first-row-id": first_row_id, "added-rows": document["next-row-id"] - first_row_id}
        self.manifests[snapshot_id] = tuple(manifests)
        document["snapshots"] = [*document["snapshots"], snapshot]
        document["last-sequence-number"] = sequence_number
        self.set_ref(ref, {**refs.get(ref, {"type": "branch"}), "snapshot-id": snapshot_id})
        return snapshot_id

    def _next_manifests(
        self,
        before: Iterable[Manifest],
        added: Sequence[Entry],
        removed: set[Key],
        sequence_number: int,
    ) -> list[Manifest]:
        """The new files' manifests by content and spec, then the parent's, those that lose files written anew."""
        snapshot_id = self.snapshot_id
        default: int = self.document["default-spec-id"]
        numbers = _numbers(snapshot_id, sequence_number)
        groups: dict[tuple[int, int], list[Entry]] = {}
        for new in added:
            entry = numbers | {name: value for name, value in new.items() if value is not None}
            key = int(new["content"] > DATA), int(new.get("spec_id", default))
            groups.setdefault(key, []).append(entry | {"status": ADDED})
        drafts: list[Manifest | ManifestDraft] = [
            ManifestDraft(*key, groups[key], added=True) for key in sorted(groups)
        ]
        missing = set(removed)
        for each in before:
            gone = {key_of(entry) for entry in each.live} & removed
            missing -= gone
            if gone:
                removal = {"status": DELETED, "snapshot_id": snapshot_id}
                entries = [e | (removal if key_of(e) in gone else {"status": EXISTING}) for e in each.live]
                content, spec_id = each.row.get("content", DATA), each.row["partition_spec_id"]
                drafts.append(ManifestDraft(content, spec_id, entries, added=False))
            elif each.live:
                drafts.append(each)
        if missing:
            raise ValueError(f"Cannot remove {sorted(path for path, _ in missing)}: not live.")
        found: list[Manifest] = []
        written = 0
        for draft in drafts:
            if isinstance(draft, Manifest):
                found.append(draft)
            else:
                found.append(
                    self.write_manifest(draft._replace(written=written, listed=len(found)), sequence_number)
                )
                written += 1
        if self.java_order:
            found.sort(key=lambda each: (each.row["content"], each.row["added_snapshot_id"] != snapshot_id))
        return found

    def write_manifest(self, draft: ManifestDraft, sequence_number: int) -> Manifest:
        """Write a manifest; in the file, numbers of added entries are left to inheritance."""
        numbers = _numbers(self.snapshot_id, sequence_number)
        stored = []
        for entry in draft.entries:
            null = {name: None for name in self.inherited if entry[name] == numbers[name]}
            one = entry | (null if entry["status"] == ADDED else {})
            stored.append({name: value for name, value in one.items() if name != "spec_id"})
        spec = self.spec_of(draft.spec_id)
        data = manifest(
            stored,
            schema=self.schema,
            spec=spec,
            version=self.document["format-version"],
            content=draft.content,
            sync=self.new_uuid().bytes,
        )
        path = self.put(f"metadata/{self.manifest_name(draft)}", data)
        row = manifest_row(
            path, data, draft.entries, content=draft.content, spec_id=draft.spec_id,
            snapshot_id=self.snapshot_id, sequence_number=sequence_number,
        )  # fmt: skip
        if self.partition_summaries:
            row["partitions"] = [self._partition_summary(each, draft.entries) for each in spec["fields"]]
        return Manifest(row, tuple(draft.entries))

    def spec_of(self, spec_id: int) -> Json:
        """The partition spec that manifests of this spec id are written with."""
        return next(dict(each) for each in self.document["partition-specs"] if each["spec-id"] == spec_id)

    def _partition_summary(self, partition: Mapping[str, Any], entries: Sequence[Entry]) -> Json:
        """Spec: "Manifest Lists", `field_summary`."""
        values = [entry["partition"][partition["name"]] for entry in entries]
        source = next(e["type"] for e in self.schema["fields"] if e["id"] == partition["source-id"])
        kind = "date" if partition["transform"] == "day" else source
        return {
            "contains_null": False,
            "contains_nan": False,
            "lower_bound": single_value(kind, min(values)),
            "upper_bound": single_value(kind, max(values)),
        }

    def summary(self, manifests: Sequence[Manifest]) -> dict[str, str]:
        """The metrics of the newest snapshot, which has these manifests, as Java counts them."""
        return summary_of(manifests, self.snapshot_id)

    def set_ref(self, name: str, ref: Mapping[str, Any]) -> None:
        """Point a branch or tag at a snapshot; main is also the table's current snapshot.

        Args:
            name: of the ref.
            ref: its snapshot, type and retention settings, with the names of the metadata.
        """
        self.document["refs"] = {**self.document["refs"], name: dict(ref)}
        if name == "main":
            entry = {"timestamp-ms": self.time_ms, "snapshot-id": ref["snapshot-id"]}
            self.document["current-snapshot-id"] = ref["snapshot-id"]
            self.document["snapshot-log"] = [*self.document["snapshot-log"], entry]

    def publish(self, name: str | None = None) -> str:
        """Write the metadata of what was committed so far; the one before goes into its log.

        Args:
            name: of the file; None: the next `vN.metadata.json`.

        Returns:
            Its location.
        """
        if self.published is not None:
            entry = {"timestamp-ms": self.document["last-updated-ms"], "metadata-file": self.published}
            self.document["metadata-log"] = [*self.document["metadata-log"], entry]
        times = [each["timestamp-ms"] for each in self.document["snapshots"]]
        self.document["last-updated-ms"] = max([self.document["last-updated-ms"], self.time_ms, *times])
        self.version += 1
        data = json.dumps(self.document, separators=self.json_separators, ensure_ascii=False).encode()
        self.published = self.put(f"metadata/{name or f'v{self.version}.metadata.json'}", data)
        return self.published


def _numbers(snapshot_id: int, sequence_number: int) -> dict[str, int]:
    """What the entries of new files inherit."""
    return {
        "snapshot_id": snapshot_id,
        "sequence_number": sequence_number,
        "file_sequence_number": sequence_number,
    }


def assign_row_ids(manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
    """Give each data manifest without `first_row_id` the next range, and its entries theirs.

    Returns:
        The manifests in the same order, and the table's new `next-row-id`.

    Spec: "First Row ID Assignment", "First Row ID Inheritance".
    """
    result = []
    for each in manifests:
        row = each.row
        if row["content"] == DELETES or row.get("first_row_id") is not None:
            result.append(each)
            continue
        entries, free = [], next_row_id
        for entry in each.entries:
            if entry["status"] != DELETED and entry.get("first_row_id") is None:
                entries.append(entry | {"first_row_id": free})
                free += entry["record_count"]
            else:
                entries.append(entry)
        result.append(Manifest({**row, "first_row_id": next_row_id}, tuple(entries)))
        # As Java counts: rows of existing files too, though theirs are known.
        next_row_id += row["added_rows_count"] + row["existing_rows_count"]
    return result, next_row_id


def summary_of(manifests: Sequence[Manifest], snapshot_id: int) -> dict[str, str]:
    """The metrics of a snapshot's summary; those that are 0 are left out except totals.

    Args:
        manifests: all of the snapshot.
        snapshot_id: of the snapshot.

    Spec: Appendix F, "Metrics".
    """
    entries = [
        e for m in manifests for e in m.entries if e["snapshot_id"] == snapshot_id or e["status"] != DELETED
    ]
    added = [e for e in entries if e["status"] == ADDED and e["snapshot_id"] == snapshot_id]
    gone = [e for e in entries if e["status"] == DELETED]
    live = [e for e in entries if e["status"] != DELETED]
    metrics: dict[str, int] = {}
    for prefix, other, some in (
        ("added", "added", added), ("deleted", "removed", gone), ("total", "total", live)
    ):  # fmt: skip
        deletes = [e for e in some if e["content"]]
        positions = [e["record_count"] for e in deletes if e["content"] == POSITION_DELETES]
        equalities = [e["record_count"] for e in deletes if e["content"] == EQUALITY_DELETES]
        metrics |= {
            f"{prefix}-data-files": len(some) - len(deletes),
            f"{other}-delete-files": len(deletes),
            f"{prefix}-records": sum(e["record_count"] for e in some if not e["content"]),
            # Of a deletion vector its blob, not the whole Puffin file.
            f"{other}-files-size": sum(
                e.get("content_size_in_bytes") or e["file_size_in_bytes"] for e in some
            ),
            f"{other}-position-deletes": sum(positions),
            f"{other}-equality-deletes": sum(equalities),
        }
        if prefix != "total":
            vectors = sum(map(is_vector, deletes))
            metrics |= {
                f"{other}-dvs": vectors,
                f"{other}-position-delete-files": len(positions) - vectors,
                f"{other}-equality-delete-files": len(equalities),
            }
    written = [each for each in manifests if each.row["added_snapshot_id"] == snapshot_id]
    metrics |= {
        "manifests-created": len(written),
        "manifests-kept": len(manifests) - len(written),
        "manifests-replaced": sum(each.row["added_files_count"] == 0 for each in written),
        "changed-partition-count": len({tuple(e["partition"].values()) for e in added + gone}),
    }
    return {name: str(n) for name, n in metrics.items() if n or name.startswith(("total-", "manifests-"))}

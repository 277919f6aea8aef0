"""Another engine at work on a simulated table of version 2 or 3, and what a reader of the table sees.

Both are literal, slow and independent of the code under test where they read: `json`, fastavro, pyroaring and pyarrow.
The engine appends, deletes rows (by position-delete files in v2, by deletion vectors in v3), replaces data files and
upgrades, each on top of whatever is current.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from iceberg_cli.iceberg.spec.manifest_writer import write_manifest, write_manifest_list
from iceberg_cli.storage import Storage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.builders import LOCATION, NOW_MS, SCHEMA, SPEC, a_table_document
from tests.crash.checking import records
from tests.crash.simulation import Script, SimStorage, World

DATA, DELETES = 0, 1  # content of a manifest
POSITION_DELETES = 1  # content of a file
_MAGIC = b"\xd1\xd3\x39\x64"

Document = dict[str, Any]
Row = tuple[str, int]  # data file, position
Lineage = tuple[int | None, int]  # row id, last updated sequence number


# -- what a reader sees ----------------------------------------------------------------------------------------


def entries_of(storage: Storage, manifest: Mapping[str, Any]) -> list[Document]:
    """The entries of a manifest with what they inherit, in file order. Spec: "Manifests", "Row Lineage"."""
    found = []
    next_row_id = manifest.get("first_row_id")
    for record in records(storage.read(manifest["manifest_path"])):
        entry = {**record.pop("data_file"), **record}
        entry["content"] = entry.get("content") or 0
        if entry["status"] == ADDED:
            for name in ("sequence_number", "file_sequence_number"):
                if entry[name] is None:
                    entry[name] = manifest["sequence_number"]
        if entry["snapshot_id"] is None:
            entry["snapshot_id"] = manifest["added_snapshot_id"]
        row_id = entry.get("first_row_id")
        waits = manifest["content"] == DATA and entry["status"] != DELETED and row_id is None
        if waits and next_row_id is not None:
            row_id, next_row_id = next_row_id, next_row_id + entry["record_count"]
        entry["first_row_id"] = row_id if manifest.get("first_row_id") is not None else None
        found.append(entry)
    return found


def manifests_of(storage: Storage, snapshot: Mapping[str, Any]) -> list[Document]:
    """The rows of a snapshot's manifest list."""
    return records(storage.read(snapshot["manifest-list"]))


def snapshot_of(document: Mapping[str, Any], snapshot_id: int) -> Document:
    """One of a table's snapshots."""
    return next(dict(s) for s in document["snapshots"] if s["snapshot-id"] == snapshot_id)


def rows_of(storage: Storage, snapshot: Mapping[str, Any]) -> dict[Row, Lineage]:
    """The rows that a reader of a snapshot sees, each with its row id and last updated sequence number.

    Spec: "Scan Planning", "Deletion Vectors", "Row Lineage".
    """
    data: dict[str, Document] = {}
    deletes: list[Document] = []
    for manifest in manifests_of(storage, snapshot):
        live = [entry for entry in entries_of(storage, manifest) if entry["status"] != DELETED]
        for entry in live:
            if manifest["content"] == DELETES:
                deletes.append(entry)
            else:
                assert entry["file_path"] not in data, f"{entry['file_path']} is live twice"
                data[entry["file_path"]] = entry
    rows: dict[Row, Lineage] = {}
    for path, entry in data.items():
        gone = deleted_positions(storage, entry, deletes)
        for position in range(entry["record_count"]):
            if position not in gone:
                first = entry["first_row_id"]
                rows[path, position] = (
                    None if first is None else first + position,
                    entry["sequence_number"],
                )
    return rows


def deleted_positions(storage: Storage, data: Mapping[str, Any], deletes: Iterable[Document]) -> set[int]:
    """The positions of one data file that are deleted."""
    mine = [delete for delete in deletes if delete["sequence_number"] >= data["sequence_number"]]
    vectors = [
        d
        for d in mine
        if d["file_format"].upper() == "PUFFIN" and d["referenced_data_file"] == data["file_path"]
    ]
    assert len(vectors) < 2, f"two deletion vectors for {data['file_path']}"
    if vectors:
        return set(vector_of(storage, vectors[0]))
    found: set[int] = set()
    for delete in mine:
        if delete["file_format"].upper() == "PARQUET":
            named = pq.read_table(io.BytesIO(storage.read(delete["file_path"]))).to_pylist()
            found |= {row["pos"] for row in named if row["file_path"] == data["file_path"]}
    return found


def vector_of(storage: Storage, entry: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, out of its Puffin file. Spec: Puffin, "deletion-vector-v1" blob type."""
    puffin = storage.read(entry["file_path"])
    assert len(puffin) == entry["file_size_in_bytes"]
    offset, size = entry["content_offset"], entry["content_size_in_bytes"]
    blob = puffin[offset : offset + size]
    length, crc = struct.unpack(">i", blob[:4])[0], struct.unpack(">I", blob[-4:])[0]
    assert length == size - 8
    assert blob[4:8] == _MAGIC
    assert zlib.crc32(blob[4:-4]) == crc
    vector = BitMap64.deserialize(blob[8:-4])
    assert len(vector) == entry["record_count"]
    return vector


# -- the other engine ------------------------------------------------------------------------------------------


@dataclass
class Engine:
    """Commits to the table that a world's pointer names. Its snapshots are 1001, 1002 and so on."""

    world: World
    commits: int = 0
    early: bool = False  # does not know of file sequence numbers, as writers of v2 before Iceberg 1.1

    @property
    def storage(self) -> Storage:
        """Nothing befalls this process."""
        return SimStorage(self.world, Script())

    def create(self, *, format_version: int, properties: Mapping[str, str]) -> None:
        """Write the first metadata file."""
        document = a_table_document(format_version=format_version, properties=properties)
        document |= {"location": LOCATION, "last-updated-ms": NOW_MS - 1_000_000}
        self._publish(document, None)

    @property
    def current(self) -> str:
        """The current metadata location."""
        assert self.world.pointer is not None
        return self.world.pointer

    @property
    def document(self) -> Document:
        """The current metadata."""
        found: Document = json.loads(self.storage.read(self.current))
        return found

    def append(self, *names: str, rows: int = 10, ref: str = "main") -> None:
        """Add data files of so many rows."""
        self._commit("append", ref, add=[self._data_file(name, rows) for name in names])

    def delete(self, positions: Mapping[str, Iterable[int]], *, ref: str = "main") -> None:
        """Delete rows: position deletes for all files in one file (v2), or one deletion vector a file (v3).

        A file that is not live by now is left out.
        """
        document = self.document
        version = document["format-version"]
        live = self._live(document, ref)
        data = {entry["file_path"]: entry for content, entry in live if content == DATA}
        targets = {f"{LOCATION}/data/{name}.parquet": {*chosen} for name, chosen in positions.items()}
        targets = {path: chosen for path, chosen in targets.items() if path in data}
        if not targets:
            return
        if version == 2:
            self._commit("delete", ref, add_deletes=[self._position_deletes(targets)])
            return
        deletes = [entry for content, entry in live if content == DELETES]
        replaced = [
            d
            for d in deletes
            if d["file_format"].upper() == "PUFFIN" and d["referenced_data_file"] in targets
        ]
        merged = {
            path: chosen | deleted_positions(self.storage, data[path], deletes)
            for path, chosen in targets.items()
        }
        self._commit(
            "delete", ref, add_deletes=self._vectors(merged), remove=[_identity(d) for d in replaced]
        )

    def replace(self, old: str, new: str, *, rows: int = 10, ref: str = "main") -> None:
        """Take a data file out and put another in its place, as a compaction does; its vector leaves with it."""
        path = f"{LOCATION}/data/{old}.parquet"
        live = self._live(self.document, ref)
        gone = [_identity(e) for content, e in live if content == DATA and e["file_path"] == path]
        if not gone:
            return
        gone += [
            _identity(e)
            for content, e in live
            if content == DELETES and e.get("referenced_data_file") == path
        ]
        self._commit("replace", ref, add=[self._data_file(new, rows)], remove=gone)

    def upgrade(self) -> None:
        """To version 3."""
        document = self.document
        if document["format-version"] < 3:
            self._publish({**document, "format-version": 3, "next-row-id": 0}, self.current)

    def change(self, fields: Mapping[str, Any]) -> None:
        """Publish the metadata with other values at its top level."""
        self._publish({**self.document, **fields}, self.current)

    def branch(self, name: str, *, of: str = "main", kind: str = "branch") -> None:
        """Create a branch or a tag at another ref's head."""
        document = self.document
        ref = {"snapshot-id": document["refs"][of]["snapshot-id"], "type": kind}
        self._publish({**document, "refs": {**document["refs"], name: ref}}, self.current)

    def _live(self, document: Document, ref: str) -> list[tuple[int, Document]]:
        head = document["refs"].get(ref)
        if head is None:
            return []
        return [
            (manifest["content"], entry)
            for manifest in manifests_of(self.storage, snapshot_of(document, head["snapshot-id"]))
            for entry in entries_of(self.storage, manifest)
            if entry["status"] != DELETED
        ]

    def _data_file(self, name: str, rows: int) -> Document:
        path = self._put(f"data/{name}.parquet", f"the rows of {name}".encode())
        return {
            "content": 0,
            "file_path": path,
            "file_format": "PARQUET",
            "partition": {},
            "record_count": rows,
            "file_size_in_bytes": len(f"the rows of {name}"),
        }

    def _position_deletes(self, positions: Mapping[str, set[int]]) -> Document:
        rows = [(path, position) for path in sorted(positions) for position in sorted(positions[path])]
        table = pa.table(
            {"file_path": [path for path, _ in rows], "pos": pa.array([pos for _, pos in rows], pa.int64())}
        )
        sink = io.BytesIO()
        pq.write_table(table, sink)
        path = self._put(f"data/deletes-{self.commits}.parquet", sink.getvalue())
        return {
            "content": POSITION_DELETES,
            "file_path": path,
            "file_format": "PARQUET",
            "partition": {},
            "record_count": len(rows),
            "file_size_in_bytes": len(sink.getvalue()),
        }

    def _vectors(self, positions: Mapping[str, set[int]]) -> list[Document]:
        """One Puffin file with all vectors of the commit."""
        body, places = bytearray(b"PFA1"), []
        for path in sorted(positions):
            payload = _MAGIC + BitMap64(positions[path]).serialize()
            blob = struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
            places.append((path, len(body), len(blob)))
            body += blob
        blobs = [
            {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": length,
                "properties": {"referenced-data-file": path, "cardinality": str(len(positions[path]))},
            }
            for path, offset, length in places
        ]
        footer = json.dumps({"blobs": blobs}).encode()
        body += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
        puffin = self._put(f"data/deletes-{self.commits}.puffin", bytes(body))
        return [
            {
                "content": POSITION_DELETES,
                "file_path": puffin,
                "file_format": "PUFFIN",
                "partition": {},
                "record_count": len(positions[path]),
                "file_size_in_bytes": len(body),
                "referenced_data_file": path,
                "content_offset": offset,
                "content_size_in_bytes": length,
            }
            for path, offset, length in places
        ]

    def _commit(
        self,
        operation: str,
        ref: str,
        *,
        add: Iterable[Document] = (),
        add_deletes: Iterable[Document] = (),
        remove: Iterable[tuple[str, int | None]] = (),
    ) -> None:
        document = self.document
        self.commits += 1
        snapshot_id = 1000 + self.commits
        number = document["last-sequence-number"] + 1
        version = document["format-version"]
        head = document["refs"].get(ref)
        parent = None if head is None else head["snapshot-id"]
        gone = {*remove}
        rows: list[Document] = []
        for content, added in ((DATA, [*add]), (DELETES, [*add_deletes])):
            if added:
                new = [{**entry, "status": ADDED} for entry in added]
                rows.append(
                    self._manifest(f"{snapshot_id}-a{content}", new, content, snapshot_id, number, version)
                )
        for row in [] if parent is None else manifests_of(self.storage, snapshot_of(document, parent)):
            entries = [e for e in entries_of(self.storage, row) if e["status"] != DELETED]
            if not {_identity(entry) for entry in entries} & gone:
                rows += [row] if entries else []
                continue
            changed = [
                {**e, "status": DELETED, "snapshot_id": snapshot_id}
                if _identity(e) in gone
                else {**e, "status": EXISTING}
                for e in entries
            ]
            name = f"{snapshot_id}-r{len(rows)}"
            rows.append(self._manifest(name, changed, row["content"], snapshot_id, number, version))
        next_row_id = first = document.get("next-row-id", 0)
        for row in rows:
            if version == 3 and row["content"] == DATA and row.get("first_row_id") is None:
                row["first_row_id"] = next_row_id
                next_row_id += row["added_rows_count"] + row["existing_rows_count"]
        data = write_manifest_list(
            rows,
            format_version=version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=number,
            first_row_id=first if version == 3 else None,
            sync=snapshot_id.to_bytes(16, "big"),
        )
        now_ms = document["last-updated-ms"] + 1_000
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": now_ms,
            "summary": {"operation": operation},
            "manifest-list": self._put(f"metadata/snap-{snapshot_id}.avro", data),
            "schema-id": 0,
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        if version == 3:
            snapshot |= {"first-row-id": first, "added-rows": next_row_id - first}
            document["next-row-id"] = next_row_id
        document["snapshots"].append(snapshot)
        document["refs"][ref] = {**(head or {"type": "branch"}), "snapshot-id": snapshot_id}
        if ref == "main":
            document["current-snapshot-id"] = snapshot_id
            document["snapshot-log"].append({"timestamp-ms": now_ms, "snapshot-id": snapshot_id})
        self._publish({**document, "last-sequence-number": number, "last-updated-ms": now_ms}, self.current)

    def _manifest(
        self, name: str, entries: list[Document], content: int, snapshot_id: int, number: int, version: int
    ) -> Document:
        unknown = {"file_sequence_number": None} if self.early else {}
        data = write_manifest(
            [
                {"sequence_number": None, "file_sequence_number": None, "snapshot_id": None, **e, **unknown}
                for e in entries
            ],
            schema=SCHEMA,
            partition_spec=SPEC,
            format_version=version,
            content=content,
            sync=f"{name:>16}".encode()[-16:],
        )
        numbers = [e["sequence_number"] for e in entries if e["status"] == EXISTING]
        row: Document = {
            "manifest_path": self._put(f"metadata/{name}.avro", data),
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": number,
            "min_sequence_number": min([number, *numbers]),
            "added_snapshot_id": snapshot_id,
        }
        for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            chosen = [entry for entry in entries if entry["status"] == status]
            row |= {
                f"{kind}_files_count": len(chosen),
                f"{kind}_rows_count": sum(entry["record_count"] for entry in chosen),
            }
        return row

    def _publish(self, document: Document, before: str | None) -> None:
        if before is not None:
            entry = {"timestamp-ms": document["last-updated-ms"], "metadata-file": before}
            document = {**document, "metadata-log": [*document["metadata-log"], entry]}
        version = 0 if before is None else int(before.rpartition("/")[2].partition("-")[0]) + 1
        self.commits += 1
        name = f"{version:05d}-engine{self.commits}.metadata.json"
        self.world.pointer = self._put(f"metadata/{name}", json.dumps(document).encode())

    def _put(self, name: str, data: bytes) -> str:
        path = f"{LOCATION}/{name}"
        self.storage.put_if_absent(path, data)
        return path


def _identity(entry: Mapping[str, Any]) -> tuple[str, int | None]:
    """What tells a live file from others: vectors share their Puffin file."""
    return entry["file_path"], entry.get("content_offset")

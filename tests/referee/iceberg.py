"""An Iceberg table of versions 1 to 3 on a local disk: a writer that does odd things, and a literal reader of rows.

Nothing here is the package's: metadata is JSON, manifests are fastavro's, files pyarrow's, bitmaps pyroaring's. The
reader is the referee: it applies the specification row by row.

Spec: "Scan Planning", "Delete Formats", "Row Lineage"; Puffin, "deletion-vector-v1".
"""

from __future__ import annotations

import io
import json
import random
import struct
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Document = dict[str, Any]
DATA, POSITIONS, EQUALITY = 0, 1, 2  # content of a file
EXISTING, ADDED, DELETED = 0, 1, 2  # status of an entry
_FIELDS: Final = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "k", "required": False, "type": "string"},
    {"id": 3, "name": "v", "required": False, "type": "int"},
]
_SCHEMA: Final = {"type": "struct", "schema-id": 0, "fields": _FIELDS}
_BY_K: Final = [{"source-id": 2, "field-id": 1000, "name": "k", "transform": "identity"}]
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_PUFFIN: Final = b"PFA1"


class Row(NamedTuple):
    """A row that a reader sees; the last two are null before version 3."""

    k: str | None
    v: int | None
    row_id: int | None
    updated: int | None


# -- Avro schemas ----------------------------------------------------------------------------------------------


def _field(name: str, field_id: int, kind: Any, *, optional: bool = False) -> Document:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}
    return {"name": name, "type": kind, "field-id": field_id}


def _entry_schema(version: int, *, partitioned: bool) -> Document:
    partition = [_field("k", 1000, "string", optional=True)] if partitioned else []
    file = [
        _field("file_path", 100, "string"),
        _field("file_format", 101, "string"),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": partition}),
        _field("record_count", 103, "long"),
        _field("file_size_in_bytes", 104, "long"),
    ]
    fields = [_field("status", 0, "int"), _field("snapshot_id", 1, "long", optional=version > 1)]
    if version == 1:
        file.append(_field("block_size_in_bytes", 105, "long"))
    else:
        ids = {"type": "array", "items": "int", "element-id": 136}
        file = [
            _field("content", 134, "int"),
            *file,
            _field("equality_ids", 135, ids, optional=True),
            _field("referenced_data_file", 143, "string", optional=True),
        ]
        fields += [
            _field(n, i, "long", optional=True)
            for n, i in (("sequence_number", 3), ("file_sequence_number", 4))
        ]
    if version > 2:
        longs = (("first_row_id", 142), ("content_offset", 144), ("content_size_in_bytes", 145))
        file += [_field(name, number, "long", optional=True) for name, number in longs]
    fields.append(_field("data_file", 2, {"type": "record", "name": "r2", "fields": file}))
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def _list_schema(version: int) -> Document:
    fields = [_field("manifest_path", 500, "string"), _field("manifest_length", 501, "long")]
    fields.append(_field("partition_spec_id", 502, "int"))
    if version > 1:
        fields += [_field("content", 517, "int"), _field("sequence_number", 515, "long")]
        fields.append(_field("min_sequence_number", 516, "long"))
    fields.append(_field("added_snapshot_id", 503, "long"))
    for kind, files, rows in (("added", 504, 512), ("existing", 505, 513), ("deleted", 506, 514)):
        fields.append(_field(f"{kind}_files_count", files, "int"))
        fields.append(_field(f"{kind}_rows_count", rows, "long"))
    if version > 2:
        fields.append(_field("first_row_id", 520, "long", optional=True))
    return {"type": "record", "name": "manifest_file", "fields": fields}


def _records(path: str) -> list[Document]:
    with Path(path).open("rb") as file:
        return [dict(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


# -- the reader ------------------------------------------------------------------------------------------------


def manifests_of(snapshot: Mapping[str, Any]) -> list[Document]:
    """The rows of a snapshot's manifest list; what version 1 does not write is 0."""
    old = {"content": 0, "sequence_number": 0, "min_sequence_number": 0}
    return [{**old, **row} for row in _records(snapshot["manifest-list"])]


def entries_of(manifest: Mapping[str, Any]) -> list[Document]:
    """The entries of a manifest that are not deleted, with what they inherit."""
    found, next_row_id = [], manifest.get("first_row_id")
    for record in _records(manifest["manifest_path"]):
        entry = {**record.pop("data_file"), **record, "spec_id": manifest["partition_spec_id"]}
        entry.setdefault("content", DATA)
        for name in ("sequence_number", "file_sequence_number"):
            if name not in entry:  # a manifest of version 1
                entry[name] = 0
            elif entry[name] is None:
                assert entry["status"] == ADDED
                entry[name] = manifest["sequence_number"]
        if entry["status"] == DELETED:
            continue
        if entry.get("snapshot_id") is None:
            entry["snapshot_id"] = manifest["added_snapshot_id"]
        if manifest.get("first_row_id") is None:
            entry["first_row_id"] = None
        elif entry.get("first_row_id") is None and entry["content"] == DATA:
            entry["first_row_id"] = next_row_id
            next_row_id += entry["record_count"]
        found.append(entry)
    return found


def live_entries(snapshot: Mapping[str, Any]) -> list[Document]:
    """What a reader of a snapshot plans with."""
    return [entry for manifest in manifests_of(snapshot) for entry in entries_of(manifest)]


def vector_of(entry: Mapping[str, Any]) -> BitMap64:
    """A deletion vector, out of its Puffin file."""
    data = Path(entry["file_path"]).read_bytes()
    assert data[:4] == data[-4:] == _PUFFIN
    blob = data[entry["content_offset"] :][: entry["content_size_in_bytes"]]
    assert struct.unpack(">i", blob[:4])[0] == len(blob) - 8
    assert blob[4:8] == _MAGIC
    assert zlib.crc32(blob[4:-4]) == struct.unpack(">I", blob[-4:])[0]
    return BitMap64.deserialize(blob[8:-4])


def rows_of(snapshot: Mapping[str, Any]) -> dict[int, Row]:
    """The rows of a snapshot by their `id`."""
    entries = live_entries(snapshot)
    rows: dict[int, Row] = {}
    paths = [entry["file_path"] for entry in entries if entry["content"] == DATA]
    assert len(set(paths)) == len(paths), "a data file is live twice"
    for entry in entries:
        if entry["content"] != DATA:
            continue
        gone, gone_ids = _deleted(entry, entries)
        table = pq.read_table(entry["file_path"])
        assert table.num_rows == entry["record_count"]
        first = entry.get("first_row_id")
        for position, (key, k, v) in enumerate(
            zip(*(table[n].to_pylist() for n in ("id", "k", "v")), strict=True)
        ):
            if position in gone or key in gone_ids:
                continue
            assert key not in rows, f"row {key} is there twice"
            row_id = None if first is None else first + position
            rows[key] = Row(k, v, row_id, None if first is None else entry["sequence_number"])
    return rows


def _deleted(
    data: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> tuple[Collection[int], set[int]]:
    """The positions, and by equality the ids, that are deleted of one data file."""
    path, number = data["file_path"], data["sequence_number"]
    vectors = [
        e for e in entries if e["file_format"].upper() == "PUFFIN" and e["referenced_data_file"] == path
    ]
    assert len(vectors) < 2, f"{len(vectors)} deletion vectors of {path}"
    positions: set[int] = set()
    ids: set[int] = set()
    if vectors and vectors[0]["sequence_number"] >= number:
        positions = set(vector_of(vectors[0]))
    for entry in entries:
        if entry["content"] == DATA or entry["file_format"].upper() == "PUFFIN":
            continue
        table = pq.read_table(entry["file_path"])
        same_partition = (entry["spec_id"], entry["partition"]) == (data["spec_id"], data["partition"])
        if (
            entry["content"] == POSITIONS
            and not vectors
            and entry["sequence_number"] >= number
            and same_partition
        ):
            named = zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True)
            positions |= {position for file, position in named if file == path}
        in_scope = same_partition or not entry["partition"]
        if entry["content"] == EQUALITY and entry["sequence_number"] > number and in_scope:
            ids |= set(table["id"].to_pylist())
    return positions, ids


# -- the writer ------------------------------------------------------------------------------------------------


class Table:
    """A table by file names. Every draw is the seed's, so that a table can be made again."""

    def __init__(self, folder: Path, *, version: int, seed: int, now_ms: int) -> None:
        self.folder, self.draw, self.now_ms = folder, random.Random(seed), now_ms
        self.time_ms = now_ms - 40 * 86_400_000
        self.next_id = 0
        (folder / "data").mkdir(parents=True)
        (folder / "metadata").mkdir()
        specs = [{"spec-id": 0, "fields": self.draw.choice([[], _BY_K])}]
        document: Document = {
            "format-version": version, "table-uuid": str(uuid.UUID(int=self.draw.getrandbits(128))),
            "location": str(folder), "last-updated-ms": self.time_ms, "last-column-id": 3, "schemas": [_SCHEMA],
            "current-schema-id": 0, "partition-specs": specs, "default-spec-id": 0, "last-partition-id": 1000,
            "properties": {}, "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
            "snapshots": [], "refs": {}, "snapshot-log": [], "metadata-log": [],
        }  # fmt: skip
        if version == 1:
            document |= {"schema": _SCHEMA, "partition-spec": specs[0]["fields"]}
        else:
            document["last-sequence-number"] = 0
        if version > 2:
            document["next-row-id"] = 0
        self._publish(document, 1)

    @property
    def number(self) -> int:
        """Of the current metadata file."""
        return max(int(p.name[1:].split(".")[0]) for p in self.folder.glob("metadata/v*.metadata.json"))

    @property
    def document(self) -> Document:
        """The current metadata."""
        found: Document = json.loads((self.folder / f"metadata/v{self.number}.metadata.json").read_text())
        return found

    def _publish(self, document: Document, number: int) -> None:
        path = self.folder / f"metadata/v{number}.metadata.json"
        path.write_text(json.dumps(document))
        (self.folder / "metadata/version-hint.text").write_text(str(number))

    def change(self, document: Document) -> None:
        """The next version of the metadata."""
        before = str(self.folder / f"metadata/v{self.number}.metadata.json")
        log = [
            *document["metadata-log"],
            {"timestamp-ms": document["last-updated-ms"], "metadata-file": before},
        ]
        self._publish({**document, "metadata-log": log}, self.number + 1)

    def head(self, ref: str) -> Document | None:
        """The snapshot that a ref names."""
        document = self.document
        named = document["refs"].get(ref)
        if named is None:
            return None
        return next(s for s in document["snapshots"] if s["snapshot-id"] == named["snapshot-id"])

    # -- what writers do ---------------------------------------------------------------------------------------

    def append(self, ref: str = "main") -> None:
        """New files, of several partitions where there are partitions."""
        self._commit(
            "append", ref, add=self._new_files([self._new_row() for _ in range(self.draw.randint(3, 9))])
        )

    def delete(self, ref: str = "main") -> None:
        """Some rows go: by rewriting their files, position deletes, a deletion vector each, or equality deletes."""
        head = self.head(ref)
        rows = {} if head is None else rows_of(head)
        if head is None or not rows:
            return
        victims = self.draw.sample(sorted(rows), min(len(rows), self.draw.randint(1, 4)))
        version = self.document["format-version"]
        ways = (
            [self._rewrite]
            if version == 1
            else [self._rewrite, self._position_deletes, self._equality_deletes]
        )
        if version > 2:
            ways[1] = self._vectors
        self.draw.choice(ways)(head, ref, victims)

    def compact(self, ref: str = "main") -> None:
        """Files of one partition become one; what deleted rows of them dangles by then."""
        head = self.head(ref)
        if head is not None:
            rows = rows_of(head)
            self._rewrite(head, ref, [], touched=self.draw.sample(sorted(rows), min(len(rows), 3)))

    def branch(self, name: str, *, kind: str) -> None:
        """A branch or a tag at the head of main."""
        document = self.document
        if document["format-version"] > 1 and "main" in document["refs"] and name not in document["refs"]:
            ref = {"snapshot-id": document["refs"]["main"]["snapshot-id"], "type": kind}
            self.change({**document, "refs": {**document["refs"], name: ref}})

    def evolve(self) -> None:
        """The other partition spec for what is written from now on."""
        document = self.document
        if len(document["partition-specs"]) == 1:
            fields = [] if document["partition-specs"][0]["fields"] else _BY_K
            specs = [*document["partition-specs"], {"spec-id": 1, "fields": fields}]
            changed = {**document, "partition-specs": specs, "default-spec-id": 1}
            if document["format-version"] == 1:
                changed["partition-spec"] = fields
            self.change(changed)

    # -- how they do it ----------------------------------------------------------------------------------------

    def _new_row(self) -> tuple[int, str | None, int]:
        self.next_id += 1
        return self.next_id, self.draw.choice(["a", "b", None]), self.draw.randrange(100)

    def _spec(self, document: Document) -> tuple[int, bool]:
        spec_id = document["default-spec-id"]
        fields = next(s["fields"] for s in document["partition-specs"] if s["spec-id"] == spec_id)
        return spec_id, bool(fields)

    def _parquet(self, name: str, columns: Mapping[str, tuple[int, pa.Array]]) -> tuple[str, int]:
        path = self.folder / "data" / f"{name}-{self.draw.getrandbits(60):015x}.parquet"
        fields = [
            pa.field(column, values.type, metadata={"PARQUET:field_id": str(field_id)})
            for column, (field_id, values) in columns.items()
        ]
        table = pa.table([values for _, values in columns.values()], schema=pa.schema(fields))
        pq.write_table(table, path)
        return str(path), path.stat().st_size

    def _file(
        self, content: int, path: str, size: int, count: int, spec: tuple[int, bool], k: Any
    ) -> Document:
        return {
            "content": content, "file_path": path, "file_format": "PARQUET", "record_count": count,
            "partition": {"k": k} if spec[1] else {}, "spec_id": spec[0], "file_size_in_bytes": size,
        }  # fmt: skip

    def _new_files(self, rows: Iterable[tuple[int, str | None, int | None]]) -> list[Document]:
        spec = self._spec(self.document)
        groups: dict[Any, list[tuple[int, str | None, int | None]]] = {}
        for row in rows:
            groups.setdefault(row[1] if spec[1] else None, []).append(row)
        found = []
        for k, some in groups.items():
            ids, ks, vs = zip(*some, strict=True)
            columns = {"id": (1, pa.array(ids, pa.int64())), "k": (2, pa.array(ks, pa.string()))}
            path, size = self._parquet("data", {**columns, "v": (3, pa.array(vs, pa.int32()))})
            found.append(self._file(DATA, path, size, len(some), spec, k))
        return found

    def _places(self, head: Document, victims: Collection[int]) -> dict[str, tuple[Document, list[int]]]:
        """The live data files that hold some ids, with the positions."""
        found: dict[str, tuple[Document, list[int]]] = {}
        for entry in live_entries(head):
            if entry["content"] == DATA:
                ids = pq.read_table(entry["file_path"])["id"].to_pylist()
                positions = [position for position, key in enumerate(ids) if key in victims]
                if positions:
                    found[entry["file_path"]] = entry, positions
        return found

    def _rewrite(self, head: Document, ref: str, victims: list[int], touched: Collection[int] = ()) -> None:
        """Files of rows to delete, or to put together, are written anew; their vectors leave with them."""
        places = self._places(head, {*victims, *touched})
        alive = rows_of(head)
        stored = [key for file in places for key in pq.read_table(file)["id"].to_pylist()]
        keep = [(key, *alive[key][:2]) for key in stored if key in alive and key not in victims]
        gone = {(path, None) for path in places}
        for entry in live_entries(head):
            if entry["file_format"] == "PUFFIN" and entry["referenced_data_file"] in places:
                gone.add((entry["file_path"], entry["content_offset"]))
        self._commit("overwrite", ref, add=self._new_files(keep), remove=gone)

    def _position_deletes(self, head: Document, ref: str, victims: list[int]) -> None:
        groups: dict[str, list[tuple[Document, list[int]]]] = {}
        for entry, positions in self._places(head, victims).values():
            groups.setdefault(json.dumps([entry["spec_id"], entry["partition"]]), []).append(
                (entry, positions)
            )
        add = []
        for members in groups.values():
            pairs = sorted((entry["file_path"], at) for entry, positions in members for at in positions)
            paths, at = zip(*pairs, strict=True)
            columns = {
                "file_path": (2147483546, pa.array(paths)),
                "pos": (2147483545, pa.array(at, pa.int64())),
            }
            path, size = self._parquet("deletes", columns)
            entry = members[0][0]
            file = self._file(POSITIONS, path, size, len(pairs), (entry["spec_id"], False), None)
            add.append({**file, "partition": entry["partition"]})
        self._commit("delete", ref, add=add)

    def _equality_deletes(self, head: Document, ref: str, victims: list[int]) -> None:
        groups: dict[str, tuple[Document, list[int]]] = {}
        for entry, positions in self._places(head, victims).values():
            ids = pq.read_table(entry["file_path"])["id"].to_pylist()
            key = json.dumps([entry["spec_id"], entry["partition"]])
            groups.setdefault(key, (entry, []))[1].extend(ids[position] for position in positions)
        add = []
        for entry, ids in groups.values():
            path, size = self._parquet("equality", {"id": (1, pa.array(ids, pa.int64()))})
            file = self._file(EQUALITY, path, size, len(ids), (entry["spec_id"], False), None)
            add.append({**file, "partition": entry["partition"], "equality_ids": [1]})
        self._commit("delete", ref, add=add)

    def _vectors(self, head: Document, ref: str, victims: list[int]) -> None:
        """Of each file one vector, which takes what position deletes and an earlier vector deleted; in one Puffin."""
        entries = live_entries(head)
        places = self._places(head, victims)
        path = str(self.folder / "data" / f"vectors-{self.draw.getrandbits(60):015x}.puffin")
        data, blobs, add, remove = bytearray(_PUFFIN), [], [], set()
        for file, (entry, positions) in places.items():
            vector = BitMap64(
                [*_deleted(entry, [e for e in entries if e["content"] != EQUALITY])[0], *positions]
            )
            body = _MAGIC + vector.serialize()
            blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
            properties = {"referenced-data-file": file, "cardinality": str(len(vector))}
            place = {"offset": len(data), "length": len(blob)}
            kind = {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
            }
            blobs.append({**kind, **place, "properties": properties})
            add.append(
                {
                    **self._file(POSITIONS, path, 0, len(vector), (entry["spec_id"], False), None),
                    "file_format": "PUFFIN", "partition": entry["partition"], "referenced_data_file": file,
                    "content_offset": place["offset"], "content_size_in_bytes": place["length"],
                }
            )  # fmt: skip
            data += blob
            remove |= {
                (old["file_path"], old["content_offset"])
                for old in entries
                if old["file_format"] == "PUFFIN" and old["referenced_data_file"] == file
            }
        footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
        data += _PUFFIN + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0" + _PUFFIN
        Path(path).write_bytes(data)
        self._commit("delete", ref, add=[{**e, "file_size_in_bytes": len(data)} for e in add], remove=remove)

    def _commit(
        self, operation: str, ref: str, *, add: list[Document], remove: Collection[tuple[str, Any]] = ()
    ) -> None:
        """A snapshot: new manifests for what is new, and for the manifests that hold what goes."""
        document, head = self.document, self.head(ref)
        version, snapshot_id = document["format-version"], self.draw.getrandbits(62)
        number = 0 if version == 1 else document["last-sequence-number"] + 1
        self.time_ms += self.draw.randint(1, 3 * 86_400_000)
        self.time_ms = min(self.time_ms, self.now_ms - 1)
        self.time_ms = max(self.time_ms, document["last-updated-ms"])
        listed = []
        for manifest in [] if head is None else manifests_of(head):
            entries = entries_of(manifest)
            goes = [(e["file_path"], e.get("content_offset")) in remove for e in entries]
            if not any(goes):
                listed.append(manifest)
            else:
                kept = [
                    {**e, "status": DELETED if gone else EXISTING}
                    for e, gone in zip(entries, goes, strict=True)
                ]
                kept = [{**e, "snapshot_id": snapshot_id} if e["status"] == DELETED else e for e in kept]
                listed.append(self._manifest(document, kept, snapshot_id, number))
        added = [{**e, "status": ADDED, "snapshot_id": snapshot_id} for e in add]
        groups: dict[tuple[int, bool], list[Document]] = {}
        for entry in added:
            groups.setdefault((entry["spec_id"], entry["content"] == DATA), []).append(entry)
        listed += [self._manifest(document, entries, snapshot_id, number) for entries in groups.values()]
        summary = {"operation": operation}
        for content, name in enumerate(("total-data-files", "total-delete-files")):
            counted = [
                m["added_files_count"] + m["existing_files_count"] for m in listed if m["content"] == content
            ]
            summary[name] = str(sum(counted))
        snapshot: Document = {
            "snapshot-id": snapshot_id, "timestamp-ms": self.time_ms, "summary": summary,
            "manifest-list": str(self.folder / "metadata" / f"snap-{snapshot_id}.avro"), "schema-id": 0,
        }  # fmt: skip
        if version > 1:
            snapshot["sequence-number"] = document["last-sequence-number"] = number
        if head is not None:
            snapshot["parent-snapshot-id"] = head["snapshot-id"]
        if version > 2:
            first = document["next-row-id"]
            for manifest in listed:
                if manifest["content"] == 0 and manifest.get("first_row_id") is None:
                    manifest["first_row_id"] = document["next-row-id"]
                    document["next-row-id"] += manifest["added_rows_count"] + manifest["existing_rows_count"]
            snapshot |= {"first-row-id": first, "added-rows": document["next-row-id"] - first}
        with Path(snapshot["manifest-list"]).open("wb") as file:
            header = {"format-version": str(version), "snapshot-id": str(snapshot_id)}
            fastavro.writer(file, _list_schema(version), listed, codec="deflate", metadata=header)
        document["snapshots"].append(snapshot)
        document["refs"][ref] = {**document["refs"].get(ref, {"type": "branch"}), "snapshot-id": snapshot_id}
        if ref == "main":
            document["current-snapshot-id"] = snapshot_id
            document["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": self.time_ms})
        self.change({**document, "last-updated-ms": self.time_ms})

    def _manifest(
        self, document: Document, entries: list[Document], snapshot_id: int, number: int
    ) -> Document:
        version, spec_id = document["format-version"], entries[0]["spec_id"]
        fields = next(s["fields"] for s in document["partition-specs"] if s["spec-id"] == spec_id)
        content = 0 if entries[0]["content"] == DATA else 1
        records = []
        for entry in entries:
            new = entry["status"] == ADDED
            numbers = {n: None if new else entry[n] for n in ("sequence_number", "file_sequence_number")}
            file = {"block_size_in_bytes": 1 << 26, **entry}
            records.append(
                {**numbers, "status": entry["status"], "snapshot_id": entry["snapshot_id"], "data_file": file}
            )
        path = str(self.folder / "metadata" / f"manifest-{self.draw.getrandbits(60):015x}.avro")
        header = {
            "schema": json.dumps(_SCHEMA), "schema-id": "0", "partition-spec": json.dumps(fields),
            "partition-spec-id": str(spec_id), "format-version": str(version),
            "content": ["data", "deletes"][content],
        }  # fmt: skip
        buffer = io.BytesIO()
        fastavro.writer(
            buffer,
            _entry_schema(version, partitioned=bool(fields)),
            records,
            codec="deflate",
            metadata=header,
        )
        Path(path).write_bytes(buffer.getvalue())
        manifest: Document = {
            "manifest_path": path, "manifest_length": len(buffer.getvalue()), "partition_spec_id": spec_id,
            "content": content, "sequence_number": number, "added_snapshot_id": snapshot_id,
            "min_sequence_number": min(number if e["status"] == ADDED else e["sequence_number"] for e in entries),
        }  # fmt: skip
        for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            chosen = [entry["record_count"] for entry in entries if entry["status"] == status]
            manifest |= {f"{kind}_files_count": len(chosen), f"{kind}_rows_count": sum(chosen)}
        return manifest

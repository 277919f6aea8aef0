"""Tables with deletes of every kind, made of real bytes in any storage, commit by commit.

Position delete files and Puffin files are written with pyarrow and pyroaring, not with this project's encoders.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing import iceberg_files
from iceberg_cli.testing.iceberg_files import (
    Blob,
    manifest_list,
    manifest_row,
    position_deletes,
    records,
)
from tests.builders import NOW_MS, a_table_document
from tests.scan_planning import entries_of, is_vector

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "n", "required": False, "type": "long"},
        {"id": 2, "name": "k", "required": False, "type": "string"},
    ],
}
PLAIN: dict[str, Any] = {"spec-id": 0, "fields": []}
BY_K: dict[str, Any] = {
    "spec-id": 1,
    "fields": [{"name": "k", "transform": "identity", "source-id": 2, "field-id": 1000}],
}
LONG_AGO_MS = NOW_MS - 1_500 * 86_400_000
EXISTING, ADDED, DELETED = 0, 1, 2
_IDS = ("snapshot_id", "sequence_number", "file_sequence_number")

Entry = dict[str, Any]
Positions = Mapping[str, Iterable[int]]


def puffin(vectors: Mapping[str, Iterable[int]]) -> tuple[bytes, list[Blob]]:
    """A Puffin file of deletion vectors by data file, and where they are."""
    return iceberg_files.puffin(vectors, {"created-by": "a test"}, separators=(", ", ": "))


@dataclass(kw_only=True)
class Manifest:
    """A manifest: its row in the list, and its entries with their numbers."""

    row: Mapping[str, Any]
    entries: list[Entry]


@dataclass(kw_only=True)
class DeleteTable:
    """Writes a table. Calls collect what the next `commit` holds; `publish` writes the next `vN.metadata.json`.

    Files are called by short names; those of deletes are unique over the life of the table.
    """

    storage: Storage
    location: str
    format_version: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=lambda: SCHEMA)  # may change between commits
    by_k: dict[str, Any] = field(default_factory=lambda: BY_K)  # spec 1
    written_by_k: dict[str, Any] | None = None  # what manifests of spec 1 are written with, where it differs
    document: dict[str, Any] = field(default_factory=dict)
    manifests: list[Manifest] = field(default_factory=list)
    added: list[Entry] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # by id() of entries
    version: int = 0

    def __post_init__(self) -> None:
        self.document = a_table_document(format_version=self.format_version, properties=self.properties)
        self.document |= {
            "location": self.location, "last-updated-ms": LONG_AGO_MS, "schemas": [self.schema], "last-column-id": 3,
            "partition-specs": [PLAIN, self.by_k], "last-partition-id": 1001,
        }  # fmt: skip

    # -- what a commit holds -----------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Where the data file of this name is."""
        return f"{self.location}/data/{name}.parquet"

    def evolve(self, schema: dict[str, Any]) -> None:
        """Write with another current schema from here on."""
        self.schema = schema
        self.document["schemas"] = [*self.document["schemas"], schema]
        self.document["current-schema-id"] = schema["schema-id"]

    def data(self, name: str, records: int, *, k: Any = None, **others: Any) -> None:
        """A data file: of spec 1 if `k` is given, else of spec 0."""
        self.storage.put_if_absent(self.path(name), f"the rows of {name}".encode())
        self._add(0, self.path(name), record_count=records, k=k, file_size_in_bytes=100 * records, **others)

    def positions(self, name: str, positions: Positions, *, k: Any = None, **others: Any) -> None:
        """A position delete file, of positions by name of data file."""
        rows = sorted((self.path(data), position) for data, each in positions.items() for position in each)
        self.position_bytes(name, position_deletes(rows), len(rows), k=k, **others)

    def position_bytes(self, name: str, data: bytes, rows: int, *, k: Any = None, **others: Any) -> None:
        """A position delete file of these bytes."""
        path = f"{self.location}/data/{name}-deletes.parquet"
        self.storage.put_if_absent(path, data)
        self._add(1, path, record_count=rows, k=k, file_size_in_bytes=len(data), **others)

    def vectors(
        self, name: str, vectors: Positions, *, k: Any = None, replace: bool = True, **others: Any
    ) -> None:
        """A Puffin file of deletion vectors by name of data file; each takes the place of one that is there."""
        if replace:
            paths = {self.path(data) for data in vectors}
            self._drop(
                lambda entry: (
                    entry["content"] == 1 and entry.get("referenced_data_file") in paths and vector(entry)
                )
            )
        data, places = puffin({self.path(data): each for data, each in vectors.items()})
        self.puffin_bytes(name, data, places, k=k, **others)

    def puffin_bytes(
        self,
        name: str,
        data: bytes,
        places: Iterable[tuple[str, int, int, int]],
        *,
        k: Any = None,
        **others: Any,
    ) -> None:
        """A Puffin file of these bytes, with an entry for each place."""
        path = f"{self.location}/data/{name}-deletes.puffin"
        self.storage.put_if_absent(path, data)
        for ref, offset, size, cardinality in places:
            values = {
                "record_count": cardinality, "referenced_data_file": ref, "content_offset": offset,
                "content_size_in_bytes": size, "file_format": "PUFFIN", "file_size_in_bytes": len(data), **others,
            }  # fmt: skip
            self._add(1, path, k=k, **values)

    def equality(self, name: str, *, k: Any = None, **others: Any) -> None:
        """An equality delete file, which nobody opens."""
        path = f"{self.location}/data/{name}-eq-deletes.parquet"
        self.storage.put_if_absent(path, b"equality deletes")
        self._add(2, path, record_count=1, k=k, file_size_in_bytes=50, equality_ids=[1], **others)

    def remove(self, *names: str, vectors: bool = True) -> None:
        """Data files go; their deletion vectors with them."""
        paths = {self.path(name) for name in names}
        self._drop(lambda entry: entry["file_path"] in paths)
        if vectors:
            self._drop(lambda entry: entry.get("referenced_data_file") in paths and vector(entry))

    def _drop(self, which: Any) -> None:
        live = [e for manifest in self.manifests for e in manifest.entries if e["status"] != DELETED]
        self.gone |= {id(entry) for entry in live if which(entry)}

    def _add(self, content: int, path: str, *, k: Any, **values: Any) -> None:
        spec = PLAIN if k is None else self.by_k
        partition = {} if k is None else k if isinstance(k, Mapping) else {"k": None if k == "null" else k}
        entry = {
            "status": ADDED, "content": content, "file_path": path, "file_format": "PARQUET",
            "partition": partition, "spec": spec, **dict.fromkeys(_IDS), **values,
        }  # fmt: skip
        self.added.append(entry)

    # -- commits -----------------------------------------------------------------------------------------------

    def commit(self, snapshot_id: int) -> None:
        """Add a snapshot to main with what was collected."""
        sequence = self.document["last-sequence-number"] + 1
        refs = self.document["refs"]
        parent = refs["main"]["snapshot-id"] if "main" in refs else None
        kept: list[Manifest] = []
        for manifest in self.manifests:
            if any(id(entry) in self.gone for entry in manifest.entries):
                spec = manifest.entries[0]["spec"]
                entries = [
                    {**e, "status": DELETED if id(e) in self.gone else EXISTING}
                    for e in manifest.entries
                    if e["status"] != DELETED
                ]
                kept.append(self._manifest(snapshot_id, sequence, len(kept) + 10, entries, spec))
            else:
                kept.append(manifest)
        fresh = []
        for content in (0, 1):
            for spec in (PLAIN, self.by_k):
                mine = [e for e in self.added if (e["content"] > 0) == content and e["spec"] is spec]
                if mine:
                    number = 2 * content + spec["spec-id"]
                    fresh.append(self._manifest(snapshot_id, sequence, number, mine, spec))
        self.manifests = [*fresh, *kept]
        self.added, self.gone = [], set()
        self._snapshot(snapshot_id, sequence, parent)

    def _manifest(
        self, snapshot_id: int, sequence: int, number: int, entries: list[Entry], spec: dict[str, Any]
    ) -> Manifest:
        content = int(entries[0]["content"] > 0)
        path = f"{self.location}/metadata/{snapshot_id}-m{number}.avro"
        version = 2 if self.format_version == 2 else 3
        written = [{name: value for name, value in e.items() if name != "spec"} for e in entries]
        data = iceberg_files.manifest(
            written,
            schema=self.schema,
            spec=self.written_by_k or spec if spec is self.by_k else spec,
            version=version,
            content=content,
            sync=_sync(path),
        )
        self.storage.put_if_absent(path, data)
        for entry in entries:
            if entry["status"] == ADDED:
                entry["sequence_number"] = entry["sequence_number"] or sequence
                entry |= {"snapshot_id": snapshot_id, "file_sequence_number": sequence}
        live = [e["sequence_number"] for e in entries if e["status"] != DELETED]
        row = manifest_row(
            path, data, entries, content=content, spec_id=spec["spec-id"], snapshot_id=snapshot_id,
            sequence_number=sequence, min_sequence_number=min(live, default=sequence),
        )  # fmt: skip
        if self.format_version == 3 and not content:
            row["first_row_id"] = self.document["next-row-id"]
            self.document["next-row-id"] += row["added_rows_count"] + row["existing_rows_count"]
        return Manifest(row=row, entries=entries)

    def _snapshot(self, snapshot_id: int, sequence: int, parent: int | None) -> None:
        path = f"{self.location}/metadata/snap-{snapshot_id}.avro"
        data = manifest_list(
            [manifest.row for manifest in self.manifests], version=self.format_version, snapshot_id=snapshot_id,
            parent_snapshot_id=parent, sequence_number=sequence, first_row_id=0, sync=_sync(path),
        )  # fmt: skip
        self.storage.put_if_absent(path, data)
        live = [e for manifest in self.manifests for e in manifest.entries if e["status"] != DELETED]
        time_ms = LONG_AGO_MS + sequence
        snapshot: dict[str, Any] = {
            "snapshot-id": snapshot_id, "sequence-number": sequence, "timestamp-ms": time_ms, "schema-id": 0,
            "manifest-list": path, "summary": {"operation": "overwrite", **totals(live)},
        }  # fmt: skip
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        if self.format_version == 3:
            snapshot |= {"first-row-id": 0, "added-rows": 0}
        self.document["snapshots"] = [*self.document["snapshots"], snapshot]
        self.document |= {
            "last-sequence-number": sequence, "last-updated-ms": time_ms, "current-snapshot-id": snapshot_id,
            "refs": {**self.document["refs"], "main": {"type": "branch", "snapshot-id": snapshot_id}},
        }  # fmt: skip

    def reload(self, document: dict[str, Any], version: int) -> None:
        """Go on from what another writer committed as this version."""
        head = document["refs"]["main"]["snapshot-id"]
        (snapshot,) = [s for s in document["snapshots"] if s["snapshot-id"] == head]
        self.document, self.version, self.manifests = document, version, []
        for row in records(self.storage.read(snapshot["manifest-list"])):
            entries = []
            for record in records(self.storage.read(row["manifest_path"])):
                entry = {
                    **record.pop("data_file"),
                    **record,
                    "spec": self.by_k if row["partition_spec_id"] else PLAIN,
                }
                if entry["status"] == ADDED:
                    for name, value in zip(
                        _IDS, ("added_snapshot_id", *["sequence_number"] * 2), strict=True
                    ):
                        entry[name] = row[value] if entry[name] is None else entry[name]
                entries.append(entry)
            self.manifests.append(Manifest(row=row, entries=entries))

    def publish(self) -> str:
        """Write the next version; its location."""
        self.version += 1
        path = f"{self.location}/metadata/v{self.version}.metadata.json"
        self.storage.put_if_absent(path, json.dumps(self.document).encode())
        return path


def totals(live: Iterable[Entry]) -> dict[str, str]:
    """A snapshot summary's totals, as Java counts them."""
    live = list(live)
    deletes = [entry for entry in live if entry["content"]]
    size = sum(e["content_size_in_bytes"] if vector(e) else e["file_size_in_bytes"] for e in live)
    numbers = {
        "total-records": sum(e["record_count"] for e in live if not e["content"]),
        "total-files-size": size,
        "total-data-files": len(live) - len(deletes),
        "total-delete-files": len(deletes),
        "total-position-deletes": sum(e["record_count"] for e in deletes if e["content"] == 1),
        "total-equality-deletes": sum(e["record_count"] for e in deletes if e["content"] == 2),
    }
    return {name: str(number) for name, number in numbers.items()}


def vector(entry: Mapping[str, Any]) -> bool:
    return bool(entry["file_format"] == "PUFFIN")


def _sync(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest()[:16]


STORAGE = LocalStorage()


PARTITIONS = (None, "x", "y", "null")


def random_table(folder: Path, seed: int, **values: Any) -> DeleteTable:
    """Data files come and go; deletes of all kinds are added, carelessly: they overlap and name what is gone."""
    rng = random.Random(seed)
    table = DeleteTable(storage=STORAGE, location=str(folder), **values)
    partition: dict[str, str | None] = {}
    live: list[str] = []
    vectors: dict[str, set[int]] = {}
    deleted: dict[str, set[int]] = {}
    names = iter(range(10_000))

    def some(name: str) -> set[int]:
        return {rng.randrange(-0, RECORDS[name] + rng.choice([0, 0, 0, 2])) for _ in range(rng.randint(1, 5))}

    for snapshot_id in range(1, rng.randint(4, 10)):
        for _ in range(rng.randint(1, 3) if snapshot_id > 1 else 4):
            name = f"f{next(names)}"
            partition[name] = rng.choice(PARTITIONS)
            RECORDS[name] = rng.choice([3, 20, 70_000])
            table.data(name, RECORDS[name], k=partition[name])
            live.append(name)
        if rng.random() < 0.7:
            k = rng.choice(PARTITIONS)
            named = [name for name in partition if partition[name] == k or rng.random() < 0.05]
            # Writers of version 2 wrote these; only such files come before a deletion vector of the same data file.
            chosen = [n for n in named if (n not in vectors or rng.random() < 0.1) and rng.random() < 0.6]
            if chosen:
                rows = {name: some(name) for name in chosen}
                stated = {}
                if rng.random() < (0.6 if len(rows) == 1 else 0.4):
                    stated = {"referenced_data_file": table.path(rng.choice(chosen))}
                table.positions(f"p{next(names)}", rows, k=k, **stated)
                for name, positions in rows.items():
                    deleted.setdefault(name, set()).update(positions)
        for k in PARTITIONS if table.format_version > 2 else ():
            mine = [n for n in live if partition[n] == k and rng.random() < 0.35]
            if mine:
                rows = {}
                for name in mine:
                    older = deleted.get(name, set()) if rng.random() < 0.9 else set()
                    # Now and then a careless writer's vector goes behind the end of its data file.
                    end = RECORDS[name] + (2 if rng.random() < 0.05 else 0)
                    inside = {p for p in older | some(name) if p < end}
                    rows[name] = vectors.get(name, set()) | inside or {0}
                    vectors[name] = rows[name]
                table.vectors(f"v{next(names)}", rows, k=k)
        if rng.random() < 0.3:
            table.equality(f"e{next(names)}", k=rng.choice(PARTITIONS))
        if rng.random() < 0.4 and len(live) > 2:
            gone = live.pop(rng.randrange(len(live)))
            table.remove(gone, vectors=rng.random() < 0.7)
        table.commit(snapshot_id)
    table.publish()
    return table


RECORDS: dict[str, int] = {}


def metadata_of(folder: Path) -> dict[str, Any]:
    newest = max(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    document: dict[str, Any] = json.loads(newest.read_text())
    return document


def check_summary(metadata: dict[str, Any]) -> None:
    """The totals of the last snapshot are what its manifests hold."""
    entries = entries_of(STORAGE.read, metadata)
    deletes = [entry for entry in entries if entry["content"]]
    size = sum(e["content_size_in_bytes"] if is_vector(e) else e["file_size_in_bytes"] for e in entries)
    found = {
        "total-delete-files": len(deletes),
        "total-position-deletes": sum(e["record_count"] for e in deletes if e["content"] == 1),
        "total-equality-deletes": sum(e["record_count"] for e in deletes if e["content"] == 2),
        "total-files-size": size,
    }
    summary = metadata["snapshots"][-1]["summary"]
    assert {name: summary[name] for name in found} == {name: str(number) for name, number in found.items()}


def a_table(folder: Path, **values: Any) -> DeleteTable:
    return DeleteTable(storage=STORAGE, location=str(folder), **values)


def two_generations(folder: Path, **values: Any) -> DeleteTable:
    """`a` and `b` in partition x, `c` in y; a position delete file for both, and a later one for `a` alone."""
    table = a_table(folder, **values)
    table.data("a", 100, k="x")
    table.data("b", 100, k="x")
    table.data("c", 50, k="y")
    table.commit(1)
    table.positions("both", {"a": [1, 2], "b": [5]}, k="x")
    table.commit(2)
    table.positions("late", {"a": [2, 7]}, k="x")
    table.commit(3)
    return table

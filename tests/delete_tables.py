"""Tables with deletes of every kind, made of real bytes in any storage, commit by commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing import iceberg_files
from iceberg_cli.testing.iceberg_files import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    Blob,
    Entry,
    Json,
    position_deletes,
)
from iceberg_cli.testing.iceberg_reader import entries_of as entries_of_manifest
from iceberg_cli.testing.iceberg_reader import manifests_of, snapshot_of
from iceberg_cli.testing.iceberg_writer import (
    UNPARTITIONED,
    IcebergWriter,
    Key,
    Manifest,
    ManifestDraft,
    is_vector,
    key_of,
)
from tests.builders import NOW_MS
from tests.cli.lakes import metadata_of
from tests.cli.running import iceberg_cli
from tests.scan_planning import entries_of, view

SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "n", "required": False, "type": "long"},
        {"id": 2, "name": "k", "required": False, "type": "string"},
    ],
}
BY_K: Json = {
    "spec-id": 1,
    "fields": [{"name": "k", "transform": "identity", "source-id": 2, "field-id": 1000}],
}
LONG_AGO_MS = NOW_MS - 1_500 * 86_400_000

Positions = Mapping[str, Iterable[int]]


def puffin(vectors: Positions) -> tuple[bytes, list[Blob]]:
    """A Puffin file of deletion vectors by data file, and where they are."""
    return iceberg_files.puffin(vectors, {"created-by": "a test"}, separators=(", ", ": "))


@dataclass(kw_only=True)
class DeleteTable(IcebergWriter):
    """Writes a table. Calls collect what the next `commit` holds; `publish` writes the next `vN.metadata.json`.

    Files are called by short names; those of deletes are unique over the life of the table.
    """

    storage: Storage
    format_version: int = 3
    schema: Json = field(default_factory=lambda: SCHEMA)  # may change between commits
    by_k: Json = field(default_factory=lambda: BY_K)  # spec 1
    written_by_k: Json | None = None  # what manifests of spec 1 are written with, where it differs
    added: list[Entry] = field(default_factory=list)
    gone: set[Key] = field(default_factory=set)

    inherited = ("snapshot_id", "sequence_number", "file_sequence_number")
    partition_summaries = False
    java_order = False

    def first_document(self) -> Json:
        return super().first_document() | {
            "last-updated-ms": LONG_AGO_MS, "last-column-id": 3, "partition-specs": [UNPARTITIONED, self.by_k],
            "last-partition-id": 1001,
        }  # fmt: skip

    def manifest_name(self, draft: ManifestDraft) -> str:
        number = 2 * draft.content + draft.spec_id if draft.added else 10 + draft.listed
        return f"{self.snapshot_id}-m{number}.avro"

    def list_name(self, snapshot_id: int) -> str:
        return f"snap-{snapshot_id}.avro"

    def spec_of(self, spec_id: int) -> Json:
        return self.written_by_k if spec_id and self.written_by_k else super().spec_of(spec_id)

    # -- what a commit holds -----------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Where the data file of this name is."""
        return f"{self.location}/data/{name}.parquet"

    def evolve(self, schema: Json) -> None:
        """Write with another current schema from here on."""
        self.schema = schema
        self.document["schemas"] = [*self.document["schemas"], schema]
        self.document["current-schema-id"] = schema["schema-id"]

    def data(self, name: str, records: int, *, k: Any = None, **others: Any) -> None:
        """A data file: of spec 1 if `k` is given, else of spec 0."""
        rows = f"the rows of {name}".encode()
        others = {"file_size_in_bytes": 100 * records, **others}
        self.add(self.file(f"{name}.parquet", rows, DATA, records, **others), k=k)

    def positions(self, name: str, positions: Positions, *, k: Any = None, **others: Any) -> None:
        """A position delete file, of positions by name of data file."""
        rows = sorted((self.path(data), position) for data, each in positions.items() for position in each)
        self.position_bytes(name, position_deletes(rows), len(rows), k=k, **others)

    def position_bytes(self, name: str, data: bytes, rows: int, *, k: Any = None, **others: Any) -> None:
        """A position delete file of these bytes."""
        self.add(self.file(f"{name}-deletes.parquet", data, POSITION_DELETES, rows, **others), k=k)

    def vectors(self, name: str, vectors: Positions, *, k: Any = None, **others: Any) -> None:
        """A Puffin file of deletion vectors by name of data file; each takes the place of one that is there."""
        self._drop_vectors({self.path(data) for data in vectors})
        data, places = puffin({self.path(data): each for data, each in vectors.items()})
        self.puffin_bytes(name, data, places, k=k, **others)

    def puffin_bytes(
        self, name: str, data: bytes, places: Iterable[Blob], *, k: Any = None, **others: Any
    ) -> None:
        """A Puffin file of these bytes, with an entry for each place."""
        for entry in self.puffin_file(f"{name}-deletes.puffin", data, places, **others):
            self.add(entry, k=k)

    def equality(self, name: str, *, k: Any = None) -> None:
        """An equality delete file, which nobody opens."""
        data = b"equality deletes"
        entry = self.file(f"{name}-eq-deletes.parquet", data, EQUALITY_DELETES, 1, equality_ids=[1])
        self.add(entry, k=k)

    def remove(self, *names: str, vectors: bool = True) -> None:
        """Data files go; their deletion vectors with them."""
        paths = {self.path(name) for name in names}
        self._drop(lambda entry: entry["file_path"] in paths)
        if vectors:
            self._drop_vectors(paths)

    def _drop_vectors(self, paths: set[str]) -> None:
        self._drop(lambda entry: is_vector(entry) and entry["referenced_data_file"] in paths)

    def _drop(self, which: Callable[[Entry], bool]) -> None:
        self.gone |= {key_of(entry) for entry in self.live() if which(entry)}

    def add(self, entry: Entry, *, k: Any = None) -> None:
        """The entry of any file."""
        partition = {} if k is None else k if isinstance(k, Mapping) else {"k": None if k == "null" else k}
        self.added.append(entry | {"partition": partition, "spec_id": 0 if k is None else 1})

    def listed(self, path: str, records: int) -> None:
        """A data file that is somewhere, or nowhere."""
        self.add(
            {
                "content": DATA, "file_path": path, "file_format": "PARQUET", "record_count": records,
                "file_size_in_bytes": 100 * records,
            }
        )  # fmt: skip

    # -- commits -----------------------------------------------------------------------------------------------

    def commit(self, snapshot_id: int) -> None:
        """Add a snapshot to main with what was collected."""
        self.time_ms = LONG_AGO_MS + self.document["last-sequence-number"] + 1
        self.commit_files("overwrite", self.added, self.gone, snapshot_id=snapshot_id)
        self.added, self.gone = [], set()

    def commit_and_publish(self, snapshot_id: int) -> str:
        """Add a snapshot, and write the next version; its location."""
        self.commit(snapshot_id)
        return self.publish()

    def reload(self, document: Json, version: int) -> None:
        """Go on from what another writer committed as this version."""
        head = document["refs"]["main"]["snapshot-id"]
        self.document, self.version = document, version
        self.published = f"{self.location}/metadata/v{version}.metadata.json"
        self.manifests = {
            head: tuple(
                Manifest(row, tuple(entries_of_manifest(self.storage, row)))
                for row in manifests_of(self.storage, snapshot_of(document, head))
            )
        }


STORAGE = LocalStorage()


def a_table(folder: Path, records: Mapping[str, int] | None = None, **values: Any) -> DeleteTable:
    """A table, with a commit of data files of so many records."""
    table = DeleteTable(storage=STORAGE, location=str(folder), **values)
    for name, count in (records or {}).items():
        table.data(name, count)
    if records:
        table.commit(1)
    return table


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


PARTITIONS = (None, "x", "y", "null")


def random_table(folder: Path, seed: int, **values: Any) -> DeleteTable:
    """Data files come and go; deletes of all kinds are added, carelessly: they overlap and name what is gone."""
    rng = random.Random(seed)
    table = a_table(folder, **values)
    partition: dict[str, str | None] = {}
    records: dict[str, int] = {}
    live: list[str] = []
    vectors: dict[str, set[int]] = {}
    deleted: dict[str, set[int]] = {}
    names = iter(range(10_000))

    def some(name: str) -> set[int]:
        return {rng.randrange(-0, records[name] + rng.choice([0, 0, 0, 2])) for _ in range(rng.randint(1, 5))}

    for snapshot_id in range(1, rng.randint(4, 10)):
        for _ in range(rng.randint(1, 3) if snapshot_id > 1 else 4):
            name = f"f{next(names)}"
            partition[name] = rng.choice(PARTITIONS)
            records[name] = rng.choice([3, 20, 70_000])
            table.data(name, records[name], k=partition[name])
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
                    end = records[name] + (2 if rng.random() < 0.05 else 0)
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


def merge(folder: Path, *options: object, compare: bool = True) -> dict[str, Any]:
    """The report of a merge-dvs that must succeed: its totals are true, and readers see the same before and after.

    Args:
        folder: of the table.
        options: of the command line.
        compare: whether the table is one that `tests.scan_planning` can read.
    """
    before = view(STORAGE.read, metadata_of(folder)) if compare else {}
    ran = iceberg_cli("merge-dvs", folder, *options, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    if compare:
        assert view(STORAGE.read, metadata_of(folder)) == before
    if ran.json["status"] == "done":
        check_summary(metadata_of(folder))
    return ran.json


def refusal(folder: Path, *, code: int = 15) -> str:
    """The message of a merge-dvs that leaves with this exit code, planned or run, and changes nothing."""
    before = metadata_of(folder)
    for mode in ("--dry-run", "--yes"):
        ran = iceberg_cli("merge-dvs", folder, mode, "--format", "json")
        assert ran.code == code, ran.out
    assert metadata_of(folder) == before
    return str(ran.json["message"])


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

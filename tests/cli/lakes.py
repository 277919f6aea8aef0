"""Small real tables in a temporary folder: by file names, and in PyIceberg's catalog on SQLite."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.delta_writer import a_remove, an_add, write_file, write_log
from iceberg_cli.testing.iceberg_reader import manifests_of, snapshot_of
from tests.builders import DAY_MS, NOW_MS, TableWriter
from tests.paths import besides_history

# Builders count ages from a moment that may be in the future of this machine's clock; these tables are older.
LONG_AGO_MS = 1_500 * DAY_MS
AS_OF_MS = NOW_MS - LONG_AGO_MS
AS_OF = ("--as-of", str(AS_OF_MS))


@dataclass(kw_only=True)
class FolderTable:
    """A table whose versions are `vN.metadata.json`, made by `TableWriter`."""

    folder: Path
    format_version: int = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    writer: TableWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = TableWriter(
            storage=LocalStorage(),
            location=str(self.folder),
            format_version=self.format_version,
            properties=self.properties,
        )

    @property
    def name(self) -> str:
        """How the command line names the table."""
        return str(self.folder)

    def commit(self, snapshot_id: int, *, age_ms: int = 0, **values: Any) -> None:
        """As `TableWriter.commit`, ages before `AS_OF_MS`."""
        self.writer.commit(snapshot_id, age_ms=LONG_AGO_MS + age_ms, **values)

    def publish(self) -> str:
        """Write the next version; returns how the command line names the table."""
        self.writer.publish(f"v{self.writer.version + 1}.metadata.json")
        return self.name

    def files(self) -> set[str]:
        """Every file below the table's folder, but for its history."""
        return besides_history(listing(self.folder))

    @contextmanager
    def loses(self, gone: set[str]) -> Iterator[None]:
        """These files go, and no others."""
        before = self.files()
        yield
        assert before - self.files() == gone


def four_snapshots(folder: Path, **values: Any) -> FolderTable:
    """Snapshots 1 to 4, nine to six days old; 2 removes what 1 added, 4 what 3 added. `keep` lives in all."""
    table = FolderTable(folder=folder, **values)
    table.commit(1, age_ms=9 * DAY_MS, add=["keep", "one"])
    table.commit(2, age_ms=8 * DAY_MS, add=["two"], remove=["one"])
    table.commit(3, age_ms=7 * DAY_MS, add=["three"], statistics=True)
    table.commit(4, age_ms=6 * DAY_MS, add=["four"], remove=["three"])
    return table


def in_the_way(folder: Path, name: str) -> Path:
    """A folder in the place of a data file, which no deletion takes."""
    path = folder / "data" / f"{name}.parquet"
    path.unlink()
    path.mkdir()
    return path


# What expiring 1 to 3 of `four_snapshots` deletes: the manifests that hold what 4 took over are rewritten.
GONE = {
    "data/one.parquet",
    "data/three.parquet",
    "metadata/3.stats",
    "metadata/snap-1.avro",
    "metadata/snap-2.avro",
    "metadata/snap-3.avro",
    "metadata/1-m0.avro",
    "metadata/3-m0.avro",
}


def delta_with_removed_files(folder: Path, *removed: str) -> str:
    """A Delta table with the live file `a` and others that were removed 20 days before `AS_OF_MS`; how it is named."""
    names = ("a", *removed)
    paths = [quote(f"{name}.parquet") for name in names]
    adds = [an_add(path=path) for path in paths]
    removes = [a_remove(path=path, deletionTimestamp=AS_OF_MS - 20 * DAY_MS) for path in paths[1:]]
    write_log(folder, adds, removes, age_ms=NOW_MS - AS_OF_MS + 20 * DAY_MS)
    old_files(folder, *(f"{name}.parquet" for name in names))
    return str(folder)


def old_files(folder: Path, *names: str) -> None:
    """Files of 4 bytes, written 40 days before `AS_OF_MS`."""
    for name in names:
        write_file(folder, name, b"1234", modified_ms=AS_OF_MS - 40 * DAY_MS)


def newest_metadata(folder: Path) -> Path:
    """The metadata file of a table's newest version, by its name."""
    versions = folder.glob("metadata/v*.metadata.json")
    return max(versions, key=lambda path: int(path.name[1:].partition(".")[0]))


def listing(folder: Path) -> dict[str, str]:
    """Path below `folder` -> SHA-256, for every file and symbolic link."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Every file below the folder stays as it is, and none is added, but for the history of a table in it."""
    before = _besides_history(folder)
    yield
    assert _besides_history(folder) == before


def _besides_history(folder: Path) -> dict[str, str]:
    found = listing(folder)
    return {name: found[name] for name in besides_history(found)}


@contextmanager
def edited(path: Path) -> Iterator[dict[str, Any]]:
    """The object in a JSON file, which is written again as it is left."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    yield document
    path.write_text(json.dumps(document))


def metadata_of(folder: Path) -> dict[str, Any]:
    """The current version's document."""
    document: dict[str, Any] = json.loads(newest_metadata(folder).read_bytes())
    return document


def head_of(folder: Path, ref: str = "main") -> dict[str, Any]:
    """The snapshot of a branch or tag."""
    document = metadata_of(folder)
    return snapshot_of(document, document["refs"][ref]["snapshot-id"])


def listed_of(folder: Path, ref: str = "main") -> list[dict[str, Any]]:
    """The rows of its manifest list."""
    return manifests_of(LocalStorage(), head_of(folder, ref))


def listing_of_table(folder: Path) -> dict[str, str]:
    """The same without the journals of operations."""
    return {name: digest for name, digest in listing(folder).items() if not name.startswith("_iceberg_cli/")}


SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


def rows(*ids: int) -> pa.Table:
    """Rows with these ids."""
    return pa.table({"id": list(ids), "name": [f"n{each}" for each in ids]}, schema=SCHEMA)


@dataclass(frozen=True, kw_only=True)
class CatalogTable:
    """A table in a SQLite catalog that both PyIceberg and the command line know as `lake`."""

    catalog: SqlCatalog
    folder: Path
    database: Path
    name: str = "lake.shop.events"

    def open(self) -> Table:
        """The table as PyIceberg sees it now."""
        return self.catalog.load_table("shop.events")

    def append(self, *ids: int) -> int:
        """Commit rows; the new snapshot's id."""
        table = self.open()
        table.append(rows(*ids))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def ids(self, snapshot_id: int | None = None) -> list[int]:
        """The rows' ids as a reader gets them."""
        found: list[int] = self.open().scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist()
        return sorted(found)

    def snapshot_ids(self) -> list[int]:
        """Of all snapshots."""
        return [snapshot.snapshot_id for snapshot in self.open().metadata.snapshots]


def catalog_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, appends: int = 0, uri: str = "", **properties: str
) -> CatalogTable:
    """A table `lake.shop.events` below `folder`, to which row after row was appended, each at a time of its own.

    Its catalog is on the database `uri`, or on SQLite.
    """
    database = folder / "catalog.db"
    uri = uri or f"sqlite:///{database}"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("shop")
    catalog.create_table("shop.events", SCHEMA, properties={"format-version": "2", **properties})
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    table_folder = catalog.load_table("shop.events").location().removeprefix("file://")
    table = CatalogTable(catalog=catalog, folder=Path(table_folder), database=database)
    for number in range(appends):
        table.append(number)
        time.sleep(0.005)
    return table


def registered(database: Path, metadata_location: str) -> str:
    """The name of a table in the SQL catalog `lake` on SQLite, which is at this metadata file."""
    columns = "catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f"CREATE TABLE iceberg_tables ({columns}, PRIMARY KEY (catalog_name, table_name))")
        row = ("lake", "shop", "t", metadata_location, None)
        connection.execute("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, ?)", row)
    return "lake.shop.t"

"""A fleet: tables of both formats in folders, SQLite catalogs, a REST catalog and on S3, some of them broken.

Their rows are known, and read by PyIceberg and DuckDB. Every sound one has something due: snapshots or tombstones that
are old enough, a manifest for each commit or commits without a checkpoint, scattered deletes.
"""

from __future__ import annotations

import functools
import io
import json
import os
import sqlite3
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from iceberg_cli.testing.delta_vectors import a_vector_file
from iceberg_cli.testing.delta_writer import (
    Action,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    an_add,
)
from iceberg_cli.testing.iceberg_files import DATA, Entry, Json
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Key, arrow_schema, parquet_metrics
from tests.builders import DAY_MS, SCHEMA, SPEC
from tests.cli.lakes import AS_OF_MS
from tests.duckdb_reading import duckdb_with_delta, duckdb_with_iceberg
from tests.rest_servers import pyiceberg_options_of
from tests.servers import BY_FSSPEC, Versitygw

Place = Literal["folder", "sqlite", "rest", "s3"]
Format = Literal["iceberg", "delta"]
ROWS: Final = 10  # of a data file
COMMITS: Final = 6  # of an Iceberg table
VERSIONS: Final = 13  # of a Delta table
CHECKPOINT: Final = 10  # the version of the one that some Delta tables have
CATALOGS: Final[Mapping[Place, str]] = {"sqlite": "lake", "rest": "rest", "s3": "remote"}
FIRST_MS: Final = AS_OF_MS - 60 * DAY_MS  # of a table's first commit; the others follow by days


@dataclass(frozen=True, kw_only=True)
class FleetTable:
    """One table of the fleet."""

    name: str  # as commands take it
    place: Place
    table_format: Format
    location: str
    folder: Path  # where its files are on this disk
    rows: frozenset[int] = frozenset()  # the values of its column `n`
    broken: str = ""  # one of `BROKEN`


@dataclass(kw_only=True)
class Fleet:
    """The tables, and how commands and readers find them."""

    root: Path
    rest_uri: str = ""
    s3: Versitygw | None = None
    tables: list[FleetTable] = field(default_factory=list)

    # -- for commands ------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        """Of all catalogs; the root's name, so that fleets may share a REST catalog."""
        return self.root.name.replace(".", "_")

    @property
    def patterns(self) -> list[str]:
        """All of the tables, and no others."""
        places = {table.place for table in self.tables}
        named = [f"{catalog}.{self.namespace}" for place, catalog in CATALOGS.items() if place in places]
        prefixes = {str(Path(table.name).parent) for table in self.tables if table.place == "folder"}
        on_s3 = {table.name.rpartition("/")[0] for table in self.tables if table.name.startswith("s3://")}
        return [*named, *(f"{prefix}/*" for prefix in sorted(prefixes | on_s3))]

    @property
    def options(self) -> list[str]:
        """What a command must be told to reach all of them."""
        storage = self.s3.options if self.s3 else {}
        given = [f"--storage-option={name}={value}" for name, value in storage.items()]
        return [f"--catalog-config={self.root / '.pyiceberg.yaml'}", *given]

    @property
    def sound(self) -> list[FleetTable]:
        """The tables that are not broken."""
        return [table for table in self.tables if not table.broken]

    # -- for readers -------------------------------------------------------------------------------------------

    def pointer(self, table: FleetTable) -> str:
        """The location of an Iceberg table's current metadata."""
        name = table.name.rpartition(".")[2]
        match table.place:
            case "folder":
                version = (table.folder / "metadata" / "version-hint.text").read_text()
                return f"{table.location}/metadata/v{version}.metadata.json"
            case "rest":
                url = f"{self.rest_uri}/v1/namespaces/{self.namespace}/tables/{name}"
                with urllib.request.urlopen(url) as answer:
                    return str(json.load(answer)["metadata-location"])
            case _:
                with sqlite3.connect(self.root / f"{CATALOGS[table.place]}.db") as database:
                    query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
                    return str(database.execute(query, (name,)).fetchone()[0])

    def document(self, table: FleetTable) -> tuple[Path, Json]:
        """An Iceberg table's current metadata, and where it is on this disk."""
        path = table.folder / "metadata" / self.pointer(table).rpartition("/")[2]
        return path, json.loads(path.read_bytes())

    def rows_of(self, table: FleetTable) -> list[int]:
        """The values of `n` as DuckDB reads them, or PyIceberg those of an Iceberg table on S3."""
        if table.table_format == "delta":
            return _numbers(duckdb_with_delta(), f"delta_scan('{table.folder}')")
        if table.place != "s3":
            return _numbers(duckdb_with_iceberg(), f"iceberg_scan('{self.pointer(table)}')")
        assert self.s3 is not None
        options = {**pyiceberg_options_of(self.s3), **BY_FSSPEC}
        found = StaticTable.from_metadata(self.pointer(table), options).scan().to_arrow()
        return sorted(found["n"].to_pylist())

    # -- building ----------------------------------------------------------------------------------------------

    def place(self, place: Place, table_format: Format, number: int) -> FleetTable:
        """Where a table goes, and its name."""
        name = f"t{number:03d}"
        folder = self.root / place / table_format / name
        location = str(folder)
        if place == "s3":
            assert self.s3 is not None
            key = f"{self.namespace}/{table_format}/{name}"
            location, folder = f"s3://{self.s3.bucket}/{key}", self.s3.folder / key
        in_catalog = table_format == "iceberg" and place != "folder"
        full_name = f"{CATALOGS[place]}.{self.namespace}.{name}" if in_catalog else location
        return FleetTable(
            name=full_name, place=place, table_format=table_format, location=location, folder=folder
        )

    def configure(self) -> None:
        """Write PyIceberg's configuration of the catalogs."""
        catalogs: dict[str, dict[str, str]] = {
            "lake": {"type": "sql", "uri": f"sqlite:///{self.root}/lake.db"}
        }
        if self.rest_uri:
            catalogs["rest"] = {"type": "rest", "uri": self.rest_uri}
        if self.s3:
            uri = f"sqlite:///{self.root}/remote.db"
            catalogs["remote"] = {"type": "sql", "uri": uri, **pyiceberg_options_of(self.s3)}
        lines = ["catalog:\n"]
        for catalog, properties in catalogs.items():
            lines += [f"  {catalog}:\n", *(f"    {name}: {value}\n" for name, value in properties.items())]
        (self.root / ".pyiceberg.yaml").write_text("".join(lines))

    def register_in_sqlite(self, catalog: str, pointers: Iterable[tuple[str, str]]) -> None:
        """Have a SQLite catalog name tables by their metadata."""
        path = self.root / f"{catalog}.db"
        SqlCatalog(catalog, uri=f"sqlite:///{path}").create_namespace(self.namespace)
        rows = [(catalog, self.namespace, name, metadata, "TABLE") for name, metadata in pointers]
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        with sqlite3.connect(path) as database:
            database.executemany(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?, ?)", rows)

    def register_in_rest(self, pointers: Iterable[tuple[str, str]]) -> None:
        """Have the REST catalog name tables by their metadata."""
        for number, (name, metadata) in enumerate(pointers):
            if not number:
                self._post("namespaces", {"namespace": [self.namespace]})
            body = {"name": name, "metadata-location": metadata}
            self._post(f"namespaces/{self.namespace}/register", body)

    def _post(self, path: str, body: Json) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.rest_uri}/v1/{path}", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request).close()

    def break_one(self, ill: str) -> FleetTable:
        """Break the first sound table that this ill is for, of its place where there is one."""
        how = BROKEN[ill]
        of_format = [
            (at, t) for at, t in enumerate(self.tables) if not t.broken and t.table_format == how.table_format
        ]
        of_place = [each for each in of_format if each[1].place == how.place]
        suitable = [each for each in of_place or of_format if how.suits(each[1])]
        at, table = suitable[0]
        how.damage(self, table)
        self.tables[at] = replace(table, broken=ill)
        return self.tables[at]


# -- Iceberg ---------------------------------------------------------------------------------------------------


class _Sink:
    """The files of a table: on this disk, or collected as objects of S3."""

    def __init__(self, table: FleetTable, objects: dict[str, bytes]) -> None:
        self._table, self._objects = table, objects

    def put_if_absent(self, path: str, data: bytes, /, modified_ms: int | None = None) -> None:
        name = path.removeprefix(f"{self._table.location}/")
        if self._table.place == "s3" and modified_ms is None:
            self._objects[path.split("/", 3)[3]] = data
            return
        file = self._table.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        if modified_ms is not None:
            os.utime(file, ns=(modified_ms * 1_000_000,) * 2)


class _FleetWriter(IcebergWriter):
    """Writes tables of version 1 as well, whose metadata has no sequence numbers."""

    def first_document(self) -> Json:
        document = super().first_document()
        if self.format_version == 1:
            del document["last-sequence-number"]
            document |= {"schema": SCHEMA, "partition-spec": []}
        return document

    def publish(self, name: str | None = None) -> str:
        if self.format_version == 1:
            self.document.pop("last-sequence-number", None)
            for snapshot in self.document["snapshots"]:
                snapshot.pop("sequence-number", None)
        return super().publish(name)


def _write_iceberg(table: FleetTable, number: int, objects: dict[str, bytes]) -> tuple[frozenset[int], str]:
    """A table of version 1, 2 or 3: a commit a day, each with a file; one removes a file, others delete rows.

    Returns:
        Its rows, and the location of its metadata.
    """
    version = 1 + number % 3
    writer = _FleetWriter(
        storage=_Sink(table, objects), location=table.location, format_version=version, schema=SCHEMA,
        spec=SPEC, seed=table.name, time_ms=FIRST_MS,
    )  # fmt: skip
    rows: set[int] = set()
    paths: list[str] = []
    for commit in range(COMMITS):
        writer.time_ms = FIRST_MS + commit * DAY_MS
        entry = _a_data_file(writer, commit)
        paths.append(entry["file_path"])
        added: list[Entry] = [entry]
        removed: list[Key] = [(paths[0], None)] if commit == 2 else []
        rows |= {*_numbers_in(commit)}
        if commit == 2:
            rows -= {*_numbers_in(0)}
        # Version 2 gets position delete files, the first of which dangles in the end, version 3 Puffin files.
        if version == 2 and (of := {1: 0, 4: 1, 5: 2}.get(commit)) is not None:
            added.append(writer.position_deletes({paths[of]: [0, 1]}, {}))
            rows -= {*_numbers_in(of)[:2]}
        if version == 3 and (of := {4: 1, 5: 2}.get(commit)) is not None:
            vectors, _ = writer.deletion_vectors({paths[of]: [0, 1, 2]})
            added += vectors
            rows -= {*_numbers_in(of)[:3]}
        writer.commit_files("overwrite" if removed else "append", added, removed)
        in_folder = table.place == "folder"
        metadata = writer.publish(None if in_folder else f"{commit:05d}-{writer.new_uuid()}.metadata.json")
    if table.place == "folder":
        writer.put("metadata/version-hint.text", str(writer.version).encode())
    return frozenset(rows), metadata


def _numbers_in(file: int) -> range:
    """The values of `n` in a table's data file of this number."""
    return range(file * ROWS, (file + 1) * ROWS)


def iceberg_objects(location: str, number: int) -> tuple[dict[str, bytes], frozenset[int], str]:
    """A table as objects of a store, whatever its scheme.

    Args:
        location: of the table.
        number: by which it is of version 1, 2 or 3: one more than its rest by three.

    Returns:
        The objects by their keys, its rows, and the location of its metadata.
    """
    objects: dict[str, bytes] = {}
    table = FleetTable(
        name=location, place="s3", table_format="iceberg", location=location, folder=Path(location)
    )
    rows, metadata = _write_iceberg(table, number, objects)
    return objects, rows, metadata


@functools.cache
def _parquet(file: int) -> tuple[bytes, Json]:
    """The bytes of a data file, which are those of every table, and its part of a manifest entry."""
    out = io.BytesIO()
    pq.write_table(pa.table({"n": _numbers_in(file)}, arrow_schema(SCHEMA)), out)
    return out.getvalue(), parquet_metrics(out.getvalue())


def _a_data_file(writer: IcebergWriter, file: int) -> Entry:
    data, metrics = _parquet(file)
    return writer.file(f"{file:05d}-{writer.new_uuid()}.parquet", data, DATA, 0, **metrics)


# -- Delta -----------------------------------------------------------------------------------------------------


def _write_delta(table: FleetTable, number: int, objects: dict[str, bytes]) -> frozenset[int]:
    """A Delta table: a commit a day, each with a file; one removes two files, and two delete rows by vectors.

    Returns:
        Its rows.
    """
    sink, vectors = _Sink(table, objects), number % 2 == 1
    configuration = {"delta.enableDeletionVectors": "true"} if vectors else {}
    protocol = a_protocol_with("deletionVectors") if vectors else a_protocol()
    first = [protocol, a_metadata(configuration=configuration)]
    rows: set[int] = set()
    live: dict[int, Json] = {}  # adds by the number of the file
    tombstones: list[Action] = []

    def put(name: str, data: bytes) -> None:
        sink.put_if_absent(f"{table.location}/{name}", data, modified_ms=at_ms)

    def remove(file: int) -> Json:
        """Remove a file; what its add was."""
        old = live.pop(file)
        tombstones.append(
            a_remove(
                path=old["path"], deletionTimestamp=at_ms, size=old["size"], extendedFileMetadata=True,
                partitionValues={},
            )
        )  # fmt: skip
        return old

    for version in range(VERSIONS):
        at_ms = FIRST_MS + version * DAY_MS
        before = [*tombstones], {**live}
        data, _ = _parquet(version)
        put(f"{version:05d}.parquet", data)
        added = an_add(path=f"{version:05d}.parquet", rows=ROWS, size=len(data), modificationTime=at_ms)
        live[version] = added["add"]
        rows |= {*_numbers_in(version)}
        if version == 4:
            for file in (0, 1):
                remove(file)
                rows -= {*_numbers_in(file)}
        if vectors and version in (6, 7):
            file = version - 4
            name, data, [vector] = a_vector_file(version, [0, 1])
            put(name, data)
            live[file] = remove(file) | {"deletionVector": vector}
            rows -= {*_numbers_in(file)[:2]}
        actions = [
            *tombstones[len(before[0]) :],
            *({"add": a} for n, a in live.items() if before[1].get(n) != a),
        ]
        log = f"_delta_log/{version:020}"
        put(f"{log}.json", a_commit(a_commit_info(timestamp=at_ms), *([] if version else first), *actions))
        if number % 3 == 2 and version == CHECKPOINT:
            state = [*first, *tombstones, *({"add": add} for add in live.values())]
            put(f"{log}.checkpoint.parquet", a_checkpoint(*state))
            put("_delta_log/_last_checkpoint", json.dumps({"version": version, "size": len(state)}).encode())
    return frozenset(rows)


# -- damage ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ill:
    """A way in which a table is broken."""

    exit_code: int  # of a command that needs what is broken
    place: Place
    table_format: Format
    damage: Callable[[Fleet, FleetTable], object]
    suits: Callable[[FleetTable], bool] = lambda _: True


def _head_list(fleet: Fleet, table: FleetTable) -> Path:
    """The manifest list of main."""
    _, document = fleet.document(table)
    name = document["snapshots"][-1]["manifest-list"].rpartition("/")[2]
    return table.folder / "metadata" / str(name)


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _cut_at_a_block(path: Path) -> None:
    """A legal Avro file that lacks its last record."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        rows, schema = list(reader), reader.writer_schema
    with path.open("wb") as file:
        assert schema is not None
        fastavro.writer(file, schema, rows, sync_interval=1)
    with path.open("rb") as file:
        starts = [block.offset for block in fastavro.block_reader(file)]
    path.write_bytes(path.read_bytes()[: starts[-1]])


def _without_a_manifest(fleet: Fleet, table: FleetTable) -> None:
    with _head_list(fleet, table).open("rb") as file:
        first = next(iter(fastavro.reader(file)))
    assert isinstance(first, dict)
    (table.folder / "metadata" / str(first["manifest_path"]).rpartition("/")[2]).unlink()


def _changed(fleet: Fleet, table: FleetTable, **changes: Any) -> None:
    path, document = fleet.document(table)
    path.write_text(
        json.dumps({**document, **{name.replace("_", "-"): each for name, each in changes.items()}})
    )


def _encrypted(fleet: Fleet, table: FleetTable) -> None:
    path, document = fleet.document(table)
    document["encryption-keys"] = [{"key-id": "k", "encrypted-key-metadata": "AAAA"}]
    for snapshot in document["snapshots"]:
        snapshot["key-id"] = "k"
    path.write_text(json.dumps(document))


def _of_unknown_feature(_: Fleet, table: FleetTable) -> None:
    path = table.folder / "_delta_log" / f"{VERSIONS:020}.json"
    features = ["featureOfTomorrow"]
    path.write_bytes(a_commit(a_protocol(3, 7, reader_features=features, writer_features=features)))


def _checkpoint_cut(_: Fleet, table: FleetTable) -> None:
    log = table.folder / "_delta_log"
    _cut(log / f"{CHECKPOINT:020}.checkpoint.parquet")
    for version in range(CHECKPOINT + 1):
        (log / f"{version:020}.json").unlink()


def _of_version(table: FleetTable, version: int) -> bool:
    return int(table.location[-3:]) % 3 == version - 1


BROKEN: Final[Mapping[str, Ill]] = {
    "manifest list truncated": Ill(15, "folder", "iceberg", lambda f, t: _cut(_head_list(f, t))),
    "manifest missing": Ill(15, "rest", "iceberg", _without_a_manifest),
    "metadata.json corrupt": Ill(15, "s3", "iceberg", lambda f, t: _cut(f.document(t)[0])),
    "metadata.json missing": Ill(10, "sqlite", "iceberg", lambda f, t: f.document(t)[0].unlink()),
    "format version unknown": Ill(11, "folder", "iceberg", functools.partial(_changed, format_version=9)),
    "encrypted": Ill(11, "sqlite", "iceberg", _encrypted, lambda t: _of_version(t, 3)),
    "manifest list cut at a block": Ill(15, "rest", "iceberg", lambda f, t: _cut_at_a_block(_head_list(f, t))),
    "feature unknown": Ill(11, "folder", "delta", _of_unknown_feature),
    "checkpoint cut": Ill(15, "s3", "delta", _checkpoint_cut, lambda t: _of_version(t, 3)),
    "commit missing": Ill(
        15, "folder", "delta",
        lambda _, t: (t.folder / "_delta_log" / f"{5:020}.json").unlink(), lambda t: _of_version(t, 1),
    ),
}  # fmt: skip


# -- other readers ---------------------------------------------------------------------------------------------


def _numbers(connection: duckdb.DuckDBPyConnection, source: str) -> list[int]:
    return [n for (n,) in connection.execute(f"SELECT n FROM {source} ORDER BY n").fetchall()]


def build_fleet(
    root: Path,
    counts: Mapping[tuple[Place, Format], int],
    *,
    rest_uri: str = "",
    s3: Versitygw | None = None,
    broken: Iterable[str] = (),
) -> Fleet:
    """Build a fleet.

    Args:
        root: a folder that is there; its name is also that of the prefix on S3 and of the namespace in REST.
        counts: how many tables of each place and format; a REST catalog and SQLite have Iceberg's alone.
        rest_uri: of the REST catalog, where there are tables of it.
        s3: where tables are on S3.
        broken: which of `BROKEN`.
    """
    fleet = Fleet(root=root, rest_uri=rest_uri, s3=s3)
    objects: dict[str, bytes] = {}
    pointers: dict[str, list[tuple[str, str]]] = {catalog: [] for catalog in CATALOGS.values()}
    for (place, table_format), count in counts.items():
        for number in range(count):
            table = fleet.place(place, table_format, number)
            if table_format == "delta":
                rows = _write_delta(table, number, objects)
            else:
                rows, metadata = _write_iceberg(table, number, objects)
                if place != "folder":
                    pointers[CATALOGS[place]].append((f"t{number:03d}", metadata))
            fleet.tables.append(replace(table, rows=rows))
    if s3:
        s3.fill(objects)
    fleet.configure()
    for place, catalog in CATALOGS.items():
        if place == "rest":
            fleet.register_in_rest(pointers[catalog])
        elif pointers[catalog]:
            fleet.register_in_sqlite(catalog, pointers[catalog])
    for ill in broken:
        fleet.break_one(ill)
    return fleet

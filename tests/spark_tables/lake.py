"""A catalog of tables: what tests ask of Spark, of the other readers, of our program and of the folder under them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iceberg_cli.cli.app import run
from iceberg_cli.cli.context import now_ms
from tests.duckdb_reading import duckdb_with_iceberg
from tests.recording.folder_state import TableFolder
from tests.recording.plugin import Recorder

Rows = list[tuple[Any, ...]]
JOURNAL = "_iceberg_cli"


@dataclass(frozen=True)
class Saved:
    """A table's files and its catalog row, set aside."""

    folders: tuple[tuple[Path, Path], ...]  # (the table's, the copy)
    pointer: tuple[str, str | None] | None


@dataclass(frozen=True)
class DatabaseRow:
    """The row of a table in a JDBC catalog on SQLite."""

    database: Path
    table: str

    def get(self) -> tuple[str, str | None] | None:
        """The metadata file and the one before it; None: no such table."""
        with self._connected() as connection:
            query = "SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE table_name = ?"
            found: tuple[str, str | None] | None = connection.execute(query, (self.table,)).fetchone()
            return found

    def put(self, pointer: tuple[str, str | None]) -> None:
        """Make it so."""
        with self._connected() as connection, connection:
            connection.execute("DELETE FROM iceberg_tables WHERE table_name = ?", (self.table,))
            connection.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location,"
                " previous_metadata_location, iceberg_type) VALUES ('jdbc', 'db', ?, ?, ?, 'TABLE')",
                (self.table, *pointer),
            )

    def remove(self) -> None:
        """Have the catalog know nothing of it."""
        with self._connected() as connection, connection:
            connection.execute("DELETE FROM iceberg_tables WHERE table_name = ?", (self.table,))

    def _connected(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.database, timeout=30))


@dataclass(frozen=True, kw_only=True)
class Lake:
    """One catalog, its warehouse, and the tables of its namespace `db`.

    What is asked of Spark here may be answered from the record; `spark` itself is there in live tests only.
    """

    spark: Any
    recorder: Recorder = field(default_factory=lambda: Recorder(live=True))
    catalog: str
    warehouse: Path
    database: Path | None  # the SQLite file of the JDBC catalog
    config: Path  # PyIceberg's

    # -- Spark -------------------------------------------------------------------------------------------------

    def name(self, table: str) -> str:
        """As Spark and PyIceberg call it."""
        return f"{self.catalog}.db.{table}"

    def sql(self, table: str, text: str) -> list[Any]:
        """Run one statement; `{t}` stands for the table, `{c}` for its catalog and `{f}` for its folder."""
        text = text.replace("{t}", self.name(table)).replace("{c}", self.catalog)
        text = text.replace("{f}", str(self.folder(table)))
        rows: list[Any] = self.answer(table, text, lambda: list(self.spark.sql(text).collect()))
        return rows

    def answer(self, table: str, text: str, ask: Callable[[], Any]) -> Any:
        """What Spark or Iceberg Java says, or said: see `Transcript.answer`."""
        return self.recorder.answer(self.table_folder(table), text, ask)

    def table_folder(self, table: str) -> TableFolder:
        """All of a table that can be put on record."""
        places = {name: self.warehouse / "db" / name for name in (table, f"{table}-data")}
        return TableFolder(places, None if self.database is None else DatabaseRow(self.database, table))

    def java(self, table: str) -> Any:
        """Iceberg Java's own `Table`, loaded now."""
        util = self.spark._jvm.org.apache.iceberg.spark.Spark3Util
        return util.loadIcebergTable(self.spark._jsparkSession, self.name(table))

    def rows(self, table: str, snapshot_id: int | None = None, *, row_ids: bool = False) -> Rows:
        """All rows of a snapshot, or of main, as Spark reads them, in a fixed order."""
        columns = "*, _row_id, _last_updated_sequence_number" if row_ids else "*"
        version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        return in_order(tuple(row) for row in self.sql(table, f"SELECT {columns} FROM {{t}}{version}"))

    def expire_with_spark(
        self, table: str, *, older_than_ms: int, retain_last: int, clean: bool = False
    ) -> dict[str, int]:
        """The result row of Spark's procedure."""
        moment = datetime.fromtimestamp(older_than_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        (row,) = self.sql(
            table,
            f"CALL {{c}}.system.expire_snapshots(table => '{{t}}', older_than => TIMESTAMP '{moment}',"
            f" retain_last => {retain_last}, clean_expired_metadata => {str(clean).lower()})",
        )
        return dict(row.asDict())

    # -- metadata and files ------------------------------------------------------------------------------------

    def metadata_location(self, table: str) -> str:
        """Where Iceberg Java finds the current metadata."""

        def ask() -> str:
            return str(self.java(table).operations().current().metadataFileLocation())

        return str(self.answer(table, "where the current metadata is", ask)).removeprefix("file:")

    def metadata(self, table: str) -> dict[str, Any]:
        """The current metadata as JSON."""
        data = Path(self.metadata_location(table)).read_bytes()
        document: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return document

    def snapshot_ids(self, table: str) -> list[int]:
        """In the order of the metadata."""
        return [snapshot["snapshot-id"] for snapshot in self.metadata(table).get("snapshots", [])]

    def folder(self, table: str) -> Path:
        """Where the catalog puts the table."""
        return self.warehouse / "db" / table

    def folders(self, table: str) -> tuple[Path, ...]:
        """The table's folder, and the one beside it where its data may be."""
        both = (self.folder(table), self.warehouse / "db" / f"{table}-data")
        return tuple(folder for folder in both if folder.exists())

    def files(self, table: str) -> set[str]:
        """Every file of the table, without our journal and Hadoop's checksum files."""
        return {str(path) for path in self._all_files(table) if not path.name.endswith(".crc")}

    def widowed_checksums(self, table: str) -> list[Path]:
        """Hadoop's checksum files (`.name.crc`) beside which there is no `name`."""
        found = [path for path in self._all_files(table) if path.name.endswith(".crc")]
        return [path for path in found if not path.with_name(path.name[1:-4]).exists()]

    def _all_files(self, table: str) -> Iterator[Path]:
        for folder in self.folders(table):
            yield from (path for path in folder.rglob("*") if path.is_file() and JOURNAL not in path.parts)

    def reachable(self, table: str) -> set[str]:
        """Every file that some snapshot reaches, as Iceberg's metadata tables list them."""
        paths = [row[0] for row in self.sql(table, "SELECT DISTINCT file_path FROM {t}.all_files")]
        paths += [row[0] for row in self.sql(table, "SELECT DISTINCT path FROM {t}.all_manifests")]
        paths += [row[0] for row in self.sql(table, "SELECT manifest_list FROM {t}.snapshots")]
        return {path.removeprefix("file:") for path in paths}

    def save(self, table: str, aside: Path) -> Saved:
        """Copy the table aside, so that the very same table can be operated on twice: metadata holds absolute paths."""
        pairs = tuple((folder, aside / folder.name) for folder in self.folders(table))
        for folder, copy in pairs:
            shutil.copytree(folder, copy)
        return Saved(pairs, self.table_folder(table).pointer_now())

    def restore(self, table: str, saved: Saved) -> None:
        """Put back what `save` copied."""
        for folder, copy in saved.folders:
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
        pointer = self.table_folder(table).pointer
        if pointer is not None and saved.pointer is not None:
            pointer.put(saved.pointer)

    # -- other readers -----------------------------------------------------------------------------------------

    def rows_of_pyiceberg(self, table: str, snapshot_id: int) -> Rows:
        """A snapshot's rows as PyIceberg reads them, through the catalog where there is one."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable

        if self.database is None:
            opened: Any = StaticTable.from_metadata(self.metadata_location(table))
        else:
            catalog = load_catalog("jdbc", type="sql", uri=f"sqlite:///{self.database}")
            opened = catalog.load_table(f"db.{table}")
        arrow = opened.scan(snapshot_id=snapshot_id).to_arrow()
        return in_order(tuple(row.values()) for row in arrow.to_pylist())

    def rows_of_duckdb(self, table: str, snapshot_id: int) -> Rows:
        """A snapshot's rows as DuckDB reads them from the current metadata file."""
        location = self.metadata_location(table)
        codec = ", metadata_compression_codec => 'gzip'" if location.endswith(".gz.metadata.json") else ""
        text = f"SELECT * FROM iceberg_scan('{location}', snapshot_from_id => {snapshot_id}::UBIGINT{codec})"
        return in_order(duckdb_with_iceberg().execute(text).fetchall())

    # -- our program -------------------------------------------------------------------------------------------

    def argument(self, table: str) -> str:
        """As our command line calls it."""
        return str(self.folder(table)) if self.database is None else self.name(table)

    def options(self) -> list[str]:
        """That every command of ours needs here."""
        catalog = [] if self.database is None else ["--catalog-config", str(self.config)]
        return ["--format", "json", "--no-progress", *catalog]

    def cli(self, command: str, target: str, *arguments: object) -> tuple[int, dict[str, Any]]:
        """Run one command of ours in this process: exit code and JSON document."""
        out = io.StringIO()
        with redirect_stdout(out):
            code = run([command, target, *map(str, arguments), *self.options()])
        text = out.getvalue()
        return code, json.loads(text) if text else {}

    def verb(self, name: str, table: str, *options: object) -> dict[str, Any]:
        """Carry out a verb of ours, which must succeed: its report."""
        code, report = self.cli(name, self.argument(table), "--yes", *options)
        assert code == 0, report
        return report


def in_order(rows: Any) -> Rows:
    """Rows in an order that does not depend on their types; nulls sort by their spelling."""
    return sorted((tuple(row) for row in rows), key=repr)


def later_ms() -> int:
    """A time after all that was committed until here."""
    time.sleep(0.005)
    return now_ms()

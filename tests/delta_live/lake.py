"""What tests ask of Delta Spark, of delta-rs, of our program and of a table's folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.context import now_ms
from tests.budget import FULL
from tests.cli.running import iceberg_cli
from tests.delta_live.shapes import Shape
from tests.delta_spark import DELTA, DeltaSpark, plain
from tests.paths import besides_history
from tests.recording.archives import ENDING, RECORDED
from tests.recording.folder_state import TableFolder, is_checksum
from tests.recording.plugin import Recorder
from tests.recording.transcript import put_back, record_or_check
from tests.spark_jars import DELTA as DELTA_JARS
from tests.spark_settings import settings_of_jvm, starting

Rows = list[tuple[Any, ...]]
IDS = "_metadata.row_id, _metadata.row_commit_version"
JOURNAL = "_iceberg_cli"
_TXN_VERSION = f"{DELTA}.write.txnVersion"


@dataclass(kw_only=True)
class DeltaLake:
    """The tables, each written once; tests work on copies. What Delta Spark says may come from the record.

    Args:
        spark: writes and reads in live tests.
        folder: holds all tables.
        recorder: between tests and Spark.
    """

    spark: DeltaSpark
    folder: Path
    recorder: Recorder
    _templates: dict[str, Path] = field(default_factory=dict)
    _histories: dict[str, dict[int, Rows]] = field(default_factory=dict)
    _copies: int = 0

    # -- tables ------------------------------------------------------------------------------------------------

    def table(self, shape: Shape) -> tuple[Path, dict[int, Rows]]:
        """A copy of a table with the times of its files, and the rows of each version.

        In live tests those of the newest version, and with FULL_SUITES of every one, are the same for both readers.

        Raises:
            NotOnRecord: another table is on record under this name.
        """
        template = self._template(shape)
        self._copies += 1
        copy = self.folder / f"{shape.name}_{self._copies}"
        shutil.copytree(template, copy)
        if self.recorder.transcript is not None:
            self.recorder.transcript.place(self._table_folder(copy), _on_record(shape), _described(shape))
        if shape.name not in self._histories:
            self._histories[shape.name] = {
                version: rows_of_delta_rs(copy, version) for version in commits(copy)
            }
        return copy, dict(self._histories[shape.name])

    def _template(self, shape: Shape) -> Path:
        folder = self._templates.get(shape.name)
        if folder is None:
            folder = self._templates[shape.name] = self.folder / "templates" / shape.name
            if shape.source is not None:
                self._template(shape.source)
            if self.recorder.live:
                self._write_anew(shape, folder)
            if not self.recorder.live or _on_record(shape).exists():
                put_back(self._table_folder(folder), _on_record(shape), _described(shape))
        return folder

    def _write_anew(self, shape: Shape, folder: Path) -> None:
        """Have Delta Spark write it, and see that it is the one on record, or put it there."""
        self._write(shape, folder)
        newest = max(commits(folder))
        (rows,) = self.spark.queries([f"SELECT * FROM delta.`{folder}`"], forget=True)
        assert in_order(rows) == rows_of_delta_rs(folder, newest)
        record = self.recorder.record and self.recorder.transcript is not None
        record_or_check(self._table_folder(folder), _on_record(shape), _described(shape), record=record)

    def _table_folder(self, table: Path) -> TableFolder:
        return TableFolder({"": table}, stand_ins={"{table}": str(table), "{lake}": str(self.folder)})

    def _write(self, shape: Shape, folder: Path) -> None:
        statements = list(shape.history)
        if shape.source is None:
            statements.insert(0, shape.create)
        else:
            source = self._template(shape.source)
            statements[0] = statements[0].replace("{s}", f"delta.`{source}`")
        self.spark.conf(shape.conf)
        for number, statement in enumerate(statements, start=1):
            if _TXN_VERSION in shape.conf:
                self.spark.conf({_TXN_VERSION: str(number)})
            self.spark.sql(_of(statement, folder))
        self.spark.conf(dict.fromkeys(shape.conf))

    # -- Delta Spark -------------------------------------------------------------------------------------------

    def sql(self, table: Path, *statements: str) -> Rows:
        """The rows of the last statement; `{t}` is the table."""
        rows: Rows = []
        for statement in statements:
            (rows,) = self._queries(table, [_of(statement, table)])
        return rows

    def _queries(self, table: Path, statements: Sequence[str], *, forget: bool = False) -> list[Rows]:
        def ask() -> list[Rows]:
            return self.spark.queries(statements, forget=forget)

        answers: list[Rows] = self.recorder.answer(self._table_folder(table), "; ".join(statements), ask)
        return answers

    def rows(self, table: Path, version: int | None = None, *, ids: bool = False) -> Rows:
        """All rows of a version, or of the newest, in a fixed order; with `ids` the row's id and commit version too."""
        of = "" if version is None else f" VERSION AS OF {version}"
        text = f"SELECT *{f', {IDS}' if ids else ''} FROM delta.`{table}`{of}"
        return in_order(self._queries(table, [text], forget=True)[0])

    def versions(self, table: Path, targets: Sequence[int]) -> dict[int, Rows]:
        """The rows of some versions."""
        texts = [f"SELECT * FROM delta.`{table}` VERSION AS OF {version}" for version in targets]
        found = self._queries(table, texts, forget=True)
        return {version: in_order(rows) for version, rows in zip(targets, found, strict=True)}

    def assert_promised(self, table: Path, promised: Mapping[int, Rows]) -> None:
        """Both readers read these versions with these rows; Delta Spark `some` of them."""
        asked = some(promised)
        assert self.versions(table, asked) == {version: promised[version] for version in asked}
        assert {version: rows_of_delta_rs(table, version) for version in promised} == promised

    def dry_vacuum(self, table: Path) -> set[str]:
        """What Delta Spark would delete of everything that is older than now, as paths below the table."""
        found = {row[0] for row in self.sql(table, "VACUUM {t} RETAIN 0 HOURS DRY RUN")}
        return {uri.removeprefix("file:").removeprefix(f"{table}/") for uri in found}

    # -- our program -------------------------------------------------------------------------------------------

    def verb(self, name: str, table: Path, *options: object) -> dict[str, Any]:
        """Carry out a verb of ours, which must succeed: its report."""
        ran = iceberg_cli(name, table, *options, "--yes", "--format", "json", "--no-progress")
        assert ran.code == 0, (name, options, ran.out, ran.err)
        return ran.json

    def planned(self, name: str, table: Path, *options: object) -> list[dict[str, Any]]:
        """The files that a verb would delete, each with its path below the table as `file`."""
        saved = self.folder / f"plan_{time.monotonic_ns()}.json"
        ran = iceberg_cli("plan", table, name, "-o", saved, *options, "--format", "json", "--no-progress")
        assert ran.code == 0, (name, options, ran.out, ran.err)
        removals = json.loads(saved.read_text())["removals"]
        if not removals["count"]:
            return []
        import pyarrow.parquet as pq

        rows = pq.read_table(saved.parent / removals["file"]).to_pylist()
        return [{**row, "file": row["path"].removeprefix(f"{table}/")} for row in rows]


def _on_record(shape: Shape) -> Path:
    return RECORDED / "delta_tables" / f"{shape.name}{ENDING}"


def _described(shape: Shape) -> dict[str, Any]:
    """What makes it another table."""
    source = shape.source and shape.source.name
    conf = {key: value for key, value in shape.conf.items() if key != _TXN_VERSION}
    made = {"create": shape.create, "conf": conf, "history": list(shape.history), "source": source}
    return {"shape": made}


def _of(statement: str, table: Path) -> str:
    return statement.replace("{t}", f"delta.`{table}`")


def some(versions: Iterable[int]) -> list[int]:
    """Those of all versions that Delta Spark is asked to read: each, or the oldest and the newest two."""
    each = sorted(versions)
    return each if FULL else sorted({*each[:1], *each[-2:]})


def rows_of_delta_rs(
    table: Path | str,
    version: int | None = None,
    *,
    where: str = "TRUE",
    options: dict[str, str] | None = None,
) -> Rows:
    """Rows of a version as delta-rs reads them, in a fixed order.

    Args:
        table: its folder, or its URI.
        version: None: the newest.
        where: a condition of SQL.
        options: of the storage.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    opened = DeltaTable(str(table), version=version, storage_options=options)
    names = [field.name for field in opened.schema().fields]
    columns = ", ".join(f'"{name}"' for name in names)
    query = f"SELECT {columns} FROM t WHERE {where}"
    found = pa.table(QueryBuilder().register("t", opened).execute(query).read_all())
    return in_order(tuple(plain(value) for value in row.values()) for row in found.to_pylist())


def in_order(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """The rows in an order that does not depend on files; null is a value like others."""
    return sorted(rows, key=repr)


def set_age(path: Path, days: float) -> None:
    """Let a file be last written so many days ago, or ahead."""
    then = now_ms() / 1000 - days * 86_400
    os.utime(path, (then, then))


def commits(table: Path) -> list[int]:
    """The versions whose commits are in the log."""
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a commit."""
    text = (table / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def files(table: Path) -> set[str]:
    """Every file outside the log and our journal, below the table, without Hadoop's hidden checksums."""
    found = (path.relative_to(table) for path in table.rglob("*") if path.is_file())
    return {
        str(path)
        for path in found
        if path.parts[0] not in ("_delta_log", JOURNAL) and not is_checksum(path.name)
    }


def leftovers(table: Path) -> list[str]:
    """What our program leaves of a run that is over beside its record: nothing."""
    ours = [str(path) for path in table.rglob("*") if JOURNAL in path.parts and path.is_file()]
    return sorted(besides_history(ours))


@pytest.fixture(scope="session")
def delta_lake(
    recorder: Recorder, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> DeltaLake:
    """Delta Spark's tables."""
    spark = request.getfixturevalue("delta_spark") if recorder.live else None
    return DeltaLake(spark=spark, folder=tmp_path_factory.mktemp("delta"), recorder=recorder)


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """A process that is started once for all tests of a worker."""
    folder = tmp_path_factory.mktemp("delta_spark")
    spark = DeltaSpark(folder / "spark", settings_of_jvm(DELTA_JARS, folder))
    with starting("Delta Spark"):
        spark.sql("SELECT 1")
    yield spark
    spark.stop()

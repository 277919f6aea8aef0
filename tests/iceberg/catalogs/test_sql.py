"""The SQL catalog's own promises: other engines' rows, lost COMMITs, locks, and PyIceberg's configuration."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, TableNotFound, TakenOver, UsageError
from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table
from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter
from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.plan.report import Report
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import an_attempt, first_metadata, properties_of, set_property
from tests.cli.lakes import CatalogTable, catalog_table
from tests.conformance.catalogs import Catalog, execute, insert_row, make_table
from tests.paths import ROOT
from tests.servers import S3Server

STORAGE = open_storage()


@pytest.fixture
def sqlite(tmp_path: Path) -> Catalog:
    (tmp_path / "catalog.db").touch()
    return make_table(Catalog(kind="sql", folder=f"{tmp_path}/wh/t", uri=f"sqlite:///{tmp_path}/catalog.db"))


def row_of(catalog: Catalog) -> tuple[str, ...]:
    columns = "metadata_location, previous_metadata_location, iceberg_type"
    return tuple(execute(catalog.uri, f"SELECT {columns} FROM iceberg_tables WHERE table_name = 't'")[0])


# Other engines


def test_the_row_is_written_as_java_writes_it(sqlite: Catalog) -> None:
    committer = sqlite.open()
    first = committer.current()
    set_property(committer, STORAGE, "colour")
    assert row_of(sqlite) == (committer.current(), first, "TABLE")


def test_a_name_with_two_rows_is_not_used(sqlite: Catalog) -> None:
    execute(sqlite.uri, "CREATE TABLE copied AS SELECT * FROM iceberg_tables")
    execute(sqlite.uri, "DROP TABLE iceberg_tables")
    execute(sqlite.uri, "ALTER TABLE copied RENAME TO iceberg_tables")
    insert_row(sqlite.uri, f"{sqlite.folder}/metadata/00009-other.metadata.json", iceberg_type="TABLE")
    with pytest.raises(BackendUnavailable, match="its catalog has 2 rows for it"):
        sqlite.open().current()


def test_a_row_without_a_type_is_a_table_and_one_of_a_view_is_not(sqlite: Catalog) -> None:
    execute(sqlite.uri, "UPDATE iceberg_tables SET iceberg_type = NULL")
    set_property(sqlite.open(), STORAGE, "colour")
    assert row_of(sqlite)[2] is None
    attempt = an_attempt(sqlite.open(), STORAGE, {"colour": "blue"})
    execute(sqlite.uri, "UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    with pytest.raises(TableNotFound):
        sqlite.open().commit(attempt)


def test_other_tables_of_the_catalog_are_left_alone(sqlite: Catalog) -> None:
    insert_row(sqlite.uri, sqlite.open().current(), table="t2", iceberg_type="TABLE")
    before = execute(sqlite.uri, "SELECT * FROM iceberg_tables WHERE table_name = 't2'")
    set_property(sqlite.open(), STORAGE, "colour")
    assert execute(sqlite.uri, "SELECT * FROM iceberg_tables WHERE table_name = 't2'") == before


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_pyiceberg_and_we_commit_to_one_table_in_turns(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = f"sqlite:///{tmp_path}/cat.db" if kind == "sqlite" else request.getfixturevalue("postgres_database")
    theirs = SqlCatalog("cat", uri=uri, warehouse=f"file://{tmp_path}/wh")
    theirs.create_namespace("a.b")
    schema = Schema(NestedField(field_id=1, name="i", field_type=IntegerType(), required=False))
    theirs.create_table("a.b.t", schema, properties={"by": "pyiceberg"})
    ours = Catalog(kind="sql", folder="", uri=uri).open()
    set_property(ours, STORAGE, "first")
    table = theirs.load_table("a.b.t")
    assert table.properties == {"by": "pyiceberg", "first": "yes"}
    attempt = an_attempt(ours, STORAGE, {"refused": "yes"})
    with table.transaction() as transaction:
        transaction.set_properties(second="yes")
    assert isinstance(ours.commit(attempt), Conflict)
    assert isinstance(ours.settle(attempt), Conflict)
    set_property(ours, STORAGE, "third")
    table = theirs.load_table("a.b.t")
    assert table.properties == {"by": "pyiceberg", "first": "yes", "second": "yes", "third": "yes"}
    assert len(table.metadata.metadata_log) == 3
    assert ours.current().rpartition("/")[2].startswith("00003-")


def test_a_location_may_be_longer_than_the_column_says_where_the_database_does_not_care(
    tmp_path: Path,
) -> None:
    (tmp_path / "catalog.db").touch()
    elsewhere = "/".join([str(tmp_path), *["x" * 200] * 5])
    catalog = Catalog(kind="sql", folder=f"{tmp_path}/wh/t", uri=f"sqlite:///{tmp_path}/catalog.db")
    make_table(catalog, {"write.metadata.path": elsewhere})
    set_property(catalog.open(), STORAGE, "colour")
    assert len(row_of(catalog)[0]) > 1000
    assert properties_of(STORAGE, catalog.open())["colour"] == "yes"


def test_metadata_of_a_catalogs_table_may_be_in_s3(tmp_path: Path, versitygw: S3Server) -> None:
    storage = open_storage(versitygw.options)
    location = f"s3a://{versitygw.bucket}/{uuid.uuid4()}/t"
    first = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    storage.put_if_absent(first, first_metadata(location))
    (tmp_path / "catalog.db").touch()
    catalog = make_table(Catalog(kind="sql", folder=f"{tmp_path}/t", uri=f"sqlite:///{tmp_path}/catalog.db"))
    execute(catalog.uri, "UPDATE iceberg_tables SET metadata_location = :first", first=first)
    committer = catalog.open(storage)
    set_property(committer, storage, "colour")
    assert committer.current().startswith(f"{location}/metadata/00001-")
    assert properties_of(storage, committer) == {"colour": "yes"}


def test_two_spellings_of_a_location_are_one_when_history_is_read(sqlite: Catalog) -> None:
    committer = sqlite.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"}, fresh=False)
    committer.commit(attempt)
    set_property(committer, STORAGE, "later")
    other = f"file://{attempt.target}".replace("/metadata/", "//metadata/./")
    assert isinstance(committer.settle(dataclasses.replace(attempt, target=other)), Committed)


# Databases that do not answer


def test_a_lock_before_the_change_changes_nothing(sqlite: Catalog) -> None:
    committer = sqlite.open(wait_s=0)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    with sqlite3.connect(sqlite.uri.removeprefix("sqlite:///")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked"):
            committer.commit(attempt)
        assert isinstance(committer.commit(attempt), Unknown)  # now it is not the first try any more
    other.close()
    assert isinstance(committer.commit(attempt), Committed)


def test_a_commit_that_is_not_confirmed_is_unknown_and_can_be_sent_again(sqlite: Catalog) -> None:
    committer = sqlite.open(wait_s=0)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    other = sqlite3.connect(sqlite.uri.removeprefix("sqlite:///"))
    reading = other.execute("SELECT * FROM iceberg_tables UNION ALL SELECT * FROM iceberg_tables")
    reading.fetchone()  # a reader under way lets the change through and stops its COMMIT
    assert isinstance(committer.commit(attempt), Unknown)
    reading.close()
    other.close()
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(committer.commit(attempt), Committed)
    assert properties_of(STORAGE, committer) == {"ours": "yes"}


# Two processes with one operation


class Meeting:
    """A storage that passes every call on, and meets the other process around the put of a metadata file."""

    def __init__(self, *, before: Callable[[], object], after: Callable[[], object]) -> None:
        self.inside = open_storage()
        self.before = before
        self.after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if not path.endswith(".metadata.json"):
            self.inside.put_if_absent(path, data)
            return
        self.before()
        try:
            self.inside.put_if_absent(path, data)
        finally:
            self.after()


def opened(lake: CatalogTable, storage: Storage) -> IcebergTable:
    database = SqlDatabase(f"sqlite:///{lake.database}")
    committer = SqlCommitter(database, catalog_name="lake", namespace="shop", table="events", storage=storage)
    engine = LocalEngine(storage, threads=1)
    return IcebergTable(
        name=lake.name, storage=storage, committer=committer, engine=engine, on_event=lambda _: None
    )


def nothing() -> None:
    """There is nobody to meet."""


@pytest.mark.parametrize("second_swaps", ["after the first", "before the first"])
def test_one_who_resumes_on_another_host_never_deletes_the_metadata_file_that_the_catalog_points_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_swaps: str
) -> None:
    """Both send the same attempt; the first stands still before it writes the file, the second writes it."""
    lake = catalog_table(tmp_path, monkeypatch)
    for number in range(3):
        lake.append(number)
        time.sleep(0.002)
    now_ms = int(time.time() * 1000)  # noqa: TID251  (a test is a shell)
    at_the_put, written, first_done = threading.Event(), threading.Event(), threading.Event()

    def wait_for_the_first() -> None:
        written.set()
        if second_swaps == "after the first":
            assert first_done.wait(20)

    def let_the_second_write() -> None:
        at_the_put.set()
        assert written.wait(20)
        if second_swaps == "before the first":
            second_done.join(20)

    first = opened(lake, Meeting(before=let_the_second_write, after=nothing))
    second = opened(lake, Meeting(before=nothing, after=wait_for_the_first))
    shells = [
        system_runtime(on_event=lambda _: None, host=host, process_id=1)
        for host in ("one.example", "two.example")
    ]
    plan = VERBS["expire-snapshots"].plan(first, ExpireSnapshots(older_than=now_ms), as_of_ms=now_ms)
    reports: list[Report] = []

    def take_over() -> None:
        assert at_the_put.wait(20)
        [operation_id] = second.workspace.open_operations()
        reports.append(resume(second, operation_id, shells[1], verbs=VERBS))

    second_done = threading.Thread(target=take_over)
    second_done.start()
    with pytest.raises(TakenOver):
        apply(plan, first, VERBS[plan.plan.verb], shells[0])
    first_done.set()
    second_done.join(20)
    assert [report.status for report in reports] == ["done"]
    assert lake.ids() == [0, 1, 2]
    assert len(lake.snapshot_ids()) == 1


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("nonsense", UsageError),
        ("oracle9://x", UsageError),
        ("sqlite:////no/such/folder/catalog.db", BackendUnavailable),
        ("postgresql+psycopg://u:PASSWORD@127.0.0.1:9/db", BackendUnavailable),
        ("mysql+pymysql://u:PASSWORD@127.0.0.1:9/db", BackendUnavailable),
        ("mysql+pymysql://127.0.0.1:9/db?user=u&password=PASSWORD", BackendUnavailable),
    ],
)
def test_a_database_that_is_not_there_is_said_without_its_password(uri: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        SqlCommitter(
            SqlDatabase(uri, wait_s=1), catalog_name="c", namespace="n", table="t", storage=STORAGE
        ).current()
    assert "PASSWORD" not in str(caught.value)
    assert not Path("/no/such/folder").exists()


def test_a_password_among_a_uris_parameters_is_a_secret_too() -> None:
    uri = "mysql+pymysql://127.0.0.1/db?user=u&passwd=PASSWORD"
    assert SqlDatabase(uri).reason(OSError("no answer to PASSWORD")) == "no answer to ***"


@pytest.mark.parametrize("backend", ["mysql", "mariadb"])
def test_a_driver_that_is_not_installed_is_named(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("MySQLdb", "pymysql"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        SqlDatabase(f"{backend}://u@h/d")
    assert caught.value.next_step == "Install it with: pip install 'pymysql'"


# PyIceberg's configuration


def write_config(folder: Path, uri: str, more: str = "") -> str:
    path = folder / ".pyiceberg.yaml"
    path.write_text(f"catalog:\n  Cat:\n    type: sql\n    uri: {uri}\n{more}")
    return str(path)


def test_a_catalogs_table_is_found_by_its_configuration(sqlite: Catalog, tmp_path: Path) -> None:
    config = write_config(tmp_path, sqlite.uri, "    s3.endpoint: http://127.0.0.1:1\n")
    committer, options = open_catalog_table(
        "cat.a.b.t", catalogs=Catalogs(config), storage_options={"s3.region": "r"}
    )
    assert committer.current() == sqlite.open().current()
    assert not committer.takes_late_requests()
    assert {key: options[key] for key in ("s3.endpoint", "s3.region")} == {
        "s3.endpoint": "http://127.0.0.1:1",
        "s3.region": "r",
    }


ASK = (
    "from iceberg_cli.iceberg.catalogs.registry import *; print(open_catalog_table('cat.a.b.t')[0].current())"
)


@pytest.mark.parametrize("where", ["PYICEBERG_HOME", "home", "working folder", "environment"])
def test_the_configuration_is_where_pyiceberg_looks(where: str, sqlite: Catalog, tmp_path: Path) -> None:
    (tmp_path / "configured").mkdir()
    (tmp_path / "empty").mkdir()
    write_config(tmp_path / "configured", sqlite.uri)
    configured, empty = str(tmp_path / "configured"), str(tmp_path / "empty")
    repository = str(ROOT)
    environment = {"PATH": os.environ["PATH"], "HOME": empty, "PYTHONPATH": repository}
    match where:
        case "PYICEBERG_HOME":
            environment["PYICEBERG_HOME"] = configured
        case "home":
            environment["HOME"] = configured
        case "environment":
            environment["PYICEBERG_CATALOG__CAT__URI"] = sqlite.uri
    cwd = configured if where == "working folder" else empty
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert asked.stdout.strip() == sqlite.open().current(), asked.stderr


@pytest.mark.parametrize(
    ("name", "properties", "message"),
    [
        ("cat.t", "type: sql", "catalog.namespace.table"),
        ("cat..t", "type: sql", "catalog.namespace.table"),
        ("other.a.t", "type: sql", "not configured"),
        ("cat.a.t", "type: dynamodb", "its type dynamodb is not supported"),
        ("cat.a.t", "type: hive", "no uri"),
        ("cat.a.b.t", "uri: thrift://h", "no databases in databases"),
        ("cat.a.t", "type: sql", "no uri"),
        ("cat.a.t", "warehouse: w", "no type"),
        ("cat.a.t", "py-catalog-impl: no.such.Class", "No module named"),
        ("cat.a.t", "py-catalog-impl: Class", "Class cannot be imported"),
    ],
)
def test_what_cannot_be_opened_is_said(name: str, properties: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"catalog:\n  cat:\n    {properties}\n")
    with pytest.raises(UsageError, match=message):
        open_catalog_table(name, catalogs=Catalogs(f"{tmp_path}/config.yaml"))


@pytest.mark.parametrize("content", [None, b"catalog: [", b"\xff", b"- a", b"catalog: x"])
def test_a_configuration_that_cannot_be_read_is_said(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UsageError):
        open_catalog_table("cat.a.t", catalogs=Catalogs(f"{tmp_path}/config.yaml"))

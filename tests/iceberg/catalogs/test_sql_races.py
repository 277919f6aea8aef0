"""PyIceberg, Java's JdbcCatalog and we commit to the rows of one SQL catalog at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException

from tests.budget import FULL
from tests.cli.lakes import catalog_table, rows
from tests.cli.running import Ran, iceberg_cli, process
from tests.conformance.catalogs import Catalog, make_table
from tests.conformance.racing import race
from tests.database_proxy import jdbc_url_of_postgresql
from tests.rest_servers import DRIVERS, rest_server_over

# What PyIceberg says when another was faster: to an append, or to the expiry of what it is reading, or of what it began
# its append on.
NOT_APPENDED = (CommitFailedException, FileNotFoundError, ValidationException, sa.exc.OperationalError)
DATABASES = ["sqlite", "postgresql", "mariadb"]


def uri_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/catalog.db"
    uri: str = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    return uri


def a_catalog(kind: str, request: pytest.FixtureRequest, folder: Path) -> Catalog:
    """A table, and all tables of the database that PyIceberg or Java would make."""
    uri = uri_of(kind, request, folder)
    Path(folder, "catalog.db").touch()
    catalog = make_table(Catalog(kind="sql", folder=f"{folder}/wh/t", uri=uri))
    SqlCatalog("cat", uri=uri).engine.dispose()
    return catalog


@contextmanager
def javas(catalog: Catalog) -> Iterator[str]:
    """The URI of a REST server over Java's JdbcCatalog on the same database."""
    url = sa.make_url(catalog.uri)
    match url.get_backend_name():
        case "sqlite":
            with rest_server_over(f"jdbc:sqlite:{url.database}") as uri:
                yield uri
        case "postgresql":
            with (
                jdbc_url_of_postgresql(catalog.uri) as database,
                rest_server_over(database, DRIVERS) as uri,
            ):
                yield uri
        case _:
            database = f"jdbc:mariadb://127.0.0.1:{url.port}/{url.database}?user={url.username}"
            with rest_server_over(database, DRIVERS) as uri:
                yield uri


def test_pyiceberg_and_we_lose_no_commit(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    catalog = a_catalog("mariadb", request, tmp_path)
    assert race(catalog, writers=4, commits=5, by=("us", "pyiceberg")) > 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", DATABASES)
def test_pyiceberg_java_and_we_lose_no_commit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    catalog = a_catalog(kind, request, tmp_path)
    commits = 40 if FULL else 10
    with javas(catalog) as uri:
        assert race(catalog, writers=16, commits=commits, by=("us", "pyiceberg", "java"), rest_uri=uri) > 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", DATABASES)
def test_expiry_loses_no_row_of_those_who_append_meanwhile_and_no_file_of_a_snapshot_that_stays(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = uri_of(kind, request, tmp_path)
    lake = catalog_table(tmp_path, monkeypatch, appends=3, uri=uri)
    appended = threading.Event()

    def append(writer: int) -> None:
        theirs = SqlCatalog("lake", uri=uri)
        for number in range(25):
            while True:
                try:
                    theirs.load_table("shop.events").append(rows(1000 * writer + number))
                except NOT_APPENDED:
                    continue
                break
        theirs.engine.dispose()

    def expire() -> list[Ran]:
        runs = []
        while not appended.is_set():
            line = ("expire-snapshots", lake.name, "--older-than", "0s", "--retain-last", "1", "--yes")
            runs.append(process(*line))
        return runs

    with ThreadPoolExecutor() as pool:
        expiries = [pool.submit(expire) for _ in range(2)]
        writers = [pool.submit(append, writer) for writer in (1, 2, 3)]
        try:
            for each in writers:
                each.result()
        finally:
            appended.set()
        runs = [run for each in expiries for run in each.result()]
    assert [run for run in runs if run.code not in (0, 12)] == []
    assert any(run.code == 0 for run in runs)
    assert lake.ids() == [0, 1, 2, *(1000 * writer + number for writer in (1, 2, 3) for number in range(25))]
    for snapshot_id in lake.snapshot_ids():
        lake.ids(snapshot_id)
    checked = iceberg_cli("inspect", lake.name, "--check")
    assert checked.code == 0, checked.out + checked.err

"""No secret of a SQL catalog shows in what a command prints, logs or writes: see `test_secrets`.

Databases tell all that they were sent when they refuse a connection or lose a commit.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_cli.api import open_table
from tests.conformance.catalogs import execute
from tests.database_proxy import Proxy, through
from tests.markers import (
    EXPIRE,
    ICEBERG_COMMANDS,
    Markers,
    Watch,
    give_secrets,
    secret_properties,
    set_up_a_case,
)
from tests.servers import BY_FSSPEC
from tests.storage.test_s3_requests import Recorder, recorder
from tests.telling_databases import mysql_error, postgresql_error, telling_database
from tests.telling_storage import (
    STORAGE_FAILURES,
    StorageFailure,
    fail,
    in_xml,
    is_deletion,
    is_later_deletion,
)

__all__ = ["recorder"]
DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql"}


@dataclass(kw_only=True)
class Case(Watch):
    """A table of which data lies on S3, in a SQL catalog with secrets everywhere."""

    storage: Recorder

    @property
    def uri(self) -> str:
        """Of the catalog's database."""
        return str(self.properties["uri"])

    def connect_by(self, uri: str) -> None:
        """Give the catalog another URI."""
        self.properties["uri"] = uri

    def run_all(self) -> list[int]:
        return [self.run(*command) for command in ICEBERG_COMMANDS]

    def open(self) -> str:
        """Open the table by the Python API; the traceback where that fails."""
        return self.trace_of(lambda config: open_table(self.table, catalog_config=config))


@pytest.fixture
def case(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Case:
    """The table is in no database yet."""
    set_up_a_case(tmp_path, monkeypatch, caplog)
    markers = Markers()
    found = Case(markers=markers, folder=tmp_path, caplog=caplog, table="prod.shop.t", storage=recorder)
    found.properties = {
        "type": "sql",
        "s3.endpoint": recorder.endpoint,
        "s3.access-key-id": "own",
        "s3.region": "us-east-1",
        **secret_properties(markers),
    }
    give_secrets(found, monkeypatch)
    for name in ("PGPASSWORD", "MYSQL_PWD"):
        monkeypatch.setenv(name, markers.at(name))
    other = f"postgresql://user:{markers.at('password of another catalog')}@127.0.0.1:9/db"
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", other)
    return found


def make_table(case: Case, uri: str) -> None:
    """Write the table with three snapshots by PyIceberg, and have the catalog use this database."""
    theirs = {
        "s3.endpoint": case.storage.endpoint,
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "theirs",
    }
    catalog = SqlCatalog(
        "prod",
        uri=uri,
        warehouse=f"file://{case.folder}/t",
        **theirs,
        **{"s3.region": "us-east-1"},
        **BY_FSSPEC,
    )
    catalog.create_namespace("shop")
    properties = {"write.data.path": "s3://b/t/data", "format-version": "1"}
    table = catalog.create_table("shop.t", pa.schema([("i", pa.int64())]), properties=properties)
    for number in range(3):
        table.overwrite(pa.table({"i": [number]}))
    case.connect_by(uri)


def with_password(case: Case, uri: str) -> str:
    """The same database by a password, which has characters that a URI does not."""
    password = f"/@{case.markers.at('password in the URI')}:?%"
    return sa.make_url(uri).set(password=password).render_as_string(hide_password=False)


@pytest.fixture(
    params=["sqlite", *(pytest.param(each, marks=pytest.mark.deep) for each in ("postgresql", "mariadb"))]
)
def catalogued(request: pytest.FixtureRequest, case: Case) -> Iterator[Case]:
    """The table in a database that takes the password."""
    if request.param == "sqlite":
        make_table(case, f"sqlite:///{case.folder}/catalog.db")
        yield case
        return
    server = {"postgresql": "postgres", "mariadb": "mariadb"}[request.param]
    uri: str = request.getfixturevalue(f"{server}_database")
    make_table(case, uri)
    case.connect_by(with_password(case, uri))
    if request.param == "postgresql":
        yield case
        return
    url, name = sa.make_url(case.uri), f"keeper{uuid.uuid4().hex[:8]}@'127.0.0.1'"
    execute(
        uri, f"CREATE USER {name} IDENTIFIED BY '{url.password}'", f"GRANT ALL ON {url.database}.* TO {name}"
    )
    case.connect_by(url.set(username=name.partition("@")[0]).render_as_string(hide_password=False))
    yield case
    execute(uri, f"DROP USER {name}")


@pytest.mark.deep
def test_nothing_shows_where_all_goes_well(catalogued: Case) -> None:
    assert dict(zip(ICEBERG_COMMANDS, catalogued.run_all(), strict=True)) == dict.fromkeys(
        ICEBERG_COMMANDS, 0
    )
    assert catalogued.open() == ""


def test_nothing_shows_where_the_storage_refuses_deletions(catalogued: Case) -> None:
    fail(catalogued.storage, is_later_deletion, in_xml(403, "AccessDenied"))
    assert catalogued.run(*EXPIRE, "--yes", "--format=json") == 14
    assert catalogued.run("resume", "TABLE") == 14
    catalogued.run("resume", "TABLE", "--list")


@pytest.mark.deep
@pytest.mark.parametrize("failure", STORAGE_FAILURES)
def test_nothing_shows_where_the_storage_fails(case: Case, failure: StorageFailure) -> None:
    make_table(case, f"sqlite:///{case.folder}/catalog.db")
    fail(case.storage, is_deletion, failure)
    assert case.run(*EXPIRE, "--yes") in (14, 16)
    case.run("resume", "TABLE")


# Databases that refuse


Place = Callable[[Case, pytest.MonkeyPatch], str]
"""Puts a password somewhere; what a URI has behind `postgresql://` to use it, without the port."""


def in_the_uri(case: Case, _: pytest.MonkeyPatch) -> str:
    return f"user:{case.markers.at('password in the URI')}@127.0.0.1:PORT/db"


def percent_encoded(case: Case, _: pytest.MonkeyPatch) -> str:
    password = f"/@{case.markers.at('password in the URI')}:?%"
    return f"user:{quote(password, safe='')}@127.0.0.1:PORT/db"


def all_percent_encoded(case: Case, _: pytest.MonkeyPatch) -> str:
    encoded = "".join(f"%{ord(each):02X}" for each in case.markers.at("password in the URI"))
    case.markers.by_place["encoded password in the URI"] = encoded
    return f"user:{encoded}@127.0.0.1:PORT/db"


def in_the_query(case: Case, _: pytest.MonkeyPatch) -> str:
    return f"127.0.0.1:PORT/db?user=user&password={case.markers.at('password in the query')}"


def twice_in_the_query(case: Case, _: pytest.MonkeyPatch) -> str:
    first, second = (case.markers.at(f"{each} password in the query") for each in ("first", "second"))
    return f"user@127.0.0.1:PORT/db?password={first}&password={second}"


def by_the_environment(case: Case, _: pytest.MonkeyPatch) -> str:
    return "user@127.0.0.1:PORT/db"


def in_a_password_file(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("PGPASSWORD")
    file = case.folder / "given" / "pgpass"
    file.write_text(f"*:*:*:*:{case.markers.at('password in .pgpass')}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    return "user@127.0.0.1:PORT/db"


def in_a_service_file(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    file = case.folder / "given" / "pg_service.conf"
    file.write_text(f"[prod]\nuser=user\npassword={case.markers.at('password of a service')}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    return "127.0.0.1:PORT/db?service=prod"


def of_a_certificate(case: Case, _: pytest.MonkeyPatch) -> str:
    return f"user@127.0.0.1:PORT/db?sslpassword={case.markers.at('password of a certificate')}"


def in_an_option_file(case: Case, _: pytest.MonkeyPatch) -> str:
    file = case.folder / "given" / "my.cnf"
    file.write_text(f"[client]\nuser=user\npassword={case.markers.at('password in an option file')}\n")
    return f"127.0.0.1:PORT/db?read_default_file={file}"


PLACES: Final = [
    *(
        (backend, place)
        for backend in DRIVERS
        for place in (in_the_uri, percent_encoded, all_percent_encoded, in_the_query)
    ),
    *(
        ("postgresql", place)
        for place in (
            twice_in_the_query, by_the_environment, in_a_password_file, in_a_service_file, of_a_certificate,
        )
    ),
    ("mysql", in_an_option_file),
]  # fmt: skip


@pytest.mark.pairs
@pytest.mark.parametrize(("backend", "place"), PLACES)
def test_nothing_shows_where_a_password_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, backend: str, place: Place
) -> None:
    rest = place(case, monkeypatch)
    with telling_database(backend) as port:
        case.connect_by(f"{backend}+{DRIVERS[backend]}://{rest.replace('PORT', str(port))}")
        assert case.run("inspect", "TABLE", "--format=json") == 16
        assert "why" in case.open()


@pytest.mark.deep
@pytest.mark.parametrize(("backend", "by_variable"), [("postgresql", True), ("mysql", False)])
def test_nothing_shows_where_every_command_meets_a_database_that_refuses(
    case: Case, monkeypatch: pytest.MonkeyPatch, backend: str, by_variable: bool
) -> None:
    make_table(case, f"sqlite:///{case.folder}/catalog.db")
    case.run("plan", "TABLE", "expire-snapshots", *EXPIRE[2:], "--output=PLAN")
    with telling_database(backend) as port:
        uri = f"{backend}://{in_the_uri(case, monkeypatch).replace('PORT', str(port))}"
        case.connect_by(uri)
        if by_variable:
            del case.properties["uri"]
            monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        assert {*case.run_all()} == {16}
    # Now nobody is there.
    assert {*case.run_all()} == {16}
    for module in ("psycopg", "psycopg2", "pymysql", "MySQLdb"):
        monkeypatch.setitem(sys.modules, module, None)
    assert {*case.run_all()} == {2}


@pytest.mark.parametrize("backend", DRIVERS)
@pytest.mark.parametrize(
    "authority",
    [
        "user:{0}@{1}@127.0.0.1:9", "user:{0}@127.0.0.1:{1}@127.0.0.1:9", "user:{0}@{1}:{0}@127.0.0.1:9",
        "user:{0}/{1}@127.0.0.1:9", "user:{0}#{1}@127.0.0.1:port",
    ],
)  # fmt: skip
def test_nothing_shows_of_a_password_whose_characters_have_a_meaning_in_a_uri(
    case: Case, backend: str, authority: str
) -> None:
    first, second = case.markers.at("before"), case.markers.at("behind")
    case.connect_by(f"{backend}://{authority.format(first, second)}/db")
    assert case.run("inspect", "TABLE") in (2, 16)
    assert case.open()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("catalogued", "statement"),
    [("postgresql", "DELETE FROM iceberg_tables"), ("mariadb", "DROP TABLE iceberg_tables")],
    indirect=["catalogued"],
)
def test_nothing_shows_where_a_database_lacks_the_table(catalogued: Case, statement: str) -> None:
    catalogued.run("plan", "TABLE", "expire-snapshots", *EXPIRE[2:], "--output=PLAN")
    execute(catalogued.uri, statement)
    assert {*catalogued.run_all()} == {10}


@pytest.mark.deep
@pytest.mark.parametrize("deliver", [True, False], ids=["COMMIT arrives", "COMMIT is lost"])
@pytest.mark.parametrize("catalogued", ["postgresql", "mariadb"], indirect=True)
def test_nothing_shows_where_the_answer_to_a_commit_tells_the_password(
    catalogued: Case, deliver: bool
) -> None:
    url = sa.make_url(catalogued.uri)
    error = {"postgresql": postgresql_error, "mysql": mysql_error}[url.get_backend_name()]
    with closing(Proxy(catalogued.uri, deliver=deliver, error=error(f"why: {url.password}"))) as proxy:
        catalogued.connect_by(through(proxy, catalogued.uri))
        assert catalogued.run(*EXPIRE, "--yes", "--format=json") == (0 if deliver else 13)
        assert not proxy.armed
        catalogued.run("resume", "TABLE", "--list")
        catalogued.run("resume", "TABLE")

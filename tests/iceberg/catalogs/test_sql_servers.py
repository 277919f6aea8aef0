"""SQL catalogs on servers: locks, lost COMMITs, collations, and what MariaDB does otherwise than PostgreSQL."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import an_attempt, properties_of, set_property
from tests.conformance.catalogs import Catalog, execute, make_table
from tests.database_proxy import Proxy, through

STORAGE = open_storage()
SERVERS = ["postgresql", "mariadb"]


def a_table(kind: str, request: pytest.FixtureRequest, folder: Path, **properties: str) -> Catalog:
    uri = request.getfixturevalue(f"{'postgres' if kind == 'postgresql' else kind}_database")
    return make_table(Catalog(kind="sql", folder=f"{folder}/wh/t", uri=uri), properties)


@pytest.fixture(params=SERVERS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return a_table(request.param, request, tmp_path)


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return a_table("postgresql", request, tmp_path)


@pytest.fixture
def mariadb(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return a_table("mariadb", request, tmp_path)


def with_query(catalog: Catalog, **query: str) -> Catalog:
    """The same with other parameters of the connection."""
    url = sa.make_url(catalog.uri).update_query_dict(query)
    return dataclasses.replace(catalog, uri=url.render_as_string(hide_password=False))


def rows_of(catalog: Catalog) -> list[Any]:
    return execute(catalog.uri, "SELECT * FROM iceberg_tables")


class Meanwhile:
    """A storage that lets something happen after a metadata file was written, before the swap."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.inside = open_storage()
        self.then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.inside.put_if_absent(path, data)
        self.then()


# Answers that get lost


@pytest.fixture(params=[True, False], ids=["COMMIT arrives", "COMMIT is lost"])
def proxy(request: pytest.FixtureRequest, catalog: Catalog) -> Iterator[Proxy]:
    proxy = Proxy(catalog.uri, deliver=request.param)
    yield proxy
    proxy.close()


def test_a_lost_answer_to_commit_is_read_back(proxy: Proxy, catalog: Catalog) -> None:
    committer = dataclasses.replace(catalog, uri=through(proxy, catalog.uri)).open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    outcome = committer.commit(attempt)
    assert not proxy.armed
    assert isinstance(outcome, Committed if proxy.deliver else Unknown)
    assert isinstance(committer.commit(attempt), Committed)
    assert properties_of(STORAGE, catalog.open()) == {"ours": "yes"}


# Locks


def wait_for_a_lock(catalog: Catalog) -> None:
    """Until somebody waits for a lock in the catalog's database."""
    question = {
        "postgresql": "SELECT * FROM pg_locks WHERE NOT granted",
        "mysql": "SELECT * FROM information_schema.global_status"
        " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' AND variable_value > 0",
    }[sa.make_url(catalog.uri).get_backend_name()]
    for _ in range(600):
        if execute(catalog.uri, question):
            return
        time.sleep(0.05)
    pytest.fail("nobody waits")


# How the database or the connection was told to isolate transactions, where not by default.
ISOLATION = {
    "postgresql": {
        "repeatable read": {"options": "-c default_transaction_isolation=repeatable\\ read"},
        "serializable": {"options": "-c default_transaction_isolation=serializable"},
        "autocommit": {"autocommit": "true"},
    },
    "mariadb": {
        "read committed": {"init_command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"},
        "serializable": {"init_command": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"},
        "snapshot": {"init_command": "SET SESSION innodb_snapshot_isolation = ON"},
        "autocommit": {"autocommit": "true"},
    },
}


@pytest.mark.parametrize(
    ("kind", "isolation"), [(kind, level) for kind in SERVERS for level in ("", *ISOLATION[kind])]
)
def test_a_writer_that_waits_for_anothers_row_lock_is_refused_when_that_one_commits(
    kind: str, isolation: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    catalog = a_table(kind, request, tmp_path)
    attempt = an_attempt(catalog.open(), STORAGE, {"ours": "yes"})
    theirs = an_attempt(catalog.open(), STORAGE, {"theirs": "yes"})
    STORAGE.put_if_absent(theirs.file, theirs.data)
    outcomes: list[object] = []

    def others_lock() -> None:
        other.execute(sa.text("UPDATE iceberg_tables SET metadata_location = :l"), {"l": theirs.file})

    with sa.create_engine(catalog.uri, poolclass=sa.NullPool).begin() as other:
        committer = with_query(catalog, **ISOLATION[kind].get(isolation, {})).open(Meanwhile(others_lock))
        waiting = threading.Thread(target=lambda: outcomes.append(committer.commit(attempt)))
        waiting.start()
        wait_for_a_lock(catalog)
    waiting.join()
    assert isinstance(outcomes[0], Conflict)
    assert catalog.open().current() == theirs.file


def test_a_row_that_stays_locked_is_not_waited_for_without_end(catalog: Catalog) -> None:
    committer = catalog.open(wait_s=1)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    with sa.create_engine(catalog.uri, poolclass=sa.NullPool).connect() as other:
        other.execute(sa.text("SELECT * FROM iceberg_tables FOR UPDATE"))
        with pytest.raises(BackendUnavailable, match=r"(?i)lock (wait )?timeout"):
            committer.commit(attempt)
    assert isinstance(committer.commit(attempt), Committed)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("postgresql", "LOCK TABLE iceberg_tables IN ACCESS EXCLUSIVE MODE"),
        ("mariadb", "LOCK TABLES iceberg_tables WRITE"),
    ],
)
def test_a_table_that_stays_locked_is_not_waited_for_without_end(
    kind: str, statement: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    catalog = a_table(kind, request, tmp_path)
    committer = catalog.open(wait_s=1)
    committer.current()
    with sa.create_engine(catalog.uri, poolclass=sa.NullPool).connect() as other:
        other.execute(sa.text(statement))
        with pytest.raises(BackendUnavailable, match=r"(?i)lock (wait )?timeout"):
            committer.current()


@pytest.mark.parametrize("query", [{}, {"autocommit": "true"}], ids=["", "autocommit"])
def test_nobody_changes_the_row_between_our_look_at_it_and_our_change(
    catalog: Catalog, query: dict[str, str]
) -> None:
    tried = []

    def try_to_lock(*event: Any) -> None:
        if str(event[2]).startswith("UPDATE"):
            tried.append(event)
            with pytest.raises(sa.exc.OperationalError, match=r"(?i)lock"):
                execute(catalog.uri, "SELECT * FROM iceberg_tables FOR UPDATE NOWAIT")

    sa.event.listen(sa.Engine, "before_cursor_execute", try_to_lock)
    try:
        set_property(with_query(catalog, **query).open(), STORAGE, "colour")
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", try_to_lock)
    assert len(tried) == 1


def test_the_victim_of_a_deadlock_has_changed_nothing_and_is_refused(mariadb: Catalog) -> None:
    execute(mariadb.uri, "CREATE TABLE other (i INT)")
    committer = mariadb.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    theirs = an_attempt(mariadb.open(), STORAGE, {"theirs": "yes"})
    STORAGE.put_if_absent(theirs.file, theirs.data)
    outcomes: list[object] = []
    engine = sa.create_engine(mariadb.uri, poolclass=sa.NullPool)
    with engine.begin() as other:
        # The one that changed less is the victim.
        other.execute(sa.text("INSERT INTO other SELECT seq FROM seq_1_to_1000"))
        other.execute(sa.text("SELECT * FROM iceberg_tables LOCK IN SHARE MODE"))
        waiting = threading.Thread(target=lambda: outcomes.append(committer.commit(attempt)))
        waiting.start()
        wait_for_a_lock(mariadb)
        other.execute(sa.text("UPDATE iceberg_tables SET metadata_location = :l"), {"l": theirs.file})
    waiting.join()
    assert isinstance(outcomes[0], Conflict)
    assert mariadb.open().current() == theirs.file


# Databases that refuse


def test_a_database_that_only_reads_changes_nothing(postgres: Catalog) -> None:
    name = sa.make_url(postgres.uri).database
    attempt = an_attempt(postgres.open(), STORAGE, {"ours": "yes"})
    execute(postgres.uri, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(BackendUnavailable, match="read-only"):
        postgres.open().commit(attempt)
    assert isinstance(postgres.open().commit(dataclasses.replace(attempt, fresh=False)), Unknown)


@contextmanager
def a_user(catalog: Catalog, limits: str = "") -> Iterator[Catalog]:
    """The catalog as another user of MariaDB than root, who may change its rows."""
    url = sa.make_url(catalog.uri)
    execute(
        catalog.uri,
        f"CREATE OR REPLACE USER keeper@'127.0.0.1' IDENTIFIED BY 'PASSWORD' {limits}",
        f"GRANT SELECT, UPDATE ON {url.database}.* TO keeper@'127.0.0.1'",
    )
    uri = url.set(username="keeper", password="PASSWORD").render_as_string(hide_password=False)
    yield dataclasses.replace(catalog, uri=uri)
    execute(catalog.uri, "DROP USER keeper@'127.0.0.1'")


def test_a_replica_that_only_reads_changes_nothing(mariadb: Catalog) -> None:
    with a_user(mariadb) as catalog:
        attempt = an_attempt(catalog.open(), STORAGE, {"ours": "yes"})
        execute(mariadb.uri, "SET GLOBAL read_only = 1")
        try:
            with pytest.raises(BackendUnavailable, match="read-only"):
                catalog.open().commit(attempt)
            assert isinstance(catalog.open().commit(dataclasses.replace(attempt, fresh=False)), Unknown)
        finally:
            execute(mariadb.uri, "SET GLOBAL read_only = 0")
        assert isinstance(catalog.open().commit(attempt), Committed)


def test_a_server_that_takes_no_more_connections_or_another_password_says_so(mariadb: Catalog) -> None:
    with a_user(mariadb, "WITH MAX_USER_CONNECTIONS 1") as catalog:
        with sa.create_engine(catalog.uri, poolclass=sa.NullPool).connect():
            with pytest.raises(BackendUnavailable, match="max_user_connections") as caught:
                catalog.open().current()
            assert "PASSWORD" not in str(caught.value)
        other = dataclasses.replace(catalog, uri=catalog.uri.replace("PASSWORD", "MISTAKEN"))
        with pytest.raises(BackendUnavailable, match="Access denied") as caught:
            other.open().current()
        assert "MISTAKEN" not in str(caught.value)


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "InnoDB"])
def test_a_table_that_takes_no_change_back_is_only_read(mariadb: Catalog, engine: str) -> None:
    attempt = an_attempt(mariadb.open(), STORAGE, {"ours": "yes"})
    execute(mariadb.uri, f"ALTER TABLE iceberg_tables ENGINE = {engine}")
    before = rows_of(mariadb)
    committer = mariadb.open()
    assert committer.current() == attempt.base
    if engine == "InnoDB":
        assert committer.read_only_reason() is None
        return
    assert "without transactions" in str(mariadb.open().read_only_reason())
    with pytest.raises(Refused, match="without transactions"):
        committer.commit(attempt)
    assert rows_of(mariadb) == before


# What a database takes for the same


@pytest.mark.parametrize(
    ("column", "value"),
    [("catalog_name", "CAT"), ("table_namespace", "a.B"), ("table_name", "T"), ("table_name", "t ")],
)
def test_names_that_only_the_databases_collation_takes_for_ours_are_other_names(
    mariadb: Catalog, column: str, value: str
) -> None:
    own = execute(mariadb.uri, f"SELECT {column} FROM iceberg_tables")[0][0]
    attempt = an_attempt(mariadb.open(), STORAGE, {"ours": "yes"})
    execute(mariadb.uri, f"UPDATE iceberg_tables SET {column} = :value", value=value)
    before = rows_of(mariadb)
    assert execute(mariadb.uri, f"SELECT 1 FROM iceberg_tables WHERE {column} = :own", own=own)
    with pytest.raises(TableNotFound):
        mariadb.open().current()
    with pytest.raises(TableNotFound):
        mariadb.open().commit(attempt)
    assert rows_of(mariadb) == before


def test_a_row_that_is_renamed_before_the_swap_is_left_alone(mariadb: Catalog) -> None:
    def rename() -> None:
        execute(mariadb.uri, "UPDATE iceberg_tables SET table_name = 'T'")

    attempt = an_attempt(mariadb.open(), STORAGE, {"ours": "yes"})
    assert isinstance(mariadb.open(Meanwhile(rename)).commit(attempt), Conflict)
    assert rows_of(mariadb)[0][2:5] == ("T", attempt.base, None)


@pytest.mark.parametrize("other", [str.upper, "{} ".format])
def test_a_location_that_only_the_databases_collation_takes_for_the_base_is_another(
    mariadb: Catalog, other: Callable[[str], str]
) -> None:
    attempt = an_attempt(mariadb.open(), STORAGE, {"ours": "yes"})
    moved = other(attempt.base)
    matches = "SELECT 1 FROM iceberg_tables WHERE metadata_location = :moved"
    assert execute(mariadb.uri, matches, moved=moved)

    def move() -> None:
        execute(mariadb.uri, "UPDATE iceberg_tables SET metadata_location = :moved", moved=moved)

    assert isinstance(mariadb.open(Meanwhile(move)).commit(attempt), Conflict)
    assert rows_of(mariadb)[0][3:5] == (moved, None)


# Columns that are too short


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("postgresql", {}),
        ("mariadb", {}),
        ("mariadb", {"init_command": "SET SESSION sql_mode = ''"}),
        ("mariadb", {"init_command": "SET SESSION sql_mode = ''", "autocommit": "true"}),
    ],
)
def test_a_location_that_is_too_long_for_its_column_is_not_cut_off(
    kind: str, query: dict[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    elsewhere = "/".join([str(tmp_path), *["x" * 200] * 5])
    catalog = a_table(kind, request, tmp_path, **{"write.metadata.path": elsewhere})
    before = rows_of(catalog)
    committer = with_query(catalog, **query).open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    with pytest.raises(BackendUnavailable, match=r"(?i)too long|cannot hold"):
        committer.commit(attempt)
    assert rows_of(catalog) == before
    execute(catalog.uri, WIDER[kind])
    assert isinstance(committer.commit(attempt), Committed)
    assert rows_of(catalog)[0][3:5] == (attempt.file, attempt.base)


WIDER = {
    "postgresql": "ALTER TABLE iceberg_tables ALTER metadata_location TYPE VARCHAR(4000)",
    "mariadb": "ALTER TABLE iceberg_tables MODIFY metadata_location VARCHAR(4000)",
}


def test_a_previous_location_that_is_too_long_for_its_column_is_not_cut_off(mariadb: Catalog) -> None:
    execute(mariadb.uri, "ALTER TABLE iceberg_tables MODIFY previous_metadata_location VARCHAR(10)")
    before = rows_of(mariadb)
    lax = with_query(mariadb, init_command="SET SESSION sql_mode = ''")
    with pytest.raises(BackendUnavailable, match="previous_metadata_location"):
        set_property(lax.open(), STORAGE, "colour")
    assert rows_of(mariadb) == before


# Drivers


@pytest.mark.parametrize(
    ("kind", "driver", "plain"),
    [
        ("postgresql", "postgresql+psycopg:", "postgresql:"),
        ("mariadb", "mysql+pymysql:", "mysql:"),
        ("mariadb", "mysql+pymysql:", "mariadb:"),
        ("mariadb", "mysql+pymysql:", "mariadb+pymysql:"),
    ],
)
def test_a_uri_without_a_driver_finds_one(
    kind: str, driver: str, plain: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    catalog = a_table(kind, request, tmp_path)
    assert driver in catalog.uri
    short = dataclasses.replace(catalog, uri=catalog.uri.replace(driver, plain))
    set_property(short.open(), STORAGE, "colour")
    assert properties_of(STORAGE, catalog.open()) == {"colour": "yes"}

"""Hive Metastore's own promises: entries of others, locks, expectations, and what survives a commit."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hive_metastore import ttypes as types
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import iceberg_cli as ic
from iceberg_cli.errors import BackendUnavailable, CommitStateUnknown, TableNotFound
from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection, HiveSession, Server
from iceberg_cli.iceberg.catalogs.hive.committer import HiveCommitter
from iceberg_cli.iceberg.catalogs.hive.entry import HiveEntry
from iceberg_cli.iceberg.catalogs.hive.lock import TableLock
from iceberg_cli.iceberg.catalogs.hive.proof import why_unproved
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import an_attempt, first_metadata, properties_of, set_property
from iceberg_cli.testing.conformance.faults import FaultyCommitter
from tests.budget import FULL
from tests.cli.lakes import CatalogTable, catalog_table
from tests.cli.running import JSON, iceberg_cli
from tests.conformance.catalogs import Catalog
from tests.conformance.racing import race
from tests.hive_server import HIVE_3, HIVE_4_0_0, HiveMetastore, Release, java_over, make_entry, running_hive
from tests.spark_tables.lake import Lake

pytestmark = pytest.mark.deep
STORAGE = open_storage()
OF_EACH_COMMIT = ("metadata_location", "previous_metadata_location", "transient_lastDdlTime")
_ALL_LOCKED = "iceberg.engine.hive.lock-enabled"


@dataclasses.dataclass(frozen=True)
class Table:
    """An Iceberg table without snapshots, `t` of a database of its own."""

    hive: HiveMetastore
    database: str
    location: str  # of its first metadata

    def open(self, **properties: str) -> HiveCommitter:
        return HiveCommitter(
            self.hive.connection(**properties), database=self.database, table="t", storage=STORAGE
        )

    def entry(self) -> HiveEntry:
        with self.hive.connection().session() as session:
            return session.entry(self.database, "t", "t")


def a_table(
    hive: HiveMetastore, folder: Path, properties: dict[str, str] | None = None, **more: Any
) -> Table:
    location = f"{folder}/wh/t/metadata/00000-first.metadata.json"
    STORAGE.put_if_absent(location, first_metadata(f"{folder}/wh/t", properties))
    database = hive.database()
    make_entry(hive, database, "t", location, **more)
    return Table(hive, database, location)


@pytest.fixture
def table(hive: HiveMetastore, tmp_path: Path) -> Table:
    return a_table(hive, tmp_path)


# What is kept in the entry


def test_all_that_is_not_of_the_commit_stays_as_it_is(hive: HiveMetastore, tmp_path: Path) -> None:
    parameters = {"of another tool": "ü and \t", "numFiles": "3", "COLUMN_STATS_ACCURATE": "x"}
    table = a_table(
        hive,
        tmp_path,
        parameters=parameters,
        privileges=types.PrincipalPrivilegeSet(
            userPrivileges={"the owner": [types.PrivilegeGrantInfo("SELECT", 1, "x", 1, True)]}
        ),
        partitionKeys=[types.FieldSchema(name="p", type="string", comment="of Hive")],
        ownerType=2,
    )
    before = table.entry()
    set_property(table.open(), STORAGE, "colour")
    after = table.entry()
    changed = {
        number
        for (number, _, value), (_, _, other) in zip(before.raw.fields, after.raw.fields, strict=True)
        if value != other
    }
    assert changed == {9}  # the parameters
    assert after.parameters == {
        **before.parameters,
        "metadata_location": table.open().current(),
        "previous_metadata_location": table.location,
        "colour": "yes",
    }
    assert after.parameters.items() >= parameters.items()


def test_statistics_of_columns_survive(table: Table) -> None:
    statistics = types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(isTblLevel=True, dbName=table.database, tableName="t"),
        statsObj=[
            types.ColumnStatisticsObj(
                colName="i",
                colType="int",
                statsData=types.ColumnStatisticsData(
                    longStats=types.LongColumnStatsData(lowValue=1, highValue=9, numNulls=2, numDVs=5)
                ),
            )
        ],
        engine="hive",
    )
    request = types.TableStatsRequest(dbName=table.database, tblName="t", colNames=["i"], engine="hive")
    with table.hive.connection().session() as session:
        session.client.update_table_column_statistics_req(
            types.SetPartitionsStatsRequest([statistics], engine="hive")
        )
        before = session.client.get_table_statistics_req(request).tableStats
        assert [each.statsData.longStats.highValue for each in before] == [9]
        set_property(table.open(), STORAGE, "colour")
        assert session.client.get_table_statistics_req(request).tableStats == before


# Entries that are no Iceberg tables


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"parameters": {"table_type": "HUDI"}}, "its table_type is HUDI"),
        ({"parameters": {"table_type": "ICEBERG-VIEW"}}, "its table_type is ICEBERG-VIEW"),
        ({"parameters": {"metadata_location": ""}}, "no metadata_location"),
        ({"tableType": "VIRTUAL_VIEW", "viewOriginalText": "SELECT 1"}, "it is a view"),
    ],
)
def test_an_entry_that_is_no_iceberg_table_is_not_found(
    more: dict[str, Any], reason: str, hive: HiveMetastore, tmp_path: Path
) -> None:
    table = a_table(hive, tmp_path, **more)
    with pytest.raises(TableNotFound, match=reason):
        table.open().current()


def test_an_encrypted_table_is_only_read(hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(hive, tmp_path, parameters={"encryption.key-id": "k", "metadata_hash": "h"})
    reason = table.open().read_only_reason()
    assert reason is not None
    assert "encryption.key-id" in reason
    before = table.entry()
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert outcome.for_good
    assert "encryption.key-id" in outcome.reason
    # Of an earlier try nothing is known.
    assert isinstance(table.open().commit(dataclasses.replace(attempt, fresh=False)), Unknown)
    assert table.entry() == before


def test_a_table_that_is_not_there_is_not_found_with_those_nearly_named_so(table: Table) -> None:
    make_entry(table.hive, table.database, "events", table.location)
    committer = HiveCommitter(
        table.hive.connection(), database=table.database, table="event", storage=STORAGE
    )
    with pytest.raises(TableNotFound, match="events"):
        committer.current()
    elsewhere = HiveCommitter(table.hive.connection(), database="nowhere", table="t", storage=STORAGE)
    with pytest.raises(TableNotFound):
        elsewhere.current()


# Locks


def lock_of_another(table: Table) -> int:
    with table.hive.connection().session() as session:
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=table.database,
            tablename="t",
        )
        request = types.LockRequest(component=[component], user="another", hostname="there")
        answer = session.client.lock(request)
        assert answer.state == types.LockState.ACQUIRED
        return int(answer.lockid)


def locks(table: Table) -> list[Any]:
    with table.hive.connection().session() as session:
        request = types.ShowLocksRequest(dbname=table.database, tablename="t")
        return list(session.client.show_locks(request).locks)


def test_a_commit_lets_go_of_its_lock(table: Table) -> None:
    set_property(table.open(), STORAGE, "colour")
    assert locks(table) == []


def test_a_lock_that_another_keeps_is_named_and_nothing_is_sent(table: Table) -> None:
    number = lock_of_another(table)
    committer = table.open(**{"lock-check-retries": "3", "lock-check-min-wait-time": "0.01"})
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    with pytest.raises(BackendUnavailable, match=f"lock {number} of another on there holds its lock"):
        committer.commit(attempt)
    assert [each.lockid for each in locks(table)] == [number]
    assert committer.current() == table.location


def test_a_lock_that_is_let_go_meanwhile_is_waited_for(table: Table) -> None:
    number = lock_of_another(table)
    attempt = an_attempt(table.open(), STORAGE, {"colour": "red"})

    class LetsGo(HiveConnection):
        """Whose second session is that of the lock."""

        def seconds(self, key: str, default: float, *, unit_s: float = 1) -> float:
            if key == "lock-check-min-wait-time":
                with self.session() as session:
                    session.client.unlock(types.UnlockRequest(lockid=number))
            return super().seconds(key, default, unit_s=unit_s)

    connection = LetsGo("cat", {"uri": table.hive.uri})
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    assert isinstance(committer.commit(attempt), Committed)
    assert locks(table) == []


class Moves(HiveConnection):
    """Whose lock is asked for once another writer was faster, who did not wait for the lock of a third one."""

    def __init__(self, table: Table, *, locks: bool) -> None:
        super().__init__("cat", {"uri": table.hive.uri})
        self.other = table.open(**{_ALL_LOCKED: str(locks)})

    def seconds(self, key: str, default: float, *, unit_s: float = 1) -> float:
        if key == "lock-check-min-wait-time":
            set_property(self.other, STORAGE, "theirs")
        return super().seconds(key, default, unit_s=unit_s)


class Loses(HiveConnection):
    """Whose lock is gone once the table was looked at under it."""

    def __init__(self, table: Table) -> None:
        super().__init__("cat", {"uri": table.hive.uri})
        self.table = table

    def session(self, server: Server | None = None) -> HiveSession:
        session = super().session(server)
        look = session.entry

        def lose(*names: str) -> HiveEntry:
            for each in locks(self.table):
                session.client.unlock(types.UnlockRequest(lockid=each.lockid))
            return look(*names)

        session.entry = lose  # type: ignore[method-assign]
        return session


class Alters(HiveConnection):
    """Whose change of an entry goes as a test says.

    Args:
        table: of the metastore.
        how: gets the session, and what sends the change and waits for the answer.
        properties: of the catalog.
    """

    def __init__(
        self, table: Table, how: Callable[[HiveSession, Callable[[], None]], None], **properties: str
    ) -> None:
        super().__init__("cat", {"uri": table.hive.uri, **properties})
        self.how = how

    def session(self, server: Server | None = None) -> HiveSession:
        session = super().session(server)
        alter = session.alter

        def altered(entry: HiveEntry, *, expected: Mapping[str, str]) -> None:
            self.how(session, lambda: alter(entry, expected=expected))

        session.alter = altered  # type: ignore[method-assign]
        return session


def let_go(table: Table) -> None:
    """Let all locks of a table lapse."""
    with table.hive.connection().session() as session:
        for each in locks(table):
            session.client.unlock(types.UnlockRequest(lockid=each.lockid))


def test_a_commit_is_none_where_another_writer_got_the_lock_and_replaced_it(table: Table) -> None:
    theirs = an_attempt(table.open(), STORAGE, {"theirs": "yes"})
    STORAGE.put_if_absent(theirs.file, theirs.data)
    connection = table.hive.connection()

    def lose(_: HiveSession, send: Callable[[], None]) -> None:
        let_go(table)
        with connection.session() as other, TableLock(connection, other, table.database, "t", "theirs"):
            entry = other.entry(table.database, "t", "theirs")
            send()
            # As Java does under a lock: with no word of what it had seen.
            changed = entry.with_parameters({**entry.parameters, "metadata_location": theirs.file})
            nothing = types.EnvironmentContext(properties={})
            other.client.alter_table_with_environment_context(table.database, "t", changed.raw, nothing)

    committer = HiveCommitter(Alters(table, lose), database=table.database, table="t", storage=STORAGE)
    outcome = committer.commit(an_attempt(committer, STORAGE, {"ours": "yes"}))
    assert isinstance(outcome, Conflict)
    assert not outcome.may_arrive
    assert properties_of(STORAGE, table.open()) == {"theirs": "yes"}


def test_a_commit_whose_lock_another_writer_got_is_unknown_until_that_one_lets_go(table: Table) -> None:
    def lose(_: HiveSession, send: Callable[[], None]) -> None:
        let_go(table)
        lock_of_another(table)
        send()

    connection = Alters(table, lose, **{"lock-check-retries": "1", "lock-check-min-wait-time": "0.01"})
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    (outcome, again) = committer.commit(attempt), committer.settle(attempt)
    (held,) = locks(table)
    for each in (outcome, again):
        assert isinstance(each, Unknown)
        assert each.may_be_replaced
        assert f"lock {held.lockid} of another on there holds its lock" in each.cause
    let_go(table)
    assert table.open().settle(dataclasses.replace(attempt, fresh=False)) == Committed(
        metadata_location=attempt.file
    )
    assert locks(table) == []


@pytest.mark.parametrize(("is_proved", "is_in"), [(False, False), (True, False), (False, True)])
def test_a_lock_is_kept_while_a_request_without_an_answer_may_replace_other_commits(
    table: Table, *, is_proved: bool, is_in: bool
) -> None:
    def cut(session: HiveSession, send: Callable[[], None]) -> None:
        if is_in:
            send()
        session._transport.close()
        raise ConnectionResetError("cut off")

    connection = Alters(table, cut)
    if is_proved:
        connection.unproved[connection.servers[0], table.database] = None
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    outcome = committer.commit(attempt)
    left = [each.lockid for each in locks(table)]
    if is_in:
        assert outcome == Committed(metadata_location=attempt.file)
    else:
        assert isinstance(outcome, Unknown)
        assert [f"its lock {each} is left to lapse" in outcome.cause for each in left] == [True] * len(left)
    assert len(left) == (0 if is_in or is_proved else 1)
    let_go(table)
    assert isinstance(table.open().commit(dataclasses.replace(attempt, fresh=False)), Committed)


def test_a_lock_is_let_go_behind_a_request_without_an_answer_where_its_connection_holds(table: Table) -> None:
    def lose(session: HiveSession, send: Callable[[], None]) -> None:
        session.client.recv_alter_table_with_environment_context = time_out
        send()

    def time_out() -> None:
        raise TimeoutError("no answer")

    committer = HiveCommitter(Alters(table, lose), database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    STORAGE.put_if_absent(attempt.file, attempt.data)
    swapped = committer._swap(attempt)
    assert isinstance(swapped, Unknown)
    assert "left to lapse" not in swapped.cause
    assert committer.commit(attempt) == Committed(metadata_location=attempt.file)
    assert locks(table) == []


def test_nothing_is_sent_once_the_lock_is_lost(table: Table) -> None:
    committer = HiveCommitter(Loses(table), database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    with pytest.raises(BackendUnavailable, match="its lock in the metastore is lost"):
        committer.commit(attempt)
    assert table.open().current() == table.location


def test_a_lock_is_not_waited_for_once_the_table_has_moved(table: Table) -> None:
    number = lock_of_another(table)
    attempt = an_attempt(table.open(), STORAGE, {"colour": "red"})

    connection = Moves(table, locks=False)
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    assert isinstance(committer.commit(attempt), Conflict)
    assert [each.lockid for each in locks(table)] == [number]


def test_a_lock_that_was_lost_protects_nothing(table: Table) -> None:
    connection = table.hive.connection()
    with connection.session() as session:
        with TableLock(connection, session, table.database, "t", "cat.d.t") as lock:
            lock.ensure()
            (held,) = locks(table)
            assert held.agentInfo.startswith("iceberg-cli-")
            with connection.session() as other:
                other.client.unlock(types.UnlockRequest(lockid=held.lockid))
            with pytest.raises(BackendUnavailable, match="is lost"):
                lock.ensure()
        assert locks(table) == []


def test_heartbeats_keep_a_lock_alive_and_tell_when_it_is_gone(table: Table) -> None:
    connection = table.hive.connection(**{"iceberg.hive.lock-heartbeat-interval-ms": "20"})
    with (
        connection.session() as session,
        TableLock(connection, session, table.database, "t", "cat.d.t") as lock,
    ):
        (held,) = locks(table)
        until = time.monotonic() + 60
        while locks(table)[0].lastheartbeat == held.lastheartbeat:
            assert time.monotonic() < until
        with connection.session() as other:
            other.client.unlock(types.UnlockRequest(lockid=held.lockid))
        lock._heart.join()
        with pytest.raises(BackendUnavailable, match="is lost"):
            lock.ensure()


def test_a_lock_whose_number_was_lost_with_the_answer_is_found_and_let_go(table: Table) -> None:
    connection = table.hive.connection()
    with connection.session() as session:
        lock = TableLock(connection, session, table.database, "t", "cat.d.t")
        asking = session.client.lock

        def lose(request: Any) -> Any:
            asking(request)
            raise ConnectionResetError("the answer is lost")

        session.client.lock = lose
        with pytest.raises(BackendUnavailable, match="the answer is lost"), lock:
            pass
    assert locks(table) == []


def test_a_metastore_without_the_tables_of_locks_says_what_it_lacks(
    mariadb_server: str, tmp_path: Path
) -> None:
    with running_hive(mariadb_server, without=("HIVE_LOCKS",)) as hive:
        table = a_table(hive, tmp_path)
        committer = table.open()
        attempt = an_attempt(committer, STORAGE, {"colour": "red"})
        with pytest.raises(BackendUnavailable) as caught:
            committer.commit(attempt)
        assert "Cannot lock" in caught.value.message
        assert "HIVE_LOCKS" in caught.value.next_step
        assert committer.current() == table.location
        # Without locks it goes.
        set_property(table.open(**{_ALL_LOCKED: "false"}), STORAGE, "colour")


# Without a lock


def test_a_commit_without_a_lock_is_by_the_tables_word(hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(hive, tmp_path, {"engine.hive.lock-enabled": "false"})
    lock_of_another(table)  # which it does not look at
    set_property(table.open(), STORAGE, "colour")
    assert properties_of(STORAGE, table.open()).keys() == {"engine.hive.lock-enabled", "colour"}


def test_the_tables_word_comes_before_the_catalogs(hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(hive, tmp_path, {"engine.hive.lock-enabled": "true"})
    lock_of_another(table)
    committer = table.open(**{_ALL_LOCKED: "false", "lock-check-retries": "1"})
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    with pytest.raises(BackendUnavailable, match="holds its lock"):
        committer.commit(attempt)


@pytest.mark.parametrize(
    ("key", "value"),
    [(_ALL_LOCKED, "no"), (_ALL_LOCKED, "0"), (_ALL_LOCKED, ""), ("iceberg.hive.lock-enabled", "false")],
)
def test_a_catalog_whose_writers_lock_by_javas_rule_is_locked(table: Table, key: str, value: str) -> None:
    """Java takes what is neither true nor false for its default, and reads no other key."""
    lock_of_another(table)
    committer = table.open(**{key: value, "lock-check-retries": "1"})
    with pytest.raises(BackendUnavailable, match="holds its lock"):
        committer.commit(an_attempt(committer, STORAGE, {"colour": "red"}))


def test_what_a_server_holds_is_tried_on_an_entry_that_goes_again(table: Table) -> None:
    connection = table.hive.connection()
    assert not connection.is_proved(table.database)
    with connection.session() as session:
        assert why_unproved(connection, session, table.database) is None
        assert session.tables(table.database) == ["t"]
    assert connection.is_proved(table.database)
    assert not connection.is_proved("another")


def test_another_writers_expectation_is_refused_in_words_that_are_known(table: Table) -> None:
    with table.hive.connection().session() as session:
        entry = session.entry(table.database, "t", "t")
        changed = entry.with_parameters({**entry.parameters, "metadata_location": "mine"})
        with pytest.raises(types.MetaException, match="The table has been modified"):
            session.alter(changed, expected={"metadata_location": "other"})
    assert table.entry() == entry


# Outcomes


def test_a_base_that_has_moved_is_a_conflict_and_nothing_is_sent(table: Table) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    set_property(table.open(), STORAGE, "theirs")
    assert isinstance(committer.commit(attempt), Conflict)
    # A late request of the one that was resumed is refused too: whether this server does that is tried.
    late = table.open()
    assert late.takes_late_requests()
    resumed = late.settle(dataclasses.replace(attempt, fresh=False))
    assert isinstance(resumed, Conflict)
    assert not resumed.may_arrive
    assert not late.takes_late_requests()


def test_a_table_that_was_dropped_meanwhile_says_nothing_about_an_earlier_try(table: Table) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    with table.hive.connection().session() as session:
        session.client.drop_table(table.database, "t", False)
    resumed = dataclasses.replace(attempt, fresh=False)
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(committer.commit(resumed), Unknown)
    with pytest.raises(TableNotFound):
        table.open().commit(attempt)


def test_a_location_that_a_metastore_may_not_hold_changes_nothing(
    hive: HiveMetastore, tmp_path: Path
) -> None:
    table = a_table(hive, tmp_path, {"write.metadata.path": f"{tmp_path}/\N{SNOWMAN}"})
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    with pytest.raises(BackendUnavailable, match="a metastore may"):
        committer.commit(attempt)
    assert table.open().current() == table.location


# Connections


def test_the_next_server_of_the_uri_answers_where_the_first_does_not(table: Table) -> None:
    connection = HiveConnection("cat", {"uri": f"thrift://127.0.0.1:1,{table.hive.uri}"})
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    assert committer.current() == table.location


def test_a_user_is_named_where_the_configuration_has_one(table: Table) -> None:
    connection = table.hive.connection(ugi="somebody:group")
    with (
        connection.session() as session,
        TableLock(connection, session, table.database, "t", "cat.d.t"),
    ):
        assert [each.user for each in locks(table)] == ["somebody"]


# A metastore that does not look at expectations


@pytest.fixture(scope="module")
def old_hive(mariadb_server: str) -> Iterator[HiveMetastore]:
    with running_hive(mariadb_server, HIVE_3) as found:
        yield found


def test_an_old_metastore_is_written_to_under_a_lock(old_hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(old_hive, tmp_path)
    before = table.entry()
    set_property(table.open(), STORAGE, "colour")
    after = table.entry()
    others = [field for field in before.raw.fields if field[0] != 9]
    assert [field for field in after.raw.fields if field[0] != 9] == others
    assert after.parameters["previous_metadata_location"] == table.location
    assert locks(table) == []


def test_a_writer_who_locked_before_us_is_not_overwritten(old_hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(old_hive, tmp_path)
    connection = Moves(table, locks=True)
    committer = HiveCommitter(connection, database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"colour": "red"})
    assert isinstance(committer.commit(attempt), Conflict)
    assert properties_of(STORAGE, table.open()) == {"theirs": "yes"}


def test_it_is_unknown_what_an_old_metastore_does_with_a_request_that_it_did_not_answer(
    old_hive: HiveMetastore, tmp_path: Path
) -> None:
    """Wherever the table went: the request replaces what others committed meanwhile, whatever it expects."""
    table = a_table(old_hive, tmp_path)

    def cut(session: HiveSession, _send: Callable[[], None]) -> None:
        session._transport.close()
        raise ConnectionResetError("cut off")

    committer = HiveCommitter(Alters(table, cut), database=table.database, table="t", storage=STORAGE)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    assert isinstance(committer.commit(attempt), Unknown)
    let_go(table)
    set_property(table.open(), STORAGE, "theirs")
    for outcome in (
        committer.settle(attempt),
        table.open().settle(dataclasses.replace(attempt, fresh=False)),
    ):
        assert isinstance(outcome, Unknown)
        assert outcome.may_be_replaced
        assert "may still carry it out" in outcome.cause
    with table.hive.connection().session() as session:
        entry = session.entry(table.database, "t", "late")
        late = entry.with_parameters({**entry.parameters, "metadata_location": attempt.file})
        session.alter(late, expected={"metadata_location": attempt.base})
    assert committer.settle(attempt) == Committed(metadata_location=attempt.file)


@pytest.mark.parametrize(
    ("release", "reason"), [(HIVE_3, "HIVE-26882"), (HIVE_4_0_0, "HIVE-28121")], ids=["3.1.3", "4.0.0"]
)
def test_a_metastore_that_does_not_hold_expectations_is_refused_without_a_lock(
    release: Release,
    reason: str,
    request: pytest.FixtureRequest,
    mariadb_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as stack:
        if release is HIVE_3:
            hive: HiveMetastore = request.getfixturevalue("old_hive")
        else:
            hive = stack.enter_context(running_hive(mariadb_server, release))
        table = a_table(hive, tmp_path, {"engine.hive.lock-enabled": "false"})
        committer = table.open()
        attempt = an_attempt(committer, STORAGE, {"colour": "red"})
        outcome = committer.commit(attempt)
        assert isinstance(outcome, Conflict)
        assert outcome.for_good
        assert reason in outcome.reason
        assert committer.current() == table.location
        monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__URI", hive.uri)
        name = f"hive.{table.database}.t"
        for _ in range(2):
            ran = iceberg_cli("upgrade-v3", name, "--yes", *JSON)
            assert ran.code == 11
            assert reason in ran.json["message"]
        assert iceberg_cli("resume", name, "--list", *JSON).json["operations"] == []
        with hive.connection().session() as session:
            assert session.tables(table.database) == ["t"]


def test_a_server_is_proved_by_itself_where_the_uri_has_several(
    table: Table, old_hive: HiveMetastore
) -> None:
    with old_hive.connection().session() as session:
        session.client.create_database(
            types.Database(name=table.database, locationUri=f"file:{old_hive.folder}/d")
        )
    connection = HiveConnection("cat", {"uri": f"{table.hive.uri},{old_hive.uri}"})
    new, old = connection.servers
    with connection.session() as first, connection.session(old) as second:
        assert first.server == new
        assert why_unproved(connection, first, table.database) is None
        assert not connection.is_proved(table.database)
        assert "HIVE-26882" in str(why_unproved(connection, second, table.database))
        assert why_unproved(connection, first, table.database) is None


# Java beside us


@pytest.mark.parametrize("locked", ["true", "false"])
def test_java_and_we_lose_no_commit(locked: str, hive: HiveMetastore, tmp_path: Path) -> None:
    table = a_table(hive, tmp_path, {"engine.hive.lock-enabled": locked})
    catalog = Catalog(kind="hive", folder=f"{tmp_path}/wh/t", uri=hive.uri, database=table.database)
    with java_over(hive) as uri:
        assert race(catalog, writers=8, commits=20 if FULL else 5, by=("us", "java"), rest_uri=uri) > 0


@pytest.mark.jvm
def test_spark_and_we_lose_no_commit(
    live_lakes: dict[str, Lake], old_hive: HiveMetastore, tmp_path: Path
) -> None:
    """Spark's client of Hive 2.3 gets no answer of newer metastores; with this one the lock is all that protects."""
    table, spark = a_table(old_hive, tmp_path), live_lakes["hadoop"].spark
    theirs = f"spark.sql.catalog.{table.database}"
    spark.conf.set(theirs, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"type": "hive", "uri": old_hive.uri, "cache-enabled": "false"}.items():
        spark.conf.set(f"{theirs}.{key}", value)
    writers, commits = 8, 40 if FULL else 5

    def alter(name: str) -> str:
        change = f"ALTER TABLE {table.database}.{table.database}.t SET TBLPROPERTIES ('{name}' = 'yes')"
        while True:
            try:
                spark.sql(change)
            except Py4JJavaError as error:
                if "CommitFailedException" not in str(error.java_exception):
                    raise
            else:
                return name

    def write(writer: int) -> list[str]:
        return [alter(f"spark{writer}.{number}") for number in range(commits)]

    def write_all() -> list[str]:
        with ThreadPoolExecutor(writers) as pool:
            return [name for names in pool.map(write, range(writers)) for name in names]

    catalog = Catalog(kind="hive", folder=f"{tmp_path}/wh/t", uri=old_hive.uri, database=table.database)
    assert race(catalog, writers=8, commits=commits, beside=write_all) > 0
    assert spark.table(f"{table.database}.{table.database}.t").count() == 0


def test_what_java_repeats_in_an_entry_is_what_java_would_repeat(
    hive: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = hive.database()
    monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__URI", hive.uri)

    def parameters() -> dict[str, str]:
        with hive.connection().session() as session:
            found = session.entry(database, "t", "t").parameters
        return {key: value for key, value in found.items() if key not in OF_EACH_COMMIT}

    with java_over(hive) as uri:
        theirs = RestCatalog("java", uri=uri)
        schema = Schema(NestedField(field_id=1, name="id", field_type=LongType(), required=False))
        table = theirs.create_table((database, "t"), schema, location=f"file:{tmp_path}/t")
        for number in range(3):
            table.append(pa.table({"id": [number]}))
        before = parameters()
        options = ("--older-than", "0s", "--retain-last", "1", "--yes")
        for line in (("rewrite-manifests", "--min-manifests", "1"), ("expire-snapshots", *options)):
            run = iceberg_cli(line[0], f"hive.{database}.t", *line[1:], "--yes")
            assert run.code == 0, run.err
        ours = parameters()
        with theirs.load_table((database, "t")).transaction() as transaction:
            transaction.set_properties(by="java")
        assert parameters() == {**ours, "by": "java"}
    changed = {key for key in before.keys() | ours.keys() if before.get(key) != ours.get(key)}
    assert changed >= {"snapshot-count", "current-snapshot-id", "current-snapshot-summary"}
    assert (ours["snapshot-count"], ours["numRows"]) == ("1", "3")


# The command line


@dataclasses.dataclass(frozen=True)
class Events:
    """A table with rows and snapshots, `hive.d.events`, that PyIceberg wrote in another catalog."""

    hive: HiveMetastore
    database: str
    theirs: CatalogTable

    @property
    def name(self) -> str:
        return f"hive.{self.database}.events"

    def ids(self) -> list[int]:
        """The rows' ids as PyIceberg reads the metadata that the metastore names."""
        from pyiceberg.table import StaticTable

        with self.hive.connection().session() as session:
            location = session.entry(self.database, "events", "").parameters["metadata_location"]
        found: list[int] = StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist()
        return sorted(found)


@pytest.fixture
def events(hive: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    theirs = catalog_table(tmp_path, monkeypatch, appends=4)
    database = hive.database()
    parameters = {"snapshot-count": "4", "numRows": "4", "numFiles": "4", "format-version": "2"}
    make_entry(hive, database, "events", theirs.open().metadata_location, parameters=parameters)
    monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__URI", hive.uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__S3__SECRET_ACCESS_KEY", "a-marker-of-secrets")
    return Events(hive, database, theirs)


def test_an_expiry_by_the_command_line(events: Events) -> None:
    code = iceberg_cli("inspect", events.name).code
    assert code == 0
    options = ("--older-than", "0s", "--retain-last", "1", "--yes")
    run = iceberg_cli("expire-snapshots", events.name, "-v", *options)
    assert run.code == 0, run.err
    assert "a-marker-of-secrets" not in run.out + run.err
    assert events.ids() == [0, 1, 2, 3]
    with events.hive.connection().session() as session:
        parameters = session.entry(events.database, "events", "").parameters
    assert parameters.items() >= {"snapshot-count": "1", "numRows": "4", "numFiles": "4"}.items()
    assert iceberg_cli("inspect", events.name, "--check").code == 0


def test_the_tables_of_a_metastore_are_listed_surveyed_and_maintained(events: Events, tmp_path: Path) -> None:
    make_entry(events.hive, events.database, "orders", "x", parameters={"table_type": "HUDI"})
    pattern = f"hive.{events.database}.*"
    listed = iceberg_cli("list", pattern)
    assert listed.code == 0, listed.err
    assert events.name in listed.out
    assert "orders" not in listed.out
    surveyed = iceberg_cli("survey", pattern)
    assert surveyed.code == 0, surveyed.err
    assert "events" in surveyed.out
    policy = tmp_path / "policy.toml"
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{pattern}"]\nexpire-snapshots = {{}}\n')
    maintained = iceberg_cli("maintain", pattern, "--policy", str(policy), "--yes")
    assert maintained.code == 0, maintained.err + maintained.out
    assert events.ids() == [0, 1, 2, 3]


def test_while_the_outcome_of_one_commit_is_unknown_no_other_operation_deletes(events: Events) -> None:
    """This metastore was not proved to refuse it once the table has moved."""
    table = ic.open_table(events.name)
    committer = table._opened.committer
    table._opened.committer = FaultyCommitter(committer, "lost before")
    with pytest.raises(CommitStateUnknown):
        table.apply(table.plan(ic.iceberg.ExpireSnapshots(older_than="0s", retain_last=1)))
    set_property(committer, STORAGE, "colour")
    options = ("--older-than", "0s", "--retain-last", "1", "--yes")
    run = iceberg_cli("expire-snapshots", events.name, *options, "--no-resume", *JSON)
    assert run.code == 11
    assert "what became of the commit of operation" in run.json["message"]
    run = iceberg_cli("expire-snapshots", events.name, *options)
    assert run.code == 0, run.err
    assert events.ids() == [0, 1, 2, 3]
    assert iceberg_cli("resume", events.name, "--list", *JSON).json["operations"] == []


def test_secrets_are_in_no_message(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__URI", "thrift://somebody:a-marker-of-secrets@127.0.0.1:1")
    for line in (("inspect", events.name), ("list", "hive.*"), ("expire-snapshots", events.name, "--yes")):
        run = iceberg_cli(*line)
        assert run.code == 16, run.err
        assert "a-marker-of-secrets" not in run.out + run.err
        assert "Cannot open the catalog hive" in run.err

"""Whether a Hive Metastore holds the expectation that a commit without a lock relies on, found out by trying.

Servers without HIVE-26882 take a request that carries an expectation and do not look at it; with it, but on MySQL or
MariaDB and without HIVE-28121, two writers with the same expectation are both told that they were first. So an entry
of ours is changed with a wrong expectation, and then by several connections at once with the same right one.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

from hive_metastore import ttypes as types

from iceberg_cli.iceberg.catalogs.hive.client import FAILURES, MODIFIED, HiveConnection, HiveSession
from iceberg_cli.iceberg.catalogs.hive.entry import METADATA_LOCATION, HiveEntry

_WRITERS: Final = 4
_ROUNDS: Final = 5
_START_S: Final = 60


def why_unproved(connection: HiveConnection, session: HiveSession, database: str) -> str | None:
    """Why nothing shows that a session's server holds expectations, in words; None: it does. Asked once per database.

    The servers of one uri may be of several releases.

    Raises:
        BackendUnavailable, AccessDenied: the server did not answer, or this user may not make the entry.
    """
    key = session.server, database
    if key not in connection.unproved:
        try:
            connection.unproved[key] = _try(connection, session, database)
        except FAILURES as error:
            raise connection.error(
                f"Cannot prove in the database {database} that commits without a lock are safe",
                error,
            ) from None
    return connection.unproved[key]


def _try(connection: HiveConnection, session: HiveSession, database: str) -> str | None:
    """Make an entry that nobody else knows, and drop it. It is a view, since a table would get a folder."""
    name = f"iceberg_cli_scratch_{uuid.uuid4().hex}"
    table = types.Table(
        tableName=name,
        dbName=database,
        owner="iceberg-cli",
        tableType="VIRTUAL_VIEW",
        parameters={METADATA_LOCATION: "0", "comment": "made for a moment by iceberg-cli; may be dropped"},
        partitionKeys=[],
        viewOriginalText="SELECT 1 AS i",
        viewExpandedText="SELECT 1 AS i",
        sd=types.StorageDescriptor(
            cols=[types.FieldSchema(name="i", type="int")],
            inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            serdeInfo=types.SerDeInfo(parameters={}),
            parameters={},
            bucketCols=[],
            sortCols=[],
        ),
    )
    session.first_known(
        lambda: session.client.create_table(table),
        lambda: session.client.create_table_req(types.CreateTableRequest(table=table)),
    )
    try:
        return _try_on(session.entry(database, name, name), connection, session)
    finally:
        with suppress(types.NoSuchObjectException):
            session.client.drop_table(database, name, False)  # noqa: FBT003 - no data


def _try_on(entry: HiveEntry, connection: HiveConnection, session: HiveSession) -> str | None:
    wrong = _change(connection, session, entry, "wrong", expected="-1")
    if wrong is None:
        return "it changes a table whatever the expectation (HIVE-26882)"
    if MODIFIED not in wrong:
        return f"it answers an expectation that does not hold with: {wrong}"
    start = threading.Barrier(_WRITERS)

    def write(own: HiveSession, to: str) -> bool:
        start.wait(_START_S)
        now = entry.parameters[METADATA_LOCATION]
        return _change(connection, own, entry, to, expected=now) is None

    with ExitStack() as stack, ThreadPoolExecutor(_WRITERS) as pool:
        sessions = [stack.enter_context(connection.session(session.server)) for _ in range(_WRITERS)]
        for number in range(_ROUNDS):
            names = [f"{number + 1}.{writer}" for writer in range(_WRITERS)]
            if sum(pool.map(write, sessions, names)) > 1:
                return "it lets several writers with the same expectation be first (HIVE-28121)"
            entry = session.entry(entry.database, entry.table, entry.table)
    return None


def _change(
    connection: HiveConnection, session: HiveSession, entry: HiveEntry, to: str, *, expected: str
) -> str | None:
    """Change the scratch entry; None, or why the server did not."""
    changed = entry.with_parameters({**entry.parameters, METADATA_LOCATION: to})
    try:
        session.alter(changed, expected={METADATA_LOCATION: expected})
    except FAILURES as error:
        return connection.reason(error)
    return None

"""Tables of a Hive Metastore, where the parameter `metadata_location` of a table's entry is the pointer.

The commit locks the table, looks at its entry, and sends it back with another location and the expectation that the
base is still there. The lock holds off Java's HiveCatalog, which by default relies on it and sends no expectation; the
expectation holds where a lock was lost, on servers that have HIVE-26882. A writer who got the lock while ours was lost,
and looked before our change, would put its own in the place of ours: a commit is done only once it was seen under a
lock. Without a lock we commit only where the table says so, as Java reads it, and the server was proved to hold
expectations.

Spec: Java, `HiveTableOperations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hive_metastore import ttypes as types

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, TableNotFound, UsageError
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.catalogs.hive.client import (
    FAILURES,
    HiveConnection,
    HiveSession,
    NotKnown,
    is_answer,
    is_denied,
)
from iceberg_cli.iceberg.catalogs.hive.entry import METADATA_LOCATION, HiveEntry
from iceberg_cli.iceberg.catalogs.hive.lock import NotNeeded, TableLock
from iceberg_cli.iceberg.catalogs.hive.parameters import parameters_after, why_not_held, why_read_only
from iceberg_cli.iceberg.catalogs.hive.proof import why_unproved
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.names import name_of
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage import Storage

_LOCKED: Final = "engine.hive.lock-enabled"  # of the table
_ALL_LOCKED: Final = "iceberg.engine.hive.lock-enabled"  # of the catalog, in the configuration of Java's


class HiveCommitter(SwapCommitter):
    """One table of a Hive Metastore.

    Args:
        connection: to the metastore.
        database: the table's.
        table: its name.
        storage: where the metadata files are.
    """

    def __init__(self, connection: HiveConnection, *, database: str, table: str, storage: Storage) -> None:
        super().__init__(storage)
        if "." in database:
            raise UsageError(
                f"Cannot open {connection.name}.{database}.{table}: a Hive Metastore has no databases in databases."
            )
        self._connection = connection
        self._database, self._table = database, table
        self._name = name_of(connection.name, database, table)
        self._parameters: Mapping[str, str] | None = None
        self._unanswered: set[str] = set()
        self._held: set[str] = set()  # commits that were answered, and locked until then

    def read_only_reason(self) -> str | None:
        """Encrypted tables, for which Java keeps a hash of the metadata in the entry."""
        if self._parameters is None:
            self.current()
        assert self._parameters is not None
        return why_read_only(self._parameters)

    def current(self) -> str:
        """The entry's metadata location, as it is spelled there."""
        with self._connection.session() as session:
            return self._entry(session).parameters[METADATA_LOCATION]

    def commit(self, attempt: Attempt) -> Outcome:
        """See `SwapCommitter`; what was sent and not answered may arrive at a server that ignores expectations.

        There it is unknown for good what becomes of it, wherever the table went meanwhile.
        """
        return self._judged(super().commit(attempt), attempt)

    def settle(self, attempt: Attempt) -> Outcome:
        """See `commit`."""
        outcome = super().settle(attempt)
        if isinstance(outcome, Unknown):
            self._holds_expectations()  # `takes_late_requests` tells it from now on
        return self._judged(outcome, attempt)

    def _judged(self, outcome: Outcome, attempt: Attempt) -> Outcome:
        if isinstance(outcome, Committed) and attempt.commit.commit_uuid not in self._held:
            outcome = self._seen_again(outcome, attempt)
        was_sent = not attempt.fresh or attempt.commit.commit_uuid in self._unanswered
        if isinstance(outcome, Conflict) and was_sent and not self._holds_expectations():
            late = "its metastore did not answer the commit, may still carry it out, and is not known to refuse it"
            return Unknown(cause=f"{outcome.reason}, but {late}", may_be_replaced=True)
        return outcome

    def _holds_expectations(self) -> bool:
        """Whether every server of the metastore is proved to; it is tried of those of which that is not known."""
        connection = self._connection
        try:
            for server in connection.servers:
                with connection.session(server) as session:
                    if why_unproved(connection, session, self._database):
                        return False
        except BackendUnavailable:
            return False
        return True

    def _seen_again(self, outcome: Outcome, attempt: Attempt) -> Outcome:
        """What is seen under a lock of what was seen without one: who got the lock before us has committed by then."""
        if not self._locks(_properties(attempt)):
            return outcome
        try:
            with self._connection.session() as session:
                lock = self._lock(session, attempt)
                lock.take_over()
                with lock:
                    outcome = super().settle(attempt)
                    lock.ensure()
                    return outcome
        except (BackendUnavailable, TableNotFound) as error:
            cause = f"it was seen, but another writer may replace it: {error.message}"
            return Unknown(cause=cause, may_be_replaced=True)

    def _lock(
        self, session: HiveSession, attempt: Attempt, is_needed: Callable[[], bool] = lambda: True
    ) -> TableLock:
        entry = self._entry(session)
        return TableLock(
            self._connection,
            session,
            entry.database,
            entry.table,
            self._name,
            purpose=attempt.commit.commit_uuid,
            is_needed=is_needed,
        )

    def takes_late_requests(self) -> bool:
        """Whether a request that is still under way may replace what was committed meanwhile."""
        return not self._connection.is_proved(self._database)

    def _entry(self, session: HiveSession) -> HiveEntry:
        """The table's entry.

        Raises:
            TableNotFound: there is none, or it is not an Iceberg table's.
        """
        try:
            entry = session.entry(self._database, self._table, self._name)
        except TableNotFound as error:
            raise TableNotFound(f"{error.message}{self._near(session)}") from None
        if reason := entry.why_no_iceberg_table():
            raise TableNotFound(f"Cannot find an Iceberg table {self._name}: {reason}.")
        self._parameters = entry.parameters
        return entry

    def _near(self, session: HiveSession) -> str:
        """The tables of the database that are named nearly like this one, in words."""
        try:
            return did_you_mean(self._table, session.tables(self._database))
        except FAILURES:
            return ""

    def _swap(self, attempt: Attempt) -> bool | Conflict | Unknown:
        """One request. Before it is sent an error changes nothing; after that, only an answer tells."""
        if self._locks(_properties(attempt)):
            return self._swap_locked(attempt)
        with self._connection.session() as session:
            if reason := self._unproved(session):
                return Conflict(reason=reason, for_good=True)
            return self._replace(session, attempt, None)

    def _swap_locked(self, attempt: Attempt) -> bool | Conflict | Unknown:
        with self._connection.session() as session:

            def is_at_base() -> bool:
                return self._entry(session).parameters[METADATA_LOCATION] == attempt.base

            try:
                lock = self._lock(session, attempt, is_at_base)
                with lock:
                    swapped = self._replace(session, attempt, lock)
            except (TableNotFound, NotNeeded):
                return False
        if lock.is_left and isinstance(swapped, Unknown):
            left = f"its lock {lock.number} is left to lapse, for the request may still be carried out"
            return Unknown(cause=f"{swapped.cause}; {left}")
        return swapped

    def prove(self, path: str, properties: Mapping[str, str]) -> None:  # noqa: ARG002 - the port's
        """Refuse a table whose writers do not lock it where its metastore is not proved to hold expectations."""
        if self._locks(properties):
            return
        with self._connection.session() as session:
            if reason := self._unproved(session):
                raise Refused(f"Cannot commit to {self._name}: {reason}.")

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def _unproved(self, session: HiveSession) -> str | None:
        if reason := why_unproved(self._connection, session, self._database):
            return (
                "its writers do not lock it, and its metastore does not hold what a commit expects of the table: "
                f"{reason}. Let them lock: remove {_LOCKED}, or set it to true"
            )
        return None

    def _locks(self, properties: Mapping[str, str]) -> bool:
        """Whether the writers of a table lock it, by Java's rule; a text that is neither true nor false means so."""
        found = properties.get(_LOCKED, self._connection.properties.get(_ALL_LOCKED, ""))
        return found.strip().lower() != "false"

    def _replace(
        self, session: HiveSession, attempt: Attempt, lock: TableLock | None
    ) -> bool | Conflict | Unknown:
        try:
            entry = self._entry(session)
        except TableNotFound:
            return False
        parameters = entry.parameters
        if parameters[METADATA_LOCATION] != attempt.base:
            return False
        if reason := why_read_only(parameters):
            return Conflict(reason=reason, for_good=True)
        if reason := why_not_held(attempt.file, attempt.base):
            raise BackendUnavailable(
                f"Cannot commit to {self._name}: {reason}: {attempt.file}",
                next_step="Let write.metadata.path of the table name a folder with a short name in plain letters.",
            )
        changed = entry.with_parameters(
            parameters_after(
                parameters,
                after=decode_metadata_file(attempt.data, attempt.file),
                updates=[update.to_json() for update in attempt.commit.updates],
                base=attempt.base,
                location=attempt.file,
            )
        )
        if lock is not None:
            lock.ensure()
            lock.only_in_order = self.takes_late_requests()
        is_resent = attempt.commit.commit_uuid in self._unanswered
        self._unanswered.add(attempt.commit.commit_uuid)
        try:
            session.alter(changed, expected={METADATA_LOCATION: attempt.base})
        except FAILURES as error:
            if is_answer(error) or isinstance(error, NotKnown):
                if not is_resent:
                    self._unanswered.discard(attempt.commit.commit_uuid)
                if lock is not None:
                    lock.only_in_order = False
            return self._refused(session, attempt, error)
        self._unanswered.discard(attempt.commit.commit_uuid)
        if lock is not None:
            lock.only_in_order = False
            try:
                lock.ensure()
            except BackendUnavailable as error:
                return Unknown(cause=f"{error.message}, after the metastore took the commit")
        self._held.add(attempt.commit.commit_uuid)
        return True

    def _refused(self, session: HiveSession, attempt: Attempt, error: Exception) -> Unknown:
        """What an error says of a request that was sent.

        A metastore tries a request again by itself when its database fails, so that even "The table has been modified"
        may be what our own change was met with: it is read back like every other answer.

        Raises:
            AccessDenied: this user may not, and the table is where it was.
            BackendUnavailable: the server has no method for it.
        """
        reason = self._connection.reason(error)
        if isinstance(error, NotKnown):
            raise BackendUnavailable(
                f"Cannot commit to {self._name}: its metastore has no alter_table_with_environment_context and no"
                f" alter_table_req: {reason}"
            )
        if is_denied(error) and isinstance(error, _ANSWERS) and self._is_at(session, attempt.base):
            raise AccessDenied(f"Cannot commit to {self._name}: {reason}")
        return Unknown(cause=f"the metastore did not confirm the commit to {self._name}: {reason}")

    def _is_at(self, session: HiveSession, location: str) -> bool:
        try:
            return self._entry(session).parameters[METADATA_LOCATION] == location
        except (BackendUnavailable, TableNotFound):
            return False


def _properties(attempt: Attempt) -> Mapping[str, str]:
    """Of the table, as the attempt leaves them."""
    properties: Mapping[str, str] = decode_metadata_file(attempt.data, attempt.file).get("properties") or {}
    return properties


# With them a server ends its work on a request.
_ANSWERS: Final = (types.MetaException, types.InvalidOperationException)

"""An exclusive lock on a table of a Hive Metastore, which heartbeats keep alive.

It is the lock of Java's HiveTableOperations, whose commit may stand between its look at the table and its change of it:
nothing but the lock keeps ours from falling between the two. A lock that nobody keeps alive, such as that of a process
that was killed, lapses after five minutes where nobody set `metastore.txn.timeout`. But it is a task of the metastore
that lets it go, the AcidHouseKeeperService, and by default no server runs that: on Hive 4 one with
`metastore.housekeeping.threads.on` does, on Hive 3 one with `metastore.compactor.initiator.on`.

Spec: Java, `MetastoreLock`; Hive, `HouseKeepingTasks`, and `HiveMetaStore.startRemoteOnlyTasks` of 3.1.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from hive_metastore import ttypes as types

from iceberg_cli.errors import AccessDenied, BackendUnavailable
from iceberg_cli.iceberg.catalogs.hive.client import (
    FAILURES,
    HiveConnection,
    HiveSession,
    is_answer,
    is_denied,
)

_MIN_WAIT_S: Final = 0.05
_MAX_WAIT_S: Final = 1
_MOST_S: Final = 180
_HEARTBEAT_S: Final = 30
_NO_TABLES: Final = (
    "Let the database of the metastore have the tables of Hive's transactions, HIVE_LOCKS and others: Hive's schematool"
    " makes them. Or let all writers of the table go without locks: engine.hive.lock-enabled=false, which asks for a"
    " metastore with HIVE-26882."
)


class NotNeeded(Exception):
    """What the lock was to protect is not to be done any more."""


class TableLock:
    """A lock from the beginning of a block to its end.

    Args:
        connection: to the metastore; the waits are its properties.
        session: that asks for the lock.
        database: the table's database, as the metastore spells it.
        table: its name, likewise.
        what: both with the catalog's name.
        purpose: what it is for, by which `take_over` finds it again.
        is_needed: asked while others have the lock.

    Attributes:
        number: the metastore's, once it was had.
        only_in_order: a request that it protects may still be under way. Then it is let go by the session of that
            request alone, whose server takes one request after the other, or lapses.
        is_left: it was not let go.
    """

    def __init__(
        self,
        connection: HiveConnection,
        session: HiveSession,
        database: str,
        table: str,
        what: str,
        *,
        purpose: str = "",
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection, self._session = connection, session
        self._database, self._table, self._what = database, table, what
        self._is_needed = is_needed
        seconds = connection.seconds
        java = "iceberg.hive.lock-"
        shortest = seconds(f"{java}check-min-wait-ms", _MIN_WAIT_S, unit_s=0.001)
        longest = seconds(f"{java}check-max-wait-ms", _MAX_WAIT_S, unit_s=0.001)
        self._shortest_s = seconds("lock-check-min-wait-time", shortest)
        self._longest_s = seconds("lock-check-max-wait-time", longest)
        self._checks = seconds("lock-check-retries", float("inf"))
        self._most_s = seconds(f"{java}timeout-ms", _MOST_S, unit_s=0.001)
        self._beats_s = seconds(f"{java}heartbeat-interval-ms", _HEARTBEAT_S, unit_s=0.001)
        self._purpose = f"iceberg-cli-{purpose}"
        self._agent = f"{self._purpose}-{uuid.uuid4()}"
        self.number = 0
        self.only_in_order = self.is_left = False
        self._is_requested = False  # and nobody said that there is none
        self._lost: str | None = None
        self._ends = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lock on {what}", daemon=True)

    def take_over(self) -> None:
        """Take the lock that was left with this purpose, where it is still held: nobody has had the table since."""
        with suppress(*FAILURES):
            held = [each for each in self._locks() if each.state == types.LockState.ACQUIRED]
            left = (each.lockid for each in held if (each.agentInfo or "").startswith(self._purpose))
            self.number = next(left, 0)

    def __enter__(self) -> Self:
        """Wait for the lock, unless it was taken over.

        Raises:
            BackendUnavailable: others have it for too long, or there are no locks; nothing was changed.
            NotNeeded: see `is_needed`.
            AccessDenied: this user may not lock.
        """
        try:
            if not self.number:
                self._take()
        except BaseException:
            self._release()
            raise
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go. Where that fails it lapses, now that the heartbeats are missing."""
        self._ends.set()
        self._release()

    def ensure(self) -> None:
        """Let the metastore say that the lock is ours, right before what it protects, or that it was all the time.

        Raises:
            BackendUnavailable: it is not, or nobody said so.
        """
        lost = self._lost
        if lost is None:
            try:
                state = self._session.client.check_lock(types.CheckLockRequest(lockid=self.number)).state
                lost = None if state == types.LockState.ACQUIRED else f"it is {_name_of(state)}"
            except FAILURES as error:
                lost = self._connection.reason(error)
        if lost is not None:
            raise BackendUnavailable(
                f"Cannot commit to {self._what}: its lock in the metastore is lost: {lost}"
            )

    def _take(self) -> None:
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=self._database,
            tablename=self._table,
        )
        request = types.LockRequest(
            component=[component],
            user=self._connection.user,
            hostname=socket.gethostname(),
            agentInfo=self._agent,
        )
        waits_s, since, checks = self._shortest_s, time.monotonic(), 0.0
        try:
            self._is_requested = True
            answer = self._session.client.lock(request)
            self.number = answer.lockid
            while answer.state == types.LockState.WAITING:
                if not self._is_needed():
                    # Others behind us would wait for us to find out the same.
                    raise NotNeeded
                checks += 1
                if checks > self._checks or time.monotonic() - since + waits_s > self._most_s:
                    raise BackendUnavailable(
                        f"Cannot commit to {self._what}: {self._holders()} holds its lock in the metastore,"
                        f" and did not let it go for {time.monotonic() - since:.0f} s."
                    )
                time.sleep(waits_s)
                waits_s = min(waits_s * 1.5, self._longest_s)
                answer = self._session.client.check_lock(types.CheckLockRequest(lockid=self.number))
        except FAILURES as error:
            raise self._no_lock(error) from None
        if answer.state != types.LockState.ACQUIRED:
            raise BackendUnavailable(
                f"Cannot lock {self._what}: the metastore says that the lock is {_name_of(answer.state)}."
            )

    def _no_lock(self, error: Exception) -> BackendUnavailable:
        message = f"Cannot lock {self._what} in its metastore: {self._connection.reason(error)}"
        if is_denied(error):
            self._is_requested = False
            return AccessDenied(message)
        # Hive says "Internal error processing lock" where it found no table of its locks.
        self._is_requested = not is_answer(error)
        return BackendUnavailable(
            message, next_step=_NO_TABLES if is_answer(error) and not self.number else ""
        )

    def _holders(self) -> str:
        """Who has the lock, in words."""
        with suppress(*FAILURES):
            held = [each for each in self._locks() if each.state == types.LockState.ACQUIRED]
            if held:
                return " and ".join(f"lock {each.lockid} of {each.user} on {each.hostname}" for each in held)
        return "another writer"

    def _locks(self) -> list[Any]:
        request = types.ShowLocksRequest(dbname=self._database, tablename=self._table)
        return list(self._session.client.show_locks(request).locks or ())

    def _release(self) -> None:
        """Let go of the lock, also of one whose number was lost with the answer."""
        self.is_left = self.number > 0 or self._is_requested
        try:
            if self.number:
                self._unlock()
                return
        except FAILURES:
            pass  # by another connection, then
        if self.is_left and not self.only_in_order:
            with suppress(*FAILURES, BackendUnavailable), self._connection.session() as self._session:
                ours = (each.lockid for each in self._locks() if each.agentInfo == self._agent)
                self.number = self.number or next(ours, 0)
                self._unlock()

    def _unlock(self) -> None:
        with suppress(types.NoSuchLockException):
            self._session.client.unlock(types.UnlockRequest(lockid=self.number))
        self.is_left = False

    def _beat(self) -> None:
        """Keep the lock alive, by a connection of its own: no two threads may share one."""
        while not self._ends.wait(self._beats_s):
            try:
                with self._connection.session() as session:
                    session.client.heartbeat(types.HeartbeatRequest(lockid=self.number))
            except (*FAILURES, BackendUnavailable) as error:
                self._lost = self._connection.reason(error)
                return


def _name_of(state: int) -> str:
    return str(types.LockState._VALUES_TO_NAMES.get(state, state))  # noqa: SLF001 - of the generated class

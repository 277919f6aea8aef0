"""A connection to an object store by credentials that end, and are renewed before that or when they are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from iceberg_cli.storage import Renewal
from iceberg_cli.storage.credential_options import with_options

_BEFORE_THE_END_S: Final = 300
_YOUNG_S: Final = 30  # credentials that were renewed so short a time ago have not ended

Connection = TypeVar("Connection")


class RenewedConnection(Generic[Connection]):
    """The connection by a storage's options, and another one each time that they are renewed.

    Args:
        options: of the storage.
        connect: makes a connection.
        ends_ms: tells when an option's credentials end, as the option has it: milliseconds since 1970; or "".
        has_credentials: whether options have some. Where renewed ones have none they are this process's own, and nobody
            renews them.
        renewal: gives options with new credentials, or None.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        connect: Callable[[Mapping[str, str]], Connection],
        *,
        ends_ms: Callable[[Mapping[str, str]], str],
        has_credentials: Callable[[Mapping[str, str]], bool],
        renewal: Renewal | None,
    ) -> None:
        self._connect, self._ends_ms, self._renewal = connect, ends_ms, renewal
        self._has_credentials = has_credentials
        self._lock = threading.Lock()
        self._renewed_s: float | None = None  # when, by this process's clock, new ones were given last
        self._use(options)

    def _use(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._connected_s = time.monotonic()
        self._renew_s = renew_after_s(self._ends_ms(options))
        self._connection = self._connect(options)

    @property
    def latest(self) -> Connection:
        """The connection as it is, whether or not its credentials have ended."""
        return self._connection

    def current(self) -> Connection:
        """The connection, with new credentials where it is time for them.

        Raises:
            AccessDenied, BackendUnavailable, TableNotFound: of the renewal.
        """
        due = self._renew_s is not None and time.monotonic() - self._connected_s >= self._renew_s
        return self.renewed(self._connection, refused=False) if due else self._connection

    def renewed(self, used: Connection, *, refused: bool = True) -> Connection:
        """The connection with new credentials, or the same one: there are none, or they have just been renewed.

        Args:
            used: the connection that was used.
            refused: whether its credentials were refused; where they were renewed just now, others would be as well.
                Those that a storage begins with may be old: a worker of Spark gets them from a process that has others.

        Raises:
            As `current`.
        """
        with self._lock:
            renewed_s = self._renewed_s
            young = refused and renewed_s is not None and time.monotonic() - renewed_s < _YOUNG_S
            if self._connection is used and self._renewal is not None and not young:
                options = self._renewal()
                self._renewed_s = time.monotonic()
                if self._has_credentials(options):
                    self._use(with_options(self._options, options))
            return self._connection


def renew_after_s(ends_ms: str) -> float | None:
    """In how many seconds credentials have to be renewed, None where their end is not known.

    Args:
        ends_ms: milliseconds since 1970, as an option has it.
    """
    if not ends_ms.isdecimal():
        return None
    left_s = int(ends_ms) / 1_000 - time.time()  # noqa: TID251 - the end is a point in time
    return max(left_s - _BEFORE_THE_END_S, left_s / 2, 1.0)

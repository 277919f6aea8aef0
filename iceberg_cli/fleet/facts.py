"""What surveys read of tables' metadata, kept for the next one: facts of immutable files, and no verdict.

For a table whose pointer did not move only the pointer is asked for. What is due is decided anew each time, by the
snapshots, refs and properties that are kept; kept beside them is how much a certain decision frees, such as the expiry
of just these snapshots, which is as immutable as the files that it was found in. What is blocked by something outside
the metadata is not kept.

An entry is used for the same version alone. In a catalog that is a metadata file, by its location, for no catalog
gives one name to two versions. In a folder it is a listing: of a Delta table's log, of an Iceberg table's metadata
files, names with sizes and times, for a table made anew could have the same names again.

A VACUUM takes files that no log names as well, and those only a listing of the table's folder shows. What one told is
used until a file that came after it could be due. Of a VACUUM that leaves nothing in the log it knows nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from iceberg_cli import __version__

_FILE: Final = "fleet-4.sqlite"
_MOST_TABLES: Final = 100_000
_WAIT_S: Final = 0.5


def facts_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder in which facts are kept, or None where this user has none. Spec: XDG Base Directory."""
    from iceberg_cli.iceberg.reachability.cache_folder import cache_folder

    keys = cache_folder(environment)
    return None if keys is None else keys.parent


class FactsStore:
    """The facts of many tables, in one file of the user's cache folder.

    What cannot be read is not there, and what cannot be written is read again next time: no survey fails for it.

    Args:
        folder: of the file; None: nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _FILE
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._has_rows = False  # as far as is known: a survey that begins without any asks for none

    @property
    def is_kept(self) -> bool:
        """Whether anything is kept at all."""
        return self._path is not None

    def get(self, version: str) -> dict[str, Any] | None:
        """The facts of a version, or None."""
        with self._lock, self._going_on():
            database = self._open()
            if database is None or not self._has_rows:
                return None
            row = database.execute("SELECT facts, digest FROM facts WHERE version = ?", (version,)).fetchone()
            if row is not None and row[1] == _digest(version, row[0]):
                found: dict[str, Any] = json.loads(zlib.decompress(row[0]))
                return found
        return None

    def put(self, version: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        """Keep the facts of a version; of very many those that were written first go."""
        data = zlib.compress(json.dumps(facts).encode(), 1)
        with self._lock, self._going_on():
            database = self._open()
            if database is None:
                return
            self._has_rows = True
            with database:
                database.execute(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)",
                    (version, now_ms, data, _digest(version, data)),
                )
                database.execute(
                    "DELETE FROM facts WHERE rowid <= (SELECT max(rowid) FROM facts) - ?", (_MOST_TABLES,)
                )

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Do without the file from here on where it cannot be used; one that is damaged goes."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, zlib.error) as error:
            damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            )
            if damaged and self._path is not None:
                with suppress(OSError):
                    self._path.unlink()
            self._path = self._connection = None

    def _open(self) -> sqlite3.Connection | None:
        """The database, made where it is not there; None where it is not this user's alone."""
        if self._path is None or self._connection is not None:
            return self._connection
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        status = os.fstat(descriptor)
        os.close(descriptor)
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            self._path = None
            return None
        connection = sqlite3.connect(self._path, timeout=_WAIT_S, check_same_thread=False)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS facts"
            " (version TEXT UNIQUE, written_ms INTEGER, facts BLOB, digest TEXT)"
        )
        connection.execute("PRAGMA synchronous = OFF")
        (self._has_rows,) = connection.execute("SELECT EXISTS (SELECT 1 FROM facts)").fetchone()
        self._connection = connection
        return connection


def _digest(version: str, data: bytes) -> str:
    """What a row must have to be one that this version wrote whole."""
    return hashlib.sha256(f"{__version__}\0{version}\0".encode() + data).hexdigest()


def decision_key(verb: str, decided: object) -> str:
    """What stands for a decision of a verb: two that are equal free the same.

    Args:
        verb: its name.
        decided: as JSON.
    """
    return f"{verb} {hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()}"

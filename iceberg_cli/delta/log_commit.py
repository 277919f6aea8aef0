"""The Delta log: the next version is the file `<N>.json`, which only one writer can create.

On local disks the file appears whole by one hard link, in object stores by a conditional PUT; neither replaces what is
there. Every doubt is resolved by reading the file back: ours has our bytes, or our `txnId` in its commitInfo. Other
writers must create versions in the same way, as Delta's own log stores do on file systems and delta-rs does everywhere.

No hidden `.N.json.crc` is written beside it: Hadoop's readers do without.

Spec: Delta, "Delta Log Entries".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.storage import Storage

if TYPE_CHECKING:
    from iceberg_cli.delta.commit import LogCommit

LOG_FOLDER = "_delta_log"

_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\..+)?\.(?:parquet|json))")


class DeltaLogCommitter:
    """The commits of one table.

    Args:
        root: the table's folder, in any spelling.
        storage: that reads and writes it.
    """

    def __init__(self, root: str, storage: Storage) -> None:
        self._folder = f"{storage.canonical(root).rstrip('/')}/{LOG_FOLDER}"
        self._storage = storage
        self._sent = SentAttempts()

    def current(self) -> str:
        """The newest version, as text.

        Raises:
            TableNotFound: the log has no version. BackendUnavailable.
        """
        return str(max(self._versions()))

    def prepare(self, commit: LogCommit) -> Attempt:
        """The attempt to become the commit's version. Writes nothing."""
        return Attempt(
            commit=commit,
            base=str(commit.version - 1),
            target=self._path(commit.version),
            data=commit.data,
            digest=digest_of(commit.data),
            name_is_unique=False,
        )

    def commit(self, attempt: Attempt) -> Outcome:
        """Create the version's file where the base is the newest version and there is no file yet."""
        first = self._sent.first(attempt)
        if digest_of(attempt.data) != attempt.digest:
            return Unknown(cause=f"the content of {attempt.file} is not at hand any more")
        try:
            now = self.current()
        except (BackendUnavailable, TableNotFound) as error:
            if first:
                raise
            return Unknown(cause=error.message)
        if now != attempt.base:
            # Before the file: where the log was cleaned up, the name of an old version can be free again.
            settled = self.settle(attempt)
            moved = Conflict(reason=f"the table has moved from version {attempt.base} to {now}")
            return moved if first and isinstance(settled, Unknown) else settled
        try:
            self._storage.put_if_absent(attempt.file, attempt.data)
        except FileExistsError:
            return self.settle(attempt)
        except BackendUnavailable as error:
            # A request to an object store that had no answer may still be carried out; a system call may not.
            if first and self._folder.startswith("/") and self._is_absent(attempt.file):
                raise
            settled = self.settle(attempt)
            return Unknown(cause=error.message) if isinstance(settled, Unknown) else settled
        return self._created(attempt)

    def settle(self, attempt: Attempt) -> Outcome:
        """Compare the file of the attempt's version with ours."""
        try:
            found = self._storage.read(attempt.file)
        except FileNotFoundError:
            return self._settle_absent(attempt)
        except BackendUnavailable as error:
            return Unknown(cause=f"the table could not be read back: {error.message}")
        if digest_of(found) == attempt.digest:
            return Committed(metadata_location=attempt.file)
        try:
            transaction = transaction_of(found)
        except ValueError as error:
            return Unknown(cause=f"{attempt.file} cannot be read: {error}")
        if transaction == attempt.commit.commit_uuid:
            return Committed(metadata_location=attempt.file)
        return Conflict(reason=f"another writer made {attempt.file}")

    def _settle_absent(self, attempt: Attempt) -> Outcome:
        try:
            now = self.current()
        except (BackendUnavailable, TableNotFound) as error:
            return Unknown(cause=f"the table could not be read back: {error.message}")
        if now == attempt.base:
            return Unknown(cause=f"the table is still at version {now}")
        return Unknown(cause=f"the table is at version {now}, and {attempt.file} is gone")

    def _created(self, attempt: Attempt) -> Outcome:
        """Our file is there. Did it follow the base, or did a cleanup take the base away meanwhile?"""
        try:
            followed = int(attempt.base) in self._versions()
        except (BackendUnavailable, TableNotFound) as error:
            return Unknown(cause=f"the table could not be read back: {error.message}")
        if not followed:
            return Unknown(cause=f"version {attempt.base} went while {attempt.file} was made")
        return Committed(metadata_location=attempt.file)

    def _versions(self) -> set[int]:
        """The versions that have a commit or a checkpoint.

        Raises:
            TableNotFound: there is none.
        """
        prefix = f"{self._folder}/"
        names = (path.removeprefix(prefix) for path in self._storage.paths(self._folder))
        found = {int(match[1]) for name in names if (match := _VERSION.fullmatch(name))}
        if not found:
            raise TableNotFound(f"Cannot find a Delta table: {self._folder} has no version.")
        return found

    def _path(self, version: int) -> str:
        return f"{self._folder}/{version:020d}.json"

    def _is_absent(self, location: str) -> bool:
        try:
            self._storage.stat(location)
        except FileNotFoundError:
            return True
        except BackendUnavailable:
            return False
        return False


def transaction_of(data: bytes) -> str | None:
    """The `txnId` in the commitInfo of a commit, or None.

    Raises:
        ValueError: it is no commit.
    """
    for line in data.splitlines():
        action = json.loads(line) if line.strip() else {}
        if not isinstance(action, dict):
            raise ValueError("a line is no action")  # noqa: TRY004 - the file is wrong, no argument
        info = action.get("commitInfo")
        if isinstance(info, dict):
            found = info.get("txnId")
            return found if isinstance(found, str) else None
    return None

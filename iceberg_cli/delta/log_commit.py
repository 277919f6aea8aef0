"""The Delta log: the next version is the file `<N>.json`, which only one writer can create.

A file that is read back is ours where it has our bytes, or our `txnId` in its commitInfo. Other writers must create
versions in the same way, as Delta's own log stores do on file systems and delta-rs does everywhere.

No hidden `.N.json.crc` is written beside it: Hadoop's readers do without.

Spec: Delta, "Delta Log Entries".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from iceberg_cli.delta.spec.log import LOG
from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.operation.next_version import NextVersionCommitter
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Outcome,
    Unknown,
    digest_of,
)
from iceberg_cli.storage import Storage

if TYPE_CHECKING:
    from iceberg_cli.delta.commit import LogCommit

_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\..+)?\.(?:parquet|json))")


class DeltaLogCommitter(NextVersionCommitter):
    """The commits of one table.

    Args:
        root: the table's folder, in any spelling.
        storage: that reads and writes it.
    """

    noun = "version "

    def __init__(self, root: str, storage: Storage) -> None:
        super().__init__(f"{storage.canonical(root).rstrip('/')}/{LOG}", storage)

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
        """Create the version's file; where the kept bytes of an attempt are gone, nothing is sent."""
        if digest_of(attempt.data) != attempt.digest:
            return Unknown(cause=f"the content of {attempt.file} is not at hand any more")
        return super().commit(attempt)

    def _settle_by_content(self, attempt: Attempt, data: bytes) -> Outcome:
        """By the bytes, or by the `txnId` in the commitInfo."""
        outcome = super()._settle_by_content(attempt, data)
        if isinstance(outcome, Committed):
            return outcome
        try:
            transaction = transaction_of(data)
        except ValueError as error:
            return Unknown(cause=f"{attempt.file} cannot be read: {error}")
        ours = transaction == attempt.commit.commit_uuid
        return Committed(metadata_location=attempt.file) if ours else outcome

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

"""The Delta log: the next version is the file `<N>.json`, which only one writer can create.

A file that is read back is ours where it has our bytes, or our `txnId` in its commitInfo. Other writers must create
versions in the same way, as Delta's own log stores do on file systems and delta-rs does everywhere. On S3 Delta's own
do not: `S3SingleDriverLogStore` looks and then writes, `S3DynamoDBLogStore` claims a version elsewhere, writes below
`_delta_log/.tmp/`, and copies that into the log whatever is there.

On Google Cloud Storage `GCSLogStore` creates a version where there is none, by the same precondition as here, and on
Azure `AzureLogStore` renames without overwriting, which the service refuses where the name is taken; see
https://docs.delta.io/delta-storage/, "Google Cloud Storage" and "Microsoft Azure storage": both are for writers of
several clusters at once. So nobody has to vouch for other writers there, only for a service that is none of the two.

No hidden `.N.json.crc` is written beside it: Hadoop's readers do without.

Spec: Delta, "Delta Log Entries".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from iceberg_cli.delta.spec.log import LOG
from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Outcome,
    Unknown,
    digest_of,
)
from iceberg_cli.plan.plan import Voucher
from iceberg_cli.storage import Storage
from iceberg_cli.storage.conditional_create import unwritable_reason
from iceberg_cli.storage.router import NO_OVERRIDES, UnsafeOverrides
from iceberg_cli.table.next_version import CONDITIONAL_WRITES, NextVersionCommitter

if TYPE_CHECKING:
    from iceberg_cli.delta.commit import LogCommit

_COPIES = ".tmp"  # in the log, where S3DynamoDBLogStore writes a version before it copies it
_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\..+)?\.(?:parquet|json))")


class DeltaLogCommitter(NextVersionCommitter):
    """The commits of one table.

    Args:
        root: the table's folder, in any spelling.
        storage: that reads and writes it.
    """

    noun = "version "

    def __init__(self, root: str, storage: Storage, overrides: UnsafeOverrides = NO_OVERRIDES) -> None:
        super().__init__(f"{storage.canonical(root).rstrip('/')}/{LOG}", storage, overrides)

    def unvouched_reason(self) -> str | None:
        """Why nothing is written to a table in an object store, or in HDFS; see `NextVersionCommitter`."""
        service = self._service
        if service is None:
            return unwritable_reason(self._folder)
        if service.scheme != "s3":
            if service.is_known or self._overrides.conditional_writes:
                return None
            return (
                f"{service.name} is not known to keep conditional creates under races: {CONDITIONAL_WRITES} vouches "
                "that it does"
            )
        if self._storage.holds_any(f"{self._folder}/{_COPIES}"):
            return (
                f"{self._folder}/{_COPIES}/ is what Delta Spark's S3DynamoDBLogStore leaves: it claims versions in "
                "DynamoDB and copies them into the log unconditionally, so that its commits and others replace each "
                "other unseen. Maintain this table with Spark. If all such writers are gone for good, let Spark read "
                "the table once more, which completes their last commit, then delete that folder"
            )
        if self._overrides.conditional_writes:
            return None
        and_service = (
            "" if service.is_known else f", and that {service.name} keeps conditional creates under races"
        )
        return (
            "a Delta table on S3 is written to only where all its writers create versions conditionally, and Delta "
            f"Spark's own log stores do not: {CONDITIONAL_WRITES} vouches that no such writer is at work{and_service}"
        )

    def vouchers(self) -> tuple[Voucher, ...]:
        """That all writers, and the service, keep conditional creates."""
        service = self._service
        if service is None or not self._overrides.conditional_writes:
            return ()
        if service.scheme != "s3":
            if service.is_known:
                return ()
            sentence = f"the operator vouches that {service.name} keeps conditional creates under races"
            return (Voucher(option=CONDITIONAL_WRITES, value=service.name, sentence=sentence),)
        and_service = "" if service.is_known else ", and that the service keeps these under races"
        sentence = (
            "the operator vouches that no writer without conditional creates is at work on this table in "
            f"{service.name}{and_service}"
        )
        return (Voucher(option=CONDITIONAL_WRITES, value=service.name, sentence=sentence),)

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

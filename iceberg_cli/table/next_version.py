"""The next version of a table as a file that only one writer can create, under a name that every writer would use.

On local disks the file appears whole by one hard link, in object stores by a conditional PUT; neither replaces what is
there. Every doubt is resolved by reading the file back. What cannot be seen from here, that a service lets only one of
racing PUTs through and that all writers commit so, the operator vouches for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, Final

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.paths import scheme_of
from iceberg_cli.plan.plan import Voucher
from iceberg_cli.storage import Storage
from iceberg_cli.storage.conditional_create import ObjectService, probe, service_of
from iceberg_cli.storage.router import NO_OVERRIDES, UnsafeOverrides

CONDITIONAL_WRITES: Final = "--unsafe-conditional-writes"


class NextVersionCommitter(ABC):
    """The commits of one table, each of which creates the file of the next version.

    Args:
        folder: of the table, or of the files of its versions, in canonical spelling.
        storage: that reads and writes it.
        overrides: what the operator vouches for.
    """

    noun: ClassVar[str] = ""  # before a version in messages

    def __init__(self, folder: str, storage: Storage, overrides: UnsafeOverrides = NO_OVERRIDES) -> None:
        self._folder = folder
        self._storage = storage
        self._overrides = overrides
        self._sent = SentAttempts()
        self._is_probed = False

    @cached_property
    def _service(self) -> ObjectService | None:
        """The object store that the folder is in."""
        return service_of(self._folder, self._storage)

    @property
    def _is_local(self) -> bool:
        return scheme_of(self._folder) == "file"

    @abstractmethod
    def unvouched_reason(self) -> str | None:
        """Why nothing is written before the operator vouches for what cannot be seen from here; None where he did.

        Raises:
            BackendUnavailable.
        """

    @abstractmethod
    def vouchers(self) -> tuple[Voucher, ...]:
        """What the operator vouches for, as far as commits to this table rest on it."""

    def probe(self, path: str) -> None:
        """Refuse an object store that nobody vouches for, or that is seen not to keep conditional creates.

        Args:
            path: where nothing is yet; used once in the life of this object.

        Raises:
            Refused, BackendUnavailable.
        """
        # What was so when the table was planned may be otherwise by now.
        if (reason := self.unvouched_reason()) is not None:
            raise Refused(f"Cannot commit: {reason}")
        if self._service is not None and not self._is_probed:
            probe(self._storage, path, service=self._service.name)
            self._is_probed = True

    @abstractmethod
    def current(self) -> str:
        """The newest version, as attempts name their base.

        Raises:
            TableNotFound: there is none. BackendUnavailable.
        """

    @abstractmethod
    def _created(self, attempt: Attempt) -> Outcome:
        """The outcome where our file is there: whether it follows its base, and nothing else does."""

    def _settle_by_content(self, attempt: Attempt, data: bytes) -> Outcome:
        """The outcome by the bytes of the attempt's file."""
        if digest_of(data) == attempt.digest:
            return Committed(metadata_location=attempt.file)
        return Conflict(reason=f"another writer made {attempt.file}")

    def commit(self, attempt: Attempt) -> Outcome:
        """Create the version's file where the base is the newest version and there is no file yet."""
        first = self._sent.first(attempt)
        try:
            now = self.current()
        except (BackendUnavailable, TableNotFound) as error:
            if first:
                raise
            return Unknown(cause=error.message)
        if now != attempt.base:
            # Before the file: where old versions are deleted, the name of one can be free again.
            settled = self.settle(attempt)
            moved = Conflict(reason=f"the table has moved from {self.noun}{attempt.base} to {now}")
            return moved if first and isinstance(settled, Unknown) else settled
        try:
            self._storage.put_if_absent(attempt.file, attempt.data)
        except FileExistsError:
            return self.settle(attempt)
        except BackendUnavailable as error:
            # A request to an object store that had no answer may still be carried out; a system call may not.
            if first and self._is_local and self._is_absent(attempt.file):
                raise
            settled = self.settle(attempt)
            return Unknown(cause=error.message) if isinstance(settled, Unknown) else settled
        return self._created(attempt)

    def settle(self, attempt: Attempt) -> Outcome:
        """Compare the file of the attempt's version with ours.

        Returns:
            Committed: the file there is ours. Conflict: it is another's. Unknown: there is none, or it cannot be read.
        """
        try:
            found = self._storage.read(attempt.file)
        except FileNotFoundError:
            return self._settle_absent(attempt)
        except BackendUnavailable as error:
            return Unknown(cause=f"the table could not be read back: {error.message}")
        return self._settle_by_content(attempt, found)

    def _settle_absent(self, attempt: Attempt) -> Outcome:
        try:
            now = self.current()
        except (BackendUnavailable, TableNotFound) as error:
            return Unknown(cause=f"the table could not be read back: {error.message}")
        if now == attempt.base:
            return Unknown(cause=f"the table is still at {self.noun}{now}")
        return Unknown(cause=f"the table is at {self.noun}{now}, and {attempt.file} is gone")

    def _is_absent(self, path: str) -> bool:
        try:
            self._storage.stat(path)
        except FileNotFoundError:
            return True
        except BackendUnavailable:
            return False
        return False

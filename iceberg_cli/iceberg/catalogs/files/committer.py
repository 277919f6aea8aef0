"""Tables whose current version is the highest `vN.metadata.json` in their folder.

The commit is one hard link: the next version's file appears whole, and only where there was none. The hint
file comes after it and is advice; readers look upward from it. Of tables in object stores see `object_store/`.

Spec: Iceberg, "File System Tables".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.files.versions import (
    HINT,
    find_current,
    of_catalog,
    spelling_of,
    version_of,
)
from iceberg_cli.iceberg.catalogs.metadata_swap import prepare_versioned
from iceberg_cli.iceberg.catalogs.read_only import ReadOnlyCommitter
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.plan.plan import Voucher
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local.write import replace_file
from iceberg_cli.storage.router import NO_OVERRIDES, UnsafeOverrides
from iceberg_cli.table.next_version import NextVersionCommitter

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata


class FileNameCommitter(NextVersionCommitter, Committer):
    """The table in one folder, on whatever storage.

    Args:
        folder: the table's folder, in any spelling.
        storage: that reads and writes it.
        overrides: what the operator vouches for.
    """

    by_file_names: ClassVar[bool] = True

    def __init__(self, folder: str, storage: Storage, overrides: UnsafeOverrides = NO_OVERRIDES) -> None:
        super().__init__(storage.canonical(folder).rstrip("/"), storage, overrides)

    def read_only_reason(self) -> str | None:
        """A catalog's file names mean that it decides; where names are no safe versions, the operator has to vouch."""
        return self._catalogs_name() or self.unvouched_reason() or self._catalogs_files()

    def closing_refusal(self) -> str | None:
        """Why only a catalog can tell what is current, or None: what takes no commit nobody has to vouch for."""
        return self._catalogs_name() or self._catalogs_files()

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: none can where the version's file is there."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:  # noqa: ARG002 - the port's
        """None: the metadata is written here, whole."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:  # noqa: ARG002 - the port's
        """See `NextVersionCommitter.probe`."""
        self.probe(path)

    def _catalogs_name(self) -> str | None:
        if find_current(self._folder, self._storage).version is not None:
            return None
        return f"{self._folder} belongs to a catalog, which alone knows what is current: use its name there"

    def _catalogs_files(self) -> str | None:
        if (name := of_catalog(self._folder, self._storage)) is None:
            return None
        return f"{self._folder} has file system versions and a catalog's {name}: only that catalog can tell"

    def current(self) -> str:
        """The current metadata location, below the canonical folder."""
        return find_current(self._folder, self._storage).location

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The attempt to become the version after the base's.

        Raises:
            Refused: the table is read-only from here.
        """
        version = version_of(base_location)
        if version is None or self.unvouched_reason() is not None:
            raise Refused(f"Cannot commit to {self._folder}: {self.read_only_reason()}.")
        return prepare_versioned(commit, base_location=base_location, version=version + 1)

    def settle(self, attempt: Attempt) -> Outcome:
        """Compare the file of the attempt's version with ours."""
        outcome = super().settle(attempt)
        if isinstance(outcome, Committed) and self._is_newest(attempt):
            self._write_hint(attempt)  # whoever made the version may have died before this
        return outcome

    def _created(self, attempt: Attempt) -> Outcome:
        """Our version is there. Was it the next one, and the only one of its number?"""
        try:
            self._storage.stat(attempt.base)
            other = self._other_spelling(attempt)
        except (FileNotFoundError, BackendUnavailable):
            return Unknown(cause=f"{attempt.base} went while the version after it was made")
        if other:
            return Unknown(cause=f"another writer made {other} at the same time")
        self._write_hint(attempt)
        return Committed(metadata_location=attempt.file)

    @abstractmethod
    def _write_hint(self, attempt: Attempt) -> None:
        """Let the hint file name our version; a hint that is behind does no harm."""

    def _is_newest(self, attempt: Attempt) -> bool:
        try:
            return self.current() == attempt.file
        except (BackendUnavailable, TableNotFound):
            return False

    def _other_spelling(self, attempt: Attempt) -> str | None:
        """A metadata file of the attempt's version under another of its possible names."""
        version = version_of(attempt.file)
        assert version is not None
        return spelling_of(self._folder, version, self._storage, besides=attempt.file)


class FilesystemCommitter(FileNameCommitter):
    """The table in a folder of a local disk.

    Args:
        folder, storage, overrides: see `FileNameCommitter`.

    Raises:
        ValueError: the folder is on no local disk, where more has to be vouched for.
    """

    def __init__(self, folder: str, storage: Storage, overrides: UnsafeOverrides = NO_OVERRIDES) -> None:
        super().__init__(folder, storage, overrides)
        if not self._is_local:
            raise ValueError(f"{self._folder} is in no local folder")

    def unvouched_reason(self) -> None:
        """None: a link is made only where nothing is."""

    def vouchers(self) -> tuple[Voucher, ...]:
        """None are needed."""
        return ()

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """See `FileNameCommitter`; the hint file is written through a temporary one."""
        attempt = super().prepare(commit, base_location=base_location)
        return replace(
            attempt, temporary_files=(f"{self._folder}/metadata/.iceberg-cli-{commit.commit_uuid}.tmp",)
        )

    def settle(self, attempt: Attempt) -> Outcome:
        """See `FileNameCommitter`; where another file has the version, ours will not appear beside it."""
        outcome = super().settle(attempt)
        if isinstance(outcome, Unknown) and (other := self._other_spelling(attempt)):
            return Conflict(reason=f"another writer made {other}")
        return outcome

    def _write_hint(self, attempt: Attempt) -> None:
        version = str(version_of(attempt.file)).encode()
        # The first try removes what a process that was killed here left in the temporary file's place.
        for _ in range(2):
            try:
                replace_file(f"{self._folder}/metadata/{HINT}", version, temporary=attempt.temporary_files[0])
            except FileExistsError:
                continue
            except OSError:
                pass
            return


class PinnedCommitter(ReadOnlyCommitter):
    """One metadata file that the operator named: it can be read, and nothing can follow it."""

    by_file_names: ClassVar[bool] = True

    def __init__(self, location: str, storage: Storage) -> None:
        self._location = storage.canonical(location)
        self._storage = storage

    def read_only_reason(self) -> str:
        """A file name is no pointer."""
        return f"{self._location} is one metadata file: name the table's folder or its name in a catalog"

    def current(self) -> str:
        """The file itself.

        Raises:
            TableNotFound: it is not there.
        """
        try:
            return self._storage.stat(self._location).path
        except FileNotFoundError as error:
            raise TableNotFound(f"Cannot find {self._location}.") from error

"""Tables by file names in an object store, which can only be read unless the operator vouches for them.

The commit is one conditional create, and only where the operator vouches that nobody else commits: engines rename there
by copying, which replaces what came in between. A request without an answer may be carried out later, and a hint that
comes late may be behind.

Spec: Iceberg, "File System Tables".
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.catalogs.files.committer import FileNameCommitter
from iceberg_cli.iceberg.catalogs.files.versions import HINT, version_of
from iceberg_cli.operation.outcomes import Attempt
from iceberg_cli.plan.plan import Voucher
from iceberg_cli.storage.conditional_create import unwritable_reason
from iceberg_cli.table.next_version import CONDITIONAL_WRITES

SINGLE_WRITER: Final = "--unsafe-single-writer"


class ObjectStoreCommitter(FileNameCommitter):
    """The table in a folder of an object store.

    Another file of the attempt's version proves nothing of ours, which may still appear beside it.
    """

    def unvouched_reason(self) -> str | None:
        """Why nothing is committed to this table; see `NextVersionCommitter`."""
        if (reason := unwritable_reason(self._folder)) is not None:
            return reason
        if not self._overrides.single_writer:
            return (
                f"{self._folder} is a table by file names in an object store, where other engines' commits"
                f" could replace ours unseen: register it in a catalog, or vouch by {SINGLE_WRITER} that nobody"
                " else commits to it"
            )
        service = self._service
        if service is None or service.is_known or self._overrides.conditional_writes:
            return None
        return (
            f"{self._folder} is in {service.name}, which is not known to keep conditional creates under races: "
            f"{CONDITIONAL_WRITES} vouches that it does"
        )

    def vouchers(self) -> tuple[Voucher, ...]:
        """That nobody else commits, and that a service which is not known keeps conditional creates."""
        vouchers = []
        if self._overrides.single_writer:
            sentence = f"the operator vouches that nobody else commits to {self._folder}"
            vouchers.append(Voucher(option=SINGLE_WRITER, value=self._folder, sentence=sentence))
        service = self._service
        if service is not None and not service.is_known and self._overrides.conditional_writes:
            sentence = f"the operator vouches that {service.name} keeps conditional creates under races"
            vouchers.append(Voucher(option=CONDITIONAL_WRITES, value=service.name, sentence=sentence))
        return tuple(vouchers)

    def _write_hint(self, attempt: Attempt) -> None:
        with suppress(BackendUnavailable):
            self._storage.replace(f"{self._folder}/metadata/{HINT}", str(version_of(attempt.file)).encode())

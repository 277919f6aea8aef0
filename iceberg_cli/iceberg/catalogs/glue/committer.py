"""Tables of AWS Glue: the entry's parameter `metadata_location` is the pointer.

The commit is one `UpdateTable` that names the entry's version: AWS documents that it is refused where the entry has
another one by then (`ConcurrentModificationException`). It replaces the whole entry, so all of what was read goes back
as it was, but for the location and the one before.

A writer that commits under a lock of its own instead, as Iceberg Java does with `lock-impl`, names no version, and may
replace what was committed in between: such a catalog is not written to.

Source: AWS Glue Web API Reference, `UpdateTable`, `TableInput`; Iceberg, "AWS Integrations", "Optimistic Locking".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.catalogs.glue.connection import (
    METADATA,
    TRANSPORT_ERRORS,
    GlueConnection,
    code_of,
    is_iceberg,
    is_refused,
)
from iceberg_cli.names import name_of
from iceberg_cli.operation.outcomes import Attempt, Conflict, Unknown
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage import Storage

_PREVIOUS: Final = "previous_metadata_location"
_CONFLICT: Final = "ConcurrentModificationException"
_LOCK: Final = "lock-impl"
_MOST_NAMES: Final = 10_000  # that are looked through for one written nearly alike


class _Entry(NamedTuple):
    """An entry of the catalog, the location that it has, and the names of what is not known of it."""

    fields: Mapping[str, Any]
    location: str
    unknown: list[str]


class GlueCommitter(SwapCommitter):
    """One entry of the Glue Data Catalog.

    Args:
        connection: to the catalog.
        namespace: the database.
        table: the entry's name.
        storage: where the metadata files are.
    """

    def __init__(self, connection: GlueConnection, *, namespace: str, table: str, storage: Storage) -> None:
        super().__init__(storage)
        self._connection, self._database, self._table = connection, namespace, table
        self._name = name_of(connection.name, namespace, table)
        self._seen: _Entry | None = None  # as it was read last: its version says whether it is still so

    def read_only_reason(self) -> str | None:
        """Why nothing is committed to this entry, or None."""
        if lock := self._connection.properties.get(_LOCK):
            return (
                f"the catalog {self._connection.name} is configured with {_LOCK}={lock}: writers that lock send no "
                "version of the entry, and could replace this commit unseen. Have all of them commit without a lock "
                "manager, then remove the property"
            )
        entry = self._seen or self._read()
        if federated := entry.fields.get("FederatedTable"):
            return (
                f"{self._name} is federated from {federated.get('ConnectionName') or 'another catalog'}"
                f" ({federated.get('Identifier', 'no identifier')}): what keeps it commits to it and maintains it"
            )
        if "ViewDefinition" in entry.fields:
            return f"{self._name} has the definition of a view"
        if entry.unknown:
            return (
                f"the entry {self._name} has fields that this version of botocore does not know and a commit would "
                f"lose ({', '.join(entry.unknown)}): install a newer boto3"
            )
        if not entry.fields.get("VersionId"):
            return f"the catalog tells no version of the entry {self._name}, without which a commit may replace another"
        return None

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each names the version that it replaces."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: AWS documents that a version which is not current is refused."""

    def current(self) -> str:
        """The entry's metadata location, as it is spelled there."""
        self._seen = self._read()
        return self._seen.location

    def _read(self) -> _Entry:
        found = self._connection.table(self._database, self._table)
        if found is None:
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.{self._near()}")
        fields, unknown = found
        if target := fields.get("TargetTable"):
            linked = ".".join(str(target.get(key, "?")) for key in ("CatalogId", "DatabaseName", "Name"))
            raise TableNotFound(
                f"Cannot open {self._name}: it is a resource link to {linked}.",
                next_step="Name that table, in a catalog that is configured with its glue.id.",
            )
        parameters = fields.get("Parameters") or {}
        if not is_iceberg(fields):
            kind = parameters.get("table_type") or fields.get("TableType") or "an entry without a type"
            raise TableNotFound(f"Cannot open {self._name}: it is no Iceberg table, but {kind}.")
        if not parameters.get(METADATA):
            raise TableNotFound(f"Cannot open {self._name}: its entry has no {METADATA}.")
        return _Entry(fields, str(parameters[METADATA]), unknown)

    def _near(self) -> str:
        """The tables of the database that are named nearly like this one, in words."""
        tables = islice(self._connection.tables(self._database), _MOST_NAMES)
        try:
            return did_you_mean(self._table, [str(each["Name"]) for each in tables])
        except BackendUnavailable:
            return ""

    def _swap(self, attempt: Attempt) -> bool | Conflict | Unknown:
        """One request, which holds for the version of the entry that had the base."""
        if reason := self.read_only_reason():
            return Conflict(reason=reason, for_good=True)
        entry = self._seen
        assert entry is not None
        if entry.location != attempt.base:
            return False
        try:
            self._connection.update(self._database, self._input(entry, attempt), entry.fields["VersionId"])
        except TRANSPORT_ERRORS as error:
            if code_of(error) == _CONFLICT:
                return self._overtaken(attempt, self._connection.reason(error))
            if is_refused(error):
                raise self._connection.failed(f"Cannot commit to {self._name}", error) from None
            return Unknown(
                cause=f"the catalog did not confirm the commit to {self._name}: {self._connection.reason(error)}"
            )
        return True

    def _overtaken(self, attempt: Attempt, reason: str) -> bool | Unknown:
        """What a refused version proves: nothing where the pointer moved, for our request may have come in twice."""
        try:
            return False if self.current() == attempt.base else Unknown(cause=reason)
        except (BackendUnavailable, TableNotFound) as error:
            return Unknown(cause=f"{reason}; {error.message}")

    def _input(self, entry: _Entry, attempt: Attempt) -> dict[str, Any]:
        """The whole entry, with the locations of this commit."""
        kept = {name: value for name, value in entry.fields.items() if name in self._connection.input_fields}
        locations = {METADATA: attempt.file, _PREVIOUS: attempt.base}
        return {**kept, "Parameters": {**entry.fields["Parameters"], **locations}}

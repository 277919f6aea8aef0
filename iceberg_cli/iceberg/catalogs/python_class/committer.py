"""Tables of any Python class that is a PyIceberg catalog, read-only: the property `py-catalog-impl` names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.iceberg.catalogs.python_class.connection import PythonClassConnection, secrets_in
from iceberg_cli.iceberg.catalogs.read_only import ReadOnlyCommitter
from iceberg_cli.names import name_of


class PythonClassCommitter(ReadOnlyCommitter):
    """One table of a catalog that only its class knows how to ask.

    Args:
        catalog_name: as it is configured.
        identifier: the levels of the namespace, and the table's name.
        properties: the catalog's; `py-catalog-impl` is the class, as `module.Class`.
        storage_options: come before those of the table.

    Raises:
        UsageError: the class cannot be imported.
        TableNotFound: there is no such table.
        BackendUnavailable: the class raised something else.
    """

    def __init__(
        self,
        catalog_name: str,
        identifier: tuple[str, ...],
        properties: Mapping[str, Any],
        storage_options: Mapping[str, str],
    ) -> None:
        self._identifier = identifier
        self._name = name_of(catalog_name, *identifier)
        self._connection = PythonClassConnection(catalog_name, properties)
        self._class, self._catalog = self._connection.class_name, self._connection.catalog
        table = self._load()
        self._opened: str | None = _location_of(table)
        given = {**properties, **self._catalog.properties, **table.io.properties}
        self._connection.secrets += secrets_in(given)
        # PyIceberg's names of storage options have a dot; others, such as `token`, are the catalog's.
        options = {
            key: str(value) for key, value in given.items() if "." in key and not key.startswith("header.")
        }
        self.storage_options: Mapping[str, str] = {**options, **storage_options}

    def read_only_reason(self) -> str:
        """A class promises nothing about what came of a commit whose answer was lost."""
        return (
            f"its catalog is the Python class {self._class}, by which tables are read only: what its commits promise"
            " is not known"
        )

    def current(self) -> str:
        """The metadata location that the class names; the first answer is what opening the table brought.

        Raises:
            TableNotFound: there is no such table.
            BackendUnavailable: the class raised something else, or names no location.
        """
        opened, self._opened = self._opened, None
        location = opened or _location_of(self._load())
        if not location:
            raise BackendUnavailable(f"Cannot read {self._name}: {self._class} names no metadata file of it.")
        return location

    def _load(self) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.") from None
        except Exception as error:  # noqa: BLE001 - it may raise anything
            raise BackendUnavailable(
                f"Cannot ask the catalog for {self._name}: {self._class} says {self._connection.reason(error)}"
            ) from None


def _location_of(table: Table) -> str:
    return table.metadata_location or ""

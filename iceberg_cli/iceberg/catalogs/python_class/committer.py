"""Tables of any Python class that is a PyIceberg catalog, read-only: the property `py-catalog-impl` names it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from iceberg_cli.errors import BackendUnavailable, TableNotFound, UsageError
from iceberg_cli.iceberg.catalogs.entries import CatalogEntry, MayMatch, no_answer, walk_namespaces
from iceberg_cli.iceberg.catalogs.read_only import ReadOnlyCommitter
from iceberg_cli.storage.redaction import redact

_SHOWN: Final = (PY_CATALOG_IMPL, "type", "uri", "warehouse")  # what else may be secret only the class knows


class _Connection:
    """A catalog of a class that only the class knows how to ask.

    Args:
        catalog_name: as it is configured.
        properties: the catalog's.

    Raises:
        UsageError, BackendUnavailable: see `PythonClassCommitter`.
    """

    def __init__(self, catalog_name: str, properties: Mapping[str, Any]) -> None:
        self.class_name = str(properties[PY_CATALOG_IMPL])
        self.secrets = list(_secrets_of(properties))
        self.catalog = self._connect(catalog_name, properties)

    def _connect(self, catalog_name: str, properties: Mapping[str, Any]) -> Catalog:
        module, _, name = self.class_name.rpartition(".")
        cannot = f"Cannot open the catalog {catalog_name}: {self.class_name}"
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:  # noqa: BLE001 - it may raise anything
            raise UsageError(
                f"{cannot} cannot be imported: {self.reason(error)}",
                next_step=f"Correct {PY_CATALOG_IMPL}, or install its module beside this tool.",
            ) from None
        try:
            catalog = found(catalog_name, **properties)
        except Exception as error:  # noqa: BLE001 - it may raise anything
            raise BackendUnavailable(f"{cannot} says {self.reason(error)}") from None
        if not isinstance(catalog, Catalog):
            raise UsageError(f"{cannot} is no catalog of PyIceberg.", next_step=f"Correct {PY_CATALOG_IMPL}.")
        return catalog

    def reason(self, error: Exception) -> str:
        """The error's class and text in one line, without what may be secret."""
        return redact(" ".join(f"{type(error).__name__}: {error}".split()), self.secrets)


def list_python_class(
    name: str, properties: Mapping[str, Any], may_match: MayMatch
) -> Iterator[CatalogEntry]:
    """See `list_catalog`."""
    connection = _Connection(name, properties)

    def answers(ask: Callable[[], Iterable[tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
        try:
            yield from (tuple(each) for each in ask())
        except NoSuchNamespaceError:
            return  # it went meanwhile
        except Exception as error:  # noqa: BLE001 - it may raise anything
            raise no_answer(name, f"{connection.class_name} says {connection.reason(error)}") from None

    def below(levels: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for each in answers(lambda: connection.catalog.list_namespaces(levels)):
            if each[:-1] == levels:
                yield each

    for levels in walk_namespaces(may_match, below):
        for *_, table in answers(lambda levels=levels: connection.catalog.list_tables(levels)):  # type: ignore[misc]
            yield CatalogEntry(levels, table)


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
        self._name = ".".join((catalog_name, *identifier))
        self._connection = _Connection(catalog_name, properties)
        self._class, self._catalog = self._connection.class_name, self._connection.catalog
        table = self._load()
        self._opened: str | None = _location_of(table)
        given = {**properties, **self._catalog.properties, **table.io.properties}
        self._connection.secrets += _secrets_of(given)
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


def _secrets_of(properties: Mapping[str, Any]) -> Iterator[str]:
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets_of(value)
        elif key not in _SHOWN:
            yield str(value)
        elif password := _password_of(str(value)):
            yield from (password, unquote(password))


def _password_of(uri: str) -> str:
    try:
        return urlsplit(uri).password or ""
    except ValueError:
        return ""

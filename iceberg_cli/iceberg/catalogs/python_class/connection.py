"""A catalog of a Python class, made by what `py-catalog-impl` names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog

from iceberg_cli.errors import BackendUnavailable, UsageError
from iceberg_cli.storage.redaction import redact

_SHOWN: Final = (PY_CATALOG_IMPL, "type", "uri", "warehouse")  # what else may be secret only the class knows


class PythonClassConnection:
    """A catalog of a class that only the class knows how to ask.

    Args:
        catalog_name: as it is configured.
        properties: the catalog's.

    Raises:
        UsageError, BackendUnavailable: see `PythonClassCommitter`.
    """

    def __init__(self, catalog_name: str, properties: Mapping[str, Any]) -> None:
        self.class_name = str(properties[PY_CATALOG_IMPL])
        self.secrets = list(secrets_in(properties))
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


def secrets_in(properties: Mapping[str, Any]) -> Iterator[str]:
    """What no message may show of properties."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
        elif key not in _SHOWN:
            yield str(value)
        elif password := _password_of(str(value)):
            yield from (password, unquote(password))


def _password_of(uri: str) -> str:
    try:
        return urlsplit(uri).password or ""
    except ValueError:
        return ""

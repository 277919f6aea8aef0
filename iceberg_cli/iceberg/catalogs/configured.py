"""Tables by name: PyIceberg's own configuration finds the catalog, an adapter of ours commits to it.

Catalog types of other packages join by the entry point group `iceberg_cli.committers`: the entry's name is
the catalog's `type`, its object is called with catalog name, namespace, table name, the catalog's properties
and the storage, and returns a `Committer`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.storage import Storage
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.router import open_storage

_MEND = "Mend the file, or name another one with --catalog-config."
_ENVIRONMENT = "PYICEBERG_CATALOG__"
_PYTHON_CLASS = "py-catalog-impl"
_BY_URI = {
    "sqlite": "sql",
    "postgresql": "sql",
    "mysql": "sql",
    "mariadb": "sql",
    "http": "rest",
    "https": "rest",
    "thrift": "hive",
}


def open_catalog_table(
    name: str, *, config_file: str | None = None, storage_options: Mapping[str, str] | None = None
) -> tuple[Committer, Mapping[str, str]]:
    """The committer of a catalog's table, and the options that open its storage.

    Args:
        name: `catalog.namespace.table`; more parts in the middle are levels of the namespace.
        config_file: a file like `.pyiceberg.yaml`; None for those PyIceberg finds by itself. Variables such
            as `PYICEBERG_CATALOG__PROD__URI` come before either.
        storage_options: come before the catalog's own.

    Raises:
        UsageError: the name has too few parts, the catalog is not configured, or its type is not supported.
        BackendUnavailable: the catalog's database is not there.
    """
    catalog, *levels, table = name.split(".") if name.count(".") > 1 else ("", "")
    if not (catalog and table and all(levels)):
        raise UsageError(
            f"Cannot use {name} as a table's name: it is not of the form catalog.namespace.table."
        )
    sections, properties = _properties(catalog, config_file)
    options = {**properties, **(storage_options or {})}
    if _PYTHON_CLASS in properties:
        return _open_python_class(
            catalog, (*levels, table), {**sections, **properties}, storage_options or {}
        )
    kind = _type_of(catalog, properties)
    storage = open_storage(options)
    namespace = ".".join(levels)
    for entry in entry_points(group="iceberg_cli.committers", name=kind):
        committer: Committer = entry.load()(catalog, namespace, table, properties, storage)
        return committer, options
    if kind == "rest":
        return _open_rest(catalog, levels, table, {**sections, **properties}, storage_options or {})
    if kind != "sql":
        raise UsageError(f"Cannot open {name}: the catalog type {kind} is not supported yet.")
    return _open_sql(catalog, namespace, table, properties, storage), options


def _open_sql(
    catalog: str, namespace: str, table: str, properties: Mapping[str, str], storage: Storage
) -> Committer:
    try:
        from iceberg_cli.iceberg.catalogs.sql import SqlCommitter
    except ImportError as error:
        raise _not_installed(catalog, error) from error
    if not (uri := properties.get("uri")):
        raise UsageError(f"Cannot open the catalog {catalog}: its configuration has no uri.")
    return SqlCommitter(uri, catalog_name=catalog, namespace=namespace, table=table, storage=storage)


def _open_rest(
    catalog: str,
    levels: Sequence[str],
    table: str,
    properties: Mapping[str, Any],
    storage_options: Mapping[str, str],
) -> tuple[Committer, Mapping[str, str]]:
    try:
        from iceberg_cli.iceberg.catalogs.rest import RestCommitter
    except ImportError as error:
        raise _not_installed(catalog, error) from error
    if "uri" not in properties:
        raise UsageError(f"Cannot open the catalog {catalog}: its configuration has no uri.")
    committer = RestCommitter(catalog, tuple(levels), table, properties, storage_options)
    return committer, committer.storage_options


def _open_python_class(
    catalog: str,
    identifier: tuple[str, ...],
    properties: Mapping[str, Any],
    storage_options: Mapping[str, str],
) -> tuple[Committer, Mapping[str, str]]:
    try:
        from iceberg_cli.iceberg.catalogs.python_class import PythonClassCommitter
    except ImportError as error:
        raise _not_installed(catalog, error) from error
    if "type" in properties:
        raise UsageError(
            f"Cannot open the catalog {catalog}: its configuration has both a type and {_PYTHON_CLASS}."
        )
    committer = PythonClassCommitter(catalog, identifier, properties, storage_options)
    return committer, committer.storage_options


def _not_installed(catalog: str, error: ImportError) -> UsageError:
    return UsageError(
        f"Cannot open the catalog {catalog}: {error.name} is not installed.",
        next_step=how_to_install(error),
    )


def _type_of(catalog: str, properties: Mapping[str, str]) -> str:
    """The type of a catalog by PyIceberg's rule: `type`, or by the scheme of `uri`."""
    if kind := properties.get("type"):
        return kind.lower()
    scheme = properties.get("uri", "").partition(":")[0].partition("+")[0].lower()
    if kind := _BY_URI.get(scheme):
        return kind
    raise UsageError(
        f"Cannot open the catalog {catalog}: its configuration has no type, and its uri shows none."
    )


def _properties(catalog: str, config_file: str | None) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The sections of the catalog's configuration, such as `auth` and `ssl`; and its properties, keys in lower case."""
    configured = _from_pyiceberg(catalog) if config_file is None else _from_file(catalog, config_file)
    sections = {key.lower(): value for key, value in configured.items() if isinstance(value, dict)}
    properties = {key.lower(): str(value) for key, value in configured.items() if not isinstance(value, dict)}
    prefix = f"{_ENVIRONMENT}{catalog}__".lower()
    for variable, value in os.environ.items():
        if variable.lower().startswith(prefix):
            key = variable.lower().removeprefix(prefix)
            properties[key.replace("__", ".").replace("_", "-")] = value
    if not properties and not sections:
        raise UsageError(
            f"Cannot open the catalog {catalog}: it is not configured.",
            next_step=f"Add it to .pyiceberg.yaml, or set {_ENVIRONMENT}{catalog.upper()}__URI.",
        )
    return sections, properties


def _in_one_line(error: Exception) -> str:
    """The error of a configuration in one line; of YAML the line number and the parser's message."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return redact(" ".join(str(error).split()))
    context = getattr(error, "context", None)
    reason = ", ".join(" ".join(str(part).split()) for part in (problem, context) if part)
    return redact(f"line {mark.line + 1}: {reason}")


def _from_pyiceberg(catalog: str) -> Mapping[str, Any]:
    try:
        import strictyaml
        from pyiceberg.utils.config import Config
    except ImportError as error:
        raise _not_installed(catalog, error) from error
    try:
        return Config().get_catalog_config(catalog) or {}
    except (strictyaml.YAMLError, OSError, ValueError, AttributeError) as error:
        # The last is what PyIceberg says to a file that holds no mapping.
        raise UsageError(
            f"Cannot read PyIceberg's configuration: {_in_one_line(error)}", next_step=_MEND
        ) from None


def _from_file(catalog: str, config_file: str) -> Mapping[str, Any]:
    try:
        import strictyaml
    except ImportError as error:
        raise _not_installed(catalog, error) from error
    try:
        with open(config_file, encoding="utf-8") as file:
            content: Any = strictyaml.load(file.read()).data
    except (strictyaml.YAMLError, OSError, ValueError) as error:
        raise UsageError(
            f"Cannot read the configuration {config_file}: {_in_one_line(error)}", next_step=_MEND
        ) from None
    for part in ("catalog", catalog):
        entries = content if isinstance(content, dict) else {}
        content = {key.lower(): value for key, value in entries.items()}.get(part.lower())
    return content if isinstance(content, dict) else {}

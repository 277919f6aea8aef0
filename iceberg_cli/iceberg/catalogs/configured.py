"""Tables by name: PyIceberg's own configuration finds the catalog, an adapter of ours commits to it.

Catalog types of other packages join by the entry point group `iceberg_cli.committers`: the entry's name is
the catalog's `type`, its object is called with catalog name, namespace, table name, the catalog's properties
and the storage, and returns a `Committer`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.storage import Storage
from iceberg_cli.storage.plugins import entry_points_of
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.router import open_storage
from iceberg_cli.storage.s3_options import TAGS, with_table_tags

if TYPE_CHECKING:
    from iceberg_cli.iceberg.catalogs.glue.connection import GlueConnection
    from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection
    from iceberg_cli.iceberg.catalogs.rest.connection import RestConnection
    from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase

_FILE_NAME = ".pyiceberg.yaml"
_MEND = "Mend the file, or name another one with --catalog-config."
_ENVIRONMENT = "PYICEBERG_CATALOG__"
PYTHON_CLASS = "py-catalog-impl"
_BY_URI = {
    "sqlite": "sql",
    "postgresql": "sql",
    "mysql": "sql",
    "mariadb": "sql",
    "http": "rest",
    "https": "rest",
    "thrift": "hive",
}


class Catalogs:
    """The catalogs that are configured, and connections to them, for several tables of one thread.

    Args:
        config_file: a file like `.pyiceberg.yaml`; None for those PyIceberg finds by itself. Variables such
            as `PYICEBERG_CATALOG__PROD__URI` come before either.
    """

    def __init__(self, config_file: str | None = None) -> None:
        self._config_file = config_file
        self._read: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
        self._connections: dict[str, RestConnection] = {}
        self._databases: dict[str, SqlDatabase] = {}
        self._glue: dict[str, GlueConnection] = {}
        self._metastores: dict[str, HiveConnection] = {}

    def names(self) -> list[str]:
        """The names of all that are configured, in their order.

        Raises:
            UsageError: the configuration cannot be read.
        """
        path = self._config_file or _file_of_pyiceberg()
        configured = [] if path is None else list(_section(_read_file(path), "catalog"))
        # A variable's name is in capitals on most systems, and stands for the same name in lower case.
        by_variable = {
            variable[len(_ENVIRONMENT) :].partition("__")[0].lower()
            for variable in os.environ
            if variable.upper().startswith(_ENVIRONMENT)
        }
        known = {name.lower() for name in configured}
        return [*configured, *sorted(name for name in by_variable if name and name not in known)]

    def configured(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """The sections of a catalog's configuration, such as `auth` and `ssl`; and its properties, in lower case.

        Raises:
            UsageError: the configuration cannot be read, or has no such catalog.
        """
        if name not in self._read:
            self._read[name] = _properties(name, self._config_file)
        return self._read[name]

    def kind(self, name: str) -> str:
        """The type of a catalog, such as `rest` or `sql`; that of one by a Python class is the class's property.

        Raises:
            UsageError: see `configured`.
        """
        properties = self.configured(name)[1]
        return PYTHON_CLASS if PYTHON_CLASS in properties else _type_of(name, properties)

    def sql(self, name: str) -> SqlDatabase:
        """The database of a SQL catalog.

        Raises:
            UsageError, BackendUnavailable: see `SqlDatabase`.
        """
        if name not in self._databases:
            try:
                from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
            except ImportError as error:
                raise not_installed(name, error) from error
            self._databases[name] = SqlDatabase(self.uri(name))
        return self._databases[name]

    def glue(self, name: str) -> GlueConnection:
        """The connection to AWS Glue.

        Raises:
            UsageError: see `GlueConnection`.
        """
        if name not in self._glue:
            try:
                from iceberg_cli.iceberg.catalogs.glue.connection import GlueConnection
            except ImportError as error:
                raise not_installed(name, error) from error
            self._glue[name] = GlueConnection(name, self.configured(name)[1])
        return self._glue[name]

    def rest(self, name: str) -> RestConnection:
        """The connection to a REST catalog.

        Raises:
            UsageError, AccessDenied, BackendUnavailable: see `RestConnection`.
        """
        if name not in self._connections:
            sections, properties = self.configured(name)
            try:
                from iceberg_cli.iceberg.catalogs.rest.connection import RestConnection
            except ImportError as error:
                raise not_installed(name, error) from error
            self.uri(name)
            self._connections[name] = RestConnection(name, {**sections, **properties})
        return self._connections[name]

    def hive(self, name: str) -> HiveConnection:
        """The connection to a Hive Metastore.

        Raises:
            UsageError: see `HiveConnection`.
        """
        if name not in self._metastores:
            self.uri(name)
            try:
                from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection
            except ImportError as error:
                raise not_installed(name, error) from error
            self._metastores[name] = HiveConnection(name, self.configured(name)[1])
        return self._metastores[name]

    def uri(self, name: str) -> str:
        """The URI of a catalog.

        Raises:
            UsageError: see `configured`; or it has none.
        """
        uri = self.configured(name)[1].get("uri")
        if not uri:
            raise UsageError(f"Cannot open the catalog {name}: its configuration has no uri.")
        return uri


def open_catalog_table(
    name: str, *, catalogs: Catalogs | None = None, storage_options: Mapping[str, str] | None = None
) -> tuple[Committer, Mapping[str, str]]:
    """The committer of a catalog's table, and the options that open its storage.

    Args:
        name: `catalog.namespace.table`; more parts in the middle are levels of the namespace.
        catalogs: those that are configured; None: as PyIceberg finds them.
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
    catalogs = catalogs or Catalogs()
    sections, properties = catalogs.configured(catalog)
    options = {**properties, **(storage_options or {})}
    if PYTHON_CLASS in properties:
        return _open_python_class(
            catalog, (*levels, table), {**sections, **properties}, storage_options or {}
        )
    kind = _type_of(catalog, properties)
    if kind == "glue":
        options = with_table_tags(options, namespace=".".join(levels), table=table)
    storage = open_storage(options)
    namespace = ".".join(levels)
    entry = entry_points_of("iceberg_cli.committers").get(kind)
    if entry is not None:
        committer: Committer = entry.load()(catalog, namespace, table, properties, storage)
        return committer, options
    if kind == "rest":
        return _open_rest(catalogs, catalog, (*levels, table), storage_options or {})
    if kind == "glue":
        return _open_glue(catalogs, catalog, namespace, table, storage), options
    if kind == "hive":
        return _open_hive(catalogs, catalog, namespace, table, storage), options
    if kind != "sql":
        raise UsageError(f"Cannot open {name}: the catalog type {kind} is not supported yet.")
    return _open_sql(catalogs, catalog, namespace, table, storage), options


def _open_sql(catalogs: Catalogs, catalog: str, namespace: str, table: str, storage: Storage) -> Committer:
    database = catalogs.sql(catalog)
    from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter

    return SqlCommitter(database, catalog_name=catalog, namespace=namespace, table=table, storage=storage)


def _open_glue(catalogs: Catalogs, catalog: str, namespace: str, table: str, storage: Storage) -> Committer:
    connection = catalogs.glue(catalog)
    from iceberg_cli.iceberg.catalogs.glue.committer import GlueCommitter

    return GlueCommitter(connection, namespace=namespace, table=table, storage=storage)


def _open_hive(catalogs: Catalogs, catalog: str, namespace: str, table: str, storage: Storage) -> Committer:
    connection = catalogs.hive(catalog)
    from iceberg_cli.iceberg.catalogs.hive.committer import HiveCommitter

    return HiveCommitter(connection, database=namespace, table=table, storage=storage)


def _open_rest(
    catalogs: Catalogs, catalog: str, identifier: tuple[str, ...], storage_options: Mapping[str, str]
) -> tuple[Committer, Mapping[str, str]]:
    connection = catalogs.rest(catalog)
    from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter

    sections, properties = catalogs.configured(catalog)
    *levels, table = identifier
    committer = RestCommitter(
        catalog, tuple(levels), table, {**sections, **properties}, storage_options, connection
    )
    return committer, committer.storage_options


def _open_python_class(
    catalog: str,
    identifier: tuple[str, ...],
    properties: Mapping[str, Any],
    storage_options: Mapping[str, str],
) -> tuple[Committer, Mapping[str, str]]:
    try:
        from iceberg_cli.iceberg.catalogs.python_class.committer import PythonClassCommitter
    except ImportError as error:
        raise not_installed(catalog, error) from error
    if "type" in properties:
        raise UsageError(
            f"Cannot open the catalog {catalog}: its configuration has both a type and {PYTHON_CLASS}."
        )
    committer = PythonClassCommitter(catalog, identifier, properties, storage_options)
    return committer, committer.storage_options


def not_installed(catalog: str, error: ImportError) -> UsageError:
    """The error of a catalog whose type needs a package that is not there."""
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
    path = config_file or _file_of_pyiceberg()
    configured = {} if path is None else _from_file(catalog, path)
    sections = {key: value for key, value in configured.items() if isinstance(value, dict)}
    properties = {key: str(value) for key, value in configured.items() if not isinstance(value, dict)}
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


def _file_of_pyiceberg() -> str | None:
    """The configuration file that PyIceberg reads: the first that is there; None where there is none."""
    folders = (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~"), os.getcwd())
    paths = (os.path.join(folder, _FILE_NAME) for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def _from_file(catalog: str, config_file: str) -> Mapping[str, Any]:
    return _section(_section(_read_file(config_file), "catalog"), catalog)


def _read_file(config_file: str) -> Any:
    try:
        import strictyaml
    except ImportError as error:
        raise UsageError(
            f"Cannot read the configuration {config_file}: {error.name} is not installed.",
            next_step=how_to_install(error),
        ) from error
    try:
        with open(config_file, encoding="utf-8") as file:
            return _in_lower_case(strictyaml.load(file.read()).data)
    except (strictyaml.YAMLError, OSError, ValueError) as error:
        raise UsageError(
            f"Cannot read the configuration {config_file}: {_in_one_line(error)}", next_step=_MEND
        ) from None


def _in_lower_case(content: Any) -> Any:
    """The same with all keys in lower case, as PyIceberg reads them, but for names of tags."""
    if not isinstance(content, dict):
        return content
    return {_in_lower_case_but_tags(key): _in_lower_case(value) for key, value in content.items()}


def _in_lower_case_but_tags(key: str) -> str:
    """A key in lower case; the name of a tag, which a lifecycle rule compares letter for letter, as it is."""
    prefix = next((each for each in TAGS if key.lower().startswith(each)), key)
    return key[: len(prefix)].lower() + key[len(prefix) :]


def _section(content: Any, name: str) -> Mapping[str, Any]:
    """The mapping below a key; an empty one where there is none."""
    found = content.get(name.lower()) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}

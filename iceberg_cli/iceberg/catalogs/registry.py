"""The catalogs that are configured, each by its type: one of the folders here, or a package's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.catalogs import Catalog, Committer
from iceberg_cli.iceberg.catalogs.configuration import catalog_names, properties_of
from iceberg_cli.iceberg.catalogs.failures import not_installed
from iceberg_cli.names import TABLE_LEVELS, levels_of
from iceberg_cli.plan.text import listed
from iceberg_cli.storage.plugins import entry_points_of

GROUP: Final = "iceberg_cli.committers"
# Types, which are the names of folders here and of extras, and the schemes of URIs that mean them without one.
BUILT_IN: Final[Mapping[str, Sequence[str]]] = {
    "glue": (),
    "hive": ("thrift",),
    "rest": ("http", "https"),
    "sql": ("sqlite", "postgresql", "mysql", "mariadb"),
}
_PYTHON_CLASS: Final = "py-catalog-impl"  # the property of a catalog without a type
_OTHER_VERSION: Final = "Install a version of that package that is for this version of iceberg-cli."


class Catalogs:
    """The catalogs that are configured, and connections to them, for several tables of one thread.

    Args:
        config_file: a file like `.pyiceberg.yaml`; None for those PyIceberg finds by itself. Variables such
            as `PYICEBERG_CATALOG__PROD__URI` come before either.
    """

    def __init__(self, config_file: str | None = None) -> None:
        self._config_file = config_file
        self._read: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
        self._made: dict[str, Catalog] = {}

    def names(self) -> list[str]:
        """The names of all that are configured, in their order.

        Raises:
            UsageError: the configuration cannot be read.
        """
        return catalog_names(self._config_file)

    def configured(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """The sections of a catalog's configuration, such as `auth` and `ssl`; and its properties, in lower case.

        Raises:
            UsageError: the configuration cannot be read, or has no such catalog.
        """
        if name not in self._read:
            self._read[name] = properties_of(name, self._config_file)
        return self._read[name]

    def catalog(self, name: str) -> Catalog:
        """A catalog by its name.

        Raises:
            UsageError: see `configured`; nothing here or in a package is of its type, or what its type needs is not
                installed; or a package's class is none of a catalog.
        """
        if name not in self._made:
            sections, properties = self.configured(name)
            own = _class_of(name, properties)
            with _fitting(own, f"Cannot open the catalog {name}"):
                self._made[name] = own(name, properties, sections)
        return self._made[name]


def open_catalog_table(
    name: str, *, catalogs: Catalogs | None = None, storage_options: Mapping[str, str] | None = None
) -> tuple[Committer, Mapping[str, str]]:
    """The committer of a catalog's table, and the options that open its storage.

    Args:
        name: `catalog.namespace.table`, as `names.name_of` has it; more levels in the middle are of the namespace.
        catalogs: those that are configured; None: as PyIceberg finds them.
        storage_options: come before the catalog's own.

    Raises:
        UsageError: the name has too few parts, or see `Catalogs.catalog` and `Catalog.open`.
        TableNotFound, AccessDenied, BackendUnavailable: see `Catalog.open`.
    """
    given = levels_of(name)
    if len(given) < TABLE_LEVELS:
        raise UsageError(
            f"Cannot use {name} as a table's name: it is not of the form catalog.namespace.table."
        )
    catalog, *levels, table = given
    found = (catalogs or Catalogs()).catalog(catalog)
    with _fitting(type(found), f"Cannot open {name}"):
        committer, options = found.open(tuple(levels), table, storage_options or {})
    _check(
        committer, Committer, f"Cannot open {name}: its committer", is_one=isinstance(committer, Committer)
    )
    return committer, options


@contextmanager
def _fitting(own: type[Catalog], cannot: str) -> Iterator[None]:
    """What a package's class does: refused where that does not fit this version.

    So Python refuses to make an object that lacks a member, and to call a method with other arguments than it takes.

    Raises:
        UsageError: its text begins with `cannot`.
    """
    try:
        yield
    except TypeError as error:
        if own.__module__.startswith(f"{__package__}."):
            raise
        raise UsageError(
            f"{cannot}: {own.__module__}.{own.__name__} fails: {error}", next_step=_OTHER_VERSION
        ) from error


def _class_of(name: str, properties: Mapping[str, str]) -> type[Catalog]:
    if _PYTHON_CLASS in properties:
        kind = "python_class"
    elif (kind := _type_of(name, properties)) not in BUILT_IN:
        return _class_of_package(name, kind)
    try:
        found: type[Catalog] = import_module(f"{__package__}.{kind}.catalog").CATALOG
    except ImportError as error:
        raise not_installed(name, error, extra=kind if kind in BUILT_IN else "") from error
    return found


def _type_of(catalog: str, properties: Mapping[str, str]) -> str:
    """The type of a catalog by PyIceberg's rule: `type`, or by the scheme of `uri`."""
    if kind := properties.get("type"):
        return kind.lower()
    scheme = properties.get("uri", "").partition(":")[0].partition("+")[0].lower()
    for kind, schemes in BUILT_IN.items():
        if scheme in schemes:
            return kind
    raise UsageError(
        f"Cannot open the catalog {catalog}: its configuration has no type, and its uri shows none."
    )


def _class_of_package(name: str, kind: str) -> type[Catalog]:
    """The class that an installed package brings for a type."""
    entry = entry_points_of(GROUP).get(kind)
    if entry is None:
        raise UsageError(
            f"Cannot open the catalog {name}: its type {kind} is not supported",
            next_step=f"Types are {listed(sorted(BUILT_IN))}; an installed package may bring others.",
        )
    cannot = f"Cannot open the catalog {name}: the entry point {entry.value} of its type {kind}"
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{cannot} cannot be loaded: {error}",
            next_step="Install another version of that package, or remove it.",
        ) from error
    is_one = isinstance(found, type) and issubclass(found, Catalog)
    _check(found, Catalog, cannot, is_one=is_one)
    checked: type[Catalog] = found
    return checked


def _check(found: object, port: type, cannot: str, *, is_one: bool) -> None:
    """Refuse what is not of a port's class, naming the members that it lacks.

    Raises:
        UsageError: its text begins with `cannot`.
    """
    abstract: Iterable[str] = getattr(port, "__abstractmethods__", ())
    missing = ", ".join(name for name in sorted(abstract) if _lacks(found, name))
    if missing or not is_one:
        own = f"{port.__module__}.{port.__name__}"
        lack = f"has no {missing}, as every {own} has" if missing else f"is no {own}"
        raise UsageError(f"{cannot} {lack}", next_step=_OTHER_VERSION)


def _lacks(found: object, name: str) -> bool:
    member = getattr(found, name, None)
    return not callable(member) or getattr(member, "__isabstractmethod__", False)

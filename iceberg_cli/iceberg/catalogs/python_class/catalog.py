"""A catalog that only its Python class knows how to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyiceberg.catalog import PY_CATALOG_IMPL
from pyiceberg.exceptions import NoSuchNamespaceError

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer, MayMatch
from iceberg_cli.iceberg.catalogs.failures import no_answer
from iceberg_cli.iceberg.catalogs.namespaces import walk_namespaces
from iceberg_cli.iceberg.catalogs.python_class.committer import PythonClassCommitter
from iceberg_cli.iceberg.catalogs.python_class.connection import PythonClassConnection


class PythonClassCatalog(Catalog):
    """The tables of a class; each of them, and each list, has an object of its own."""

    @property
    def _all_properties(self) -> Mapping[str, Any]:
        return {**self.sections, **self.properties}

    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """See `Catalog.open`; the class gives options too."""
        if "type" in self.properties:
            raise UsageError(
                f"Cannot open the catalog {self.name}: its configuration has both a type and {PY_CATALOG_IMPL}."
            )
        committer = PythonClassCommitter(self.name, (*levels, table), self._all_properties, storage_options)
        return committer, committer.storage_options

    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The tables by namespaces."""
        connection = PythonClassConnection(self.name, self._all_properties)

        def answers(ask: Callable[[], Iterable[tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
            try:
                yield from (tuple(each) for each in ask())
            except NoSuchNamespaceError:
                return  # it went meanwhile
            except Exception as error:  # noqa: BLE001 - it may raise anything
                raise no_answer(
                    self.name, f"{connection.class_name} says {connection.reason(error)}"
                ) from None

        def below(levels: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
            for each in answers(lambda: connection.catalog.list_namespaces(levels)):
                if each[:-1] == levels:
                    yield each

        for levels in walk_namespaces(may_match, below):
            for *_, table in answers(lambda levels=levels: connection.catalog.list_tables(levels)):  # type: ignore[misc]
                yield CatalogEntry(levels, table)

    def pointer(self, levels: tuple[str, ...], table: str) -> None:
        """None: opening the table is the one question that a class answers."""

    def place(self) -> None:
        """None: what the properties mean only the class knows."""

    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """None that one question would tell."""
        return {}


CATALOG: Final = PythonClassCatalog

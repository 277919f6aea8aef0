"""What every `Catalog` promises of its tables, as tests: `class TestMine(ListingConformance)` with a fixture `listed`.

What commits to its tables promise is in `catalogs.py`. A catalog may leave out what its list does not tell: locations,
pointers, its place and duplicates. What it does tell is held against what opening the tables shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

import pytest

from iceberg_cli.errors import TableNotFound
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer

Name = tuple[tuple[str, ...], str]
"""The levels of a table's namespace, and its own name."""


class ListedCatalog(ABC):
    """A catalog with three tables or more, in two namespaces or more, each with a metadata file that can be read."""

    @property
    @abstractmethod
    def tables(self) -> Mapping[Name, str]:
        """Its tables with the metadata locations that it has for them, as it spells them."""

    @abstractmethod
    def open(self) -> Catalog:
        """The catalog, as a new process would make it of its configuration."""

    @abstractmethod
    def drop(self, levels: tuple[str, ...], table: str) -> None:
        """Take a table out of the catalog and out of `tables`; its files stay."""


def entries_of(listed: ListedCatalog) -> list[CatalogEntry]:
    """What a new process lists, in the catalog's order."""
    return list(listed.open().list(lambda _: True))


def names_of(listed: ListedCatalog) -> list[Name]:
    """The names of these, in the order of names."""
    return sorted((entry.levels, entry.table) for entry in entries_of(listed))


class ListingConformance:
    """That tables are found by their list, and opened by the names that it has.

    A subclass defines a fixture `listed: ListedCatalog`, new for each test.
    """

    def test_every_table_is_listed_once_and_each_time_anew(self, listed: ListedCatalog) -> None:
        assert names_of(listed) == sorted(listed.tables)
        catalog = listed.open()
        assert list(catalog.list(lambda _: True)) == list(catalog.list(lambda _: True))

    def test_namespaces_that_are_not_meant_are_left_out(self, listed: ListedCatalog) -> None:
        assert list(listed.open().list(lambda _: False)) == []
        for namespace in {levels for levels, _ in listed.tables}:
            found = listed.open().list(lambda levels, below=namespace: levels == below[: len(levels)])  # type: ignore[misc]
            expected = [name for name in listed.tables if name[0] == namespace[: len(name[0])]]
            assert sorted((entry.levels, entry.table) for entry in found) == sorted(expected)

    def test_what_is_listed_can_be_opened_and_has_the_location_that_its_list_tells(
        self, listed: ListedCatalog
    ) -> None:
        catalog = listed.open()
        for entry in entries_of(listed):
            committer, options = catalog.open(entry.levels, entry.table, {"own.option": "of the operator"})
            assert isinstance(committer, Committer)
            assert committer.current() == listed.tables[entry.levels, entry.table]
            assert entry.metadata_location in (None, committer.current())
            assert options["own.option"] == "of the operator"

    def test_a_pointer_is_where_opening_the_table_would_look(self, listed: ListedCatalog) -> None:
        catalog = listed.open()
        for (levels, table), location in listed.tables.items():
            pointer = catalog.pointer(levels, table)
            if pointer is not None:
                assert pointer.location == location
                assert pointer.document is None or pointer.document["format-version"]

    def test_a_table_that_is_not_there_is_not_found(self, listed: ListedCatalog) -> None:
        (levels, table), *_ = listed.tables
        for name in ((levels, f"no_{table}"), (("no_such_namespace",), table)):
            with pytest.raises(TableNotFound):
                listed.open().open(*name, {})[0].current()
            with suppress(TableNotFound):
                assert listed.open().pointer(*name) is None

    def test_a_table_that_was_dropped_is_not_listed_any_more(self, listed: ListedCatalog) -> None:
        (levels, table), *_ = listed.tables
        listed.drop(levels, table)
        assert (levels, table) not in listed.tables
        assert names_of(listed) == sorted(listed.tables)

    def test_the_place_of_one_configuration_is_always_the_same(self, listed: ListedCatalog) -> None:
        place = listed.open().place()
        assert place == listed.open().place()
        assert place is None or all(isinstance(text, str) for pair in place.items() for text in pair)

    def test_duplicates_are_tables_of_the_list_with_one_location(self, listed: ListedCatalog) -> None:
        for location, entries in listed.open().duplicates().items():
            assert len(entries) > 1
            assert {listed.tables[entry.levels, entry.table] for entry in entries} == {location}

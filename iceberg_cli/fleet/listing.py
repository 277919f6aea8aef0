"""The tables that patterns mean, in catalogs and below folders. None is opened, and none is named twice.

A table that several names lead to is one: where only one place is listed its names come as the place gives them;
where several are, all are listed before the first is given, through a file of this machine, so that memory holds no
more for many. Two names in catalogs are of one table where its current metadata file is the same, which databases tell
with their names and other catalogs are asked for, once a table, where several places are listed; a folder is the table
of a name whose metadata file is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import Cancelled, IcebergCliError, TableNotFound, UsageError
from iceberg_cli.fleet.patterns import Pattern
from iceberg_cli.names import levels_of, name_of, namespace_of, parse_levels
from iceberg_cli.paths import canonical, scheme_of
from iceberg_cli.plan.text import did_you_mean, end_of

if TYPE_CHECKING:
    import sqlite3

    from iceberg_cli.iceberg.catalogs import CatalogEntry
    from iceberg_cli.iceberg.catalogs.registry import Catalogs

_MOST_NAMES: Final = 10_000  # that are looked through for one written nearly alike
_METADATA: Final = "metadata:"  # what the keys of catalogs' tables begin with, and those of folders:
_FOLDER: Final = "folder:"
_COLUMNS: Final = ("name", "catalog", "namespace", "format", "location", "metadata_location")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ListedTable:
    """A table that is listed and not opened.

    Args:
        name: as `open_table` takes it.
        also: its other names, in the order of their places.
        catalog: that names it; None for a folder.
        namespace: in the catalog, its levels as in the name.
        format: `iceberg` or `delta`.
        location: its folder, as far as the place that lists it tells: a database does not.
        metadata_location: its current metadata, likewise.
        beside: other names in catalogs that have a metadata file in the same folder, where names are compared: of
            other tables, or of other versions of this one.
    """

    name: str
    also: tuple[str, ...] = ()
    beside: tuple[ListedTable, ...] = ()
    catalog: str | None = None
    namespace: str | None = None
    format: str = "iceberg"
    location: str | None = None
    metadata_location: str | None = None

    def __repr__(self) -> str:
        """Its name and format."""
        return f"ListedTable({end_of(self.name)}, {self.format})"

    @property
    def identity(self) -> dict[str, Any]:
        """The field `table` of documents, as far as it is known of a table that is not opened."""
        return {"name": self.name, "location": self.location, "format": self.format}

    @property
    def parts(self) -> tuple[tuple[str, ...], str]:
        """Of a table in a catalog, the levels of its namespace and its own name."""
        _, *levels, table = levels_of(self.name)
        return tuple(levels), table

    def to_json(self) -> dict[str, Any]:
        """As an element of `list/1`."""
        return {"name": self.name, "also": list(self.also)} | {
            name: getattr(self, name) for name in _COLUMNS[1:]
        }

    @classmethod
    def from_json(cls, element: Mapping[str, Any]) -> ListedTable:
        """The table of an element of `list/1`, where one process lists and another one maintains."""
        own = {name: element[name] for name in ("name", *_COLUMNS[1:])}
        return cls(**own, also=tuple(element["also"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPlace:
    """A catalog or folder that could not be listed whole.

    Args:
        name: of the catalog, or the folder.
        error: why.
    """

    name: str
    error: IcebergCliError


class Failures(list[tuple[str, IcebergCliError]]):
    """Tables, places and patterns by name, each with the error that there is in place of it."""

    @property
    def codes(self) -> list[int]:
        """The exit codes."""
        return [error.exit_code for _, error in self]

    def to_json(self) -> list[dict[str, Any]]:
        """The field `failed` of a document."""
        return [
            {"name": name, "exit_code": error.exit_code, "message": error.message} for name, error in self
        ]


@dataclass(kw_only=True)
class TableList:
    """The tables that patterns mean. Iterate over it once; then `failed` and `unmatched` are known.

    Args:
        patterns: none: every catalog that is configured.
        catalogs: those that are configured.
        storage_options: for folders in object stores.
        compared: compare all names, also where one place is listed: for what writes.
        stop_requested: whether to stop.

    Attributes:
        failed: places of which some tables may be missing.
        views: in folders, which are left out.
    """

    patterns: Sequence[Pattern]
    catalogs: Catalogs
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    compared: bool = False
    stop_requested: Callable[[], bool] = lambda: False
    failed: list[FailedPlace] = field(default_factory=list)
    views: int = 0
    _matched: set[Pattern] = field(default_factory=set)

    def __iter__(self) -> Iterator[ListedTable]:
        """The tables, each once.

        Raises:
            UsageError: a pattern names a catalog that is not configured, or the configuration cannot be read.
        """
        places = self._places()
        if len(places) == 1 and not self.compared:
            [(name, list_place)] = places
            yield from self._noting(name, list_place(), alone=True)
        else:
            yield from self._once(places)

    def unmatched_patterns(self) -> list[Pattern]:
        """The patterns that meant no table, but for those whose tables may be where a listing failed."""
        return [
            pattern
            for pattern in self.patterns
            if pattern not in self._matched
            and not any(
                each.name == (pattern.catalog or _folder_of(pattern)) or pattern.may_match_below(each.name)
                for each in self.failed
            )
        ]

    def unmatched(self) -> list[tuple[Pattern, TableNotFound]]:
        """Each of these with an error that has the nearest names."""
        return [
            (pattern, TableNotFound(f"No table matches {pattern.text}.{self._near(pattern)}"))
            for pattern in self.unmatched_patterns()
        ]

    def failures(self) -> Failures:
        """Which places could not be listed and which patterns mean nothing."""
        errors: list[tuple[str, IcebergCliError]] = [(each.name, each.error) for each in self.failed]
        return Failures([*errors, *((pattern.text, error) for pattern, error in self.unmatched())])

    # -- places ------------------------------------------------------------------------------------------------

    def _places(self) -> list[tuple[str, Callable[[], Iterator[ListedTable]]]]:
        """What is listed: each catalog, and each folder that is below no other one."""
        names = [each.catalog for each in self.patterns if each.catalog is not None]
        if not self.patterns:
            names = self.catalogs.names()
            if not names:
                raise UsageError(
                    "No catalog is configured",
                    next_step="Name a folder's tables, such as /warehouse/**, or configure PyIceberg's catalogs.",
                )
        catalogs = list(dict.fromkeys(names))
        for name in catalogs:
            self._check_configured(name)
        folders = _outermost(_folder_of(each) for each in self.patterns if each.catalog is None)
        return [
            *((name, partial(self._of_catalog, name)) for name in catalogs),
            *((folder, partial(self._of_folder, folder)) for folder in folders),
        ]

    def _check_configured(self, name: str) -> None:
        try:
            self.catalogs.configured(name)
        except UsageError as error:
            if near := did_you_mean(name, self.catalogs.names()):
                error.message += near
            elif os.path.isdir(name):
                error.next_step = f"The folder of this name is ./{name}."
            raise

    def _of_catalog(self, name: str) -> Iterator[ListedTable]:
        catalog = self.catalogs.catalog(name)
        own = [each for each in self.patterns if each.catalog == name]

        def may_match(levels: tuple[str, ...]) -> bool:
            return not own or any(each.may_match_below(name_of(name, *levels)) for each in own)

        others = {
            place: [_name_of(name, each) for each in entries]
            for place, entries in catalog.duplicates().items()
        }
        for entry in catalog.list(may_match):
            written = _name_of(name, entry)
            if own and not self._is_meant(written, own):
                continue
            twins = [each for each in others.get(entry.metadata_location or "", []) if each != written]
            if any(each < written and (not own or self._is_meant(each, own)) for each in twins):
                continue
            yield ListedTable(
                name=written,
                also=tuple(twins),
                catalog=name,
                namespace=namespace_of(entry.levels),
                metadata_location=entry.metadata_location,
            )

    def _of_folder(self, root: str) -> Iterator[ListedTable]:
        from iceberg_cli.formats.folders import VIEW, tables_below
        from iceberg_cli.storage.router import open_storage

        own = [each for each in self.patterns if each.catalog is None and _is_in(_folder_of(each), root)]
        found = tables_below(
            open_storage(self.storage_options),
            root,
            may_match=lambda folder: self._is_meant(folder, own),
            may_match_below=lambda folder: any(each.may_match_below(folder) for each in own),
            on_failure=lambda folder, error: self.failed.append(FailedPlace(name=folder, error=error)),
        )
        for each in found:
            if self._is_listed_itself(each.folder, root, own):
                continue
            if each.format == VIEW:
                self.views += 1
                self._matched.update(pattern for pattern in own if pattern.matches(each.folder))
                continue
            yield ListedTable(name=each.name, format=each.format, location=each.folder)

    def _is_listed_itself(self, folder: str, root: str, own: Sequence[Pattern]) -> bool:
        """Whether a folder is a link to a table that is listed by its own name."""
        if scheme_of(folder) != "file" or not os.path.islink(folder):
            return False
        real = os.path.realpath(folder)
        return real != folder and _is_in(real, root) and self._is_meant(real, own)

    def _is_meant(self, name: str, patterns: Iterable[Pattern]) -> bool:
        return any(each.matches(name) for each in patterns)

    def _noting(
        self, place: str, tables: Iterator[ListedTable], *, alone: bool = False
    ) -> Iterator[ListedTable]:
        """The tables of a place, with what is learnt of patterns; a place that fails ends with what came before.

        Args:
            place: its name.
            tables: of it.
            alone: no other place is listed: where this one cannot be used, such as for its type, nothing can be done.
        """
        open_patterns = [each for each in self.patterns if each not in self._matched]
        try:
            for table in tables:
                self._check_stop()
                if open_patterns:
                    met = [each for each in open_patterns if _is_named(table, each)]
                    self._matched.update(met)
                    open_patterns = [each for each in open_patterns if each not in self._matched]
                yield table
        except Cancelled:
            raise
        except IcebergCliError as error:
            if isinstance(error, UsageError) and alone:
                raise
            self.failed.append(FailedPlace(name=place, error=error))

    def _check_stop(self) -> None:
        if self.stop_requested():
            raise Cancelled("Stopped by a signal", next_step="Run the same command again.")

    # -- once --------------------------------------------------------------------------------------------------

    def _once(
        self, places: Sequence[tuple[str, Callable[[], Iterator[ListedTable]]]]
    ) -> Iterator[ListedTable]:
        """The tables of several places, those that are the same as one: by the order of the first of its names."""
        import sqlite3
        import tempfile  # which loads as much as all of this

        with (
            tempfile.NamedTemporaryFile(prefix="iceberg-cli-", suffix=".list") as file,
            closing(sqlite3.connect(file.name, isolation_level=None)) as spool,
        ):
            spool.execute("PRAGMA journal_mode = OFF")
            spool.execute("PRAGMA synchronous = OFF")
            spool.execute(f"CREATE TABLE listed (key, also, {', '.join(_COLUMNS)})")
            spool.execute("BEGIN")
            for name, list_place in places:
                for listed in self._noting(name, list_place()):
                    key, table = self._identified(listed)
                    row = [getattr(table, column) for column in _COLUMNS]
                    spool.execute(
                        "INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        [key, json.dumps(table.also), *row],
                    )
            spool.execute("COMMIT")
            spool.execute("CREATE INDEX by_key ON listed (key)")
            _join_folders(spool)
            firsts = spool.execute(
                "SELECT l.rowid, l.* FROM listed l JOIN (SELECT min(rowid) AS first FROM listed GROUP BY key) f"
                " ON l.rowid = f.first ORDER BY l.rowid"
            )
            for rowid, key, also, *values in firsts:
                table = ListedTable(**dict(zip(_COLUMNS, values, strict=True)))
                others = spool.execute(
                    "SELECT name, also FROM listed WHERE key = ? AND rowid > ? ORDER BY rowid", (key, rowid)
                )
                names = json.loads(also)
                for name, also_there in others:
                    names += [name, *json.loads(also_there)]
                yield replace(
                    table,
                    also=tuple(names),
                    beside=tuple(_beside(spool, key)),
                )

    def _identified(self, table: ListedTable) -> tuple[str, ListedTable]:
        """What the names of one table have in common: its current metadata file; of a table in a folder, the folder.

        A catalog whose list does not tell the file is asked for it; where it does not answer, opening the table tells
        why.
        """
        if table.catalog is None:
            return _FOLDER + key_of_location(table.location or table.name), table
        if table.metadata_location is None:
            try:
                found = self.catalogs.catalog(table.catalog).pointer(*table.parts)
            except IcebergCliError:
                found = None
            if found is not None:
                location = None if found.document is None else found.document.get("location")
                table = replace(
                    table,
                    metadata_location=found.location,
                    location=location if isinstance(location, str) else None,
                )
        if table.metadata_location is None:
            return f"name:{table.name}", table
        folder, _, file = table.metadata_location.rpartition("/")
        return f"{_METADATA}{key_of_location(folder)}/{file}", table

    # -- nearest names -----------------------------------------------------------------------------------------

    def _near(self, pattern: Pattern) -> str:
        if pattern.catalog is None:
            return " Nor is there one below it." if pattern.with_below and "*" not in pattern.text else ""
        try:
            entries = islice(self.catalogs.catalog(pattern.catalog).list(lambda _: True), _MOST_NAMES)
            names = [(pattern.catalog, *each.levels, each.table) for each in entries]
        except IcebergCliError:
            return ""  # a hint, beside an answer that was clear
        depth = len(parse_levels(pattern.text))
        near = {name_of(*each[:end]) for each in names for end in (len(each), depth)}
        return did_you_mean(pattern.text, sorted(near))


def list_tables(
    patterns: Sequence[Pattern],
    *,
    catalogs: Catalogs | None = None,
    catalog_config: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    compared: bool = False,
) -> TableList:
    """The tables that patterns mean.

    Args:
        patterns: from `parse_pattern`; none: every catalog that is configured.
        catalogs: see `iceberg_cli.open_table`; None: made for `catalog_config`.
        catalog_config: see `iceberg_cli.open_table`.
        storage_options: for folders in object stores.
        compared: see `TableList`.
    """
    if catalogs is None:
        from iceberg_cli.iceberg.catalogs.registry import Catalogs

        catalogs = Catalogs(catalog_config)
    return TableList(
        patterns=patterns, catalogs=catalogs, storage_options=storage_options or {}, compared=compared
    )


def key_of_location(location: str) -> str:
    """The one spelling of a table's folder, after links where it is a local one."""
    folder = canonical(location).rstrip("/")
    return os.path.realpath(folder) if scheme_of(folder) == "file" else folder


def _join_folders(spool: sqlite3.Connection) -> None:
    """Give a table in a folder the key of the catalog's table whose metadata file is in the folder's `metadata`."""
    for (key,) in spool.execute("SELECT key FROM listed WHERE key LIKE ?", (f"{_FOLDER}%",)).fetchall():
        first = f"{_METADATA}{key.removeprefix(_FOLDER)}/metadata/"
        last = first[:-1] + chr(ord("/") + 1)
        same = spool.execute(
            "SELECT DISTINCT key FROM listed WHERE key >= ? AND key < ? LIMIT 2", (first, last)
        ).fetchall()
        if len(same) == 1:
            spool.execute("UPDATE listed SET key = ? WHERE key = ?", (same[0][0], key))


def _beside(spool: sqlite3.Connection, key: str) -> Iterator[ListedTable]:
    """The names whose metadata files are in the folder of this one's, and are others."""
    if not key.startswith(_METADATA):
        return
    first = f"{key.rpartition('/')[0]}/"
    last = first[:-1] + chr(ord("/") + 1)
    for values in spool.execute(
        "SELECT name, catalog, namespace, format, location, metadata_location FROM listed"
        " WHERE key >= ? AND key < ? AND key <> ? ORDER BY rowid",
        (first, last, key),
    ).fetchall():
        yield ListedTable(**dict(zip(_COLUMNS, values, strict=True)))


def _is_named(table: ListedTable, pattern: Pattern) -> bool:
    return pattern.matches(table.name) or (table.catalog is None and pattern.matches(table.location or ""))


def _name_of(catalog: str, entry: CatalogEntry) -> str:
    return name_of(catalog, *entry.levels, entry.table)


def _folder_of(pattern: Pattern) -> str:
    """The folder from which a pattern's tables are looked for, without a slash at its end."""
    return pattern.text if "*" not in pattern.text else pattern.root.rstrip("/")


def _is_in(folder: str, other: str) -> bool:
    return folder == other or folder.startswith(f"{other}/")


def _outermost(folders: Iterable[str]) -> list[str]:
    """The folders that are below no other of these, in their order."""
    every = dict.fromkeys(folders)
    return [each for each in every if not any(_is_in(each, other) for other in every if other != each)]

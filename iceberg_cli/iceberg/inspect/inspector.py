"""Reads what `inspect` shows, through the table's engine. Nothing here writes to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.inspect import metadata_rows as rows_of
from iceberg_cli.iceberg.inspect.summary import (
    DATA_COLUMNS,
    DELETE_COLUMNS,
    RECOUNT_BYTES,
    SummaryFacts,
    Tally,
    small_bytes,
    summarize,
)
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.inspected import Inspected
from iceberg_cli.plan.inspection import SIZES
from iceberg_cli.table.open_operations import open_operation_rows

if TYPE_CHECKING:
    from iceberg_cli.iceberg.inspect.file_rows import RowFormatter
    from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
    from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.plan.inspection import Column, Part, Row

Rendered = TypeVar("Rendered", bound="pa.Table | pa.Array")

MANIFEST_ROWS = ("manifests", "row-ids")
FILE_ROWS = ("files", "deletes", "partitions")
OF_SNAPSHOT = ("summary", *MANIFEST_ROWS, *FILE_ROWS)
_NEWEST_LAST = ("snapshots", "history", "metadata-log")
_CHUNK_ROWS = 4_096
# With all statistics decoded an entry takes some hundred times the bytes that it has in a compressed manifest.
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TableInspector:
    """Reads about one snapshot of one table.

    Args:
        table: opened and loaded.
        snapshot: the one that is shown; None for a table without data.
        as_of_ms: the "now" of ages, in ms since the epoch.
        warnings: what was passed over in reading it.
    """

    table: IcebergTable
    snapshot: Snapshot | None
    as_of_ms: int
    warnings: Sequence[str] = ()

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document, the snapshot among them where it is about one."""
        head = rows_of.header(self.table, what, as_of_ms=self.as_of_ms)
        if what in OF_SNAPSHOT:
            head["snapshot_id"] = None if self.snapshot is None else str(self.snapshot.snapshot_id)
        return head

    # -- summary -------------------------------------------------------------------------------------------------

    def summary(self, *, recount: bool) -> dict[str, Any]:
        """The whole document of a summary.

        Args:
            recount: read all manifests, however large they are together.

        Raises:
            CorruptFile: a file that was read cannot be read whole.
        """
        table = self.table
        reachability, manifests = self._manifests()
        length = pc.sum(manifests["manifest_length"]).as_py() or 0
        # A v1 snapshot may name manifests without their lengths.
        known = not manifests["manifest_length"].null_count
        recounted = recount or (known and length <= RECOUNT_BYTES)
        tally = Tally(small_bytes=small_bytes(table.metadata))
        deletes = manifests.filter(pc.equal(manifests["content"], 1))
        for _, batch in reachability.entries(deletes, DELETE_COLUMNS, phase="reading delete manifests"):
            tally.add_deletes(batch.table)
        if recounted:
            data = manifests.filter(pc.equal(manifests["content"], 0))
            for _, batch in reachability.entries(data, DATA_COLUMNS, phase="reading data manifests"):
                tally.add_data(batch.table)
        facts = SummaryFacts(
            manifests=manifests,
            tally=tally,
            recounted=recounted,
            metadata_bytes=self._metadata_bytes(),
            read_only=table.read_only_reason(),
            suggestions=tuple(self._suggestions(manifests, tally)),
            open_operations=open_operation_rows(table, now_ms=self.as_of_ms),
        )
        shown = summarize(table.metadata, self.snapshot, facts, as_of_ms=self.as_of_ms)
        return {**self.header("summary"), **shown}

    @staticmethod
    def summary_text(document: Row) -> Iterator[Part]:
        """A summary's document as text."""
        from iceberg_cli.iceberg.inspect.text import summary_text

        return summary_text(document)

    @staticmethod
    def text_of(what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
        """The columns of rows as text, and the rows that have them."""
        from iceberg_cli.iceberg.inspect.text import text_of

        return text_of(what, rows)

    def _manifests(self) -> tuple[Reachability, pa.Table]:
        """The rows of the snapshot's manifest list, in its order."""
        table = self.table
        reachability = Reachability(
            engine=table.engine,
            on_event=table.on_event,
            trust_lists=True,
            stale_lengths=table.reachability.stale_lengths,
        )
        snapshots = () if self.snapshot is None else (snapshot_files(self.snapshot),)
        # A list that may have been cut short is shown too: the summary puts both counts side by side.
        manifests = reachability.manifests(snapshots, phase="reading the manifest list", required=False)
        if manifests.missing:
            raise CorruptFile(
                manifests.missing[0], None, "the snapshot needs this manifest list and it is not there"
            )
        return reachability, manifests.rows

    def _metadata_bytes(self) -> int | None:
        try:
            return self.table.storage.stat(self.table.metadata_location).size_bytes
        except FileNotFoundError:
            return None

    def _suggestions(self, manifests: pa.Table, tally: Tally) -> Iterator[dict[str, Any]]:
        """The verbs that `plan` would find due, or may, by what was read: of another snapshot than main's, less.

        Args:
            manifests: of the snapshot that is shown.
            tally: of its delete manifests.
        """
        table = self.table
        head = table.metadata.current_snapshot()
        if self.snapshot is not head:
            tally, manifests = Tally(small_bytes=0), manifests.slice(0, 0)
        return VERBS.suggestions(
            Inspected(
                table=table,
                manifests=manifests,
                position_delete_files=tally.position_delete_files,
                equality_delete_files=tally.equality_delete_files,
                puffin_files=tally.puffin_files,
                as_of_ms=self.as_of_ms,
            )
        )

    # -- rows ----------------------------------------------------------------------------------------------------

    def rows(self, what: str, *, limit: int | None) -> list[dict[str, Any]]:
        """Rows that metadata or the manifest list hold.

        Args:
            what: of `IcebergFormat.stateless` or `MANIFEST_ROWS`.
            limit: the newest so many of a log, the first so many of the rest; None for all.
        """
        metadata = self.table.metadata
        makers: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "snapshots": lambda: rows_of.snapshot_rows(metadata),
            "refs": lambda: rows_of.ref_rows(metadata),
            "history": lambda: rows_of.history_rows(metadata),
            "schemas": lambda: rows_of.schema_rows(metadata),
            "specs": lambda: rows_of.spec_rows(metadata),
            "properties": lambda: rows_of.property_rows(metadata),
            "statistics": lambda: rows_of.statistics_rows(metadata),
            "metadata-log": lambda: rows_of.metadata_log_rows(
                metadata, metadata_location=self.table.metadata_location
            ),
            "manifests": lambda: self._manifest_rows(limit),
            "row-ids": self._row_ids,
        }
        rows = makers[what]()
        if limit is None:
            return rows
        return rows[-limit:] if what in _NEWEST_LAST else rows[:limit]

    @staticmethod
    def newest_last(what: str) -> bool:
        """Whether a limit keeps the end of the rows, not their beginning."""
        return what in _NEWEST_LAST

    def _manifest_rows(self, limit: int | None) -> list[dict[str, Any]]:
        return self.shower().manifests(self._manifests()[1].slice(0, limit))

    def _row_ids(self) -> list[dict[str, Any]]:
        from iceberg_cli.iceberg.inspect.file_rows import manifest_row_ids

        return [*rows_of.snapshot_row_ids(self.table.metadata), *manifest_row_ids(self._manifests()[1])]

    # -- rows that are read some thousand at a time ----------------------------------------------------------------

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.table.location

    @staticmethod
    def streams(what: str) -> bool:
        """Whether rows come by `lines` and `tables`, not by `rows`."""
        return what in FILE_ROWS

    def head(self, what: str) -> dict[str, Any]:
        """The fields of a document beside streamed rows: the columns' names by id, and how many files reads open."""
        if what not in FILE_ROWS or what == "partitions":
            return {}
        from iceberg_cli.iceberg.spec.table_metadata.columns import column_names

        names = column_names(self.table.metadata)
        columns = {"columns": {str(field_id): name for field_id, name in names.items()}}
        if what != "files":
            return columns
        from iceberg_cli.iceberg.inspect.table_reads import reads_of

        reachability, manifests = self._manifests()
        return columns | reads_of(self.table.metadata, reachability, manifests).to_json()

    def lines(self, what: str, *, limit: int | None, before: str = "", after: str = "") -> Iterator[pa.Array]:
        """Streamed rows as JSON objects, one string for each row, between `before` and `after`."""
        from iceberg_cli.encoding.json_rows import json_rows
        from iceberg_cli.iceberg.inspect.file_rows import ID_COLUMNS

        shower = self.shower()
        bare = shower.bare()

        def render(table: pa.Table) -> pa.Array:
            return json_rows(table, ids=ID_COLUMNS, bare=bare, before=before, after=after)

        return self.parts(what, shower, render, limit=limit)

    def tables(self, what: str, *, limit: int | None) -> Iterator[pa.Table]:
        """Streamed rows as columns of `schema`, or sizes."""
        if what == SIZES:
            return self._sizes()
        return self.parts(what, self.shower(), lambda table: table, limit=limit)

    def _sizes(self) -> Iterator[pa.Table]:
        from iceberg_cli.iceberg.inspect.file_rows import SIZES_COLUMNS, sizes_table

        reachability, manifests = self._manifests()
        return reachability.from_entries(
            manifests, SIZES_COLUMNS, lambda _, batch: sizes_table(batch.table), phase="reading manifests"
        )

    @staticmethod
    def schema(what: str) -> pa.Schema:
        """The columns of streamed rows."""
        from iceberg_cli.iceberg.inspect.file_rows import FILES_SCHEMA, PARTITIONS_SCHEMA

        return PARTITIONS_SCHEMA if what == "partitions" else FILES_SCHEMA

    def shower(self) -> RowFormatter:
        """Spells bounds and partitions of this table."""
        from iceberg_cli.iceberg.inspect.file_rows import RowFormatter

        return RowFormatter(self.table.metadata, self.table.metadata_location)

    def parts(
        self, what: str, shower: RowFormatter, render: Callable[[pa.Table], Rendered], *, limit: int | None
    ) -> Iterator[Rendered]:
        """Rows of `files`, `deletes` or `partitions`, some thousand at a time.

        Args:
            what: of `FILE_ROWS`.
            shower: of this table.
            render: pure; a table's rows as what is handed on, one element for each row. May run in other processes.
            limit: the first so many; None for all.

        Raises:
            CorruptFile: a manifest cannot be read whole.
        """
        left = limit
        parts = (
            self._partitions(shower, render) if what == "partitions" else self._files(what, shower, render)
        )
        for part in parts:
            if left is None:
                yield part
                continue
            yield part.slice(0, left)
            left = max(0, left - len(part))
            if not left:
                return

    def _files(
        self, what: str, shower: RowFormatter, render: Callable[[pa.Table], Rendered]
    ) -> Iterator[Rendered]:
        from iceberg_cli.iceberg.inspect.file_rows import FILES_COLUMNS

        def shown(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[Rendered]:
            return [
                render(shower.files(spec_id, entries.slice(start, _CHUNK_ROWS)))
                for spec_id, entries in shower.by_spec(sources, batch)
                for start in range(0, entries.num_rows, _CHUNK_ROWS)
            ]

        reachability, manifests = self._manifests()
        if what == "deletes":
            manifests = manifests.filter(pc.equal(manifests["content"], 1))
        for parts in reachability.from_entries(
            manifests, FILES_COLUMNS, shown, phase="reading manifests", batch_bytes=_BATCH_BYTES
        ):
            yield from parts

    def _partitions(self, shower: RowFormatter, render: Callable[[pa.Table], Rendered]) -> Iterator[Rendered]:
        from iceberg_cli.iceberg.inspect.file_rows import PARTITIONS_COLUMNS, Partitions

        reachability, manifests = self._manifests()
        partitions = Partitions(self.table.metadata, shower)
        for found in reachability.from_entries(
            manifests, PARTITIONS_COLUMNS, shower.by_spec, phase="reading manifests"
        ):
            for spec_id, entries in found:
                partitions.add(spec_id, entries)
        yield render(partitions.table())

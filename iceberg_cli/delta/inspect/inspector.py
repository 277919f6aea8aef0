"""Reads what `inspect` shows of a Delta table, and shows it as text. Nothing here writes to a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from iceberg_cli.delta.inspect import rows as rows_of
from iceberg_cli.delta.spec.columns import ADD, AS_JSON, plain_values
from iceberg_cli.delta.spec.log import Listing
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.inspection import SIZES, Column, Part, Row
from iceberg_cli.table.open_operations import open_operation_rows

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable

FILE_ROWS: Final = ("files", "deletes", "partitions", "row-ids")
_OF_LOG: Final = ("history",)
_CHUNK_ROWS: Final = 32_768
_LINES_AT_ONCE: Final = 4_096  # as text they take several times as much memory
_READ_AGAIN_BYTES: Final = 4 << 20
_LOOKED_AT: Final = 10_000  # files of deletion vectors that a summary asks the storage about


@dataclass(kw_only=True)
class DeltaTableInspector:
    """Reads about one version of one table.

    Args:
        table: opened.
        snapshot: the version that is shown.
        as_of_ms: the "now" of ages, in ms since the epoch.
    """

    table: DeltaTable
    snapshot: Snapshot
    as_of_ms: int
    _listing: Listing | None = field(default=None, init=False)

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.table.location

    @property
    def listing(self) -> Listing:
        """The log, listed once."""
        if self._listing is None:
            self._listing = self.table.log.listing()
        return self._listing

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the version."""
        return (*self.snapshot.warnings, *self.snapshot.left_out)

    def header(self, what: str) -> dict[str, Any]:
        """How the document begins."""
        return rows_of.header(self.snapshot, what, table=self.table.identity, as_of_ms=self.as_of_ms)

    def summary(self, *, recount: bool = False) -> dict[str, Any]:  # noqa: ARG002 - everything is counted
        """The whole document of a summary.

        Raises:
            CorruptFile: a file that was read cannot be read whole.
        """
        from iceberg_cli.delta.inspect.summary import SummaryFacts, summarize, vector_file_names

        facts = SummaryFacts(
            listing=self.listing,
            hint=self.table.log.last_checkpoint(),
            vector_files=self._sizes(vector_file_names(self.snapshot, self.location)),
            operation=self._operation(),
            read_only=self.table.read_only_reason(),
            open_operations=open_operation_rows(self.table, now_ms=self.as_of_ms),
        )
        return self.header("summary") | summarize(self.snapshot, facts, as_of_ms=self.as_of_ms)

    @staticmethod
    def summary_text(document: Row) -> Iterator[Part]:
        """A summary's document as text."""
        from iceberg_cli.delta.inspect.text import summary_text

        return summary_text(document)

    @staticmethod
    def text_of(what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
        """The columns of rows as text, and the rows that have them."""
        from iceberg_cli.delta.inspect.text import text_of

        return text_of(what, rows)

    def _sizes(self, names: list[str]) -> list[int | None] | None:
        """Sizes of files, None where there are too many, or the storage of one is not known here."""
        if len(names) > _LOOKED_AT:
            return None
        try:
            infos = self.table.storage.stat_many(names)
        except UsageError:
            return None
        return [None if info is None else info.size_bytes for info in infos]

    def _operation(self) -> str | None:
        """The operation in the version's commitInfo; None where the commit is gone, or too large to be read again."""
        version = self.snapshot.version
        file = next((each for each in self.listing.commits if each.version == version), None)
        if file is None or file.size_bytes > _READ_AGAIN_BYTES:
            return None
        infos = self.table.log.commits(version, version, listing=self.listing).commit_infos
        return next((str(info["operation"]) for _, info in infos if info.get("operation") is not None), None)

    # -- rows ----------------------------------------------------------------------------------------------------

    @staticmethod
    def newest_last(what: str) -> bool:
        """Whether a limit keeps the end of the rows, not their beginning."""
        return what in _OF_LOG

    @staticmethod
    def streams(what: str) -> bool:
        """Whether rows come by `lines` and `tables`, not by `rows`."""
        return what in FILE_ROWS

    def rows(self, what: str, *, limit: int | None) -> list[dict[str, Any]]:
        """Rows that are few, or of a log: then the newest so many."""
        if what == "history":
            return self._history(limit)
        return list(rows_of.ROWS[what](self.snapshot))[:limit]

    def _history(self, limit: int | None) -> list[dict[str, Any]]:
        """Of the commits that are there without a gap up to the newest one."""
        commits = self.listing.commits
        gaps = [file.version for file, after in pairwise(commits) if after.version != file.version + 1]
        files = [file for file in commits if not gaps or file.version > gaps[-1]]
        files = files if limit is None else files[-limit:]
        if not files:
            return []
        actions = self.table.log.commits(files[0].version, files[-1].version, listing=self.listing)
        times_ms = self.listing.commit_times_ms()
        return rows_of.history_rows(actions, {file.version: times_ms[file.version] for file in files})

    def head(self, what: str) -> dict[str, Any]:
        """The fields of a document beside streamed rows."""
        if what == "files":
            from iceberg_cli.delta.inspect.table_reads import reads_of

            return reads_of(self.snapshot).to_json()
        if what != "row-ids":
            return {}
        mark = rows_of.last_row_id(self.snapshot)
        return {"row_id_high_water_mark": None if mark is None else str(mark)}

    def tables(self, what: str, *, limit: int | None) -> Iterator[pa.Table]:
        """Streamed rows as columns of `schema`, or sizes.

        Raises:
            CorruptFile: a field of an action cannot be read.
        """
        from iceberg_cli.delta.inspect.files import (
            deletes_table,
            partitions_table,
            row_ids_table,
            sizes_table,
            with_vectors,
        )

        adds = self.snapshot.adds
        if what == "partitions":
            yield partitions_table(adds, self.snapshot.metadata).slice(0, limit)
            return
        if what == "deletes":
            adds = with_vectors(adds)
        total = adds.num_rows if limit is None else min(limit, adds.num_rows)
        for start in range(0, total, _CHUNK_ROWS):
            part = adds.slice(start, min(_CHUNK_ROWS, total - start))
            match what:
                case "deletes":
                    yield deletes_table(part, self.location)
                case "row-ids":
                    yield row_ids_table(part)
                case _ if what == SIZES:
                    yield sizes_table(part)
                case _:
                    yield part

    def lines(self, what: str, *, limit: int | None, before: str = "", after: str = "") -> Iterator[pa.Array]:
        """Streamed rows as JSON objects, one string for each row, between `before` and `after`."""
        from iceberg_cli.delta.inspect.files import ID_COLUMNS
        from iceberg_cli.encoding.json_rows import json_rows

        for part in self.tables(what, limit=limit):
            table, texts = _with_json_texts(part) if what == "files" else (part, ())
            for start in range(0, table.num_rows, _LINES_AT_ONCE):
                few = table.slice(start, _LINES_AT_ONCE)
                yield json_rows(few, ids=ID_COLUMNS, texts=texts, before=before, after=after)

    def schema(self, what: str) -> pa.Schema:
        """The columns of streamed rows."""
        from iceberg_cli.delta.inspect import files as inspect_files

        match what:
            case "deletes":
                return inspect_files.DELETES_SCHEMA
            case "partitions":
                return inspect_files.PARTITIONS_SCHEMA
            case "row-ids":
                return inspect_files.ROW_IDS_SCHEMA
        return self.snapshot.adds.schema


def _with_json_texts(adds: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Adds whose fields that the protocol does not name are JSON texts in ASCII, and the names of these."""
    texts = adds.schema.names[len(ADD) :]
    for name in texts:
        place = adds.schema.get_field_index(name)
        values = plain_values(adds.column(place))
        if adds.schema.field(place).metadata == AS_JSON:
            values = [None if value is None else json.loads(value) for value in values]
        shown = [None if value is None else json.dumps(value, default=str) for value in values]
        adds = adds.set_column(place, name, pa.array(shown, pa.string()))
    return adds, tuple(texts)

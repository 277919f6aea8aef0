"""inspect: rows of a version of a Delta table, without those that deletion vectors delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect import rows as rows_of
from iceberg_cli.delta.inspect.files import num_records
from iceberg_cli.delta.rows.data_files import DataFile, RowReader, vector_frames
from iceberg_cli.delta.rows.table_columns import MODE, columns_of
from iceberg_cli.delta.spec.paths import physical
from iceberg_cli.encoding.projection import Field, joined_rows
from iceberg_cli.encoding.row_batches import splits_for
from iceberg_cli.engines import Scan, Source
from iceberg_cli.plan.sample import SampledFiles, SampleInspector
from iceberg_cli.table.stored_files import true_sizes

if TYPE_CHECKING:
    from iceberg_cli.delta.spec.snapshot import Snapshot
    from iceberg_cli.delta.table import DeltaTable

_COLUMNS: Final = ("path", "partitionValues", "size", "stats", "deletionVector")


class VersionSample(SampleInspector[None]):
    """Reads rows of one version of one table.

    Args:
        table: opened.
        snapshot: the version.
        columns: see `SampleInspector`.
        as_of_ms: the "now" of the document.
    """

    def __init__(
        self, *, table: DeltaTable, snapshot: Snapshot, columns: Sequence[str], as_of_ms: int
    ) -> None:
        super().__init__(columns=columns)
        self._table, self._snapshot, self._as_of_ms = table, snapshot, as_of_ms

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def _state_warnings(self) -> Sequence[str]:
        return (*self._snapshot.warnings, *self._snapshot.left_out)

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        return rows_of.header(self._snapshot, what, table=self._table.identity, as_of_ms=self._as_of_ms)

    def _every_field(self) -> Sequence[tuple[Field, str, str]]:
        return columns_of(self._snapshot.metadata)

    def _files(self) -> Iterator[SampledFiles[None]]:
        records = pc.fill_null(num_records(self._snapshot.adds), -1)
        adds = self._snapshot.adds.select(_COLUMNS).append_column("records", records)
        yield SampledFiles(adds, size="size", records="records", path="path", context=None)

    def _of_files(
        self,
        fields: Sequence[Field],
        files: pa.Table,
        context: None,  # noqa: ARG002 - an action has all of its file
        limit: int | None,
    ) -> Iterator[pa.Table]:
        stored = files["path"].to_pylist()
        frames = vector_frames(self._table, stored, files["deletionVector"].to_pylist())
        paths = [physical(path, self._table.root) for path in stored]
        sizes, notes = true_sizes(self._table, paths, files["size"].to_pylist())
        self.notes += notes
        items = [
            DataFile(
                path=paths[place],
                size_bytes=sizes[place],
                records=row["records"],
                split=split,
                constants=dict(row["partitionValues"] or ()),
                deleted=frames[place],
            )
            for place, row in enumerate(files.select(["size", "records", "partitionValues"]).to_pylist())
            for split in splits_for(sizes[place], row["records"], limit)
        ]
        metadata = self._snapshot.metadata
        reader = RowReader(
            fields=tuple(fields),
            partitioned=tuple(
                field for field, _, _ in columns_of(metadata) if field.name in metadata.partition_columns
            ),
            needs_ids=metadata.configuration.get(MODE) == "id",
            limit=limit,
        )
        scan: Scan[DataFile, pa.Table, pa.Table] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            joined_rows,
            phase="reading data files",
            in_parts=True,
        )
        return self._table.engine.scan(scan, items, on_event=self._table.on_event)

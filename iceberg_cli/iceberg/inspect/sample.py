"""inspect: rows of a snapshot, as a reader sees them: what deletes hide is left out.

Manifests and data files are read a few at a time, until there are as many rows as are asked for. Delete manifests are
read once: any of them may hide a row.

Spec: "Scan Planning", "Column Projection", "Deletion Vectors", "Position Delete Files", "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.projection import Field, joined_rows
from iceberg_cli.encoding.row_batches import FileSplit, splits_for
from iceberg_cli.engines import Scan, Source
from iceberg_cli.iceberg.inspect import metadata_rows as rows_of
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.data_files import (
    DataFile,
    RowReader,
)
from iceberg_cli.iceberg.rows.deleted_keys import DeletedKeys
from iceberg_cli.iceberg.rows.live_entries import ENTRY_COLUMNS, LiveEntries, LiveEntryReader
from iceberg_cli.iceberg.rows.row_deletes import RowDeletes, row_deletes
from iceberg_cli.iceberg.rows.table_columns import columns_of
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.plan.sample import SampledFiles, SampleInspector
from iceberg_cli.table.stored_files import true_sizes

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
    from iceberg_cli.iceberg.spec.types.schema import Schema
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.plan.inspection import StateSelector

_MOST_MANIFESTS: Final = 64  # at once


class SnapshotSample(SampleInspector[Sequence[LiveEntries]]):
    """Reads rows of one snapshot of one table.

    Args:
        table: opened and loaded.
        snapshot: None for a table without data.
        schema: whose columns rows have.
        columns: see `SampleInspector`.
        as_of_ms: the "now" of the document.
    """

    def __init__(
        self,
        *,
        table: IcebergTable,
        snapshot: Snapshot | None,
        schema: Schema,
        columns: Sequence[str],
        as_of_ms: int,
    ) -> None:
        super().__init__(columns=columns)
        self._table, self._snapshot, self._schema, self._as_of_ms = table, snapshot, schema, as_of_ms
        self._reachability = Reachability(
            engine=table.engine, on_event=table.on_event, trust_lists=table.trust_lists
        )

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def _state_warnings(self) -> Sequence[str]:
        return ()

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        head = rows_of.header(self._table, what, as_of_ms=self._as_of_ms)
        return head | {"snapshot_id": None if self._snapshot is None else str(self._snapshot.snapshot_id)}

    def _every_field(self) -> Sequence[tuple[Field, str, str]]:
        metadata = self._table.metadata
        return columns_of(self._schema, metadata.properties, path=self._table.metadata_location)

    # -- files -----------------------------------------------------------------------------------------------------

    def _files(self) -> Iterator[SampledFiles[Sequence[LiveEntries]]]:
        for entries in self._data_entries():
            yield SampledFiles(
                pa.concat_tables([each.table for each in entries]),
                size="file_size_in_bytes",
                records="record_count",
                path="file_path",
                context=entries,
            )

    def _of_files(
        self,
        fields: Sequence[Field],
        files: pa.Table,
        context: Sequence[LiveEntries],
        limit: int | None,
    ) -> Iterator[pa.Table]:
        constants = self._entry_reader.constants(context, files["key"].combine_chunks())
        hidden = self._deletes.of(files)
        sizes, notes = true_sizes(
            self._table, files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist()
        )
        self.notes += notes
        data = [
            DataFile(
                path=path,
                file_format=file_format.lower(),
                size_bytes=size_bytes,
                record_count=records,
                split=split,
                constants=constants[key],
                vectors=hidden.vectors.get(path, ()),
                equality_deletes=hidden.equality[place],
            )
            for place, (path, file_format, size_bytes, records, key) in enumerate(
                zip(
                    *(files[name].to_pylist() for name in ("file_path", "file_format")),
                    sizes,
                    *(files[name].to_pylist() for name in ("record_count", "key")),
                    strict=True,
                )
            )
            for split in (
                splits_for(size_bytes, records, limit) if file_format.lower() == "parquet" else [FileSplit()]
            )
        ]  # fmt: skip
        reader = RowReader(
            fields=tuple(fields),
            equality=hidden.columns,
            deleted=DeletedKeys.of(hidden.keys),
            limit=limit,
            mismatch_is_null=True,
        )
        scan: Scan[DataFile, pa.Table, pa.Table] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            joined_rows,
            phase="reading data files",
            in_parts=True,
        )
        return self._table.engine.scan(scan, data, on_event=self._table.on_event)

    def _data_entries(self) -> Iterator[list[LiveEntries]]:
        """The entries of data manifests, of one first and then of more and more at a time."""
        manifests = self._manifests.filter(pc.equal(self._manifests["content"], 0))
        start, count = 0, 1
        while start < manifests.num_rows:
            some = manifests.slice(start, count)
            start, count = start + count, min(2 * count, _MOST_MANIFESTS)
            parts = self._reachability.from_entries(
                some, ENTRY_COLUMNS, self._entry_reader, phase="reading data manifests"
            )
            entries = [each for part in parts for each in part if each.table.num_rows]
            if entries:
                yield entries

    @cached_property
    def _manifests(self) -> pa.Table:
        snapshots = () if self._snapshot is None else (snapshot_files(self._snapshot),)
        return self._reachability.manifests(snapshots, phase="reading the manifest list", required=True).rows

    @cached_property
    def _entry_reader(self) -> LiveEntryReader:
        metadata = self._table.metadata
        return LiveEntryReader(
            specs={spec.spec_id: spec for spec in metadata.partition_specs}, types=column_types(metadata)
        )

    @cached_property
    def _deletes(self) -> RowDeletes:
        return row_deletes(self._table, self._reachability, self._manifests, self.notes)


def schema_of(metadata: TableMetadata, snapshot: Snapshot | None, state: StateSelector) -> Schema:
    """The schema by which a snapshot is read, as other readers choose it.

    Args:
        metadata: of the table.
        snapshot: that was selected.
        state: what selected it: the current state and branches have the table's schema, all else the snapshot's.
    """
    ref = None if state.ref is None else metadata.refs.get(state.ref)
    is_live = not state.given() or (ref is not None and ref.type == BRANCH)
    schema_id = None if snapshot is None or is_live else snapshot.schema_id
    found = next((each for each in metadata.schemas if each.schema_id == schema_id), None)
    return metadata.current_schema() if found is None else found

"""The delete entries of one snapshot, the data files that they name, and the position delete files, read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Engine, OnEvent, Scan
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.entry_columns import (
    BOUNDS,
    DATA_COLUMNS,
    DELETE_COLUMNS,
    EQUALITY,
    POSITIONS,
    EntryReader,
    Ints,
    PathKeys,
    all_data,
    all_deletes,
    lowest_of,
)
from iceberg_cli.iceberg.branch.file_filter import file_filter
from iceberg_cli.iceberg.spec.deletes.position_deletes import PARTS_SCHEMA, rows_differ
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.merge_dvs import tasks
from iceberg_cli.iceberg.verbs.merge_dvs.blobs import BlobSpill
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex, index, target_paths
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import MergeLimits
from iceberg_cli.iceberg.verbs.merge_dvs.tasks import DeleteFile
from iceberg_cli.iceberg.verbs.merge_dvs.vectors import DeletionVectors, limits_of, splits_of
from iceberg_cli.paths import path_key_column
from iceberg_cli.plan.where import Condition


@dataclass(kw_only=True)
class DeleteReader:
    """Reads the delete entries and position delete files of one snapshot.

    Args:
        table: whose files.
        metadata: of the snapshot.
        rows: of its manifest list.
        conditions: of --where.
        only_names: of position deletes read which data files they name, and no positions.
        known_parts: contents of position delete files that were read before.
        kept: their blobs.
        limits: of one task; None: those of the table's engine.
    """

    table: IcebergTable
    metadata: TableMetadata
    rows: pa.Table
    conditions: tuple[Condition, ...]
    only_names: bool = False
    known_parts: pa.Table | None = None
    kept: BlobSpill = field(default_factory=BlobSpill)
    limits: MergeLimits | None = None
    index: DeleteIndex = field(init=False)
    vectors: DeletionVectors = field(init=False)
    tuples: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)

    def read(self) -> DeleteIndex:
        """Read manifests and position delete files, but no Puffin files.

        Raises:
            UsageError: --where names nothing that partitions tell. CorruptFile: something cannot be read whole.
        """
        paths = self.rows["manifest_path"].to_pylist()
        reading = EntryReader(
            specs={spec.spec_id: spec for spec in self.metadata.partition_specs},
            types=column_types(self.metadata),
            places={path: place for place, path in enumerate(paths)},
            where=file_filter(self.conditions, self.metadata, reads_bounds=False),
            path_keys=self._path_keys,
        )
        tables = []
        # Bounds may be cut short or wrong: where names decide, they are not even read.
        columns = [name for name in DELETE_COLUMNS if not (self.only_names and name in BOUNDS)]
        for table, tuples in self.table.reachability.from_entries(
            self._of_content(1), columns, reading.deletes, phase="reading delete manifests"
        ):
            tables.append(table)
            self.tuples |= tuples
        deletes = all_deletes(tables)
        parts = self._parts(self._may_apply(deletes.filter(pc.equal(deletes["kind"], POSITIONS))))
        data, oldest = self._data(reading, deletes, parts)
        specs = self.metadata.partition_specs
        self.index = index(deletes, parts, data, oldest, specs, self._path_keys)
        self.vectors = DeletionVectors(
            engine=self.table.engine,
            index=self.index,
            on_event=self.table.on_event,
            limits=self._limits,
            kept=self.kept,
        )
        return self.index

    @property
    def _path_keys(self) -> PathKeys:
        """Gives paths their keys; for local files it resolves links, which give a file several names."""
        names = self.table.reachability.other_names
        return path_key_column if names is None else names.resolved

    def _of_content(self, content: int) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows["content"], content))

    def _data(
        self, reading: EntryReader, deletes: pa.Table, parts: pa.Table
    ) -> tuple[pa.Table, pa.Table | None]:
        targets = target_paths(deletes, parts, reading.path_keys)
        oldest = bool(pc.any(pc.equal(deletes["kind"], EQUALITY)).as_py()) and not self.only_names
        if not len(targets) and not oldest:
            return all_data([]), None

        def make(sources: Sequence[ManifestSource], batch: EntryBatch) -> tuple[pa.Table, pa.Table]:
            return reading.data(sources, batch, targets, oldest=oldest)

        found = list(
            self.table.reachability.from_entries(
                self._of_content(0), DATA_COLUMNS, make, phase="reading data manifests"
            )
        )
        return all_data([data for data, _ in found]), lowest_of(
            [lowest for _, lowest in found]
        ) if oldest else None

    # -- position delete files ---------------------------------------------------------------------------------

    def _may_apply(self, files: pa.Table) -> pa.Table:
        """Those position delete files that are not older than every live data file: the others apply to none.

        Spec: "Scan Planning": a position delete applies where the data file's data sequence number is not higher than
        its own, whatever paths it names.
        """
        listed = pc.min(self._of_content(0)["min_sequence_number"]).as_py()
        # The manifest list only shows whether it is worth reading every entry.
        if listed is not None and not pc.any(pc.less(files["sequence_number"], listed)).as_py():
            return files
        oldest = self._oldest_data()
        if oldest is None:
            return files.slice(0, 0)
        return files.filter(pc.greater_equal(files["sequence_number"], oldest))

    def _oldest_data(self) -> int | None:
        """The lowest data sequence number of all live data files; None where there is none."""

        def make(_: Sequence[ManifestSource], batch: EntryBatch) -> int | None:
            alive = pc.less(batch.table["status"], 2)
            lowest: int | None = pc.min(batch.table["sequence_number"].filter(alive)).as_py()
            return lowest

        found = self.table.reachability.from_entries(
            self._of_content(0), ("status", "sequence_number"), make, phase="reading data manifests"
        )
        return min((lowest for lowest in found if lowest is not None), default=None)

    @property
    def _limits(self) -> MergeLimits:
        return self.limits or limits_of(self.table.engine)

    def _parts(self, files: pa.Table) -> pa.Table:
        """The data files that position delete files name, see `read_parts`; those read before are not read again."""
        known = self.known_parts
        if known is None:
            known = _without_blobs(PARTS_SCHEMA.empty_table(), np.empty(0, np.int64))
        unread = files.filter(pc.invert(pc.is_in(files["path"], value_set=pc.unique(known["source"]))))
        known = known.filter(pc.is_in(known["source"], value_set=pc.unique(files["path"])))
        engine, on_event = self.table.engine, self.table.on_event
        if self.only_names:
            return pa.concat_tables([known, *named_parts(engine, unread, on_event=on_event)])
        return pa.concat_tables(
            [known, read_parts(engine, unread, kept=self.kept, limits=self._limits, on_event=on_event)]
        )


def named_parts(engine: Engine, files: pa.Table, *, on_event: OnEvent) -> Iterator[pa.Table]:
    """The data files that position delete files name, see `read_parts`, without the number of their positions."""
    columns = (files[name].to_pylist() for name in ("path", "file_size", "record_count"))
    for parts in engine.scan(
        Scan(tasks.source_of, tasks.load_files, tasks.parse_files, phase="reading position delete files"),
        [DeleteFile(*values) for values in zip(*columns, strict=True)],
        on_event=on_event,
    ):
        yield _without_blobs(parts, np.full(len(parts), -1))


def read_parts(
    engine: Engine, files: pa.Table, *, kept: BlobSpill, limits: MergeLimits, on_event: OnEvent
) -> pa.Table:
    """The data files that position delete files name: rows of `PARTS_SCHEMA`, with a `blob_id` instead of the blob.

    Args:
        engine: that reads.
        files: `path`, `file_size` and `record_count` of each.
        kept: gets the blobs, if the limits keep them.
        limits: of splits.
        on_event: progress.

    Raises:
        CorruptFile: one cannot be read whole.
    """
    columns = (files[name].to_pylist() for name in ("path", "file_size", "record_count"))
    items = [
        DeleteFile(path, size, records, split)
        for path, size, records in zip(*columns, strict=True)
        for split in splits_of(size, limits)
    ]
    tables = [_without_blobs(PARTS_SCHEMA.empty_table(), np.empty(0, np.int64))]
    counts: list[int] = []
    for parts, each in engine.scan(
        Scan(
            tasks.source_of,
            tasks.PartsLoader(limits.keeps_blobs),
            tasks.parse_parts,
            phase="reading position delete files",
        ),
        items,
        on_event=on_event,
    ):
        tables.append(_without_blobs(parts, kept.add(parts["blob"])))
        counts += each
    shared: dict[str, tuple[int, int]] = {}
    for item, rows in zip(items, counts, strict=True):
        if item.split.of > 1:
            shared[item.path] = item.record_count, shared.get(item.path, (0, 0))[1] + rows
    for path, (expected, read) in shared.items():
        if expected != read:
            raise CorruptFile(path, None, rows_differ(read, expected))
    return _merge_splits(pa.concat_tables(tables), list(shared))


def _without_blobs(parts: pa.Table, ids: Ints) -> pa.Table:
    return parts.drop(["blob"]).append_column("blob_id", pa.array(ids, pa.int64()))


def _merge_splits(parts: pa.Table, shared: Sequence[str]) -> pa.Table:
    """One row for each data file that a delete file names, though several of its splits did."""
    if not shared:
        return parts
    mine = pc.is_in(parts["source"], value_set=pa.array(shared, pa.string()))
    tables = [parts.filter(pc.invert(mine))]
    several = parts.filter(mine)
    for path in shared:
        rows = several.filter(pc.equal(several["source"], path)).combine_chunks()
        names = rows["path"].combine_chunks().dictionary_encode()
        owner, count = names.indices.to_numpy(), len(names.dictionary)
        totals = {name: np.zeros(count, np.int64) for name in ("cardinality", "last", "size")}
        np.maximum.at(totals["last"], owner, rows["last"].to_numpy())
        for name in ("cardinality", "size"):
            np.add.at(totals[name], owner, rows[name].to_numpy())
        columns = {
            "source": rows["source"].slice(0, count),
            "path": names.dictionary,
            **totals,
            "blob_id": np.full(count, -1),
        }
        tables.append(pa.table(columns, schema=parts.schema))
    return pa.concat_tables(tables)

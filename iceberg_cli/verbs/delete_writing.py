"""What merge-dvs writes: Puffin files, then the delete manifests that name them. Everything is read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.dv_blobs import puffin_file, vectors_in
from iceberg_cli.iceberg.dv_entries import (
    Entry,
    added_entries,
    carried_entries,
    list_row,
    manifest_codec,
    schema_for,
)
from iceberg_cli.iceberg.manifest import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EntryBatch,
    ManifestSource,
    read_entries,
)
from iceberg_cli.iceberg.manifest_writer import write_manifest
from iceberg_cli.iceberg.merge_choice import Puffins
from iceberg_cli.iceberg.merge_dvs import NEW, ManifestJob, Merge
from iceberg_cli.iceberg.metadata import TableMetadata
from iceberg_cli.iceberg.puffin import MAGIC
from iceberg_cli.iceberg.specs import PartitionSpec
from iceberg_cli.plan import Staged, Task
from iceberg_cli.table import IcebergTable
from iceberg_cli.verbs.delete_reading import DeleteReader, check_written

_RANGE_BYTES = 8 << 20
_UNBOUND = (1 << 62) + 7  # stands for the sequence number that the commit gives


@dataclass(frozen=True, slots=True)
class Written:
    """Where a new Puffin file is, and how long it is."""

    path: str
    size_bytes: int


@dataclass(kw_only=True)
class Work:
    """What building needs of a plan. `written` is shared by all attempts of one run."""

    reader: DeleteReader
    found: Puffins
    made: Merge
    metadata: TableMetadata
    written: dict[Task, Written] = field(default_factory=dict)


def build(table: IcebergTable, work: Work, paths: Mapping[Task, str]) -> dict[Task, Staged]:
    """Write the files of some tasks, each to its path.

    Raises:
        CorruptFile: what was read back is not what was planned.
    """
    staged = {}
    for task, start, stop in work.made.puffins:
        if task in paths:
            work.written[task] = _puffin(table, work, paths[task], start, stop)
            staged[task] = Staged(path=paths[task])
    for job in work.made.manifests:
        if job.task in paths:
            staged[job.task] = _manifest(table, work, job, paths[job.task])
    return staged


def _puffin(table: IcebergTable, work: Work, path: str, start: int, stop: int) -> Written:
    outputs = work.made.outputs.slice(start, stop - start)
    data = puffin_file(
        outputs["ref"].to_pylist(), outputs["cardinality"].to_pylist(), iter(_blobs(work, outputs))
    )
    _check_vectors(data, path, outputs)
    table.storage.put_if_absent(path, data)
    view = memoryview(data)
    for at in range(0, len(data), _RANGE_BYTES):
        if table.storage.read_range(path, at, _RANGE_BYTES) != view[at : at + _RANGE_BYTES]:
            raise CorruptFile(path, at, "read back: other bytes than were written")
    return Written(path, len(data))


def _check_vectors(data: bytes, path: str, outputs: pa.Table) -> None:
    """A new Puffin file against what was planned.

    Raises:
        CorruptFile: a deletion vector that was copied has other bytes, or one that was joined other positions.
    """
    sizes = outputs["size"].to_numpy()
    offsets = _offsets(sizes)
    ends = (offsets + sizes).tolist()
    if [data[end - 4 : end] for end in ends] != outputs["crc"].to_pylist():
        raise CorruptFile(path, None, "a deletion vector is not the one that was planned")
    new = outputs["origin"].to_numpy() == NEW
    # What was copied was checked when it was read; a footer is looked at once.
    places = np.flatnonzero(new) if new.any() else np.zeros(1, np.int64)
    wanted = outputs.select(["ref", "size", "last_row"]).append_column("record_count", outputs["cardinality"])
    wanted = wanted.append_column("file_size", pa.array(np.full(len(outputs), len(data))))
    wanted = wanted.append_column("offset", pa.array(offsets)).take(pa.array(places))
    sums, cardinalities = outputs["sum"].to_numpy(), outputs["cardinality"].to_numpy()
    for blob, place in zip(vectors_in(data, path, wanted), places.tolist(), strict=True):
        if new[place]:
            check_written(blob, int(cardinalities[place]), int(sums[place]), path)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    """Where each blob begins in a file of blobs of these sizes."""
    offsets: np.ndarray = len(MAGIC) + np.cumsum(sizes) - sizes
    return offsets


def _blobs(work: Work, outputs: pa.Table) -> list[bytes]:
    """The deletion vectors of some outputs, in their order."""
    rows = outputs["row"].to_numpy()
    new = outputs["origin"].to_numpy() == NEW
    moved = work.reader.vectors(work.found, rows[~new])
    joined = dict(work.reader.joined(rows[new]))
    return [
        joined[row] if is_new else moved[row] for row, is_new in zip(rows.tolist(), new.tolist(), strict=True)
    ]


def _manifest(table: IcebergTable, work: Work, job: ManifestJob, path: str) -> Staged:
    spec = work.metadata.partition_spec(job.spec_id)
    assert spec is not None
    entries = [
        *added_entries(_located(work, job), work.reader.tuples, spec),
        *_carried(table, work, job, spec),
    ]
    data = write_manifest(
        entries,
        schema=schema_for(work.metadata, spec).to_json(),
        partition_spec=spec.to_json(),
        format_version=3,
        content=1,
        codec=manifest_codec(work.metadata),
        sync=hashlib.sha256(path.encode()).digest()[:16],
    )
    table.storage.put_if_absent(path, data)
    row = list_row(entries, spec, work.metadata)
    _check_manifest(table.storage.read(path), path, row, entries)
    return Staged(path=path, row={**row, "manifest_path": path, "manifest_length": len(data)})


def _located(work: Work, job: ManifestJob) -> dict[str, list[object]]:
    """The outputs of a manifest with the places of their blobs."""
    outputs = work.made.outputs
    paths: list[object] = []
    file_sizes: list[object] = []
    offsets: list[object] = []
    for task, start, stop in work.made.puffins:
        first, end = max(start, job.start), min(stop, job.stop)
        if first < end:
            own = _offsets(outputs["size"].slice(start, stop - start).to_numpy())
            written = work.written[task]
            paths += [written.path] * (end - first)
            file_sizes += [written.size_bytes] * (end - first)
            offsets += own[first - start : end - start].tolist()
    columns = outputs.slice(job.start, job.stop - job.start).to_pydict()
    return {**columns, "path": paths, "file_size": file_sizes, "offset": offsets}


def _carried(table: IcebergTable, work: Work, job: ManifestJob, spec: PartitionSpec) -> Iterator[Entry]:
    """The live entries of the manifests that are replaced."""
    if not job.replaced:
        return
    index = work.reader.index
    manifests = index.deletes["manifest"].to_numpy()
    removed = work.made.removed
    places = index.deletes["entry"].to_numpy()
    going = {row: places[removed & (manifests == row)] for row in job.replaced}
    rows = work.reader.rows.take(pa.array(job.replaced))
    number = dict(zip(rows["manifest_path"].to_pylist(), job.replaced, strict=True))

    def whole(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[tuple[str, pa.Table]]:
        owners = batch.table["manifest"].to_numpy()
        return [
            (sources[i].path, batch.table.slice(*_run(owners, i)).combine_chunks()) for i in batch.sources
        ]

    for parts in table.liveness.from_entries(
        rows, ENTRY_COLUMNS, whole, phase="reading delete manifests again"
    ):
        for path, entries in parts:
            gone = np.zeros(len(entries), np.bool_)
            gone[going[number[path]]] = True
            yield from carried_entries(entries, gone, spec)


def _run(owners: np.ndarray, owner: int) -> tuple[int, int]:
    first, stop = np.searchsorted(owners, (owner, owner + 1)).tolist()
    return first, stop - first


def _check_manifest(data: bytes, path: str, row: Mapping[str, Any], entries: Sequence[Entry]) -> None:
    """Read a manifest back as the next reader will, and compare what identifies its entries.

    Raises:
        CorruptFile: they differ, or a data file has two added deletion vectors.
    """
    counts = {f"{kind}_files_count": row[f"{kind}_files_count"] for kind in ("added", "existing", "deleted")}
    source = ManifestSource(
        path=path,
        data=data,
        length=len(data),
        content=1,
        sequence_number=_UNBOUND,
        added_snapshot_id=_UNBOUND,
        **counts,
    )
    names = [
        "status",
        "file_path",
        "content_offset",
        "sequence_number",
        "record_count",
        "referenced_data_file",
    ]
    found = pa.concat_tables(
        batch.table for batch in read_entries([source], columns=[*names, "file_sequence_number"])
    )
    for name in names:
        column = found[name].combine_chunks()
        if not column.equals(pa.array([entry.get(name) for entry in entries], column.type)):
            raise CorruptFile(path, f"field {name}", "read back: other values than were written")
    status = found["status"].to_numpy()
    own = found["file_sequence_number"].to_numpy()
    added = [entry["referenced_data_file"] for entry in entries if entry["status"] == ADDED]
    staying = {e["referenced_data_file"] for e in entries if e["status"] not in (ADDED, DELETED)} - {None}
    if (
        (own[status == ADDED] != _UNBOUND).any()
        or len({*added}) < len(added)
        or not staying.isdisjoint(added)
    ):
        raise CorruptFile(path, None, "read back: two deletion vectors for one data file")

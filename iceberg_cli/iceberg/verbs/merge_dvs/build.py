"""The files of a merge, written and read back: Puffin files, and the delete manifests that name them.

Entries are columns: new ones are encoded field by field, the others are spliced out of the manifests that they were in.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance", "Manifest Lists".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import Block, Container
from iceberg_cli.iceberg.avro.encoder import NULL, encoded, joined
from iceberg_cli.iceberg.avro.schema import AvroType, parse_schema
from iceberg_cli.iceberg.branch.carried_entries import carried_values
from iceberg_cli.iceberg.branch.new_manifests import (
    UNBOUND,
    list_row,
    manifest_codec,
    manifest_data,
    schema_for,
    source_of,
    stored,
)
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ADDED,
    DELETED,
    DELETES,
    EXISTING,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.writer import (
    encoded_partitions,
    encodings,
    manifest_header,
)
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.merge_dvs.read import DeleteReader
from iceberg_cli.iceberg.verbs.merge_dvs.rules import ManifestJob, Merge
from iceberg_cli.iceberg.verbs.merge_dvs.tasks import offsets_of
from iceberg_cli.plan.plan import StagedFile, Step, Task

_PLACES_SCHEMA = pa.schema({"path": pa.string(), "file_size": pa.int64(), "offset": pa.int64()})


@dataclass(frozen=True, slots=True)
class WrittenPuffin:
    """Path and size of a new Puffin file."""

    path: str
    size_bytes: int


@dataclass(kw_only=True)
class MergeBuild:
    """The build of a merge: Puffin files first, then the manifests that name them; each is read back.

    `written` is shared by all attempts of one run.
    """

    reader: DeleteReader
    made: Merge
    metadata: TableMetadata
    written: dict[Task, WrittenPuffin] = field(default_factory=dict)

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> dict[Task, StagedFile]:
        """Write the files of some tasks, each to its path.

        Puffin files, which hold the positions, are made where the engine merges. Delete manifests are made here:
        50,000 vectors are one file of a few megabytes, and what it says is here already.

        Raises:
            CorruptFile: what was read back is not what was planned. BackendUnavailable: workers did not write all.
        """
        bounds = {paths[task]: (start, stop) for task, start, stop in self.made.puffins if task in paths}
        sizes = self.reader.vectors.build(self.made.outputs, bounds)
        self.written.update(
            {task: WrittenPuffin(path, sizes[path]) for task, path in paths.items() if path in sizes}
        )
        staged = {task: StagedFile(path=paths[task]) for task, _, _ in self.made.puffins if task in paths}
        for job in self.made.manifests:
            if job.task in paths:
                staged[job.task] = _manifest(self, job, paths[job.task])
        return staged


def _manifest(work: MergeBuild, job: ManifestJob, path: str) -> StagedFile:
    spec = work.metadata.partition_spec(job.spec_id)
    assert spec is not None
    text, header = manifest_header(
        schema=schema_for(work.metadata, spec).to_json(),
        partition_spec=spec.to_json(),
        format_version=work.metadata.format_version,
        content=1,
    )
    vectors, old = _located(work, job), _replaced(work, job)
    entries = _identities(vectors, old)
    keys = pc.unique(pa.chunked_array([*vectors["key"].chunks, *old["key"].chunks], pa.binary()))
    tuples = {key: work.reader.tuples[key] for key in keys.to_pylist()}
    try:
        added = added_entries(vectors, tuples, text)
        row = list_row(DELETES, entries, tuples.values(), spec, work.metadata)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise CorruptFile(_manifest_of(work, keys), "field partition", str(error)) from error
    values = pa.concat_arrays([added, *_carried(work, job, old, text)])
    data = manifest_data(path, text, header, values, codec=manifest_codec(work.metadata))
    check_manifest(stored(work.reader.table.storage, path, data), data, path, row, values, entries)
    return StagedFile(path=path, row={**row, "manifest_path": path, "manifest_length": len(data)})


def _manifest_of(work: MergeBuild, keys: pa.Array) -> str:
    """The first delete manifest with one of these partitions."""
    deletes = work.reader.index.deletes
    mine = deletes.filter(pc.is_in(deletes["key"], value_set=keys))["manifest"]
    path: str = work.reader.rows["manifest_path"][int(pc.min(mine).as_py())].as_py()
    return path


def _located(work: MergeBuild, job: ManifestJob) -> pa.Table:
    """The outputs of a manifest with the paths and offsets of their blobs."""
    outputs = work.made.outputs
    parts = []
    for task, start, stop in work.made.puffins:
        first, end = max(start, job.start), min(stop, job.stop)
        if first < end:
            own = offsets_of(outputs["size"].slice(start, stop - start).to_numpy())
            written = work.written[task]
            places = {
                "path": pa.array([written.path], pa.string()).take(pa.array(np.zeros(end - first, np.int64))),
                "file_size": np.full(end - first, written.size_bytes),
                "offset": own[first - start : end - start],
            }
            parts.append(pa.table(places, schema=_PLACES_SCHEMA))
    located = outputs.slice(job.start, job.stop - job.start)
    placed = pa.concat_tables([_PLACES_SCHEMA.empty_table(), *parts])
    for name in placed.column_names:
        located = located.append_column(name, placed[name])
    return located


def _replaced(work: MergeBuild, job: ManifestJob) -> pa.Table:
    """The live entries of the manifests that are replaced, in their order, and whether each is `removed`."""
    deletes = work.reader.index.deletes.append_column("removed", pa.array(work.made.removed))
    owners, places = deletes["manifest"].to_numpy(), deletes["entry"].to_numpy()
    mine = np.flatnonzero(np.isin(owners, job.replaced))
    return deletes.take(pa.array(mine[np.lexsort((places[mine], owners[mine]))]))


def _identities(vectors: pa.Table, old: pa.Table) -> pa.Table:
    """The identities that the entries of a new manifest must have: rows of `IDENTITY_SCHEMA`."""
    added = {
        "status": np.full(len(vectors), ADDED, np.int32),
        "file_path": vectors["path"],
        "content_offset": vectors["offset"],
        "sequence_number": vectors["sequence_number"],
        "record_count": vectors["cardinality"],
        "referenced_data_file": vectors["ref"],
    }
    carried = {
        "status": np.where(old["removed"].to_numpy(), DELETED, EXISTING).astype(np.int32),
        "file_path": old["path"],
        "content_offset": old["offset"],
        "sequence_number": old["sequence_number"],
        "record_count": old["record_count"],
        "referenced_data_file": old["ref"],
    }
    return pa.concat_tables([pa.table(columns, schema=IDENTITY_SCHEMA) for columns in (added, carried)])


def _carried(work: MergeBuild, job: ManifestJob, old: pa.Table, schema_text: str) -> list[pa.Array]:
    """The encodings of `old`, manifest by manifest."""
    going = old.filter(old["removed"])
    owners, places = going["manifest"].to_numpy(), going["entry"].to_numpy()
    bounds = np.searchsorted(owners, [*job.replaced, np.iinfo(np.int32).max]).tolist()
    removed = {row: places[bounds[i] : bounds[i + 1]] for i, row in enumerate(job.replaced)}
    return carried_values(
        work.reader.table,
        work.reader.rows,
        removed,
        schema_text=schema_text,
        phase="reading delete manifests again",
    )


# What identifies an entry, and is compared when a new manifest is read back.
IDENTITY_SCHEMA: Final = pa.schema(
    {
        "status": pa.int32(),
        "file_path": pa.string(),
        "content_offset": pa.int64(),
        "sequence_number": pa.int64(),
        "record_count": pa.int64(),
        "referenced_data_file": pa.string(),
    }
)
_STATUS, _CONTENT, _FORMAT, _PARTITION = 0, 134, 101, 102  # field ids
_PIECES: Final = {_STATUS: b"\x02", _CONTENT: b"\x02", _FORMAT: b"\x0cPUFFIN"}  # ADDED, 1, "PUFFIN"
_COLUMNS: Final = {
    3: "sequence_number", 100: "path", 103: "cardinality", 104: "file_size", 143: "ref", 144: "offset", 145: "size",
}  # fmt: skip
_RECORDS_TOGETHER: Final = 8


def added_entries(vectors: pa.Table, tuples: Mapping[bytes, tuple[Any, ...]], schema_text: str) -> pa.Array:
    """Entries of new deletion vectors: data sequence number explicit, snapshot and file sequence number inherited.

    Args:
        vectors: n rows: `path` and `file_size` (of the Puffin file), `offset`, `size`, `ref`, `cardinality`,
            `sequence_number`, `key`.
        tuples: the partition of each key, in Avro's representation.
        schema_text: of the manifest.

    Returns:
        n encodings.

    Raises:
        ValueError: a value does not fit its field.
    """
    keys = vectors["key"].combine_chunks().dictionary_encode()
    partitions = encoded_partitions([tuples[key] for key in keys.dictionary.to_pylist()], schema_text)
    pieces = {**_PIECES, _PARTITION: pa.array(partitions, pa.binary()).take(keys.indices)}
    _, record = parse_schema(schema_text.encode())
    return joined(list(_fields(record, vectors, pieces)), len(vectors))


def _fields(
    record: AvroType, vectors: pa.Table, pieces: Mapping[int, pa.Array | bytes]
) -> Iterator[pa.Array | bytes]:
    """The encoding of each field of a record; what is not known is null."""
    for part in record.fields:
        assert part.field_id is not None
        if part.field_id in pieces:
            yield pieces[part.field_id]
        elif part.field_id in _COLUMNS:
            yield encoded(part.type, vectors[_COLUMNS[part.field_id]].combine_chunks())
        elif part.type.kind == "record":
            yield from _fields(part.type, vectors, pieces)
        else:
            assert part.type.kind == "union"
            yield NULL


def check_manifest(
    data: bytes, written: bytes, path: str, row: Mapping[str, Any], values: pa.Array, entries: pa.Table
) -> None:
    """Compare a manifest that was read back, decoded as the next reader will, with what was planned.

    Args:
        data: the file.
        written: what was written.
        path: of the file.
        row: of the manifest list.
        values: the encodings of its entries.
        entries: what they should be: `IDENTITY_SCHEMA`.

    Raises:
        CorruptFile: they differ, or a data file has two added deletion vectors.
    """
    if data != written:
        raise CorruptFile(path, None, "read back: other bytes than were written")
    opened = open_manifest(source_of(path, data, row), data)
    assert opened.container is not None
    opened = replace(opened, container=_finer(opened.container, values))
    (batch,) = read_entries([opened], columns=[*IDENTITY_SCHEMA.names, "file_sequence_number"])
    for name in IDENTITY_SCHEMA.names:
        if not batch.table[name].combine_chunks().equals(entries[name].combine_chunks()):
            raise CorruptFile(path, f"field {name}", "read back: other values than were written")
    status = batch.table["status"].to_numpy()
    own = pc.fill_null(batch.table["file_sequence_number"], 0).to_numpy()
    refs = batch.table["referenced_data_file"].combine_chunks()
    added = refs.filter(pa.array(status == ADDED))
    staying = refs.filter(pa.array(status == EXISTING)).drop_null()
    if (
        (own[status == ADDED] != UNBOUND).any()
        or len(pc.unique(added)) < len(added)
        or pc.any(pc.is_in(staying, value_set=added)).as_py()
    ):
        raise CorruptFile(path, None, "read back: two deletion vectors for one data file")


def _finer(container: Container, values: pa.Array) -> Container:
    """The container in blocks of few records, which can be decoded side by side.

    Each of these must end with its last record. So a reader of the whole blocks finds every record where it is here.

    Raises:
        CorruptFile: the blocks are not `values`.
    """
    bounds, view = encodings(values)
    edges = bounds.tolist()
    blocks: list[Block] = []
    first = 0
    for block in container.blocks:
        stop = first + block.records
        if stop >= len(edges) or bytes(view[edges[first] : edges[stop]]) != block.payload:
            raise CorruptFile(container.path, block.offset, "the block holds other entries than were planned")
        for start in range(first, stop, _RECORDS_TOGETHER):
            end = min(start + _RECORDS_TOGETHER, stop)
            blocks.append(Block(end - start, block.offset, view[edges[start] : edges[end]]))
        first = stop
    if first != len(values):
        raise CorruptFile(
            container.path, None, f"the manifest holds {first} entries instead of {len(values)}"
        )
    return replace(container, blocks=tuple(blocks))

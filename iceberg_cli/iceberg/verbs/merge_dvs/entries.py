"""The entries of new delete manifests: added deletion vectors, entries that stay, entries that go.

All by columns: new entries are encoded field by field, the others are spliced out of the manifests that they were in.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance", "Manifest Lists".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import Block, Container
from iceberg_cli.iceberg.avro.encoder import NULL, encoded, joined
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import AvroType, parse_schema
from iceberg_cli.iceberg.spec.manifest import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    ManifestSource,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifest_splice import encoded as encoded_slowly
from iceberg_cli.iceberg.spec.manifest_splice import payload_of, recipe, spliced
from iceberg_cli.iceberg.spec.manifest_writer import encoded_partitions, encodings
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import (
    Opened,
    by_schema,
    partition_type,
    record_type,
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
_SPLICED: Final = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_STATUS, _CONTENT, _FORMAT, _PARTITION = 0, 134, 101, 102  # field ids
_PIECES: Final = {_STATUS: b"\x02", _CONTENT: b"\x02", _FORMAT: b"\x0cPUFFIN"}  # ADDED, 1, "PUFFIN"
_COLUMNS: Final = {
    3: "sequence_number", 100: "path", 103: "cardinality", 104: "file_size", 143: "ref", 144: "offset", 145: "size",
}  # fmt: skip
_UNBOUND: Final = (1 << 62) + 7  # stands for the sequence number that the commit gives
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
    for field in record.fields:
        assert field.field_id is not None
        if field.field_id in pieces:
            yield pieces[field.field_id]
        elif field.field_id in _COLUMNS:
            yield encoded(field.type, vectors[_COLUMNS[field.field_id]].combine_chunks())
        elif field.type.kind == "record":
            yield from _fields(field.type, vectors, pieces)
        else:
            assert field.type.kind == "union"
            yield NULL


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBuilder:
    """Encodes the entries that new manifests take over from old ones, maybe in another process.

    Args:
        schema_text: of the new manifests.
        removed: for each old manifest, by its row of the manifest list, the indices of the entries that go.
    """

    schema_text: str
    removed: Mapping[int, Ints]

    def __call__(self, batch: Opened) -> list[tuple[int, pa.Array]]:
        """Of each manifest its row and the encodings of its live entries, as EXISTING or DELETED."""
        return [found for numbers, sources in by_schema(batch) for found in self._carried(numbers, sources)]

    def _carried(
        self, numbers: Sequence[int], sources: Sequence[ManifestSource]
    ) -> Iterator[tuple[int, pa.Array]]:
        avro = record_type(sources[0])
        found = recipe(avro, parse_schema(self.schema_text.encode())[1])
        edges = found.edges if found else ()
        (batch,) = read_entries(sources, columns=_SPLICED if found else ENTRY_COLUMNS, edges=edges)
        entries = batch.table
        starts = np.searchsorted(entries["manifest"].to_numpy(), np.arange(len(sources)))
        gone = np.zeros(len(entries), np.bool_)
        for number, start in zip(numbers, starts.tolist(), strict=True):
            gone[start + self.removed[number]] = True
        # Null inherits the id of the snapshot that deletes it.
        ids = pc.if_else(pa.array(gone), pa.scalar(None, pa.int64()), entries["snapshot_id"])
        entries = entries.set_column(entries.column_names.index("snapshot_id"), "snapshot_id", ids)
        rows = np.flatnonzero(entries["status"].to_numpy() != DELETED)
        statuses = np.where(gone[rows], DELETED, EXISTING).astype(np.uint8)
        if found:
            payload, begins = payload_of(sources)
            moved = pa.array(begins[entries["manifest"].to_numpy()])
            for edge in edges:
                place = entries.column_names.index(edge.name)
                entries = entries.set_column(place, edge.name, pc.add(entries[edge.name], moved))
            values = spliced(found, entries, payload, rows, statuses=statuses)
        else:
            try:
                values = encoded_slowly(
                    self.schema_text, partition_type(avro), entries, rows, statuses=statuses
                )
            except ValueError as error:
                raise CorruptFile(sources[0].path, None, f"here or in one written alike: {error}") from error
        bounds = [*np.searchsorted(rows, starts).tolist(), len(rows)]
        for index, number in enumerate(numbers):
            yield number, values.slice(bounds[index], bounds[index + 1] - bounds[index])


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
    counts = {f"{kind}_files_count": row[f"{kind}_files_count"] for kind in ("added", "existing", "deleted")}
    source = ManifestSource(
        path=path, length=len(data), content=1, sequence_number=_UNBOUND, added_snapshot_id=_UNBOUND, **counts
    )
    opened = open_manifest(source, data)
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
        (own[status == ADDED] != _UNBOUND).any()
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

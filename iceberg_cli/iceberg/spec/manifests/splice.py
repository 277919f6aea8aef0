"""Manifest entries of another writer schema: what does not change is copied, not decoded and encoded.

An entry is a head (status, snapshot id, sequence numbers), which is encoded anew, and a data file, of which only
`first_row_id` may change. Where source and target schema encode a run of the data file's fields alike, its bytes are
copied; where they do not, the slow path decodes all fields and encodes them with fastavro. Both give equal entries.

Spec: "Manifests", "Manifest Entry Fields"; Avro 1.12, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.avro.encoder import NULL, joined, optional_longs
from iceberg_cli.iceberg.avro.projection import Ints, Projection
from iceberg_cli.iceberg.avro.schema import AvroType
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource
from iceberg_cli.iceberg.spec.manifests.writer import encoded_entries, partition_ids

_DATA_FILE, _CONTENT, _PARTITION, _FIRST_ROW_ID = 2, 134, 102, 142
_HEAD_IDS = (0, 1, 3, 4)
_NUMBERS = (
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
)  # optional longs, by the order of _HEAD_IDS
_ZERO = b"\x00"
_SLOW_ROWS = 1_000  # decoded to Python objects at a time


@dataclass(frozen=True, slots=True)
class FieldRun:
    """Neighbouring fields of the source that are copied: the columns that hold where they start and end."""

    start: str
    end: str


@dataclass(frozen=True, slots=True)
class RowId:
    """The field `first_row_id` in an entry."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How entries of one writer schema become entries of another. `edges` are the columns that `pieces` need."""

    numbers: tuple[str, ...]  # of the head
    pieces: tuple[FieldRun | RowId | bytes, ...]
    edges: tuple[Projection, ...]


def recipe(source: AvroType, target: AvroType) -> Recipe | None:
    """How to splice entries of `source` into `target`; None where they must be decoded and encoded."""
    files = [_data_file(source), _data_file(target)]
    ids = tuple(field.field_id for field in target.fields[:-1])
    if files[0] is None or files[1] is None or ids != _HEAD_IDS[: len(ids)]:
        return None
    places = {field.field_id: index for index, field in enumerate(files[0].fields)}
    pieces: list[tuple[int, int] | RowId | bytes] = []
    for field in files[1].fields:
        last = pieces[-1] if pieces else None
        place = places.get(field.field_id)
        if field.field_id == _FIRST_ROW_ID:
            pieces.append(RowId())
        elif place is not None:
            if not encoded_alike(files[0].fields[place].type, field.type, ids=field.field_id == _PARTITION):
                return None
            if isinstance(last, tuple) and last[1] + 1 == place:
                pieces[-1] = (last[0], place)
            else:
                pieces.append((place, place))
        elif (absent := _absent(field.field_id, field.type)) is None:
            return None
        elif isinstance(last, bytes):
            pieces[-1] = last + absent
        else:
            pieces.append(absent)
    return _recipe(files[0], _NUMBERS[: len(ids) - 1], pieces)


def _recipe(
    data_file: AvroType, numbers: tuple[str, ...], pieces: Sequence[tuple[int, int] | RowId | bytes]
) -> Recipe:
    edges: list[Projection] = []
    found: list[FieldRun | RowId | bytes] = []
    for piece in pieces:
        if not isinstance(piece, tuple):
            found.append(piece)
            continue
        run = FieldRun(f"start {piece[0]}", f"end {piece[1]}")
        first, last = (data_file.fields[index].field_id for index in piece)
        assert first is not None
        assert last is not None
        edges += [
            Projection(run.start, (_DATA_FILE, first), edge="start"),
            Projection(run.end, (_DATA_FILE, last), edge="end"),
        ]
        found.append(run)
    return Recipe(numbers, tuple(found), tuple(edges))


def _data_file(record: AvroType) -> AvroType | None:
    found = [field.type for field in record.fields if field.field_id == _DATA_FILE]
    return found[0] if found and found[0].kind == "record" else None


def _absent(field_id: int | None, avro: AvroType) -> bytes | None:
    """The bytes of a field that the source schema lacks: null, or for `content` the 0 of data."""
    if field_id == _CONTENT:
        return _ZERO
    return NULL if avro.kind == "union" and avro.children[0].kind == "null" else None


def encoded_alike(source: AvroType, target: AvroType, *, ids: bool = False) -> bool:
    """Whether the encoding of every value of `source` is that of the same value of `target`.

    Args:
        source: of the writer.
        target: of the reader.
        ids: whether the fields of a record must have the same ids, too.
    """
    if source.kind != target.kind:
        return (source.kind, target.kind) == ("int", "long")
    if source.kind == "fixed":
        return source.size_bytes == target.size_bytes
    if source.kind == "enum" or len(source.children) != len(target.children):
        return False
    if ids and [f.field_id for f in source.fields] != [f.field_id for f in target.fields]:
        return False
    return all(encoded_alike(*pair) for pair in zip(source.children, target.children, strict=True))


def payload_of(sources: Sequence[ManifestSource]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The inflated blocks of opened manifests, one after the other; and where those of each manifest begin."""
    containers = [source.container for source in sources if source.container is not None]
    sizes = [sum(len(block.payload) for block in container.blocks) for container in containers]
    whole = b"".join(block.payload for container in containers for block in container.blocks)
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.frombuffer(whole, np.uint8), ends - np.array(sizes, np.int64)


def spliced(
    found: Recipe,
    entries: pa.Table,
    payload: npt.NDArray[np.uint8],
    rows: Ints,
    *,
    statuses: npt.NDArray[np.uint8] | None = None,
) -> pa.Array:
    """Entries of the target schema.

    Args:
        found: for the writer schema of `entries`.
        entries: n of one writer schema, in the order of `payload`: the numbers of the head with inherited values filled
            in, `first_row_id` (null: none is written), and the recipe's edges as positions in `payload`.
        payload: inflated blocks, one after the other.
        rows: m indices of the entries that are wanted, in the wanted order.
        statuses: of these m; None: all are EXISTING.

    Returns:
        m binary values.
    """
    taken = array_of(rows)
    parts: list[Any] = [_statuses(statuses), optional_longs([entries[n].take(taken) for n in found.numbers])]
    for piece in found.pieces:
        match piece:
            case FieldRun(start, end):
                parts.append(_copied(payload, entries[start].to_numpy(), entries[end].to_numpy(), rows))
            case RowId():
                parts.append(optional_longs([entries["first_row_id"].take(taken)]))
            case constant:
                parts.append(constant)
    return joined(parts, len(rows))


def _statuses(statuses: npt.NDArray[np.uint8] | None) -> pa.Array | bytes:
    """The field `status`, a number 0 to 2, in one byte."""
    if statuses is None:
        return _ZERO
    codes = pa.array([b"\x00", b"\x02", b"\x04"], pa.binary())
    return codes.take(array_of(statuses))


def encoded(
    schema_text: str,
    partition: AvroType,
    entries: pa.Table,
    rows: Ints,
    *,
    statuses: npt.NDArray[np.uint8] | None = None,
) -> pa.Array:
    """The same by the slow path.

    Args:
        schema_text: of the target.
        partition: the source's type of the partition struct.
        entries: all of `ENTRY_COLUMNS`.
        rows: see `spliced`.
        statuses: see `spliced`.
    """
    values: list[bytes] = []
    given = np.zeros(len(rows), np.uint8) if statuses is None else statuses
    ids: list[int | None] = [field.field_id for field in partition.fields]
    if set(ids) == {None} and len(ids) == len(own := partition_ids(schema_text)):
        ids = list(own)  # writers of v1 left the ids out
    for first in range(0, len(rows), _SLOW_ROWS):
        taken = entries.take(array_of(rows[first : first + _SLOW_ROWS])).to_pylist()
        for entry, status in zip(taken, given[first:].tolist(), strict=False):
            entry["status"] = status
            entry["partition"] = dict(zip(ids, (entry["partition"] or {}).values(), strict=True))
        values += encoded_entries(taken, schema_text)
    return pa.array(values, pa.binary())


def _copied(payload: npt.NDArray[np.uint8], starts: Ints, ends: Ints, rows: Ints) -> pa.Array:
    """Ranges of the payload. All ranges and the gaps between them are one Arrow array without a copy."""
    offsets = np.empty((len(starts), 2), np.int32)
    offsets[:, 0], offsets[:, 1] = starts, ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    tiles = pa.Array.from_buffers(pa.binary(), max(2 * len(starts) - 1, 0), buffers)
    return tiles.take(array_of(2 * rows))

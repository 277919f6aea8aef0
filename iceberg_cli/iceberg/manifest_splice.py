"""Manifest entries as EXISTING ones of another writer schema: what does not change is copied, not decoded and encoded.

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
import pyarrow.compute as pc

from iceberg_cli.iceberg.avro_plan import Ints, Wanted
from iceberg_cli.iceberg.avro_schema import AvroType
from iceberg_cli.iceberg.manifest_writer import encoded_entries

_DATA_FILE, _CONTENT, _PARTITION, _FIRST_ROW_ID = 2, 134, 102, 142
_HEAD_IDS = (0, 1, 3, 4)
_NUMBERS = (
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
)  # optional longs, by the order of _HEAD_IDS
_NULL = b"\x00"  # a union's branch 0
_ZERO = b"\x00"
_SLOW_ROWS = 1_000  # decoded to Python objects at a time
_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring fields of the source that are copied: the columns that hold where they start and end."""

    start: str
    end: str


@dataclass(frozen=True, slots=True)
class RowId:
    """The place of `first_row_id`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How entries of one writer schema become entries of another. `edges` are the columns that `pieces` need."""

    numbers: tuple[str, ...]  # of the head
    pieces: tuple[Run | RowId | bytes, ...]
    edges: tuple[Wanted, ...]


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
    edges: list[Wanted] = []
    found: list[Run | RowId | bytes] = []
    for piece in pieces:
        if not isinstance(piece, tuple):
            found.append(piece)
            continue
        run = Run(f"start {piece[0]}", f"end {piece[1]}")
        first, last = (data_file.fields[index].field_id for index in piece)
        assert first is not None
        assert last is not None
        edges += [
            Wanted(run.start, (_DATA_FILE, first), edge="start"),
            Wanted(run.end, (_DATA_FILE, last), edge="end"),
        ]
        found.append(run)
    return Recipe(numbers, tuple(found), tuple(edges))


def _data_file(record: AvroType) -> AvroType | None:
    found = [field.type for field in record.fields if field.field_id == _DATA_FILE]
    return found[0] if found and found[0].kind == "record" else None


def _absent(field_id: int | None, avro: AvroType) -> bytes | None:
    """What is written where the source has no such field: null, or for `content` the 0 of data."""
    if field_id == _CONTENT:
        return _ZERO
    return _NULL if avro.kind == "union" and avro.children[0].kind == "null" else None


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


def spliced(found: Recipe, entries: pa.Table, payload: npt.NDArray[np.uint8], rows: Ints) -> pa.Array:
    """Entries of the target schema.

    Args:
        found: for the writer schema of `entries`.
        entries: n of one writer schema, in the order of `payload`: the numbers of the head with inherited values filled
            in, `first_row_id` (null: none is written), and the recipe's edges as positions in `payload`.
        payload: inflated blocks, one after the other.
        rows: m indices of the entries that are wanted, in the wanted order.

    Returns:
        m binary values.
    """
    parts: list[Any] = [_optional_longs([entries[name] for name in found.numbers], rows, leading=_ZERO)]
    for piece in found.pieces:
        match piece:
            case Run(start, end):
                parts.append(_copied(payload, entries[start].to_numpy(), entries[end].to_numpy(), rows))
            case RowId():
                parts.append(_optional_longs([entries["first_row_id"]], rows))
            case constant:
                parts.append(pa.scalar(constant, pa.binary()))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def encoded(schema_text: str, partition: AvroType, entries: pa.Table, rows: Ints) -> pa.Array:
    """The same by the slow path.

    Args:
        schema_text: of the target.
        partition: the source's type of the partition struct.
        entries: all of `ENTRY_COLUMNS`.
        rows: see `spliced`.
    """
    values: list[bytes] = []
    ids = [field.field_id for field in partition.fields]
    for first in range(0, len(rows), _SLOW_ROWS):
        taken = entries.take(pa.array(rows[first : first + _SLOW_ROWS])).to_pylist()
        for entry in taken:
            entry["status"] = 0
            entry["partition"] = dict(zip(ids, (entry["partition"] or {}).values(), strict=True))
        values += encoded_entries(taken, schema_text)
    return pa.array(values, pa.binary())


def _copied(payload: npt.NDArray[np.uint8], starts: Ints, ends: Ints, rows: Ints) -> pa.Array:
    """Ranges of the payload. All ranges and the gaps between them are one Arrow array without a copy."""
    offsets = np.empty((len(starts), 2), np.int32)
    offsets[:, 0], offsets[:, 1] = starts, ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    tiles = pa.Array.from_buffers(pa.binary(), max(2 * len(starts) - 1, 0), buffers)
    return tiles.take(pa.array(2 * rows))


def _optional_longs(columns: Sequence[pa.ChunkedArray], rows: Ints, *, leading: bytes = b"") -> pa.Array:
    """`leading` and then, for each column, a union of null and long."""
    width = 1 + _MAX_VARINT_BYTES
    matrix = np.zeros((len(rows), len(leading) + width * len(columns)), np.uint8)
    used = np.zeros(matrix.shape, np.bool_)
    matrix[:, : len(leading)] = np.frombuffer(leading, np.uint8)
    used[:, : len(leading)] = True
    at = len(leading)
    for column in columns:
        taken = column.take(pa.array(rows)).combine_chunks()
        valid = taken.is_valid().to_numpy(zero_copy_only=False)
        matrix[:, at] = np.where(valid, 2, 0)
        used[:, at] = True
        _varints(taken.fill_null(0).to_numpy(), valid, matrix[:, at + 1 :], used[:, at + 1 :])
        at += width
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(matrix[used])]
    )


def _varints(
    values: Ints, wanted: npt.NDArray[np.bool_], matrix: npt.NDArray[np.uint8], used: npt.NDArray[np.bool_]
) -> None:
    """Avro's encoding of longs, one in each row, from the left; `used` marks its bytes."""
    rest: npt.NDArray[Any] = ((values << 1) ^ (values >> 63)).view(np.uint64)
    more = wanted
    for index in range(_MAX_VARINT_BYTES):
        used[:, index] = more
        matrix[:, index] = rest & 0x7F
        rest = rest >> 7
        more = more & (rest != 0)
        matrix[:, index] |= np.where(rest != 0, 0x80, 0).astype(np.uint8)
        if not more.any():
            break

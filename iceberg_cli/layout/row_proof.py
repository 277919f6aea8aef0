"""A proof that rows which were written are the rows that were read: a count and two sums of hashes, in any order.

A row's hash is chained of its columns, each by its field id, so that a value in another column, a null in place of an
empty list, or an element that moved into the next list makes another one. Hashes are added and not combined by XOR,
which two equal rows would cancel.

What it proves is what lies between the two sides: whoever takes one side from the rows as they were read and the other
from the finished file proves the writer and the storage, and nothing of the reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import elements_of, lists_of_entries, one_array, plain
from iceberg_cli.encoding.projection import field_id_of
from iceberg_cli.encoding.string_hash import hash_column

Hashes = npt.NDArray[np.uint64]

_ROWS_AT_ONCE: Final = 1 << 16  # of which what is made of a column stays in the processor's cache
_WORD_BYTES: Final = 8
_MODULUS: Final = 1 << 64
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_NULL: Final = np.uint64(0xD6E8FEB86659FD93)
_BY_NAME: Final = 1 << 32  # above every field id
_SPLITMIX: Final = (30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31)
_MURMUR: Final = (33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33)


@dataclass(frozen=True, slots=True)
class RowProof:
    """The number of rows, and for each of two finalisers the sum of their hashes modulo 2^64."""

    count: int = 0
    sums: tuple[int, int] = (0, 0)

    def __add__(self, other: RowProof) -> RowProof:
        """Of the rows of both."""
        first, second = ((a + b) % _MODULUS for a, b in zip(self.sums, other.sums, strict=True))
        return RowProof(self.count + other.count, (first, second))


def row_proof(rows: pa.Table) -> RowProof:
    """The proof of some rows.

    Args:
        rows: whose fields have ids, those inside of others too; one that has none goes by its name. The order of
            columns, and how values lie in memory, make no difference.
    """
    proof = RowProof()
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        proof += _proof(rows.slice(first, _ROWS_AT_ONCE))
    return proof


def _proof(rows: pa.Table) -> RowProof:
    hashes = RowHashes(rows.num_rows)
    hashes.add(0, rows)
    return hashes.proof()


class RowHashes:
    """The hashes of rows of which one gets more and more columns, in the order of `hash_order`.

    Args:
        count: of rows.
    """

    def __init__(self, count: int) -> None:
        self._hashes: Hashes = np.zeros(count, np.uint64)

    def add(self, first: int, rows: pa.Table) -> None:
        """Take further columns of some rows.

        Args:
            first: place of the first row.
            rows: that follow each other.
        """
        some = slice(first, first + rows.num_rows)
        places = hash_order(rows.schema)
        columns = ((rows.schema.field(place), _in_one_piece(rows.column(place))) for place in places)
        self._hashes[some] = _chained(self._hashes[some], columns)

    def proof(self) -> RowProof:
        """Of the rows, once each has all of its columns."""
        sums = [
            int(_mixed(self._hashes, constants).sum(dtype=np.uint64)) for constants in (_SPLITMIX, _MURMUR)
        ]
        return RowProof(len(self._hashes), (sums[0], sums[1]))


def hash_order(fields: Iterable[pa.Field]) -> list[int]:
    """The places of columns in the order in which they are hashed."""
    keys = [_key(field) for field in fields]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; Arrow would copy it also where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else one_array(column)


def _key(field: pa.Field) -> int:
    field_id = field_id_of(field)
    return _BY_NAME + zlib.crc32(field.name.encode()) if field_id is None else field_id


def _mixed(values: Hashes, constants: tuple[int, int, int, int, int] = _SPLITMIX) -> Hashes:
    first, multiplier, second, other, last = constants
    mixed: Hashes = values >> np.uint64(first)
    mixed ^= values
    mixed *= np.uint64(multiplier)
    mixed ^= mixed >> np.uint64(second)
    mixed *= np.uint64(other)
    mixed ^= mixed >> np.uint64(last)
    return mixed


def _chained(start: Hashes, columns: Iterable[tuple[pa.Field, pa.Array]]) -> Hashes:
    """Hashes of n values that consist of several, which come in the order of `hash_order`."""
    hashes = start
    for field, column in columns:
        found = _hashes(column, field)
        found ^= hashes
        hashes = _mixed(found)
    return hashes


def _hashes(array: pa.Array, field: pa.Field) -> Hashes:
    """A hash of each of n values.

    Args:
        array: n values; Arrow forgets ids of fields in maps that it builds.
        field: what they are of.
    """
    salt = _salt(_key(field))
    kind = array.type
    if pa.types.is_dictionary(kind) and len(array.dictionary) <= len(array):
        return _of_dictionary(array, field, salt)
    kind = field.type
    if pa.types.is_struct(kind):
        fields, children = [kind.field(index) for index in range(kind.num_fields)], array.flatten()
        in_order = ((fields[place], children[place]) for place in hash_order(fields))
        found = _chained(np.full(len(array), salt, np.uint64), in_order)
    elif pa.types.is_map(kind):
        entry = pa.field("entries", pa.struct([kind.key_field, kind.item_field]))
        found = _of_lists(lists_of_entries(array), entry, salt)
    elif pa.types.is_list(kind):
        found = _of_lists(array, kind.value_field, salt)
    else:
        first, *others = _words(plain(array))
        found = _mixed(first + salt)
        for words in others:
            found = _mixed(found ^ words)
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _of_null(salt)
    return found


def _of_dictionary(array: pa.DictionaryArray, field: pa.Field, salt: np.uint64) -> Hashes:
    """Each value is hashed once."""
    dictionary = array.dictionary
    own = np.append(_hashes(dictionary, field.with_type(dictionary.type)), _of_null(salt))
    found: Hashes = own[pc.fill_null(array.indices.cast(pa.int64()), len(dictionary)).to_numpy()]
    return found


def _of_null(salt: np.uint64) -> np.uint64:
    mixed: np.uint64 = _mixed(np.array([salt ^ _NULL], np.uint64))[0]
    return mixed


@cache
def _salt(key: int) -> np.uint64:
    mixed: np.uint64 = _mixed(np.array([key], np.uint64) * _GOLDEN)[0]
    return mixed


def _of_lists(array: pa.Array, element: pa.Field, salt: np.uint64) -> Hashes:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    elements = _hashes(elements_of(array), element)
    places = np.arange(len(elements), dtype=np.int64) - np.repeat(starts, lengths)
    mixed = _mixed(elements + places.astype(np.uint64) * _GOLDEN)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
    found: Hashes = _mixed((sums[ends] - sums[starts]) ^ (lengths.astype(np.uint64) * _GOLDEN + salt))
    return found


def _words(array: pa.Array) -> Sequence[Hashes]:
    """Each of n values that have no others in them, as one number or more of 64 bits; of a null they mean nothing."""
    kind, types = array.type, pa.types
    if types.is_null(kind) or not len(array):
        return [np.zeros(len(array), np.uint64)]
    if types.is_boolean(kind):
        return [pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.uint64)]  # noqa: FBT003
    if types.is_string(kind) or types.is_binary(kind):
        return [hash_column(array)]
    width = kind.bit_width // 8
    if types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        if width % _WORD_BYTES:
            return [hash_column(array.view(pa.binary(width)).cast(pa.binary()))]
        words = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, width // _WORD_BYTES)
        return list(words[array.offset : array.offset + len(array)].T)
    data = np.frombuffer(array.buffers()[1], f"{'u' if types.is_floating(kind) else 'i'}{width}")
    return [data[array.offset : array.offset + len(array)].astype(np.int64).view(np.uint64)]

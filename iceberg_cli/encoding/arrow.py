"""Arrow arrays over numpy's memory, columns in one piece, and the several Arrow types of one logical type."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]


def array_of(values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """The numbers or booleans of `values`, null where they are not `valid`; numbers are not copied.

    `pa.array` would do the same, but for an array of numpy's it imports `numpy.ma` first, which takes longer than
    all the work on a small table.
    """
    data = (
        np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    )
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bitmap_of(valid), pa.py_buffer(data)])


_PLAIN: Final = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
        pa.time64("us"), pa.timestamp("us"), pa.decimal128(9), pa.binary(16),
    )
)  # fmt: skip


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The usual Arrow type of the same logical type.

    Views, dictionaries, run ends, wide offsets and fixed lengths of lists tell how values lie in memory, and extension
    types what they mean to others: Parquet files that Arrow wrote record these, and none of it is the table's.
    """
    types = pa.types
    if kind.id in _PLAIN:  # most are, and files may be small
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary_view(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([each.with_type(plain_type(each.type)) for each in kind])
    if types.is_map(kind):
        key, item = (each.with_type(plain_type(each.type)) for each in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if _is_any_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def plain(array: pa.Array) -> pa.Array:
    """An array in its `plain_type`.

    Raises:
        pa.ArrowInvalid: it holds more than 2 GiB of text.
    """
    kind, types = array.type, pa.types
    target = plain_type(kind)
    if kind == target and not isinstance(kind, pa.BaseExtensionType):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, plain(array.dictionary)).dictionary_decode()
    if types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array))
    if types.is_struct(kind):
        children = [plain(each) for each in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if types.is_map(kind):
        # What is behind the first and the last offset is not the array's.
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inner = (array.keys.slice(begin, end - begin), array.items.slice(begin, end - begin))
        return pa.MapArray.from_arrays(_offsets(array), *map(plain, inner), type=target)
    if _is_any_list(kind):
        return pa.ListArray.from_arrays(_offsets(array), plain(elements_of(array)), type=target)
    return array.cast(target)


def _is_any_list(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view,
            types.is_fixed_size_list,
        )
    )  # fmt: skip


def _offsets(array: pa.Array) -> pa.Array:
    """Where the items of each of n lists or maps begin among their items in order; null for a null."""
    if pa.types.is_map(array.type):
        lengths = np.diff(array.offsets.to_numpy())
    else:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    if int(ends[-1]) >= 2**31:
        raise pa.ArrowInvalid(f"{ends[-1]} items in one array of lists")
    valid = np.append(array.is_valid().to_numpy(zero_copy_only=False), True)
    return array_of(ends.astype(np.int32), None if valid.all() else valid)


def lists_of_entries(maps: pa.Array) -> pa.Array:
    """Maps as lists of structs of a key and a value."""
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))


def elements_of(lists: pa.Array) -> pa.Array:
    """The elements of lists, one list after the other, and none of what is behind a list that is null."""
    # Arrow fails to make an empty array of some types, where none of the lists has an element.
    if lists.null_count and not pc.sum(pc.list_value_length(lists)).as_py():
        return lists.values.slice(0, 0)
    return lists.flatten()


def leaf_arrays(array: pa.Array) -> list[pa.Array]:
    """The values of each field in an array that has no others in it, in the order of fields; of lists all of them."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_arrays(array.storage)
    if pa.types.is_struct(kind):
        inner = array.flatten()
    elif pa.types.is_map(kind):
        inner = elements_of(lists_of_entries(array)).flatten()
    elif pa.types.is_list(kind):
        inner = [elements_of(array)]
    else:
        return [array]
    return [leaf for each in inner for leaf in leaf_arrays(each)]


def bitmap_of(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap of n booleans; None where all is valid."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))

"""The several Arrow types of one logical type, made plain: the values are those that Arrow itself tells."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from iceberg_cli.encoding.arrow import plain, plain_type

UUID = bytes(range(16))
PAIRS = pa.map_(pa.string_view(), pa.binary_view())
NESTED = pa.large_list(pa.struct([("a", pa.list_view(pa.string_view()))]))
ARRAYS: dict[str, tuple[pa.Array, pa.DataType]] = {
    "strings": (pa.array(["a", None]), pa.string()),
    "string views": (pa.array(["a", None, "c" * 40], pa.string_view()), pa.string()),
    "binary views": (pa.array([b"a", None, b"c" * 40], pa.binary_view()), pa.binary()),
    "large strings": (pa.array(["a", None], pa.large_string()), pa.string()),
    "large binary": (pa.array([b"a", None], pa.large_binary()), pa.binary()),
    "large lists": (pa.array([[1], None, [2, 3]], pa.large_list(pa.int64())), pa.list_(pa.int64())),
    "list views": (pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())), pa.list_(pa.int64())),
    "large list views": (pa.array([[], None, [2]], pa.large_list_view(pa.int64())), pa.list_(pa.int64())),
    "fixed lists": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), pa.list_(pa.int64())),
    "lists of views": (
        pa.array([["x"], None, ["y", None]], pa.list_(pa.string_view())),
        pa.list_(pa.string()),
    ),
    "lists of lists": (
        pa.array([[[1], None], None, [[2, 3]]], pa.list_view(pa.list_view(pa.int64()))),
        pa.list_(pa.list_(pa.int64())),
    ),
    "maps": (
        pa.array([[("k", b"v")], None, [], [("a", None), ("b", b"w")]], PAIRS),
        pa.map_(pa.string(), pa.binary()),
    ),
    "dictionaries": (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    "dictionaries of views": (
        pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["z"], pa.string_view())),
        pa.string(),
    ),
    "run ends": (pc.run_end_encode(pa.array(["a", "a", "b"])), pa.string()),
    "structs": (
        pa.array([{"s": "a"}, None], pa.struct([("s", pa.string_view())])),
        pa.struct([("s", pa.string())]),
    ),
    "nested": (
        pa.array([[{"a": ["x", None]}, None], None, []], NESTED),
        pa.list_(pa.field("item", pa.struct([("a", pa.list_(pa.string()))]))),
    ),
    "numbers": (pa.array([1, None], pa.int32()), pa.int32()),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_keeps_its_values(name: str) -> None:
    array, expected = ARRAYS[name]
    assert plain_type(array.type).equals(expected) or str(plain_type(array.type)) == str(expected)
    for part in (array, array.slice(1), array.slice(0, 1), array.slice(1, 1), array.slice(0, 0)):
        made = plain(part)
        made.validate(full=True)
        assert made.type == plain_type(array.type)
        assert made.to_pylist() == part.to_pylist()


def test_an_extension_type_is_what_it_is_stored_as() -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID, None], pa.binary(16)))
    assert plain(uuids).equals(pa.array([UUID, None], pa.binary(16)))
    listed = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), uuids)
    assert plain(listed).to_pylist() == [[UUID, None]]


def test_what_is_plain_is_not_copied() -> None:
    array = pa.array([[{"a": "x"}]])
    assert plain(array) is array

"""Bounds are cut as the specification and Iceberg Java cut them, and hold whatever the values are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.iceberg.rows.column_bounds import lower_bound, upper_bound

LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("short", "short", "short"),
        ("exactly sixteen!", "exactly sixteen!", "exactly sixteen!"),
        ("seventeen letters", "seventeen letter", "seventeen lettes"),
        ("ü" * 17, "ü" * 16, "ü" * 15 + "ý"),
        ("a" * 15 + "\ud7ff" + "b", "a" * 15 + "\ud7ff", "a" * 15 + "\ue000"),  # no half of a pair follows
        ("a" * 15 + LAST + "b", "a" * 15 + LAST, "a" * 14 + "b"),  # which drops off
        ("a" + LAST * 16, "a" + LAST * 15, "b"),
        (LAST * 17, LAST * 16, None),
        (LAST * 16, LAST * 16, LAST * 16),
        ("", "", ""),
    ],
)
def test_text_is_cut_at_code_points(text: str, lower: str, upper: str | None) -> None:
    assert lower_bound("string", text.encode(), 16) == lower.encode()
    assert upper_bound("string", text.encode(), 16) == (None if upper is None else upper.encode())
    assert (
        lower_bound("string", text.encode(), None)
        == upper_bound("string", text.encode(), None)
        == text.encode()
    )


@pytest.mark.parametrize(
    ("data", "lower", "upper"),
    [
        (b"\x01" * 16, b"\x01" * 16, b"\x01" * 16),
        (b"\x01" * 17, b"\x01" * 16, b"\x01" * 15 + b"\x02"),
        (b"\x01" * 9 + b"\xff" * 8, b"\x01" * 9 + b"\xff" * 7, b"\x01" * 8 + b"\x02"),
        (b"\xff" * 17, b"\xff" * 16, None),
    ],
)
def test_binary_is_cut_at_bytes(data: bytes, lower: bytes, upper: bytes | None) -> None:
    assert lower_bound("binary", data, 16) == lower
    assert upper_bound("binary", data, 16) == upper


@pytest.mark.parametrize(
    ("type_", "raw", "expected"),
    [
        ("boolean", True, "01"),
        ("int", -2, "feffffff"),
        ("date", 19_000, "384a0000"),
        ("long", -2, "feffffffffffffff"),
        ("timestamptz_ns", 1, "0100000000000000"),
        ("decimal(9,2)", 125, "7d"),
        ("decimal(9,2)", 128, "0080"),
        ("decimal(9,2)", -128, "80"),
        ("decimal(9,2)", -129, "ff7f"),
        ("decimal(9,2)", 0, "00"),
        ("decimal(30,2)", (-129).to_bytes(13, "big", signed=True), "ff7f"),
        ("uuid", bytes(range(16)), "000102030405060708090a0b0c0d0e0f"),
        ("fixed[3]", b"\xff\x00\x01", "ff0001"),
        ("double", 1.5, "000000000000f83f"),
    ],
)
def test_values_of_other_types_are_whole_single_values(type_: str, raw: Any, expected: str) -> None:
    for bound in (lower_bound, upper_bound):
        for length in (1, 16, None):
            assert bound(type_, raw, length) == bytes.fromhex(expected)


@pytest.mark.parametrize(("type_", "width"), [("float", "<f"), ("double", "<d")])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_bound_of_zero_holds_for_both_zeros(type_: str, width: str, zero: float) -> None:
    assert lower_bound(type_, zero, 16) == struct.pack(width, -0.0)
    assert upper_bound(type_, zero, 16) == struct.pack(width, 0.0)


def test_what_is_no_text_is_no_bound_of_text() -> None:
    assert lower_bound("string", b"\xff\xfe", 16) is None
    assert upper_bound("string", b"\xff\xfe", 16) is None


# Few code points, those where something happens, so that cuts fall on them.
TEXTS = st.text(st.sampled_from(["a", "\x7f", "\u07ff", "\ud7ff", "\ue000", "\uffff", LAST]), max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 4))
def test_no_text_lies_outside_of_its_bounds(texts: list[str], length: int) -> None:
    values = sorted(text.encode() for text in texts)
    lower = lower_bound("string", values[0], length)
    upper = upper_bound("string", values[-1], length)
    assert lower is not None
    assert lower <= values[0]
    assert len(lower.decode()) <= length
    if upper is None:
        assert set(values[-1].decode()[:length]) == {LAST}
    else:
        assert values[-1] <= upper
        assert len(upper.decode()) <= length


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5), st.integers(1, 4))
def test_no_bytes_lie_outside_of_their_bounds(values: list[bytes], length: int) -> None:
    lower, upper = lower_bound("binary", min(values), length), upper_bound("binary", max(values), length)
    assert lower is not None
    assert lower <= min(values)
    assert len(lower) <= length
    assert upper is None or max(values) <= upper
    assert (upper is None) == (len(max(values)) > length and max(values)[:length] == b"\xff" * length)

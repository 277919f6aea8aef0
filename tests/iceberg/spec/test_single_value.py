"""Single values against the tables of Appendix D and PyIceberg's conversions."""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import conversions
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimeType,
    UUIDType,
)

from iceberg_cli.errors import CorruptFile, InvalidMetadata
from iceberg_cli.iceberg.spec.types.single_value import from_bytes, show, to_bytes
from iceberg_cli.iceberg.spec.types.single_value_json import from_json, to_json

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
AT_US = 1510871468123456  # 2017-11-16T22:31:08.123456
POINT = struct.pack("<dd", 30, 10)


def read(type_name: str, data: bytes) -> Any:
    return from_bytes(type_name, data, path="m.avro", field="lower_bounds[3]")


@pytest.mark.parametrize(
    ("type_name", "value", "data"),
    [
        ("boolean", False, "00"),
        ("boolean", True, "01"),
        ("int", 34, "22000000"),
        ("int", -(2**31), "00000080"),
        ("long", 34, "2200000000000000"),
        ("float", 1.0, "0000803f"),
        ("double", 1.0, "000000000000f03f"),
        ("date", -1, "ffffffff"),
        ("time", 81068123456, "406509e012000000"),
        ("timestamp", 0, "0000000000000000"),
        ("timestamptz", -1, "ffffffffffffffff"),
        ("timestamp_ns", 1, "0100000000000000"),
        ("timestamptz_ns", 1, "0100000000000000"),
        ("string", "iceberg", b"iceberg".hex()),
        ("string", "", ""),
        ("uuid", UUID, "f79c3e09677c4bbda4793f349cb785e7"),
        ("fixed[4]", b"\x00\x01\x02\xff", "000102ff"),
        ("binary", b"\x00\x01", "0001"),
        ("decimal(9,2)", Decimal("14.20"), "058c"),
        ("decimal(9, 2)", Decimal("-0.01"), "ff"),
        ("decimal(9,2)", Decimal("1.28"), "0080"),
        ("decimal(9,2)", Decimal("-1.28"), "80"),
        ("decimal(9,2)", Decimal("0.00"), "00"),
        ("decimal(38,0)", Decimal("9" * 38), (10**38 - 1).to_bytes(16, "big").hex()),
        ("decimal(38,-3)", Decimal("2E+3"), "02"),
        ("variant", b"\x01\x00", "0100"),
        ("geometry", POINT, POINT.hex()),
        ("geometry(srid:4326)", POINT, POINT.hex()),
        ("geography(OGC:CRS84, spherical)", POINT, POINT.hex()),
    ],
)
def test_value_and_its_bytes_are_those_of_appendix_d(type_name: str, value: Any, data: str) -> None:
    assert to_bytes(type_name, value).hex() == data
    assert read(type_name, bytes.fromhex(data)) == value


def test_negative_zero_keeps_its_sign_in_bytes() -> None:
    assert to_bytes("double", -0.0).hex() == "0000000000000080"
    assert math.copysign(1, read("double", bytes.fromhex("0000000000000080"))) == -1
    assert show("double", -0.0) == "-0.0"


def test_any_byte_but_zero_is_true() -> None:
    assert read("boolean", b"\x02") is True


@pytest.mark.parametrize(
    ("type_name", "data", "expected"),
    [
        ("long", struct.pack("<i", -7), -7),
        ("double", struct.pack("<f", 1.5), 1.5),
        ("timestamp", struct.pack("<i", 1), 86_400_000_000),
        ("timestamp_ns", struct.pack("<i", -1), -86_400_000_000_000),
        ("decimal(20,2)", b"\x05\x8c", Decimal("14.20")),
    ],
)
def test_bound_from_before_a_promotion_is_read_as_the_type_of_then(
    type_name: str, data: bytes, expected: Any
) -> None:
    assert read(type_name, data) == expected


PYICEBERG: list[tuple[str, PrimitiveType, st.SearchStrategy[Any]]] = [
    ("boolean", BooleanType(), st.booleans()),
    ("int", IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    ("long", LongType(), st.integers(-(2**63), 2**63 - 1)),
    ("float", FloatType(), st.floats(width=32, allow_nan=False)),
    ("double", DoubleType(), st.floats(allow_nan=False)),
    ("date", DateType(), st.integers(-(2**31), 2**31 - 1)),
    ("time", TimeType(), st.integers(0, 86_399_999_999)),
    ("timestamp", TimestampType(), st.integers(-(2**63), 2**63 - 1)),
    ("string", StringType(), st.text()),
    ("uuid", UUIDType(), st.uuids()),
    ("fixed[3]", FixedType(3), st.binary(min_size=3, max_size=3)),
    ("binary", BinaryType(), st.binary()),
    ("decimal(20,4)", DecimalType(20, 4), st.decimals(-(10**15), 10**15, places=4)),
]


@pytest.mark.parametrize("case", PYICEBERG, ids=lambda c: c[0])
def test_bytes_equal_those_of_pyiceberg(case: tuple[str, PrimitiveType, st.SearchStrategy[Any]]) -> None:
    type_name, theirs, values = case

    @given(values)
    @settings(max_examples=50)
    def equal(value: Any) -> None:
        data = conversions.to_bytes(theirs, value)
        assert to_bytes(type_name, value) == data
        assert read(type_name, data) == value

    equal()


@pytest.mark.parametrize(
    ("type_name", "data"),
    [
        ("boolean", b""),
        ("boolean", b"\0\0"),
        ("int", b"\0\0\0"),
        ("int", bytes(8)),
        ("long", bytes(5)),
        ("date", bytes(8)),
        ("timestamptz", bytes(4)),
        ("time", bytes(4)),
        ("float", bytes(8)),
        ("uuid", bytes(15)),
        ("fixed[4]", bytes(3)),
        ("decimal(9,2)", b""),
        ("decimal(9,2)", bytes(17)),
        ("decimal(2,0)", b"\x64"),
        ("string", b"\xff"),
        ("unknown", b""),
        ("struct", b"\0"),
        ("no_such_type", b"\0"),
    ],
)
def test_bytes_that_do_not_fit_the_type_name_the_field(type_name: str, data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"Cannot read m\.avro, lower_bounds\[3\]: "):
        read(type_name, data)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("int", 2**31),
        ("int", "1"),
        ("float", 1e300),
        ("decimal(9,2)", Decimal("1.0")),
        ("decimal(3,2)", Decimal("10.00")),
        ("fixed[4]", b"abc"),
        ("boolean", 1),
        ("string", b"a"),
        ("unknown", None),
    ],
)
def test_value_that_does_not_fit_the_type_is_not_written(type_name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="Cannot write"):
        to_bytes(type_name, value)


STRUCT = {"type": "struct", "fields": [{"id": 1, "type": "int"}, {"id": 2, "type": "string"}]}
LIST = {"type": "list", "element-id": 3, "element": "int"}
MAP = {"type": "map", "key": "string", "value": "int"}


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("boolean", True, True),
        ("int", 34, 34),
        ("long", 34, 34),
        ("float", 1.0, 1.0),
        ("double", 1.0, 1.0),
        ("decimal(9,2)", "14.20", Decimal("14.20")),
        ("decimal(9,-20)", "2E+20", Decimal("2E+20")),
        ("date", "2017-11-16", 17486),
        ("date", "1969-12-31", -1),
        ("date", "-0001-12-31", -719529),
        ("date", "+10000-01-01", 2932897),
        ("time", "22:31:08.123456", 81068123456),
        ("timestamp", "2017-11-16T22:31:08.123456", AT_US),
        ("timestamp", "1969-12-31T23:59:59.999999", -1),
        ("timestamptz", "2017-11-16T22:31:08.123456+00:00", AT_US),
        ("timestamp_ns", "2017-11-16T22:31:08.123456789", AT_US * 1000 + 789),
        ("timestamptz_ns", "2017-11-16T22:31:08.123456789+00:00", AT_US * 1000 + 789),
        ("string", "iceberg", "iceberg"),
        ("uuid", str(UUID), UUID),
        ("fixed[4]", "000102ff", b"\x00\x01\x02\xff"),
        ("binary", "000102ff", b"\x00\x01\x02\xff"),
        ("geometry", "POINT (30 10)", "POINT (30 10)"),
        (STRUCT, {"1": 1, "2": "bar"}, {1: 1, 2: "bar"}),
        (LIST, [1, 2, 3], [1, 2, 3]),
        (MAP, {"keys": ["a", "b"], "values": [1, 2]}, [("a", 1), ("b", 2)]),
        ("string", None, None),
        (LIST, None, None),
    ],
    ids=str,
)
def test_value_and_its_json_are_those_of_appendix_d(type_: Any, text: Any, value: Any) -> None:
    assert from_json(type_, text, path="v1.metadata.json", field="initial-default") == value
    assert to_json(type_, value) == text


def test_java_leaves_out_a_fraction_of_zero_and_is_understood() -> None:
    assert from_json("timestamp", "2017-11-16T22:31:08", path="x", field="x") == AT_US // 10**6 * 10**6
    assert from_json("time", "22:31", path="x", field="x") == 81060 * 10**6


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("boolean", 1),
        ("int", True),
        ("int", 2**31),
        ("int", 1.0),
        ("int", "1"),
        ("long", 2**63),
        ("double", "1.0"),
        ("decimal(9,2)", "14.2"),
        ("decimal(9,2)", 14.2),
        ("decimal(9,2)", "NaN"),
        ("decimal(3,2)", "14.20"),
        ("decimal(9,0)", "1_0"),
        ("date", "2017-02-30"),
        ("date", "17486"),
        ("date", "NaT"),
        ("time", "24:00:00.000000"),
        ("time", "22:31:08.1234567"),
        ("timestamp", "2017-11-16T22:31:08.123456+00:00"),
        ("timestamp", "2017-11-16"),
        ("timestamptz", "2017-11-16T22:31:08.123456"),
        ("timestamptz", "2017-11-16T22:31:08.123456+01:00"),
        ("timestamp_ns", "9999-11-16T22:31:08.123456789"),
        ("uuid", "f79c3e09"),
        ("fixed[4]", "0001"),
        ("binary", "0"),
        ("binary", "zz"),
        ("unknown", "a"),
        ("no_such_type", "a"),
        (STRUCT, {"7": 1}),
        (STRUCT, {"1": "a"}),
        (LIST, {"1": 1}),
        (MAP, {"keys": ["a"], "values": []}),
        ({"type": "tuple"}, [1]),
    ],
    ids=str,
)
def test_json_that_does_not_fit_the_type_names_the_field(type_: Any, text: Any) -> None:
    with pytest.raises(InvalidMetadata, match=r"v1\.metadata\.json, initial-default"):
        from_json(type_, text, path="v1.metadata.json", field="initial-default")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_json_lacks_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="Cannot write"):
        to_json("double", value)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("boolean", True, "true"),
        ("int", -3, "-3"),
        ("float", struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.1"),
        ("double", 0.1, "0.1"),
        ("decimal(9,2)", Decimal("14.20"), "14.20"),
        ("decimal(9,9)", Decimal("0E-9"), "0.000000000"),
        ("decimal(9,-20)", Decimal("12E+20"), "12E+20"),
        ("date", 17486, "2017-11-16"),
        ("date", -719529, "-0001-12-31"),
        ("date", 2932897, "+10000-01-01"),
        ("time", 81068000000, "22:31:08"),
        ("time", 81068123456, "22:31:08.123456"),
        ("timestamp", AT_US, "2017-11-16T22:31:08.123456"),
        ("timestamp", -1, "1969-12-31T23:59:59.999999"),
        ("timestamptz", 0, "1970-01-01T00:00:00+00:00"),
        ("timestamp_ns", 1, "1970-01-01T00:00:00.000000001"),
        ("string", "caf\u00e9", "caf\u00e9"),
        ("string", "a\x1b[2Jb\n", "a\\x1b[2Jb\\n"),
        ("string", "\u202eabc", "\\u202eabc"),
        ("uuid", UUID, str(UUID)),
        ("fixed[2]", b"\x01\xff", "0x01ff"),
        ("binary", bytes(40), "0x" + "00" * 32 + "... (40 bytes)"),
        ("variant", b"\x01\x00", "0x0100"),
        ("geometry", POINT, "POINT (30 10)"),
        ("geography", struct.pack("<dddd", 1, 2, math.nan, 4), "POINT (1 2 nan 4)"),
        ("geometry", b"\x01", "0x01"),
        ("long", None, "null"),
        (LIST, [1, 2], "[1, 2]"),
    ],
    ids=str,
)
def test_value_is_shown_as_people_read_it(type_: Any, value: Any, expected: str) -> None:
    assert show(type_, value) == expected

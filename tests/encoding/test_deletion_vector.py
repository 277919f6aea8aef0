"""Deletion vectors against files of Iceberg's Java library, Delta golden tables and pyroaring."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from iceberg_cli.encoding.deletion_vector import DeletionVector, decode, decode_bitmap64, encode, union
from iceberg_cli.errors import CorruptFile
from tests.paths import FIXTURES, needs_fixtures

DELETES = FIXTURES / "01-iceberg-spec-fixtures/org/apache/iceberg/deletes"
JAVA_BLOBS = [
    "empty-position-index.bin",
    "small-alternating-values-position-index.bin",
    "small-and-large-values-position-index.bin",
    "all-container-types-position-index.bin",
]


def expected_positions(name: str) -> list[int]:
    ranges = json.loads((FIXTURES / "EXPECTED.json").read_bytes())["01-iceberg-spec-fixtures"]
    return [p for first, last in ranges["dv_ranges_inclusive"][name] for p in range(first, last + 1)]


def framed(vector: bytes, *, magic: bytes = b"\xd1\xd3\x39\x64") -> bytes:
    body = magic + vector
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def vector(*bitmaps: tuple[int, bytes], count: int | None = None) -> bytes:
    rows = b"".join(struct.pack("<I", key) + data for key, data in bitmaps)
    return struct.pack("<q", len(bitmaps) if count is None else count) + rows


def array_bitmap(
    values: list[int], *, cardinality: int | None = None, key: int = 0, offset: int = 16
) -> bytes:
    n = len(values) if cardinality is None else cardinality
    return struct.pack("<IIHHI", 12346, 1, key, n - 1, offset) + struct.pack(f"<{len(values)}H", *values)


def run_bitmap(runs: list[tuple[int, int]], *, cardinality: int) -> bytes:
    head = struct.pack("<IBHHH", 12347, 1, 0, cardinality - 1, len(runs))
    return head + b"".join(struct.pack("<HH", first, length - 1) for first, length in runs)


@needs_fixtures
@pytest.mark.parametrize("name", JAVA_BLOBS)
def test_java_blob_reads_as_the_positions_java_put_in(name: str) -> None:
    positions = expected_positions(name)
    found = decode((DELETES / name).read_bytes(), name, cardinality=len(positions))
    assert found.positions().tolist() == positions


@needs_fixtures
@pytest.mark.parametrize("name", JAVA_BLOBS)
def test_encoding_gives_the_very_bytes_that_java_wrote(name: str) -> None:
    positions = expected_positions(name)
    java = (DELETES / name).read_bytes()
    assert encode(np.array(positions, dtype=np.uint64)) == java
    assert encode(BitMap64(positions)) == java
    assert encode(DeletionVector.of(positions)) == java


@needs_fixtures
@pytest.mark.parametrize("name", ["64mapempty.bin", "64map32bitvals.bin", "64mapspreadvals.bin"])
def test_bare_bitmap_of_java_reads_as_its_positions(name: str) -> None:
    found = decode_bitmap64((DELETES / name).read_bytes(), name)
    assert list(found) == expected_positions(name)


@needs_fixtures
def test_damaged_bitmap_of_java_is_refused() -> None:
    with pytest.raises(CorruptFile):
        decode_bitmap64((DELETES / "64maphighvals.bin").read_bytes(), "64maphighvals.bin")


@needs_fixtures
def test_roaring_project_vectors_read_as_their_generator_says() -> None:
    folder = FIXTURES / "09-roaring-test-vectors"
    small = [*range(0, 100_000, 1000), *(3 * k for k in range(100_000, 200_000)), *range(700_000, 800_000)]
    for name in ("bitmapwithoutruns.bin", "bitmapwithruns.bin"):
        data = next(folder.rglob(name)).read_bytes()
        assert list(decode_bitmap64(vector((0, data)), name)) == small
    spread = decode_bitmap64(next(folder.rglob("bitmap64.bin")).read_bytes(), "bitmap64.bin")
    assert list(spread) == [*range(0, 65_536, 2), *range(2**32, 2**32 + 1_000_000), 2**48]
    portable = decode_bitmap64(
        next(folder.rglob("portable_bitmap64.bin")).read_bytes(), "portable_bitmap64.bin"
    )
    assert len(portable) == 188_424
    assert {position >> 32 for position in portable} == {0, 1}


@needs_fixtures
def test_every_deletion_vector_of_the_delta_golden_table_reads_with_its_cardinality() -> None:
    table = FIXTURES / "13-delta-golden-deletion-vectors"
    read = 0
    for log in sorted(table.rglob("*.json")):
        if log.parent.name != "_delta_log":
            continue
        for line in log.read_text().splitlines():
            dv: dict[str, Any] | None = json.loads(line).get("add", {}).get("deletionVector")
            if dv is None or dv["storageType"] != "u":
                continue
            files = list(log.parents[1].rglob("deletion_vector_*.bin"))
            start, size = dv["offset"], dv["sizeInBytes"]
            # Delta's size leaves out the length and the CRC-32 that stand around magic and vector.
            blobs = [b[start : start + size + 8] for b in (f.read_bytes() for f in files)]
            hits = [b for b in blobs if len(b) == size + 8 and b[:4] == struct.pack(">I", size)]
            counts = {decode(b, "dv").cardinality for b in hits}
            assert dv["cardinality"] in counts
            read += 1
    assert read > 0


def test_keys_are_dense_with_empty_bitmaps_between_as_java_writes_them() -> None:
    blob = encode(np.array([2 << 32 | 7], dtype=np.uint64))
    assert blob == framed(
        vector((0, BitMap().serialize()), (1, BitMap().serialize()), (2, BitMap([7]).serialize()))
    )


def test_bytes_depend_on_the_positions_and_not_on_how_the_set_came_about() -> None:
    # Runs of two members cost as much as an array, where a set that already has runs would keep them.
    positions = sorted(p for k in range(50) for p in (10 * k, 10 * k + 1))
    merged = union([DeletionVector.of(range(500)), DeletionVector.of([])])
    grown = BitMap64(range(500))
    grown &= BitMap64(positions)
    assert merged.cardinality == 500
    assert encode(grown) == encode(np.array(positions, dtype=np.uint64))


@given(
    st.lists(st.integers(0, 2**34), max_size=60),
    st.lists(st.tuples(st.integers(0, 2**33), st.integers(1, 9000)), max_size=4),
)
@settings(max_examples=60)
def test_decoding_what_was_encoded_gives_the_same_set(
    singles: list[int], ranges: list[tuple[int, int]]
) -> None:
    expected = set(singles).union(*(range(first, first + n) for first, n in ranges))
    found = decode(encode(DeletionVector.of(expected)), "dv", cardinality=len(expected))
    assert set(found.positions().tolist()) == expected


@given(st.lists(st.sets(st.integers(0, 2**33)), max_size=4))
@settings(max_examples=40)
def test_union_of_vectors_is_the_union_of_their_sets(sets: list[set[int]]) -> None:
    assert set(union(map(DeletionVector.of, sets)).positions().tolist()) == set().union(*sets)


@given(st.sets(st.integers(0, 2**33), min_size=1), st.booleans())
@settings(max_examples=60)
def test_what_pyroaring_writes_is_accepted(values: set[int], optimised: bool) -> None:
    written = BitMap64(values)
    if optimised:
        written.run_optimize()
    assert list(decode_bitmap64(written.serialize(), "dv")) == sorted(values)


def test_a_position_is_in_the_vector_only_if_it_was_given() -> None:
    given_positions = DeletionVector.of([3, 5 << 32])
    assert 3 in given_positions
    assert 5 << 32 in given_positions
    assert 5 not in given_positions


def test_cardinality_other_than_the_manifest_says_is_refused() -> None:
    with pytest.raises(CorruptFile, match="has 2 positions, metadata says 3"):
        decode(encode(DeletionVector.of([1, 2])), "dv", cardinality=3)


def test_last_row_may_be_deleted_and_the_row_after_it_may_not() -> None:
    blob = encode(DeletionVector.of([9]))
    assert decode(blob, "dv", max_position=9).cardinality == 1
    with pytest.raises(CorruptFile, match="position 9, the last row is 8"):
        decode(blob, "dv", max_position=8)


@pytest.mark.parametrize("positions", [[-1], [(2**31 - 1) << 32], [2**64]])
def test_position_outside_the_format_cannot_be_held(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="Cannot hold"):
        DeletionVector.of(positions)


def test_position_that_needs_gigabytes_of_empty_bitmaps_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="the limit is"):
        encode(np.array([2**62], dtype=np.uint64))


GOOD = array_bitmap([1, 5, 9])
CORRUPT: dict[str, tuple[bytes, str]] = {
    "wrong magic": (framed(vector((0, GOOD)), magic=b"\xd1\xd3\x39\x65"), "magic"),
    "length one less": (b"\x00\x00\x00\x25" + framed(vector((0, GOOD)))[4:], "says 37 bytes"),
    "CRC of other bytes": (framed(vector((0, GOOD)))[:-1] + b"\x00", "CRC-32"),
    "length -1": (b"\xff\xff\xff\xff" + framed(vector((0, GOOD)))[4:], "says 4294967295 bytes"),
    "count -1": (framed(vector((0, GOOD), count=-1)), "-1 bitmaps"),
    "count 2**31": (framed(vector((0, GOOD), count=2**31)), "2147483648 bitmaps"),
    "count one more": (framed(vector((0, GOOD), count=2)), "2 bitmaps|ends inside"),
    "count one less": (framed(vector((0, GOOD), (1, GOOD), count=1)), "after the last bitmap"),
    "keys descending": (framed(vector((1, GOOD), (0, GOOD))), "key 0 after key 1"),
    "key twice": (framed(vector((1, GOOD), (1, GOOD))), "key 1 after key 1"),
    "key above Java's": (framed(vector((2**31 - 1, GOOD))), "key 2147483647"),
    "cookie": (framed(vector((0, b"\x3c" + GOOD[1:]))), "cookie"),
    "containers 2**32-1": (framed(vector((0, GOOD[:4] + b"\xff\xff\xff\xff" + GOOD[8:]))), "containers"),
    "array descending": (framed(vector((0, array_bitmap([1, 9, 5])))), "not ascending"),
    "array with a repeat": (framed(vector((0, array_bitmap([1, 5, 5])))), "not ascending"),
    "array longer than the file": (framed(vector((0, array_bitmap([1, 5, 9], cardinality=4)))), "ends after"),
    "array shorter": (framed(vector((0, array_bitmap([1, 5, 9], cardinality=2)))), "after the last bitmap"),
    "offset": (framed(vector((0, array_bitmap([1, 5, 9], offset=18)))), "offsets"),
    "runs overlap": (framed(vector((0, run_bitmap([(1, 5), (3, 5)], cardinality=10)))), "overlap"),
    "run leaves the container": (framed(vector((0, run_bitmap([(65530, 10)], cardinality=10)))), "leave"),
    "run cardinality lies": (framed(vector((0, run_bitmap([(1, 5)], cardinality=6)))), "cardinality"),
    "no runs": (framed(vector((0, run_bitmap([], cardinality=1)))), "without runs"),
    "bitset cardinality lies": (
        framed(vector((0, array_bitmap([], cardinality=5000) + b"\xff" * 8192))),
        "65536 values, its header says 5000",
    ),
    "nothing": (b"", "cannot have 0 bytes"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_blob_with_a_right_crc_is_refused_with_the_reason(name: str) -> None:
    blob, reason = CORRUPT[name]
    with pytest.raises(CorruptFile, match=reason):
        decode(blob, "s3://b/x.puffin")


def test_two_container_keys_in_the_wrong_order_are_refused() -> None:
    data = struct.pack("<IIHHHHIIHH", 12346, 2, 5, 0, 4, 0, 24, 26, 1, 1)
    with pytest.raises(CorruptFile, match="container keys"):
        decode_bitmap64(vector((0, data)), "dv")


def test_run_bitmap_of_many_containers_is_read() -> None:
    positions = BitMap64()
    for key in range(3000):
        positions.add_range(key << 16, (key << 16) + 60_000)
    positions.run_optimize()
    assert decode_bitmap64(positions.serialize(), "dv") == positions

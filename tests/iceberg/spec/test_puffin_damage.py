"""Damaged Puffin files and deletion vectors: refused cleanly, or read as something that adds up."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from iceberg_cli.encoding.deletion_vector import DeletionVector, decode, decode_bitmap64, encode
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.deletes.puffin import deletion_vector_blob, read_footer, write

POSITIONS = [
    *range(10, 400),
    5000,
    7000,
    *range(70_000, 70_000 + 20_000, 2),
    *range(140_000, 145_000),
    1 << 33,
]
VECTOR = encode(DeletionVector.of(POSITIONS))
PUFFIN = write(
    [deletion_vector_blob(VECTOR, referenced_data_file="a", cardinality=len(POSITIONS))] * 2, {"by": "us"}
)


def read_all(data: bytes) -> list[list[int]]:
    footer = read_footer(data, len(data), "x")
    blobs = [data[b.offset : b.offset + b.length] for b in footer.blobs]
    return [decode(blob, "x", cardinality=len(POSITIONS)).positions().tolist() for blob in blobs]


def test_every_prefix_of_a_puffin_file_is_refused() -> None:
    small = write(
        [deletion_vector_blob(encode(DeletionVector.of([3])), referenced_data_file="a", cardinality=1)], {}
    )
    for size in range(len(small)):
        with pytest.raises(CorruptFile):
            read_footer(small[:size], size, "x")


def test_every_prefix_of_a_deletion_vector_is_refused() -> None:
    for size in range(0, len(VECTOR), 7):
        with pytest.raises(CorruptFile):
            decode(VECTOR[:size], "x")


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bit_is_refused_or_changes_no_position(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        damaged = bytearray(PUFFIN)
        at = chance.randrange(len(damaged) * 8)
        damaged[at // 8] ^= 1 << at % 8
        try:
            found = read_all(bytes(damaged))
        except CorruptFile:
            continue
        assert all(positions == POSITIONS for positions in found)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_vector_with_a_right_crc_is_refused_or_is_a_set_that_its_own_headers_count(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(500):
        body = bytearray(VECTOR[4:-4])
        for _ in range(chance.choice([1, 1, 4])):
            limit = len(body) if chance.random() < 0.3 else 80
            body[4 + chance.randrange(limit - 4)] = chance.choice(
                [0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]
            )
        blob = struct.pack(">I", len(body)) + bytes(body) + struct.pack(">I", zlib.crc32(body))
        try:
            found = decode(blob, "x")
        except CorruptFile:
            continue
        accepted += 1
        positions = found.positions()
        assert found.cardinality == len(positions)
        assert (positions[1:] > positions[:-1]).all()
        assert decode(encode(found), "x") == found
    assert accepted < 500


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes_are_no_bitmap(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        tail = chance.randbytes(chance.randrange(60))
        with pytest.raises(CorruptFile):
            decode_bitmap64(
                struct.pack("<qI", 1, 0) + chance.choice([b"\x3a\x30\0\0", b"\x3b\x30\0\0", b""]) + tail, "x"
            )

"""Deletion vectors of Delta: descriptors, files of vectors, vectors in the log."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from pyroaring import BitMap64

from iceberg_cli.delta.spec.paths import dv_path, z85_encode
from iceberg_cli.delta.spec.vectors import (
    UNKNOWN,
    Vector,
    VectorFile,
    name_in_log,
    read_inline,
    read_vectors,
    vector_file,
)
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_vectors import an_inline_vector, data_of, frame_of, positions_in

PATH = "/t/deletion_vector_x.bin"
DENSE = list(range(100, 9_000))
FAR = [5, 2**32 + 7, 2**33]


def a_file(*vectors: list[int]) -> tuple[bytes, list[Vector]]:
    data, found = b"\x01", []
    for positions in vectors:
        found.append(Vector(len(data), len(data_of(positions)), len(positions), UNKNOWN))
        data += frame_of(positions)
    return data, found


def test_vectors_of_a_file_are_read_as_they_were_written() -> None:
    data, vectors = a_file([1], DENSE, FAR, [])
    (frames,) = read_vectors([VectorFile(PATH, data, vectors)])
    assert frames == [frame_of([1]), frame_of(DENSE), frame_of(FAR), frame_of([])]
    assert [decode(frame, PATH).positions().tolist() for frame in frames] == [[1], DENSE, FAR, []]


def test_a_vector_in_the_log_that_another_library_reads_has_its_positions() -> None:
    """The string that the tests of delta-kernel-rs read."""
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    frame = read_inline(text, Vector(0, 44, 6, 29), "part-0.parquet")
    assert list(BitMap64.deserialize(frame[8:-4])) == [3, 4, 7, 11, 18, 29]


def test_the_example_of_the_specification_is_of_a_format_that_it_does_not_describe() -> None:
    """Spec: "Deletion Vector Descriptor Schema", example 3, has the magic 1681511376, and that big-endian."""
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    with pytest.raises(CorruptFile, match="magic 6439d3d0"):
        read_inline(text, Vector(0, 40, 6, 29), "part-0.parquet")


def test_a_vector_in_the_log_may_end_between_two_groups_of_z85() -> None:
    vector = an_inline_vector([4, 9, 11])
    assert vector["sizeInBytes"] % 4
    found = read_inline(vector["pathOrInlineDv"], Vector(0, vector["sizeInBytes"], 3, 11), "a")
    assert found == frame_of([4, 9, 11])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cardinality": 2}, "3 positions, metadata says 2"),
        ({"last_row": 10}, "position 11, the last row is 10"),
        ({"size_bytes": 34}, "sizeInBytes is 34"),
    ],
)
def test_a_vector_in_the_log_that_is_not_what_is_said_of_it_is_refused(
    change: dict[str, int], reason: str
) -> None:
    stated = an_inline_vector([4, 9, 11])
    vector = Vector(0, stated["sizeInBytes"], 3, 11)._replace(**change)
    with pytest.raises(CorruptFile, match=reason):
        read_inline(stated["pathOrInlineDv"], vector, "a")


def test_another_magic_in_the_log_is_refused() -> None:
    """1681511376 is what Delta Lake wrote before the portable format."""
    data = bytearray(data_of([4, 9, 11]))
    data[0] -= 1
    text = z85_encode(bytes(data) + bytes(-len(data) % 4))
    with pytest.raises(CorruptFile, match="magic d0d33964"):
        read_inline(text, Vector(0, len(data), 3, UNKNOWN), "a")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": 0}, "not inside"),
        ({"offset": 2, "size_bytes": 37}, "says"),
        ({"size_bytes": 500}, "not inside"),
        ({"size_bytes": 32}, "says"),
        ({"cardinality": 4}, "metadata says 4"),
        ({"last_row": 10}, "the last row is 10"),
    ],
)
def test_a_vector_that_is_not_what_its_descriptor_says_is_refused(
    change: dict[str, int], reason: str
) -> None:
    data, (vector,) = a_file([4, 9, 11])
    with pytest.raises(CorruptFile, match=reason):
        read_vectors([VectorFile(PATH, data, [vector._replace(**change)])])


def test_every_flipped_byte_of_a_vector_is_noticed_with_its_file() -> None:
    data, vectors = a_file([4, 9, 11])
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(CorruptFile, match=re.escape(PATH)):
            read_vectors([VectorFile(PATH, bytes(damaged), vectors)])
        if place:
            with pytest.raises(CorruptFile, match=re.escape(PATH)):
                read_vectors([VectorFile(PATH, data[:place], vectors)])


def test_a_new_file_has_the_frames_at_their_offsets_behind_its_version() -> None:
    frames = [frame_of([1]), frame_of(DENSE), frame_of(FAR)]
    data, offsets = vector_file(frames)
    assert data == b"\x01" + b"".join(frames)
    sizes = [len(frame) - 8 for frame in frames]
    stated = [{"offset": offset, "sizeInBytes": size} for offset, size in zip(offsets, sizes, strict=True)]
    assert [positions_in(data, each) for each in stated] == [[1], DENSE, FAR]


def test_the_name_in_the_log_leads_back_to_the_file(tmp_path: Path) -> None:
    path = f"{tmp_path}/deletion_vector_{UUID(int=2**100 + 5)}.bin"
    assert dv_path("u", name_in_log(path), str(tmp_path)) == path

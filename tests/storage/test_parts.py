"""New objects that are sent in parts: how large these are, and how much of an object is in memory."""

from __future__ import annotations

import tracemalloc

import pytest

from iceberg_cli.storage.parts import PartWriter, part_bytes

MIB = 1 << 20


class Parts(PartWriter):
    """Keeps the sizes of the parts, and sends none from the part of a number on."""

    def __init__(self, fails_at: int = 0) -> None:
        self.whole: list[int] = []
        super().__init__("s3://bucket/key", lambda data: self.whole.append(len(data)))
        self.sizes: list[int] = []
        self.calls: list[str] = []
        self.fails_at = fails_at

    def _send(self, part: bytes) -> None:
        self.calls.append("send")
        if len(self.sizes) + 1 == self.fails_at:
            raise LookupError
        self.sizes.append(len(part))

    def _complete(self, part: bytes) -> None:
        self.calls.append("complete")
        self.sizes.append(len(part))

    def _discard(self) -> None:
        self.calls.append("discard")


def test_ten_thousand_parts_make_up_five_tebibytes_and_each_is_one_that_s3_takes() -> None:
    """Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html."""
    sizes = [part_bytes(number) for number in range(1, 10_001)]
    assert sum(sizes) >= 5 << 40
    assert min(sizes) == 8 * MIB
    assert max(sizes) <= 5 << 30
    assert sizes == sorted(sizes)
    assert all(size % (256 << 10) == 0 for size in sizes)  # as Google wants it
    assert sum(size == 8 * MIB for size in sizes) * 8 * MIB >= 39 << 30


@pytest.mark.parametrize(
    ("size_bytes", "whole", "sizes"),
    [
        (0, [0], []),
        (1, [1], []),
        (8 * MIB, [8 * MIB], []),
        (8 * MIB + 1, [], [8 * MIB, 1]),
        (16 * MIB, [], [8 * MIB, 8 * MIB]),
        (17 * MIB, [], [8 * MIB, 8 * MIB, MIB]),
    ],
)
@pytest.mark.parametrize("piece_bytes", [777_777, 1 << 30])
def test_an_object_of_a_single_part_is_put_and_a_larger_one_is_cut_into_full_parts(
    size_bytes: int, whole: list[int], sizes: list[int], piece_bytes: int
) -> None:
    writer, data = Parts(), bytes(size_bytes)
    for start in range(0, size_bytes, piece_bytes):
        writer.write(data[start : start + piece_bytes])
    writer.commit()
    writer.abort()
    assert (writer.whole, writer.sizes) == (whole, sizes)
    assert writer.calls == ["send"] * (len(sizes) - 1) + ["complete"] * bool(sizes)


def test_one_part_is_held_besides_the_one_that_is_sent() -> None:
    writer, piece = Parts(), bytes(MIB)
    tracemalloc.start()
    for _ in range(100):
        writer.write(piece)
    writer.commit()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(writer.sizes) == 100 * MIB
    assert peak < 2.5 * 8 * MIB


def test_after_a_part_that_failed_every_call_fails_alike_but_the_abort() -> None:
    writer = Parts(fails_at=2)
    writer.write(bytes(16 * MIB))
    with pytest.raises(LookupError):
        writer.write(b"x")
    sent = [*writer.calls]
    for call in (lambda: writer.write(b"x"), lambda: writer.write(b""), writer.commit):
        with pytest.raises(LookupError):
            call()
    assert (writer.calls, writer.closed) == (sent, False)
    writer.abort()
    writer.abort()
    assert (writer.calls, writer.closed) == ([*sent, "discard"], True)

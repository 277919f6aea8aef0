"""A new file is created once and read back; a file that is there already must hold the very same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.storage import put_checked
from iceberg_cli.storage.local import LocalStorage

RANGE_BYTES = 8 << 20
SIZES = [0, 1, 1_000, RANGE_BYTES - 1, RANGE_BYTES, RANGE_BYTES + 1, 2 * RANGE_BYTES]
OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "shorter": lambda data: data[:-1],
    "nothing": lambda _: b"",
    "longer": lambda data: data + b"\0",
    "longer by a range": lambda data: data + bytes(RANGE_BYTES),
    "first bit": lambda data: bytes([data[0] ^ 128]) + data[1:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


class Spoiling(LocalStorage):
    """Local files, but other bytes are stored than were to be."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.change = change

    def put_if_absent(self, path: str, data: bytes) -> None:
        """See `Storage.put_if_absent`."""
        super().put_if_absent(path, self.change(data))


@dataclass
class Counted(LocalStorage):
    """Local files, and the most bytes that were asked for at once."""

    most_bytes: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """See `Storage.read`."""
        assert span is not None, f"{path} is read whole"
        self.most_bytes = max(self.most_bytes, span[1])
        return super().read(path, span)


def some(size: int) -> bytes:
    return (b"no two places of this look alike: " * (size // 34 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_created_whole_and_a_second_time_is_a_success(tmp_path: Path, size: int) -> None:
    storage, path = Counted(), str(tmp_path / "file")
    for _ in range(2):
        put_checked(storage, path, some(size))
        assert (tmp_path / "file").read_bytes() == some(size)
    assert storage.most_bytes == RANGE_BYTES


@pytest.mark.pairs
@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("other", OTHERS)
def test_a_file_of_other_bytes_is_an_error_and_stays(tmp_path: Path, other: str, size: int) -> None:
    theirs = OTHERS[other](some(size))
    (tmp_path / "file").write_bytes(theirs)
    with pytest.raises(FileExistsError):
        put_checked(LocalStorage(), str(tmp_path / "file"), some(size))
    assert (tmp_path / "file").read_bytes() == theirs


@pytest.mark.pairs
@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("other", OTHERS)
def test_a_new_file_that_reads_back_differently_is_refused_by_name(
    tmp_path: Path, other: str, size: int
) -> None:
    path = str(tmp_path / "file")
    with pytest.raises(CorruptFile, match="read back: other bytes than were written") as refused:
        put_checked(Spoiling(OTHERS[other]), path, some(size))
    assert refused.value.path == path
    last = RANGE_BYTES if size in (RANGE_BYTES + 1, 2 * RANGE_BYTES) else 0
    assert refused.value.offset in (0, last, size)

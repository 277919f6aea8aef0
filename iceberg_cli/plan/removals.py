"""Removals, the files that a plan removes: rows in delete order (see `removal_rows.py`) in parts; and their files.

Few rows are one part, in memory. Many are parts in Parquet files, each read when its rows are needed; their counts,
bytes and digests are in memory, and in the index file that names the parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import check_shape, loads
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.removal_rows import (
    KINDS,
    SCHEMA,
    from_parquet,
    in_delete_order,
    of_kinds,
    row_digests,
    to_parquet,
)

PART_ROWS = 1 << 16  # of each of several parts
HELD_ROWS = 8 * PART_ROWS  # so many are few: one part in memory, one file


class RemovalPart(Protocol):
    """A range of the rows, at least one unless there are none at all."""

    @property
    def count(self) -> int:
        """Rows."""
        ...

    @property
    def by_step(self) -> Mapping[str, int]:
        """Rows of each step."""
        ...

    @property
    def by_kind(self) -> Mapping[str, tuple[int, int]]:
        """Rows and bytes of each kind; files of unknown size count no bytes."""
        ...

    @property
    def digest(self) -> int:
        """See `removal_rows.row_digests`."""
        ...

    @property
    def paths(self) -> tuple[str, str]:
        """The least and the greatest path, as the bytes of UTF-8 compare."""
        ...

    def read(self) -> pa.Table:
        """The rows."""
        ...


@dataclass(frozen=True)
class MemoryPart:
    """A part in memory."""

    table: pa.Table

    @property
    def count(self) -> int:
        """See `RemovalPart`."""
        return int(self.table.num_rows)

    @cached_property
    def by_step(self) -> Mapping[str, int]:
        """See `RemovalPart`."""
        counts = pc.value_counts(self.table["step"].cast(pa.string()).combine_chunks())
        return {each["values"]: each["counts"] for each in counts.to_pylist()}

    @cached_property
    def by_kind(self) -> Mapping[str, tuple[int, int]]:
        """See `RemovalPart`."""
        return {
            kind: (rows.num_rows, int(pc.sum(rows["size_bytes"]).as_py() or 0))
            for kind, rows in of_kinds(self.table, ["size_bytes"])
        }

    @cached_property
    def digest(self) -> int:
        """See `RemovalPart`."""
        return row_digests(self.table)

    @cached_property
    def paths(self) -> tuple[str, str]:
        """See `RemovalPart`."""
        found = pc.min_max(self.table["path"]).as_py()
        return found["min"] or "", found["max"] or ""

    def read(self) -> pa.Table:
        """See `RemovalPart`."""
        return self.table


@dataclass(frozen=True, kw_only=True)
class ParquetPart:
    """A part in a Parquet file, which `removal_rows.to_parquet` wrote.

    Args:
        file: name that is derived from the content, see `file_name`.
        data: reads the file; one that others can change is checked against its name.
    """

    file: str
    count: int
    by_step: Mapping[str, int]
    by_kind: Mapping[str, tuple[int, int]]
    digest: int
    paths: tuple[str, str]
    data: Callable[[], bytes]

    def read(self) -> pa.Table:
        """See `RemovalPart`."""
        return from_parquet(self.data(), self.file)


@dataclass(frozen=True)
class Removals:
    """All rows that a plan removes, and what is derived from them.

    Args:
        parts: in delete order, one after the other.
    """

    parts: tuple[RemovalPart, ...]
    _last_read: dict[int, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def none(cls) -> Removals:
        """Removals without a row."""
        return cls.held(SCHEMA.empty_table())

    @classmethod
    def held(cls, table: pa.Table) -> Removals:
        """Removals of rows that are in delete order."""
        return cls((MemoryPart(table),))

    @classmethod
    def of(cls, table: pa.Table) -> Removals:
        """Removals of rows in any order, each path once. Rows in delete order already are not copied."""
        return cls.held(in_delete_order(table))

    @property
    def table(self) -> pa.Table:
        """All rows in memory."""
        return pa.concat_tables([part.read() for part in self.parts])

    @property
    def count(self) -> int:
        """Rows."""
        return sum(part.count for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return sum(size for part in self.parts for _, size in part.by_kind.values())

    @cached_property
    def by_kind(self) -> Mapping[str, Mapping[str, int]]:
        """`{kind: {"count": n, "bytes": b}}`, in delete order, kinds without files left out."""
        totals: dict[str, list[tuple[int, int]]] = {}
        for part in self.parts:
            for kind, numbers in part.by_kind.items():
                totals.setdefault(kind, []).append(numbers)
        sums = {
            kind: [sum(each) for each in zip(*totals[kind], strict=True)] for kind in KINDS if kind in totals
        }
        return {kind: {"count": count, "bytes": size} for kind, (count, size) in sums.items()}

    @cached_property
    def digest(self) -> str:
        """The sum modulo 2^256 of the SHA-256 of each row, as 64 hexadecimal digits."""
        return f"{sum(part.digest for part in self.parts) % 2**256:064x}"

    def rows(self, numbers: Sequence[int]) -> pa.Table:
        """The rows with these indices, which may be none."""
        if isinstance(numbers, range) and numbers.step == 1:
            return pa.concat_tables(self._slices(numbers.start, numbers.stop))
        row_numbers = np.array(numbers, np.int64)
        owners = np.searchsorted(self._ends, row_numbers, side="right")
        tables, places = [SCHEMA.empty_table()], [np.empty(0, np.int64)]
        for number in np.unique(owners):
            (mine,) = np.nonzero(owners == number)
            first = self._ends[number] - self.parts[number].count
            tables.append(self._read(int(number)).take(pa.array(row_numbers[mine] - first)))
            places.append(mine)
        found = pa.concat_tables(tables)
        order = np.argsort(np.concatenate(places))
        return found if (order[1:] > order[:-1]).all() else found.take(pa.array(order))

    @cached_property
    def _ends(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The index after the last row of each part."""
        return np.cumsum(np.array([part.count for part in self.parts], np.int64))

    def _slices(self, start: int, stop: int) -> Iterator[pa.Table]:
        yield SCHEMA.empty_table()
        for number in range(int(np.searchsorted(self._ends, start, side="right")), len(self.parts)):
            first = int(self._ends[number]) - self.parts[number].count
            if first >= stop:
                return
            low = max(start, first)
            yield self._read(number).slice(low - first, min(stop, int(self._ends[number])) - low)

    def _read(self, number: int) -> pa.Table:
        """A part's rows. Those read last are kept: callers read the rows in order."""
        if number not in self._last_read:
            self._last_read.clear()
            self._last_read[number] = self.parts[number].read()
        return self._last_read[number]

    def of_step(self, step: str) -> tuple[int, int]:
        """The row range `[start, stop)` of the step of that name."""
        counts = [(name, count) for part in self.parts for name, count in part.by_step.items()]
        start = sum(count for name, count in counts if name < step)
        count = sum(count for name, count in counts if name == step)
        return (start, start + count) if count else (0, 0)

    def paths_outside(self, shown: Removals) -> Iterator[str]:
        """Canonical paths in these removals that are not in `shown`."""
        for part in self.parts:
            rows = part.read()
            # Which metadata files drop out of the log depends on the table's properties and every commit in between.
            rows = rows.filter(pc.not_equal(rows["kind"].cast(pa.string()), "metadata_file"))
            low, high = part.paths
            for number, other in enumerate(shown.parts):
                if rows.num_rows and other.count and other.paths[0] <= high and low <= other.paths[1]:
                    known = shown._read(number)["path"].combine_chunks()
                    rows = rows.filter(pc.invert(pc.is_in(rows["path"], value_set=known)))
            yield from rows["path"].to_pylist()


_SCHEMA: Final = "iceberg-cli/removals/1"
_INDEX_SUFFIX: Final = ".json"
_SHAPE: Final[Mapping[str, Any]] = {
    "schema": frozenset({_SCHEMA}),
    "parts": [{"file": str, "count": int, "by_step": dict, "by_kind": dict, "digest": str, "paths": [str]}],
}


@dataclass(frozen=True, slots=True)
class RemovalFiles:
    """The files to be written for removals.

    Args:
        name: of the main file: the rows, or the index of the parts.
        files: each with its name, the one of `name` last; made as they are consumed.
    """

    name: str
    files: Iterator[tuple[str, bytes]]

    @property
    def several(self) -> bool:
        """Whether the one of `name` is an index of the others."""
        return self.name.endswith(_INDEX_SUFFIX)


def as_files(removals: Removals) -> RemovalFiles:
    """The files of removals: one Parquet file where the rows are in memory, else the parts and their index."""
    stored = [part for part in removals.parts if isinstance(part, ParquetPart)]
    if not stored:
        data = to_parquet(removals.table)
        return RemovalFiles(file_name(data), iter([(file_name(data), data)]))
    assert len(stored) == len(removals.parts)
    index = (
        json.dumps({"schema": _SCHEMA, "parts": [_entry(part) for part in stored]}, indent=1) + "\n"
    ).encode()
    name = file_name(index, _INDEX_SUFFIX)

    def files() -> Iterator[tuple[str, bytes]]:
        for part in stored:
            yield part.file, part.data()
        yield name, index

    return RemovalFiles(name, files())


def file_name(data: bytes, suffix: str = ".parquet") -> str:
    """The file name that the content's hash gives."""
    return f"removals-{hashlib.sha256(data).hexdigest()[:32]}{suffix}"


def stored_part(rows: MemoryPart, data: bytes, read: Callable[[], bytes]) -> ParquetPart:
    """A part whose file has the bytes `data`, and is read by `read`."""
    return ParquetPart(
        file=file_name(data),
        count=rows.count,
        by_step=rows.by_step,
        by_kind=rows.by_kind,
        digest=rows.digest,
        paths=rows.paths,
        data=read,
    )


def load(name: str, read: Callable[[str], bytes], folder: str) -> Removals:
    """Removals by the name of their main file.

    Args:
        name: see `RemovalFiles`.
        read: gives a file of the folder.
        folder: for errors.

    Raises:
        CorruptFile: the content does not match the name.
    """
    data = _checked(name, read, folder)
    if name.endswith(_INDEX_SUFFIX):
        return from_index(data, read, folder, path=f"{folder}/{name}")
    return Removals.held(from_parquet(data, f"{folder}/{name}"))


def from_index(data: bytes, read: Callable[[str], bytes], folder: str, *, path: str) -> Removals:
    """Removals by their index, see `load`. Every part is read once, so that nothing is begun where one is damaged.

    Raises:
        CorruptFile: `path` is no such index, or a part is not as it was written.
    """
    value = loads(data, path)
    try:
        check_shape(value, _SHAPE, "the index")
        parts = [_part(each, read, folder) for each in value["parts"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(path, None, f"not an index of removals: {error!r}") from error
    for part in parts:
        part.data()
    return Removals(tuple(parts))


def _checked(name: str, read: Callable[[str], bytes], folder: str) -> bytes:
    """A file's bytes, checked against its name."""
    path = f"{folder}/{name}"
    try:
        data = read(name)
    except FileNotFoundError:
        raise CorruptFile(path, None, "a plan names this file and it is not there") from None
    if name != file_name(data, name[name.rfind(".") :]):
        raise CorruptFile(path, None, "it is not the file that was written under this name")
    return data


def _entry(part: ParquetPart) -> dict[str, Any]:
    return {
        "file": part.file,
        "count": part.count,
        "by_step": dict(part.by_step),
        "by_kind": {kind: list(numbers) for kind, numbers in part.by_kind.items()},
        "digest": f"{part.digest:064x}",
        "paths": list(part.paths),
    }


def _part(value: Mapping[str, Any], read: Callable[[str], bytes], folder: str) -> ParquetPart:
    """The part of an entry of the index; KeyError, TypeError or ValueError where it is none."""
    name = value["file"]
    if "/" in name or not name.startswith("removals-"):
        raise ValueError(f"{name!r} is no name of a part")
    check_shape(list(value["by_step"].values()), [int], "by_step")
    check_shape(list(value["by_kind"].values()), [[int]], "by_kind")
    least, greatest = value["paths"]
    return ParquetPart(
        file=name,
        count=value["count"],
        by_step=value["by_step"],
        by_kind={kind: (count, size) for kind, (count, size) in value["by_kind"].items()},
        digest=int(value["digest"], 16),
        paths=(least, greatest),
        data=lambda: _checked(name, read, folder),
    )

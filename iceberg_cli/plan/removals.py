"""Removals, the files that a plan removes: rows in delete order (see `removal_rows.py`) in parts; and their files.

Few rows are one part, in memory. Many are parts in Parquet files, each read when its rows are needed; their counts,
bytes and digests are in memory, and in the index file that names the parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import check_shape, loads
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.removal_rows import (
    KINDS,
    SCHEMA,
    from_parquet,
    kind_totals,
    row_digests,
    schema_of,
    sort_for_deletion,
    sum_of_totals,
)
from iceberg_cli.plan.text import count as count_of
from iceberg_cli.plan.text import size

PART_ROWS = 1 << 16  # of each of several parts
MEMORY_ROWS = 8 * PART_ROWS  # so many are few: one part in memory, one file
_SCHEMA: Final = "iceberg-cli/removals/1"
_INDEX_SUFFIX: Final = ".json"
_SHAPE: Final[Mapping[str, Any]] = {
    "schema": frozenset({_SCHEMA}),
    "parts": [{"file": str, "count": int, "by_step": dict, "by_kind": dict, "digest": str, "paths": [str]}],
}


@dataclass(frozen=True, kw_only=True)
class RemovalPart:
    """Removals that follow one another in delete order: at least one, unless there are none at all.

    Args:
        count: rows.
        by_step: rows of each step.
        by_kind: rows and bytes of each kind; files of unknown size count no bytes.
        paths: the least and the greatest path, as the bytes of UTF-8 compare.
        rows: where they are in memory.
        file: name of the Parquet file with the rows, see `file_name`; empty where none was made.
        data: reads that file; one that others can change is checked against its name.
        index_digest: the digest by the index that names the file; None where it is yet to be computed.
    """

    count: int
    by_step: Mapping[str, int]
    by_kind: Mapping[str, tuple[int, int]]
    paths: tuple[str, str]
    rows: pa.Table | None = None
    file: str = ""
    data: Callable[[], bytes] = field(default=bytes, compare=False, repr=False)
    index_digest: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """The part of rows in memory."""
        steps = pc.value_counts(rows["step"].cast(pa.string()).combine_chunks())
        paths = pc.min_max(rows["path"]).as_py()
        return cls(
            count=rows.num_rows,
            by_step={each["values"]: each["counts"] for each in steps.to_pylist()},
            by_kind=kind_totals(rows),
            paths=(paths["min"] or "", paths["max"] or ""),
            rows=rows,
        )

    @cached_property
    def digest(self) -> int:
        """See `removal_rows.row_digests`."""
        return row_digests(self.read()) if self.index_digest is None else self.index_digest

    def read(self) -> pa.Table:
        """The rows."""
        return from_parquet(self.data(), self.file) if self.rows is None else self.rows

    def in_file(self, data: bytes, read: Callable[[], bytes], *, in_memory: bool) -> RemovalPart:
        """The same rows in a Parquet file.

        Args:
            data: the file's bytes, see `removal_rows.to_parquet`.
            read: reads them back.
            in_memory: whether the rows stay in memory too.
        """
        rows = self.rows if in_memory else None
        return replace(self, file=file_name(data), data=read, rows=rows, index_digest=self.digest)

    def to_json(self) -> dict[str, Any]:
        """Its entry in the index."""
        return {
            "file": self.file,
            "count": self.count,
            "by_step": dict(self.by_step),
            "by_kind": {kind: list(numbers) for kind, numbers in self.by_kind.items()},
            "digest": f"{self.digest:064x}",
            "paths": list(self.paths),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], read: Callable[[str], bytes], folder: str) -> Self:
        """The part of an entry of the index; KeyError, TypeError or ValueError where it is none."""
        name = value["file"]
        if "/" in name or not name.startswith("removals-"):
            raise ValueError(f"{name!r} is no name of a part")
        check_shape(list(value["by_step"].values()), [int], "by_step")
        check_shape(list(value["by_kind"].values()), [[int]], "by_kind")
        least, greatest = value["paths"]
        return cls(
            count=value["count"],
            by_step=value["by_step"],
            by_kind={kind: (count, size) for kind, (count, size) in value["by_kind"].items()},
            paths=(least, greatest),
            file=name,
            data=lambda: _checked(name, read, folder),
            index_digest=int(value["digest"], 16),
        )


@dataclass(frozen=True, repr=False)
class Removals:
    """All rows that a plan removes, and what is derived from them.

    Args:
        parts: in delete order, one after the other.
    """

    parts: tuple[RemovalPart, ...]
    _last_read: dict[int, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def none(cls) -> Self:
        """Removals without a row."""
        return cls.in_memory(SCHEMA.empty_table())

    @classmethod
    def in_memory(cls, rows: pa.Table) -> Self:
        """Removals of rows that are in delete order."""
        return cls((RemovalPart.of(rows),))

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """Removals of rows in any order, each path once. Rows in delete order already are not copied."""
        return cls.in_memory(sort_for_deletion(rows))

    @property
    def rows(self) -> pa.Table:
        """All rows in memory."""
        return pa.concat_tables([part.read() for part in self.parts])

    def __repr__(self) -> str:
        """Numbers alone."""
        return f"Removals({count_of(self.count, 'files')}, {size(self.size_bytes)})"

    def __len__(self) -> int:
        """Rows."""
        return self.count

    def __bool__(self) -> bool:
        """Removals are there also where they are none."""
        return True

    def to_arrow(self) -> pa.Table:
        """All rows in memory, in delete order."""
        return self.rows

    def to_pandas(self) -> Any:
        """The same as a data frame of pandas; UsageError: it is not installed."""
        from iceberg_cli.encoding.data_frames import to_pandas

        return to_pandas(self.rows)

    @property
    def count(self) -> int:
        """Rows."""
        return sum(part.count for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return sum_of_totals(size for part in self.parts for _, size in part.by_kind.values())

    @cached_property
    def by_kind(self) -> Mapping[str, Mapping[str, int]]:
        """`{kind: {"count": n, "bytes": b}}`, in delete order, kinds without files left out."""
        totals: dict[str, list[tuple[int, int]]] = {}
        for part in self.parts:
            for kind, numbers in part.by_kind.items():
                totals.setdefault(kind, []).append(numbers)
        return {
            kind: {
                "count": sum(count for count, _ in totals[kind]),
                "bytes": sum_of_totals(size for _, size in totals[kind]),
            }
            for kind in KINDS
            if kind in totals
        }

    @cached_property
    def digest(self) -> str:
        """The sum modulo 2^256 of the SHA-256 of each row, as 64 hexadecimal digits."""
        return f"{sum(part.digest for part in self.parts) % 2**256:064x}"

    def read_rows(self, indices: Sequence[int]) -> pa.Table:
        """The rows with these indices, which may be none."""
        if isinstance(indices, range) and indices.step == 1:
            return pa.concat_tables(self._slices(indices.start, indices.stop))
        row_indices = np.array(indices, np.int64)
        part_indices = np.searchsorted(self._ends, row_indices, side="right")
        tables, positions = [self._no_rows], [np.empty(0, np.int64)]
        for part_index in np.unique(part_indices):
            (mine,) = np.nonzero(part_indices == part_index)
            first = self._ends[part_index] - self.parts[part_index].count
            tables.append(self._read(int(part_index)).take(pa.array(row_indices[mine] - first)))
            positions.append(mine)
        rows = pa.concat_tables(tables)
        order = np.argsort(np.concatenate(positions))
        return rows if (order[1:] > order[:-1]).all() else rows.take(pa.array(order))

    @cached_property
    def _ends(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The index after the last row of each part."""
        return np.cumsum(np.array([part.count for part in self.parts], np.int64))

    @cached_property
    def _no_rows(self) -> pa.Table:
        return schema_of(self._read(0)).empty_table() if self.parts else SCHEMA.empty_table()

    def _slices(self, start: int, stop: int) -> Iterator[pa.Table]:
        yield self._no_rows
        for index in range(int(np.searchsorted(self._ends, start, side="right")), len(self.parts)):
            first = int(self._ends[index]) - self.parts[index].count
            if first >= stop:
                return
            low = max(start, first)
            yield self._read(index).slice(low - first, min(stop, int(self._ends[index])) - low)

    def _read(self, part_index: int) -> pa.Table:
        """A part's rows. Those read last are kept: callers read the rows in order."""
        if part_index not in self._last_read:
            self._last_read.clear()
            self._last_read[part_index] = self.parts[part_index].read()
        return self._last_read[part_index]

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
            for index, other in enumerate(shown.parts):
                if rows.num_rows and other.count and other.paths[0] <= high and low <= other.paths[1]:
                    known = shown._read(index)["path"].combine_chunks()
                    rows = rows.filter(pc.invert(pc.is_in(rows["path"], value_set=known)))
            yield from rows["path"].to_pylist()

    # -- files -------------------------------------------------------------------------------------------------

    @property
    def file(self) -> str:
        """The name of the main file, once each part has one: the rows, or the index of several parts."""
        assert all(part.file for part in self.parts)
        return self.parts[0].file if len(self.parts) == 1 else file_name(self._index, _INDEX_SUFFIX)

    def write(self, put: Callable[[str, bytes], None]) -> None:
        """Write the files, by their names, the main one last."""
        assert all(part.file for part in self.parts)
        for part in self.parts:
            put(part.file, part.data())
        if len(self.parts) > 1:
            put(self.file, self._index)

    @cached_property
    def _index(self) -> bytes:
        document = {"schema": _SCHEMA, "parts": [part.to_json() for part in self.parts]}
        return (json.dumps(document, indent=1) + "\n").encode()

    @classmethod
    def load(cls, name: str, read: Callable[[str], bytes], folder: str) -> Self:
        """Removals by the name of their main file.

        Args:
            name: see `file`.
            read: gives a file of the folder.
            folder: for errors.

        Raises:
            CorruptFile: the content does not match the name.
        """
        data = _checked(name, read, folder)
        if name.endswith(_INDEX_SUFFIX):
            return cls.from_index(data, read, folder, path=f"{folder}/{name}")
        return cls.in_memory(from_parquet(data, f"{folder}/{name}"))

    @classmethod
    def from_index(cls, data: bytes, read: Callable[[str], bytes], folder: str, *, path: str) -> Self:
        """Removals by their index, see `load`. Every part is read once, so that nothing is begun where one is damaged.

        Raises:
            CorruptFile: `path` is no such index, or a part is not as it was written.
        """
        value = loads(data, path)
        try:
            check_shape(value, _SHAPE, "the index")
            parts = [RemovalPart.from_json(each, read, folder) for each in value["parts"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile(path, None, f"not an index of removals: {error!r}") from error
        for part in parts:
            part.data()
        return cls(tuple(parts))


def file_name(data: bytes, suffix: str = ".parquet") -> str:
    """The file name that the content's hash gives."""
    return f"removals-{hashlib.sha256(data).hexdigest()[:32]}{suffix}"


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

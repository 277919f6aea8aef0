"""The rows of files: how many their statistics tell, and their ids: the high-water mark, those in use, fresh ones.

Counts are of physical rows, deleted ones included. The mark is the last id that is used; -1 at first. It is written
under the key that Delta Lake reads, `rowIdHighWaterMark`; the protocol's text calls it `highWaterMark`, which is read
too.

Spec: "Per-file Statistics" (`numRecords`), "Row Tracking", "Writer Requirements for Row Tracking".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.encoding.row_ids import allocate
from iceberg_cli.encoding.strict_json import loads, loads_lines
from iceberg_cli.errors import CorruptFile

Int64s = npt.NDArray[np.int64]

FEATURE: Final = "rowTracking"
DOMAIN_FEATURE: Final = "domainMetadata"
ENABLED: Final = "delta.enableRowTracking"
DOMAIN: Final = "delta.rowTracking"
PRESERVED: Final = "delta.rowTracking.preserved"  # commit tag
NO_MARK: Final = -1
SUSPENDED: Final = "delta.rowTrackingSuspended"
MATERIALIZED: Final = (  # properties that name columns, and how the names begin that we give
    ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
    ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
)
UNKNOWN: Final = -1  # count of rows

_KEY: Final = "rowIdHighWaterMark"
_KEYS: Final = (_KEY, "highWaterMark")
_FIELD: Final = "numRecords"
# Writers put it first, where no column of that name can be meant; 18 digits are below the limit.
_BLANKS: Final = r"[ \t\n\r]*"
_FIRST: Final = rf'^{_BLANKS}\{{{_BLANKS}"numRecords"{_BLANKS}:{_BLANKS}(?P<rows>[0-9]{{1,18}}){_BLANKS}[,}}]'
_MEMBER: Final = re.compile(rf'[{{, \t\n\r]*("(?:[^"\\]|\\.)*"){_BLANKS}:{_BLANKS}')
_INT64_MAX: Final = 2**63 - 1


def record_counts(adds: pa.Table) -> Int64s:
    """The row counts of n files; `UNKNOWN` where the statistics have none.

    Args:
        adds: columns of `columns.ADD`.

    Raises:
        CorruptFile: the statistics are no JSON object, or the number is none.
    """
    stats = adds.column("stats")
    found = pc.struct_field(pc.extract_regex(stats, _FIRST), "rows").cast(pa.int64())
    counts: Int64s = np.array(pc.fill_null(found, UNKNOWN).to_numpy())
    rest = np.flatnonzero((counts == UNKNOWN) & pc.is_valid(stats).to_numpy())
    for row in rest.tolist():
        counts[row] = _count(stats[row].as_py(), adds.column("path")[row].as_py())
    return counts


def with_record_count(stats: str | None, count: int) -> str:
    """Statistics that tell the rows, every other character as it was: bounds have more digits than a double holds.

    Args:
        stats: JSON or None.
        count: of rows.

    Raises:
        CorruptFile: the statistics are no JSON object.
    """
    members = None if stats is None else _object(stats, "stats")
    if stats is None or members is None:
        return f'{{"{_FIELD}":{count}}}'
    if _FIELD in members:
        start, end = _place_of_count(stats)
        return f"{stats[:start]}{count}{stats[end:]}"
    start = stats.index("{") + 1
    return f'{stats[:start]}"{_FIELD}":{count}{"," if members else ""}{stats[start:]}'


def _place_of_count(text: str) -> tuple[int, int]:
    """Where the count begins and ends in an object that has it."""
    decoder, at = json.JSONDecoder(), 0
    while (member := _MEMBER.match(text, at)) is not None:
        _, at = decoder.raw_decode(text, member.end())
        if json.loads(member[1]) == _FIELD:
            return member.end(), at
    raise AssertionError(text)


def _object(text: str, path: str) -> dict[str, Any] | None:
    """Statistics as a value, None where they are null; a bound may be a number of any size."""
    if text.strip(" \t\n\r") == "null":
        return None
    # Between the parts of JSON a carriage return is a blank as a line feed is, and ends no line.
    values = loads_lines(text.replace("\n", "\r").encode(), path).values
    if not values:
        raise CorruptFile(path, "add.stats", "it is empty")
    return values[0]


def _count(text: str, path: str) -> int:
    count: Any = (_object(text, path) or {}).get(_FIELD)
    if count is None:
        return UNKNOWN
    if type(count) is not int or not 0 <= count <= _INT64_MAX:
        raise CorruptFile(path, f"add.stats.{_FIELD}", f"a number of rows is expected, not {count!r:.40}")
    return count


def high_water_mark(snapshot: Snapshot) -> int:
    """The last row id that is used, -1 where none is.

    Raises:
        CorruptFile: the domain's configuration holds no number.
    """
    action = snapshot.domains.get(DOMAIN)
    if action is None:
        return NO_MARK
    marks = [value for key, value in _configuration(action).items() if key in _KEYS]
    if not marks or any(type(mark) is not int or mark < NO_MARK for mark in marks):
        raise CorruptFile(
            str(snapshot.version), f"domainMetadata.{DOMAIN}", f"no high-water mark: {action!r:.120}"
        )
    return int(max(marks))


def domain_action(snapshot: Snapshot, mark: int) -> dict[str, Any]:
    """The action that sets the high-water mark; other keys of the domain survive."""
    action = snapshot.domains.get(DOMAIN, {})
    stated = _configuration(action) if action else {}
    stated = {key: mark if key in _KEYS else value for key, value in stated.items()}
    configuration = {_KEY: mark, "domainName": DOMAIN, **stated}
    text = json.dumps(configuration, separators=(",", ":"))
    return {"domainMetadata": {**action, "domain": DOMAIN, "configuration": text, "removed": False}}


def ids_problem(snapshot: Snapshot) -> str | None:
    """Why fresh ids could be ids that are in use, in words, or None.

    Raises:
        CorruptFile: as `high_water_mark`, `record_counts`.
    """
    mark = high_water_mark(snapshot)
    files = snapshot.adds
    ids = files.column("baseRowId")
    if ids.null_count == len(ids):
        return None
    firsts = ids.fill_null(NO_MARK).to_numpy()
    # A file whose rows nobody counted has at least the id that it begins with.
    counts = record_counts(files)
    lasts = firsts + np.where(counts == UNKNOWN, 1, counts) - 1
    highest = int(lasts[firsts >= 0].max(initial=NO_MARK))
    if highest <= mark:
        return None
    return (
        f"row-ids-above-mark: a file has row ids up to {highest}, and the high-water mark is {mark}: its row ids are "
        "damaged, `inspect --check` shows where"
    )


def without_row_ids(adds: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of n files lack the id of their first row, or the commit version of their rows."""
    missing: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(
        adds.column("baseRowId").is_null().to_numpy()
    ) | np.asarray(adds.column("defaultRowCommitVersion").is_null().to_numpy())
    return missing


def with_fresh_ids(adds: pa.Table, counts: Int64s, *, mark: int) -> tuple[pa.Table, int]:
    """Adds with ids above the mark where they have none.

    A file that gets ids, or has them without `defaultRowCommitVersion`, gets the version of the commit that adds it.

    Args:
        adds: n files.
        counts: of their rows, none unknown where an id is missing.
        mark: the last id that is used.

    Returns:
        The files, and the mark then.
    """
    ids = adds.column("baseRowId").to_pylist()
    empty = [index for index, first in enumerate(ids) if first is None]
    sizes = [int(counts[index]) for index in empty]
    assert UNKNOWN not in sizes, "files whose rows nobody counted are refused before"
    firsts, free = allocate(mark + 1, sizes)
    if free > _INT64_MAX:
        raise CorruptFile("domainMetadata", DOMAIN, f"no row ids are left above {mark}")
    for index, first in zip(empty, firsts, strict=True):
        ids[index] = first
    versions = adds.column("defaultRowCommitVersion").to_pylist()
    for index in empty:
        versions[index] = None
    return _with(_with(adds, "baseRowId", ids), "defaultRowCommitVersion", versions), free - 1


def _with(table: pa.Table, name: str, values: list[int | None]) -> pa.Table:
    return table.set_column(ADD.get_field_index(name), name, pa.array(values, pa.int64()))


def _configuration(action: Mapping[str, Any]) -> dict[str, Any]:
    return loads((action.get("configuration") or "{}").encode(), f"domainMetadata.{DOMAIN}")

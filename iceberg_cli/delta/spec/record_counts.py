"""How many rows files have, as their statistics tell: physical rows, deleted ones included.

Spec: "Per-file Statistics", `numRecords`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import loads_lines
from iceberg_cli.errors import CorruptFile

Int64s = npt.NDArray[np.int64]

UNKNOWN: Final = -1
_FIELD: Final = "numRecords"
# Writers put it first, where no column of that name can be meant; 18 digits are below the limit.
_BLANKS: Final = r"[ \t\n\r]*"
_FIRST: Final = rf'^{_BLANKS}\{{{_BLANKS}"numRecords"{_BLANKS}:{_BLANKS}(?P<rows>[0-9]{{1,18}}){_BLANKS}[,}}]'
_MEMBER: Final = re.compile(rf'[{{, \t\n\r]*("(?:[^"\\]|\\.)*"){_BLANKS}:{_BLANKS}')
_INT64_MAX: Final = 2**63 - 1


def record_counts(adds: pa.Table) -> Int64s:
    """The row counts of n files; `UNKNOWN` where the statistics have none.

    Args:
        adds: columns of `actions.ADD`.

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
    decoder, place = json.JSONDecoder(), 0
    while (member := _MEMBER.match(text, place)) is not None:
        _, place = decoder.raw_decode(text, member.end())
        if json.loads(member[1]) == _FIELD:
            return member.end(), place
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

"""How many rows files have, as their statistics tell: physical rows, deleted ones included.

Spec: "Per-file Statistics", `numRecords`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.strict_json import loads

Int64s = npt.NDArray[np.int64]

UNKNOWN: Final = -1
_FIELD: Final = "numRecords"
# Writers put it first, where no column of that name can be meant; 18 digits are below the limit.
_FIRST: Final = r'^\{"numRecords":(?P<rows>[0-9]{1,18})[,}]'
_INT64_MAX: Final = 2**63 - 1


def record_counts(adds: pa.Table) -> Int64s:
    """The rows of n files; `UNKNOWN` where the statistics do not tell.

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
    """Statistics that tell the rows, everything else as it was.

    Args:
        stats: JSON or None.
        count: of rows.
    """
    others = {} if stats is None else loads(stats.encode(), "stats")
    others.pop(_FIELD, None)
    return json.dumps({_FIELD: count, **others}, separators=(",", ":"), ensure_ascii=False)


def _count(text: str, path: str) -> int:
    count: Any = loads(text.encode(), path).get(_FIELD)
    if count is None:
        return UNKNOWN
    if type(count) is not int or not 0 <= count <= _INT64_MAX:
        raise CorruptFile(path, f"add.stats.{_FIELD}", f"a number of rows is expected, not {count!r:.40}")
    return count

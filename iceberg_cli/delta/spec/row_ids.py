"""Row ids of files: the high-water mark, which ids are in use, and fresh ones for files that have none.

The mark is the last id that is used; -1 at first. It is written under the key that Delta Lake reads,
`rowIdHighWaterMark`; the protocol's text calls it `highWaterMark`, which is read too.

Spec: "Row Tracking", "Writer Requirements for Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.spec.actions import ADD
from iceberg_cli.delta.spec.record_counts import UNKNOWN, Int64s, record_counts
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.encoding.row_ids import allocate
from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile

FEATURE: Final = "rowTracking"
DOMAIN_FEATURE: Final = "domainMetadata"
ENABLED: Final = "delta.enableRowTracking"
DOMAIN: Final = "delta.rowTracking"
PRESERVED: Final = "delta.rowTracking.preserved"  # commit tag
NO_MARK: Final = -1
_KEY: Final = "rowIdHighWaterMark"
_KEYS: Final = (_KEY, "highWaterMark")
_INT64_MAX: Final = 2**63 - 1


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
    empty = [place for place, first in enumerate(ids) if first is None]
    sizes = [int(counts[place]) for place in empty]
    assert UNKNOWN not in sizes, "files whose rows nobody counted are refused before"
    firsts, free = allocate(mark + 1, sizes)
    if free > _INT64_MAX:
        raise CorruptFile("domainMetadata", DOMAIN, f"no row ids are left above {mark}")
    for place, first in zip(empty, firsts, strict=True):
        ids[place] = first
    versions = adds.column("defaultRowCommitVersion").to_pylist()
    for place in empty:
        versions[place] = None
    return _with(_with(adds, "baseRowId", ids), "defaultRowCommitVersion", versions), free - 1


def _with(table: pa.Table, name: str, values: list[int | None]) -> pa.Table:
    return table.set_column(ADD.get_field_index(name), name, pa.array(values, pa.int64()))


def _configuration(action: Mapping[str, Any]) -> dict[str, Any]:
    return loads((action.get("configuration") or "{}").encode(), f"domainMetadata.{DOMAIN}")


MATERIALIZED: Final = (  # properties that name columns, and how the names begin that we give
    ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
    ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
)

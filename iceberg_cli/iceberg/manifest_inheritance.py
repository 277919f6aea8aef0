"""What manifest entries inherit from their manifest's row in the manifest list.

Spec: "Sequence Number Inheritance", "First Row ID Inheritance".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.arrow_arrays import array_of

_ADDED, _DELETED = 1, 2
_MAX_ROW_ID = 1 << 62  # no table comes near it, and sums below it are exact enough to compare


class Source(Protocol):
    """The fields of a manifest list's row that are inherited."""

    @property
    def path(self) -> str: ...  # noqa: D102 - as in the specification
    @property
    def content(self) -> int: ...  # noqa: D102
    @property
    def sequence_number(self) -> int: ...  # noqa: D102
    @property
    def added_snapshot_id(self) -> int | None: ...  # noqa: D102
    @property
    def first_row_id(self) -> int | None: ...  # noqa: D102


def inherit(entries: pa.Table, sources: Sequence[Source]) -> pa.Table:
    """Fill in what is null and inherited, in those of the columns that `entries` has.

    Args:
        entries: `manifest` (int32, index into `sources`, ascending), `status`, `record_count`, and any of
            `snapshot_id`, `sequence_number`, `file_sequence_number`, `first_row_id`. A manifest's entries must all be
            there and in file order, because row ids are assigned by position.
        sources: the manifests.

    Raises:
        CorruptFile: an EXISTING or DELETED entry of a manifest that has a sequence number lacks its own data sequence
            number. Its file sequence number stays null where it is.
    """
    files = entries["manifest"].to_numpy()
    status = entries["status"].to_numpy()
    for name in entries.column_names:
        column = entries[name].combine_chunks() if name in _INHERITED else None
        if column is None:
            continue
        match name:
            case "snapshot_id":
                column = _fill(column, _of(sources, "added_snapshot_id").take(array_of(files)))
            case "first_row_id":
                column = _row_ids(column, files, status, entries["record_count"].to_numpy(), sources)
            case _:
                column = _sequence_numbers(column, name, files, status, sources)
        entries = entries.set_column(entries.column_names.index(name), name, column)
    return entries


_INHERITED = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")


def _of(sources: Sequence[Source], name: str) -> pa.Array:
    return pa.array([getattr(source, name) for source in sources], pa.int64())


def _fill(column: pa.Array, values: pa.Array) -> pa.Array:
    return column.fill_null(values) if column.null_count else column


def _sequence_numbers(
    column: pa.Array,
    name: str,
    files: npt.NDArray[np.int32],
    status: npt.NDArray[np.int32],
    sources: Sequence[Source],
) -> pa.Array:
    if not column.null_count:
        return column
    inherited = np.array([source.sequence_number for source in sources], np.int64)[files]
    null = column.is_null().to_numpy(zero_copy_only=False)
    wrong = null & (status != _ADDED) & (inherited > 0)
    if name == "file_sequence_number":
        # Writers from before this field was added (early v2) keep it null in files that they list again.
        return _fill(column, array_of(inherited, ~wrong))
    if wrong.any():
        row = int(np.argmax(wrong))
        reason = f"null in an entry of status {status[row]}, which must have its own"
        raise CorruptFile(sources[files[row]].path, f"field {name}", reason)
    return _fill(column, array_of(inherited))


def _row_ids(
    column: pa.Array,
    files: npt.NDArray[np.int32],
    status: npt.NDArray[np.int32],
    records: npt.NDArray[np.int64],
    sources: Sequence[Source],
) -> pa.Array:
    """Explicit ids stay; live data files without one get consecutive ranges in file order."""
    firsts = np.array(
        [-1 if s.first_row_id is None or s.content else s.first_row_id for s in sources], np.int64
    )
    first = firsts[files]
    null = column.is_null().to_numpy(zero_copy_only=False)
    assigned = null & (status != _DELETED) & (first >= 0)
    consumed = np.where(assigned, records, 0)
    if consumed.sum(dtype=np.float64) + float(firsts.max(initial=0)) >= float(_MAX_ROW_ID):
        raise CorruptFile(sources[0].path, "field first_row_id", "record counts that add up beyond 64 bits")
    before = np.cumsum(consumed) - consumed
    starts = np.searchsorted(files, np.arange(len(sources)))
    base = np.append(before, 0)[starts][files] if len(files) else before
    values = np.where(assigned, first + before - base, column.fill_null(0).to_numpy())
    return array_of(values, ~((null & ~assigned) | (first < 0)))

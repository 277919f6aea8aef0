"""Which entries name a file that no reader can read, or deletes that none can apply.

Spec: "Data File Fields", notes 4 and 5; "Deletion Vectors", "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]

VECTOR_FIELDS: Final = ("referenced_data_file", "content_offset", "content_size_in_bytes")
"""What the entry of a deletion vector must have."""

_DATA_FORMATS: Final = ("avro", "orc", "parquet")
_POSITION_DELETES, _EQUALITY_DELETES = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitEntries:
    """One rule, and the entries that break it.

    Args:
        rule: its name in `inspect --check`.
        field: of the entry, by the specification's name.
        rows: for each entry whether it breaks the rule.
        reason: in words, by the entry's row.
    """

    rule: str
    field: str
    rows: Bools
    reason: Callable[[int], str]


def unfit_entries(
    entries: pa.Table, *, format_version: int, column_ids: frozenset[int]
) -> Iterator[UnfitEntries]:
    """The rules, each with the entries that break it, also where none does.

    Args:
        entries: `content` and `file_format`; those of deletes also `VECTOR_FIELDS` and `equality_ids`.
        format_version: of the table.
        column_ids: of all columns that the table ever had.
    """
    content = entries["content"].to_numpy()
    formats = pc.utf8_lower(entries["file_format"].combine_chunks())
    puffin = pc.equal(formats, "puffin").to_numpy(zero_copy_only=False)
    known = pc.is_in(formats, value_set=pa.array(_DATA_FORMATS)).to_numpy(zero_copy_only=False)
    vectors = puffin & (content == _POSITION_DELETES)
    yield UnfitEntries(
        rule="file-format-unfit",
        field="file_format",
        rows=~known & ~vectors,
        reason=lambda i: f"format {formats[i].as_py()!r:.40} of content {content[i]}",
    )
    if not set(VECTOR_FIELDS) <= set(entries.column_names):
        return
    yield UnfitEntries(
        rule="deletion-vector-before-v3",
        field="file_format",
        rows=vectors & (format_version < 3),
        reason=lambda _: f"a deletion vector in a table of version {format_version}",
    )
    missing = {name: vectors & entries[name].is_null().to_numpy() for name in VECTOR_FIELDS}
    yield UnfitEntries(
        rule="deletion-vector-incomplete",
        field=next((name for name, rows in missing.items() if rows.any()), VECTOR_FIELDS[0]),
        rows=np.logical_or.reduce(list(missing.values())),
        reason=lambda _: "a deletion vector without referenced file, offset or size",
    )
    ids = entries["equality_ids"].combine_chunks()
    yield UnfitEntries(
        rule="equality-ids-unfit",
        field="equality_ids",
        rows=(content == _EQUALITY_DELETES) & _not_all_among(ids, column_ids),
        reason=lambda i: f"equality_ids are {ids[i].as_py() or 'none'}, not columns of the table",
    )


def _not_all_among(ids: Any, column_ids: frozenset[int]) -> Bools:
    """For each list whether it is empty or has another id."""
    unfit: Bools = pc.fill_null(pc.list_value_length(ids), 0).to_numpy() == 0
    stray = ~np.isin(pc.list_flatten(ids).to_numpy(zero_copy_only=False), list(column_ids))
    unfit[pc.list_parent_indices(ids).to_numpy()[stray]] = True
    return unfit

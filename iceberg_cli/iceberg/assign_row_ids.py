"""assign-row-ids: first row ids for the data manifests that have none.

A `replace` snapshot on a branch lists the head's manifests again; the manifest list of it gives each data manifest
without a `first_row_id` one. Nothing else is written, unless a branch takes over the ids that main gave to the files
that both have: then the ids are written into the entries of its manifests.

Spec: "Row Lineage for Upgraded Tables", "First Row ID Assignment", "First Row ID Inheritance".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.manifest import DATA
from iceberg_cli.iceberg.reachability import live
from iceberg_cli.iceberg.snapshot_draft import SnapshotDraft
from iceberg_cli.iceberg.snapshot_summary import carried_totals
from iceberg_cli.json_shape import policy_fields
from iceberg_cli.plan import Task

OPERATION: Final = "assign-row-ids"
COLUMNS: Final = (
    "assigned_rows_count",
    "assigned_manifests_count",
    "shared_rows_count",
    "rows_with_two_ids_count",
)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPolicy:
    """What the operator asked for: branches by name, all of them where none is named."""

    refs: tuple[str, ...] = ()
    share_ids: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"refs": list(self.refs), "share_ids": self.share_ids}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AssignPolicy:
        """Inverse of `to_json`.

        Raises:
            UsageError: a field is missing, unknown or of another type.
        """
        return cls(**policy_fields(value, {"refs": [str], "share_ids": bool}))


def waiting(rows: pa.Table) -> Mask:
    """Which of n rows of a manifest list are data manifests without a `first_row_id`."""
    without: Mask = rows["first_row_id"].is_null().to_numpy()
    return _data(rows) & without


def with_ids(rows: pa.Table) -> Mask:
    """Which of n rows of a manifest list are data manifests with a `first_row_id`."""
    having: Mask = rows["first_row_id"].is_valid().to_numpy()
    return _data(rows) & having


def row_count(rows: pa.Table) -> int:
    """The live rows of manifests, deleted ones of data files included; `rows` have counts."""
    return int(live_rows(rows).sum())


def live_rows(rows: pa.Table) -> npt.NDArray[np.int64]:
    """The rows of the live data files of each of n manifests with counts."""
    counts: npt.NDArray[np.int64] = pc.add(rows["added_rows_count"], rows["existing_rows_count"]).to_numpy()
    return counts


def may_reach(rows: pa.Table, next_row_id: int) -> Mask:
    """Which of n rows with counts may hold an id of `next_row_id` or above.

    The range of a manifest whose entries all have their own ids is not used, so only the entries can tell.
    """
    ends = pc.fill_null(rows["first_row_id"], 0).to_numpy() + live_rows(rows)
    above: Mask = ends > next_row_id
    return with_ids(rows) & above


def end_of_ids(entries: pa.Table) -> int:
    """The first id above those of live entries: columns `status`, `first_row_id`, `record_count`; 0 without ids."""
    found = live(entries)
    found = found.filter(found["first_row_id"].is_valid())
    return int(pc.max(pc.add(found["first_row_id"], found["record_count"])).as_py() or 0)


def reason(rows: pa.Table, first_row_id: int | None) -> str:
    """Why a head with these manifests gets ids from `first_row_id` on, or (None) why it gets none."""
    lacking, having = rows.filter(pa.array(waiting(rows))), rows.filter(pa.array(with_ids(rows)))
    has = f"{_counted(having)} with ids" if having.num_rows else "none with ids yet"
    if first_row_id is not None:
        return f"ids for {_counted(lacking)}, from {first_row_id} on if nothing else commits; {has}"
    return (
        f"came after what was shown: {_counted(lacking)} without ids" if lacking.num_rows else f"kept: {has}"
    )


def _counted(rows: pa.Table) -> str:
    manifests, count = rows.num_rows, row_count(rows)
    return f"{manifests:,} data manifest{'' if manifests == 1 else 's'} of {count:,} row{'' if count == 1 else 's'}"


def assigning_draft(
    *,
    ref: str,
    snapshot_id: int,
    summary: Mapping[str, str] | None,
    rows: pa.Table,
    rewritten: Sequence[str] = (),
    tasks: Sequence[Task] = (),
) -> SnapshotDraft:
    """The `replace` snapshot in whose manifest list every data manifest has ids.

    Args:
        ref: the branch.
        snapshot_id: its head.
        summary: the head's.
        rows: of the head's manifest list, with counts.
        rewritten: paths of the manifests that `tasks` take the place of.
        tasks: one for each of `rewritten`.
    """
    gone = pc.is_in(rows["manifest_path"], value_set=pa.array(rewritten, pa.string()))
    kept = rows.filter(pc.invert(gone))
    return SnapshotDraft(
        ref=ref,
        parent_snapshot_id=snapshot_id,
        operation="replace",
        added=tuple(tasks),
        kept=kept,
        summary={
            "manifests-created": str(len(tasks)),
            "manifests-kept": str(kept.num_rows),
            "manifests-replaced": str(len(rewritten)),
            "entries-processed": "0",
            "changed-partition-count": "0",
            **carried_totals(summary),
        },
    )


# -- ids that another branch gave --------------------------------------------------------------------------------


def sharing_task(manifest_path: str, ids: pa.Table | None) -> Task:
    """The task that writes the ids of main into a manifest.

    Args:
        manifest_path: of the manifest.
        ids: `file_path` and `first_row_id` of its files that main has too; None while main has no ids.
    """
    digest = hashlib.sha256(manifest_path.encode())
    if ids is not None:
        for path, first_row_id in zip(
            *(ids[name].to_pylist() for name in ("file_path", "first_row_id")), strict=True
        ):
            digest.update(f"\n{first_row_id} {path}".encode())
    return Task(name=f"shared-{digest.hexdigest()[:16]}.avro", kind="manifest", inputs=(manifest_path,))


def take_over(entries: pa.Table, ids: pa.Table) -> pa.Table:
    """The live entries of a manifest as EXISTING ones, with main's ids where main has their file.

    Args:
        entries: all columns, inherited values filled in.
        ids: `file_path` and `first_row_id`, each path once.

    Returns:
        In the same order. An entry whose file main does not have keeps its null, and inherits.
    """
    kept = live(entries)
    places = pc.index_in(kept["file_path"], value_set=ids["file_path"].combine_chunks())
    taken = ids["first_row_id"].take(places)
    first_row_id = pc.coalesce(kept["first_row_id"], taken.cast(pa.int64()))
    existing = pa.array(np.zeros(kept.num_rows, np.int32))
    for name, column in (("first_row_id", first_row_id), ("status", existing)):
        kept = kept.set_column(kept.column_names.index(name), name, column)
    return kept


def _data(rows: pa.Table) -> Mask:
    data: Mask = rows["content"].to_numpy() == DATA
    return data

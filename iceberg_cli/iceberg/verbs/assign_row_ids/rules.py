"""assign-row-ids: first row ids for the data manifests that have none.

A `replace` snapshot on a branch lists the head's manifests again; the manifest list of it gives each data manifest
without a `first_row_id` one. Nothing else is written, unless a branch takes over the ids that main assigned to the
files that both have: then the ids are written into the entries of its manifests.

Spec: "Row Lineage for Upgraded Tables", "First Row ID Assignment", "First Row ID Inheritance".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.row_id_ranges import live_rows
from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.spec.manifests.manifest import waiting, with_ids
from iceberg_cli.plan.plan import Task
from iceberg_cli.plan.text import count

COLUMNS: Final = (
    "assigned_rows_count",
    "assigned_manifests_count",
    "shared_rows_count",
    "rows_with_two_ids_count",
)


def row_count(rows: pa.Table) -> int:
    """The rows of live data files in manifests with counts, deleted rows included."""
    return int(live_rows(rows).sum())


def reason(rows: pa.Table, first_row_id: int | None) -> str:
    """The reason why a head with these manifests gets ids from `first_row_id` on, or (None) why it gets none."""
    without_ids, having = rows.filter(pa.array(waiting(rows))), rows.filter(pa.array(with_ids(rows)))
    has = f"{_counted(having)} with ids" if having.num_rows else "none with ids yet"
    if first_row_id is not None:
        return f"ids for {_counted(without_ids)}, from {first_row_id} on if nothing else commits; {has}"
    return (
        f"came after what was shown: {_counted(without_ids)} without ids"
        if without_ids.num_rows
        else f"kept: {has}"
    )


def _counted(rows: pa.Table) -> str:
    return f"{count(rows.num_rows, 'data manifests')} of {count(row_count(rows), 'rows')}"


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
        rewritten: paths of the manifests that `tasks` replace.
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


# -- ids that main assigned --------------------------------------------------------------------------------------


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
    rows = live(entries)
    places = pc.index_in(rows["file_path"], value_set=ids["file_path"].combine_chunks())
    taken = ids["first_row_id"].take(places)
    first_row_id = pc.coalesce(rows["first_row_id"], taken.cast(pa.int64()))
    existing = pa.array(np.zeros(rows.num_rows, np.int32))
    for name, column in (("first_row_id", first_row_id), ("status", existing)):
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows

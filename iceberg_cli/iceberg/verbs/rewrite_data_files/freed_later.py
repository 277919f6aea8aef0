"""When the bytes of rewritten data files can be freed: no file is deleted while a snapshot or a ref needs it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import Bools
from iceberg_cli.iceberg.branch.head import BranchHead
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifests.manifest import DATA
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.plan.groups import FreedLater

_MOST_LISTS: Final = 16  # that are read; other refs count as if they needed all


def freed_later(table: IcebergTable, head: BranchHead, inputs: pa.Table) -> tuple[FreedLater, ...]:
    """When the bytes of data files can be freed once they are rewritten.

    A ref whose head lists a manifest that the branch's head does not list may need any of the files: its manifests are
    not read.

    Args:
        table: as loaded.
        head: of the branch.
        inputs: n files, with `manifest`, the row of `head`, and `size_bytes`.

    Raises:
        CorruptFile: a manifest list cannot be read whole.
    """
    sizes = inputs["size_bytes"].to_numpy()
    total = int(sizes.sum())
    if not table.metadata.property_bool("gc.enabled", default=True):
        return (FreedLater(total, "table property gc.enabled is true again"),)
    after = f"snapshot {head.snapshot.snapshot_id} has expired"
    needed = np.zeros(len(inputs), np.bool_)
    holders: list[str] = []
    for number, (snapshot, names) in enumerate(_other_heads(table, head)):
        own = (
            np.ones(len(inputs), np.bool_)
            if number >= _MOST_LISTS
            else _needed(table, head, snapshot, inputs)
        )
        if own.any():
            needed |= own
            holders += names
    held = int(sizes[needed].sum())
    parts = [FreedLater(total - held, after)] if held < total or not total else []
    if held:
        parts.append(
            FreedLater(held, f"{after}, and so have the refs that need them", tuple(sorted(holders)))
        )
    return tuple(parts)


def _other_heads(table: IcebergTable, head: BranchHead) -> list[tuple[Snapshot, list[str]]]:
    """The snapshots that other refs point to, the newest first, with the names of these."""
    names: dict[int, list[str]] = {}
    for name, ref in table.metadata.refs.items():
        if name != head.ref:
            names.setdefault(ref.snapshot_id, []).append(name)
    found = [
        (snapshot, names[snapshot.snapshot_id])
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id in names
    ]
    return sorted(found, key=lambda each: -each[0].timestamp_ms)


def _needed(table: IcebergTable, head: BranchHead, snapshot: Snapshot, inputs: pa.Table) -> Bools:
    """Which of the files a snapshot lists, or may list."""
    listed = table.reachability.manifests(
        [snapshot_files(snapshot)], phase="reading the manifest list", required=True
    ).rows
    own = listed.filter(pc.equal(listed["content"], DATA))["manifest_path"].combine_chunks()
    paths = head.rows["manifest_path"].combine_chunks()
    if pc.invert(pc.is_in(own, value_set=paths)).true_count:
        return np.ones(len(inputs), np.bool_)
    is_shared = pc.is_in(paths, value_set=own).to_numpy(zero_copy_only=False)
    found: Bools = is_shared[inputs["manifest"].to_numpy()]
    return found

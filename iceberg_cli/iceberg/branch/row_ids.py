"""Row ids that are in use, before a manifest list gives new ones from the table's `next-row-id` on.

Spec: "Row Lineage", "First Row ID Assignment".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.head import BranchHead, branches, head_of
from iceberg_cli.iceberg.branch.row_id_ranges import RowIds, doubtful
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource, waiting
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable

_NOT_INHERITED: Final = 1 << 61  # marks what an entry has no id of its own for


def given_again(table: IcebergTable, metadata: TableMetadata, head: BranchHead) -> tuple[str, ...]:
    """Why a new manifest list of a branch may not give row ids, as a plan's `blocked_by`; empty where it may.

    Ids in use must lie apart, and below the table's counter, or new ranges would give them again. Entries are read of
    manifests that the list gives no id: whatever ids these have stands in them alone; and of those whose ranges
    overlap or end above the counter. Other branches count too, by the manifests that only they have. A list in which
    every data manifest has an id gives none.

    Raises:
        CorruptFile: such a manifest cannot be read whole.
    """
    if metadata.format_version < 3 or not waiting(head.rows).any():
        return ()
    counter = metadata.next_row_id
    ids = _ids_of(table, head.rows, counter)
    reasons = []
    for ref, own in ((head.ref, ids), *_of_other_branches(table, head, counter)):
        if own.end > counter:
            reasons.append(
                f"row-ids-above-next: branch {ref} has rows with ids up to {own.end - 1}, and the table's "
                f"next-row-id is {counter}"
            )
    for snapshot in metadata.snapshots:
        end = (snapshot.first_row_id or 0) + (snapshot.added_rows or 0)
        if snapshot.first_row_id is not None and end > counter:
            reasons.append(
                f"row-ids-above-next: snapshot {snapshot.snapshot_id} reserved row ids up to {end - 1}, and the "
                f"table's next-row-id is {counter}"
            )
            break
    if ids.twice is not None:
        first, last = ids.twice
        reasons.append(f"row-ids-overlap: branch {head.ref} has two rows for each id from {first} to {last}")
    return tuple(f"{each}: its row ids are damaged, `inspect --check` shows where" for each in reasons)


def _of_other_branches(table: IcebergTable, head: BranchHead, counter: int) -> Iterator[tuple[str, RowIds]]:
    """Each other branch, and the ids in manifests that only it lists."""
    for ref in branches(table):
        if ref != head.ref:
            rows = head_of(table, ref).rows
            is_own = pc.invert(pc.is_in(rows["manifest_path"], head.rows["manifest_path"]))
            yield ref, _ids_of(table, rows.filter(is_own), counter)


def _ids_of(table: IcebergTable, rows: pa.Table, counter: int) -> RowIds:
    """The ids in those of some manifests whose list does not vouch for them."""
    chosen = rows.filter(pa.array(doubtful(rows, counter) | waiting(rows)))
    # Readers take the ids of a manifest without one for null, until a list gives it one: then they stand again.
    firsts = pc.fill_null(chosen["first_row_id"], _NOT_INHERITED)
    chosen = chosen.set_column(chosen.column_names.index("first_row_id"), "first_row_id", firsts)
    columns = ("status", "record_count", "first_row_id")
    return RowIds.together([*table.reachability.from_entries(chosen, columns, _ids, phase="reading row ids")])


def _ids(_: Sequence[ManifestSource], batch: EntryBatch) -> RowIds:
    own = pc.less(pc.fill_null(batch.table["first_row_id"], _NOT_INHERITED), _NOT_INHERITED)
    return RowIds.of(batch.table.filter(own))

"""The deletes that arrived for the inputs of finished groups, read, and moved to the new files.

See `moved_positions.py` for the rules. Spec: "Position Delete Files", "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, Bools
from iceberg_cli.iceberg.rows.row_deletes import row_deletes
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files import rules
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.tasks import positions_of, read_deletes, with_file_paths
from iceberg_cli.layout.files.kept_positions import moved_positions
from iceberg_cli.layout.moved_positions import Moved, by_group
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.operation.groups.results import GroupResult


def moved_deletes(
    table: IcebergTable,
    files: BranchFiles,
    inputs: pa.Table,
    moved: Bools,
    results: Sequence[GroupResult],
    *,
    earlier: Moved,
) -> Moved:
    """Look up where the rows went that are deleted of inputs since they were read.

    Args:
        table: as loaded.
        files: of the branch's head.
        inputs: n files of groups, those of a group in the order in which they were read: `INPUTS_SCHEMA`.
        moved: whether other rows may be deleted of each.
        results: of the groups that may be committed.
        earlier: found before, for a commit that lost against another one.
    """
    numbers = inputs["group"].to_numpy()
    mask = moved & np.isin(numbers, [each.number for each in results])
    if not mask.any():
        return Moved()
    digests = _digests(files, inputs.filter(pa.array(mask)))
    known = earlier.known(digests)
    mask &= ~np.isin(numbers, list(known.digests))
    if not mask.any():
        return known
    deletes = row_deletes(
        table, table.reachability, _delete_manifests(files, inputs.filter(pa.array(mask))), []
    )
    now, broken = read_deletes(
        inputs.filter(pa.array(mask)), lambda some: deletes.positions_of(with_file_paths(some))
    )
    mask &= ~np.isin(numbers, list(broken))
    paths, records = inputs["path"].to_pylist(), inputs["record_count"].to_pylist()

    def deleted(row: int) -> Positions:
        own = positions_of(now.get(paths[row], ()))
        return own[: np.searchsorted(own, records[row])]

    found = moved_positions(table.storage, results, numbers, mask, deleted)
    dropped = {
        number: why if isinstance(why, str) else f"{paths[why]} {rules.DIFFERENCES[rules.Difference.REVIVED]}"
        for number, why in found.dropped.items()
    }
    reasons = {number: error.message for number, error in broken.items()}
    return Moved(
        positions={**known.positions, **found.positions},
        dropped=dropped,
        broken=reasons,
        digests={number: own for number, own in digests.items() if number not in {**dropped, **reasons}},
    )


def _digests(files: BranchFiles, inputs: pa.Table) -> dict[int, bytes]:
    """Of each group, of the position deletes and vectors that may apply to its files now."""
    applied = rules.applied_deletes(inputs, files.deletes, everywhere=(), until=np.iinfo(np.int64).max)
    paths = hash_column(inputs["path"].combine_chunks())
    return {
        number: np.stack([paths[own], applied.position_digests[own]]).tobytes()
        for number, own in by_group(inputs["group"].to_numpy()).items()
    }


def _delete_manifests(files: BranchFiles, inputs: pa.Table) -> pa.Table:
    """The rows of manifests with position deletes or vectors of the partitions of some data files."""
    mask = pc.and_(
        pc.not_equal(files.deletes["kind"], EQUALITY),
        pc.is_in(files.deletes["key"], value_set=inputs["key"].combine_chunks()),
    )
    return files.head.rows.take(pc.unique(files.deletes["manifest"].filter(mask)))

"""The deletes that arrived for the inputs of finished groups, read, and moved to the new files.

See `remap.py` for the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.encoding.transport import from_ipc
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, Bools
from iceberg_cli.iceberg.rows.row_deletes import row_deletes
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files import rules
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.remap import (
    MovedDeletes,
    Positions,
    ReadPositions,
    positions_of,
    since,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.tasks import (
    MOVES_FILE,
    READ_FILE,
    read_deletes,
    with_file_paths,
)
from iceberg_cli.layout.position_map import PositionMap
from iceberg_cli.operation.groups.results import GroupResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What became of deletes that arrived.

    Args:
        positions: that are deleted of new files, by group and place of the file among its outputs.
        dropped: groups of which rows that were deleted are not deleted any more, or of which it cannot be told any
            more where the rows went, each with the reason.
        broken: groups of which deletes cannot be read, each with the reason.
        digests: of the groups with `positions`, of all deletes from which these were read.
    """

    positions: Mapping[tuple[int, int], Positions] = field(default_factory=dict)
    dropped: Mapping[int, str] = field(default_factory=dict)
    broken: Mapping[int, str] = field(default_factory=dict)
    digests: Mapping[int, bytes] = field(default_factory=dict)

    def known(self, digests: Mapping[int, bytes]) -> Moved:
        """What is still so of groups with these digests."""
        same = {number: digest for number, digest in digests.items() if self.digests.get(number) == digest}
        return Moved(
            positions={key: own for key, own in self.positions.items() if key[0] in same}, digests=same
        )


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
    positions: dict[tuple[int, int], Positions] = {**known.positions}
    dropped: dict[int, str] = {}
    paths, records = inputs["path"].to_pylist(), inputs["record_count"].to_pylist()
    places = _by_group(numbers)
    for result in results:
        if result.number not in places or not mask[rows := places[result.number]].any():
            continue
        try:
            moves, then = _kept(table, result)
        except CorruptFile as error:
            dropped[result.number] = error.message
            continue
        found = MovedDeletes()
        for place, row in enumerate(rows.tolist()):
            if not mask[row]:
                continue
            own = positions_of(now.get(paths[row], ()))
            new = since(own[own < records[row]], then.of(place))
            if new is None:
                dropped[result.number] = f"{paths[row]} {rules.DIFFERENCES[rules.Difference.REVIVED]}"
                break
            found.add(moves, place, new)
        positions |= {(result.number, output): found.of(output) for output in found.by_output}
    reasons = {number: error.message for number, error in broken.items()}
    return Moved(
        positions=positions,
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
        for number, own in _by_group(inputs["group"].to_numpy()).items()
    }


def _by_group(numbers: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
    """The places of each group's inputs, ascending."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    return {int(numbers[own[0]]): own for own in np.split(order, ends) if len(own)}


def _delete_manifests(files: BranchFiles, inputs: pa.Table) -> pa.Table:
    """The rows of manifests with position deletes or vectors of the partitions of some data files."""
    mask = pc.and_(
        pc.not_equal(files.deletes["kind"], EQUALITY),
        pc.is_in(files.deletes["key"], value_set=inputs["key"].combine_chunks()),
    )
    return files.head.rows.take(pc.unique(files.deletes["manifest"].filter(mask)))


def _kept(table: IcebergTable, result: GroupResult) -> tuple[PositionMap, ReadPositions]:
    moves, then = (_table(table, result.kept(name)) for name in (MOVES_FILE, READ_FILE))
    return (
        PositionMap.from_table(moves, result.kept(MOVES_FILE)),
        ReadPositions.from_table(then, result.kept(READ_FILE)),
    )


def _table(table: IcebergTable, path: str) -> pa.Table:
    try:
        return from_ipc(table.storage.read(path))
    except FileNotFoundError:
        raise CorruptFile(path, None, "a group that is finished kept it, and it is not there") from None
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"no readable Arrow file: {str(error)[:200]}") from error

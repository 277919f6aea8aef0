"""What merge-dvs does with each delete: the rules of `choice.py`, in the order in which files must be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from iceberg_cli.iceberg.verbs.merge_dvs import rules as merge_dvs
from iceberg_cli.iceberg.verbs.merge_dvs.choice import (
    Conversion,
    Puffins,
    allowed,
    convert,
    covered,
    idle_equality,
    puffins,
    small,
)
from iceberg_cli.iceberg.verbs.merge_dvs.columns import POSITIONS, VECTOR, Bools, Ints
from iceberg_cli.iceberg.verbs.merge_dvs.index import BEHIND_END, LOST_DELETES, SOUND, DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.read import DeleteReader
from iceberg_cli.iceberg.verbs.merge_dvs.rules import MOVED, NEW, OUTPUTS_SCHEMA
from iceberg_cli.iceberg.verbs.merge_dvs.settings import MergeSettings
from iceberg_cli.iceberg.verbs.merge_dvs.vectors import MergedVectors
from iceberg_cli.iceberg.verbs.merge_dvs.verdicts import delete_file_verdicts, puffin_verdicts, warnings_of
from iceberg_cli.plan.plan import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDecision:
    """The deletes that go and the deletion vectors that are written, before they are divided into files."""

    conversion: Conversion
    outputs: pa.Table
    removed: Bools
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]


def decide(
    reader: DeleteReader, settings: MergeSettings, shown: Mapping[int, frozenset[str]] | None
) -> MergeDecision:
    """Decide what becomes of each delete, reading delete files and Puffin files as far as that needs them.

    Args:
        reader: of the base.
        settings: the limits.
        shown: paths that may be touched, by kind of delete; None for all.

    Raises:
        CorruptFile: something cannot be read whole.
    """
    index = reader.read()
    may = allowed(index, shown)
    if not settings.with_vectors:
        return _dangling_only(index, may, settings)
    found = puffins(index, may, keep_dangling=settings.keep_dangling)
    _hold_against_older(reader, found, covered(index, may))
    _block_out_of_range(reader)
    # No file is blocked below that is named by position deletes which may go: the vectors of those are read by now.
    conversion = convert(index, may, keep_dangling=settings.keep_dangling)
    joined = reader.vectors.merge(conversion.targets)
    new = _new_outputs(index, conversion, joined)
    gone = index.dangling & may & (index.kinds == VECTOR) & (not settings.keep_dangling)
    while True:
        # Vectors of blocked files are not moved either.
        found = puffins(index, may, keep_dangling=settings.keep_dangling)
        due, little, dead = _choose(reader, found, new, gone, settings)
        if not _block_out_of_range(reader):
            break
    moving = _vectors_in(found, due | little, gone)
    idle = idle_equality(index, may)
    removed = conversion.leaving | gone
    removed[moving] = True
    if not settings.keep_dangling:
        removed |= idle
    outputs = merge_dvs.ordered(pa.concat_tables([new, _moved_outputs(reader, moving)]))
    verdicts = [
        *delete_file_verdicts(index, conversion, may, idle, settings),
        *puffin_verdicts(found, dead, due, little, ~found.movable, settings),
    ]
    outside = _outside(index, conversion.targets)
    warnings = warnings_of(index, conversion.targets, joined.cardinality, outside)
    return MergeDecision(
        conversion=conversion, outputs=outputs, removed=removed, verdicts=tuple(verdicts),
        warnings=tuple(warnings),
    )  # fmt: skip


def _dangling_only(index: DeleteIndex, may: Bools, settings: MergeSettings) -> MergeDecision:
    """Before version 3: remove position delete files that name no live data file but newer ones, nothing else.

    Readers of such a table need no partition, spec or bound to see that: no row of these files applies anywhere.
    """
    leaving = index.dangling & (index.kinds == POSITIONS) & may & (not settings.keep_dangling)
    none = np.empty(0, np.int64)
    conversion = Conversion(leaving=leaving, targets=none, sequence_numbers=none)
    idle = np.zeros_like(leaving)
    verdicts = delete_file_verdicts(index, conversion, may, idle, settings)
    return MergeDecision(
        conversion=conversion, outputs=OUTPUTS_SCHEMA.empty_table(), removed=leaving, verdicts=tuple(verdicts),
        warnings=(),
    )  # fmt: skip


def _hold_against_older(reader: DeleteReader, found: Puffins, files: Ints) -> None:
    """Block data files whose deletion vector lacks an older position delete."""
    index = reader.index
    if not len(files):
        return
    reader.vectors.check(found, np.unique(found.file[index.vector[files]]))
    index.blocked[reader.vectors.missing(files)] = LOST_DELETES


def _block_out_of_range(reader: DeleteReader) -> bool:
    """Block the data files of vectors, of those read so far, with positions behind the end; whether any is new.

    Readers ignore such positions, but whoever wrote them may have meant another file.
    """
    index = reader.index
    named = index.vector_data[np.array(sorted(reader.vectors.out_of_range), np.int64)]
    files = named[index.blocked[named] == SOUND]
    index.blocked[files] = BEHIND_END
    return bool(len(files))


def _vectors_in(found: Puffins, files: Bools, gone: Bools) -> Ints:
    """The deletion vectors of some Puffin files that stay in the table."""
    rows: Ints = np.flatnonzero(np.isin(found.file, np.flatnonzero(files)) & ~gone)
    return rows


def _choose(
    reader: DeleteReader, found: Puffins, new: pa.Table, gone: Bools, settings: MergeSettings
) -> tuple[Bools, Bools, Ints]:
    """Which Puffin files are written again because they are dead in good part, which because they are small."""
    limits = {"target_bytes": settings.target_bytes, "min_files": settings.min_files}
    # Small files that are enough by themselves are read at the same time.
    enough = small(found, np.zeros(len(found.paths), np.bool_), 0, **limits)
    reader.vectors.check(found, np.flatnonzero(found.suspects(settings.dead_ratio) | enough))
    dead = reader.vectors.dead_bytes(found)
    known = dead >= 0
    dead[known] += _going_bytes(reader.index, found)[known]
    due = found.movable & known & (dead >= settings.dead_ratio * found.file_bytes) & (found.weight > 0)
    certain = pa.concat_tables([new, _moved_outputs(reader, _vectors_in(found, due, gone))])
    last = merge_dvs.last_weight(merge_dvs.ordered(certain), settings.target_bytes)
    little = small(found, due, last, **limits)
    reader.vectors.check(found, np.flatnonzero(little))
    return due, little, dead


def _going_bytes(index: DeleteIndex, found: Puffins) -> Ints:
    """Bytes of each Puffin file in live deletion vectors that are removed."""
    rows = np.flatnonzero(index.kinds == VECTOR)
    sizes = np.zeros(len(found.vectors), np.int64)
    np.add.at(sizes, found.file[rows], index.column("size")[rows])
    going: Ints = sizes - found.live_bytes
    return going


def _outside(index: DeleteIndex, targets: Ints) -> Ints:
    """Which of `targets` have position deletes behind their end."""
    mine = np.flatnonzero(np.isin(index.part_data, targets))
    records = index.data["record_count"].to_numpy()
    last = index.parts["last"].to_numpy()
    files: Ints = np.unique(index.part_data[mine[last[mine] >= records[index.part_data[mine]]]])
    return files


def _new_outputs(index: DeleteIndex, conversion: Conversion, joined: MergedVectors) -> pa.Table:
    kept = joined.cardinality > 0
    files = conversion.targets[kept]
    data = index.data.take(pa.array(files))
    applied = np.flatnonzero(index.part_data >= 0)
    spec_of = np.zeros(len(index.data), np.int32)
    spec_of[index.part_data[applied]] = index.deletes["spec_id"].to_numpy()[index.part_delete[applied]]
    columns = {
        "origin": np.full(len(files), NEW, np.int8),
        "row": files,
        "ref": data["path"],
        "key": data["key"],
        "spec_id": spec_of[files],
        "sequence_number": conversion.sequence_numbers[kept],
        "cardinality": joined.cardinality[kept],
        "size": joined.size[kept],
        "crc": pa.array(
            [crc for crc, keep in zip(joined.crc, kept.tolist(), strict=True) if keep], pa.binary()
        ),
        "sum": joined.sums[kept],
        "last_row": data["record_count"].to_numpy() - 1,
    }
    return pa.table(columns, schema=OUTPUTS_SCHEMA)


def _moved_outputs(reader: DeleteReader, rows: Ints) -> pa.Table:
    index = reader.index
    deletes = index.deletes.take(pa.array(rows))
    named = index.vector_data[rows]
    records = np.append(index.data["record_count"].to_numpy(), 0)
    columns = {
        "origin": np.full(len(rows), MOVED, np.int8),
        "row": rows,
        "ref": deletes["ref"],
        "key": deletes["key"],
        "spec_id": deletes["spec_id"],
        "sequence_number": deletes["sequence_number"],
        "cardinality": deletes["record_count"],
        "size": deletes["size"],
        "crc": pa.array(reader.vectors.crc(rows), pa.binary()),
        "sum": np.zeros(len(rows), np.uint64),
        "last_row": records[named] - 1,
    }
    return pa.table(columns, schema=OUTPUTS_SCHEMA)

"""Deletion vectors merged and written on Spark's workers, so that no positions pass through this process.

Workers read position delete files and Puffin files, and shuffle the positions to buckets by data file; of each deletion
vector a few numbers come back, or the Puffin file is written there. A data file with most of the deletes is cut into
ranges of positions that are merged by themselves, and a large position delete file is decoded in splits of its row
groups, so neither decides how long all takes.

Spec: Iceberg v3 "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.transport import from_ipc
from iceberg_cli.engines import Engine, OnEvent, Scan, ShuffleStage
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.spec.position_deletes import PARTS_SCHEMA, rows_differ
from iceberg_cli.iceberg.verbs.merge_dvs import worker as delete_tasks
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Ints
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import MISSING_SCHEMA, NUMBERS_SCHEMA
from iceberg_cli.iceberg.verbs.merge_dvs.puffin_build import BUILT_COLUMNS
from iceberg_cli.iceberg.verbs.merge_dvs.requests import VectorRequests, splits_of
from iceberg_cli.iceberg.verbs.merge_dvs.rules import NEW
from iceberg_cli.iceberg.verbs.merge_dvs.splits import LIMITS, MergeLimits
from iceberg_cli.iceberg.verbs.merge_dvs.worker import (
    DeleteFile,
    PuffinBuilder,
    RangesByVector,
    VectorsByPuffin,
)

_SPREAD: Final = 16


@dataclass(frozen=True, slots=True)
class MergedVectors:
    """Counts of the deletion vectors of n data files; cardinality 0: none is needed. `crc`: the last four bytes."""

    cardinality: Ints
    size: Ints
    sums: npt.NDArray[np.uint64]
    crc: list[bytes]


def partials_on_workers(
    engine: Engine, files: pa.Table, *, limits: MergeLimits = LIMITS, on_event: OnEvent
) -> pa.Table:
    """The data files that position delete files name: rows of `PARTS_SCHEMA` without blobs, files in their order.

    Args:
        engine: with workers.
        files: `path`, `file_size` and `record_count` of each.
        limits: of splits.
        on_event: progress.

    Raises:
        CorruptFile: one cannot be read whole.
    """
    columns = (files[name].to_pylist() for name in ("path", "file_size", "record_count"))
    items = [
        DeleteFile(path, size, records, split)
        for path, size, records in zip(*columns, strict=True)
        for split in splits_of(size, limits)
    ]
    tables = [PARTS_SCHEMA.empty_table()]
    counts: list[int] = []
    for parts, each in engine.scan(
        Scan(
            delete_tasks.source_of,
            delete_tasks.load_names,
            delete_tasks.parse_names,
            phase="reading position delete files",
        ),
        items,
        on_event=on_event,
    ):
        tables.append(parts)
        counts += each
    shared: dict[str, tuple[int, int]] = {}
    for item, rows in zip(items, counts, strict=True):
        if item.split.of > 1:
            shared[item.path] = item.record_count, shared.get(item.path, (0, 0))[1] + rows
    for path, (expected, read) in shared.items():
        if expected != read:
            raise CorruptFile(path, None, rows_differ(read, expected))
    return _joined_splits(pa.concat_tables(tables), list(shared))


def _joined_splits(parts: pa.Table, shared: Sequence[str]) -> pa.Table:
    """One row for each data file that a delete file names, though several of its splits did."""
    if not shared:
        return parts
    mine = pc.is_in(parts["source"], value_set=pa.array(shared, pa.string()))
    tables = [parts.filter(pc.invert(mine))]
    several = parts.filter(mine)
    for path in shared:
        rows = several.filter(pc.equal(several["source"], path)).combine_chunks()
        names = rows["path"].combine_chunks().dictionary_encode()
        owner, count = names.indices.to_numpy(), len(names.dictionary)
        totals = {name: np.zeros(count, np.int64) for name in ("cardinality", "last", "size")}
        np.maximum.at(totals["last"], owner, rows["last"].to_numpy())
        for name in ("cardinality", "size"):
            np.add.at(totals[name], owner, rows[name].to_numpy())
        columns = {
            "source": rows["source"].slice(0, count),
            "path": names.dictionary,
            **totals,
            "blob": pa.nulls(count, pa.large_binary()),
        }
        tables.append(pa.table(columns, schema=PARTS_SCHEMA))
    return pa.concat_tables(tables)


def merge_on_workers(
    engine: Engine,
    index: DeleteIndex,
    files: Ints,
    *,
    limits: MergeLimits = LIMITS,
    on_event: OnEvent,
) -> MergedVectors:
    """Counts and checksums of one deletion vector for each data file, of all position deletes that apply to it.

    Args:
        engine: with workers.
        index: of the base.
        files: n rows of `data`, each with position deletes.
        limits: of what is merged in one task.
        on_event: progress.

    Raises:
        CorruptFile: a file cannot be read whole. BackendUnavailable: not all positions arrived.
    """
    requests = VectorRequests(
        index=index, places=np.arange(len(files)), files=files, rows=np.full(len(files), -1),
        records=index.data["record_count"].to_numpy()[files], limits=limits,
    )  # fmt: skip
    at = requests.buckets()
    ranged = np.flatnonzero(at.ranges > 1)
    spread = min(_SPREAD, at.buckets)
    stages = [ShuffleStage(delete_tasks.numbers, at.buckets)]
    if len(ranged):
        stages = [
            ShuffleStage(RangesByVector(ranged, spread), at.buckets),
            ShuffleStage(delete_tasks.numbers_together, len(ranged) + spread),
        ]
    answers = engine.shuffle(
        Scan(
            delete_tasks.source_of,
            delete_tasks.load,
            delete_tasks.parse,
            phase="joining position deletes",
            missing_ok=True,
        ),
        stages,
        requests.items(at),
        on_event=on_event,
    )
    numbers = pa.concat_tables([NUMBERS_SCHEMA.empty_table(), *map(from_ipc, answers)])
    numbers = numbers.take(pa.array(np.argsort(numbers["place"].to_numpy()))).combine_chunks()
    _check_arrived(numbers["place"].to_numpy(), numbers["positions"].to_numpy(), requests.positions())
    return MergedVectors(
        numbers["cardinality"].to_numpy(),
        numbers["size"].to_numpy(),
        numbers["sum"].to_numpy(),
        numbers["crc"].to_pylist(),
    )


def missing_positions_on_workers(
    engine: Engine,
    index: DeleteIndex,
    files: Ints,
    *,
    limits: MergeLimits = LIMITS,
    on_event: OnEvent,
) -> Ints:
    """The data files, of those given, whose deletion vector lacks an older position delete.

    Args:
        engine: with workers.
        index: of the base.
        files: rows of `data`, each with a deletion vector and position deletes.
        limits: of what is compared in one task.
        on_event: progress.

    Raises:
        CorruptFile: a file cannot be read whole. BackendUnavailable: not all positions arrived.
    """
    requests = VectorRequests(
        index=index, places=np.arange(len(files)), files=files, rows=index.vector[files],
        records=index.data["record_count"].to_numpy()[files], limits=limits,
    )  # fmt: skip
    at = requests.buckets()
    answers = engine.shuffle(
        Scan(
            delete_tasks.source_of,
            delete_tasks.load,
            delete_tasks.parse,
            phase="comparing deletion vectors with older position deletes",
            missing_ok=True,
        ),
        [ShuffleStage(delete_tasks.missing_positions, at.buckets)],
        requests.items(at),
        on_event=on_event,
    )
    found = pa.concat_tables([MISSING_SCHEMA.empty_table(), *map(from_ipc, answers)])
    place, positions = found["place"].to_numpy(), np.zeros(len(files), np.int64)
    np.add.at(positions, place, found["positions"].to_numpy())
    _check_arrived(np.unique(place), positions, requests.positions())
    missing: Ints = files[np.unique(place[found["missing"].to_numpy() > 0])]
    return missing


def _check_arrived(places: Ints, positions: Ints, expected: Ints) -> None:
    if not np.array_equal(places, np.arange(len(expected))) or not np.array_equal(positions, expected):
        raise BackendUnavailable(
            f"Cannot go on: workers joined {positions.sum()} positions of {len(places)} data files, "
            f"not {expected.sum()} of {len(expected)}"
        )


def build_puffins_on_workers(
    engine: Engine,
    index: DeleteIndex,
    outputs: pa.Table,
    files: Mapping[str, tuple[int, int]],
    *,
    limits: MergeLimits = LIMITS,
    on_event: OnEvent,
) -> dict[str, int]:
    """Write Puffin files, each in one task.

    Args:
        engine: with workers.
        index: of the base.
        outputs: rows of `OUTPUTS_SCHEMA`.
        files: by path, in the order of the outputs: the first output and the one behind the last.
        limits: of what is merged in one task.
        on_event: progress.

    Returns:
        Their sizes by path.

    Raises:
        CorruptFile: something cannot be read whole, or is not what was planned. FileExistsError: another's file is
        there. BackendUnavailable: not all was written.
    """
    bounds = tuple(files.values())
    places = np.concatenate([np.empty(0, np.int64), *(np.arange(start, stop) for start, stop in bounds)])
    mine = outputs.take(pa.array(places))
    new, rows = mine["origin"].to_numpy() == NEW, mine["row"].to_numpy()
    requests = VectorRequests(
        index=index, places=places, files=np.where(new, rows, -1), rows=np.where(new, -1, rows),
        records=mine["last_row"].to_numpy() + 1, limits=limits,
    )  # fmt: skip
    at = requests.buckets()
    found = engine.shuffle(
        Scan(
            delete_tasks.source_of,
            delete_tasks.load,
            delete_tasks.parse,
            phase="writing Puffin files",
            missing_ok=True,
        ),
        [
            ShuffleStage(VectorsByPuffin(np.array([start for start, _ in bounds], np.int64)), at.buckets),
            ShuffleStage(PuffinBuilder(outputs.select(BUILT_COLUMNS), bounds, tuple(files)), len(bounds)),
        ],
        requests.items(at),
        on_event=on_event,
    )
    names = list(files)
    sizes = {names[number]: size for number, size in found}
    if len(sizes) != len(files):
        raise BackendUnavailable(f"Cannot go on: {len(sizes)} of {len(files)} Puffin files were written")
    return sizes

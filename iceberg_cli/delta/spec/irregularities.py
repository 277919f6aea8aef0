"""What commits hold that can be read and that the protocol does not allow.

Two actions of one commit that reconcile with each other are the worst: Delta Spark lets the later line count and
delta-kernel the earlier one, so a checkpoint, or a commit that repeats the state, would decide for some readers what
they see.

Spec: "Requirements for Writers" ("Delta Log Entries"), "Add File and Remove File".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import dv_ids
from iceberg_cli.delta.spec.paths import path_keys
from iceberg_cli.encoding.string_hash import hash_column

CLASH: Final = "commit-actions-clash"
REPEATED_KEY: Final = "commit-key-repeated"
FRACTION: Final = "commit-number-with-fraction"

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregularity:
    """A violation of the protocol by one commit, by a rule of `check_rules`."""

    rule: str
    version: int
    path: str  # of the commit
    where: str  # the line, or the later one of two
    message: str
    times: int = 1


def clash_of(found: Sequence[Irregularity]) -> str | None:
    """The first clash in some commits, and the way out, in words; None where there is none."""
    clash = next((each for each in found if each.rule == CLASH), None)
    if clash is None:
        return None
    return (
        f"version {clash.version}, {clash.where} of {clash.path}: {clash.message}; some readers take the first of them "
        "and some the last, so writing their state anew would change what some of them see. Let the engine whose "
        "reading is right write a checkpoint of that version or a later one"
    )


def clashing_files(
    files: tuple[pa.Table, pa.Table],
    versions: tuple[Int64s, Int64s],
    lines: tuple[Int64s, Int64s],
    paths: Mapping[int, str],
) -> list[Irregularity]:
    """The commits that name one logical file in two actions, by version.

    Args:
        files: n adds and m removes of some commits.
        versions: of the commits of the adds and of the removes.
        lines: of the adds and of the removes in their commits.
        paths: of the commits, by version.
    """
    version, line = np.concatenate(versions), np.concatenate(lines)
    keys = pa.chunked_array([key for table in files for key in _keys(table)], pa.large_string())
    # Where no path is twice in a commit nothing else has to be looked at.
    again = _places_of_repeated(hash_column(keys) * _MIX + version.astype(np.uint64))
    if not len(again):
        return []
    order = again[np.lexsort((line[again], version[again]))]
    vectors = pa.chunked_array([dv_ids(table) for table in files], pa.string())
    named = pa.table(
        {
            "version": version[order],
            "path": keys.take(pa.array(order)),
            "vector": pc.fill_null(vectors.take(pa.array(order)), ""),
            "row": np.arange(len(order)),
        }
    )
    by_file = named.group_by(["version", "path", "vector"])
    found = by_file.aggregate([("row", "count"), ("row", "min"), ("row", "max")])
    twice = found.filter(pc.greater(found["row_count"], 1)).sort_by(
        [("version", "ascending"), ("row_max", "ascending")]
    )
    _, first, counts = np.unique(twice["version"].to_numpy(), return_index=True, return_counts=True)
    clashes = []
    for clash, times in zip(twice.take(pa.array(first)).to_pylist(), counts.tolist(), strict=True):
        before, after = (int(order[clash[name]]) for name in ("row_min", "row_max"))
        earlier, later = ("adds" if place < files[0].num_rows else "removes" for place in (before, after))
        clashes.append(
            Irregularity(
                rule=CLASH,
                version=clash["version"],
                path=paths[clash["version"]],
                where=f"line {line[after]}",
                message=f"it {later} {clash['path']}, which line {line[before]} {earlier} in the same commit",
                times=times,
            )
        )
    return clashes


def _keys(files: pa.Table) -> list[pa.Array]:
    """What tells files apart but for their vectors, in pieces; offsets of 32 bits would end at 2 GiB."""
    keys = path_keys(files.column("path")).cast(pa.large_string())
    return list(keys.chunks) if isinstance(keys, pa.ChunkedArray) else [keys]


def _places_of_repeated(numbers: npt.NDArray[np.uint64]) -> Int64s:
    """The indices of all numbers that occur more than once."""
    order = np.argsort(numbers)
    same = numbers[order[1:]] == numbers[order[:-1]]
    marks = np.zeros(len(numbers), np.bool_)
    marks[1:] |= same
    marks[:-1] |= same
    return order[marks]

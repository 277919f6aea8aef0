"""The actions of commits as one value, with columns for what grows with files, and what of them is irregular.

Every action that the protocol names is typed; the others survive as the lines they were. Irregular is what can be read
and what the protocol does not allow. Two actions of one commit that reconcile with each other are the worst: Delta
Spark lets the later line count and delta-kernel the earlier one, so a checkpoint, or a commit that repeats the state,
would decide for some readers what they see.

Spec: "Actions", "Requirements for Writers" ("Delta Log Entries"), "Add File and Remove File".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import ADD, CDC, REMOVE, concat, dv_ids
from iceberg_cli.delta.spec.paths import path_keys
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, fields_of, string_of
from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.errors import CorruptFile

Int64s = npt.NDArray[np.int64]
Json = Mapping[str, Any]

CLASH: Final = "commit-actions-clash"
REPEATED_KEY: Final = "commit-key-repeated"
FRACTION: Final = "commit-number-with-fraction"
EMPTY: Final = "commit-empty"
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
CHECKPOINT_ONLY: Final = ("sidecar", "checkpointMetadata")
_INT64: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregularity:
    """A violation of the protocol by one commit, by a rule of the check."""

    rule: str
    version: int
    path: str  # of the commit
    where: str  # the line, or the later one of two
    message: str
    times: int = 1


def _no_numbers() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The actions of one commit, or of several in the order of their versions.

    Args:
        adds: columns of `ADD` and unknown ones, in the order of the commits and of their lines.
        removes: columns of `REMOVE` and unknown ones, likewise.
        cdc: columns of `CDC` and unknown ones, likewise.
        add_versions: the commit of each add; likewise the others.
        add_lines: the line of each add in its commit, the first is 1.
        protocol: the newest one; so is `metadata`.
        transactions: the newest `txn` action of each `appId`.
        domains: the newest `domainMetadata` action of each domain, removed ones included.
        commit_infos: versions and `commitInfo` actions.
        unknown: actions of kinds that the protocol does not name, each as a line of its own.
        irregular: what the commits do that the protocol does not allow; nothing of checkpoints.
    """

    adds: pa.Table = field(default_factory=ADD.empty_table)
    removes: pa.Table = field(default_factory=REMOVE.empty_table)
    cdc: pa.Table = field(default_factory=CDC.empty_table)
    add_versions: Int64s = field(default_factory=_no_numbers)
    add_lines: Int64s = field(default_factory=_no_numbers)
    remove_versions: Int64s = field(default_factory=_no_numbers)
    remove_lines: Int64s = field(default_factory=_no_numbers)
    cdc_versions: Int64s = field(default_factory=_no_numbers)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, Json] = field(default_factory=dict)
    domains: Mapping[str, Json] = field(default_factory=dict)
    commit_infos: tuple[tuple[int, Json], ...] = ()
    unknown: tuple[Json, ...] = ()
    irregular: tuple[Irregularity, ...] = ()


def combine(parts: Sequence[Actions]) -> Actions:
    """The actions of all parts, given in the order of their versions."""
    if len(parts) == 1:
        return parts[0]
    return Actions(
        adds=concat([part.adds for part in parts], ADD),
        removes=concat([part.removes for part in parts], REMOVE),
        cdc=concat([part.cdc for part in parts], CDC),
        add_versions=one_after_another([part.add_versions for part in parts]),
        add_lines=one_after_another([part.add_lines for part in parts]),
        remove_versions=one_after_another([part.remove_versions for part in parts]),
        remove_lines=one_after_another([part.remove_lines for part in parts]),
        cdc_versions=one_after_another([part.cdc_versions for part in parts]),
        protocol=next((part.protocol for part in reversed(parts) if part.protocol), None),
        metadata=next((part.metadata for part in reversed(parts) if part.metadata), None),
        transactions={key: item for part in parts for key, item in part.transactions.items()},
        domains={key: item for part in parts for key, item in part.domains.items()},
        commit_infos=tuple(chain.from_iterable(part.commit_infos for part in parts)),
        unknown=tuple(chain.from_iterable(part.unknown for part in parts)),
        irregular=tuple(chain.from_iterable(part.irregular for part in parts)),
    )


def transaction_key(action: Any, path: str, where: str) -> str:
    """The `appId` of a `txn` action.

    Raises:
        CorruptFile: it has none, or no version.
    """
    fields = fields_of(action, path, where)
    version = fields.get("version")
    if type(version) is not int or not -_INT64 <= version < _INT64:
        raise CorruptFile(path, f"{where}.version", f"a whole number is expected, not {version!r:.40}")
    return string_of(fields, "appId", path, where)


def domain_key(action: Any, path: str, where: str) -> str:
    """The domain of a `domainMetadata` action.

    Raises:
        CorruptFile: it has none, or another field is of another type.
    """
    fields = fields_of(action, path, where)
    if not isinstance(fields.get("removed", False), bool):
        raise CorruptFile(path, f"{where}.removed", "true or false is expected")
    if fields.get("configuration") is not None:
        string_of(fields, "configuration", path, where)
    return string_of(fields, "domain", path, where)


def one_after_another(arrays: Sequence[Int64s]) -> Int64s:
    """The numbers of all arrays, in order."""
    return np.concatenate(arrays) if arrays else _no_numbers()


# -- what is irregular ------------------------------------------------------------------------------------------


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
        earlier, later = ("adds" if index < files[0].num_rows else "removes" for index in (before, after))
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

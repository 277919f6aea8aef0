"""The actions of commits: JSON lines -> one value with columns for what grows with files.

Spec: "Actions". Every action that the protocol names is typed; the others survive as the lines they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.columns import (
    ADD,
    CDC,
    DELETION_VECTOR,
    REMOVE,
    STRINGS,
    Place,
    check_files,
    concat,
    dv_ids,
    no_fractions,
    table_of,
)
from iceberg_cli.delta.encoding import file_lines
from iceberg_cli.delta.protocol import Metadata, Protocol
from iceberg_cli.errors import CorruptFile
from iceberg_cli.strict_json import loads_lines

__all__ = [
    "ADD",
    "CDC",
    "CHECKPOINT_ONLY",
    "DELETION_VECTOR",
    "REMOVE",
    "STRINGS",
    "Actions",
    "CommitBytes",
    "Metadata",
    "Protocol",
    "combine",
    "dv_ids",
    "file_lines",
    "parse_checkpoint",
    "parse_commits",
]

Int64s = npt.NDArray[np.int64]
Json = Mapping[str, Any]

CHECKPOINT_ONLY: Final = ("sidecar", "checkpointMetadata")
_INT64: Final = 2**63


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
        add_places: the line of each add in its commit, the first is 1.
        protocol: the newest one; so is `metadata`.
        transactions: the newest `txn` action of each `appId`.
        domains: the newest `domainMetadata` action of each domain, removed ones included.
        commit_infos: versions and `commitInfo` actions.
        unknown: whole lines of action kinds that the protocol does not name.
    """

    adds: pa.Table = field(default_factory=ADD.empty_table)
    removes: pa.Table = field(default_factory=REMOVE.empty_table)
    cdc: pa.Table = field(default_factory=CDC.empty_table)
    add_versions: Int64s = field(default_factory=_no_numbers)
    add_places: Int64s = field(default_factory=_no_numbers)
    remove_versions: Int64s = field(default_factory=_no_numbers)
    remove_places: Int64s = field(default_factory=_no_numbers)
    cdc_versions: Int64s = field(default_factory=_no_numbers)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, Json] = field(default_factory=dict)
    domains: Mapping[str, Json] = field(default_factory=dict)
    commit_infos: tuple[tuple[int, Json], ...] = ()
    unknown: tuple[Json, ...] = ()


class CommitBytes(NamedTuple):
    """One file of JSON lines: a commit, a log compaction (its last version), or a checkpoint in JSON."""

    path: str
    version: int
    data: bytes


class _Rows:
    """File actions of one kind while they are collected."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        self.kind = kind
        self.paths = paths
        self.rows: list[Json] = []
        self.versions: list[int] = []
        self.places: list[int] = []

    def add(self, row: Json, version: int, place: int) -> None:
        self.rows.append(row)
        self.versions.append(version)
        self.places.append(place)

    def place(self, index: int) -> tuple[str, str]:
        return self.paths[self.versions[index]], f"line {self.places[index]}, {self.kind}"

    def table(self, schema: pa.Schema, *, fractions: bool) -> pa.Table:
        for index, row in enumerate(self.rows):
            if not isinstance(row, dict):
                path, where = self.place(index)
                raise CorruptFile(path, where, "an object is expected")
        if fractions:
            no_fractions(self.rows, schema, self.place)
        return table_of(self.rows, schema, self.place)


def parse_commits(commits: Sequence[CommitBytes]) -> Actions:
    """All actions of commits, given in the order of their versions.

    What only checkpoints have says nothing in a commit, and is left out: Delta does not read it there either.

    Raises:
        CorruptFile: a file is empty or no newline-delimited JSON; a line is not one action; a field has another type
            than the protocol gives it; a file action identifies no file; one commit adds a file with two vectors.
    """
    return _parse(commits)[0]


def parse_checkpoint(top_level: CommitBytes) -> tuple[Actions, tuple[Json, ...]]:
    """All actions of a checkpoint in JSON, and apart from them the lines that only checkpoints have.

    Raises:
        CorruptFile: as `parse_commits` does.
    """
    return _parse([top_level])


def _parse(commits: Sequence[CommitBytes]) -> tuple[Actions, tuple[Json, ...]]:
    paths = {commit.version: commit.path for commit in commits}
    adds, removes, cdc = (_Rows(kind, paths) for kind in ("add", "remove", "cdc"))
    files = {"add": adds, "remove": removes, "cdc": cdc}
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, Json] = {}
    domains: dict[str, Json] = {}
    infos: list[tuple[int, Json]] = []
    unknown: list[Json] = []
    of_checkpoints: list[Json] = []
    fractions = False
    for path, version, data in commits:
        lines = loads_lines(data, path)
        fractions = fractions or lines.fractions
        if not lines.values:
            raise CorruptFile(path, None, "it has no action")
        for line, place in zip(lines.values, lines.numbers, strict=True):
            kind, action = _single(line, path, place)
            rows = files.get(kind)
            if rows is not None:
                rows.add(action, version, place)
                continue
            where = f"line {place}, {kind}"
            match kind:
                case "commitInfo":
                    infos.append((version, _fields(action, path, where)))
                case "protocol":
                    protocol = Protocol.from_json(action, path=path, where=where)
                case "metaData":
                    metadata = Metadata.from_json(action, path=path, where=where)
                case "txn":
                    transactions[transaction_key(action, path, where)] = action
                case "domainMetadata":
                    domains[domain_key(action, path, where)] = action
                case "sidecar" | "checkpointMetadata":
                    of_checkpoints.append(line)
                case _:
                    unknown.append(line)
    found = Actions(
        adds=adds.table(ADD, fractions=fractions),
        removes=removes.table(REMOVE, fractions=fractions),
        cdc=cdc.table(CDC, fractions=fractions),
        add_versions=np.array(adds.versions, np.int64),
        add_places=np.array(adds.places, np.int64),
        remove_versions=np.array(removes.versions, np.int64),
        remove_places=np.array(removes.places, np.int64),
        cdc_versions=np.array(cdc.versions, np.int64),
        protocol=protocol,
        metadata=metadata,
        transactions=transactions,
        domains=domains,
        commit_infos=tuple(infos),
        unknown=tuple(unknown),
    )
    check_files(found.adds, adds.place, sized=True)
    check_files(found.removes, removes.place, sized=False)
    check_files(found.cdc, cdc.place, sized=False)
    _refuse_two_vectors(found, adds.place)
    return found, tuple(of_checkpoints)


def combine(parts: Sequence[Actions]) -> Actions:
    """The actions of all parts, given in the order of their versions."""
    if len(parts) == 1:
        return parts[0]
    return Actions(
        adds=concat([part.adds for part in parts], ADD),
        removes=concat([part.removes for part in parts], REMOVE),
        cdc=concat([part.cdc for part in parts], CDC),
        add_versions=_joined([part.add_versions for part in parts]),
        add_places=_joined([part.add_places for part in parts]),
        remove_versions=_joined([part.remove_versions for part in parts]),
        remove_places=_joined([part.remove_places for part in parts]),
        cdc_versions=_joined([part.cdc_versions for part in parts]),
        protocol=next((part.protocol for part in reversed(parts) if part.protocol), None),
        metadata=next((part.metadata for part in reversed(parts) if part.metadata), None),
        transactions={key: item for part in parts for key, item in part.transactions.items()},
        domains={key: item for part in parts for key, item in part.domains.items()},
        commit_infos=tuple(chain.from_iterable(part.commit_infos for part in parts)),
        unknown=tuple(chain.from_iterable(part.unknown for part in parts)),
    )


def transaction_key(action: Any, path: str, where: str) -> str:
    """The `appId` of a `txn` action.

    Raises:
        CorruptFile: it has none, or no version.
    """
    fields = _fields(action, path, where)
    version = fields.get("version")
    if type(version) is not int or not -_INT64 <= version < _INT64:
        raise CorruptFile(path, f"{where}.version", f"a whole number is expected, not {version!r:.40}")
    return _text(fields, "appId", path, where)


def domain_key(action: Any, path: str, where: str) -> str:
    """The domain of a `domainMetadata` action.

    Raises:
        CorruptFile: it has none, or another field is of another type.
    """
    fields = _fields(action, path, where)
    if not isinstance(fields.get("removed", False), bool):
        raise CorruptFile(path, f"{where}.removed", "true or false is expected")
    if fields.get("configuration") is not None:
        _text(fields, "configuration", path, where)
    return _text(fields, "domain", path, where)


def _single(line: Mapping[str, Any], path: str, place: int) -> tuple[str, Any]:
    """Kind and object of the one action of a line."""
    if len(line) != 1:
        line = {kind: action for kind, action in line.items() if action is not None}
    if len(line) != 1:
        raise CorruptFile(path, f"line {place}", f"one action is expected, not {len(line)}")
    ((kind, action),) = line.items()
    return kind, action


def _fields(action: Any, path: str, where: str) -> Mapping[str, Any]:
    if not isinstance(action, dict):
        raise CorruptFile(path, where, "an object is expected")
    return action


def _text(fields: Mapping[str, Any], name: str, path: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise CorruptFile(path, f"{where}.{name}", f"a string is expected, not {value!r:.40}")
    return value


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else _no_numbers()


def _refuse_two_vectors(actions: Actions, place: Place) -> None:
    """Refuse a commit that adds one path with two deletion vectors: which rows the file has cannot be told."""
    vectors = actions.adds.column("deletionVector")
    if vectors.null_count == len(vectors):
        return
    keys = pa.table(
        {
            "version": actions.add_versions,
            "path": actions.adds.column("path"),
            "vector": pc.fill_null(dv_ids(actions.adds), ""),
            "row": np.arange(len(vectors)),
        }
    )
    logical = keys.group_by(["version", "path", "vector"]).aggregate([("row", "max")])
    found = logical.group_by(["version", "path"]).aggregate([("row_max", "count"), ("row_max", "max")])
    twice = found.filter(pc.greater(found.column("row_max_count"), 1))
    if twice.num_rows:
        path, where = place(pc.min(twice.column("row_max_max")).as_py())
        raise CorruptFile(path, where, "the commit adds this path twice, with two deletion vectors")

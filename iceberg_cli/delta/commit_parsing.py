"""Commits and checkpoints in JSON: lines -> actions.

Spec: "Delta Log Entries", "Actions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.actions import Actions, Json, domain_key, fields_of, transaction_key
from iceberg_cli.delta.columns import ADD, CDC, REMOVE, Place, check_files, dv_ids, no_fractions, table_of
from iceberg_cli.delta.ordinary_lines import file_actions, may_be_ordinary, opening
from iceberg_cli.delta.protocol import Metadata, Protocol
from iceberg_cli.errors import CorruptFile
from iceberg_cli.strict_json import loads_lines

_FILES: Final = {"add": ADD, "remove": REMOVE, "cdc": CDC}

Parsed = tuple[Actions, tuple[Json, ...]]


class CommitBytes(NamedTuple):
    """One file of JSON lines: a commit, a log compaction (its last version), or a checkpoint in JSON."""

    path: str
    version: int
    data: bytes


def parse_commits(commits: Sequence[CommitBytes]) -> Actions:
    """All actions of commits, given in the order of their versions.

    What only checkpoints have says nothing in a commit, and is left out: Delta does not read it there either.

    Raises:
        CorruptFile: a file is empty or no newline-delimited JSON; a line is not one action; a field has another type
            than the protocol gives it; a file action identifies no file; one commit adds a file with two vectors.
    """
    return _parse(commits)[0]


def parse_checkpoint(top_level: CommitBytes) -> Parsed:
    """All actions of a checkpoint in JSON, and apart from them the lines that only checkpoints have.

    Raises:
        CorruptFile: as `parse_commits` does.
    """
    return _parse([top_level])


def _parse(commits: Sequence[CommitBytes]) -> Parsed:
    found = _files_at_once(commits) if all(may_be_ordinary(commit.data) for commit in commits) else None
    return _line_by_line(commits) if found is None else found


def _files_at_once(commits: Sequence[CommitBytes]) -> Parsed | None:
    """The actions where those of files are ordinary lines; None where one of them is not."""
    paths = _paths_of(commits)
    files = {kind: _Lines(kind, paths) for kind in _FILES}
    odd, rest = _objects_of(paths), _Rest()
    left = []
    for commit in commits:
        lines = commit.data.split(b"\n")
        taken = [of_kind.take(lines, commit.version) for of_kind in files.values()]
        left.append((any(taken), commit._replace(data=b"\n".join(lines))))
    tables: dict[str, pa.Table] = {}
    for kind, of_kind in files.items():
        table = of_kind.table()
        if table is None:
            return None
        tables[kind] = table
    for has_files, commit in left:
        if not rest.read(commit, odd) and not has_files:
            return None
    if any(of_kind.objects for of_kind in odd.values()):
        return None
    return _together(files, tables, rest)


def _line_by_line(commits: Sequence[CommitBytes]) -> Parsed:
    files, rest = _objects_of(_paths_of(commits)), _Rest()
    for commit in commits:
        if not rest.read(commit, files):
            raise CorruptFile(commit.path, None, "it has no action")
    tables = {kind: of_kind.table(fractions=rest.fractions) for kind, of_kind in files.items()}
    return _together(files, tables, rest)


class _FileActions:
    """Which line of which commit each file action of one kind is, while they are collected."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        self.kind = kind
        self.versions: list[int] = []
        self.line_numbers: list[int] = []  # from 1
        self._paths = paths

    def place(self, index: int) -> tuple[str, str]:
        return self._paths[self.versions[index]], f"line {self.line_numbers[index]}, {self.kind}"


class _Lines(_FileActions):
    """File actions of one kind as the lines they are."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        super().__init__(kind, paths)
        self._lines: list[bytes] = []

    def take(self, lines: list[bytes], version: int) -> bool:
        """Take the lines of this kind, and leave blank ones; whether there were any."""
        begin = opening(self.kind)
        taken = [index for index, line in enumerate(lines) if line.startswith(begin)]
        self._lines += [lines[index] for index in taken]
        self.versions += [version] * len(taken)
        self.line_numbers += [index + 1 for index in taken]
        for index in taken:
            lines[index] = b""
        return bool(taken)

    def table(self) -> pa.Table | None:
        """None where a line is out of the ordinary."""
        # The lines of one commit have the same fields, as a rule.
        first_of_commits = np.flatnonzero(np.diff(np.array(self.versions, np.int64), prepend=-1))
        return file_actions(self.kind, self._lines, first_of_commits.tolist(), _FILES[self.kind])


class _Objects(_FileActions):
    """File actions of one kind, decoded."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        super().__init__(kind, paths)
        self.objects: list[Any] = []

    def add(self, action: Any, version: int, line_number: int) -> None:
        self.objects.append(action)
        self.versions.append(version)
        self.line_numbers.append(line_number)

    def table(self, *, fractions: bool) -> pa.Table:
        for index, action in enumerate(self.objects):
            if not isinstance(action, dict):
                path, where = self.place(index)
                raise CorruptFile(path, where, "an object is expected")
        schema = _FILES[self.kind]
        if fractions:
            no_fractions(self.objects, schema, self.place)
        return table_of(self.objects, schema, self.place)


class _Rest:
    """The actions that are not of files, while they are collected."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.transactions: dict[str, Json] = {}
        self.domains: dict[str, Json] = {}
        self.infos: list[tuple[int, Json]] = []
        self.unknown: list[Json] = []
        self.of_checkpoints: list[Json] = []
        self.fractions = False  # whether a number of any line has one

    def read(self, commit: CommitBytes, files: Mapping[str, _Objects]) -> int:
        """Take the lines of a commit, those of files into `files`; how many there are."""
        lines = loads_lines(commit.data, commit.path)
        self.fractions = self.fractions or lines.fractions
        for line, place in zip(lines.values, lines.numbers, strict=True):
            kind, action = _single(line, commit.path, place)
            if kind in files:
                files[kind].add(action, commit.version, place)
            else:
                self._take(line, kind, action, commit.version, (commit.path, f"line {place}, {kind}"))
        return len(lines.values)

    def _take(self, line: Json, kind: str, action: Any, version: int, place: tuple[str, str]) -> None:
        path, where = place
        match kind:
            case "commitInfo":
                self.infos.append((version, fields_of(action, path, where)))
            case "protocol":
                self.protocol = Protocol.from_json(action, path=path, where=where)
            case "metaData":
                self.metadata = Metadata.from_json(action, path=path, where=where)
            case "txn":
                self.transactions[transaction_key(action, path, where)] = action
            case "domainMetadata":
                self.domains[domain_key(action, path, where)] = action
            case "sidecar" | "checkpointMetadata":
                self.of_checkpoints.append(line)
            case _:
                self.unknown.append(line)


def _paths_of(commits: Sequence[CommitBytes]) -> Mapping[int, str]:
    return {commit.version: commit.path for commit in commits}


def _objects_of(paths: Mapping[int, str]) -> dict[str, _Objects]:
    return {kind: _Objects(kind, paths) for kind in _FILES}


def _together(files: Mapping[str, _FileActions], tables: Mapping[str, pa.Table], rest: _Rest) -> Parsed:
    versions = {kind: np.array(of_kind.versions, np.int64) for kind, of_kind in files.items()}
    places = {kind: np.array(of_kind.line_numbers, np.int64) for kind, of_kind in files.items()}
    found = Actions(
        adds=tables["add"],
        removes=tables["remove"],
        cdc=tables["cdc"],
        add_versions=versions["add"],
        add_places=places["add"],
        remove_versions=versions["remove"],
        remove_places=places["remove"],
        cdc_versions=versions["cdc"],
        protocol=rest.protocol,
        metadata=rest.metadata,
        transactions=rest.transactions,
        domains=rest.domains,
        commit_infos=tuple(rest.infos),
        unknown=tuple(rest.unknown),
    )
    for kind, of_kind in files.items():
        check_files(tables[kind], of_kind.place, sized=kind == "add")
    _refuse_two_vectors(found, files["add"].place)
    return found, tuple(rest.of_checkpoints)


def _single(line: Mapping[str, Any], path: str, place: int) -> tuple[str, Any]:
    """Kind and object of the one action of a line."""
    if len(line) != 1:
        line = {kind: action for kind, action in line.items() if action is not None}
    if len(line) != 1:
        raise CorruptFile(path, f"line {place}", f"one action is expected, not {len(line)}")
    ((kind, action),) = line.items()
    return kind, action


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

"""Commits and checkpoints in JSON: lines -> actions.

Spec: "Delta Log Entries", "Actions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions, Json, domain_key, fields_of, transaction_key
from iceberg_cli.delta.spec.columns import (
    ADD,
    CDC,
    REMOVE,
    Place,
    check_files,
    dv_ids,
    table_of,
    whole_numbers,
)
from iceberg_cli.delta.spec.features import ADAPTIVE, newer_feature
from iceberg_cli.delta.spec.irregularities import CLASH, FRACTION, REPEATED_KEY, Irregularity, clashing_files
from iceberg_cli.delta.spec.ordinary_lines import file_actions, may_be_ordinary, opening
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.encoding.strict_json import loads_lines
from iceberg_cli.errors import CorruptFile

_FILES: Final = {"add": ADD, "remove": REMOVE, "cdc": CDC}
_MANIFEST_COMMIT: Final = "checkpoint"  # an array of what the table is from then on
_OF_CHECKPOINTS: Final = ("sidecar", "checkpointMetadata")
_NAMED: Final = frozenset(
    {*_FILES, *_OF_CHECKPOINTS, "commitInfo", "protocol", "metaData", "txn", "domainMetadata"}
)

Parsed = tuple[Actions, tuple[Json, ...]]


class CommitBytes(NamedTuple):
    """One file of JSON lines: a commit, a log compaction (its last version), or a checkpoint in JSON."""

    path: str
    version: int
    data: bytes


def parse_commits(commits: Sequence[CommitBytes]) -> Actions:
    """All actions of commits, given in the order of their versions.

    What only checkpoints have says nothing in a commit, and is left out: Delta does not read it there either.

    Of a line the one action that the protocol names counts, whatever unknown ones are beside it, and in a commitInfo
    or an unknown action the last of several equal keys, as Delta Spark and delta-kernel read them. A whole number that
    is written as 7.0 is 7, as delta-kernel reads it. What the protocol does not allow of this is in `irregular`.

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
    found = {kind: of_kind.table(fractions=rest.fractions) for kind, of_kind in files.items()}
    rest.irregular += chain.from_iterable(irregular for _, irregular in found.values())
    return _together(files, {kind: table for kind, (table, _) in found.items()}, rest)


class _FileActions:
    """Which line of which commit each file action of one kind is, while they are collected."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        self.kind = kind
        self.paths = paths
        self.versions: list[int] = []
        self.line_numbers: list[int] = []  # from 1

    def place(self, index: int) -> tuple[str, str]:
        return self.paths[self.versions[index]], f"line {self.line_numbers[index]}, {self.kind}"


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

    def table(self, *, fractions: bool) -> tuple[pa.Table, list[Irregularity]]:
        """The actions in columns, and the commits that write whole numbers as fractions."""
        for index, action in enumerate(self.objects):
            if not isinstance(action, dict):
                path, where = self.place(index)
                raise CorruptFile(path, where, "an object is expected")
        schema = _FILES[self.kind]
        rows, found = self.objects, []
        if fractions:
            rows, changed = whole_numbers(rows, schema, self.place)
            versions = np.array([self.versions[index] for index, _ in changed], np.int64)
            _, first, counts = np.unique(versions, return_index=True, return_counts=True)
            for place, times in zip(first.tolist(), counts.tolist(), strict=True):
                index, field = changed[place]
                found.append(self._with_fraction(index, field, times))
        return table_of(rows, schema, self.place), found

    def _with_fraction(self, index: int, field: str, times: int) -> Irregularity:
        path, where = self.place(index)
        return Irregularity(
            rule=FRACTION,
            version=self.versions[index],
            path=path,
            where=f"{where}.{field}",
            message="a whole number is written with a fraction or an exponent, which Delta Spark does not read",
            times=times,
        )


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
        self.irregular: list[Irregularity] = []
        self._lines: dict[tuple[str, str], int] = {}  # of the commit that is read: kind and key to the line

    def read(self, commit: CommitBytes, files: Mapping[str, _Objects]) -> int:
        """Take the lines of a commit, those of files into `files`; how many there are."""
        lines = loads_lines(commit.data, commit.path, repeats_allowed=_says_nothing_of_the_table)
        self.fractions = self.fractions or lines.fractions
        self._lines = {}
        for number in lines.repeated[:1]:
            message = "a key appears twice in one object, and the last one counts"
            self._note(REPEATED_KEY, commit, f"line {number}", message, times=len(lines.repeated))
        for line, place in zip(lines.values, lines.numbers, strict=True):
            actions, beside = _actions_of(line, commit.path, place)
            if any(each.get(_MANIFEST_COMMIT) is not None for each in beside):
                raise newer_feature(commit.path, f"line {place} has an action {_MANIFEST_COMMIT}", ADAPTIVE)
            self.unknown += beside
            for kind, action in actions.items():
                if kind in files:
                    files[kind].add(action, commit.version, place)
                else:
                    self._take(kind, action, commit, place)
        return len(lines.values)

    def _take(self, kind: str, action: Any, commit: CommitBytes, line: int) -> None:
        path, where = commit.path, f"line {line}, {kind}"
        match kind:
            case "commitInfo":
                self.infos.append((commit.version, fields_of(action, path, where)))
            case "protocol":
                self.protocol = Protocol.from_json(action, path=path, where=where)
                self._once(kind, "", commit, line)
            case "metaData":
                self.metadata = Metadata.from_json(action, path=path, where=where)
                self._once(kind, "", commit, line)
            case "txn":
                key = transaction_key(action, path, where)
                self.transactions[key] = action
                self._once(kind, key, commit, line)
            case "domainMetadata":
                key = domain_key(action, path, where)
                self.domains[key] = action
                self._once(kind, key, commit, line)
            case _:
                self.of_checkpoints.append({kind: action})

    def _once(self, kind: str, key: str, commit: CommitBytes, line: int) -> None:
        """Note an action that reconciles with an earlier one of the same commit."""
        before = self._lines.setdefault((kind, key), line)
        if before != line:
            named = f"{kind} of {key}" if key else kind
            self._note(CLASH, commit, f"line {line}", f"it has a second {named}, after that of line {before}")

    def _note(self, rule: str, commit: CommitBytes, where: str, message: str, *, times: int = 1) -> None:
        self.irregular.append(
            Irregularity(
                rule=rule, version=commit.version, path=commit.path, where=where, message=message, times=times
            )
        )


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
        irregular=tuple(rest.irregular),
    )
    for kind, of_kind in files.items():
        check_files(tables[kind], of_kind.place, sized=kind == "add")
    _refuse_two_vectors(found, files["add"].place)
    clashes = clashing_files(
        (found.adds, found.removes),
        (found.add_versions, found.remove_versions),
        (found.add_places, found.remove_places),
        files["add"].paths,
    )
    return replace(found, irregular=(*found.irregular, *clashes)), tuple(rest.of_checkpoints)


def _actions_of(line: Json, path: str, place: int) -> tuple[Json, list[Json]]:
    """The action of a line that the protocol names, if it has one, and those beside it that nobody knows."""
    if len(line) != 1:
        line = {kind: action for kind, action in line.items() if action is not None}
    named = {kind: action for kind, action in line.items() if kind in _NAMED}
    if not line or len(named) > 1:
        raise CorruptFile(path, f"line {place}", f"one action is expected, not {len(named)}")
    return named, [{kind: action} for kind, action in line.items() if kind not in _NAMED]


def _says_nothing_of_the_table(line: Json) -> bool:
    """Whether a line has no action but a commitInfo and unknown ones."""
    return _NAMED.isdisjoint(kind for kind in line if kind != "commitInfo")


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

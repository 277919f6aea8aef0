"""Commits and checkpoints in JSON, parsed into actions.

Spec: "Delta Log Entries", "Actions".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from iceberg_cli.delta.spec.actions import (
    CLASH,
    EMPTY,
    FRACTION,
    REPEATED_KEY,
    Actions,
    Irregularity,
    Json,
    clash_of,
    clashing_files,
    domain_key,
    transaction_key,
)
from iceberg_cli.delta.spec.columns import (
    ADD,
    CDC,
    REMOVE,
    STRINGS,
    RowLocation,
    check_files,
    dv_ids,
    spread_over,
    table_of,
    whole_numbers,
)
from iceberg_cli.delta.spec.features import ADAPTIVE, newer_feature
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, fields_of
from iceberg_cli.encoding.strict_json import loads_lines
from iceberg_cli.errors import CorruptFile

_END: Final = b"}}"
_BLOCK_BYTES: Final = 1 << 20
_DOUBTFUL: Final = (b"\\u", b"\r")  # half of a surrogate pair, or a line that ends otherwise
_NO_NAMES: Final = pa.array([], pa.string())


def may_be_ordinary(data: bytes) -> bool:
    """Whether lines of a file may go to Arrow at all, which takes bytes that are no UTF-8."""
    if any(part in data for part in _DOUBTFUL):
        return False
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def opening(kind: str) -> bytes:
    """How an ordinary line of a kind begins."""
    return f'{{"{kind}":{{'.encode()


def file_actions(
    kind: str, lines: Sequence[bytes], samples: Iterable[int], schema: pa.Schema
) -> pa.Table | None:
    """The actions of n lines in the columns of `schema`, or None where one of them is out of the ordinary.

    Args:
        kind: `add`, `remove` or `cdc`; every line begins with `opening(kind)`, and `may_be_ordinary` held of its file.
        lines: without newlines.
        samples: indices of the lines that tell the names in maps; others have the same.
        schema: the columns; maps are of strings.
    """
    if not lines:
        return schema.empty_table()
    if not all(line.endswith(_END) for line in lines):
        return None
    names = _names(kind, [lines[index] for index in samples], schema)
    if names is None:
        return None
    read_type = pa.struct([_read_field(each, names) for each in schema])
    try:
        read = pa_json.read_json(
            pa.BufferReader(b"\n".join(lines)),
            read_options=pa_json.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 2 * max(map(len, lines)) + 2)
            ),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema([(kind, read_type)]), unexpected_field_behavior="error"
            ),
        )
        actions = pa.concat_arrays(read.column(0).chunks)
    except pa.ArrowInvalid:  # also of more text than 2 GiB in one column
        return None
    if len(actions) != len(lines) or actions.null_count:
        return None
    columns = dict(zip(schema.names, actions.flatten(), strict=True))
    for name, known in names.items():
        if not _whole(columns[name], known, kind, name, lines):
            return None
        columns[name] = _maps(columns[name], known)
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def _names(kind: str, samples: Sequence[bytes], schema: pa.Schema) -> dict[str, list[str]] | None:
    """The keys of each column of maps."""
    names: dict[str, dict[str, None]] = {each.name: {} for each in schema if each.type == STRINGS}
    for line in samples:
        try:
            action = json.loads(line)[kind]
        except (ValueError, RecursionError, KeyError):
            return None
        for name, known in names.items():
            values = action.get(name)
            known.update(dict.fromkeys(values if isinstance(values, dict) else ()))
    return {name: list(known) for name, known in names.items()}


def _read_field(column: pa.Field, names: Mapping[str, Sequence[str]]) -> pa.Field:
    """The Arrow type for reading: maps as structs."""
    if column.name not in names:
        return column
    return pa.field(column.name, pa.struct([(key, pa.string()) for key in names[column.name]]))


def _whole(column: pa.StructArray, keys: Sequence[str], kind: str, name: str, lines: Sequence[bytes]) -> bool:
    """Whether every map has all of the keys: Arrow says null of a key that is absent, too."""
    doubtful = np.zeros(len(column), bool)
    for values in column.flatten():
        if values.null_count > column.null_count:
            doubtful |= pc.and_(values.is_null(), column.is_valid()).to_numpy(zero_copy_only=False)
    maps: list[dict[str, Any]] = [
        json.loads(lines[row])[kind][name] for row in np.flatnonzero(doubtful).tolist()
    ]
    return all(len(found) == len(keys) for found in maps)


def _maps(structs: pa.StructArray, names: Sequence[str]) -> pa.Array:
    """Structs of strings as maps, each with all names."""
    there = structs.drop_null() if structs.null_count else structs
    count, width = len(there), len(names)
    keys, items = _NO_NAMES, _NO_NAMES
    if count and width:
        keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(width), count)))
        # Arrow has the values of one name after those of another, a map has those of one row together.
        rows = np.arange(width * count).reshape(width, count).T.ravel()
        items = there.field(0) if width == 1 else pa.concat_arrays(there.flatten()).take(pa.array(rows))
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width, pa.int32())
    return spread_over(pa.MapArray.from_arrays(offsets, keys, items), structs.is_valid())


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
    is written as 7.0 is 7, as delta-kernel reads it. A file without a line has no actions, as all readers have it. What
    the protocol does not allow of this is in `irregular`.

    Raises:
        CorruptFile: a file is no newline-delimited JSON; a line is not one action; a field has another type
            than the protocol gives it; a file action identifies no file; one commit adds a file with two vectors.
    """
    return _parse(commits)[0]


def unreadable_reason(commit: CommitBytes) -> str | None:
    """Why a commit must not be written, or None: this reader would refuse it, or readers would disagree about it."""
    try:
        return clash_of(parse_commits([commit]).irregular)
    except CorruptFile as error:
        return error.message


def parse_checkpoint(top_level: CommitBytes) -> Parsed:
    """All actions of a checkpoint in JSON, and apart from them the lines that only checkpoints have.

    Raises:
        CorruptFile: as `parse_commits` does, and where the file is empty.
    """
    actions, of_checkpoints = _parse([top_level])
    if any(each.rule == EMPTY for each in actions.irregular):
        raise CorruptFile(top_level.path, None, "it has no action")
    return actions, of_checkpoints


def _parse(commits: Sequence[CommitBytes]) -> Parsed:
    parsed = _files_at_once(commits) if all(may_be_ordinary(commit.data) for commit in commits) else None
    return _line_by_line(commits) if parsed is None else parsed


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
    return _parsed_files(files, tables, rest)


def _line_by_line(commits: Sequence[CommitBytes]) -> Parsed:
    files, rest = _objects_of(_paths_of(commits)), _Rest()
    for commit in commits:
        if not rest.read(commit, files):
            rest.note_empty(commit)
    tables = {kind: of_kind.table(fractions=rest.fractions) for kind, of_kind in files.items()}
    rest.irregular += chain.from_iterable(irregular for _, irregular in tables.values())
    return _parsed_files(files, {kind: table for kind, (table, _) in tables.items()}, rest)


class _FileActions:
    """Which line of which commit each file action of one kind is, while they are collected."""

    def __init__(self, kind: str, paths: Mapping[int, str]) -> None:
        self.kind = kind
        self.paths = paths
        self.versions: list[int] = []
        self.line_numbers: list[int] = []  # from 1

    def location(self, index: int) -> tuple[str, str]:
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
                path, where = self.location(index)
                raise CorruptFile(path, where, "an object is expected")
        schema = _FILES[self.kind]
        rows, found = self.objects, []
        if fractions:
            rows, changed = whole_numbers(rows, schema, self.location)
            versions = np.array([self.versions[index] for index, _ in changed], np.int64)
            _, first, counts = np.unique(versions, return_index=True, return_counts=True)
            for position, times in zip(first.tolist(), counts.tolist(), strict=True):
                index, field = changed[position]
                found.append(self._with_fraction(index, field, times))
        return table_of(rows, schema, self.location), found

    def _with_fraction(self, index: int, field: str, times: int) -> Irregularity:
        path, where = self.location(index)
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
        for line, line_number in zip(lines.values, lines.numbers, strict=True):
            actions, beside = _actions_of(line, commit.path, line_number)
            if any(each.get(_MANIFEST_COMMIT) is not None for each in beside):
                raise newer_feature(
                    commit.path, f"line {line_number} has an action {_MANIFEST_COMMIT}", ADAPTIVE
                )
            self.unknown += beside
            for kind, action in actions.items():
                if kind in files:
                    files[kind].add(action, commit.version, line_number)
                else:
                    self._take(kind, action, commit, line_number)
        return len(lines.values)

    def note_empty(self, commit: CommitBytes) -> None:
        """Note a commit in which nothing is."""
        self._note(
            EMPTY, commit, "the file", f"it has no action, and version {commit.version} changes nothing"
        )

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


def _parsed_files(files: Mapping[str, _FileActions], tables: Mapping[str, pa.Table], rest: _Rest) -> Parsed:
    versions = {kind: np.array(of_kind.versions, np.int64) for kind, of_kind in files.items()}
    lines = {kind: np.array(of_kind.line_numbers, np.int64) for kind, of_kind in files.items()}
    found = Actions(
        adds=tables["add"],
        removes=tables["remove"],
        cdc=tables["cdc"],
        add_versions=versions["add"],
        add_lines=lines["add"],
        remove_versions=versions["remove"],
        remove_lines=lines["remove"],
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
        check_files(tables[kind], of_kind.location, sized=kind == "add")
    _refuse_two_vectors(found, files["add"].location)
    clashes = clashing_files(
        (found.adds, found.removes),
        (found.add_versions, found.remove_versions),
        (found.add_lines, found.remove_lines),
        files["add"].paths,
    )
    return replace(found, irregular=(*found.irregular, *clashes)), tuple(rest.of_checkpoints)


def _actions_of(line: Json, path: str, line_number: int) -> tuple[Json, list[Json]]:
    """The action of a line that the protocol names, if it has one, and those beside it that nobody knows."""
    if len(line) != 1:
        line = {kind: action for kind, action in line.items() if action is not None}
    named = {kind: action for kind, action in line.items() if kind in _NAMED}
    if not line or len(named) > 1:
        raise CorruptFile(path, f"line {line_number}", f"one action is expected, not {len(named)}")
    return named, [{kind: action} for kind, action in line.items() if kind not in _NAMED]


def _says_nothing_of_the_table(line: Json) -> bool:
    """Whether a line has no action but a commitInfo and unknown ones."""
    return _NAMED.isdisjoint(kind for kind in line if kind != "commitInfo")


def _refuse_two_vectors(actions: Actions, location: RowLocation) -> None:
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
        path, where = location(pc.min(twice.column("row_max_max")).as_py())
        raise CorruptFile(path, where, "the commit adds this path twice, with two deletion vectors")

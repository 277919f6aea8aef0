"""remove-orphan-files: which of the files that are there go, and which rule keeps each of the others.

Every rule fails towards keeping: a file goes only where none of them keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools, array_of
from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.verbs.remove_orphan_files.policy import RemoveOrphanFiles
from iceberg_cli.paths import canonical, file_name_column, is_suspicious, path_key_column, whole_store
from iceberg_cli.plan.listed_files import hidden_names
from iceberg_cli.plan.plan import Option, Verdict
from iceberg_cli.plan.policy import DEFAULT
from iceberg_cli.plan.removal_rows import ORPHAN_FILE, SCHEMA, sum_of_totals

Keys = npt.NDArray[np.uint64]

STEP: Final = "orphan files"
METADATA_FILE: Final = "metadata_file"
DAY_MS: Final = 86_400_000
_DEFAULT_AGE_MS: Final = 3 * DAY_MS
_ENDINGS: Final = r"\.(parquet|orc|avro|puffin|stats)$"
# Of what job and of what query a file is; Java writes the first with hyphens, others without.
_UUID: Final = r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_QUERY: Final = r"[0-9]{8}_[0-9]{6}_[0-9]{5}_[0-9a-z]{5}"
_LOCATIONS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_MOST_NAMED: Final = 5
RULES: Final = {
    "reachable": "kept: the table reaches them",
    "namesake": "kept: a file that the table reaches has the same name",
    "link": "kept: they are symbolic links",
    "hidden": "kept: their names are hidden, or those of their folders",
    "superseded": "kept: they are metadata files of versions before the table's log; --metadata-files deletes them",
    "foreign": "kept: their names do not end as those of Iceberg's files do",
    "operation": "kept: an open operation of this program names them",
    "young": "kept: written after the cut-off, or nothing tells when",
    "writer": "kept: a writer of theirs has written after the cut-off",
}


class LookedThrough(NamedTuple):
    """The folders that are looked through, and those of a table that are not.

    Args:
        folders: canonical, without a slash at their end, in order; none is inside another one.
        elsewhere: properties that put files outside the table's location, or right into it, each with its value.
    """

    folders: tuple[str, ...]
    elsewhere: tuple[tuple[str, str], ...]


def cut_off(policy: RemoveOrphanFiles, *, as_of_ms: int) -> Option:
    """The time before which a file was last written that may go, in ms since the epoch.

    Raises:
        UsageError: it is in the future, or less than a day ago and nobody said that this may be.
    """
    if policy.older_than_ms is None:
        return Option(value=as_of_ms - _DEFAULT_AGE_MS, source=DEFAULT)
    if policy.older_than_ms > as_of_ms:
        raise UsageError("--older-than is in the future: every file would be older")
    if as_of_ms - policy.older_than_ms < DAY_MS and not policy.unsafe_young:
        raise UsageError(
            "--older-than is less than 24h ago: files that a writer has not committed yet would go",
            next_step="Give at least 24h; --unsafe-allow-young accepts less where nobody writes.",
        )
    return policy.chosen("older_than")


def looked_through(
    location: str, properties: Mapping[str, str], more: Sequence[str], *, allowed: Sequence[str]
) -> LookedThrough:
    """Where orphan files are looked for: the table's folders of data and metadata, and what is named besides.

    Args:
        location: of the table.
        properties: of the table.
        more: folders that the operator names.
        allowed: canonical folders outside the table's location in which files may be deleted.

    Raises:
        UsageError: a folder is outside of all these, a whole bucket or disk, has dot segments, is named twice, or is
            inside another one that is named.
    """
    own = canonical(location).rstrip("/")
    found, elsewhere = {f"{own}/data", f"{own}/metadata"}, []
    for name in _LOCATIONS:
        if name in properties:
            folder = canonical(properties[name]).rstrip("/")
            if folder.startswith(f"{own}/") and not is_suspicious(folder):
                found.add(folder)
            else:
                elsewhere.append((name, properties[name]))
    named: dict[str, str] = {}
    for uri in more:
        folder = canonical(uri).rstrip("/")
        _check_folder(uri, folder, [own, *allowed])
        for other, spelled in named.items():
            if folder == other:
                raise UsageError(f"--location {uri} is named twice")
            if _is_inside(folder, other) or _is_inside(other, folder):
                raise UsageError(f"--location {uri} and --location {spelled}: one is inside the other")
        named[folder] = uri
    every = found | named.keys()
    folders = sorted(each for each in every if not any(_is_inside(each, other) for other in every))
    return LookedThrough(tuple(folders), tuple(elsewhere))


def _check_folder(uri: str, folder: str, inside: Sequence[str]) -> None:
    if is_suspicious(uri):
        raise UsageError(f"--location {uri} has dot segments")
    if whole_store(uri) is not None:
        raise UsageError(f"--location {uri} is a whole bucket or disk, and others may have files there")
    if not any(folder == each or _is_inside(folder, each) for each in inside):
        raise UsageError(
            f"--location {uri} is not inside the table's location {inside[0]}",
            next_step=f"--unsafe-allow-root {uri} allows it where all files there are this table's.",
        )


def _is_inside(folder: str, other: str) -> bool:
    return folder.startswith(f"{other}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What is known of the files that stay.

    Args:
        names: which of n keys of names are of files that the table reaches.
        paths: which of n keys of paths are.
        beside: by the name of a metadata file beside the table's own, the same of what that one reaches, by names.
        operations: what is in the names of the files of open operations: their ids, and the UUIDs of their commits.
        waiting: keys of the names of files that such an operation is to delete, sorted.
        links: keys of paths that are symbolic links, sorted.
        superseded: keys of the paths of metadata files of versions before the table's log, sorted.
    """

    names: Callable[[Keys], Bools]
    paths: Callable[[Keys], Bools]
    beside: Mapping[str, Callable[[Keys], Bools]] = field(default_factory=dict)
    operations: Sequence[str] = ()
    waiting: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    links: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    superseded: Keys = field(default_factory=lambda: np.empty(0, np.uint64))

    def holding(self, names: pa.Array, keys: Keys) -> tuple[Bools, dict[str, Bools]]:
        """Which of n files an open operation names; and which each metadata file beside the table's own reaches.

        Args:
            names: folded.
            keys: of these.
        """
        of_operations = among(keys, self.waiting)
        for mark in self.operations:
            named = pc.match_substring(names, mark.lower())
            of_operations |= named.to_numpy(zero_copy_only=False)
        return of_operations, {name: reaches(keys) for name, reaches in self.beside.items()}


@dataclass(slots=True, kw_only=True)
class OrphanSearch:
    """The rules, and how many files each of them has kept so far.

    Args:
        folders: that were looked through.
        shown: with these the names of folders begin that start with `.` or `_` and are not hidden.
        cut_ms: what was written at or after it stays.
        reached: what stays whatever its age is.
        writers: keys of the jobs and queries that have written after the cut-off, sorted; see `writers_of`.
        metadata_files: whether superseded ones go.
    """

    folders: Sequence[str]
    shown: Sequence[str]
    cut_ms: int
    reached: Reached
    writers: Keys
    metadata_files: bool
    kept: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by rule: files and bytes

    def orphans(self, files: pa.Table) -> pa.Table:
        """Those of n files, columns of `STORED_FILES`, that no rule keeps, with their kind and reason."""
        names = file_name_column(files["path"].combine_chunks())
        keys = hash_column(path_key_column(files["path"].combine_chunks()))
        name_keys = hash_column(names)
        stays = np.zeros(len(files), np.bool_)
        is_superseded = among(keys, self.reached.superseded)
        is_known = pc.match_substring_regex(names, _ENDINGS).to_numpy(zero_copy_only=False)
        of_operations, beside = self.reached.holding(names, name_keys)
        by_rule: dict[str, Bools] = {
            "reachable": self.reached.paths(keys),
            "namesake": self.reached.names(name_keys),
            "link": among(keys, self.reached.links),
            "hidden": self._hidden(files["path"].combine_chunks()),
            "superseded": is_superseded & (not self.metadata_files),
            "foreign": ~is_known & ~is_superseded,
            "operation": of_operations,
            **beside,
            "young": _is_young(files, self.cut_ms).to_numpy(),
        }
        for rule, mask in by_rule.items():
            self._keep(rule, files, mask & ~stays)
            stays |= mask
        old = np.flatnonzero(~stays)
        of_writers = np.zeros(len(files), np.bool_)
        of_writers[old] = written_by(names.take(array_of(old)), self.writers)
        self._keep("writer", files, of_writers)
        stays |= of_writers
        going = array_of(~stays)
        found = files.filter(going)
        kinds = np.where(is_superseded[~stays], METADATA_FILE, ORPHAN_FILE)
        return found.append_column("kind", pa.array(kinds.tolist(), pa.string())).append_column(
            "reason", _reasons(found["modified_ms"])
        )

    def keep(self, rule: str, count: int, size_bytes: int) -> None:
        """Count files that are kept by a rule that is none of these."""
        self.kept.setdefault(rule, []).append((count, size_bytes))

    def _keep(self, rule: str, files: pa.Table, mask: Bools) -> None:
        if mask.any():
            size_bytes = pc.sum(files["size_bytes"].filter(array_of(mask))).as_py() or 0
            self.keep(rule, int(mask.sum()), size_bytes)

    def _hidden(self, paths: pa.Array) -> Bools:
        """Which of n paths are hidden below the folder that was looked through."""
        hidden = np.ones(len(paths), np.bool_)
        for folder in self.folders:
            own = pc.starts_with(paths, f"{folder}/")
            if not pc.any(own).as_py():
                continue
            names = pc.utf8_slice_codeunits(pc.if_else(own, paths, f"{folder}/"), len(folder) + 1)
            found = hidden_names(names, shown=self.shown).to_numpy(zero_copy_only=False)
            mask = own.to_numpy(zero_copy_only=False)
            hidden[mask] = found[mask]
        return hidden

    def verdicts(self) -> tuple[Verdict, ...]:
        """How many files each rule keeps, and why."""
        found = []
        for rule in (*RULES, *sorted(self.kept.keys() - RULES.keys())):
            if numbers := self.kept.get(rule):
                count, size_bytes = (
                    sum(each for each, _ in numbers),
                    sum_of_totals(each for _, each in numbers),
                )
                why = RULES.get(rule) or f"kept: the metadata file {rule} beside the table's own reaches them"
                found.append(
                    Verdict(subject="files", id=f"{count} of {size_bytes} bytes", keep=True, reason=why)
                )
        return tuple(found)

    def kept_beside(self, forget: str) -> tuple[str, ...]:
        """A warning that names the metadata files beside the table's own by which files stay, with the way out.

        Args:
            forget: the option that says of one that no table needs it.
        """
        names = sorted(self.kept.keys() - RULES.keys())
        if not names:
            return ()
        count = sum(each for name in names for each, _ in self.kept[name])
        more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        warning = (
            f"{count:,} files stay, for metadata files beside the table's own reach them, which are neither current "
            f"nor in its log: {', '.join(names[:_MOST_NAMED])}{more}. Each may be a clone, another catalog's or a "
            "commit that never came in. If no table needs them, move these metadata files away, or say so by "
            + " ".join(f"{forget} {name}" for name in names[:_MOST_NAMED])
        )
        return (warning,)


def _reasons(modified_ms: pa.ChunkedArray) -> pa.Array:
    """Why n files go: one text a day."""
    days = modified_ms.combine_chunks().cast(pa.timestamp("ms")).dictionary_encode()
    words = pc.binary_join_element_wise(
        "nothing names it, last written on ", pc.strftime(days.dictionary, format="%Y-%m-%d"), ""
    )
    return words.take(days.indices)


def writers_of(files: pa.Table, *, cut_ms: int) -> Keys:
    """Keys of the jobs and queries that have written one of n files after a cut-off, as its name says."""
    young = files.filter(_is_young(files, cut_ms))
    if not len(young):
        return np.empty(0, np.uint64)
    found = [keys[mask] for keys, mask in _writers(file_name_column(young["path"].combine_chunks()))]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *found]))


def _is_young(files: pa.Table, cut_ms: int) -> pa.ChunkedArray:
    """Which of n files were written after a cut-off, or at a time that is not known."""
    return pc.or_(pc.greater_equal(files["modified_ms"], cut_ms), pc.less_equal(files["modified_ms"], 0))


def written_by(names: pa.Array, writers: Keys) -> Bools:
    """Which of n files, by their folded names, are of one of some jobs and queries."""
    found = np.zeros(len(names), np.bool_)
    if len(names) and len(writers):
        for keys, mask in _writers(names):
            found |= mask & among(keys, writers)
    return found


def _writers(names: pa.Array) -> list[tuple[Keys, Bools]]:
    """Of n names keys of a UUID or query in them, and whether there is one: of each the first, the last, and others."""
    found = []
    for each in (_UUID, _QUERY):
        found += [_each(names, f"(?s)^{before}(?P<writer>{each})") for before in (".*?", ".*")]
        several = pc.count_substring_regex(names, each).to_numpy(zero_copy_only=False)
        rest = names
        for _ in range(int(several.max(initial=0)) - 2):
            rest = pc.replace_substring_regex(rest, each, "", max_replacements=1)
            found.append(_each(rest, f"(?s)^.*?(?P<writer>{each})"))
    return found


def _each(names: pa.Array, pattern: str) -> tuple[Keys, Bools]:
    texts = pc.struct_field(pc.extract_regex(names, pattern), "writer")
    is_there = texts.is_valid().to_numpy(zero_copy_only=False)
    plain = pc.replace_substring(pc.fill_null(texts, ""), "-", "")
    return hash_column(plain), is_there


def removals_of(orphans: pa.Table) -> pa.Table:
    """Rows of `removal_rows.LISTED_SCHEMA`, in any order."""
    columns = {
        "step": pa.repeat(STEP, len(orphans)),
        "path": orphans["path"],
        "as_written": orphans["path"],
        "kind": orphans["kind"],
        "size_bytes": orphans["size_bytes"],
        "reason": orphans["reason"],
    }
    rows = pa.table(columns).cast(SCHEMA)
    return rows.append_column(pa.field("modified_ms", pa.int64(), nullable=False), orphans["modified_ms"])

"""The removals of a plan that are files of the table's own, and what is told of the others."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.operation.deletion_probe import soft_folders
from iceberg_cli.operation.removal_files import collect_removals
from iceberg_cli.paths import Roots, common_folders, folder_column, whole_store
from iceberg_cli.plan.plan import Plan, TaggedFiles
from iceberg_cli.plan.removal_rows import total_bytes
from iceberg_cli.storage import ObstructedStorage, Storage

_EXAMPLES = 5
_FOLDERS = 3


def with_own_removals(
    plan: Plan,
    tables: Iterable[pa.Table],
    own: Callable[[pa.Table], pa.Array],
    *,
    storage: Storage,
    roots: Roots,
    locations: Sequence[str],
    left_out: Callable[[Iterator[pa.Table]], Iterator[pa.Table]] = iter,
    takes_roots: bool = True,
    takes_tags: bool = True,
) -> Plan:
    """The plan with those rows that are the table's own, and a warning about the others.

    Those that their storage tags in place of deleting them are counted. Where it does not even do that they are left
    out, with a warning.

    It is blocked where it is known by now that rows of the table's own will not be deleted.

    Args:
        plan: without removals.
        tables: see `removal_files.collect_removals`.
        own: of n rows n booleans: in a folder where this table's files may be deleted, and by their kind.
        storage: where the files are.
        roots: these folders.
        locations: of the table, whole buckets among them.
        left_out: takes rows out that are in these folders and stay for another reason.
        takes_roots: whether the operator can allow folders outside the table's own.
        takes_tags: whether a file that stays with a tag is done with: it is in no later plan.
    """
    stores = [
        store for location in locations if (store := whole_store(location)) not in {None, *roots.folders}
    ]
    in_stores = {store: _ForeignFiles() for store in stores if store is not None}
    outside, misnamed = _ForeignFiles(), _ForeignFiles()
    soft = _SoftlyDeleted(storage=storage)
    folders: set[str] = set()

    def mine() -> Iterator[pa.Table]:
        for rows in tables:
            is_own = own(rows)
            going = rows.filter(is_own)
            if len(going) < len(rows):
                foreign = rows.filter(pc.invert(is_own))
                inside = roots.inside_column(foreign["path"])
                misnamed.add(foreign.filter(inside))
                foreign = foreign.filter(pc.invert(inside))
                for store, files in in_stores.items():
                    in_store = pc.starts_with(foreign["path"], f"{store.rstrip('/')}/")
                    files.add(foreign.filter(in_store))
                    foreign = foreign.filter(pc.invert(in_store))
                outside.add(foreign)
            yield going

    def seen(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for rows in tables:
            folders.update(_local_folders(rows["path"]))
            yield soft.without_untouched(rows)

    removals = collect_removals(seen(left_out(mine())))
    lasting = [_outside(outside, takes_roots=takes_roots)] if outside.count else []
    if misnamed.count:
        lasting.append(
            misnamed.stay(
                "their names have dot segments, or are those of other kinds of files",
                of_one="its name has dot segments, or is that of another kind of file",
            )
        )
    blocked_by = [_in_whole_store(store, files) for store, files in in_stores.items() if files.count]
    blocked_by += _obstacles(storage, folders, takes_roots=takes_roots)
    if soft.option and not takes_tags:
        blocked_by.append(
            f"{soft.option} turns deletions off, by which Iceberg tags files that its tables have done with: those of "
            "this table are found by what is in its folder, and would be found again by each run. Leave that option "
            "away where this table is maintained, or keep its files"
        )
    elif soft.untouched.count:
        lasting.append(soft.untouched_stay())
    plan = replace(plan, blocked_by=(*plan.blocked_by, *blocked_by), tagged=soft.tagged())
    return plan.with_removals(removals, lasting=lasting)


@dataclass(kw_only=True)
class _ForeignFiles:
    """A count of files that a commit removes and that are not the table's to delete.

    Args:
        folders: the deepest ones that contain them, one for each bucket or disk.
    """

    count: int = 0
    size_bytes: int = 0
    examples: list[str] = field(default_factory=list)
    folders: tuple[str, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """Count n rows of `removal_rows.SCHEMA`."""
        if not len(rows):
            return
        self.count += len(rows)
        self.size_bytes = total_bytes(rows["size_bytes"], self.size_bytes)
        spelled = rows["as_written"].slice(0, _EXAMPLES - len(self.examples))
        self.examples.extend(spelled.to_pylist())
        self.folders = common_folders([*self.folders, *pc.unique(folder_column(rows["path"])).to_pylist()])

    @property
    def quantity(self) -> str:
        """Number and size, such as "2 files, 1,024 bytes,"."""
        return f"{self.count:,} file{'s' if self.count > 1 else ''}, {self.size_bytes:,} bytes,"

    def stay(self, reason: str, *, of_one: str, remedy: str = "") -> str:
        """A warning that they stay for ever, for `Plan.lasting`.

        Args:
            reason: why they do.
            of_one: the reason for a single file.
            remedy: what deletes them.
        """
        verb, why = ("stay", reason) if self.count > 1 else ("stays", of_one)
        return f"{self.quantity} that would go {verb} for ever: {why}.{remedy} Such as: {', '.join(self.examples)}"


@dataclass(kw_only=True)
class _SoftlyDeleted:
    """The files that a storage does not delete, since its options turn deletions off.

    Args:
        storage: of the files.
        option: by which deletions are off for some of them; empty: for none.
        count: of those that are tagged.
        size_bytes: of these.
        tags: that they get.
        untouched: those that get no tag either.
    """

    storage: Storage
    option: str = ""
    count: int = 0
    size_bytes: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    untouched: _ForeignFiles = field(default_factory=_ForeignFiles)

    def without_untouched(self, rows: pa.Table) -> pa.Table:
        """Those of n rows of `removal_rows.SCHEMA` that are deleted or tagged, of which the latter are counted."""
        found = soft_folders(self.storage, rows["path"])
        if not found:
            return rows
        self.option = next(iter(found.values())).option
        folder = folder_column(rows["path"])
        for deletion in found.values():
            self.tags |= deletion.tags
        tagged = rows.filter(_is_in(folder, [name for name, each in found.items() if each.tags]))
        self.count += len(tagged)
        self.size_bytes = total_bytes(tagged["size_bytes"], self.size_bytes)
        is_untouched = _is_in(folder, [name for name, each in found.items() if not each.tags])
        self.untouched.add(rows.filter(is_untouched))
        return rows.filter(pc.invert(is_untouched))

    def tagged(self) -> TaggedFiles | None:
        """Those that are tagged; None: there are none."""
        if not self.count:
            return None
        return TaggedFiles(count=self.count, size_bytes=self.size_bytes, tags=self.tags, option=self.option)

    def untouched_stay(self) -> str:
        """That the others stay, in words."""
        reason = f"{self.option}, and no s3.delete.tags are set, by which a lifecycle rule could find"
        return self.untouched.stay(f"{reason} them", of_one=f"{reason} it")


def _is_in(folder: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(folder, value_set=pa.array(names, folder.type))


def _outside(files: _ForeignFiles, *, takes_roots: bool) -> str:
    """That files outside the table stay, in words."""
    folders = _some(files.folders, "places")
    if not takes_roots:
        where = f"outside the table's own folder, in {folders}"
        return files.stay(f"they are {where}", of_one=f"it is {where}")
    named = all(Roots.of([folder]).folders for folder in files.folders)
    allowed = [shlex.quote(folder) for folder in files.folders] if named else ["FOLDER"]
    options = " ".join(f"--unsafe-allow-root {folder}" for folder in allowed)
    where = f"outside the table's own locations, in {folders}, and nothing will reference"
    return files.stay(
        f"they are {where} them any more",
        of_one=f"it is {where} it any more",
        remedy=f" `{options}` deletes {'them' if files.count > 1 else 'it'}.",
    )


def _in_whole_store(store: str, files: _ForeignFiles) -> str:
    """Why files of a table are not deleted whose location is a whole bucket or disk."""
    if store == "/":
        return f"the table's location is a whole disk, where none is deleted: {files.quantity} would stay for ever"
    return (
        f"the table's location is all of {store}, and others may have files there: {files.quantity} go only with "
        f"--unsafe-allow-root {store}"
    )


def _obstacles(storage: Storage, folders: Iterable[str], *, takes_roots: bool) -> list[str]:
    """Why files in some local folders cannot be deleted, as far as that is known before it is tried."""
    if not isinstance(storage, ObstructedStorage):
        return []
    obstacles = storage.obstacles(sorted(folders))
    closed = [folder for folder, obstacle in obstacles.items() if obstacle.target is None]
    reasons = (
        [f"files in {_some(closed, 'folders')} cannot be deleted: {obstacles[closed[0]].reason}"]
        if closed
        else []
    )
    links = {
        obstacle.reason: obstacle.target for obstacle in obstacles.values() if obstacle.target is not None
    }
    for reason, target in links.items():
        allow = f"--unsafe-allow-root {shlex.quote(target)} allows that, or " if takes_roots else ""
        reasons.append(f"files cannot be deleted: {reason}; {allow}mount {target} there instead of the link")
    return reasons


def _some(names: Sequence[str], noun: str) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _FOLDERS
    return ", ".join(names[:_FOLDERS]) + (f" and {more:,} more {noun}" if more > 0 else "")


def _local_folders(paths: pa.ChunkedArray) -> list[str]:
    """The folders of the local paths among n canonical ones, each once."""
    local = paths.filter(pc.starts_with(paths, "/"))
    folders: list[str] = pc.unique(folder_column(local)).to_pylist() if len(local) else []
    return folders

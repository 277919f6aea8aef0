"""remove-orphan-files: the plan, from a listing of the table's folders and the names of all that the table reaches.

The listing ends before the pointer is read: what is committed meanwhile is reached by then. A plan that takes the place
of another one looks only at what that one lists, so nothing is listed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools, array_of
from iceberg_cli.encoding.external_sort import SortedRuns
from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.errors import BackendUnavailable, CorruptFile, Refused, StalePlan, UsageError
from iceberg_cli.iceberg.reachability.keys import NO_KEYS, keys_of
from iceberg_cli.iceberg.reachability.names import ListedFolders, ListedPaths, name_keys
from iceberg_cli.iceberg.spec.table_metadata.history import interlock_of
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.unknown_metadata import FORGET_METADATA, forgotten_metadata
from iceberg_cli.iceberg.verbs.remove_orphan_files import rules
from iceberg_cli.iceberg.verbs.remove_orphan_files.policy import VERB_NAME, RemoveOrphanFiles
from iceberg_cli.iceberg.verbs.remove_orphan_files.rules import Keys, OrphanSearch, Reached
from iceberg_cli.operation.apply import rows_left
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.paths import file_name_column, path_key_column, scheme_of
from iceberg_cli.plan.alarm import LEAST_FILES, share_alarm
from iceberg_cli.plan.listed_files import STORED_FILES, partition_folders
from iceberg_cli.plan.plan import ListedFiles, Option, Plan, Step
from iceberg_cli.plan.removal_rows import KINDS, LISTED_SCHEMA, ORPHAN_FILE
from iceberg_cli.plan.removals import MEMORY_ROWS, PART_ROWS
from iceberg_cli.plan.text import count
from iceberg_cli.storage.aliases import OtherNames
from iceberg_cli.table.inventories import newest_each, open_inventory
from iceberg_cli.table.listings import Listing, listed_in

_LATE_MS: Final = 2 * rules.DAY_MS  # services deliver inventories so late
_LOOKED_UP: Final = 10_000  # files that a listing lacks
_OTHER_FORMATS: Final = ((".hoodie",), ("snapshot", "schema"))  # folders of Hudi and of Paimon
_TABLE_BUCKET: Final = "--table-s3"  # ends the names of buckets that are of one table of S3 Tables
_ENCRYPTED: Final = "encryption.key-id"
_CLOCK_MS: Final = 1_000  # some storages tell a file's time to the second where it is asked for alone


class RemoveOrphanFilesVerb(Verb):
    """Deletes files that nothing names."""

    name: Final = VERB_NAME
    policy: Final = RemoveOrphanFiles
    result_columns: Final = (f"deleted_{ORPHAN_FILE}s_count", f"deleted_{rules.METADATA_FILE}s_count")

    def plan(
        self,
        table: IcebergTable,
        policy: RemoveOrphanFiles,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan with its removals.

        Raises:
            UsageError: the policy makes no sense. StalePlan: the table's folders changed while they were listed.
            CorruptFile: something that must be read cannot be read whole, or a file that the table reaches is gone.
            BackendUnavailable: the listing lacks a file that is there.
        """
        cut_ms = rules.cut_off(policy, as_of_ms=as_of_ms)
        where = _looked_through(table, policy)
        if within is not None:
            found = _shown(within)
        else:
            found = _found(table, policy, where.folders, cut_ms, as_of_ms=as_of_ms)
        table.load()
        if _looked_through(table, policy) != where:
            raise StalePlan(
                f"Cannot go on: the folders of {table.name} changed while they were listed",
                state="No file was deleted.",
            )
        forgotten = table.forget_metadata
        if within is not None:
            forgotten |= forgotten_metadata(within)
        table.beside.check_forgotten(table.forget_metadata)
        listed = None if within is not None else ListedFolders(folders=where.folders, names=found.names)
        before_ms = None if found.inventory_ms is None else found.inventory_ms - _LATE_MS
        now = table.names.now(listed, checked_before_ms=before_ms, forgotten=forgotten)
        _check_listed(table, now.own.listed.unlisted, where.folders)
        search = OrphanSearch(
            folders=where.folders,
            shown=_partition_folders(table),
            cut_ms=found.cut_ms,
            reached=_reached(table, folders=found.folders, forgotten=forgotten),
            writers=found.writers,
            metadata_files=policy.metadata_files,
        )
        plan = Plan(
            verb=VERB_NAME,
            table=table.describe(),
            base=table.base(),
            as_of_ms=as_of_ms,
            options=self.options(table, policy, as_of_ms=as_of_ms),
            policy=policy.to_json(),
            grace_ms=policy.grace_ms,
            listed=ListedFiles(
                files=found.listing.files,
                size_bytes=found.listing.size_bytes,
                folders=where.folders,
                inventory_ms=found.inventory_ms,
            ),
        )
        plan = table.with_found(
            plan, _in_delete_order(search.orphans(files) for files in found.listing.tables())
        )
        plan = replace(
            plan,
            verdicts=(*search.verdicts(), *plan.verdicts),
            warnings=(
                *plan.warnings,
                *search.kept_beside(FORGET_METADATA),
                *_elsewhere(now.own.listed, where.elsewhere),
            ),
        )
        removals = plan.removals
        assert removals is not None
        if removals.count:
            plan = replace(plan, steps=(Step(name=rules.STEP),), reason=count(removals.count, "files"))
            obstacles = [*_obstacles(table)]
            if within is None and not policy.unsafe_accept_alarm and removals.count >= LEAST_FILES:
                sums = found.listing.files, found.listing.size_bytes
                much = share_alarm(removals.count, sums[0], removals.size_bytes, sums[1])
                obstacles += [] if much is None else [much]
            plan = replace(plan, blocked_by=(*plan.blocked_by, *obstacles))
        return Planned(plan=table.checked(plan, deletes=True))

    def options(
        self, table: IcebergTable, policy: RemoveOrphanFiles, *, as_of_ms: int
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return {
            **super().options(table, policy, as_of_ms=as_of_ms),
            "older_than_ms": rules.cut_off(policy, as_of_ms=as_of_ms),
        }

    def unreached(self, table: IcebergTable, rows: pa.Table, *, plan: Plan) -> Bools:
        """Which of n files nothing reaches by name, looked at now, and are as they were listed; see `Verb`.

        Raises:
            Refused: no file may be deleted by its name alone any more.
        """
        table.load()
        if reasons := [*_obstacles(table)]:
            raise Refused("; ".join(reasons))
        paths = rows["path"].cast(pa.string()).combine_chunks()
        own = name_keys(paths)
        reached = _reached(table, folders=(), forgotten=forgotten_metadata(plan), besides=VERB_NAME)
        of_operations, beside = reached.holding(file_name_column(paths), own)
        stays = reached.names(own) | of_operations
        for mask in beside.values():
            stays |= mask
        infos = table.storage.stat_many(paths.to_pylist())
        listed = zip(infos, rows["size_bytes"].to_pylist(), rows["modified_ms"].to_pylist(), strict=True)
        unchanged = np.array(
            [
                info is None  # whoever deleted it did what is to be done
                or (info.size_bytes == size and abs(info.modified_ms - modified_ms) < _CLOCK_MS)
                for info, size, modified_ms in listed
            ],
            np.bool_,
        )
        gone: Bools = ~stays & unchanged
        return gone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is there.

    Args:
        listing: of the folders that are looked through.
        names: keys of the names of all files, sorted.
        writers: see `rules.writers_of`.
        folders: canonical folders of local files.
        cut_ms: what was written at or after it stays.
        inventory_ms: when the inventory was made that it is from, at the latest, in ms since the epoch.
    """

    listing: Listing
    names: Keys
    writers: Keys
    folders: Sequence[str]
    cut_ms: int
    inventory_ms: int | None = None


def _looked_through(table: IcebergTable, policy: RemoveOrphanFiles) -> rules.LookedThrough:
    allowed = [table.storage.canonical(folder).rstrip("/") for folder in table.allow_roots]
    return rules.looked_through(table.location, table.properties(), policy.location, allowed=allowed)


def _found(
    table: IcebergTable, policy: RemoveOrphanFiles, folders: Sequence[str], cut: Option, *, as_of_ms: int
) -> _Found:
    """List the folders, or take what an inventory has of them."""
    cut_ms, made_ms = int(cut.value), None
    if policy.inventory is None:
        tables = listed_in(table.storage, folders, table.on_event)
    else:
        inventory = open_inventory(table.storage, policy.inventory)
        tables, made_ms = (_in_folders(files, folders) for files in inventory.files), inventory.made_ms
    listing = Listing()
    newest_ms = 0
    names, keys, own_folders = [NO_KEYS], [NO_KEYS], set[str]()
    for files in tables:
        listing.add(files)
        paths = files["path"].combine_chunks()
        names.append(name_keys(paths))
        keys.append(hash_column(paths))
        newest_ms = max(newest_ms, pc.max(files["modified_ms"]).as_py() or 0)
        if table.reachability.other_names is not None:
            own_folders.update(table.reachability.other_names.folders(paths))
    inventory_ms = None
    if policy.inventory is None:
        if len(np.unique(np.concatenate(keys))) < listing.files:
            raise _unlike(table, "the listing of its folders has a file twice, so it may lack another one")
    else:
        if not listing.files:
            raise UsageError(
                f"Cannot use the inventory {policy.inventory}: it has no file in {', '.join(folders)}",
                next_step="Name one of the table's own bucket and folder.",
            )
        # Ages count from the time of the inventory: at the earliest that of the newest file in it.
        inventory_ms = min(as_of_ms, newest_ms if made_ms is None else made_ms)
        cut_ms -= as_of_ms - inventory_ms
        listing = _each_once(listing, np.concatenate(keys))
    writers = [rules.writers_of(files, cut_ms=cut_ms) for files in listing.tables()]
    return _Found(
        listing=listing,
        names=np.unique(np.concatenate(names)),
        writers=np.unique(np.concatenate([NO_KEYS, *writers])),
        folders=sorted(own_folders),
        cut_ms=cut_ms,
        inventory_ms=inventory_ms,
    )


def _in_folders(files: pa.Table, folders: Sequence[str]) -> pa.Table:
    inside = pa.repeat(value=False, size=len(files))
    for folder in folders:
        inside = pc.or_(inside, pc.starts_with(files["path"], f"{folder}/"))
    return files.filter(inside)


def _each_once(listing: Listing, keys: Keys) -> Listing:
    """The files of an inventory each once, as they were written last.

    Args:
        listing: of n files.
        keys: hashes of their paths.
    """
    ordered = np.sort(keys)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return listing
    found, several = Listing(), [STORED_FILES.empty_table()]
    for files in listing.tables():
        is_several = array_of(among(hash_column(files["path"].combine_chunks()), twice))
        several.append(files.filter(is_several))
        found.add(files.filter(pc.invert(is_several)))
    found.add(newest_each(pa.concat_tables(several)))
    return found


def _shown(within: Plan) -> _Found:
    """The files that an earlier plan shows: whether they are reached is what has to be looked at again."""
    assert within.removals is not None
    assert within.listed is not None
    rows = within.removals.rows
    listing = Listing()
    columns = {name: rows[name].cast(STORED_FILES.field(name).type) for name in STORED_FILES.names}
    listing.add(pa.table(columns, schema=STORED_FILES))
    cut_ms = 1 + int(pc.max(rows["modified_ms"]).as_py() or 0)
    return _Found(
        listing=replace(listing, files=within.listed.files, size_bytes=within.listed.size_bytes),
        names=NO_KEYS,
        writers=NO_KEYS,
        folders=(),
        cut_ms=cut_ms,
        inventory_ms=within.listed.inventory_ms,
    )


def _partition_folders(table: IcebergTable) -> list[str]:
    """With what folders of partition values begin whose names would hide them."""
    specs = table.metadata.partition_specs
    return partition_folders(sorted({field.name for spec in specs for field in spec.fields}))


def _reached(
    table: IcebergTable, *, folders: Sequence[str], forgotten: frozenset[str], besides: str = ""
) -> Reached:
    """What stays of a table as it was loaded last.

    Args:
        table: of which it is.
        folders: local ones that were listed.
        forgotten: names of metadata files beside the table's own that no table needs.
        besides: the verb whose own operations keep no file.
    """
    now = table.names.now(forgotten=forgotten)
    names = now.own.names
    links, targets = _links(table, {*folders, *now.own.folders})
    operations, waiting = _open_operations(table, besides=besides)
    led_to = np.sort(name_keys(pa.array(targets, pa.string())))

    def reaches(keys: Keys) -> Bools:
        found: Bools = names.contains(keys) | np.isin(keys, led_to)
        return found

    superseded = [info.path for info in table.beside.superseded()]
    return Reached(
        names=reaches,
        paths=now.own.paths.contains,
        beside={name: keys.contains for name, keys in now.beside.items()},
        operations=operations,
        waiting=waiting,
        links=_path_keys(links),
        superseded=_path_keys(superseded),
    )


def _path_keys(paths: Sequence[str]) -> Keys:
    array = pa.array(paths, pa.string())
    return np.sort(keys_of(array))


def _links(table: IcebergTable, folders: set[str]) -> tuple[list[str], list[str]]:
    """The symbolic links in local folders, and what they lead to."""
    names: OtherNames | None = table.reachability.other_names
    if names is None:
        return [], []
    links = names.links_in(sorted(folder for folder in folders if scheme_of(folder) == "file"))
    return links, names.targets_of(links)


def _open_operations(table: IcebergTable, *, besides: str) -> tuple[list[str], Keys]:
    """The marks of open operations, and keys of the names of files that they are still to delete, sorted.

    Raises:
        CorruptFile: that cannot be read of one.
    """
    marks, waiting = list[str](), [NO_KEYS]
    for operation_id in table.workspace.open_operations():
        journal = table.workspace.journal(operation_id)
        operation = journal.operation()
        if operation is None or operation.closed is not None or operation.verb == besides:
            continue
        marks += journal.marks()
        for removals, rows in rows_left(journal, operation):
            waiting.append(name_keys(removals.read_rows(rows)["path"].cast(pa.string())))
    return marks, np.unique(np.concatenate(waiting))


def _check_listed(table: IcebergTable, unlisted: pa.Array, folders: Sequence[str]) -> None:
    """Refuse a listing that does not have a file that the table reaches.

    Local files behind a link to a folder are in no listing: they are neither looked for nor deleted.

    Args:
        table: as loaded.
        unlisted: paths of such files, as they are written.
        folders: that were looked through.

    Raises:
        BackendUnavailable: one is there, so the listing lies. CorruptFile: one is gone, so the table is broken.
    """
    names: OtherNames | None = table.reachability.other_names
    if names is not None and len(unlisted):
        unlisted = unlisted.filter(_without_links(names, path_key_column(unlisted), folders))
    if not len(unlisted):
        return
    some = unlisted.slice(0, _LOOKED_UP).to_pylist()
    infos = table.storage.stat_many([table.storage.canonical(path) for path in some])
    there = [path for path, info in zip(some, infos, strict=True) if info is not None]
    more = f", nor {count(len(unlisted) - 1, 'others')} that it reaches" if len(unlisted) > 1 else ""
    if there:
        raise _unlike(
            table,
            f"the table reaches {there[0]}, it is there, and the listing of its folder does not have it{more}",
        )
    raise CorruptFile(some[0], None, f"the table needs this file and it is not there{more}")


def _without_links(names: OtherNames, keys: pa.Array, folders: Sequence[str]) -> pa.Array:
    """Which of n local files are behind no link to a folder, but for links on the way to the folder looked through.

    Args:
        names: of local files.
        keys: path keys of n files, each in one of the folders.
        folders: that were looked through.

    Returns:
        n booleans.
    """
    resolved = names.resolved(keys)
    found = pc.equal(resolved, keys)
    for folder in folders:
        real = names.resolved(pa.array([f"{folder}/file"]))[0].as_py().rpartition("/")[0]
        moved = pc.binary_join_element_wise(real, pc.utf8_slice_codeunits(keys, len(folder)), "")
        found = pc.or_(found, pc.and_(pc.starts_with(keys, f"{folder}/"), pc.equal(resolved, moved)))
    return found


def _unlike(table: IcebergTable, why: str) -> BackendUnavailable:
    """The error where a listing is not as the folders are."""
    error = BackendUnavailable(f"Cannot look for orphan files of {table.name}: {why}")
    error.state = "No file was deleted."
    error.next_step = "Run it again; where it stays so, this storage, or the inventory, cannot be gone by."
    return error


def _elsewhere(listed: ListedPaths, properties: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What was not looked through."""
    if listed.outside:
        yield (
            f"{listed.outside:,} files that the table reaches are outside the folders that were looked through, in "
            f"{', '.join(listed.outside_folders[:3])}; --location looks there too"
        )
    for name, value in properties:
        yield f"table property {name}={value} is no folder inside the table's location: it was not looked through"


def _obstacles(table: IcebergTable) -> Iterator[str]:
    """Why no file of a table may be deleted by its name alone."""
    if (reason := interlock_of(table.metadata)) is not None:
        yield reason
    if _ENCRYPTED in table.metadata.properties:
        yield f"table property {_ENCRYPTED}: key files of an encrypted table are named by nothing that is read here"
    folder = table.storage.canonical(table.location).rstrip("/")
    others = sorted({name for names in _OTHER_FORMATS for name in names})
    there = table.storage.subfolders_many([folder], others)[0]
    for names in _OTHER_FORMATS:
        if there.issuperset(names):
            yield f"{folder}/{names[0]}: a table of another format has its log, and its files, in the same folder"
    if folder.partition("://")[2].partition("/")[0].endswith(_TABLE_BUCKET):
        yield "the bucket is one of S3 Tables, which removes unreferenced files itself (unreferencedDays)"


def _in_delete_order(orphans: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Rows as `collect_removals` takes them: all in one table where they are few, else sorted by a file on disk."""
    held: list[pa.Table] = []
    runs: SortedRuns | None = None
    for found in orphans:
        rows = rules.removals_of(found)
        if runs is None:
            held.append(rows)
            if sum(map(len, held)) <= MEMORY_ROWS:
                continue
            runs, rows = SortedRuns(("rank", "path"), rows=PART_ROWS), pa.concat_tables(held)
            held.clear()
        rank = pc.index_in(rows["kind"].cast(pa.string()), value_set=pa.array(KINDS)).cast(pa.int64())
        runs.add(rows.append_column("rank", rank))
    if runs is not None:
        yield from (rows.drop_columns(["rank"]) for rows in runs.merged())
    else:
        yield pa.concat_tables([LISTED_SCHEMA.empty_table(), *held])


VERB: Final = RemoveOrphanFilesVerb()

"""The files that versions of a Delta table still need, for a plan and again right before each deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.log_reader import DeltaLog, source_of
from iceberg_cli.delta.ownership import LOG_KINDS
from iceberg_cli.delta.spec.actions import Actions, combine
from iceberg_cli.delta.spec.checkpoints.checkpoint import sidecar_sizes
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.delta.spec.log import Checkpoint, Listing, LogFile, commits_between
from iceberg_cli.delta.spec.log_cleanup import (
    expired_files,
    expired_sidecars,
    protected,
)
from iceberg_cli.delta.spec.paths import dv_path_column, physical_column
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vacuum import FILES, hidden, hides_metadata, live_keys, removed_keys, strings
from iceberg_cli.encoding.string_hash import Hashes, among, hash_column
from iceberg_cli.engines import Scan
from iceberg_cli.errors import CorruptFile, Refused, TableNotFound, UsageError
from iceberg_cli.paths import path_key_column, scheme_of
from iceberg_cli.plan.plan import Plan
from iceberg_cli.storage.aliases import OtherNames
from iceberg_cli.table.listings import find_files


@dataclass(frozen=True)
class KeySet:
    """A set of strings, some of them perhaps more than once.

    A look that finds nothing takes time by what is asked for, and hardly by the size of the set: hashes of its strings
    are kept in order, 8 bytes for each.
    """

    keys: pa.ChunkedArray

    def contains(self, request: pa.Array) -> pa.Array:
        """Which of n strings are in the set."""
        if not len(self.keys) or not len(request):
            return pa.repeat(value=False, size=len(request))
        same_hash = pa.array(among(hash_column(request), self._hashes))
        if not same_hash.true_count:
            return same_hash
        # Of equal hashes the strings themselves are compared, which takes time by the size of the set.
        found = pc.is_in(request.filter(same_hash), value_set=self.keys)
        return pc.replace_with_mask(same_hash, same_hash, found)

    @cached_property
    def _hashes(self) -> Hashes:
        return np.sort(hash_column(self.keys))


# A line that has none of these names no file that a commit removed: JSON may spell a letter by its number.
_MARKS: Final = (b'"remove"', b'"cdc"', b"\\u00")


def removed_between(log: DeltaLog, first: int, last: int, *, listing: Listing) -> Actions:
    """The removes and change data of the commits from `first` to `last`, both included; few of the other actions.

    Lines are picked by their text, and those that are picked are read as strictly as all others.

    Raises:
        CorruptFile: a commit is missing, or one of its lines damaged.
    """
    return removed_by(log, commits_between(listing, log.folder, first, last))


def removed_by(log: DeltaLog, files: Sequence[LogFile]) -> Actions:
    """The same of some commits that were listed, by version.

    Raises:
        CorruptFile: a commit is gone, or one of its lines damaged.
    """
    parts = log.engine.scan(
        Scan(source_of, _removing, _parse, phase="read commits"), files, on_event=log.on_event
    )
    found = [part for part in parts if part is not None]
    return combine(found) if found else Actions()


def young_commits(listing: Listing, *, cut_ms: int) -> tuple[LogFile, ...]:
    """The commits in the log that are of the cut-off's time or later, by their files; the last ones of all."""
    times = listing.commit_times_ms()
    return tuple(file for file in listing.commits if times[file.version] >= cut_ms)


def goes_back_to(listing: Listing, cut_ms: int) -> bool:
    """Whether the log has every commit of a time or later."""
    young = young_commits(listing, cut_ms=cut_ms)
    first = young[0].version if young else listing.latest + 1
    before = first == 0 or any(file.version == first - 1 for file in listing.commits)
    return before and len(young) == listing.latest + 1 - first


def lite_range(*, vacuumed_to: int | None, first: int, newest: int, expired_to: int | None) -> range:
    """The commits whose removed files a lite VACUUM looks at.

    Args:
        vacuumed_to: `latestCommitVersionOutsideOfRetentionWindow` of the VACUUM before, if it left one.
        first: the oldest commit that is there.
        newest: the table's version.
        expired_to: the newest commit at or before the cut-off; None if there is none.

    Raises:
        Refused: commits that nobody has looked at are gone, so files would be missed (DELTA_CANNOT_VACUUM_LITE).
    """
    if expired_to is None:
        return range(0)
    if first != 0 and (vacuumed_to is None or vacuumed_to < first):
        seen = (
            "no VACUUM left a record"
            if vacuumed_to is None
            else f"the last VACUUM looked up to {vacuumed_to}"
        )
        raise Refused(
            f"Cannot vacuum in lite mode: the log begins with version {first}, and {seen}, so files that were "
            "removed before it would be missed",
            next_step="--mode full lists the table's files instead.",
        )
    start = min(newest, first if vacuumed_to is None else vacuumed_to + 1)
    return range(start, expired_to + 1)


def named_paths(actions: Actions, *, root: str) -> pa.Array:
    """The paths of files that commits removed, of their DV files, and of change data; each once.

    Args:
        actions: of a range of commits.
        root: the table's folder.
    """
    removes = actions.removes
    columns = (
        physical_column(removes["path"], root),
        dv_path_column(removes, root).drop_null(),
        physical_column(actions.cdc["path"], root),
    )
    return pc.unique(pa.concat_arrays([strings(column) for column in columns]))


def oldest_of(actions: Actions, keys: pa.Array, *, root: str) -> int | None:
    """The oldest commit that removed one of some files, or wrote it as change data; None where none did.

    Args:
        actions: of a range of commits.
        keys: path keys of the files.
        root: the table's folder.
    """
    removes, cdc = actions.removes, actions.cdc
    named = (
        (physical_column(removes["path"], root), actions.remove_versions),
        (dv_path_column(removes, root), actions.remove_versions),
        (physical_column(cdc["path"], root), actions.cdc_versions),
    )
    versions = []
    for column, of_rows in named:
        paths = strings(column)
        named_keys = path_key_column(paths.drop_null())
        versions.append(
            pa.array(of_rows).filter(pc.is_valid(paths)).filter(pc.is_in(named_keys, value_set=keys))
        )
    oldest: int | None = pc.min(pa.concat_arrays(versions)).as_py()
    return oldest


def _removing(_file: LogFile, data: bytes) -> bytes:
    """The lines that may name a removed file; searched as one text, because few lines do."""
    lines = set()
    for mark in _MARKS:
        at = data.find(mark)
        while at >= 0:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            lines.add((data.rfind(b"\n", 0, at) + 1, end))
            at = data.find(mark, end)
    return b"\n".join([data[start:end] for start, end in sorted(lines)])


def _parse(files: Sequence[tuple[LogFile, bytes | None]]) -> Actions | None:
    commits = []
    for file, lines in files:
        if lines is None:
            raise CorruptFile(file.path, None, "the commit was listed and is gone")
        if lines:
            commits.append(CommitBytes(file.path, file.version, lines))
    return parse_commits(commits) if commits else None


VERSION_STEP: Final = "log cleanup"
SIDECAR_STEP: Final = "sidecar cleanup"
CUT_OPTION: Final = "older_than_ms"  # of a plan: files removed or written from then on stay
KEPT_OPTION: Final = "oldest_checkpoint"  # of a plan: the version of the oldest checkpoint that stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemovedFiles:
    """The files removed by commits since a cut-off: their path keys, and the commits read for it."""

    snapshot: Snapshot
    cut_ms: int
    keys: KeySet
    commits: frozenset[LogFile]


class IcebergReachability(Protocol):
    """The files reachable from Iceberg metadata in a Delta table's folder: of UniForm, or of a table of its own."""

    def tables(self) -> Mapping[str, str]:
        """The newest metadata file of each Iceberg table, by its UUID."""
        ...

    def reachable(self, keys: pa.Array) -> pa.Array:
        """Which of n path keys are of files that one of these tables reaches.

        Raises:
            Refused: that cannot be told.
        """
        ...


@dataclass(kw_only=True)
class DeltaReachability:
    """The reachable files of a table, remembered for as long as its newest snapshot names the same files.

    Args:
        log: of the table.
        iceberg: what Iceberg metadata in the table's folder reaches.
    """

    log: DeltaLog
    iceberg: IcebergReachability
    _live: tuple[Snapshot, int, KeySet] | None = None
    _removed: _RemovedFiles | None = None

    def reachable(self, snapshot: Snapshot, keys: pa.Array, *, cut_ms: int) -> pa.Array:
        """Which of n path keys are of files that are needed, by the table or by Iceberg metadata in its folder.

        Raises:
            Refused: what that metadata reaches cannot be told.
        """
        live, removed = self._needed(snapshot, cut_ms)
        return pc.or_(pc.or_(live.contains(keys), removed.contains(keys)), self.iceberg.reachable(keys))

    def metadata_hidden(self, snapshot: Snapshot) -> bool:
        """Whether the folder `metadata` is another's: UniForm's, or that of an Iceberg table."""
        return hides_metadata(snapshot.metadata.configuration) or bool(self.iceberg.tables())

    def _needed(self, snapshot: Snapshot, cut_ms: int) -> tuple[KeySet, KeySet]:
        """The path keys of `reachable_keys`, and of files that commits removed since the cut-off.

        A checkpoint drops tombstones by the retention of its day, and a tombstone tells the clock of its writer; a
        commit that is there tells what it removed whatever became of these. What commits removed that are gone from
        the log, the tombstones of the state alone tell.

        Spec: "Action Reconciliation", "Add CDC File".
        """
        removed = self._removed_since(snapshot, cut_ms)
        known = self._live
        if known is not None and known[1] == cut_ms and _same_files(known[0], snapshot):
            found = known[2]
        else:
            known = self._live = None  # the memory of both is not needed at once
            found = KeySet(reachable_keys(self.log, snapshot, cut_ms=cut_ms))
        self._live = (snapshot, cut_ms, found)
        return found, removed

    def _removed_since(self, snapshot: Snapshot, cut_ms: int) -> KeySet:
        """The path keys of files that commits removed since the cut-off; each commit is read once."""
        known = self._removed
        if known is None or known.cut_ms != cut_ms:
            none = KeySet(pa.chunked_array([], pa.string()))
            known = _RemovedFiles(snapshot=snapshot, cut_ms=cut_ms, keys=none, commits=frozenset())
        elif known.snapshot is snapshot:
            return known.keys
        young = young_commits(snapshot.listing, cut_ms=cut_ms)
        keys = known.keys
        if unread := [file for file in young if file not in known.commits]:
            more = removed_keys(removed_by(self.log, unread), root=self.log.root)
            every = [*keys.keys.chunks, *_by_all_names(self.log, more).chunks]
            keys = KeySet(pa.chunked_array(every, pa.string()))
        self._removed = _RemovedFiles(snapshot=snapshot, cut_ms=cut_ms, keys=keys, commits=frozenset(young))
        return keys

    def deletable(self, snapshot: Snapshot, request: pa.Table, plan: Plan) -> pa.Array:
        """Of n files, whether each is unreachable now, by the rules of the plan and as of its time.

        Args:
            snapshot: the newest.
            request: columns of `removal_rows.SCHEMA`.
            plan: that was shown, with its cut-offs among its options.

        Returns:
            n booleans.

        Raises:
            CorruptFile: what would have to be kept cannot be read whole.
        """
        paths = strings(request["path"])
        steps = strings(request["step"])
        in_log = pc.is_in(strings(request["kind"]), value_set=pa.array(LOG_KINDS))
        going = [self._unneeded(snapshot, paths.filter(pc.invert(in_log)), plan)]
        for step, expired in ((VERSION_STEP, _expired_versions), (SIDECAR_STEP, _expired_sidecars)):
            mine = paths.filter(pc.and_(in_log, pc.equal(steps, step)))
            if len(mine):
                found = strings(expired(self.log, snapshot, plan)["path"])
                going.append(mine.filter(pc.is_in(mine, value_set=found)))
        return pc.is_in(paths, value_set=pa.concat_arrays(going))

    def _unneeded(self, snapshot: Snapshot, paths: pa.Array, plan: Plan) -> pa.Array:
        """Those of the paths outside the log that may go."""
        if not len(paths):
            return paths
        root = self.log.root
        inside = paths.filter(pc.starts_with(paths, f"{root}/"))
        unseen = hidden(
            pc.utf8_slice_codeunits(inside, len(root) + 1),
            partition_columns=snapshot.metadata.partition_columns,
            metadata=self.metadata_hidden(snapshot),
        )
        cut_ms = int(plan.options[CUT_OPTION].value)
        keys = path_key_column(inside)
        needed = self.reachable(snapshot, keys, cut_ms=cut_ms)
        unneeded = inside.filter(pc.invert(pc.or_(unseen, needed)))
        # A writer can put a file back long before it commits it, and an inventory can be wrong about ages.
        there = find_files(self.log.storage, unneeded)
        young = there["path"].filter(pc.greater_equal(there["modified_ms"], cut_ms))
        return unneeded.filter(pc.invert(pc.is_in(unneeded, value_set=strings(young))))


def _same_files(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots name the same files, removed at the same times, which all tombstones have."""
    if one is other:
        return True
    names = ["path", "deletionVector"]
    removes = [snapshot.removes.select([*names, "deletionTimestamp"]) for snapshot in (one, other)]
    return (
        not removes[0]["deletionTimestamp"].null_count
        and bool(removes[0].equals(removes[1]))
        and bool(one.adds.select(names).equals(other.adds.select(names)))
    )


def _expired_versions(log: DeltaLog, snapshot: Snapshot, plan: Plan) -> pa.Table:
    """The files of versions before the oldest checkpoint that stays, if that is there and can be read."""
    kept_version = plan.options[KEPT_OPTION].value
    if type(kept_version) is not int or protected(snapshot, kept_version):
        return FILES.empty_table()
    if not readable(log, snapshot.listing, kept_version):
        return FILES.empty_table()
    return expired_files(snapshot.listing, kept_version)


def _expired_sidecars(log: DeltaLog, snapshot: Snapshot, plan: Plan) -> pa.Table:
    """The sidecars that no checkpoint names which is there now."""
    listing = snapshot.listing
    checkpoints = (*listing.checkpoints, *listing.damaged)
    return expired_sidecars_of(log, listing, checkpoints, as_of_ms=plan.as_of_ms)


# -- what is needed --------------------------------------------------------------------------------------------


def reachable_keys(log: DeltaLog, snapshot: Snapshot, *, cut_ms: int) -> pa.ChunkedArray:
    """The path keys of a snapshot's reachable files, by every name that links to local folders give them."""
    commit_ms = commit_times_of_removes(log, snapshot)
    return _by_all_names(log, live_keys(snapshot, root=log.root, cut_ms=cut_ms, commit_ms=commit_ms))


def _by_all_names(log: DeltaLog, keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Path keys, the same by every other name that links to local folders give them, and what links stand for."""
    if scheme_of(log.root) != "file":
        return keys
    names = OtherNames([log.root])
    others = [
        strings(other)
        for chunk in keys.chunks
        for other in (*names.of(chunk), names.behind_links(strings(chunk)))
    ]
    return pa.chunked_array([*keys.chunks, *others], pa.string())


def commit_times_of_removes(log: DeltaLog, snapshot: Snapshot) -> pa.Array | None:
    """For each tombstone the time of its commit, null where it came from a checkpoint; None where none is asked for.

    Of a log compaction's tombstones, whose commits are not known, it is the last commit that counts.
    """
    removes = snapshot.removes
    if not removes["deletionTimestamp"].null_count:
        return None
    checkpoint = snapshot.segment.checkpoint
    listing = snapshot.listing
    first = -1 if checkpoint is None else checkpoint.version
    times = {version: time_ms for version, time_ms in listing.commit_times_ms().items() if version > first}
    if times:
        times |= _in_commit_times(log.commits(first + 1, max(times), listing=listing))
    return pa.array([times.get(version) for version in snapshot.remove_versions.tolist()], pa.int64())


def _in_commit_times(actions: Actions) -> dict[int, int]:
    """The in-commit timestamps of commits that have one, by version."""
    timestamps = {version: info.get("inCommitTimestamp") for version, info in actions.commit_infos}
    return {version: time_ms for version, time_ms in timestamps.items() if type(time_ms) is int}


def named_vectors(snapshot: Snapshot, root: str) -> frozenset[str]:
    """The paths of the deletion vector files that an add or a tombstone of the table names."""
    columns = (dv_path_column(files, root) for files in (snapshot.adds, snapshot.removes))
    return frozenset(path for column in columns for path in column.to_pylist() if path is not None)


def readable(log: DeltaLog, listing: Listing, version: int) -> bool:
    """Whether a listed checkpoint of a version gives the table as it was then.

    Raises:
        BackendUnavailable: that cannot be told.
    """
    try:
        found = log.snapshot(version, listing=listing)
    except (CorruptFile, Refused, TableNotFound, UsageError):
        return False
    checkpoint = found.segment.checkpoint
    return checkpoint is not None and checkpoint.version == version


def expired_sidecars_of(
    log: DeltaLog, listing: Listing, checkpoints: Sequence[Checkpoint], *, as_of_ms: int
) -> pa.Table:
    """The sidecars that none of some checkpoints names, if they are old enough.

    Raises:
        CorruptFile: one of the checkpoints cannot be read, so what it names is not known.
    """
    if not expired_sidecars(listing, frozenset(), as_of_ms=as_of_ms).num_rows:
        return FILES.empty_table()
    named: set[str] = set()
    for checkpoint in checkpoints:
        for file in checkpoint.files:
            try:
                data = log.storage.read(file.path)
            except FileNotFoundError:
                raise CorruptFile(file.path, None, "the checkpoint was listed and is gone") from None
            named.update(sidecar_sizes(file.path, file.version, data, folder=log.folder))
    return expired_sidecars(listing, named, as_of_ms=as_of_ms)

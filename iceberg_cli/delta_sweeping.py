"""What a Delta table needs of its files: looked up for a plan, and again right before each deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.actions import Actions
from iceberg_cli.delta.hidden import hidden, hides_metadata
from iceberg_cli.delta.key_set import KeySet
from iceberg_cli.delta.log import LogFile
from iceberg_cli.delta.log_cleanup import expired_files
from iceberg_cli.delta.paths import dv_path_column
from iceberg_cli.delta.snapshot import Snapshot
from iceberg_cli.delta.vacuum import FILES, live_keys, removed_keys, strings
from iceberg_cli.delta_listing import looked_up
from iceberg_cli.delta_log_cleanup import expired_sidecars_of, protected, readable
from iceberg_cli.delta_own_files import LOG_KINDS
from iceberg_cli.delta_reading import DeltaLog
from iceberg_cli.delta_removed import removed_by, young_commits
from iceberg_cli.paths import liveness_key_column, scheme_of
from iceberg_cli.plan import Plan
from iceberg_cli.shared_folders import IcebergFiles
from iceberg_cli.storage.links import OtherNames

VERSION_STEP: Final = "log cleanup"
SIDECAR_STEP: Final = "sidecar cleanup"
CUT_OPTION: Final = "older_than_ms"  # of a plan: files removed or written from then on stay
KEPT_OPTION: Final = "oldest_checkpoint"  # of a plan: the version of the oldest checkpoint that stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removed:
    """What commits removed that are not older than a cut-off: its files' liveness keys, and the commits read for it."""

    snapshot: Snapshot
    cut_ms: int
    keys: KeySet
    commits: frozenset[LogFile]


@dataclass(kw_only=True)
class Needs:
    """What a table needs, remembered for as long as its newest snapshot names the same files.

    Args:
        log: of the table.
    """

    log: DeltaLog
    _live: tuple[Snapshot, int, KeySet] | None = None
    _removed: _Removed | None = None

    def __post_init__(self) -> None:
        """UniForm's metadata is read with the storage and engine of the log."""
        log = self.log
        self.iceberg = IcebergFiles(
            storage=log.storage, engine=log.engine, root=log.root, on_event=log.on_event
        )

    def hold(self, snapshot: Snapshot, keys: pa.Array, *, cut_ms: int) -> pa.Array:
        """Which of n liveness keys are of files that are needed, by the table or by Iceberg metadata in its folder.

        Raises:
            Refused: what that metadata reaches cannot be told.
        """
        live, removed = self._needed(snapshot, cut_ms)
        return pc.or_(pc.or_(live.holds(keys), removed.holds(keys)), self.iceberg.hold(keys))

    def metadata_hidden(self, snapshot: Snapshot) -> bool:
        """Whether the folder `metadata` is another's: UniForm's, or that of an Iceberg table."""
        return hides_metadata(snapshot.metadata.configuration) or bool(self.iceberg.tables())

    def _needed(self, snapshot: Snapshot, cut_ms: int) -> tuple[KeySet, KeySet]:
        """The liveness keys of `live_places`, and of what commits removed since the cut-off.

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
            found = KeySet(live_places(self.log, snapshot, cut_ms=cut_ms))
        self._live = (snapshot, cut_ms, found)
        return found, removed

    def _removed_since(self, snapshot: Snapshot, cut_ms: int) -> KeySet:
        """The liveness keys of what commits removed that are not older than the cut-off; each commit is read once."""
        known = self._removed
        if known is None or known.cut_ms != cut_ms:
            none = KeySet(pa.chunked_array([], pa.string()))
            known = _Removed(snapshot=snapshot, cut_ms=cut_ms, keys=none, commits=frozenset())
        elif known.snapshot is snapshot:
            return known.keys
        young = young_commits(self.log.listing(), cut_ms=cut_ms)
        keys = known.keys
        if unread := [file for file in young if file not in known.commits]:
            more = removed_keys(removed_by(self.log, unread), root=self.log.root)
            every = [*keys.keys.chunks, *_by_all_names(self.log, more).chunks]
            keys = KeySet(pa.chunked_array(every, pa.string()))
        self._removed = _Removed(snapshot=snapshot, cut_ms=cut_ms, keys=keys, commits=frozenset(young))
        return keys

    def deletable(self, snapshot: Snapshot, asked: pa.Table, plan: Plan) -> pa.Array:
        """Which of n files the table does not need now, by the rules of the plan and as of its time.

        Args:
            snapshot: the newest.
            asked: columns of `removal_rows.SCHEMA`.
            plan: that was shown, with its cut-offs among its options.

        Returns:
            n booleans.

        Raises:
            CorruptFile: what would have to be kept cannot be read whole.
        """
        paths = strings(asked["path"])
        steps = strings(asked["step"])
        in_log = pc.is_in(strings(asked["kind"]), value_set=pa.array(LOG_KINDS))
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
        keys = liveness_key_column(inside)
        needed = self.hold(snapshot, keys, cut_ms=cut_ms)
        unneeded = inside.filter(pc.invert(pc.or_(unseen, needed)))
        # A writer can put a file back long before it commits it, and an inventory can be wrong about ages.
        there = looked_up(self.log.storage, unneeded)
        young = there["path"].filter(pc.greater_equal(there["modified_ms"], cut_ms))
        return unneeded.filter(pc.invert(pc.is_in(unneeded, value_set=strings(young))))


def _same_files(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots name the same files, removed at the same times, which all tombstones tell themselves."""
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
    if type(kept_version) is not int or protected(snapshot, kept_version) or not readable(log, kept_version):
        return FILES.empty_table()
    return expired_files(log.listing(), kept_version)


def _expired_sidecars(log: DeltaLog, snapshot: Snapshot, plan: Plan) -> pa.Table:  # noqa: ARG001 - as the one above
    """The sidecars that no checkpoint names which is there now."""
    listing = log.listing()
    return expired_sidecars_of(log, listing, listing.checkpoints, as_of_ms=plan.as_of_ms)


# -- what is needed --------------------------------------------------------------------------------------------


def live_places(log: DeltaLog, snapshot: Snapshot, *, cut_ms: int) -> pa.ChunkedArray:
    """The liveness keys of what a snapshot needs, by every name that links to local folders give it."""
    commit_ms = commit_times_of_removes(log, snapshot)
    return _by_all_names(log, live_keys(snapshot, root=log.root, cut_ms=cut_ms, commit_ms=commit_ms))


def _by_all_names(log: DeltaLog, keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Liveness keys, the same by every other name that links to local folders give them, and what links stand for."""
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
    listing = log.listing()
    first = -1 if checkpoint is None else checkpoint.version
    times = {version: time_ms for version, time_ms in listing.commit_times_ms().items() if version > first}
    if times:
        times |= _in_commit_times(log.commits(first + 1, max(times), listing=listing))
    return pa.array([times.get(version) for version in snapshot.remove_versions.tolist()], pa.int64())


def _in_commit_times(actions: Actions) -> dict[int, int]:
    """The in-commit timestamps of commits that have one, by version."""
    told = {version: info.get("inCommitTimestamp") for version, info in actions.commit_infos}
    return {version: time_ms for version, time_ms in told.items() if type(time_ms) is int}


def named_vectors(snapshot: Snapshot, root: str) -> frozenset[str]:
    """The places of the deletion vector files that the table or a tombstone of it names."""
    columns = (dv_path_column(files, root) for files in (snapshot.adds, snapshot.removes))
    return frozenset(path for column in columns for path in column.to_pylist() if path is not None)

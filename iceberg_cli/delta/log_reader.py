"""Reads the log of a Delta table: one listing, then whatever makes up the version that is asked for.

What is listed can be gone when it is read, because a log cleanup runs: then the log is listed once more. A file that is
gone and listed still, or needed by a checkpoint, is a `CorruptFile`.

What the protocol makes optional is passed over with a warning where it cannot be read: a checkpoint or a log compaction
whose commits are all there. A commit of no actions is a version in which nothing changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa

from iceberg_cli.delta.spec.actions import CLASH, EMPTY, Actions, combine
from iceberg_cli.delta.spec.checkpoints.checkpoint import CheckpointPart, read_part, sidecar_path
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import NAME as LAST_CHECKPOINT
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import CheckpointHint, read_hint
from iceberg_cli.delta.spec.checksum import in_commit_timestamp_in
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.delta.spec.in_commit_timestamps import (
    has_in_commit_timestamps,
    in_commit_since,
    in_commit_timestamp,
    newest_version_at,
)
from iceberg_cli.delta.spec.log import (
    LOG,
    Checkpoint,
    Listing,
    LogFile,
    Segment,
    commits_between,
    listing_of,
    segment,
)
from iceberg_cli.delta.spec.snapshot import (
    Snapshot,
    as_actions,
    reconcile,
    snapshot_of,
)
from iceberg_cli.engines import Engine, OnEvent, Scan, Source
from iceberg_cli.errors import CorruptFile, TableNotFound, UsageError
from iceberg_cli.storage import Storage

T = TypeVar("T")

_COMMIT_BATCH_BYTES: Final = 4 << 20  # parsed JSON takes ten times as much memory


class _GoneError(Exception):
    """A listed file is not there any more."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class DeltaLog:
    """The log of one table.

    Args:
        storage: of the table.
        engine: reads commits and checkpoints.
        root: the table's folder.
        on_event: progress.
    """

    def __init__(self, storage: Storage, engine: Engine, root: str, on_event: OnEvent) -> None:
        self._storage = storage
        self._engine = engine
        self._on_event = on_event
        self.root = storage.canonical(root).rstrip("/")
        self.folder = f"{self.root}/{LOG}"

    @property
    def storage(self) -> Storage:
        """Where the log is."""
        return self._storage

    @property
    def engine(self) -> Engine:
        """The engine that reads it."""
        return self._engine

    @property
    def on_event(self) -> OnEvent:
        """Whom progress is told."""
        return self._on_event

    def listing(self) -> Listing:
        """The files of the log at this moment."""
        infos = self._storage.list(self.folder)
        return listing_of(self.folder, ((info.path, info.size_bytes, info.modified_ms) for info in infos))

    def newest_segment(self) -> Segment:
        """The files that the newest version is read from; none of them is opened.

        Raises:
            TableNotFound: there is no log. CorruptFile: a file that the version needs is missing.
        """
        return segment(self._some(), self.folder)

    def snapshot(
        self, version: int | None = None, at_ms: int | None = None, *, listing: Listing | None = None
    ) -> Snapshot:
        """The table at a version, at a time, or now.

        Args:
            version: of the table.
            at_ms: the newest version that was there at this time.
            listing: of the log, where it is at hand; the log is listed again only where a file of it is gone.

        Raises:
            TableNotFound: there is no log.
            UsageError: the table has no such version, or none as old.
            CorruptFile: a file that the version needs is missing or damaged.
            Refused: the table needs a reader that knows more.
        """
        for again in (True, False):
            if listing is None:
                listing = self._some()
            try:
                target = version if at_ms is None else self._version_as_of(listing, at_ms)
                return self._replay(listing, segment(listing, self.folder, target), None)
            except _GoneError as gone:
                self._refuse_gone(gone, again=again)
                listing = None
        raise AssertionError

    def advance(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, of which only the commits after `snapshot` are read where that is possible.

        Returns:
            `snapshot` itself where nothing in the log has changed.

        Raises:
            As `snapshot` does.
        """
        for again in (True, False):
            listing = self._some().without(snapshot.listing.damaged)
            if listing.latest == snapshot.version and listing == snapshot.listing:
                return snapshot
            try:
                if not _continues(listing, snapshot):
                    return self._replay(listing, segment(listing, self.folder), None)
                if listing.latest == snapshot.version:
                    return replace(snapshot, listing=listing)
                newer = commits_between(listing, self.folder, snapshot.version + 1, listing.latest)
                before = snapshot.segment
                whole = Segment(
                    version=listing.latest,
                    checkpoint=before.checkpoint,
                    commits=(*before.commits, *newer),
                    replayed=(*before.replayed, *newer),
                )
                return self._replay(listing, whole, snapshot)
            except _GoneError as gone:
                self._refuse_gone(gone, again=again)
        raise AssertionError

    def snapshot_from(self, listing: Listing, version: int) -> Snapshot:
        """The table at a version, read from the files of a listing and from no others.

        Raises:
            As `snapshot` does; CorruptFile also where a file of the listing is gone.
        """
        try:
            return self._replay(listing, segment(listing, self.folder, version), None)
        except _GoneError as gone:
            raise CorruptFile(gone.path, None, "it was listed and is gone") from None

    def commits(self, first: int, last: int, *, listing: Listing | None = None) -> Actions:
        """The actions of the commits from `first` to `last`, both included.

        Raises:
            CorruptFile: one is missing or damaged.
        """
        files = commits_between(self._some() if listing is None else listing, self.folder, first, last)
        try:
            return self._read_commits(files)
        except _GoneError as gone:
            raise CorruptFile(gone.path, None, "the commit was listed and is gone") from None

    def last_checkpoint(self) -> CheckpointHint | None:
        """The content of `_last_checkpoint`, None where there is none. Reading never follows it: the log is listed."""
        path = f"{self.folder}/{LAST_CHECKPOINT}"
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            return None
        return read_hint(data, path)

    def _some(self) -> Listing:
        listing = self.listing()
        if listing.latest < 0:
            raise TableNotFound(
                f"There is no Delta table at {self.root}: its log has no commit and no checkpoint"
            )
        return listing

    def _refuse_gone(self, gone: _GoneError, *, again: bool) -> None:
        if not again:
            raise CorruptFile(gone.path, None, "the table needs this file and it is not there") from None

    def _replay(self, listing: Listing, whole: Segment, base: Snapshot | None) -> Snapshot:
        """Replay the commits of a segment after `base`, and the checkpoint where there is no base."""
        since = -1 if base is None else base.version
        # Before the checkpoint, which is large, and which Arrow decodes in threads: workers fork.
        newer, whole, warnings = self._read_since(whole, since)
        parts = [] if newer is None else [newer]
        if base is None and whole.checkpoint is not None:
            try:
                parts += reversed(self._read_checkpoint(whole.checkpoint))
            except CorruptFile as damage:
                return self._replay_without(whole.checkpoint, damage, listing, whole.version)
        state = reconcile(parts, None if base is None else as_actions(base))
        del parts
        pa.default_memory_pool().release_unused()  # twice what the state needs, in pieces
        modified_ms = listing.commit_times_ms().get(whole.version)
        if modified_ms is None:
            modified_ms = whole.checkpoint.files[0].modified_ms if whole.checkpoint else 0
        if self._lacks_timestamp(state, whole):
            state = self._with_commit_info(listing, state, whole.version)
        warnings = (*(() if base is None else base.warnings), *warnings)
        return snapshot_of(state, whole, listing, root=self.root, modified_ms=modified_ms, warnings=warnings)

    def _replay_without(
        self, damaged: Checkpoint, damage: CorruptFile, listing: Listing, version: int
    ) -> Snapshot:
        """A version by an older checkpoint, or by commits alone, where one checkpoint cannot be read.

        Raises:
            CorruptFile: what was found in the checkpoint, where the log has not all commits that stand for it.
        """
        others = listing.without([damaged])
        try:
            snapshot = self._replay(others, segment(others, self.folder, version), None)
        except (CorruptFile, UsageError):
            raise damage from None
        warning = (
            f"the checkpoint of version {damaged.version} cannot be read and is passed over: {damage.message}; "
            "`rewrite-manifests` writes one that can"
        )
        return replace(snapshot, warnings=(warning, *snapshot.warnings))

    def _read_since(self, whole: Segment, since: int) -> tuple[Actions | None, Segment, tuple[str, ...]]:
        """What a segment has after a version, None if nothing; as it was read, and warnings.

        A log compaction that cannot be read, or that is not reconciled, is passed over: its commits are there.
        """
        files = [file for file in whole.replayed if file.version > since]
        compactions = {file.path for file in files}.difference(file.path for file in whole.commits)
        try:
            actions = self._read_commits(files) if files else None
            clash = None if actions is None else _unusable(actions, compactions)
        except CorruptFile as error:
            if error.path not in compactions:
                raise
            clash = error
        if clash is None:
            return actions, whole, _empty_commits(actions)
        warning = f"log compaction files are passed over, and commits read: {clash.message}"
        commits = self._read_commits([file for file in whole.commits if file.version > since])
        return commits, replace(whole, replayed=whole.commits), (warning, *_empty_commits(commits))

    def _lacks_timestamp(self, state: Actions, whole: Segment) -> bool:
        if state.protocol is None or state.metadata is None:
            return False
        enabled = has_in_commit_timestamps(state.protocol, state.metadata)
        return enabled and in_commit_timestamp(state, whole.version) is None

    def _with_commit_info(self, listing: Listing, state: Actions, version: int) -> Actions:
        """`state` with the commit info of a version that was read from a checkpoint or a compaction.

        Where no commit tells the in-commit timestamp, the commit info holds that of the version checksum.
        """
        files = [file for file in listing.commits if file.version == version]
        infos = self._read_commits(files).commit_infos if files else ()
        completed = replace(state, commit_infos=(*state.commit_infos, *infos))
        if in_commit_timestamp(completed, version) is not None:
            return completed
        info = {"inCommitTimestamp": self._in_checksum(listing, version)}
        return replace(completed, commit_infos=(*completed.commit_infos, (version, info)))

    def _in_checksum(self, listing: Listing, version: int) -> int | None:
        """The in-commit timestamp in the checksum of a version, None where there is none or it is damaged."""
        for file in listing.checksums:
            if file.version == version:
                with suppress(FileNotFoundError):
                    return in_commit_timestamp_in(self._storage.read(file.path), file.path)
        return None

    def _read_commits(self, files: Sequence[LogFile]) -> Actions:
        parsed = self._engine.scan(
            Scan(
                source_of,
                _as_is,
                _parse_commits,
                phase="read commits",
                missing_ok=True,
                batch_bytes=_COMMIT_BATCH_BYTES,
            ),
            files,
            on_event=self._on_event,
        )
        return combine(_all_there(parsed))

    def _read_checkpoint(self, checkpoint: Checkpoint) -> list[Actions]:
        parts = self._read_parts(checkpoint.files, missing_ok=True)
        folder = self.folder
        sidecars = [
            LogFile(path, checkpoint.version, size_bytes, 0)
            for file, part in zip(checkpoint.files, parts, strict=True)
            for path, size_bytes in (sidecar_path(action, folder, file.path) for action in part.sidecars)
        ]
        if sidecars:
            parts += self._read_parts(sidecars, missing_ok=False)
        return [part.actions for part in parts]

    def _read_parts(self, files: Sequence[LogFile], *, missing_ok: bool) -> list[CheckpointPart]:
        parsed = self._engine.scan(
            Scan(source_of, _as_is, _parse_parts, phase="read checkpoint", missing_ok=missing_ok),
            files,
            on_event=self._on_event,
        )
        return [part for parts in _all_there(parsed) for part in parts]

    def _version_as_of(self, listing: Listing, at_ms: int) -> int:
        """The newest version at or before a time; UsageError where all are younger."""
        newest = self._replay(listing, segment(listing, self.folder), None)
        version = self._version_at(newest, at_ms)
        if version is None:
            raise UsageError(f"Cannot read {self.root} as of {at_ms} ms: its log has no version as old")
        return version

    def version_at(self, snapshot: Snapshot, at_ms: int) -> int | None:
        """The newest version up to a snapshot's at or before a point in time; None where all are younger.

        Args:
            snapshot: with the listing of the log; by its properties commits tell their time.
            at_ms: the point in time.

        Raises:
            CorruptFile: a commit is gone or damaged, or does not tell its time where all should.
        """
        try:
            return self._version_at(snapshot, at_ms)
        except _GoneError as gone:
            raise CorruptFile(gone.path, None, "the commit was listed and is gone") from None

    def _version_at(self, snapshot: Snapshot, at_ms: int) -> int | None:
        commits = {file.version: file for file in snapshot.listing.commits}

        def timestamp_of(version: int) -> int:
            file = commits[version]
            time_ms = in_commit_timestamp(self._read_commits([file]), version)
            if time_ms is None:
                raise CorruptFile(
                    file.path, "commitInfo.inCommitTimestamp", "it is missing, and the table has these"
                )
            return time_ms

        times = snapshot.listing.commit_times_ms().items()
        return newest_version_at(
            {version: time_ms for version, time_ms in times if version <= snapshot.version},
            at_ms,
            since=in_commit_since(snapshot.protocol, snapshot.metadata),
            timestamp_of=timestamp_of,
        )


def _continues(listing: Listing, snapshot: Snapshot) -> bool:
    """Whether the commits after a snapshot belong to the same table as it does."""
    if listing.latest < snapshot.version or not snapshot.segment.commits:
        return False
    last = snapshot.segment.commits[-1]
    following = [file for file in listing.commits if file.version > snapshot.version]
    whole = len(following) == listing.latest - snapshot.version
    return whole and last in listing.commits


def _unusable(actions: Actions, compactions: Collection[str]) -> CorruptFile | None:
    """What keeps the first of some log compactions from standing for its commits: a clash, or that it is empty."""
    found = (each for each in actions.irregular if each.rule in (CLASH, EMPTY) and each.path in compactions)
    return next((CorruptFile(each.path, each.where, each.message) for each in found), None)


def _empty_commits(actions: Actions | None) -> tuple[str, ...]:
    """A warning where commits have no actions."""
    empty = [each.path for each in (() if actions is None else actions.irregular) if each.rule == EMPTY]
    if not empty:
        return ()
    more = f", and {len(empty) - 1:,} more commits are" if len(empty) > 1 else ""
    return (f"{empty[0]} is empty{more}: nothing changed in that version, as other readers have it",)


def _all_there(parsed: Iterable[tuple[str | None, T | None]]) -> list[T]:
    """The parsed files, unless one is gone."""
    values: list[T] = []
    for gone, value in parsed:
        if gone is not None or value is None:
            raise _GoneError(gone or "")
        values.append(value)
    return values


def source_of(file: LogFile) -> Source:
    """What an engine reads for a file of the log."""
    return Source(file.path, file.size_bytes)


def _as_is(_file: LogFile, data: bytes) -> bytes:
    return data


def _gone(files: Sequence[tuple[LogFile, bytes | None]]) -> str | None:
    return next((file.path for file, data in files if data is None), None)


def _parse_commits(files: Sequence[tuple[LogFile, bytes | None]]) -> tuple[str | None, Actions | None]:
    if gone := _gone(files):
        return gone, None
    return None, parse_commits([CommitBytes(file.path, file.version, data or b"") for file, data in files])


def _parse_parts(
    files: Sequence[tuple[LogFile, bytes | None]],
) -> tuple[str | None, list[CheckpointPart] | None]:
    if gone := _gone(files):
        return gone, None
    return None, [read_part(file.path, file.version, data or b"") for file, data in files]

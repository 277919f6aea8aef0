"""What commits removed, read without the rest of what they did: most of a log is adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.actions import Actions, combine
from iceberg_cli.delta.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.delta.log import Listing, LogFile, commits_between
from iceberg_cli.delta.paths import dv_path_column, physical_column
from iceberg_cli.delta.vacuum import strings
from iceberg_cli.delta_reading import DeltaLog
from iceberg_cli.engines import Source
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.paths import liveness_key_column

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
    parts = log.engine.scan(files, _source, _removing, _parse, phase="read commits", on_event=log.on_event)
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
    """Where the files are that commits removed, their DV files, and their change data; each place once.

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
        keys: liveness keys of the files.
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
        places = strings(column)
        named_keys = liveness_key_column(places.drop_null())
        versions.append(
            pa.array(of_rows).filter(pc.is_valid(places)).filter(pc.is_in(named_keys, value_set=keys))
        )
    oldest: int | None = pc.min(pa.concat_arrays(versions)).as_py()
    return oldest


def _source(file: LogFile) -> Source:
    return Source(file.path, file.size_bytes)


def _removing(_file: LogFile, data: bytes) -> bytes:
    """The lines that may name a file that was removed; looked for in the whole, because few lines do."""
    found = set()
    for mark in _MARKS:
        at = data.find(mark)
        while at >= 0:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            found.add((data.rfind(b"\n", 0, at) + 1, end))
            at = data.find(mark, end)
    return b"\n".join([data[start:end] for start, end in sorted(found)])


def _parse(files: Sequence[tuple[LogFile, bytes | None]]) -> Actions | None:
    commits = []
    for file, lines in files:
        if lines is None:
            raise CorruptFile(file.path, None, "the commit was listed and is gone")
        if lines:
            commits.append(CommitBytes(file.path, file.version, lines))
    return parse_commits(commits) if commits else None

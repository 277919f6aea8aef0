"""What commits removed, read without the rest of what they did: most of a log is adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iceberg_cli.delta.actions import Actions, CommitBytes, combine, parse_commits
from iceberg_cli.delta.log import Listing, LogFile, commits_between
from iceberg_cli.delta_reading import DeltaLog
from iceberg_cli.engines import Source
from iceberg_cli.errors import CorruptFile

# A line that does not spell one of these words names no file that a commit removed.
_REMOVE: Final = b'"remove"'
_CDC: Final = b'"cdc"'


def removed_between(log: DeltaLog, first: int, last: int, *, listing: Listing) -> Actions:
    """The removes and change data of the commits from `first` to `last`, both included; few of the other actions.

    A line that is overlooked deletes nothing, so lines are picked by their text; those that are picked are read as
    strictly as all others.

    Raises:
        CorruptFile: a commit is missing, or one of its lines damaged.
    """
    files = commits_between(listing, log.folder, first, last)
    parts = log.engine.scan(files, _source, _removing, _parse, phase="read commits", on_event=log.on_event)
    found = [part for part in parts if part is not None]
    return combine(found) if found else Actions()


def _source(file: LogFile) -> Source:
    return Source(file.path, file.size_bytes)


def _removing(_file: LogFile, data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join([line for line in lines if _REMOVE in line or _CDC in line])


def _parse(files: Sequence[tuple[LogFile, bytes | None]]) -> Actions | None:
    commits = []
    for file, lines in files:
        if lines is None:
            raise CorruptFile(file.path, None, "the commit was listed and is gone")
        if lines:
            commits.append(CommitBytes(file.path, file.version, lines))
    return parse_commits(commits) if commits else None

"""After how many commits a table wants its next checkpoint."""

from __future__ import annotations

from typing import Final

from iceberg_cli.delta.log import Checkpoint, Listing
from iceberg_cli.delta.protocol import Metadata
from iceberg_cli.errors import InvalidMetadata

_PROPERTY: Final = "delta.checkpointInterval"
DEFAULT_INTERVAL: Final = 10


def known_interval(metadata: Metadata) -> int | None:
    """The number of commits, None where the table's property is no positive whole number."""
    try:
        found = metadata.property_int(_PROPERTY, DEFAULT_INTERVAL)
    except InvalidMetadata:
        return None
    return found if found > 0 else None


def is_due(since: int, interval: int | None) -> bool:
    """Whether a table asks for a checkpoint by now; at once after a commit where nothing says how long it may wait."""
    return since > (interval or 0)


def in_words(since: int, interval: int | None) -> str:
    """What is due, or not yet, by the commits since the last checkpoint."""
    known = "no positive whole number" if interval is None else interval
    return f"commits since the last checkpoint: {since}, and {_PROPERTY} is {known}"


def newest_checkpoint(listing: Listing, version: int) -> Checkpoint | None:
    """The newest checkpoint at or before a version."""
    return next((each for each in reversed(listing.checkpoints) if each.version <= version), None)


def commits_since(newest: Checkpoint | None, version: int) -> int:
    """How many commits a version is after a checkpoint, or after the first one."""
    return version if newest is None else version - newest.version

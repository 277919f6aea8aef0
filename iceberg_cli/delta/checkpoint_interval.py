"""After how many commits a table wants its next checkpoint."""

from __future__ import annotations

from typing import Final

from iceberg_cli.delta.log import Checkpoint, Listing
from iceberg_cli.delta.protocol import Metadata

INTERVAL_PROPERTY: Final = "delta.checkpointInterval"
_DEFAULT: Final = 10


def checkpoint_interval(metadata: Metadata) -> int:
    """The number of commits.

    Raises:
        InvalidMetadata: the table's property is not a whole number.
    """
    return metadata.property_int(INTERVAL_PROPERTY, _DEFAULT)


def newest_checkpoint(listing: Listing, version: int) -> Checkpoint | None:
    """The newest checkpoint at or before a version."""
    return next((each for each in reversed(listing.checkpoints) if each.version <= version), None)


def commits_since(newest: Checkpoint | None, version: int) -> int:
    """How many commits a version is after a checkpoint, or after the first one."""
    return version if newest is None else version - newest.version

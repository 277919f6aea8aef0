"""The times of a table's versions: those that commits tell themselves, and time travel by them.

Spec: "In-Commit Timestamps".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.protocol import Metadata, Protocol

FEATURE: Final = "inCommitTimestamp"
IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
SINCE_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME: Final = "delta.inCommitTimestampEnablementTimestamp"


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether commits tell their own time."""
    return supports(protocol, FEATURE) and metadata.property_bool(
        IN_COMMIT_TIMESTAMPS, default=False, unreadable=False
    )


def in_commit_since(protocol: Protocol, metadata: Metadata) -> int | None:
    """The version from which on commits tell their own time; None where they do not.

    Raises:
        InvalidMetadata: the property is no number.
    """
    return metadata.property_int(SINCE_VERSION, 0) if has_in_commit_timestamps(protocol, metadata) else None


def in_commit_timestamp(actions: Actions, version: int) -> int | None:
    """The in-commit timestamp of a version in milliseconds, None where no commit info tells it."""
    for number, info in reversed(actions.commit_infos):
        if number == version and type(value := info.get("inCommitTimestamp")) is int:
            return value
    return None


def newest_version_at(
    times_ms: Mapping[int, int],
    at_ms: int,
    *,
    since: int | None,
    timestamp_of: Callable[[int], int],
) -> int | None:
    """The newest version at or before a point in time; None where all are younger.

    Spec: "Recommendations for Readers of Tables with In-Commit Timestamps".

    Args:
        times_ms: the time of each version by its file, growing with the versions; see `Listing.commit_times_ms`.
        at_ms: the point in time.
        since: the version from which on commits tell their own time; None: none does.
        timestamp_of: the in-commit timestamp of a version, asked for some log2(n) of them, for they only grow.
    """
    if since is not None:
        telling = sorted(version for version in times_ms if version >= since)
        times_ms = {version: written for version, written in times_ms.items() if version < since}
        old = bisect_right(telling, at_ms, key=timestamp_of)
        if old:
            return telling[old - 1]
    return max((version for version, written in times_ms.items() if written <= at_ms), default=None)

"""What the log of a table tells by itself: the times that decide what a VACUUM and a log cleanup may take.

It is read for surveys of many tables, which only look: nothing is planned on it. Which files go is not told by it, but
when another one may: as long as the same commits and tombstones are past the cut-off, the same files are.

Spec: Delta, "Add File and Remove File", "Metadata Cleanup".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps
from iceberg_cli.delta.spec.protocol import DAY_MS, Metadata
from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.delta.verbs.expire_snapshots.retention import retention_of, within_properties
from iceberg_cli.plan.decision import Decision

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.plan.policy import Policy

_MOST_TIMES: Final = 100_000  # that are kept of one table


def glance_of(table: DeltaTable) -> dict[str, Any] | None:
    """What is kept of a table as loaded last, as JSON; None where it has too many times."""
    snapshot = table.snapshot
    tombstones = pc.unique(snapshot.removes["deletionTimestamp"]).drop_null().to_pylist()
    commits = list(snapshot.listing.commit_times_ms().values())
    sidecars = sorted(file.modified_ms for file in snapshot.listing.sidecars)
    if len(tombstones) + len(commits) + len(sidecars) > _MOST_TIMES:
        return None
    return {
        "table_uuid": snapshot.metadata.id,
        "format_version": snapshot.protocol.min_writer_version,
        "location": table.identity["location"],
        "configuration": dict(snapshot.metadata.configuration),
        "in_commit_timestamps": has_in_commit_timestamps(snapshot.protocol, snapshot.metadata),
        "commit_ms": commits,
        "tombstone_ms": sorted(tombstones),
        "sidecar_ms": sidecars,
    }


class LogGlances:
    """What logs tell; see `plan.decision.Glances`."""

    @staticmethod
    def properties(glance: Mapping[str, Any]) -> Mapping[str, str]:
        """The whole configuration."""
        found: Mapping[str, str] = glance["configuration"]
        return found

    @staticmethod
    def decide(glance: Mapping[str, Any], policy: Policy, path: str, *, as_of_ms: int) -> Decision:  # noqa: ARG004
        """What a verb would do; time decides about VACUUM and log cleanup alone."""
        if not isinstance(policy, ExpireSnapshots):
            return Decision(decided=policy.to_json(), is_due=None)
        metadata = Metadata(id=glance["table_uuid"], schema_string="", configuration=glance["configuration"])
        policy = within_properties(metadata, policy)
        retention = retention_of(metadata, policy, as_of_ms=as_of_ms)
        cut_ms, log_cut_ms = retention.cut_ms, retention.log_cut_ms
        commits: list[int] = glance["commit_ms"]
        cleaned: object = None
        if log_cut_ms is not None:
            # Where commits tell their time themselves, that of their files says nothing.
            of_log = log_cut_ms if glance["in_commit_timestamps"] else bisect_right(commits, log_cut_ms)
            cleaned = [of_log, bisect_right(glance["sidecar_ms"], as_of_ms // DAY_MS * DAY_MS - DAY_MS)]
        return Decision(
            decided=[
                policy.to_json(),
                bisect_left(commits, cut_ms),
                bisect_left(glance["tombstone_ms"], cut_ms),
                cleaned,
            ],
            is_due=None,
            blocked_by=retention.blocked_by,
            allowed_ms=retention.retention_ms.value,
            cut_ms=cut_ms,
        )

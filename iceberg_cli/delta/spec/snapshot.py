"""The table at a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.spec.actions import Actions, Int64s, Json, Metadata, Protocol
from iceberg_cli.delta.spec.features import check_readable
from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps, in_commit_timestamp
from iceberg_cli.delta.spec.irregularities import Irregularity
from iceberg_cli.delta.spec.log import Listing, Segment
from iceberg_cli.errors import CorruptFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The table at a version.

    Args:
        version: of the table.
        timestamp_ms: its in-commit timestamp where the table has these, else the modification time of its commit file,
            at least 1 ms after the version before.
        in_commit_timestamp_ms: None where the table has none, or neither a commit nor a version checksum tells it.
        adds: active files, columns of `actions.ADD` and unknown ones.
        removes: tombstones that nothing cancelled, whatever their age.
        add_versions: the commit of each add, or the checkpoint's version; likewise `remove_versions`.
        transactions: the newest `txn` action of each `appId`.
        domains: the newest `domainMetadata` action of each domain that is not removed.
        unknown: lines of action kinds that the protocol does not name, oldest first.
        segment: the files it was read from.
        listing: of the log, as it was when it was read, or looked at again for newer versions.
        irregular: what commits after the checkpoint do that the protocol does not allow.
        warnings: which files could not be read, and were not needed, in words.
    """

    version: int
    timestamp_ms: int
    in_commit_timestamp_ms: int | None
    protocol: Protocol
    metadata: Metadata
    adds: pa.Table
    removes: pa.Table
    add_versions: Int64s
    remove_versions: Int64s
    transactions: Mapping[str, Json]
    domains: Mapping[str, Json]
    unknown: tuple[Json, ...]
    segment: Segment
    listing: Listing = field(repr=False)
    irregular: tuple[Irregularity, ...] = ()
    warnings: tuple[str, ...] = ()


def snapshot_of(
    state: Actions,
    segment: Segment,
    listing: Listing,
    *,
    root: str,
    modified_ms: int,
    warnings: tuple[str, ...] = (),
) -> Snapshot:
    """The snapshot that reconciled actions make.

    Args:
        state: what `reconcile` left, with the commit info of the version.
        segment: what it was read from.
        listing: of the log.
        root: the table's storage path, for messages.
        modified_ms: of the version's commit file, see `Listing.commit_times_ms`.
        warnings: of reading.

    Raises:
        CorruptFile: there is no protocol or no metadata.
        Refused: the table needs a reader that knows more.
    """
    if state.protocol is None:
        raise CorruptFile(root, "protocol", f"no protocol action up to version {segment.version}")
    check_readable(state.protocol, root)
    if state.metadata is None:
        raise CorruptFile(root, "metaData", f"no metaData action up to version {segment.version}")
    timed = has_in_commit_timestamps(state.protocol, state.metadata)
    in_commit_ms = in_commit_timestamp(state, segment.version) if timed else None
    return Snapshot(
        version=segment.version,
        timestamp_ms=modified_ms if in_commit_ms is None else in_commit_ms,
        in_commit_timestamp_ms=in_commit_ms,
        protocol=state.protocol,
        metadata=state.metadata,
        adds=state.adds,
        removes=state.removes,
        add_versions=state.add_versions,
        remove_versions=state.remove_versions,
        transactions=state.transactions,
        domains={name: action for name, action in state.domains.items() if not action.get("removed", False)},
        unknown=state.unknown,
        segment=segment,
        listing=listing,
        irregular=state.irregular,
        warnings=warnings,
    )


def as_actions(snapshot: Snapshot) -> Actions:
    """The snapshot as actions, with which a replay begins."""
    return Actions(
        adds=snapshot.adds,
        removes=snapshot.removes,
        add_versions=snapshot.add_versions,
        add_places=np.arange(snapshot.adds.num_rows, dtype=np.int64),
        remove_versions=snapshot.remove_versions,
        remove_places=np.arange(snapshot.removes.num_rows, dtype=np.int64),
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions,
        domains=snapshot.domains,
        unknown=snapshot.unknown,
        irregular=snapshot.irregular,
    )

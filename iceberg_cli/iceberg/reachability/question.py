"""Where reading a snapshot's files starts, and which ids its manifests use."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_cli.iceberg.spec.table_metadata.encryption import check_plain_list
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFiles:
    """A snapshot's manifest list and counts, from which a reachability scan starts."""

    snapshot_id: int
    manifest_list: str | None
    manifests: tuple[str, ...] = ()  # v1: named by the snapshot itself
    total_data_files: int | None = None  # the summary's, to notice a list that was cut short
    total_delete_files: int | None = None
    added_data_files: int | None = None
    sequence_number: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that metadata names directly, such as a statistics file."""

    path: str
    kind: str
    size_bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachQuestion:
    """The input of a reachability scan: which files are reachable from `expired` and not from `kept`?"""

    expired: tuple[SnapshotFiles, ...]
    kept: tuple[SnapshotFiles, ...]
    expired_files: tuple[NamedFile, ...] = ()
    kept_files: frozenset[str] = frozenset()
    content: bool = True  # False: manifests and lists only, data and delete files stay


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedIds:
    """The ids that manifests and deletes of the kept snapshots use, for `--clean-metadata`."""

    partition_spec_ids: frozenset[int] | None  # None: not known of all manifests, so every spec stays
    equality_field_ids: frozenset[int]


def snapshot_files(snapshot: Snapshot) -> SnapshotFiles:
    """The start of a reachability scan of a snapshot, with the summary's totals where they are numbers.

    Raises:
        Refused: its manifest list is encrypted.
    """
    check_plain_list(snapshot)
    return SnapshotFiles(
        snapshot_id=snapshot.snapshot_id,
        manifest_list=snapshot.manifest_list,
        manifests=snapshot.manifests or (),
        total_data_files=snapshot.summary_count("total-data-files"),
        total_delete_files=snapshot.summary_count("total-delete-files"),
        added_data_files=snapshot.summary_count("added-data-files"),
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
    )

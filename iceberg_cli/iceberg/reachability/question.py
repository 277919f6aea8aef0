"""Where reading a snapshot's files starts, and which ids its manifests use."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_cli.iceberg.spec.encryption import check_plain_list
from iceberg_cli.iceberg.spec.metadata import Snapshot
from iceberg_cli.plan.plan import SnapshotFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedIds:
    """What `--clean-metadata` must know of the kept snapshots: ids that their manifests and deletes use."""

    partition_spec_ids: frozenset[int] | None  # None: not known of all manifests, so every spec stays
    equality_field_ids: frozenset[int]


def snapshot_files(snapshot: Snapshot) -> SnapshotFiles:
    """Where to start reading what a snapshot reaches, with the summary's totals where they are numbers.

    Raises:
        Refused: its manifest list is encrypted.
    """
    check_plain_list(snapshot)
    summary = snapshot.summary or {}
    return SnapshotFiles(
        snapshot_id=snapshot.snapshot_id,
        manifest_list=snapshot.manifest_list,
        manifests=snapshot.manifests or (),
        total_data_files=_count(summary.get("total-data-files")),
        total_delete_files=_count(summary.get("total-delete-files")),
        added_data_files=_count(summary.get("added-data-files")),
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
    )


def _count(text: object) -> int | None:
    return (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else None
    )

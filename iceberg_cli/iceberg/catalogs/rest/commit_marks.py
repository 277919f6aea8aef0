"""What a request asks a catalog for, and what a version of the table shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit, TableUpdate

# What decides about later deletions and is asserted by no requirement.
_RETENTION: Final = ("gc.enabled", "history.expire.")


def has_moved_on(metadata: TableMetadata, commit: Any) -> bool:
    """Whether snapshots were added to a table since the base of a commit."""
    base: TableMetadata = commit.base
    return (
        metadata.last_sequence_number > base.last_sequence_number or metadata.next_row_id > base.next_row_id
    )


def wrong_numbers(commit: Any, metadata: TableMetadata) -> str | None:
    """Why a version that has the snapshot of a commit is not as the commit was built, or None."""
    from iceberg_cli.iceberg.commit.update import UpgradeFormatVersion

    ours = next((each for each in metadata.snapshots if each.snapshot_id == snapshot_of(commit)), None)
    if ours is None:
        return None
    others = [each.snapshot_id for each in metadata.snapshots if each.sequence_number == ours.sequence_number]
    others.remove(ours.snapshot_id)
    if others and metadata.format_version > 1:
        return (
            f"snapshots {ours.snapshot_id} and {others[0]} both have sequence number {ours.sequence_number}"
        )
    end = (ours.first_row_id or 0) + (ours.added_rows or 0)
    if metadata.next_row_id < end:
        return f"its next-row-id is {metadata.next_row_id}, and snapshot {ours.snapshot_id} has ids up to {end - 1}"
    upgrades = any(isinstance(update, UpgradeFormatVersion) for update in commit.updates)
    if metadata.format_version != commit.base.format_version and not upgrades:
        versions = f"version {metadata.format_version}, and was {commit.base.format_version}"
        return f"the table has format {versions} when snapshot {ours.snapshot_id} was made"
    return None


def snapshot_of(commit: Any) -> int | None:
    """The id of the snapshot that a commit adds, which was drawn for it alone, or None."""
    from iceberg_cli.iceberg.commit.update import AddSnapshot

    added = [update.snapshot.snapshot_id for update in commit.updates if isinstance(update, AddSnapshot)]
    return added[0] if added else None


def with_single_removals(commit: Commit) -> Iterator[TableUpdate]:
    """The updates of a commit, with the removal of each snapshot as one of its own."""
    from iceberg_cli.iceberg.commit.update import RemoveSnapshots

    for update in commit.updates:
        if isinstance(update, RemoveSnapshots):
            yield from (RemoveSnapshots(snapshot_ids=(each,)) for each in update.snapshot_ids)
        else:
            yield update


def removes_snapshots(commit: Any) -> bool:
    """Whether refs may go with a commit, and files after it."""
    from iceberg_cli.iceberg.commit.update import RemoveSnapshots

    return any(isinstance(update, RemoveSnapshots) for update in commit.updates)


def is_marked(metadata: TableMetadata, commit: Any) -> bool:
    """Whether a version has a commit's own mark: its snapshot, its property or, without either, its effect."""
    from iceberg_cli.iceberg.commit.update import effects_visible

    snapshot_id, mark = snapshot_of(commit), mark_of(commit)
    if snapshot_id is not None:
        return metadata.snapshot(snapshot_id) is not None
    if mark is not None:
        return metadata.properties.get(OPERATION_ID) == mark
    return effects_visible(commit.updates, metadata)


def mark_of(commit: Any) -> str | None:
    """The value of the property by which a commit is known again, or None."""
    from iceberg_cli.iceberg.commit.update import SetProperties

    set_properties = [update.updates for update in commit.updates if isinstance(update, SetProperties)]
    return next((each[OPERATION_ID] for each in set_properties if OPERATION_ID in each), None)


def log_of(metadata: TableMetadata) -> list[str]:
    """The locations in the metadata log, the oldest first."""
    return [entry.metadata_file for entry in metadata.metadata_log]


def retention_of(metadata: TableMetadata, base: TableMetadata) -> tuple[Any, ...]:
    """What decides about deletions: properties, and the refs of `base`, which a request asserts by snapshot alone."""
    properties = {key: value for key, value in metadata.properties.items() if key.startswith(_RETENTION)}
    return properties, {name: metadata.refs.get(name) for name in base.refs}

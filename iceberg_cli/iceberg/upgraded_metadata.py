"""Table metadata in a higher format version.

What the higher version requires and the table lacks is filled in; what only version 1 has is dropped; everything else,
the snapshots' own content above all, stays as it is.

Spec: Appendix E; "Row Lineage for Upgraded Tables".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.metadata import SUPPORTED_FORMAT_VERSION, Snapshot, TableMetadata
from iceberg_cli.iceberg.specs import PartitionField, SortField

_V1_ONLY: Final = frozenset({"schema", "partition-spec"})
# What a snapshot did that does not say it: of the operations the one that promises nothing.
_OPERATION_UNSAID: Final = "overwrite"

Sourced = TypeVar("Sourced", PartitionField, SortField)


def upgraded(metadata: TableMetadata, version: int) -> TableMetadata:
    """The table in format version `version`, or as it is where it has it already.

    Raises:
        Refused: the version is lower, or not known; or the table has no UUID.
    """
    before = metadata.format_version
    if version == before:
        return metadata
    if version < before:
        raise Refused(f"Cannot lower the format version from {before} to {version}.")
    if version > SUPPORTED_FORMAT_VERSION:
        raise Refused(
            f"Cannot upgrade to format version {version}: only versions up to {SUPPORTED_FORMAT_VERSION}."
        )
    if metadata.table_uuid is None:
        raise Refused(
            f"Cannot upgrade to format version {version}: the table has no UUID, which version 2 requires."
        )
    if before == 1:
        extra = {key: value for key, value in metadata.extra.items() if key not in _V1_ONLY}
        layout = metadata.layout
        if layout and "refs" not in layout:
            layout = (*layout, "refs")
        metadata = replace(metadata, extra=extra, layout=layout)
    # Also in version 2: an upgrade by another writer leaves the snapshots of version 1 as they were.
    snapshots = tuple(_completed(snapshot) for snapshot in metadata.snapshots)
    metadata = replace(metadata, snapshots=snapshots)
    if version > 2:
        metadata = _with_source_ids(metadata)
    return replace(metadata, format_version=version, next_row_id=0)


def _completed(snapshot: Snapshot) -> Snapshot:
    """With what version 2 requires; `manifests` goes where a manifest list takes its place.

    Spec: Appendix E, "Writing v2 metadata"; "Snapshots".
    """
    if snapshot.sequence_number:
        return snapshot
    layout = snapshot.layout
    if "sequence-number" not in layout:
        layout = ("sequence-number", *layout)
    summary = snapshot.summary
    if snapshot.operation is None:
        summary = {"operation": _OPERATION_UNSAID, **(summary or {})}
    manifests = snapshot.manifests
    if snapshot.manifest_list is not None:
        manifests = None
        layout = tuple(key for key in layout if key != "manifests")
    return replace(snapshot, summary=summary, manifests=manifests, layout=layout)


def _with_source_ids(metadata: TableMetadata) -> TableMetadata:
    """A transform of one argument is written with `source-id`. Spec: Appendix E, "Writing v3 metadata"."""
    return replace(
        metadata,
        partition_specs=tuple(
            replace(spec, fields=tuple(_with_source_id(field) for field in spec.fields))
            for spec in metadata.partition_specs
        ),
        sort_orders=tuple(
            replace(order, fields=tuple(_with_source_id(field) for field in order.fields))
            for order in metadata.sort_orders
        ),
    )


def _with_source_id(field: Sourced) -> Sourced:
    if len(field.source_ids) > 1 or "source-id" in field.layout:
        return field
    return replace(field, layout=tuple(key for key in field.layout if key != "source-ids"))

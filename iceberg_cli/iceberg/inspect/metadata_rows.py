"""inspect: what table metadata alone says, as rows that print and serialise.

64-bit ids are strings, times are ISO 8601 with a twin in ms since the epoch, counts are numbers. Rows carry the column
names of Iceberg's metadata table of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.spec.table_metadata.columns import column_names
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.plan.inspection import INSPECTION_SCHEMA
from iceberg_cli.plan.text import did_you_mean, iso

if TYPE_CHECKING:
    from iceberg_cli.iceberg.table import IcebergTable

Row = dict[str, Any]


def id_text(value: int | None) -> str | None:
    """A 64-bit id as JSON carries it."""
    return None if value is None else str(value)


def header(table: IcebergTable, what: str, *, as_of_ms: int) -> dict[str, Any]:
    """The fields that every `inspection/2` document begins with."""
    metadata = table.metadata
    return {
        "schema": INSPECTION_SCHEMA,
        "what": what,
        "table": dict(table.identity),
        "format": "iceberg",
        "format_version": metadata.format_version,
        "table_uuid": metadata.table_uuid,
        "location": metadata.location,
        "metadata_location": table.metadata_location,
        "current_snapshot_id": id_text(metadata.current_snapshot_id),
        "as_of_ms": as_of_ms,
        "as_of": iso(as_of_ms),
    }


def select_snapshot(
    metadata: TableMetadata, *, snapshot_id: int | None, ref: str | None, at_ms: int | None
) -> Snapshot | None:
    """The snapshot that the operator named: by id, by ref, or the one that was current at a time.

    Args:
        metadata: the table.
        snapshot_id: or None.
        ref: name of a branch or tag, or None.
        at_ms: in ms since the epoch, or None. With all three None it is the current snapshot.

    Returns:
        None for a table that has no current snapshot.

    Raises:
        UsageError: there is no such snapshot.
    """
    if ref is not None:
        found = metadata.refs.get(ref)
        if found is None:
            names = ", ".join(metadata.refs) or "none"
            near = did_you_mean(ref, metadata.refs)
            raise UsageError(f"The table has no ref {ref!r}.{near}", next_step=f"Its refs: {names}.")
        snapshot_id = found.snapshot_id
    elif at_ms is not None:
        current = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= at_ms]
        if not current:
            raise UsageError(
                f"The snapshot log does not say which snapshot was current at {iso(at_ms)}",
                next_step="`inspect TABLE history` shows how far back it goes.",
            )
        snapshot_id = current[-1].snapshot_id
    elif snapshot_id is None:
        return metadata.current_snapshot()
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise UsageError(
            f"The table has no snapshot {snapshot_id}", next_step="`inspect TABLE snapshots` lists them."
        )
    return snapshot


def snapshot_rows(metadata: TableMetadata) -> list[Row]:
    """Every snapshot, in the metadata's order."""
    return [
        {
            "committed_at": iso(snapshot.timestamp_ms),
            "committed_at_ms": snapshot.timestamp_ms,
            "snapshot_id": id_text(snapshot.snapshot_id),
            "parent_id": id_text(snapshot.parent_snapshot_id),
            "operation": snapshot.operation,
            "manifest_list": snapshot.manifest_list,
            "summary": {key: text for key, text in (snapshot.summary or {}).items() if key != "operation"},
            "sequence_number": id_text(snapshot.sequence_number) if metadata.format_version > 1 else None,
            "schema_id": snapshot.schema_id,
            "first_row_id": id_text(snapshot.first_row_id),
            "added_rows": snapshot.added_rows,
        }
        for snapshot in metadata.snapshots
    ]


_REF_DEFAULTS: Final = ("max_snapshot_age_in_ms", "min_snapshots_to_keep", "max_reference_age_in_ms")


def ref_rows(metadata: TableMetadata) -> list[Row]:
    """Every branch and tag with its own retention, and what holds where it has none."""
    from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import ref_defaults

    defaults = ref_defaults(metadata)
    table = None if defaults is None else dict(zip(_REF_DEFAULTS, defaults, strict=True))
    return [
        {
            "name": name,
            "type": ref.type.upper(),
            "snapshot_id": id_text(ref.snapshot_id),
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
            "table_defaults": table,
        }
        for name, ref in metadata.refs.items()
    ]


def history_rows(metadata: TableMetadata) -> list[Row]:
    """The snapshot log: the current snapshots with times. Expiry cuts its beginning off."""
    current = metadata.current_snapshot()
    line = set() if current is None else {s.snapshot_id for s in metadata.ancestors(current)}
    rows = []
    for entry in metadata.snapshot_log:
        snapshot = metadata.snapshot(entry.snapshot_id)
        rows.append(
            {
                "made_current_at": iso(entry.timestamp_ms),
                "made_current_at_ms": entry.timestamp_ms,
                "snapshot_id": id_text(entry.snapshot_id),
                "parent_id": None if snapshot is None else id_text(snapshot.parent_snapshot_id),
                "is_current_ancestor": entry.snapshot_id in line,
            }
        )
    return rows


def metadata_log_rows(metadata: TableMetadata, *, metadata_location: str) -> list[Row]:
    """Earlier metadata files, and the current one at the end, each with the snapshot that was current then."""
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    rows = []
    for timestamp_ms, file in [*files, (metadata.last_updated_ms, metadata_location)]:
        known = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= timestamp_ms]
        snapshot = metadata.snapshot(known[-1]) if known else None
        rows.append(
            {
                "timestamp": iso(timestamp_ms),
                "timestamp_ms": timestamp_ms,
                "file": file,
                "latest_snapshot_id": id_text(known[-1]) if known else None,
                "latest_schema_id": None if snapshot is None else snapshot.schema_id,
                "latest_sequence_number": None if snapshot is None else id_text(snapshot.sequence_number),
            }
        )
    return rows


def schema_rows(metadata: TableMetadata) -> list[Row]:
    """Every schema; fields as the specification's JSON has them."""
    return [
        {
            "schema_id": schema.schema_id,
            "is_current": schema.schema_id == metadata.current_schema_id,
            "identifier_field_ids": list(schema.identifier_field_ids),
            "fields": [field.to_json() for field in schema.fields],
        }
        for schema in metadata.schemas
    ]


def spec_rows(metadata: TableMetadata) -> list[Row]:
    """Every partition spec; source columns by id and, where a schema still has them, by name."""
    names = column_names(metadata)
    return [
        {
            "spec_id": spec.spec_id,
            "is_default": spec.spec_id == metadata.default_spec_id,
            "fields": [
                {
                    "name": field.name,
                    "transform": field.transform,
                    "source_ids": list(field.source_ids),
                    "source_names": [names.get(source_id) for source_id in field.source_ids],
                    "field_id": field.field_id,
                }
                for field in spec.fields
            ],
        }
        for spec in metadata.partition_specs
    ]


def property_rows(metadata: TableMetadata) -> list[Row]:
    """Table properties, by key."""
    return [{"key": key, "value": text} for key, text in sorted(metadata.properties.items())]


def statistics_rows(metadata: TableMetadata) -> list[Row]:
    """Table statistics files with their blobs, then partition statistics files."""
    rows: list[Row] = [
        {
            "type": "table",
            "snapshot_id": id_text(entry.snapshot_id),
            "statistics_path": entry.statistics_path,
            "file_size_in_bytes": entry.file_size_in_bytes,
            "file_footer_size_in_bytes": entry.file_footer_size_in_bytes,
            "blob_metadata": [
                {
                    "type": blob.type,
                    "snapshot_id": id_text(blob.snapshot_id),
                    "sequence_number": id_text(blob.sequence_number),
                    "fields": list(blob.fields),
                    "properties": dict(blob.properties or {}),
                }
                for blob in entry.blob_metadata
            ],
        }
        for entry in metadata.statistics
    ]
    rows += [
        {
            "type": "partition",
            "snapshot_id": id_text(entry.snapshot_id),
            "statistics_path": entry.statistics_path,
            "file_size_in_bytes": entry.file_size_in_bytes,
            "file_footer_size_in_bytes": None,
            "blob_metadata": [],
        }
        for entry in metadata.partition_statistics
    ]
    return rows


def snapshot_row_ids(metadata: TableMetadata) -> list[Row]:
    """The row ids that each snapshot reserved.

    Spec: "Row Lineage". `assigned_rows` is an upper bound: existing rows that get their first id count too.
    """
    return [
        {
            "kind": "snapshot",
            "snapshot_id": id_text(snapshot.snapshot_id),
            "path": None,
            "first_row_id": id_text(snapshot.first_row_id),
            "assigned_rows": snapshot.added_rows,
        }
        for snapshot in metadata.snapshots
    ]

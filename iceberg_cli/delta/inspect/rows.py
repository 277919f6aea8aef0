"""inspect: what a snapshot and its commits say, as rows that print and serialise.

Rows carry the field names of the actions. 64-bit ids are strings; times have a twin in ISO 8601.

Spec: "Actions", "Derived Fields", "Table Features".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.features import READER_FEATURES, WRITER_FEATURES, reader_features, writer_features
from iceberg_cli.delta.spec.in_commit_timestamps import IN_COMMIT_TIMESTAMPS
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, schema_fields
from iceberg_cli.delta.spec.row_ids import DOMAIN, high_water_mark
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.plan.inspection import INSPECTION_SCHEMA
from iceberg_cli.plan.text import iso

Row = dict[str, Any]

_COMMIT_INFO: Final = (
    "operation",
    "operationParameters",
    "operationMetrics",
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "userId",
    "userName",
    "userMetadata",
    "engineInfo",
    "txnId",
)
_SWITCHES: Final[Mapping[str, str]] = {
    "appendOnly": "delta.appendOnly",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "deletionVectors": "delta.enableDeletionVectors",
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "inCommitTimestamp": IN_COMMIT_TIMESTAMPS,
    "rowTracking": "delta.enableRowTracking",
    "typeWidening": "delta.enableTypeWidening",
    "typeWidening-preview": "delta.enableTypeWidening",
}
_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "columnMapping": ("delta.columnMapping.mode", "none"),
    "v2Checkpoint": ("delta.checkpointPolicy", "classic"),
}
_CONSTRAINT: Final = "delta.constraints."


def header(snapshot: Snapshot, what: str, *, table: Mapping[str, str], as_of_ms: int) -> Row:
    """The fields that every `inspection/2` document about a Delta table begins with."""
    return {
        "schema": INSPECTION_SCHEMA,
        "what": what,
        "table": dict(table),
        "format": "delta",
        "format_version": snapshot.protocol.min_writer_version,
        "table_uuid": snapshot.metadata.id,
        "location": table["location"],
        "version": snapshot.version,
        "as_of_ms": as_of_ms,
        "as_of": iso(as_of_ms),
    }


def protocol_rows(snapshot: Snapshot) -> list[Row]:
    """The `protocol` action; the lists are null where it has none."""
    found: Row = {"minReaderVersion": None, "minWriterVersion": None}
    found |= {"readerFeatures": None, "writerFeatures": None}
    return [found | snapshot.protocol.to_json()]


def feature_rows(snapshot: Snapshot) -> list[Row]:
    """Every table feature by name: who must know it, where it comes from, and whether its property switches it on."""
    protocol = snapshot.protocol
    readers, writers = reader_features(protocol), writer_features(protocol)
    listed = (protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())
    return [
        {
            "name": name,
            "reader": name in readers,
            "writer": name in writers,
            "source": "listed" if name in listed else "version",
            "known": name in WRITER_FEATURES or name in READER_FEATURES,
            "enabled": is_enabled(name, snapshot.metadata),
        }
        for name in sorted(readers | writers)
    ]


def is_enabled(feature: str, metadata: Metadata) -> bool | None:
    """Whether properties switch a feature on; None where none does, or its value is no value.

    Spec: "Active Features".
    """
    if feature in _MODES:
        name, off = _MODES[feature]
        return metadata.configuration.get(name, off).lower() != off
    if feature == "checkConstraints":
        return any(key.startswith(_CONSTRAINT) for key in metadata.configuration)
    if feature not in _SWITCHES:
        return None
    try:
        return metadata.property_bool(_SWITCHES[feature], default=False)
    except InvalidMetadata:
        return None


def property_rows(snapshot: Snapshot) -> list[Row]:
    """The table's configuration, by key."""
    return [{"key": key, "value": text} for key, text in sorted(snapshot.metadata.configuration.items())]


def schema_rows(snapshot: Snapshot) -> list[Row]:
    """The one schema of a snapshot: its fields as `schemaString` has them.

    Raises:
        CorruptFile: it is no struct.
    """
    return [
        {
            "partitionColumns": list(snapshot.metadata.partition_columns),
            "fields": schema_fields(snapshot.metadata),
        }
    ]


def logical_names(metadata: Metadata) -> dict[str, str]:
    """By name in partition values, the name of each partition column for people.

    Raises:
        As `schema_fields`.

    Spec: "Column Mapping".
    """
    names = {column: column for column in metadata.partition_columns}
    if not is_enabled("columnMapping", metadata):
        return names
    physical = {
        field["name"]: (field.get("metadata") or {}).get("delta.columnMapping.physicalName")
        for field in schema_fields(metadata)
    }
    return {physical.get(column) or column: column for column in metadata.partition_columns}


def history_rows(actions: Actions, times_ms: Mapping[int, int]) -> list[Row]:
    """One row for each commit, the newest last: fields of its `commitInfo`, and how many files it adds and removes.

    Args:
        actions: of those commits.
        times_ms: of their files, by version; an in-commit timestamp goes before.
    """
    infos = dict(actions.commit_infos)
    added, removed = _counted(actions.add_versions), _counted(actions.remove_versions)
    changed = _counted(actions.cdc_versions)
    rows = []
    for version in sorted(times_ms):
        info = infos.get(version, {})
        stated = info.get("inCommitTimestamp")
        timestamp_ms = stated if type(stated) is int else times_ms[version]
        rows.append(
            {"version": version, "timestamp": iso(timestamp_ms), "timestamp_ms": timestamp_ms}
            | {name: info.get(name) for name in _COMMIT_INFO}
            | {
                "add_count": added.get(version, 0),
                "remove_count": removed.get(version, 0),
                "cdc_count": changed.get(version, 0),
            }
        )
    return rows


def _counted(versions: np.ndarray) -> dict[int, int]:
    found, counts = np.unique(versions, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def last_row_id(snapshot: Snapshot) -> int | None:
    """The high-water mark of row ids, -1 for none; None where the table has no such domain.

    Raises:
        CorruptFile: the domain does not say it.
    """
    return high_water_mark(snapshot) if DOMAIN in snapshot.domains else None


ROWS: Final[Mapping[str, Callable[[Snapshot], Sequence[Row]]]] = {
    "protocol": protocol_rows,
    "features": feature_rows,
    "properties": property_rows,
    "schemas": schema_rows,
}
"""What is small: rows by WHAT."""


def protocol_summary(protocol: Protocol) -> Row:
    """The protocol as a summary shows it; null where the action has no list."""
    readers, writers = protocol.reader_features, protocol.writer_features
    return {
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "reader_features": None if readers is None else sorted(readers),
        "writer_features": None if writers is None else sorted(writers),
    }

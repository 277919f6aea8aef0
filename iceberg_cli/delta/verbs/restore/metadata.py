"""restore on Delta: metadata, protocol and domains of the restored table. Nothing is read here.

The metadata is that of the target, but for what must not be lowered or forgotten: marks of identity columns, the
highest column id, the version before which checkpoints are protected, since when commits tell their own time, and the
names of the columns of row ids. The protocol keeps every feature. So does Delta Spark; beyond it the table keeps its
id, and the columns of row ids are those in which the target's files have them.

Spec: "Change Metadata", "Protocol Evolution", "Identity Columns", "Column Mapping", "In-Commit Timestamps", "Clustered
Table", "Domain Metadata"; Delta Spark's `RestoreTableCommand`, `IdentityColumn.copySchemaWithMergedHighWaterMarks`,
`DomainMetadataUtils.handleDomainMetadataForRestoreTable`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from iceberg_cli.delta.spec.clustering import DOMAIN as CLUSTERING
from iceberg_cli.delta.spec.features import (
    READER_VERSION,
    WRITER_VERSION,
    reader_features,
    supports,
    write_refusal,
    writer_features,
)
from iceberg_cli.delta.spec.in_commit_timestamps import SINCE_TIME, SINCE_VERSION, has_in_commit_timestamps
from iceberg_cli.delta.spec.protocol import Metadata, Protocol, schema_fields
from iceberg_cli.delta.spec.row_ids import FEATURE as ROW_TRACKING
from iceberg_cli.delta.spec.row_ids import MATERIALIZED
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.statistics_columns import physical_name
from iceberg_cli.encoding.strict_json import loads

MAPPING: Final = "delta.columnMapping.mode"
_MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_PROTECTED: Final = "delta.requireCheckpointProtectionBeforeVersion"
_APPEND_ONLY: Final = "delta.appendOnly"
_START, _STEP, _MARK = (f"delta.identity.{name}" for name in ("start", "step", "highWaterMark"))
_NO_MAPPING: Final = "none"


def merged_protocol(current: Protocol, target: Protocol) -> Protocol:
    """The protocol that has the features of both; the table's own where that is all of them."""
    readers = reader_features(current) | reader_features(target)
    writers = writer_features(current) | writer_features(target)
    if readers == reader_features(current) and writers == writer_features(current):
        return current
    reader_version = max(current.min_reader_version, target.min_reader_version)
    writer_version = max(current.min_writer_version, target.min_writer_version)
    if writer_version < WRITER_VERSION:
        return replace(current, min_reader_version=reader_version, min_writer_version=writer_version)
    return replace(
        current,
        min_reader_version=reader_version,
        min_writer_version=writer_version,
        reader_features=frozenset(readers) if reader_version == READER_VERSION else None,
        writer_features=frozenset(writers),
    )


def restored_metadata(current: Metadata, target: Metadata, *, before: Protocol, after: Protocol) -> Metadata:
    """The metadata of the target, with what must not be lowered or forgotten.

    Args:
        current: the table's.
        target: that of the version that is restored.
        before: the table's protocol.
        after: it, once the table is restored.

    Raises:
        CorruptFile: a schema cannot be read. InvalidMetadata: a property makes no sense.
    """
    configuration = dict(target.configuration)
    if has_in_commit_timestamps(before, current) and has_in_commit_timestamps(after, target):
        # Commits told their time from then on which the table says now, whatever was true at the target.
        since = (SINCE_VERSION, SINCE_TIME)
        configuration = {key: text for key, text in configuration.items() if key not in since}
        configuration |= {key: text for key, text in current.configuration.items() if key in since}
    highest = [_PROTECTED] if _PROTECTED in current.configuration else []
    if mapping_mode(target) != _NO_MAPPING:
        highest.append(_MAX_COLUMN_ID)
    for name in highest:
        value = max(each.property_int(name, 0) for each in (current, target))
        if name in current.configuration or name in target.configuration:
            configuration[name] = str(value)
    if supports(after, ROW_TRACKING):
        names = {key: current.configuration[key] for key, _ in MATERIALIZED if key in current.configuration}
        configuration = {**names, **configuration}
    return replace(
        target,
        id=current.id,
        schema_string=with_identity_marks(target, current),
        configuration=configuration,
        null_properties=target.null_properties.difference(configuration),
    )


def mapping_mode(metadata: Metadata) -> str:
    """How columns are found in files: none, name or id."""
    return metadata.configuration.get(MAPPING, _NO_MAPPING)


def with_identity_marks(target: Metadata, current: Metadata) -> str:
    """The schema of the target, in which no identity column would give a value again.

    Raises:
        CorruptFile: a schema cannot be read.
    """
    marks = {
        physical_name(field): field["metadata"][_MARK]
        for field in schema_fields(current)
        if _is_identity(field) and _MARK in field["metadata"]
    }
    if not marks or not target.schema_string:
        return target.schema_string
    schema = loads(target.schema_string.encode(), "metaData.schemaString")
    raised = False
    for field in schema["fields"]:
        candidate = marks.get(physical_name(field))
        if candidate is None or not _is_identity(field):
            continue
        mark = _raised(field["metadata"], candidate)
        raised = raised or mark != field["metadata"].get(_MARK)
        if mark is not None:
            field["metadata"][_MARK] = mark
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) if raised else target.schema_string


def _is_identity(field: Mapping[str, Any]) -> bool:
    about = field.get("metadata") or {}
    return _START in about and bool(about.get(_STEP))


def _raised(about: Mapping[str, Any], candidate: int) -> int | None:
    """The mark of an identity column, raised to another one unless that is before the start of the column."""
    start, step, own = about[_START], about[_STEP], about.get(_MARK)
    if (candidate - start) * step < 0:
        return own
    rounded = start - (start - candidate) // step * step
    if own is None:
        return int(rounded)
    return int(max(own, rounded) if step > 0 else min(own, rounded))


def domain_changes(current: Snapshot, target: Snapshot) -> tuple[Mapping[str, Any], ...]:
    """The actions by which the table is clustered as it was; all other domains stay as they are.

    Where the target is not clustered and the table is, it is by no column from then on.
    """
    now, then = current.domains.get(CLUSTERING), target.domains.get(CLUSTERING)
    if then is not None:
        same = now is not None and now.get("configuration") == then.get("configuration")
        return () if same else ({"domainMetadata": dict(then)},)
    if now is None:
        return ()
    by_none = json.dumps({"clusteringColumns": [], "domainName": CLUSTERING}, separators=(",", ":"))
    if now.get("configuration") == by_none:
        return ()
    return ({"domainMetadata": {**now, "configuration": by_none}},)


def kept_domains(current: Snapshot, target: Snapshot, *, besides: frozenset[str]) -> list[str]:
    """The domains that the target has in another way, or has not, or alone has, and that stay as they are."""
    names = (current.domains.keys() | target.domains.keys()) - besides
    return sorted(name for name in names if _text(current, name) != _text(target, name))


def _text(snapshot: Snapshot, domain: str) -> str | None:
    action = snapshot.domains.get(domain)
    return None if action is None else action.get("configuration")


def metadata_obstacles(
    current: Metadata, restored: Metadata, after: Protocol, *, removes_rows: bool
) -> Iterator[str]:
    """Why a table must not be given back the metadata of a version, or not its files.

    Args:
        current: the table's.
        restored: what it would be.
        after: the protocol then.
        removes_rows: whether files leave.

    Raises:
        InvalidMetadata: a property makes no sense.
    """
    if (refusal := write_refusal(after, restored)) is not None:
        yield refusal
    now, then = mapping_mode(current), mapping_mode(restored)
    if now != then and not (then == _NO_MAPPING or (now, then) == (_NO_MAPPING, "name")):
        yield f"{MAPPING} is {now}, and was {then}: Delta has no way from the one to the other"
    if removes_rows and current.property_bool(_APPEND_ONLY, default=False):
        yield f"{_APPEND_ONLY} is true: no file may be removed from the table"

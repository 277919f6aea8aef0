"""What a rewrite of data files goes by: its policy, the table's properties, and documented defaults, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.rows.table_columns import partition_columns, stored_columns
from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.features import VECTORS_PROPERTY, supports, takes_deletion_vectors
from iceberg_cli.delta.spec.iceberg_compat import (
    PROPERTIES,
    UNIFORM,
    WITHOUT_VECTORS,
    compat_version,
    has_partition_columns_in_files,
    uniform_formats,
)
from iceberg_cli.delta.spec.row_ids import ENABLED, FEATURE, MATERIALIZED, SUSPENDED, ids_problem
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.text_values import partition_values
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import as_declared, declared_names
from iceberg_cli.delta.verbs.rewrite_data_files.partitions import is_zoned
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.encoding.projection import Field, ListOf, MapOf, StructOf, arrow_type
from iceberg_cli.layout.compaction import CompactionSettings
from iceberg_cli.layout.files.chosen_by import chosen_by
from iceberg_cli.plan.compaction_policy import DECLARED
from iceberg_cli.plan.plan import Option
from iceberg_cli.plan.text import listed, size_bytes

TARGET: Final = "delta.targetFileSize"
_DEFAULT_TARGET_BYTES: Final = 1 << 30  # as Delta Spark: it would rewrite smaller ones again
_DELETE_RATIO: Final = 0.05
_WRITTEN_COMPAT: Final = (1, 2)
_NESTED_IDS_SINCE: Final = 2


def compaction_of(
    snapshot: Snapshot, policy: RewriteDataFiles
) -> tuple[CompactionSettings, Mapping[str, Option]]:
    """Which files are chosen, and the options that say so.

    Raises:
        UsageError: sizes do not go together.
    """
    metadata = snapshot.metadata
    target = policy.chosen("target_size", _DEFAULT_TARGET_BYTES)
    if policy.target_size is None and (text := metadata.configuration.get(TARGET)) is not None:
        target = Option(
            value=size_bytes(text.strip(), f"table property {TARGET}"), source=f"table property {TARGET}"
        )
    effective = as_declared(policy, snapshot)
    settings, options = chosen_by(effective, target, delete_ratio=_DELETE_RATIO)
    if effective.strategy != policy.strategy:
        options["strategy"] = Option(
            value=DECLARED, source=f"clustering by {', '.join(declared_names(snapshot))}"
        )
    return settings, {
        **options,
        "older_than_ms": policy.chosen("older_than"),
        **policy.chosen_or_none("purge"),
    }


def keeps_row_ids(snapshot: Snapshot) -> bool:
    """Whether rows have ids, which stay theirs."""
    return supports(snapshot.protocol, FEATURE) and snapshot.metadata.property_bool(ENABLED, default=False)


def partition_columns_in_files(snapshot: Snapshot) -> tuple[Field, ...]:
    """The partition columns that new data files have too, after the others; none where they have none."""
    if not has_partition_columns_in_files(snapshot.protocol, snapshot.metadata):
        return ()
    return tuple(partition_columns(snapshot.metadata))


def obstacles(snapshot: Snapshot, policy: RewriteDataFiles) -> tuple[str, ...]:
    """Why the table's files are not written here, in words.

    Raises:
        CorruptFile: the schema is none. InvalidMetadata: a type is none.
    """
    metadata, reasons = snapshot.metadata, []
    unknown = [name for name in snapshot.adds.schema.names if name not in ADD.names]
    if unknown:
        reasons.append(
            f"adds have {', '.join(unknown)}, which Delta's protocol does not name: new files would not"
        )
    fields = stored_columns(metadata)
    if not fields:
        reasons.append("it has no columns besides those of its partitions, so its files have none")
    if unreadable := sorted(name for field in fields for name in _unreadable(field, "")):
        reasons.append(f"values of {', '.join(unreadable)} have a type that is not written here")
    if metadata.partition_columns and (names := declared_names(snapshot)):
        reasons.append(f"it has partitions, and is clustered by {listed(names)}: no table may be both")
    reasons += _iceberg_obstacles(snapshot, policy)
    if supports(snapshot.protocol, FEATURE):
        reasons += _ids_obstacles(snapshot)
    return tuple(reasons)


def _iceberg_obstacles(snapshot: Snapshot, policy: RewriteDataFiles) -> Iterator[str]:
    """What the table promises to Iceberg that new files, or the commit, would not keep."""
    metadata, version = snapshot.metadata, compat_version(snapshot.metadata)
    if uniform_formats(metadata.configuration) and not policy.leave_iceberg_behind:
        behind = "that metadata would be a version behind until Delta Spark commits again"
        yield f"{UNIFORM} is {metadata.configuration[UNIFORM]}: {behind} (--leave-iceberg-behind carries on)"
    if version is not None and version not in _WRITTEN_COMPAT:
        yield f"{PROPERTIES[version]} is true, which asks for files that are not written here"
    if version in WITHOUT_VECTORS and takes_deletion_vectors(snapshot.protocol, metadata):
        yield f"{PROPERTIES[version]} and {VECTORS_PROPERTY} are true, which exclude each other"
    if version is not None and version >= _NESTED_IDS_SINCE:
        without = sorted(name for field in stored_columns(metadata) for name in _without_ids(field, ""))
        if without:
            yield f"{PROPERTIES[version]} is true, and the schema has no ids of {', '.join(without)}"
    for field in partition_columns_in_files(snapshot):
        kind = arrow_type(field.type)
        texts = pc.map_lookup(one_array(snapshot.adds["partitionValues"]), field.name, "first")
        values, is_unknown = partition_values(texts, kind)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            is_unknown = pc.or_(is_unknown, pc.and_not(values.is_valid(), is_zoned(texts)))
        if text := next(iter(texts.filter(is_unknown).to_pylist()), None):
            what = "which readers take for different values, and new files would have one of them"
            yield f"a file has {text!r} in partition column {field.name}, {what}"


def _without_ids(field: Field, above: str) -> Iterator[str]:
    """What is in lists and maps without an id."""
    name = above + field.name
    match field.type:
        case StructOf(fields=fields):
            inner = fields
        case ListOf(element=element):
            inner = (element,)
        case MapOf(key=key, value=value):
            inner = (key, value)
        case _:
            inner = ()
    for each in inner:
        if each.field_id is None:
            yield f"{name}.{each.name}"
        yield from _without_ids(each, f"{name}.")


def _ids_obstacles(snapshot: Snapshot) -> list[str]:
    metadata = snapshot.metadata
    if metadata.property_bool(SUSPENDED, default=False):
        return [f"{SUSPENDED} is true: rows would lose their ids"]
    reasons = []
    if metadata.property_bool(ENABLED, default=False):
        reasons += [
            f"{ENABLED} is true, and {name} is not set: the ids of rows have no column"
            for name, _ in MATERIALIZED
            if not metadata.configuration.get(name)
        ]
        if snapshot.adds["baseRowId"].null_count or snapshot.adds["defaultRowCommitVersion"].null_count:
            reasons.append(
                "files have no row ids though row tracking is enabled: `inspect --check` shows which"
            )
    problem = ids_problem(snapshot)
    return reasons if problem is None else [*reasons, problem]


def _unreadable(field: Field, above: str) -> list[str]:
    name = above + field.name
    if not field.is_readable:
        return [name]
    match field.type:
        case StructOf(fields=fields):
            return [each for inner in fields for each in _unreadable(inner, f"{name}.")]
        case ListOf(element=element):
            return _unreadable(element, f"{name}.")
        case MapOf(key=key, value=value):
            return [*_unreadable(key, f"{name}."), *_unreadable(value, f"{name}.")]
    return []

"""What a rewrite of data files goes by: its policy, the table's properties, and documented defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.delta.rows.table_columns import stored_columns
from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.row_ids import ENABLED, FEATURE, MATERIALIZED, SUSPENDED, ids_problem
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import as_declared, declared_names
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.encoding.projection import Field, ListOf, MapOf, StructOf
from iceberg_cli.layout.compaction import CompactionSettings
from iceberg_cli.layout.files.chosen_by import chosen_by
from iceberg_cli.plan.compaction_policy import DECLARED
from iceberg_cli.plan.plan import Option
from iceberg_cli.plan.text import listed, size_bytes

TARGET: Final = "delta.targetFileSize"
_DEFAULT_TARGET_BYTES: Final = 1 << 30  # as Delta Spark: it would rewrite smaller ones again
_DELETE_RATIO: Final = 0.05
_UNIFORM: Final = "delta.universalFormat.enabledFormats"
_COMPAT: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")
_IN_FILES: Final = "materializePartitionColumns"


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


def obstacles(snapshot: Snapshot) -> tuple[str, ...]:
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
    if formats := metadata.configuration.get(_UNIFORM):
        reasons.append(f"{_UNIFORM} is {formats}: its Iceberg metadata would be a version behind")
    reasons += [
        f"{name} is true, which asks for files that are not written here"
        for name in _COMPAT
        if metadata.property_bool(name, default=False)
    ]
    if supports(snapshot.protocol, _IN_FILES):
        reasons.append(f"the table feature {_IN_FILES} asks for files that are not written here")
    if supports(snapshot.protocol, FEATURE):
        reasons += _ids_obstacles(snapshot)
    return tuple(reasons)


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

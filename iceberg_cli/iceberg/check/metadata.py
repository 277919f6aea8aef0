"""Rules that table metadata alone can break. What no reader could go on with is refused when it is loaded.

An absent parent and absent files of the metadata log are normal: expiry takes them. Blobs of Puffin files are looked at
by the same rules in the metadata of statistics files and in the footers of files.

Spec: "Table Metadata Fields", "Table Statistics"; Puffin spec, "BlobMetadata"; "Reserved Field IDs".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import (
    MAIN,
    SUPPORTED_FORMAT_VERSION,
    PartitionStatisticsFile,
    Schema,
    Snapshot,
    StatisticsFile,
    TableMetadata,
)
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, StructType, Type
from iceberg_cli.plan.findings import Findings

# How far writers' clocks may be apart, by the Java library.
_TOLERANCE_MS: Final = 60_000
_OPERATIONS: Final = ("append", "replace", "overwrite", "delete")
_V3_TYPES: Final = ("unknown", "variant", "timestamp_ns", "timestamptz_ns", "geometry", "geography")


def check_metadata(metadata: TableMetadata, findings: Findings) -> None:
    """Hold metadata against every rule about it."""
    _refs(metadata, findings)
    for schema in metadata.schemas:
        _schema(metadata, schema, findings)
    _specs(metadata, findings)
    _partition_names(metadata, findings)
    _default_sources(metadata, findings)
    _snapshots(metadata, findings)
    _sequence_numbers(metadata, findings)
    _ancestry(metadata, findings)
    _snapshot_row_ids(metadata, findings)
    _logs(metadata, findings)
    _statistics(metadata, findings)


# -- refs, schemas, specs ----------------------------------------------------------------------------------------


def _refs(metadata: TableMetadata, findings: Findings) -> None:
    for name, ref in metadata.refs.items():
        where = f"{ref.type} {name}"
        if metadata.snapshot(ref.snapshot_id) is None:
            findings.add("ref-snapshot-missing", where, f"snapshot {ref.snapshot_id} is not in the table")
        if name == MAIN and ref.type != BRANCH:
            findings.add("main-is-no-branch", where, f"main is a {ref.type}")
        kept = ref.min_snapshots_to_keep is not None or ref.max_snapshot_age_ms is not None
        if kept and ref.type != BRANCH:
            findings.add(
                "ref-retention-without-effect", where, "a tag says how many snapshots of a branch to keep"
            )
        if name == MAIN and ref.max_ref_age_ms is not None:
            findings.add("ref-retention-without-effect", where, "main has a max-ref-age-ms and never expires")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, nested field, element, key or value. `plain`: required and in required structs only."""

    field_id: int
    name: str
    type: Type
    plain: bool
    default: bool = False  # has an initial default


def _columns(fields: Sequence[NestedField], prefix: str = "", *, plain: bool = True) -> Iterator[_Column]:
    for field in fields:
        name, required = prefix + field.name, plain and field.required
        yield _Column(field.field_id, name, field.type, required, field.initial_default is not None)
        yield from _inside(field.type, name, plain=required)


def _inside(type_: Type, name: str, *, plain: bool) -> Iterator[_Column]:
    if isinstance(type_, StructType):
        yield from _columns(type_.fields, f"{name}.", plain=plain)
    elif isinstance(type_, ListType):
        yield _Column(type_.element_id, f"{name}.element", type_.element, plain=False)
        yield from _inside(type_.element, f"{name}.element", plain=False)
    elif isinstance(type_, MapType):
        for part, field_id, inner in (
            ("key", type_.key_id, type_.key),
            ("value", type_.value_id, type_.value),
        ):
            yield _Column(field_id, f"{name}.{part}", inner, plain=False)
            yield from _inside(inner, f"{name}.{part}", plain=False)


def _schema(metadata: TableMetadata, schema: Schema, findings: Findings) -> None:
    where = f"schema {schema.schema_id}"
    seen: dict[int, _Column] = {}
    for column in _columns(schema.fields):
        if column.field_id in seen:
            message = f"id {column.field_id} is that of {seen[column.field_id].name} and of {column.name}"
            findings.add("column-id-repeated", where, message)
        seen.setdefault(column.field_id, column)
        if column.field_id > metadata.last_column_id:
            message = f"{column.name} has id {column.field_id}, last-column-id is {metadata.last_column_id}"
            findings.add("column-id-above-last", where, message)
        newer = isinstance(column.type, str) and column.type.partition("(")[0] in _V3_TYPES
        if metadata.format_version < SUPPORTED_FORMAT_VERSION and (newer or column.default):
            what = f"type {column.type}" if newer else "an initial default"
            message = f"{column.name} has {what} in a table of format version {metadata.format_version}"
            findings.add("type-of-newer-format", where, message)
    for field_id in schema.identifier_field_ids:
        found = seen.get(field_id)
        reason = _unfit_identifier(found)
        if reason:
            name = field_id if found is None else found.name
            findings.add("identifier-field-unfit", where, f"identifier field {name} {reason}")
    for text in schema.unknown_types():
        findings.add("type-unknown", where, f"type {text!r:.80} is none of versions 1 to 3")


def _unfit_identifier(column: _Column | None) -> str:
    if column is None:
        return "is not in the schema"
    if not isinstance(column.type, str) or column.type in {"float", "double"}:
        kind = column.type if isinstance(column.type, str) else "a nested type"
        return f"is of {kind}, which identifies nothing"
    return "" if column.plain else "is optional, or inside something optional, a list or a map"


def _specs(metadata: TableMetadata, findings: Findings) -> None:
    known: dict[int, tuple[str, tuple[int, ...], int]] = {}
    for spec in metadata.partition_specs:
        where = f"partition spec {spec.spec_id}"
        ids: set[int] = set()
        names: set[str] = set()
        for field in spec.fields:
            if field.field_id in ids or field.name in names:
                message = f"field {field.name} with id {field.field_id} is there twice"
                findings.add("partition-field-repeated", where, message)
            ids.add(field.field_id)
            names.add(field.name)
            if field.field_id > metadata.last_partition_id:
                message = (
                    f"{field.name} has id {field.field_id}, last-partition-id is {metadata.last_partition_id}"
                )
                findings.add("partition-field-id-above-last", where, message)
            if metadata.format_version == 1 or field.transform == "void":
                continue  # v1 did not track these ids, and void takes the place of what was dropped
            meaning = (field.transform, field.source_ids, spec.spec_id)
            before = known.setdefault(field.field_id, meaning)
            if before[:2] != meaning[:2]:
                message = f"id {field.field_id} of {field.name} means {before[0]} of {before[1]} in spec {before[2]}"
                findings.add("partition-field-id-reused", where, message)


def _partition_names(metadata: TableMetadata, findings: Findings) -> None:
    """A partition field may have a column's name only if it is made of that column."""
    ids = {column.name: column.field_id for column in _columns(metadata.current_schema().fields)}
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if field.name in ids and ids[field.name] not in field.source_ids:
                made_of = ", ".join(map(str, field.source_ids))
                message = (
                    f"{field.name} is made of column {made_of}, and column {ids[field.name]} has that name"
                )
                findings.add("partition-name-clashes", f"partition spec {spec.spec_id}", message)


def _default_sources(metadata: TableMetadata, findings: Findings) -> None:
    types = metadata.current_schema().types_by_id()
    spec = metadata.default_spec()
    for field in spec.fields:
        missing = [i for i in field.source_ids if not isinstance(types.get(i), str)]
        if missing and field.transform != "void":
            message = f"{field.name} is made of column {missing[0]}, which the current schema has not"
            findings.add("partition-source-missing", f"partition spec {spec.spec_id}", message)
    for order in metadata.sort_orders:
        if order.order_id == 0 and order.fields:
            message = "it has fields, and id 0 is that of the unsorted order"
            findings.add("sort-order-zero-with-fields", "sort order 0", message)
        if order.order_id != metadata.default_sort_order_id:
            continue
        for sort_field in order.fields:
            missing = [i for i in sort_field.source_ids if not isinstance(types.get(i), str)]
            if missing:
                message = f"it sorts by column {missing[0]}, which the current schema has not"
                findings.add("sort-source-missing", f"sort order {order.order_id}", message)


# -- snapshots ---------------------------------------------------------------------------------------------------


def _snapshots(metadata: TableMetadata, findings: Findings) -> None:
    schema_ids = {schema.schema_id for schema in metadata.schemas}
    key_ids = {key.key_id for key in metadata.encryption_keys}
    for snapshot in metadata.snapshots:
        where = f"snapshot {snapshot.snapshot_id}"
        if snapshot.schema_id is not None and snapshot.schema_id not in schema_ids:
            findings.add("snapshot-schema-missing", where, f"schema {snapshot.schema_id} is not in the table")
        if snapshot.key_id is not None and snapshot.key_id not in key_ids:
            message = f"encryption key {snapshot.key_id} is not in the table"
            findings.add("snapshot-key-missing", where, message)
        operation = snapshot.operation
        if operation not in _OPERATIONS and (snapshot.summary is not None or metadata.format_version > 1):
            what = "no operation" if operation is None else f"the operation {operation!r:.40}"
            findings.add("snapshot-operation-missing", where, f"the summary says {what}")
        if snapshot.manifests is None:
            continue
        if snapshot.manifest_list is not None:
            message = "it has a manifest list and names manifests itself"
            findings.add("snapshot-manifests-twice", where, message)
        elif metadata.format_version > 1:
            message = f"it names {len(snapshot.manifests)} manifests itself, as only version 1 may"
            findings.add("snapshot-manifests-inline", where, message)


def _sequence_numbers(metadata: TableMetadata, findings: Findings) -> None:
    owners: dict[int, int] = {}
    for snapshot in metadata.snapshots:
        number, where = snapshot.sequence_number, f"snapshot {snapshot.snapshot_id}"
        if metadata.format_version > 1 and number:  # those of v1 have 0
            owner = owners.setdefault(number, snapshot.snapshot_id)
            if owner != snapshot.snapshot_id:
                message = f"sequence number {number} is that of snapshot {owner} too"
                findings.add("snapshot-sequence-number-repeated", where, message)
        parent = _parent(metadata, snapshot)
        if parent is None:
            continue
        if parent.sequence_number and number < parent.sequence_number:
            message = f"sequence number {number} is below its parent's {parent.sequence_number}"
            findings.add("snapshot-not-newer-than-parent", where, message)
        early_ms = parent.timestamp_ms - snapshot.timestamp_ms
        if early_ms > _TOLERANCE_MS:
            message = f"it was made {early_ms} ms before its parent {parent.snapshot_id}"
            findings.add("snapshot-earlier-than-parent", where, message)


def _parent(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    if snapshot.parent_snapshot_id is None:
        return None
    return metadata.snapshot(snapshot.parent_snapshot_id)


def _ancestry(metadata: TableMetadata, findings: Findings) -> None:
    done: set[int] = set()
    for snapshot in metadata.snapshots:
        line: set[int] = set()
        at: Snapshot | None = snapshot
        while at is not None and at.snapshot_id not in done:
            if at.snapshot_id in line:
                message = f"it is an ancestor of itself, by way of parent {at.parent_snapshot_id}"
                findings.add("parent-cycle", f"snapshot {at.snapshot_id}", message)
                break
            line.add(at.snapshot_id)
            at = _parent(metadata, at)
        done |= line


def _snapshot_row_ids(metadata: TableMetadata, findings: Findings) -> None:
    if metadata.format_version < SUPPORTED_FORMAT_VERSION:
        return
    lineage = False  # snapshots from before the upgrade have no row ids
    ranges = []
    for snapshot in sorted(metadata.snapshots, key=lambda each: each.sequence_number):
        where = f"snapshot {snapshot.snapshot_id}"
        first, added = snapshot.first_row_id, snapshot.added_rows
        if first is None or added is None:
            if lineage or first is not None:
                message = "first-row-id and added-rows are required in a snapshot of version 3"
                findings.add("snapshot-row-ids-missing", where, message)
            continue
        lineage = True
        if first + added > metadata.next_row_id:
            message = (
                f"it reserved row ids {first} to {first + added - 1}, next-row-id is {metadata.next_row_id}"
            )
            findings.add("snapshot-row-ids-above-next", where, message)
        if added:
            ranges.append((first, first + added, snapshot.snapshot_id))
    for (first, stop, owner), (later, _, snapshot_id) in pairwise(sorted(ranges)):
        if later < stop:
            message = f"its row ids begin at {later}, snapshot {owner} reserved {first} to {stop - 1}"
            findings.add("snapshot-row-ids-overlap", f"snapshot {snapshot_id}", message)


# -- logs and statistics -----------------------------------------------------------------------------------------


def _logs(metadata: TableMetadata, findings: Findings) -> None:
    logs = {
        "snapshot-log": [entry.timestamp_ms for entry in metadata.snapshot_log],
        "metadata-log": [entry.timestamp_ms for entry in metadata.metadata_log],
    }
    for name, times in logs.items():
        for index, (before, after) in enumerate(pairwise(times), start=1):
            if before - after > _TOLERANCE_MS:
                message = f"{after} comes after {before}: readers refuse more than a minute"
                findings.add(f"{name}-unordered", f"{name}[{index}]", message)
        if times and times[-1] - metadata.last_updated_ms > _TOLERANCE_MS:
            message = f"{metadata.last_updated_ms} is before the end of {name}, {times[-1]}"
            findings.add("last-updated-too-early", "last-updated-ms", message)
    for index, entry in enumerate(metadata.snapshot_log):
        if metadata.snapshot(entry.snapshot_id) is None:
            message = f"snapshot {entry.snapshot_id} is not in the table any more"
            findings.add("snapshot-log-gap", f"snapshot-log[{index}]", message)
    if metadata.snapshot_log and metadata.current_snapshot_id is not None:
        last = metadata.snapshot_log[-1].snapshot_id
        if last != metadata.current_snapshot_id:
            message = f"it ends with {last}, the current snapshot is {metadata.current_snapshot_id}"
            findings.add("snapshot-log-end", "snapshot-log", message)


def _statistics(metadata: TableMetadata, findings: Findings) -> None:
    kinds: dict[str, Sequence[StatisticsFile | PartitionStatisticsFile]] = {
        "statistics": metadata.statistics,
        "partition-statistics": metadata.partition_statistics,
    }
    for kind, files in kinds.items():
        seen: set[int] = set()
        for index, file in enumerate(files):
            where = f"{kind}[{index}]"
            if metadata.snapshot(file.snapshot_id) is None:
                message = f"snapshot {file.snapshot_id} of {file.statistics_path} is not in the table"
                findings.add("statistics-without-snapshot", where, message)
            if file.snapshot_id in seen:
                message = f"snapshot {file.snapshot_id} has another file before this one"
                findings.add("statistics-repeated", where, message)
            seen.add(file.snapshot_id)
    columns = frozenset(column_types(metadata))
    for index, statistics in enumerate(metadata.statistics):
        check_blobs(statistics.blob_metadata, f"statistics[{index}]", columns, findings)


_FIRST_RESERVED_ID: Final = 2147483447 + 1
_REF: Final = "referenced-data-file"


class _Blob(Protocol):
    """The fields of a blob that manifest and footer share."""

    @property
    def type(self) -> str: ...
    @property
    def fields(self) -> tuple[int, ...]: ...
    @property
    def snapshot_id(self) -> int: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str] | None: ...


def check_blobs(blobs: Iterable[_Blob], where: str, columns: Container[int], findings: Findings) -> None:
    """Each blob is there once, and is of columns that the table has or had.

    Args:
        blobs: in their order.
        where: for findings.
        columns: ids of all columns of all schemas.
        findings: to add to.
    """
    seen: set[tuple[object, ...]] = set()
    for place, blob in enumerate(blobs):
        for field_id in blob.fields:
            if field_id < _FIRST_RESERVED_ID and field_id not in columns:
                message = f"blob {place} is of field {field_id}, which no schema of the table has"
                findings.add("puffin-blob-unfit", where, message)
        # Deletion vectors of several data files differ by nothing else.
        ref = (blob.properties or {}).get(_REF)
        key = (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number, ref)
        if key in seen:
            of = ref or ", ".join(map(str, blob.fields)) or "no field"
            findings.add("puffin-blob-unfit", where, f"blob {place} ({blob.type:.80} of {of}) is there twice")
        seen.add(key)

"""Reading the parts of table metadata that depend on each other or on the format version.

v1 files may predate schemas, partition specs, sort orders and refs; what those would be is derived here, as
Java does.

Spec: "Table Metadata Fields", Appendix C, Appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from iceberg_cli.errors import InvalidMetadata, Refused, TableNotFound
from iceberg_cli.iceberg.json_fields import Fields, shown
from iceberg_cli.iceberg.schema import NestedField, Schema
from iceberg_cli.iceberg.snapshots import BRANCH, MAIN, Snapshot, SnapshotRef
from iceberg_cli.iceberg.specs import FIRST_PARTITION_FIELD_ID, PartitionSpec, SortOrder, partition_fields
from iceberg_cli.paths import canonical

_EVERY_TABLE: Final = ("format-version", "table-uuid", "location", "schema", "schemas", "snapshots")
SUPPORTED_FORMAT_VERSION: Final = 3

T = TypeVar("T")


def read_format_version(obj: Fields) -> int:
    """1, 2 or 3.

    Raises:
        Refused: it is a newer one. InvalidMetadata: it is none.
    """
    version = obj.integer("format-version")
    if version > SUPPORTED_FORMAT_VERSION:
        raise Refused(
            f"Cannot read {obj.path}: format version {version} is newer than this iceberg-cli, which knows 1 to "
            f"{SUPPORTED_FORMAT_VERSION}",
            next_step="Use a newer iceberg-cli.",
        )
    if version < 1:
        raise obj.wrong("format-version", f"there is no format version {version}")
    return version


def read_location(obj: Fields) -> str:
    """The table's base location, which names some folder."""
    location = obj.string("location")
    if not canonical(location.strip()):
        raise obj.wrong("location", f"a folder is expected, not {shown(location)}")
    return location


def check_is_table(obj: Fields) -> None:
    """Refuse JSON that has nothing of a table's metadata: somebody else's file, not a damaged one of a table.

    Raises:
        InvalidMetadata: it has none of the fields that every version requires.
    """
    if any(name in obj for name in _EVERY_TABLE):
        return
    error = InvalidMetadata(
        obj.path, None, f"it is JSON, but no metadata of a table: it has none of {', '.join(_EVERY_TABLE)}"
    )
    error.next_step = "Name a table's folder, one of its own metadata files, or the table in a catalog."
    raise error


def check_no_view(obj: Fields) -> None:
    """Refuse the metadata of a view, which has files of the same names.

    Raises:
        TableNotFound: it is one.
    """
    if "view-uuid" in obj and "table-uuid" not in obj:
        raise TableNotFound(
            f"Cannot open {obj.path}: it is the metadata of a view (view-uuid {shown(obj.value['view-uuid'])}), and a "
            "view has no data of its own",
            next_step="Name one of the tables that the view reads.",
        )


def read_records(obj: Fields, key: str, read: Callable[..., T]) -> tuple[T, ...]:
    """The records of an array; none where it is absent or null."""
    return tuple(
        read(item, path=obj.path, where=f"{key}[{i}]") for i, item in enumerate(obj.optional_array(key))
    )


def read_schemas(obj: Fields, version: int) -> tuple[tuple[Schema, ...], int]:
    """The schemas and the current one's id; v1 may have only `schema`, or `schemas` without a current id."""
    if version > 1 or "schemas" in obj:
        known: dict[int, NestedField] = {}
        schemas = tuple(
            Schema.from_json(item, path=obj.path, where=f"schemas[{i}]", known=known)
            for i, item in enumerate(obj.array("schemas"))
        )
        if version == 1 and "current-schema-id" not in obj and "schema" in obj:
            current_id = Schema.from_json(obj.value["schema"], path=obj.path).schema_id
        else:
            current_id = obj.integer("current-schema-id")
    else:
        only = Schema.from_json(obj.value.get("schema"), path=obj.path)
        schemas, current_id = (only,), only.schema_id
    _check_ids(obj, "schemas", [schema.schema_id for schema in schemas])
    if all(schema.schema_id != current_id for schema in schemas):
        raise obj.wrong("current-schema-id", f"{current_id} is not the id of any of the schemas")
    return schemas, current_id


def read_specs(obj: Fields, version: int) -> tuple[tuple[PartitionSpec, ...], int]:
    """The partition specs and the default one's id; v1 may have only the fields of one, which gets id 0."""
    if version > 1 or "partition-specs" in obj:
        obj.array("partition-specs")
        specs = read_records(obj, "partition-specs", PartitionSpec.from_json)
        if version == 1 and "default-spec-id" not in obj:
            default_id = max((spec.spec_id for spec in specs), default=0)
        else:
            default_id = obj.integer("default-spec-id")
    else:
        items = obj.array("partition-spec")
        fields = partition_fields(items, path=obj.path, where="partition-spec")
        specs, default_id = (PartitionSpec(spec_id=0, fields=fields),), 0
    _check_ids(obj, "partition-specs", [spec.spec_id for spec in specs])
    if all(spec.spec_id != default_id for spec in specs):
        raise obj.wrong("default-spec-id", f"{default_id} is not the id of any of the partition specs")
    return specs, default_id


def read_last_partition_id(obj: Fields, version: int, specs: tuple[PartitionSpec, ...]) -> int:
    """The highest partition field id; v1 may not have it, then the highest in use, or 999."""
    if version > 1 or "last-partition-id" in obj:
        return obj.integer("last-partition-id")
    ids = (partition_field.field_id for spec in specs for partition_field in spec.fields)
    return max(ids, default=FIRST_PARTITION_FIELD_ID - 1)


def read_sort_orders(obj: Fields, version: int) -> tuple[tuple[SortOrder, ...], int]:
    """The sort orders and the default one's id; v1 may have none, then the unsorted one."""
    if version == 1 and "sort-orders" not in obj:
        return (SortOrder(order_id=0),), 0
    obj.array("sort-orders")
    orders = read_records(obj, "sort-orders", SortOrder.from_json)
    _check_ids(obj, "sort-orders", [order.order_id for order in orders])
    default_id = obj.integer("default-sort-order-id")
    # Order id 0 is reserved for the unsorted order, listed or not.
    if default_id != 0 and all(order.order_id != default_id for order in orders):
        raise obj.wrong("default-sort-order-id", f"{default_id} is not the id of any of the sort orders")
    return orders, default_id


def read_snapshots(obj: Fields) -> tuple[Snapshot, ...]:
    """The snapshots, each id once."""
    snapshots = read_records(obj, "snapshots", Snapshot.from_json)
    _check_ids(obj, "snapshots", [snapshot.snapshot_id for snapshot in snapshots])
    return snapshots


def _check_ids(obj: Fields, key: str, ids: list[int]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[int] = set()
    for i, identity in enumerate(ids):
        if identity in seen:
            raise obj.wrong(f"{key}[{i}]", f"the id {identity} is there already")
        seen.add(identity)


def read_current_snapshot_id(obj: Fields, snapshots: tuple[Snapshot, ...]) -> int | None:
    """The current snapshot's id; None for absent, null and (Appendix F) -1."""
    current_id = obj.optional_integer("current-snapshot-id")
    if current_id is None or current_id == -1:
        return None
    if all(snapshot.snapshot_id != current_id for snapshot in snapshots):
        raise obj.wrong("current-snapshot-id", f"{current_id} is not the id of any of the snapshots")
    return current_id


def read_refs(obj: Fields, current_snapshot_id: int | None) -> Mapping[str, SnapshotRef]:
    """The refs, with main wherever there is a current snapshot."""
    if "refs" not in obj:
        return derived_refs(current_snapshot_id)
    named = Fields(obj.value["refs"], obj.path, "refs")
    refs = {
        name: SnapshotRef.from_json(item, path=obj.path, where=f"refs.{name}")
        for name, item in named.value.items()
    }
    if MAIN not in refs:
        return {**derived_refs(current_snapshot_id), **refs}
    if refs[MAIN].snapshot_id != current_snapshot_id:
        found = refs[MAIN].snapshot_id
        raise obj.wrong(
            "refs.main.snapshot-id", f"{found} is not the current-snapshot-id {current_snapshot_id}"
        )
    return refs


def derived_refs(current_snapshot_id: int | None) -> dict[str, SnapshotRef]:
    """Spec: "There is always a main branch [...] even if the refs map is null"."""
    if current_snapshot_id is None:
        return {}
    return {MAIN: SnapshotRef(snapshot_id=current_snapshot_id, type=BRANCH)}


def read_next_row_id(obj: Fields, version: int) -> int:
    """The first free row id; 0 before v3."""
    next_row_id = obj.integer("next-row-id") if version > 2 else obj.optional_integer("next-row-id") or 0
    if next_row_id < 0:
        raise obj.wrong("next-row-id", f"{next_row_id} is negative")
    return next_row_id

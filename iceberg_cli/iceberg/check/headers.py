"""What the header of a manifest says of schema and partition spec, against the table's metadata.

Readers go by the metadata, and some by the header. A header may be older than the table: what a schema of the table
that was removed or changed since said is no contradiction, but one id has one meaning. Absent keys say nothing.

Spec: "Manifests"; Appendix C, "Schemas", "Partition Specs".
"""

from __future__ import annotations

import json
from typing import Any, Final

from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestMetadata
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Schema

_SHOWN: Final = 3


def schema_contradiction(header: ManifestMetadata, metadata: TableMetadata) -> str:
    """What is wrong with the schema in a manifest's header; empty where nothing is."""
    if header.schema is None:
        return ""
    try:
        parsed = json.loads(header.schema)
        own = parsed.get("schema-id") if isinstance(parsed, dict) else None
        written = Schema.from_json(parsed, path="header")
    except (ValueError, InvalidMetadata):
        return f"its schema {header.schema!r:.60} is none"
    if own is not None and header.schema_id not in {None, own}:
        return f"its schema has id {own}, and its schema-id is {header.schema_id}"
    schema_id = own if header.schema_id is None else header.schema_id
    types = written.types_by_id()
    known = next((each for each in metadata.schemas if each.schema_id == schema_id), None)
    if known is not None and (missing := sorted(known.types_by_id().keys() - types.keys())):
        return f"its schema {schema_id} lacks columns {_some(missing)} of the table's"
    allowed = _types_of(metadata)
    for field_id, type_ in types.items():
        if isinstance(type_, str) and field_id in allowed and type_ not in allowed[field_id]:
            theirs = " or ".join(sorted(allowed[field_id]))
            return f"its schema has column {field_id} as {type_}, and the table has it as {theirs}"
    return ""


def _types_of(metadata: TableMetadata) -> dict[int, set[str]]:
    """By field id, the primitive types that a column has or had, and those from which it may have been promoted."""
    found: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        for field_id, type_ in schema.types_by_id().items():
            if isinstance(type_, str):
                found.setdefault(field_id, set()).update(_before(type_))
    return found


def _before(type_: str) -> set[str]:
    """A type, and those that are promoted to it. Spec: "Schema Evolution"."""
    if type_.startswith("decimal"):
        precision, scale = type_.removeprefix("decimal(").removesuffix(")").split(",")
        return {type_, *(f"decimal({n},{scale})" for n in range(1, int(precision)))} | {
            f"decimal({n}, {scale.strip()})" for n in range(1, int(precision) + 1)
        }
    promoted = {
        "long": {"int"}, "double": {"float"}, "timestamp": {"date"}, "timestamp_ns": {"date"},
    }  # fmt: skip
    return {type_, "unknown", *promoted.get(type_, ())}


def spec_contradiction(header: ManifestMetadata, spec: PartitionSpec | None) -> str:
    """What is wrong with the partition spec in a manifest's header; empty where nothing is.

    Args:
        header: of the manifest.
        spec: the table's, by the id in the manifest list; None where the table has none, which another rule tells.
    """
    if header.partition_spec is None:
        return ""
    try:
        parsed: Any = json.loads(header.partition_spec)
    except ValueError:
        return f"its partition-spec {header.partition_spec!r:.60} is no JSON"
    if isinstance(parsed, dict) and "fields" in parsed:
        return "its partition-spec is a whole spec, and the specification asks for the array of its fields"
    if not isinstance(parsed, list) or not all(isinstance(each, dict) for each in parsed):
        return f"its partition-spec {header.partition_spec!r:.60} is no array of fields"
    if spec is None:
        return ""
    if len(parsed) != len(spec.fields):
        return f"its partition-spec has {len(parsed)} fields, the table's spec {spec.spec_id} has {len(spec.fields)}"
    for written, known in zip(parsed, spec.fields, strict=True):
        theirs = known.to_json()
        for key in ("source-id", "source-ids", "field-id", "transform"):
            if key in written and key in theirs and written[key] != theirs[key]:
                return (
                    f"its partition field {known.name} has {key} {written[key]!r:.40}, the table's spec "
                    f"{spec.spec_id} has {theirs[key]}"
                )
    return ""


def _some(ids: list[int]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(map(str, ids[:_SHOWN])) + more

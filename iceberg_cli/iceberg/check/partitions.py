"""Rules about partition tuples: their struct, their values, and what a manifest list says of them.

Spec: "Data File Fields", `partition`; "Partition Transforms"; "Manifest Lists", `field_summary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.schema import AvroField, AvroType
from iceberg_cli.iceberg.spec.field_summaries import FieldSummary, sort_key, summary_of
from iceberg_cli.iceberg.spec.partition_spec import PartitionField, PartitionSpec
from iceberg_cli.iceberg.spec.schema import Type
from iceberg_cli.iceberg.spec.single_value import decimal_parts, fixed_length
from iceberg_cli.iceberg.spec.transforms import Transform, parse, result_type
from iceberg_cli.plan.findings import Bools, Findings

_DATA_FILE_ID: Final = 2
_PARTITION_ID: Final = 102
_INTEGERS: Final = (
    "int",
    "long",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
)


@dataclass(frozen=True, slots=True)
class CheckedPartitionField:
    """One partition field of a manifest: `child` is its index in the struct."""

    field: PartitionField
    transform: Transform
    type: str  # of the values; "unknown" where no schema knows the source column any more
    child: int


def parts_of(
    spec: PartitionSpec, writer: AvroType, types: Mapping[int, Type]
) -> tuple[tuple[CheckedPartitionField, ...], str]:
    """The fields of a spec in a manifest's partition struct.

    Args:
        spec: that the manifest list names.
        writer: the manifest's schema.
        types: of columns by field id, over all schemas.

    Returns:
        The fields; and what does not fit, empty where all does.
    """
    written = _partition_fields(writer)
    ids: list[int | None] = [field.field_id for field in written]
    own: list[int | None] = [field.field_id for field in spec.fields]
    if all(field_id is None for field_id in ids) and len(ids) == len(own):
        ids = own  # writers of v1 left the ids out
    if sorted(ids, key=str) != sorted(own, key=str):
        return (), f"the partition struct has fields {_listed(ids)}, spec {spec.spec_id} has {_listed(own)}"
    parts = []
    for field in spec.fields:
        child = ids.index(field.field_id)
        transform, source = parse(field.transform), types.get(field.source_id, "unknown")
        type_ = result_type(transform, source) if isinstance(source, str) else "unknown"
        avro = _plain(written[child].type)
        if transform.kind != "void" and not _fits(avro, type_):
            return (
                (),
                f"field {field.name} is of Avro's {avro.kind}, {transform.text} of a {source} gives {type_}",
            )
        parts.append(CheckedPartitionField(field, transform, type_, child))
    return tuple(parts), ""


def _partition_fields(writer: AvroType) -> Sequence[AvroField]:
    at = writer
    for field_id in (_DATA_FILE_ID, _PARTITION_ID):
        at = next((_plain(field.type) for field in at.fields if field.field_id == field_id), at)
    return at.fields


def _plain(avro: AvroType) -> AvroType:
    """Without the union that makes it optional."""
    if avro.kind != "union":
        return avro
    return next((child for child in avro.children if child.kind != "null"), avro.children[0])


def _listed(ids: Sequence[int | None]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _fits(avro: AvroType, type_: str) -> bool:
    """Whether Avro's type can hold the values; widths may be those of before a promotion."""
    if type_ == "unknown" or avro.kind == "null":
        return True
    if type_ in _INTEGERS:
        return avro.kind in {"int", "long"}
    if type_ in {"float", "double"}:
        return avro.kind in {"float", "double"}
    if decimal_parts(type_) is not None:
        return avro.kind in {"fixed", "bytes"}
    if type_ == "uuid" or fixed_length(type_) is not None:
        return avro.kind in {"fixed", "bytes", "string"}
    return avro.kind == {"boolean": "boolean", "string": "string"}.get(type_, "bytes")


def wrong_values(part: CheckedPartitionField, values: pa.Array) -> Bools | None:
    """Which of n values the field's transform cannot give; None where every value is possible."""
    kind, width = part.transform.kind, part.transform.parameter
    if kind == "void":
        return np.asarray(values.is_valid())
    if kind == "bucket" and pa.types.is_integer(values.type):
        numbers = values.fill_null(0).to_numpy()
        return np.asarray((numbers < 0) | (numbers >= width))
    if kind != "truncate":
        return None
    if pa.types.is_integer(values.type):
        return np.asarray(values.fill_null(0).to_numpy() % width != 0)
    if part.type in {"string", "binary"}:
        length = pc.utf8_length if pa.types.is_string(values.type) else pc.binary_length
        return np.asarray(pc.fill_null(length(values), 0)) > width
    return None


def check_summaries(
    parts: Sequence[CheckedPartitionField],
    partitions: pa.Array,
    bounds: Sequence[tuple[int, int]],
    listed: Sequence[tuple[str, Sequence[Mapping[str, Any]] | None]],
    findings: Findings,
) -> None:
    """Compare the field summaries of a manifest list with the manifests' partition values.

    Args:
        parts: the partition fields.
        partitions: live tuples of n manifests, one manifest after the other.
        bounds: of each manifest, its first tuple and the one after its last.
        listed: of each manifest, its path and its field summaries, None where there are none.
        findings: to add to.
    """
    children = partitions.flatten()
    for part in parts:
        if part.type == "unknown" or part.transform.kind == "void":
            continue
        keys = sort_key(children[part.child], part.type)
        place = _place(parts, part)
        for (first, stop), (path, summaries) in zip(bounds, listed, strict=True):
            if summaries is None or place >= len(summaries) or first == stop:
                continue
            try:
                stated = FieldSummary.from_row(summaries[place], part.type, path=path)
            except CorruptFile as error:
                findings.add("partition-summary-unfit", path, f"{part.field.name}: {error.reason}")
                continue
            found = summary_of(keys.slice(first, stop - first), part.type)
            reason = _too_narrow(stated, found, nan_stated=summaries[place]["contains_nan"] is not None)
            if reason:
                findings.add("partition-summary-too-narrow", path, f"{part.field.name}: {reason}")


def _place(parts: Sequence[CheckedPartitionField], part: CheckedPartitionField) -> int:
    """Summaries are in the order of the spec's fields, as `parts` are."""
    return next(place for place, each in enumerate(parts) if each is part)


def _too_narrow(stated: FieldSummary, found: FieldSummary, *, nan_stated: bool) -> str:
    if found.contains_null and not stated.contains_null:
        return "a null is there, and the manifest list says there is none"
    if found.contains_nan and nan_stated and not stated.contains_nan:
        return "a NaN is there, and the manifest list says there is none"
    if found.lower is not None and (stated.lower is None or stated.lower > found.lower):
        return "a value is below the lower bound in the manifest list"
    if found.upper is not None and (stated.upper is None or stated.upper < found.upper):
        return "a value is above the upper bound in the manifest list"
    return ""

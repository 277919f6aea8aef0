"""Partition specs and sort orders, to and from JSON.

Transforms are kept as written, known or not: whoever calculates with them parses them.

Spec: "Partitioning", "Sorting", Appendix C.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.iceberg.spec.json_fields import Fields, Json, Layout, all_to_json, laid_out

FIRST_PARTITION_FIELD_ID: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One field of a partition spec."""

    source_ids: tuple[int, ...]  # one, or several for a transform of several arguments (v3)
    field_id: int
    name: str
    transform: str
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @property
    def source_id(self) -> int:
        """The first source column."""
        return self.source_ids[0]

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Partition Specs."""
        values = {
            "name": self.name,
            "transform": self.transform,
            **_sources_to_json(self.source_ids, self.layout),
            "field-id": self.field_id,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """How files of a table are partitioned, under an id."""

    spec_id: int
    fields: tuple[PartitionField, ...]
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @property
    def identity_source_ids(self) -> set[int]:
        """The columns of which a partition has one value."""
        return {each.source_id for each in self.fields if each.transform == "identity"}

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "partition-spec") -> PartitionSpec:
        """Read a partition spec object.

        Raises:
            InvalidMetadata: naming the field.
        """
        obj = Fields(value, path, where)
        return cls(
            spec_id=obj.integer("spec-id"),
            fields=partition_fields(obj.array("fields"), path=path, where=obj.name("fields")),
            extra=obj.leftover(_SPEC_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Partition Specs."""
        return laid_out(
            self.layout, {"spec-id": self.spec_id, "fields": all_to_json(self.fields)}, self.extra
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SortField:
    """One field of a sort order."""

    source_ids: tuple[int, ...]  # one, or several for a transform of several arguments (v3)
    transform: str
    direction: str  # "asc" or "desc"
    null_order: str  # "nulls-first" or "nulls-last"
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Sort Orders."""
        values = {
            "transform": self.transform,
            **_sources_to_json(self.source_ids, self.layout),
            "direction": self.direction,
            "null-order": self.null_order,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortOrder:
    """How rows of a file are sorted, under an id; 0 is unsorted."""

    order_id: int
    fields: tuple[SortField, ...] = ()
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "sort-order") -> SortOrder:
        """Read a sort order object.

        Raises:
            InvalidMetadata: naming the field.
        """
        obj = Fields(value, path, where)
        fields = obj.array("fields")
        return cls(
            order_id=obj.integer("order-id"),
            fields=tuple(
                _sort_field(Fields(item, path, f"{where}.fields[{i}]")) for i, item in enumerate(fields)
            ),
            extra=obj.leftover(_ORDER_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Sort Orders."""
        return laid_out(
            self.layout, {"order-id": self.order_id, "fields": all_to_json(self.fields)}, self.extra
        )


def partition_fields(items: list[Any], *, path: str, where: str) -> tuple[PartitionField, ...]:
    """The fields of a partition spec; where none has a `field-id` (old v1 files) they count up from 1000.

    Raises:
        InvalidMetadata: naming the field; also when only some have a `field-id`.

    Spec: Appendix C, Partition Specs; "Partition Evolution".
    """
    objs = [Fields(item, path, f"{where}[{i}]") for i, item in enumerate(items)]
    without_ids = [obj for obj in objs if "field-id" not in obj]
    if without_ids and len(without_ids) < len(objs):
        raise without_ids[0].wrong(
            "field-id", "some fields of the spec have a field-id and this one has none"
        )
    return tuple(
        PartitionField(
            source_ids=_sources(obj),
            field_id=FIRST_PARTITION_FIELD_ID + i if without_ids else obj.integer("field-id"),
            name=obj.string("name"),
            transform=obj.string("transform"),
            extra=obj.leftover(_PARTITION_FIELD_KEYS),
            layout=obj.layout(),
        )
        for i, obj in enumerate(objs)
    )


def _sources(obj: Fields) -> tuple[int, ...]:
    if "source-ids" not in obj:
        return (obj.integer("source-id"),)
    source_ids = obj.integers("source-ids")
    if not source_ids:
        raise obj.wrong("source-ids", "at least one source column is required")
    return source_ids


def _sources_to_json(source_ids: tuple[int, ...], layout: Layout) -> dict[str, Any]:
    written: dict[str, Any] = {}
    only_list = "source-ids" in layout and "source-id" not in layout
    if "source-id" in layout or (len(source_ids) == 1 and not only_list):
        written["source-id"] = source_ids[0]
    if len(source_ids) > 1 or "source-ids" in layout:
        written["source-ids"] = list(source_ids)
    return written


def _sort_field(obj: Fields) -> SortField:
    direction, null_order = obj.string("direction"), obj.string("null-order")
    if direction.lower() not in {"asc", "desc"}:
        raise obj.wrong("direction", f'"asc" or "desc" is expected, not {direction!r}')
    if null_order.lower() not in {"nulls-first", "nulls-last"}:
        raise obj.wrong("null-order", f'"nulls-first" or "nulls-last" is expected, not {null_order!r}')
    return SortField(
        source_ids=_sources(obj),
        transform=obj.string("transform"),
        direction=direction,
        null_order=null_order,
        extra=obj.leftover(_SORT_FIELD_KEYS),
        layout=obj.layout(),
    )


_SPEC_KEYS: Final = frozenset({"spec-id", "fields"})
_PARTITION_FIELD_KEYS: Final = frozenset({"source-id", "source-ids", "field-id", "name", "transform"})
_ORDER_KEYS: Final = frozenset({"order-id", "fields"})
_SORT_FIELD_KEYS: Final = frozenset({"source-id", "source-ids", "transform", "direction", "null-order"})


def fields_in_header(partition_spec: str | bytes) -> Any:
    """The fields in the `partition-spec` of a manifest's header, as parsed JSON; nothing of them is checked.

    The specification has their array there, and some writers put the whole spec.

    Raises:
        ValueError: it is no JSON. KeyError: it is an object without fields.
    """
    spec = json.loads(partition_spec)
    return spec["fields"] if isinstance(spec, dict) else spec

"""Schemas and types, to and from JSON.

A primitive type is its own text, as `long` or `decimal(9,2)`; texts that this package does not know stay
readable. Defaults are kept as written: whoever calculates with them parses them.

Spec: "Schemas and Data Types", Appendix C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.iceberg.spec.json_fields import Fields, Json, Layout, all_to_json, laid_out

_PRIMITIVES: Final = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
        "string",
        "uuid",
        "binary",
        "unknown",
        "variant",
        "geometry",
        "geography",
    }
)
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_GEOSPATIAL: Final = re.compile(r"(geometry|geography)\(.*\)", re.DOTALL)
_MAX_DECIMAL_PRECISION: Final = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class StructType:
    """Named fields."""

    fields: tuple[NestedField, ...]
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Schemas."""
        return laid_out(self.layout, {"type": "struct", "fields": all_to_json(self.fields)}, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType:
    """Elements of one type."""

    element_id: int
    element_required: bool
    element: Type
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Schemas."""
        values = {
            "type": "list",
            "element-id": self.element_id,
            "element": type_to_json(self.element),
            "element-required": self.element_required,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapType:
    """Keys of one type to values of one type."""

    key_id: int
    key: Type
    value_id: int
    value_required: bool
    value: Type
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Schemas."""
        values = {
            "type": "map",
            "key-id": self.key_id,
            "key": type_to_json(self.key),
            "value-id": self.value_id,
            "value": type_to_json(self.value),
            "value-required": self.value_required,
        }
        return laid_out(self.layout, values, self.extra)


Type = str | StructType | ListType | MapType


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedField:
    """A column or a field of a struct; defaults are as in Appendix D, None where there is none."""

    field_id: int  # "id" on the wire
    name: str
    required: bool
    type: Type
    doc: str | None = None
    initial_default: Any = None
    write_default: Any = None
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Spec: Appendix C, Schemas."""
        values = {
            "id": self.field_id,
            "name": self.name,
            "required": self.required,
            "type": type_to_json(self.type),
            "doc": self.doc,
            "initial-default": self.initial_default,
            "write-default": self.write_default,
        }
        return laid_out(self.layout, values, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A table's columns under an id."""

    schema_id: int
    fields: tuple[NestedField, ...]
    identifier_field_ids: tuple[int, ...] = ()
    extra: Json = field(default_factory=dict)
    layout: Layout = field(default=(), compare=False, repr=False)

    @classmethod
    def from_json(
        cls, value: object, *, path: str, where: str = "schema", known: dict[int, NestedField] | None = None
    ) -> Schema:
        """Read a schema; one without `schema-id` gets 0.

        Args:
            value: the parsed object.
            path: file, for messages.
            where: place in it, for messages.
            known: fields that were read from the same parsed file, by the identity of their JSON object.
                Schemas of a table repeat most fields; the parser made equal ones one object, so each is read
                once.

        Raises:
            InvalidMetadata: naming the field.
        """
        obj = Fields(value, path, where)
        if obj.string("type") != "struct":
            raise obj.wrong("type", f'"struct" is expected, not {obj.value["type"]!r}')
        return cls(
            schema_id=obj.optional_integer("schema-id") or 0,
            fields=_fields(obj, {} if known is None else known),
            identifier_field_ids=obj.integers("identifier-field-ids")
            if "identifier-field-ids" in obj
            else (),
            extra=obj.leftover(_SCHEMA_KEYS),
            layout=obj.layout(),
        )

    def to_json(self) -> dict[str, Any]:
        """Always with its `schema-id`. Spec: Appendix C, Schemas."""
        values = {
            "type": "struct",
            "schema-id": self.schema_id,
            "identifier-field-ids": list(self.identifier_field_ids),
            "fields": all_to_json(self.fields),
        }
        return laid_out(self.layout, values, self.extra, optional=("identifier-field-ids",))

    def types_by_id(self) -> dict[int, Type]:
        """The type of every column and nested field, element, key and value, by field id."""
        found: dict[int, Type] = {}
        for field_id, type_ in _walk(self.fields):
            found.setdefault(field_id, type_)
        return found

    def unknown_types(self) -> tuple[str, ...]:
        """Texts of primitive types that this package does not know, each once, in column order."""
        texts = (type_ for _, type_ in _walk(self.fields) if isinstance(type_, str))
        return tuple(dict.fromkeys(text for text in texts if not is_known_primitive(text)))


def is_known_primitive(text: str) -> bool:
    """Whether a type's text is a primitive type of format versions 1 to 3."""
    return text in _PRIMITIVES or any(form.fullmatch(text) for form in (_DECIMAL, _FIXED, _GEOSPATIAL))


def type_to_json(type_: Type) -> Any:
    """Spec: Appendix C, Schemas."""
    return type_ if isinstance(type_, str) else type_.to_json()


def _fields(obj: Fields, known: dict[int, NestedField]) -> tuple[NestedField, ...]:
    fields: list[NestedField] = []
    for i, item in enumerate(obj.array("fields")):
        read = known.get(id(item))
        if read is None:
            read = known[id(item)] = _field(Fields(item, obj.path, f"{obj.where}.fields[{i}]"), known)
        fields.append(read)
    return tuple(fields)


def _field(obj: Fields, known: dict[int, NestedField]) -> NestedField:
    return NestedField(
        field_id=obj.integer("id"),
        name=obj.string("name"),
        required=obj.boolean("required"),
        type=_type(obj, "type", known),
        doc=obj.optional_string("doc"),
        initial_default=obj.value.get("initial-default"),
        write_default=obj.value.get("write-default"),
        extra=obj.leftover(_FIELD_KEYS),
        layout=obj.layout(),
    )


def _type(parent: Fields, key: str, known: dict[int, NestedField]) -> Type:
    value = parent.value.get(key)
    if isinstance(value, str):
        return _primitive(value, parent, key)
    if value is None:
        raise parent.wrong(key, "the field is required (a type)")
    obj = Fields(value, parent.path, parent.name(key))
    kind = obj.string("type")
    if kind == "struct":
        return StructType(fields=_fields(obj, known), extra=obj.leftover(_STRUCT_KEYS), layout=obj.layout())
    if kind == "list":
        return ListType(
            element_id=obj.integer("element-id"),
            element_required=obj.boolean("element-required"),
            element=_type(obj, "element", known),
            extra=obj.leftover(_LIST_KEYS),
            layout=obj.layout(),
        )
    if kind == "map":
        return MapType(
            key_id=obj.integer("key-id"),
            key=_type(obj, "key", known),
            value_id=obj.integer("value-id"),
            value_required=obj.boolean("value-required"),
            value=_type(obj, "value", known),
            extra=obj.leftover(_MAP_KEYS),
            layout=obj.layout(),
        )
    raise obj.wrong("type", f"struct, list or map is expected, not {kind!r}")


def _primitive(text: str, parent: Fields, key: str) -> str:
    decimal = _DECIMAL.fullmatch(text)
    if decimal and not 0 < int(decimal[1]) <= _MAX_DECIMAL_PRECISION:
        raise parent.wrong(key, f"the precision of {text} is not from 1 to {_MAX_DECIMAL_PRECISION}")
    if text.startswith(("decimal(", "fixed[")) and not is_known_primitive(text):
        raise parent.wrong(key, f"{text!r} is not a type")
    return text


def _walk(fields: tuple[NestedField, ...]) -> Iterator[tuple[int, Type]]:
    for nested in fields:
        yield from _walk_type(nested.field_id, nested.type)


def _walk_type(field_id: int, type_: Type) -> Iterator[tuple[int, Type]]:
    yield field_id, type_
    if isinstance(type_, StructType):
        yield from _walk(type_.fields)
    elif isinstance(type_, ListType):
        yield from _walk_type(type_.element_id, type_.element)
    elif isinstance(type_, MapType):
        yield from _walk_type(type_.key_id, type_.key)
        yield from _walk_type(type_.value_id, type_.value)


_STRUCT_KEYS: Final = frozenset({"type", "fields"})
_SCHEMA_KEYS: Final = frozenset({"type", "schema-id", "identifier-field-ids", "fields"})
_LIST_KEYS: Final = frozenset({"type", "element-id", "element", "element-required"})
_MAP_KEYS: Final = frozenset({"type", "key-id", "key", "value-id", "value", "value-required"})
_FIELD_KEYS: Final = frozenset({"id", "name", "required", "type", "doc", "initial-default", "write-default"})

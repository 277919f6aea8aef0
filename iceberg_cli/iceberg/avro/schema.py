"""Avro schemas: strict JSON in, a bounded tree of types out.

Everything here is bounded before it is walked, because a schema is written by others: nesting, number of
nodes after every name is expanded, duplicate keys, recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from iceberg_cli.encoding import strict_json
from iceberg_cli.errors import CorruptFile

MAX_DEPTH = 64
MAX_NODES = 10_000
MAX_SCHEMA_BYTES = 4 << 20

# Encoded size of the smallest value, in bytes.
_PRIMITIVES: Mapping[str, int] = {
    "null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1,
}  # fmt: skip
_NAMED = ("record", "error", "enum", "fixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroField:
    """One field of a record. `field_id` is Iceberg's attribute, None where it is absent."""

    name: str
    field_id: int | None
    type: AvroType


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """One node of a schema.

    `children` are a union's branches, an array's items, a map's values or a record's field types.
    """

    kind: str
    children: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    size_bytes: int = 0  # of a fixed
    logical: str | None = None
    min_bytes: int = 0  # smallest encoded value
    nodes: int = 1  # of the tree below and including this one, every name expanded
    depth: int = 1

    @property
    def is_map(self) -> bool:
        """An array of pairs that stands for a map (Iceberg spec, Appendix A), or an Avro map."""
        if self.kind == "map":
            return True
        if self.kind != "array" or self.children[0].kind != "record":
            return False
        names = tuple(f.name for f in self.children[0].fields)
        return len(names) == 2 and (self.logical == "map" or names == ("key", "value"))


class BadSchemaError(Exception):
    """A schema that breaks a rule; the container's reader adds the file's path."""


@lru_cache(maxsize=256)
def parse_schema(text: bytes) -> tuple[Any, AvroType]:
    """The schema as JSON and as a tree of types.

    Raises:
        BadSchemaError: with the reason.
    """
    if len(text) > MAX_SCHEMA_BYTES:
        msg = f"schema of {len(text)} bytes, limit {MAX_SCHEMA_BYTES}"
        raise BadSchemaError(msg)
    try:
        parsed = strict_json.loads(text, "avro.schema")
    except CorruptFile as error:
        raise BadSchemaError(error.reason) from None
    builder = _Builder()
    tree = builder.build(parsed, namespace="", depth=1)
    return parsed, tree


def record_of(tree: AvroType, path: str) -> AvroType:
    """The top-level record, or `CorruptFile`."""
    if tree.kind != "record":
        raise CorruptFile(path, "avro.schema", f"top-level type is {tree.kind}, not record")
    return tree


@dataclass(slots=True)
class _Builder:
    """Builds types bottom-up and knows the names defined so far."""

    named: dict[str, AvroType | None] = field(default_factory=dict)  # None while it is being built

    def build(self, node: Any, *, namespace: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            msg = f"schema nested deeper than {MAX_DEPTH} types"
            raise BadSchemaError(msg)
        if isinstance(node, str):
            return self._reference(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if not isinstance(node, dict):
            msg = f"{node!r:.60} is no type"
            raise BadSchemaError(msg)
        kind = node.get("type")
        logical = node.get("logicalType")
        logical = logical if isinstance(logical, str) else None
        if isinstance(kind, (dict, list)):  # {"type": {"type": ...}}
            return self.build(kind, namespace=namespace, depth=depth + 1)
        if not isinstance(kind, str):
            msg = f"type is {kind!r:.60}"
            raise BadSchemaError(msg)
        if kind in _PRIMITIVES:
            return AvroType(kind=kind, min_bytes=_PRIMITIVES[kind], logical=logical)
        if kind == "array":
            return _container(
                "array", self.build(node.get("items"), namespace=namespace, depth=depth + 1), logical
            )
        if kind == "map":
            return _container(
                "map", self.build(node.get("values"), namespace=namespace, depth=depth + 1), logical
            )
        if kind in _NAMED:
            return self._define(node, kind, logical, namespace, depth)
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(kind=name, min_bytes=_PRIMITIVES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        key = full if full in self.named else name
        if key not in self.named:
            msg = f"unknown type {name!r:.60}"
            raise BadSchemaError(msg)
        found = self.named[key]
        if found is None:
            msg = f"type {name!r:.60} contains itself"
            raise BadSchemaError(msg)
        return found

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        if not branches:
            raise BadSchemaError("union without branches")
        children = tuple(self.build(b, namespace=namespace, depth=depth + 1) for b in branches)
        if any(child.kind == "union" for child in children):
            raise BadSchemaError("union directly inside a union")
        return AvroType(
            kind="union",
            children=children,
            min_bytes=1 + min(c.min_bytes for c in children),
            **_sized(children),
        )

    def _define(
        self, node: dict[str, Any], kind: str, logical: str | None, namespace: str, depth: int
    ) -> AvroType:
        name, namespace = _full_name(node, namespace)
        if name in self.named or name in _PRIMITIVES:
            msg = f"type {name!r:.60} is defined twice"
            raise BadSchemaError(msg)
        self.named[name] = None
        if kind == "fixed":
            built = AvroType(kind=kind, size_bytes=(n := _size(node)), min_bytes=n, logical=logical)
        elif kind == "enum":
            symbols = _text_list(node.get("symbols"))
            built = AvroType(kind=kind, symbols=symbols, min_bytes=1, logical=logical)
        else:
            fields = self._fields(node.get("fields"), namespace, depth)
            types = tuple(f.type for f in fields)
            built = AvroType(
                kind="record", children=types, fields=fields, logical=logical,
                min_bytes=min(sum(t.min_bytes for t in types), 1 << 40), **_sized(types),
            )  # fmt: skip
        self.named[name] = built
        return built

    def _fields(self, nodes: Any, namespace: str, depth: int) -> tuple[AvroField, ...]:
        if not isinstance(nodes, list) or not all(isinstance(n, dict) and "type" in n for n in nodes):
            raise BadSchemaError("record without a list of fields")
        fields = tuple(
            AvroField(
                name=_text(n.get("name")),
                field_id=_field_id(n.get("field-id")),
                type=self.build(n["type"], namespace=namespace, depth=depth + 1),
            )
            for n in nodes
        )
        ids = [f.field_id for f in fields if f.field_id is not None]
        if len({f.name for f in fields}) != len(fields) or len(set(ids)) != len(ids):
            raise BadSchemaError("record with two fields of one name or id")
        _sized(f.type for f in fields)
        return fields


def _container(kind: str, item: AvroType, logical: str | None) -> AvroType:
    return AvroType(kind=kind, children=(item,), min_bytes=1, logical=logical, **_sized((item,)))


def _sized(children: Iterable[AvroType]) -> dict[str, Any]:
    """Nodes and depth of a parent of `children`; a name used often counts as often."""
    children = tuple(children)
    nodes = 1 + sum(c.nodes for c in children)
    depth = 1 + max((c.depth for c in children), default=0)
    if nodes > MAX_NODES or depth > MAX_DEPTH:
        msg = f"schema of more than {MAX_NODES} nodes or {MAX_DEPTH} levels"
        raise BadSchemaError(msg)
    return {"nodes": nodes, "depth": depth}


def _full_name(node: dict[str, Any], namespace: str) -> tuple[str, str]:
    name = _text(node.get("name"))
    if "." in name:
        return name, name.rpartition(".")[0]
    given = node.get("namespace", namespace)
    namespace = given if isinstance(given, str) else ""
    return (f"{namespace}.{name}" if namespace else name), namespace


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or any("\ud800" <= c <= "\udfff" for c in value):
        msg = f"{value!r:.60} is no name"
        raise BadSchemaError(msg)
    return value


def _text_list(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not values:
        raise BadSchemaError("enum without symbols")
    return tuple(_text(v) for v in values)


def _size(node: dict[str, Any]) -> int:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= 1 << 20:
        msg = f"fixed of size {size!r:.40}"
        raise BadSchemaError(msg)
    return size


def _field_id(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        msg = f"field-id {value!r:.40} is no 32-bit integer"
        raise BadSchemaError(msg)
    return value

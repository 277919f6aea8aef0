"""Which fields of an Avro record are decoded, compiled to one tree of nodes for both decoders.

Columns are chosen by field id (Iceberg spec, "Column Projection"), never by name. A node whose `out` is set leaves
its values there; every other node is only stepped over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from iceberg_cli.encoding.arrow import Bools
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.schema import AvroType

PADDING_BYTES = 80  # after the last block, so that a window can be gathered at every position
MAX_ITEMS = 1 << 20  # of one block of an array or map: more than any file has columns or row groups
VARINTS = ("int", "long", "enum")
_MAP_KEY = AvroType(kind="string", min_bytes=1)

Ints = npt.NDArray[np.int64]


class Malformed(Exception):
    """Bytes that are no record of the schema. `end` is a position after the block's start, up to its end."""

    def __init__(self, end: int, reason: str) -> None:
        super().__init__(reason)
        self.end = end
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Projection:
    """A column: its name in the result, the field ids from the top, and whether a string becomes its 64-bit hash.

    With an `edge`, not the value is wanted but the position where its encoding starts or ends, counted in the inflated
    bytes of its file. Only records may lie around such a field.
    """

    name: str
    ids: tuple[int, ...]
    hashed: bool = False
    edge: Literal["start", "end"] | None = None


@dataclass(slots=True)
class Raw:
    """Decoded values of one node, in the order of its slots (rows, or items of the list above).

    numbers: `values`. Strings and bytes: `values` are positions in the buffer, `lengths` in bytes. Fixed: positions.
    Lists and maps: `lengths` in items. Structs and unions have no values. `valid` is None where nothing is null.
    """

    size: int = 0
    values: npt.NDArray[Any] | None = None
    lengths: Ints | None = None
    valid: Bools | None = None


@dataclass(slots=True, kw_only=True)
class Node:
    """One step. `children` are as in `AvroType`, and a map has its key before its value.

    `null_index` is set on a union of null and one other type. `edges` of a record: the positions before its children,
    by their index, that are wanted, and the index of the Raw that each goes to; one more than the children is its end.
    """

    type: AvroType
    children: tuple[Node, ...] = ()
    out: int | None = None  # index of its Raw
    keeps: bool = False  # it or a node below has an out
    null_index: int | None = None
    edges: dict[int, int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The Avro type's name."""
        return self.type.kind

    @property
    def value(self) -> Node:
        """The other branch of an optional union."""
        assert self.null_index is not None
        return self.children[1 - self.null_index]


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """A projected column that the schema has. `guards` are the optional unions around it, outermost first.

    `edge`: the column is the positions in this Raw.
    """

    name: str
    node: Node
    hashed: bool
    guards: tuple[Node, ...]
    edge: int | None = None


@dataclass(slots=True)
class DecodePlan:
    """How to decode records of one schema."""

    root: Node
    columns: list[ProjectedColumn] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # wanted names that the schema lacks
    outs: int = 0


def compile_plan(record: AvroType, projections: Sequence[Projection], *, path: str) -> DecodePlan:
    """Compile the decoding of `projections` out of records of type `record`.

    Raises:
        CorruptFile: a wanted field is a union other than of null and one type, or its path leads through no struct.
    """
    plan = DecodePlan(_skeleton(record))
    for projection in projections:
        _select(plan, projection, path)
    return plan


def _skeleton(avro: AvroType) -> Node:
    children = tuple(_skeleton(child) for child in avro.children)
    if avro.kind == "map":
        children = (Node(type=_MAP_KEY), *children)
    node = Node(type=avro, children=children)
    if avro.kind == "union" and len(avro.children) == 2:
        nulls = [index for index, child in enumerate(avro.children) if child.kind == "null"]
        node.null_index = nulls[0] if len(nulls) == 1 else None
    return node


def _select(plan: DecodePlan, projection: Projection, path: str) -> None:
    node = plan.root
    guards: list[Node] = []
    index = 0
    above = node
    for field_id in projection.ids:
        while node.kind == "union" and node.null_index is not None:
            guards.append(node)
            node = node.value
        if node.kind != "record":
            raise CorruptFile(
                path, f"field {projection.name}", f"its parent is of type {node.kind}, not a record"
            )
        ids = [f.field_id for f in node.type.fields]
        if field_id not in ids:
            plan.missing.append(projection.name)
            return
        node.keeps = True
        above, index = node, ids.index(field_id)
        node = node.children[index]
    if projection.edge is not None:
        assert not guards  # where a record is null its fields are nowhere
        place = index + (projection.edge == "end")
        if place not in above.edges:
            above.edges[place] = plan.outs
            plan.outs += 1
        plan.columns.append(
            ProjectedColumn(projection.name, above, hashed=False, guards=(), edge=above.edges[place])
        )
        return
    for guard in guards:
        guard.keeps = True
        _keep_one(plan, guard)
    _keep(plan, node, projection.name, path)
    plan.columns.append(ProjectedColumn(projection.name, node, projection.hashed, tuple(guards)))


def _keep_one(plan: DecodePlan, node: Node) -> None:
    if node.out is None:
        node.out = plan.outs
        plan.outs += 1


def _keep(plan: DecodePlan, node: Node, name: str, path: str) -> None:
    """Keep `node` and all below."""
    if node.kind == "union" and node.null_index is None and len(node.children) != 1:
        raise CorruptFile(path, f"field {name}", "a union of more than null and one type")
    node.keeps = True
    _keep_one(plan, node)
    for child in node.children if node.null_index is None else (node.value,):
        _keep(plan, child, name, path)


def least_item_bytes(node: Node) -> int:
    """The smallest encoded item of an array or map. Zero means that no count can be trusted: then only 0 is."""
    return sum(child.type.min_bytes for child in node.children)


def leading_bytes(avro: AvroType) -> int | None:
    """Encoded size of `avro` where every value has the same, in bytes."""
    fixed = {"null": 0, "boolean": 1, "float": 4, "double": 8}
    if avro.kind == "fixed":
        return avro.size_bytes
    if avro.kind == "record":
        sizes = [leading_bytes(child) for child in avro.children]
        return None if None in sizes else sum(size or 0 for size in sizes)
    return fixed.get(avro.kind)


def varints_in(avro: AvroType) -> int | None:
    """How many variable-length numbers one value of `avro` is, where it is nothing else."""
    if avro.kind in VARINTS:
        return 1
    if avro.kind == "record":
        counts = [varints_in(child) for child in avro.children]
        return None if None in counts else sum(count or 0 for count in counts)
    return None


def varints_then_bytes(avro: AvroType) -> int | None:
    """For a record of n numbers followed by one string or bytes field: n."""
    if avro.kind != "record" or not avro.children or avro.children[-1].kind not in {"bytes", "string"}:
        return None
    counts = [varints_in(child) for child in avro.children[:-1]]
    return None if None in counts else sum(count or 0 for count in counts)

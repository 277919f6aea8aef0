"""How much of each column a manifest entry says: `write.metadata.metrics.*` as modes by field id.

Spec: "Data File Fields"; what the properties mean is Iceberg Java's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iceberg_cli.iceberg.rows.leaf_columns import leaf_columns
from iceberg_cli.iceberg.spec.types.schema import ListType, MapType, NestedField, StructType, Type

METRICS_PREFIX: Final = "write.metadata.metrics."
DEFAULT_MODE: Final = f"{METRICS_PREFIX}default"
INFERRED_COLUMNS: Final = f"{METRICS_PREFIX}max-inferred-column-defaults"
COLUMN_MODE: Final = f"{METRICS_PREFIX}column."
_INFERRED_COLUMNS: Final = 100
_TRUNCATE: Final = re.compile(r"truncate\(\s*([1-9]\d{0,8})\s*\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """What is said of a column.

    Args:
        counts: of values, nulls and NaN, and its size.
        bound_length: code points of text, bytes of binary, to which bounds are cut; 0: there are none; None: they are
            whole.
    """

    counts: bool
    bound_length: int | None


NONE: Final = MetricsMode(counts=False, bound_length=0)
COUNTS: Final = MetricsMode(counts=True, bound_length=0)
TRUNCATE_16: Final = MetricsMode(counts=True, bound_length=16)
FULL: Final = MetricsMode(counts=True, bound_length=None)


def parse_mode(text: str) -> MetricsMode | None:
    """A mode as properties spell it; None where it is none."""
    lower = text.strip().lower()
    if found := _TRUNCATE.fullmatch(lower):
        return MetricsMode(counts=True, bound_length=int(found[1]))
    return {"none": NONE, "counts": COUNTS, "full": FULL}.get(lower)


def metrics_modes(
    fields: Sequence[NestedField], properties: Mapping[str, str], *, sorted_ids: Sequence[int] = ()
) -> tuple[dict[int, MetricsMode], dict[str, str]]:
    """The mode of each primitive field, and why properties cannot be obeyed, by their names.

    Args:
        fields: of the schema that is written.
        properties: of the table.
        sorted_ids: sources of the table's sort order: of them there are bounds unless a property of theirs says
            otherwise.
    """
    refused: dict[str, str] = {}

    def mode(name: str, default: MetricsMode) -> MetricsMode:
        if name not in properties:
            return default
        found = parse_mode(properties[name])
        if found is None:
            refused[name] = f"{properties[name]!r} is none of none, counts, truncate(N) and full"
        return found or default

    leaves = leaf_columns(fields)
    if DEFAULT_MODE in properties:
        modes = dict.fromkeys((leaf.field_id for leaf in leaves), mode(DEFAULT_MODE, TRUNCATE_16))
    else:
        limit = properties.get(INFERRED_COLUMNS, str(_INFERRED_COLUMNS))
        if not limit.isdecimal():
            refused[INFERRED_COLUMNS] = f"{limit!r} is no number of columns"
            limit = str(_INFERRED_COLUMNS)
        first = set(list(_primitives_first(_parts_of(StructType(fields=tuple(fields)))))[: int(limit)])
        modes = {leaf.field_id: TRUNCATE_16 if leaf.field_id in first else NONE for leaf in leaves}
    for field_id in sorted_ids:
        if modes.get(field_id) in (NONE, COUNTS):
            modes[field_id] = TRUNCATE_16
    for leaf in leaves:
        modes[leaf.field_id] = mode(COLUMN_MODE + leaf.name, modes[leaf.field_id])
    return modes, refused


def _primitives_first(parts: Sequence[tuple[int, Type]]) -> Iterator[int]:
    """Ids of primitive fields: those among the parts of a type come before those inside of other parts."""
    yield from (field_id for field_id, type_ in parts if isinstance(type_, str))
    for _, type_ in parts:
        yield from _primitives_first(_parts_of(type_))


def _parts_of(type_: Type) -> Sequence[tuple[int, Type]]:
    match type_:
        case StructType(fields=fields):
            return [(each.field_id, each.type) for each in fields]
        case ListType():
            return [(type_.element_id, type_.element)]
        case MapType():
            return [(type_.key_id, type_.key), (type_.value_id, type_.value)]
    return ()

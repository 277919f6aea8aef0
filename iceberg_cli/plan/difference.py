"""The difference between two states of a table, whatever its format: sums over files, schemas, properties.

Data files are the same where their paths are; a file that was rewritten is one removed and one added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.json_rows import json_rows
from iceberg_cli.plan.difference_text import PARTITION_COLUMNS, difference_text
from iceberg_cli.plan.inspection import Column, Part, Row

DATA, POSITION_DELETES, EQUALITY_DELETES, DELETION_VECTOR = range(4)  # kind
REMOVED, ADDED = -1, 1  # side
CHANGES_SCHEMA: Final = pa.schema(
    [
        ("side", pa.int8()),
        ("kind", pa.int8()),
        ("spec_id", pa.int32()),  # null where the format has one partitioning
        ("partition", pa.map_(pa.string(), pa.string())),
        ("records", pa.int64()),  # of a delete file the rows that it names; null: not known
        ("bytes", pa.int64()),
    ]
)
"""A row for each file or deletion vector that only one of the states has."""

_COUNTS: Final = (
    "added_files", "removed_files", "added_rows", "removed_rows", "added_bytes", "removed_bytes",
    "added_delete_files", "removed_delete_files", "added_deleted_rows", "removed_deleted_rows",
)  # fmt: skip
PARTITIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.map_(pa.string(), pa.string())),
        pa.field("spec_id", pa.int32()),
        pa.field("change", pa.string()),
        *(pa.field(name, pa.int64()) for name in _COUNTS),
    ]
)
"""`change` is `added` where only the second state has data files in the partition, `gone` where only the first has,
else `changed`. Rows are null where a file does not say how many it has; deleted rows of equality deletes are."""

_KINDS: Final = {
    POSITION_DELETES: "position_delete_files",
    EQUALITY_DELETES: "equality_delete_files",
    DELETION_VECTOR: "deletion_vectors",
}


class ColumnFacts(NamedTuple):
    """A column or nested field: its dotted name, its type in the format's words, and whether it may be null."""

    name: str
    type: str
    required: bool


class NotKnown(NamedTuple):
    """Why something of a state is not known."""

    reason: str


Columns = Mapping[int | str, ColumnFacts]
Properties = Mapping[str, str]
Stated = TypeVar("Stated")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What two states of a table differ in.

    Args:
        before, after: the states, as documents name them.
        relation: `SAME`, `ANCESTOR` (the first is one of the second), `DESCENDANT` or `UNRELATED`.
        changes: rows of `CHANGES_SCHEMA`.
        net_rows: visible rows of the second state minus those of the first; None: not known.
        kept_partitions: spec id and partition as JSON of those with data files that both states have.
        schemas: columns of both states, by field id or, where there are none, by name.
        properties: of both states.
    """

    before: Row
    after: Row
    relation: str
    changes: pa.Table = field(repr=False)
    net_rows: int | None
    kept_partitions: frozenset[tuple[int | None, str]] = field(repr=False)
    schemas: tuple[Columns | NotKnown, Columns | NotKnown] = field(repr=False)
    properties: tuple[Properties | NotKnown, Properties | NotKnown] = field(repr=False)

    def to_json(self, *, by_partition: bool, limit: int | None) -> dict[str, Any]:
        """The fields of the document.

        Args:
            by_partition: have a row for each partition.
            limit: the first so many of these.
        """
        changes = self.changes
        data = changes.filter(pc.equal(changes["kind"], DATA))
        partitions = self.partitions()
        found = pc.value_counts(partitions["change"].combine_chunks())
        counts = {row["values"]: row["counts"] for row in found.to_pylist()}
        schema, schema_reason = _compared(self.schemas, schema_changes)
        properties, properties_reason = _compared(self.properties, property_changes)
        rows = _pylist(partitions.slice(0, limit)) if by_partition else None
        return {
            "from": dict(self.before),
            "to": dict(self.after),
            "relation": self.relation,
            "files": {name: _on(side, data).num_rows for side, name in _SIDES},
            "rows": {
                **{name: _total(_on(side, data)["records"]) for side, name in _SIDES},
                "net": self.net_rows,
            },
            "bytes": {name: _total(_on(side, data)["bytes"]) for side, name in _SIDES},
            "deletes": {name: _deletes(_on(side, changes)) for side, name in _SIDES},
            "schema_changes": schema,
            "schema_changes_reason": schema_reason,
            "properties": properties,
            "properties_reason": properties_reason,
            "partitions": {
                "added": counts.get("added", 0),
                "gone": counts.get("gone", 0),
                "changed": counts.get("changed", 0),
                "rows": rows,
            },
        }

    def partitions(self) -> pa.Table:
        """Rows of `PARTITIONS_SCHEMA`, by spec id and partition: none of a table that is not partitioned."""
        changes = self.changes.filter(pc.greater(_lengths(self.changes["partition"]), 0))
        if not changes.num_rows:
            return PARTITIONS_SCHEMA.empty_table()
        texts = partition_keys(changes["partition"])
        counted = {"key": texts, "spec_id": changes["spec_id"], **_counted(changes)}
        grouped = pa.table(counted).group_by(["spec_id", "key"]).aggregate(
            [(name, "sum") for name in _COUNTS]
            + [(f"{name}_unknown", "max") for name in _COUNTS if name.endswith("_rows")]
        ).sort_by([("spec_id", "ascending"), ("key", "ascending")])  # fmt: skip
        first = pc.index_in(grouped["key"].combine_chunks(), value_set=texts)
        kept = self.kept_partitions
        pairs = zip(
            grouped["spec_id"].to_pylist(), grouped["key"].to_pylist(),
            grouped["added_files_sum"].to_pylist(), grouped["removed_files_sum"].to_pylist(),
            strict=True,
        )  # fmt: skip
        columns: dict[str, Any] = {
            "partition": changes["partition"].combine_chunks().take(first),
            "spec_id": grouped["spec_id"],
            "change": pa.array(
                [
                    _change(added, removed, stays=(spec_id, key) in kept)
                    for spec_id, key, added, removed in pairs
                ],
                pa.string(),
            ),
        }
        for name in _COUNTS:
            sums = grouped[f"{name}_sum"]
            if name.endswith("_rows"):
                sums = pc.if_else(pc.equal(grouped[f"{name}_unknown_max"], 1), None, sums)
            columns[name] = sums
        return pa.table([columns[name] for name in PARTITIONS_SCHEMA.names], schema=PARTITIONS_SCHEMA)


_SIDES: Final = ((ADDED, "added"), (REMOVED, "removed"))


def partition_keys(partitions: pa.ChunkedArray) -> pa.Array:
    """Partitions, maps from field name to text, as JSON: a key for each."""
    return json_rows(pa.table({"partition": partitions}))


def open_partitions(changes: pa.Table) -> set[tuple[int | None, str]]:
    """The partitions to which data files were added or from which some were removed, but not both."""
    data = changes.filter(pc.equal(changes["kind"], DATA))
    data = data.filter(pc.greater(_lengths(data["partition"]), 0))
    sides: list[set[tuple[int | None, str]]] = []
    for side, _ in _SIDES:
        mine = _on(side, data)
        keys = partition_keys(mine["partition"])
        grouped = pa.table({"spec": mine["spec_id"], "key": keys}).group_by(["spec", "key"]).aggregate([])
        sides.append(set(zip(grouped["spec"].to_pylist(), grouped["key"].to_pylist(), strict=True)))
    return sides[0] ^ sides[1]


def _lengths(maps: pa.ChunkedArray) -> pa.Array:
    column = maps.combine_chunks()
    offsets = column.offsets
    if not len(column):
        return pa.array([], pa.int32())
    return pc.subtract(offsets.slice(1), offsets.slice(0, len(column)))


def _change(added: int, removed: int, *, stays: bool) -> str:
    if stays or (added and removed) or not (added or removed):
        return "changed"
    return "added" if added else "gone"


def _on(side: int, changes: pa.Table) -> pa.Table:
    return changes.filter(pc.equal(changes["side"], side))


def _total(values: pa.ChunkedArray) -> int | None:
    """The sum; None where a value is not known."""
    return None if values.null_count else int(pc.sum(values).as_py() or 0)


def _deletes(changes: pa.Table) -> dict[str, Any]:
    deletes = changes.filter(pc.not_equal(changes["kind"], DATA))
    positional = deletes.filter(pc.not_equal(deletes["kind"], EQUALITY_DELETES))
    return {
        **{name: int(pc.sum(pc.equal(deletes["kind"], kind)).as_py() or 0) for kind, name in _KINDS.items()},
        # An equality delete names values, and how many rows have these nothing tells.
        "deleted_rows": _total(positional["records"]),
        "bytes": _total(deletes["bytes"]),
    }


def _counted(changes: pa.Table) -> dict[str, pa.Array]:
    """For each change what it adds to each of the counts of its partition."""
    kind, side = changes["kind"], changes["side"]
    is_data = pc.equal(kind, DATA)
    records = changes["records"]
    # Of an equality delete nothing tells how many rows it deletes.
    deleted = pc.if_else(pc.equal(kind, EQUALITY_DELETES), None, records)
    columns: dict[str, pa.Array] = {}
    for value, name in _SIDES:
        mine = pc.equal(side, value)
        data, deletes = pc.and_(mine, is_data), pc.and_not(mine, is_data)
        rows = {"rows": (data, records), "deleted_rows": (deletes, deleted)}
        columns |= {
            f"{name}_files": data.cast(pa.int64()),
            f"{name}_bytes": pc.if_else(data, changes["bytes"], 0),
            f"{name}_delete_files": deletes.cast(pa.int64()),
        }
        for what, (chosen, values) in rows.items():
            columns[f"{name}_{what}"] = pc.if_else(chosen, pc.fill_null(values, 0), 0)
            columns[f"{name}_{what}_unknown"] = pc.and_(chosen, values.is_null()).cast(pa.int8())
    return columns


def _pylist(partitions: pa.Table) -> list[dict[str, Any]]:
    return [row | {"partition": dict(row["partition"])} for row in partitions.to_pylist()]


def _compared(
    pair: tuple[Stated | NotKnown, Stated | NotKnown], compare: Callable[[Stated, Stated], dict[str, Any]]
) -> tuple[dict[str, Any] | None, str | None]:
    """The changes between two values, or why they are not known."""
    before, after = pair
    if isinstance(before, NotKnown) or isinstance(after, NotKnown):
        reasons = [each.reason for each in pair if isinstance(each, NotKnown)]
        return None, "; ".join(dict.fromkeys(reasons))
    return compare(before, after), None


def schema_changes(before: Columns, after: Columns) -> dict[str, list[dict[str, Any]]]:
    """Columns that were added, removed, renamed or retyped, and those that may be null now, or no longer."""

    def named(key: int | str, facts: ColumnFacts) -> dict[str, Any]:
        return {"field_id": key if isinstance(key, int) else None, "name": facts.name}

    both = [(key, before[key], after[key]) for key in after if key in before]
    return {
        "added": [
            named(k, facts) | {"type": facts.type, "required": facts.required}
            for k, facts in after.items()
            if k not in before
        ],
        "removed": [
            named(k, facts) | {"type": facts.type, "required": facts.required}
            for k, facts in before.items()
            if k not in after
        ],
        "renamed": [named(k, b) | {"from": a.name, "to": b.name} for k, a, b in both if a.name != b.name],
        "retyped": [named(k, b) | {"from": a.type, "to": b.type} for k, a, b in both if a.type != b.type],
        "made_required": [named(k, b) for k, a, b in both if b.required and not a.required],
        "made_optional": [named(k, b) for k, a, b in both if a.required and not b.required],
    }


def property_changes(before: Properties, after: Properties) -> dict[str, Any]:
    """Properties that one of two states has, and those whose values differ."""
    return {
        "added": {key: after[key] for key in sorted(after.keys() - before.keys())},
        "removed": {key: before[key] for key in sorted(before.keys() - after.keys())},
        "changed": {
            key: {"from": before[key], "to": after[key]}
            for key in sorted(before.keys() & after.keys())
            if before[key] != after[key]
        },
    }


class DifferenceInspector(ABC):
    """Reads two states of a table, and shows what they differ in: the base of those of the formats.

    Args:
        by_partition: have the document a row for each partition.
        limit: the first so many of these.
    """

    def __init__(self, *, by_partition: bool, limit: int | None) -> None:
        self._by_partition = by_partition
        self._limit = limit

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's folder."""

    @property
    @abstractmethod
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the states."""

    @abstractmethod
    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""

    @abstractmethod
    def compare(self) -> Difference:
        """Read both states.

        Raises:
            CorruptFile: a file cannot be read whole.
        """

    @cached_property
    def difference(self) -> Difference:
        """What the states differ in, read once."""
        return self.compare()

    def summary(self, *, recount: bool) -> dict[str, Any]:  # noqa: ARG002 - everything is counted
        """The whole document."""
        found = self.difference.to_json(by_partition=self._by_partition, limit=self._limit)
        return {**self.header("diff"), **found}

    @staticmethod
    def summary_text(document: Row) -> Iterator[Part]:
        """The document as text."""
        return difference_text(document)

    @staticmethod
    def text_of(what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:  # noqa: ARG004
        """The columns of its partitions as text."""
        return PARTITION_COLUMNS, rows

    @staticmethod
    def newest_last(what: str) -> bool:  # noqa: ARG004 - the port's signature
        """Whether a limit keeps the end of the rows: no."""
        return False

    @staticmethod
    def streams(what: str) -> bool:  # noqa: ARG004
        """Whether rows come by `lines` and `tables`: yes."""
        return True

    @staticmethod
    def head(what: str) -> dict[str, Any]:  # noqa: ARG004
        """No fields beside streamed rows."""
        return {}

    def rows(self, what: str, *, limit: int | None) -> list[dict[str, Any]]:  # noqa: ARG002
        """The partitions."""
        return _pylist(self.difference.partitions().slice(0, limit))

    def tables(self, what: str, *, limit: int | None) -> Iterator[pa.Table]:  # noqa: ARG002
        """The partitions as columns of `PARTITIONS_SCHEMA`."""
        yield self.difference.partitions().slice(0, limit)

    def lines(self, what: str, *, limit: int | None, before: str = "", after: str = "") -> Iterator[pa.Array]:
        """The partitions as JSON objects, one string for each, between `before` and `after`."""
        for table in self.tables(what, limit=limit):
            yield json_rows(table, before=before, after=after)

    @staticmethod
    def schema(what: str) -> pa.Schema:  # noqa: ARG004
        """The columns of the partitions."""
        return PARTITIONS_SCHEMA

"""inspect: what two versions of a Delta table differ in: files, rows, deletion vectors, schema, configuration.

Both versions are read as time travel reads them. A data file that got another deletion vector is the same file.

Spec: "Add File and Remove File", "Deletion Vectors", "Per-file Statistics", "Change Metadata".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect import rows as rows_of
from iceberg_cli.delta.inspect.files import cardinalities, num_records
from iceberg_cli.delta.spec.columns import STRINGS, dv_ids
from iceberg_cli.delta.spec.paths import path_keys
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.difference import (
    ADDED,
    CHANGES_SCHEMA,
    DATA,
    DELETION_VECTOR,
    REMOVED,
    ColumnFacts,
    Columns,
    Difference,
    DifferenceInspector,
    open_partitions,
    partition_keys,
)
from iceberg_cli.plan.difference_text import ANCESTOR, DESCENDANT, SAME
from iceberg_cli.plan.text import iso, time_ms

if TYPE_CHECKING:
    from iceberg_cli.delta.spec.snapshot import Snapshot
    from iceberg_cli.delta.table import DeltaTable

_VERSION: Final = re.compile(r"[0-9]{1,10}")
_ID: Final = "delta.columnMapping.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The data files of a version, or its deletion vectors."""

    names: pa.Array  # each once in a version
    changes: pa.Table  # `CHANGES_SCHEMA` without `side`


def snapshot_named(table: DeltaTable, text: str | None, *, now_ms: int) -> Snapshot:
    """The version that a word of the command line names: its number, or a time.

    Args:
        table: opened.
        text: the word; None: the newest version.
        now_ms: the time now, from which durations count back.

    Raises:
        UsageError: the table has no such version, or none as old.
        CorruptFile: the log that it needs is gone.
    """
    if text is None:
        return table.snapshot
    if _VERSION.fullmatch(text):
        version = int(text)
        return table.snapshot if version == table.snapshot.version else table.log.snapshot(version)
    try:
        at_ms = time_ms(text, "diff", now_ms=now_ms)
    except UsageError as error:
        if "future" in error.message:
            raise
        raise UsageError(
            f"{text!r} is no version or time of this table: its newest version is {table.snapshot.version}",
            next_step="`inspect TABLE history` lists its versions; a time is ISO 8601 with a zone, epoch milliseconds, "
            "or a duration ago such as 7d.",
        ) from None
    return table.log.snapshot(at_ms=at_ms)


class VersionDifference(DifferenceInspector):
    """Reads two versions of one table, and shows what they differ in.

    Args:
        table: opened.
        before, after: the versions.
        as_of_ms: the "now" of the document.
        by_partition, limit: see `DifferenceInspector`.
    """

    def __init__(
        self,
        *,
        table: DeltaTable,
        before: Snapshot,
        after: Snapshot,
        as_of_ms: int,
        by_partition: bool,
        limit: int | None,
    ) -> None:
        super().__init__(by_partition=by_partition, limit=limit)
        self._table = table
        self._before, self._after = before, after
        self._as_of_ms = as_of_ms

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the versions."""
        states = (self._before, self._after)
        return tuple(dict.fromkeys(each for state in states for each in (*state.warnings, *state.left_out)))

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document: those of the second version."""
        return rows_of.header(self._after, what, table=self._table.identity, as_of_ms=self._as_of_ms)

    def compare(self) -> Difference:
        """Compare the files of both versions.

        Raises:
            CorruptFile: a field of an action cannot be read.
        """
        before, after = self._before, self._after
        parts: list[pa.Table] = [CHANGES_SCHEMA.empty_table()]
        unchanged: list[pa.Table] = []
        for old, new in (
            (_data_files(before), _data_files(after)),
            (_vectors(before), _vectors(after)),
        ):
            stays = pc.is_in(new.names, value_set=old.names)
            unchanged.append(new.changes.filter(stays))
            gone = old.changes.filter(pc.invert(pc.is_in(old.names, value_set=new.names)))
            parts += [_on(REMOVED, gone), _on(ADDED, new.changes.filter(pc.invert(stays)))]
        changes = pa.concat_tables(parts)
        totals = [_visible(each) for each in (before, after)]
        versions = before.version, after.version
        return Difference(
            before=_state(before),
            after=_state(after),
            relation=SAME
            if versions[0] == versions[1]
            else ANCESTOR
            if versions[0] < versions[1]
            else DESCENDANT,
            changes=changes,
            net_rows=_net_rows(changes) if None in totals else totals[1] - totals[0],  # type: ignore[operator]
            kept_partitions=_kept(changes, unchanged[0]),
            schemas=(columns_of(before.metadata), columns_of(after.metadata)),
            properties=(before.metadata.configuration, after.metadata.configuration),
        )


def _state(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "timestamp_ms": snapshot.timestamp_ms,
        "timestamp": iso(snapshot.timestamp_ms),
    }


def _on(side: int, rows: pa.Table) -> pa.Table:
    sides = pa.array(np.full(rows.num_rows, side, np.int8))
    return rows.add_column(0, CHANGES_SCHEMA.field("side"), sides).cast(CHANGES_SCHEMA)


def _rows(kind: int, partitions: pa.Array, records: pa.Array, sizes: pa.Array) -> pa.Table:
    count = len(partitions)
    columns = {
        "kind": pa.array(np.full(count, kind, np.int8)),
        "spec_id": pa.nulls(count, pa.int32()),
        "partition": partitions,
        "records": records,
        "bytes": sizes,
    }
    return pa.table(columns, schema=pa.schema(list(CHANGES_SCHEMA)[1:]))


def _data_files(snapshot: Snapshot) -> _Files:
    adds = snapshot.adds
    names = one_array(path_keys(adds["path"])).cast(pa.large_string())
    partitions = _partitions(adds, snapshot.metadata)
    return _Files(names=names, changes=_rows(DATA, partitions, num_records(adds), one_array(adds["size"])))


def _vectors(snapshot: Snapshot) -> _Files:
    adds = snapshot.adds.filter(pc.is_valid(snapshot.adds["deletionVector"]))
    paths = one_array(path_keys(adds["path"])).cast(pa.large_string())
    ids = one_array(dv_ids(adds)).cast(pa.large_string())
    names = pc.binary_join_element_wise(paths, ids, pa.scalar("#", pa.large_string()))
    sizes = pc.struct_field(one_array(adds["deletionVector"]), "sizeInBytes").cast(pa.int64())
    partitions = _partitions(adds, snapshot.metadata)
    return _Files(names=names, changes=_rows(DELETION_VECTOR, partitions, cardinalities(adds), sizes))


def _partitions(adds: pa.Table, metadata: Metadata) -> pa.Array:
    """Partition values as maps from logical names, in the order of the partition columns."""
    names = rows_of.logical_names(metadata)
    values = one_array(adds["partitionValues"])
    count, width = len(values), len(names)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    if not width or not count:
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), empty, empty)
    columns = [pc.map_lookup(values, name, "first") for name in names]
    keys = pa.array(list(names.values()), pa.string()).take(pa.array(np.tile(np.arange(width), count)))
    places = (np.arange(width) * count)[None, :] + np.arange(count)[:, None]
    found = pa.MapArray.from_arrays(offsets, keys, pa.concat_arrays(columns).take(pa.array(places.ravel())))
    return found.cast(STRINGS)


def _visible(snapshot: Snapshot) -> int | None:
    """The rows of a version; None where a file does not say how many it has."""
    records = num_records(snapshot.adds)
    if records.null_count:
        return None
    return int((pc.sum(records).as_py() or 0) - (pc.sum(cardinalities(snapshot.adds)).as_py() or 0))


def _net_rows(changes: pa.Table) -> int | None:
    """The difference of rows by changes alone: files that both versions have, and vectors of these, cancel out."""
    if changes["records"].null_count:
        return None
    data = pc.equal(changes["kind"], DATA)
    signs = pc.multiply(changes["side"].cast(pa.int64()), pc.if_else(data, 1, -1))
    return int(pc.sum(pc.multiply(changes["records"], signs)).as_py() or 0)


def _kept(changes: pa.Table, unchanged: pa.Table) -> frozenset[tuple[int | None, str]]:
    """Of partitions that got or lost files, those that have files in both versions."""
    candidates = open_partitions(changes)
    texts = pc.unique(partition_keys(unchanged["partition"])).to_pylist()
    return frozenset(candidates & {(None, text) for text in texts})


def columns_of(metadata: Metadata) -> Columns:
    """Every column and nested field: dotted name, type, whether it may be null.

    By the ids of column mapping, or where the table has none by name: then another name is another column.

    Raises:
        CorruptFile: the schema is no struct.
    """
    return dict(_walk(schema_fields(metadata), "", ""))


def _walk(
    fields: Sequence[Mapping[str, Any]], prefix: str, key_prefix: str
) -> Iterator[tuple[int | str, ColumnFacts]]:
    for field in fields:
        name = f"{prefix}{field['name']}"
        field_id = (field.get("metadata") or {}).get(_ID)
        key: int | str = field_id if isinstance(field_id, int) else f"{key_prefix}{field['name']}"
        type_ = field.get("type")
        yield key, ColumnFacts(name, _type_text(type_), required=field.get("nullable") is False)
        yield from _inside(type_, name, str(key))


def _inside(type_: Any, name: str, key: str) -> Iterator[tuple[int | str, ColumnFacts]]:
    if not isinstance(type_, Mapping):
        return
    kind = type_.get("type")
    if kind == "struct":
        yield from _walk(type_.get("fields", ()), f"{name}.", f"{key}.")
        return
    parts = {
        "array": (("element", "elementType", "containsNull"),),
        "map": (("key", "keyType", ""), ("value", "valueType", "valueContainsNull")),
    }
    for part, type_name, nullable in parts.get(str(kind), ()):
        inner = type_.get(type_name)
        required = part == "key" or type_.get(nullable) is False
        yield f"{key}.{part}", ColumnFacts(f"{name}.{part}", _type_text(inner), required)
        yield from _inside(inner, f"{name}.{part}", f"{key}.{part}")


def _type_text(type_: Any) -> str:
    """A primitive type's own text; of a nested one its kind, for its fields are named by themselves."""
    return str(type_.get("type")) if isinstance(type_, Mapping) else str(type_)

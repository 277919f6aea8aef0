"""inspect: what two snapshots differ in, read from the manifests that only one of them lists.

A manifest that both list is not read, but for two questions: whether a partition has data files that both snapshots
have, and how many rows more or fewer are seen, where deletes that both have may play a part.

Spec: "Snapshots", "Manifests", "Scan Planning", "Deletion Vectors".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import TableNotFound, UsageError
from iceberg_cli.iceberg.inspect import metadata_rows as rows_of
from iceberg_cli.iceberg.inspect.file_rows import RowFormatter
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.manifests.unfit_entries import VECTOR_FIELDS, Bools, unfit_entries
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.types.schema import (
    ListType,
    MapType,
    NestedField,
    Schema,
    StructType,
    Type,
)
from iceberg_cli.plan.difference import (
    ADDED,
    CHANGES_SCHEMA,
    DATA,
    DELETION_VECTOR,
    EQUALITY_DELETES,
    POSITION_DELETES,
    REMOVED,
    ColumnFacts,
    Columns,
    Difference,
    DifferenceInspector,
    NotKnown,
    Properties,
    open_partitions,
    partition_keys,
)
from iceberg_cli.plan.difference_text import ANCESTOR, DESCENDANT, SAME, UNRELATED
from iceberg_cli.plan.text import count, did_you_mean, iso, time_ms

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
    from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
    from iceberg_cli.iceberg.table import IcebergTable

_ENTRY_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "equality_ids", *VECTOR_FIELDS,
)  # fmt: skip
_PARTITION_COLUMNS: Final = ("status", "partition")
_READ_SCHEMA: Final = pa.schema(
    [
        ("name", pa.large_string()),  # of a data or delete file its path, of a deletion vector also its place
        ("target", pa.large_string()),  # the data file of a deletion vector
        ("is_unfit", pa.bool_()),  # whether it is a delete that cannot be applied
        ("sequence_number", pa.int64()),
        *(field for field in CHANGES_SCHEMA if field.name != "side"),
    ]
)
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotState:
    """A snapshot as it was named, with the schema and properties that are its.

    Args:
        snapshot: None for a table without data.
        ref: the branch or tag that named it, or None.
        at_ms: the time that named it, or None.
        is_now: whether the table's current state is meant, whatever its snapshot.
    """

    snapshot: Snapshot | None
    ref: str | None = None
    at_ms: int | None = None
    is_now: bool = False

    def to_json(self) -> dict[str, Any]:
        """As documents name it."""
        snapshot = self.snapshot
        timestamp_ms = None if snapshot is None else snapshot.timestamp_ms
        return {
            "snapshot_id": None if snapshot is None else str(snapshot.snapshot_id),
            "ref": self.ref,
            "timestamp_ms": timestamp_ms,
            "timestamp": iso(timestamp_ms),
        }


def state_named(metadata: TableMetadata, text: str | None, *, now_ms: int) -> SnapshotState:
    """The state that a word of the command line names: a ref, a snapshot id or a time, in this order.

    Args:
        metadata: of the table.
        text: the word; None: the current state.
        now_ms: the time now, from which durations count back.

    Raises:
        UsageError: nothing has that name.
    """
    if text is None:
        return SnapshotState(snapshot=metadata.current_snapshot(), is_now=True)
    if text in metadata.refs:
        ref = metadata.refs[text]
        snapshot = rows_of.select_snapshot(metadata, snapshot_id=ref.snapshot_id, ref=None, at_ms=None)
        return SnapshotState(snapshot=snapshot, ref=text)
    if _INTEGER.fullmatch(text) and (found := metadata.snapshot(int(text))) is not None:
        return SnapshotState(snapshot=found)
    try:
        at_ms = time_ms(text, "diff", now_ms=now_ms)
    except UsageError as error:
        if "future" in error.message and not _INTEGER.fullmatch(text):
            raise
        ids = [str(each.snapshot_id) for each in metadata.snapshots]
        near = did_you_mean(text, [*metadata.refs, *ids])
        raise UsageError(
            f"{text!r} is no ref, snapshot id or time of this table.{near}",
            next_step="`inspect TABLE refs` and `inspect TABLE snapshots` list what there is; a time is ISO 8601 with "
            "a zone, epoch milliseconds, or a duration ago such as 7d.",
        ) from None
    snapshot = rows_of.select_snapshot(metadata, snapshot_id=None, ref=None, at_ms=at_ms)
    return SnapshotState(snapshot=snapshot, at_ms=at_ms)


class SnapshotDifference(DifferenceInspector):
    """Reads two snapshots of one table, and shows what they differ in.

    Args:
        table: opened and loaded.
        before, after: the states.
        as_of_ms: the "now" of the document.
        by_partition, limit: see `DifferenceInspector`.
    """

    def __init__(
        self,
        *,
        table: IcebergTable,
        before: SnapshotState,
        after: SnapshotState,
        as_of_ms: int,
        by_partition: bool,
        limit: int | None,
    ) -> None:
        super().__init__(by_partition=by_partition, limit=limit)
        self._table = table
        self._before, self._after = before, after
        self._as_of_ms = as_of_ms
        self._warnings: tuple[str, ...] = ()
        self._reachability = Reachability(
            engine=table.engine, on_event=table.on_event, trust_lists=table.trust_lists
        )

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def warnings(self) -> Sequence[str]:
        """Deletes that cannot be applied."""
        return self._warnings

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        return rows_of.header(self._table, what, as_of_ms=self._as_of_ms)

    def compare(self) -> Difference:
        """Read the manifests that only one snapshot lists.

        Raises:
            CorruptFile: a list or manifest is gone or cannot be read whole.
        """
        lists = [self._manifests(state.snapshot) for state in (self._before, self._after)]
        sides = []
        for mine, other in (lists, lists[::-1]):
            own = mine.filter(pc.invert(pc.is_in(mine["manifest_path"], value_set=other["manifest_path"])))
            sides.append(self._entries(own))
        both = lists[1].filter(pc.is_in(lists[1]["manifest_path"], value_set=lists[0]["manifest_path"]))
        before, after = sides
        removed = before.filter(pc.invert(pc.is_in(before["name"], value_set=after["name"])))
        stays = pc.is_in(after["name"], value_set=before["name"])
        added, unchanged = after.filter(pc.invert(stays)), after.filter(stays)
        changes = pa.concat_tables(
            pa.table(
                {"side": pa.array(np.full(rows.num_rows, side, np.int8))}
                | {name: rows[name] for name in CHANGES_SCHEMA.names[1:]},
                schema=CHANGES_SCHEMA,
            )
            for side, rows in ((REMOVED, removed), (ADDED, added))
        )
        relation = self._relation()
        return Difference(
            before=self._before.to_json(),
            after=self._after.to_json(),
            relation=relation,
            changes=changes,
            net_rows=self._net_rows(removed, added, unchanged, both, relation),
            kept_partitions=self._kept_partitions(changes, unchanged, both),
            schemas=(self._columns(self._before), self._columns(self._after)),
            properties=(self._properties(self._before), self._properties(self._after)),
        )

    # -- files -----------------------------------------------------------------------------------------------------

    def _manifests(self, snapshot: Snapshot | None) -> pa.Table:
        snapshots = () if snapshot is None else (snapshot_files(snapshot),)
        listed = self._reachability.manifests(snapshots, phase="reading manifest lists", required=True)
        return listed.rows

    def _entries(self, manifests: pa.Table) -> pa.Table:
        """Live entries of manifests, as rows of `_READ_SCHEMA`."""
        metadata = self._table.metadata
        formatter = RowFormatter(metadata, self._table.metadata_location)
        column_ids = frozenset(column_types(metadata))

        def shown(sources: Sequence[ManifestSource], batch: EntryBatch) -> list[pa.Table]:
            found = []
            for spec_id, rows in formatter.by_spec(sources, batch):
                rules = unfit_entries(rows, format_version=metadata.format_version, column_ids=column_ids)
                unfit = np.logical_or.reduce([rule.rows for rule in rules])
                found.append(_rows_of(spec_id, rows, unfit, formatter))
            return found

        parts = self._reachability.from_entries(manifests, _ENTRY_COLUMNS, shown, phase="reading manifests")
        return pa.concat_tables([_READ_SCHEMA.empty_table(), *(rows for some in parts for rows in some)])

    def _kept_partitions(
        self, changes: pa.Table, unchanged: pa.Table, both: pa.Table
    ) -> frozenset[tuple[int | None, str]]:
        """Of partitions that got or lost data files, those that have others in both snapshots."""
        candidates = open_partitions(changes)
        if not candidates:
            return frozenset()
        rows = unchanged.filter(pc.equal(unchanged["kind"], DATA))
        held = set(_pairs(rows["spec_id"], partition_keys(rows["partition"]))) & candidates
        spec_ids = {spec_id for spec_id, _ in candidates - held}
        manifests = both.filter(
            pc.and_(
                pc.equal(both["content"], 0),
                pc.is_in(both["partition_spec_id"], value_set=pa.array(list(spec_ids), pa.int32())),
            )
        )
        formatter = RowFormatter(self._table.metadata, self._table.metadata_location)

        def keys(sources: Sequence[ManifestSource], batch: EntryBatch) -> set[tuple[int | None, str]]:
            found: set[tuple[int | None, str]] = set()
            for spec_id, rows in formatter.by_spec(sources, batch):
                shown = formatter.partitions(spec_id, rows["partition"].combine_chunks())
                texts = pc.unique(partition_keys(pa.chunked_array([shown])))
                found |= {(spec_id, text) for text in texts.to_pylist()}
            return found & candidates

        for found in self._reachability.from_entries(
            manifests, _PARTITION_COLUMNS, keys, phase="reading partitions"
        ):
            held |= found
            if held >= candidates:
                break
        return frozenset(held)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _net_rows(
        self, removed: pa.Table, added: pa.Table, unchanged: pa.Table, both: pa.Table, relation: str
    ) -> int | None:
        """How many more rows the second snapshot shows than the first; None where deletes do not tell.

        A deletion vector deletes as many rows of its data file as it has positions. A position delete file may name
        rows twice, or those of files that are gone, and an equality delete names values.
        """
        if not removed.num_rows and not added.num_rows:
            return 0
        changed = pa.concat_tables([removed, added])
        data = changed.filter(pc.equal(changed["kind"], DATA))
        deletes = pa.concat_tables([unchanged, changed])
        deletes = deletes.filter(pc.not_equal(deletes["kind"], DATA))
        common = both.filter(pc.equal(both["content"], 1))
        oldest = pc.min(data["sequence_number"]).as_py()
        newest = pc.max(common["sequence_number"]).as_py()
        older = oldest is not None and newest is not None and oldest <= newest
        # Deletes that both snapshots have may hide rows of data files that only one has, and a new deletion vector
        # takes over what position deletes of its data file hid before.
        if older or pc.any(pc.equal(changed["kind"], DELETION_VECTOR)).as_py():
            deletes = pa.concat_tables([deletes, self._entries(common)])
        if self._tell_of_unfit(deletes):
            return None
        if pc.any(pc.not_equal(deletes["kind"], DELETION_VECTOR)).as_py():
            if _apply_to_nothing(deletes, data, changed):
                deletes = deletes.filter(pc.equal(deletes["kind"], DELETION_VECTOR))
            else:
                return None
        return _net(data_sides=(removed, added), vectors=deletes, relation=relation)

    def _tell_of_unfit(self, deletes: pa.Table) -> bool:
        """Whether there are deletes that cannot be applied, so that nobody knows how many rows they hide."""
        unfit = deletes.filter(deletes["is_unfit"])
        if unfit.num_rows:
            some = f"{count(unfit.num_rows, 'deletes')} cannot be applied, such as {unfit['name'][0]}"
            way_out = "`inspect TABLE --check` says what is wrong"
            self._warnings = (f"{some}: nobody knows how many rows are shown; {way_out}",)
        return bool(unfit.num_rows)

    # -- states ----------------------------------------------------------------------------------------------------

    def _relation(self) -> str:
        before, after = self._before.snapshot, self._after.snapshot
        if before is None or after is None:
            return SAME if before is after else ANCESTOR if before is None else DESCENDANT
        if before.snapshot_id == after.snapshot_id:
            return SAME
        metadata = self._table.metadata
        if before.snapshot_id in {each.snapshot_id for each in metadata.ancestors(after)}:
            return ANCESTOR
        if after.snapshot_id in {each.snapshot_id for each in metadata.ancestors(before)}:
            return DESCENDANT
        return UNRELATED

    def _columns(self, state: SnapshotState) -> Columns | NotKnown:
        metadata, snapshot = self._table.metadata, state.snapshot
        if state.is_now:
            return columns_of(metadata.current_schema())
        schema_id = None if snapshot is None else snapshot.schema_id
        schema = next((each for each in metadata.schemas if each.schema_id == schema_id), None)
        if schema is not None:
            return columns_of(schema)
        name = "none" if snapshot is None else snapshot.snapshot_id
        lacks = "names no schema" if schema_id is None else f"names schema {schema_id}, which is not there"
        return NotKnown(f"snapshot {name} {lacks}")

    def _properties(self, state: SnapshotState) -> Properties | NotKnown:
        """The properties of the metadata file that was current with the snapshot, from the metadata log."""
        table, snapshot = self._table, state.snapshot
        metadata = table.metadata
        if state.is_now or snapshot is None:
            return metadata.properties
        log = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
        log.append((metadata.last_updated_ms, table.metadata_location))
        if state.at_ms is None:
            files = [file for time, file in log if time >= snapshot.timestamp_ms][:1]
        else:
            files = [file for time, file in log if time <= state.at_ms][-1:]
        if not files:
            return NotKnown(f"the metadata log does not reach back to snapshot {snapshot.snapshot_id}")
        if files[0] == table.metadata_location:
            return metadata.properties
        try:
            then = table.read_metadata(files[0])
        except TableNotFound:
            return NotKnown(f"{files[0]}, the metadata of snapshot {snapshot.snapshot_id}, is gone")
        if then.snapshot(snapshot.snapshot_id) is None:
            return NotKnown(
                f"{files[0]}, by its time that of snapshot {snapshot.snapshot_id}, does not have that snapshot"
            )
        return then.properties


def _rows_of(spec_id: int, rows: pa.Table, unfit: Bools, formatter: RowFormatter) -> pa.Table:
    """Live entries of one partition spec as rows of `_READ_SCHEMA`."""
    rows = rows.combine_chunks()
    content = rows["content"].combine_chunks()
    paths = rows["file_path"].combine_chunks().cast(pa.large_string())
    puffin = pc.equal(pc.utf8_lower(rows["file_format"].combine_chunks()), "puffin")
    vector = pc.and_(pc.equal(content, 1), puffin)
    kind = pc.if_else(vector, DELETION_VECTOR, pc.if_else(pc.equal(content, 2), EQUALITY_DELETES, content))
    place = pc.fill_null(rows["content_offset"].combine_chunks().cast(pa.string()), "").cast(
        pa.large_string()
    )
    target = pc.fill_null(rows["referenced_data_file"].combine_chunks(), "").cast(pa.large_string())
    # One Puffin file has the vectors of many data files.
    named = pc.binary_join_element_wise(paths, place, target, pa.scalar("#", pa.large_string()))
    own_size = pc.coalesce(rows["content_size_in_bytes"], rows["file_size_in_bytes"])
    columns = {
        "name": pc.if_else(vector, named, paths),
        "target": pc.if_else(vector, target, pa.scalar(None, pa.large_string())),
        "is_unfit": pc.and_(pc.not_equal(content, DATA), pa.array(unfit)),
        "sequence_number": rows["sequence_number"],
        "kind": kind.cast(pa.int8()),
        "spec_id": pa.array(np.full(len(paths), spec_id, np.int32)),
        "partition": formatter.partitions(spec_id, rows["partition"].combine_chunks()),
        "records": rows["record_count"],
        "bytes": pc.if_else(vector, own_size, rows["file_size_in_bytes"]),
    }
    return pa.table(columns, schema=_READ_SCHEMA)


def _pairs(spec_ids: pa.ChunkedArray, keys: pa.Array) -> Iterator[tuple[int | None, str]]:
    grouped = pa.table({"spec": spec_ids, "key": keys}).group_by(["spec", "key"]).aggregate([])
    return zip(grouped["spec"].to_pylist(), grouped["key"].to_pylist(), strict=True)


def _apply_to_nothing(deletes: pa.Table, data: pa.Table, changed: pa.Table) -> bool:
    """Whether position and equality deletes are the same in both states, and older than all data files that changed.

    A position delete applies to data files of its sequence number and before, an equality delete to those before it.
    """
    if pc.any(
        pc.is_in(changed["kind"], value_set=pa.array([POSITION_DELETES, EQUALITY_DELETES], pa.int8()))
    ).as_py():
        return False
    others = deletes.filter(pc.not_equal(deletes["kind"], DELETION_VECTOR))
    oldest = pc.min(data["sequence_number"]).as_py()
    # The vectors of data files replace their position deletes: with both, which rows these named is not told.
    vectors_changed = pc.any(pc.equal(changed["kind"], DELETION_VECTOR)).as_py()
    if vectors_changed or oldest is None:
        return False
    return bool(pc.max(others["sequence_number"]).as_py() < oldest)


def _net(*, data_sides: tuple[pa.Table, pa.Table], vectors: pa.Table, relation: str) -> int | None:
    """The difference of visible rows where nothing but deletion vectors deletes any.

    Args:
        data_sides: the entries that only the first and only the second state has.
        vectors: deletion vectors of both, those that both have once.
        relation: of the states.
    """
    removed, added = data_sides
    total = 0
    targets: list[pa.ChunkedArray] = []
    for side, rows, others in ((REMOVED, removed, added), (ADDED, added, removed)):
        data = rows.filter(pc.equal(rows["kind"], DATA))
        gone = others.filter(pc.equal(others["kind"], DATA))
        own = rows.filter(pc.equal(rows["kind"], DELETION_VECTOR))
        unchanged = vectors.filter(
            pc.invert(pc.is_in(vectors["name"], value_set=pa.concat_tables([removed, added])["name"]))
        )
        hidden = pa.concat_tables(
            [own, unchanged.filter(pc.is_in(unchanged["target"], value_set=data["name"]))]
        )
        # One that names a data file of the other state alone deletes nothing here.
        hidden = hidden.filter(pc.invert(pc.is_in(hidden["target"], value_set=gone["name"])))
        total += side * ((pc.sum(data["records"]).as_py() or 0) - (pc.sum(hidden["records"]).as_py() or 0))
        elsewhere = own.filter(pc.invert(pc.is_in(own["target"], value_set=data["name"])))
        targets.append(
            elsewhere.filter(pc.invert(pc.is_in(elsewhere["target"], value_set=gone["name"])))["target"]
        )
    # A vector that only the older state has was given up with its data file's rows back, or named a file that had
    # gone before: entries do not tell which.
    alone = {
        ANCESTOR: (0,), DESCENDANT: (1,), SAME: (), UNRELATED: (0, 1),
    }[relation]  # fmt: skip
    for side in alone:
        if pc.any(pc.invert(pc.is_in(targets[side], value_set=targets[1 - side]))).as_py():
            return None
    return total


def columns_of(schema: Schema) -> Columns:
    """Every column and nested field of a schema by field id: dotted name, type, whether it is required."""
    return dict(_walk(schema.fields, ""))


def _walk(fields: Sequence[NestedField], prefix: str) -> Iterator[tuple[int, ColumnFacts]]:
    for field in fields:
        name = prefix + field.name
        yield field.field_id, ColumnFacts(name, _type_text(field.type), field.required)
        yield from _inside(field.type, name)


def _inside(type_: Type, name: str) -> Iterator[tuple[int, ColumnFacts]]:
    match type_:
        case StructType(fields=fields):
            yield from _walk(fields, f"{name}.")
        case ListType():
            inner = f"{name}.element"
            yield type_.element_id, ColumnFacts(inner, _type_text(type_.element), type_.element_required)
            yield from _inside(type_.element, inner)
        case MapType():
            for part, field_id, value, required in (
                ("key", type_.key_id, type_.key, True),
                ("value", type_.value_id, type_.value, type_.value_required),
            ):
                yield field_id, ColumnFacts(f"{name}.{part}", _type_text(value), required)
                yield from _inside(value, f"{name}.{part}")


def _type_text(type_: Type) -> str:
    """A primitive type's own text; of a nested one its kind, for its fields are named by themselves."""
    match type_:
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case MapType():
            return "map"
    return type_

"""Tables with rows of any columns, their groups as a plan would have them, and the check that they are written well."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.rows.data_files import DataFile
from iceberg_cli.iceberg.rows.data_locations import data_locations
from iceberg_cli.iceberg.rows.deleted_keys import DeletedKeys
from iceberg_cli.iceberg.rows.leaf_columns import leaf_columns
from iceberg_cli.iceberg.rows.live_entries import ENTRY_COLUMNS, LiveEntryReader
from iceberg_cli.iceberg.rows.metrics_modes import metrics_modes
from iceberg_cli.iceberg.rows.parquet_properties import parquet_properties
from iceberg_cli.iceberg.rows.row_deletes import DELETE_COLUMNS, RowDeletes, with_path_bounds
from iceberg_cli.iceberg.rows.table_columns import columns_of
from iceberg_cli.iceberg.spec.table_metadata.columns import ROW_LINEAGE, column_types
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import GroupTask, RewrittenGroup
from iceberg_cli.iceberg.verbs.rewrite_data_files.rewriting import GroupRewriter, fields_in_files
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.storage import Storage
from iceberg_cli.table.stored_files import true_sizes
from iceberg_cli.testing.iceberg_files import DATA, EQUALITY_DELETES, Json
from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID, LiteralRow, parquet_rows, read_rows
from iceberg_cli.testing.iceberg_writer import is_vector, key_of
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.delete_tables import DeleteTable
from tests.manifest_tables import opened

LARGE = 1 << 40
Columns = Sequence[tuple[pa.Field, Sequence[Any]]]


def of(field_id: int, name: str, type_: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """A column, or a field in one, as a file has it."""
    return pa.field(name, type_, nullable=nullable, metadata={"PARQUET:field_id": str(field_id)})


def list_of(field_id: int, type_: pa.DataType) -> pa.DataType:
    return pa.list_(of(field_id, "element", type_))


def column(field_id: int, name: str, type_: Any, **others: Any) -> Json:
    """A column as a schema has it."""
    return {"id": field_id, "name": name, "required": False, "type": type_, **others}


def schema(*fields: Json, schema_id: int = 0) -> Json:
    return {"type": "struct", "schema-id": schema_id, "fields": list(fields)}


def parquet(columns: Columns, *, group_rows: int = 3, **options: Any) -> bytes:
    """A file of some columns."""
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, each.type) for each, values in columns
    ]
    out = io.BytesIO()
    rows = pa.Table.from_arrays(arrays, schema=pa.schema([each for each, _ in columns]))
    pq.write_table(rows, out, row_group_size=group_rows, **{"store_schema": False, **options})
    return out.getvalue()


NK = schema(column(1, "n", "long"), column(2, "k", "string"))
N, K = of(1, "n", pa.int64()), of(2, "k", pa.string())


@dataclass(kw_only=True)
class RowsTable(DeleteTable):
    """A table whose files have rows; `DeleteTable` has the calls for all else."""

    storage: Storage = field(default_factory=MemoryStorage)
    location: str = "mem://bucket/t"
    schema: Json = field(default_factory=lambda: NK)

    def first_document(self) -> Json:
        return super().first_document() | {"last-column-id": 1000}

    def rows(self, name: str, columns: Columns, *, k: Any = None, group_rows: int = 3, **others: Any) -> None:
        """A data file of some columns."""
        self.stored(name, parquet(columns, group_rows=group_rows), len(columns[0][1]), k=k, **others)

    def stored(self, name: str, data: bytes, rows: int, *, k: Any = None, **others: Any) -> None:
        """A data file of these bytes."""
        self.add(self.file(f"{name}.parquet", data, DATA, rows, **others), k=k)

    def equality_rows(self, name: str, columns: Columns, *, k: Any = None) -> None:
        """An equality delete file that compares all of its columns."""
        ids = [int(each.metadata[b"PARQUET:field_id"]) for each, _ in columns]
        data = parquet(columns)
        entry = self.file(
            f"{name}-eq-deletes.parquet", data, EQUALITY_DELETES, len(columns[0][1]), equality_ids=ids
        )
        self.add(entry, k=k)

    def rows_now(self) -> list[LiteralRow]:
        return read_rows(self.storage, self.document, self.document["current-snapshot-id"])


# -- what a plan would have ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    rewriter: GroupRewriter
    tasks: list[GroupTask]

    @property
    def task(self) -> GroupTask:
        (task,) = self.tasks
        return task


def planned(
    table: RowsTable,
    *,
    target_bytes: int = LARGE,
    max_bytes: int | None = None,
    memory_bytes: int = 1 << 28,
    is_proved: bool = True,
) -> Planned:
    """A group for each partition of the table, read from its files."""
    opening = opened(table.storage, table.publish()).table
    opening.load()
    metadata = opening.metadata
    reachability = Reachability(engine=opening.engine, on_event=opening.on_event, trust_lists=False)
    snapshot = next(each for each in metadata.snapshots if each.snapshot_id == metadata.current_snapshot_id)
    manifests = reachability.manifests((snapshot_files(snapshot),), phase="", required=True).rows
    types = column_types(metadata)
    entry_reader = LiveEntryReader(
        specs={each.spec_id: each for each in metadata.partition_specs}, types=types
    )

    def entries(content: int, columns: Sequence[str]) -> list[Any]:
        some = manifests.filter(pc.equal(manifests["content"], content))
        parts = reachability.from_entries(some, columns, entry_reader, phase="")
        return [each for part in parts for each in part if each.table.num_rows]

    data = entries(0, (*ENTRY_COLUMNS, "first_row_id"))
    delete_tables = [with_path_bounds(each.table) for each in entries(1, DELETE_COLUMNS)]
    path = opening.metadata_location
    notes: list[str] = []
    deletes = RowDeletes(
        entries=pa.concat_tables(delete_tables).combine_chunks() if delete_tables else None,
        schemas=[
            [each for each, _, _ in columns_of(one, metadata.properties, path=path)]
            for one in (metadata.current_schema(), *reversed(metadata.schemas))
        ],
        table=opening,
        notes=notes,
    )
    rolling = Rolling(
        target_bytes=target_bytes,
        min_bytes=target_bytes * 3 // 4,
        max_bytes=max_bytes or target_bytes * 9 // 5,
    )
    tasks: list[GroupTask] = []
    equality: dict[Any, Any] = {}
    deleted: dict[str, Any] = {}
    for some in data:
        for key, partition in zip(some.keys.to_pylist(), some.partitions.to_pylist(), strict=True):
            mine = some.table.filter(pc.equal(some.table["key"], pa.scalar(key, pa.binary())))
            hidden = deletes.of(mine)
            equality |= hidden.columns
            deleted |= hidden.keys
            constants = entry_reader.constants([some], mine["key"].combine_chunks())
            paths = mine["file_path"].to_pylist()
            sizes, _ = true_sizes(opening, paths, mine["file_size_in_bytes"].to_pylist())
            files = [
                DataFile(
                    path=each["file_path"],
                    file_format=each["file_format"].lower(),
                    size_bytes=size,
                    record_count=each["record_count"],
                    constants=constants[key],
                    vectors=hidden.vectors.get(each["file_path"], ()),
                    equality_deletes=hidden.equality[place],
                    sequence_number=each["sequence_number"],
                    first_row_id=each["first_row_id"],
                )
                for place, (each, size) in enumerate(zip(mine.to_pylist(), sizes, strict=True))
            ]
            tasks.append(
                GroupTask(
                    number=len(tasks) + 1,
                    spec_id=some.spec_id,
                    partition=tuple(partition.values()),
                    inputs=tuple(sorted(files, key=lambda each: (each.sequence_number, each.path))),
                    expected_bytes=sum(sizes),
                    rolling=rolling,
                )
            )
    fields, columns = fields_in_files(metadata.current_schema(), metadata.properties, path=path)
    keeps_row_ids = metadata.format_version > 2
    rewriter = GroupRewriter(
        fields=fields,
        columns=columns,
        keeps_row_ids=keeps_row_ids,
        properties=parquet_properties(leaf_columns(fields), metadata.properties),
        modes=metrics_modes((*fields, *ROW_LINEAGE) if keeps_row_ids else fields, metadata.properties)[0],
        locations=data_locations(metadata.location, metadata.properties),
        specs={each.spec_id: each for each in metadata.partition_specs},
        types=types,
        equality=equality,
        deleted=DeletedKeys.of(deleted),
        memory_bytes=memory_bytes,
        **({} if is_proved else {"is_proved": False}),
    )
    return Planned(rewriter, tasks)


# -- where outputs go ------------------------------------------------------------------------------------------------


@dataclass
class Created:
    """A new file; it is put into the storage when it is committed, after `change` had a look at it."""

    storage: Storage
    path: str
    change: Callable[[bytes], bytes]
    data: bytearray = field(default_factory=bytearray)
    state: str = "open"
    late: int = 0  # writes after the end

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> int:
        self.late += self.state != "open"
        self.data += data
        return len(data)

    def commit(self) -> None:
        assert self.state == "open"
        self.storage.put_if_absent(self.path, self.change(bytes(self.data)))
        self.state = "committed"

    def abort(self) -> None:
        assert self.state == "open"
        self.state = "aborted"


@dataclass
class Files:
    """The new files of an operation, in a storage."""

    storage: Storage
    change: Callable[[bytes], bytes] = bytes
    created: list[Created] = field(default_factory=list)

    def create(self, place: Callable[[str], str]) -> Created:
        assert all(each.state != "open" for each in self.created), "one output is open at a time"
        path = place(f"{len(self.created):05d}-operation-1-1.parquet")
        self.created.append(Created(self.storage, path, self.change))
        return self.created[-1]


# -- checks ----------------------------------------------------------------------------------------------------------


def rewritten(table: RowsTable, **options: Any) -> list[RewrittenGroup]:
    """Each group of a table, written anew, looked at, and committed; what readers see stays what it is."""
    plan = planned(table, **options)
    before = table.rows_now()
    results = []
    files = Files(table.storage)
    for task in plan.tasks:
        result = plan.rewriter(files, task)
        inputs = [each.path for each in task.inputs]
        check_group(table, plan.rewriter, task, result, [row for row in before if row.path in inputs])
        results.append(result)
    assert [each.state for each in files.created] == ["committed"] * len(files.created)
    commit(table, plan, results)
    after = table.rows_now()
    assert multiset(after, table.format_version) == multiset(before, table.format_version)
    assert {row.path for row in after} == {each.path for result in results for each in result.outputs if each}
    return results


def multiset(rows: Sequence[LiteralRow], version: int) -> Counter[str]:
    lineage = [(row.row_id, row.last_updated) if version > 2 else () for row in rows]
    return Counter(repr((row.values, own)) for row, own in zip(rows, lineage, strict=True))


def check_group(
    table: RowsTable,
    rewriter: GroupRewriter,
    task: GroupTask,
    result: RewrittenGroup,
    before: Sequence[LiteralRow],
) -> None:
    """The outputs have the rows that a reader saw, in their order, and the map has each at its place."""
    stored = [parquet_rows(table.storage.read(each.path)) for each in result.outputs]
    found = [(output, place, row) for output, rows in enumerate(stored) for place, row in enumerate(rows)]
    assert [row for _, _, row in found] == [stored_row(row, rewriter) for row in before]
    places = {
        (task_input(task, row), row.position): (output, place)
        for row, (output, place, _) in zip(before, found, strict=True)
    }
    for number, file in enumerate(task.inputs):
        positions = list(range(file.record_count + 2))
        outputs, output_positions = result.positions.moved(number, pa.array(positions).to_numpy())
        moved = list(zip(outputs.tolist(), output_positions.tolist(), strict=True))
        assert moved == [places.get((number, position), (-1, -1)) for position in positions]
    physical = sum(each.record_count for each in task.inputs)
    assert (result.rows_read, result.rows_deleted, result.rows_written) == (
        physical, physical - len(before), len(before),
    )  # fmt: skip
    sizes = [len(table.storage.read(each.path)) for each in result.outputs]
    assert [each.size_bytes for each in result.outputs] == sizes
    assert result.output_bytes == sum(sizes)
    assert result.input_bytes == sum(len(table.storage.read(each.path)) for each in task.inputs)
    assert [each.metrics.record_count for each in result.outputs] == [len(rows) for rows in stored]
    assert all(stored)
    assert (result.proof is not None) == rewriter.is_proved
    document = json.loads(json.dumps(result.to_json()))
    again = RewrittenGroup.from_json(document, result.position_data(), "journal", position_path="map")
    assert replace(again, positions=result.positions) == result
    assert again.positions.to_table().equals(result.positions.to_table())


def task_input(task: GroupTask, row: LiteralRow) -> int:
    return [each.path for each in task.inputs].index(row.path)


def stored_row(row: LiteralRow, rewriter: GroupRewriter) -> Json:
    """A row as an output has it."""
    lineage = {ROW_ID: row.row_id, LAST_UPDATED: row.last_updated} if rewriter.keeps_row_ids else {}
    return row.values | lineage


def commit(table: RowsTable, plan: Planned, results: Sequence[RewrittenGroup]) -> None:
    """Replace the inputs of all groups by their outputs, as a `replace` snapshot of another engine."""
    inputs = {each.path for task in plan.tasks for each in task.inputs}
    live = table.live()
    data = {each["file_path"]: each for each in live}
    table.gone |= {
        key_of(each)
        for each in live
        if each["file_path"] in inputs or (is_vector(each) and each["referenced_data_file"] in inputs)
    }
    sequence_number = table.document["last-sequence-number"]
    for task, result in zip(plan.tasks, results, strict=True):
        first = data[task.inputs[0].path]
        for output in result.outputs:
            entry = {
                "content": DATA, "file_path": output.path, "file_format": "PARQUET",
                "record_count": output.metrics.record_count, "file_size_in_bytes": output.size_bytes,
                "partition": first["partition"], "spec_id": task.spec_id, "sequence_number": sequence_number,
            }  # fmt: skip
            table.added.append(entry if table.format_version > 1 else without(entry, "sequence_number"))
    table.commit(1_000_000)


def without(entry: Mapping[str, Any], name: str) -> Json:
    return {key: value for key, value in entry.items() if key != name}

"""Drawn histories of Delta tables with rows: by a literal writer, commit by commit."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.testing.delta_rows import commits_of, deleted_positions, state_of
from iceberg_cli.testing.delta_vectors import an_inline_vector
from iceberg_cli.testing.delta_writer import (
    Action,
    Json,
    a_commit,
    a_commit_info,
    a_domain,
    a_field,
    a_metadata,
    a_protocol_with,
    a_row_id_mark,
    an_add,
    write_commit,
    write_vectors,
)

ROW_IDS = ("_row-id-col", "_row-commit-version-col")
FEATURES = ("deletionVectors", "appendOnly", "invariants", "timestampNtz", "typeWidening", "columnMapping")
TRACKING_FEATURES = ("rowTracking", "domainMetadata")
COMPAT = {"delta.enableIcebergCompatV2": "true", "delta.enableDeletionVectors": "false"}
FOR_ICEBERG = {
    "none": (),
    "partition columns": ("materializePartitionColumns",),
    "compat": ("icebergCompatV2",),
}
CLUSTERING = "delta.clustering"
NESTED_IDS = "delta.columnMapping.nested.ids"
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": ROW_IDS[0],
    "delta.rowTracking.materializedRowCommitVersionColumnName": ROW_IDS[1],
}
PARTITIONS = (None, "", "x", "__HIVE_DEFAULT_PARTITION__", "a/b", "%2F", "é")
_TYPES: dict[str, pa.DataType] = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(20,4)": pa.decimal128(20, 4),
}  # fmt: skip
_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    "decimal(9,2)": ("decimal(20,4)",),
}


@dataclass
class Column:
    """A column as the table and its files have it."""

    name: str
    kind: Any
    number: int
    physical: str
    items: dict[str, int] = field(default_factory=dict)  # ids of what is in a list or map


@dataclass
class DrawnTable:
    """A table of this machine, and what a writer knows of it."""

    root: Path
    drawn: random.Random
    mode: str = "none"
    tracking: str = "none"  # or "supported" or "enabled"
    partitioned: bool = False
    iceberg: str = "none"  # what files are to have for it: one of `FOR_ICEBERG`
    clustered: bool = False
    fed: bool = False  # with a change data feed
    columns: list[Column] = field(default_factory=list)
    live: dict[str, Json] = field(default_factory=dict)  # adds by path
    version: int = -1
    mark: int = -1
    next_id: int = 1
    vectors: int = 0
    configuration: dict[str, str] = field(default_factory=dict)
    clustered_by: list[str] = field(default_factory=list)  # physical names

    def found(self) -> None:
        """Commit version 0."""
        self.configuration = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}
        if self.iceberg == "compat":
            self.configuration |= COMPAT
        if self.mode != "none":
            self.configuration["delta.columnMapping.mode"] = self.mode
        if self.tracking == "enabled":
            self.configuration |= TRACKED
        if self.fed:
            self.configuration["delta.enableChangeDataFeed"] = "true"
        for _ in range(self.drawn.randint(1, 3)):
            self.add_column()
        if self.partitioned:
            self.columns.append(Column("part", "string", self._next_id(), self._physical("part")))
        self.commit([self.protocol(), self.metadata(), *self.clustering()])

    def clustering(self) -> list[Action]:
        """The columns by which it is clustered, those that can be."""
        able = [
            each.physical
            for each in self.columns
            if isinstance(each.kind, str) and each.kind not in ("binary", "boolean")
        ]
        self.clustered_by = able[:3] if self.clustered else []
        if not self.clustered_by:
            return []
        value = {"clusteringColumns": [[each] for each in self.clustered_by], "domainName": CLUSTERING}
        return [a_domain(domain=CLUSTERING, configuration=json.dumps(value))]

    def protocol(self) -> Action:
        """The protocol as it is now."""
        tracking = TRACKING_FEATURES if self.tracking != "none" else ()
        others = [*FOR_ICEBERG[self.iceberg], *tracking, *(("changeDataFeed",) if self.fed else ())]
        if self.clustered:
            others += [each for each in ("clustering", "domainMetadata") if each not in others]
        return a_protocol_with(*FEATURES, *others)

    def _next_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _physical(self, name: str) -> str:
        return name if self.mode == "none" else f"col-{uuid.UUID(int=self.drawn.getrandbits(128))}"

    def add_column(self) -> None:
        """Have one more column, of any type."""
        name, items = f"c{self.next_id}", dict[str, int]()
        kind: Any = self.drawn.choice([*_TYPES, "struct", "list", "map"])
        number, physical = self._next_id(), self._physical(name)
        if kind == "struct":
            inner = [self._field(f"{name}.{each}", each) for each in ("long", "string")]
            kind = {"type": "struct", "fields": inner}
        elif kind == "list":
            kind = {"type": "array", "elementType": "string", "containsNull": True}
            items = {f"{physical}.element": self._next_id()}
        elif kind == "map":
            kind = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
            items = {f"{physical}.{each}": self._next_id() for each in ("key", "value")}
        self.columns.insert(0, Column(name, kind, number, physical, items))

    def _field(self, name: str, kind: Any) -> Json:
        return self._as_field(Column(name, kind, self._next_id(), self._physical(name)))

    def _as_field(self, column: Column) -> Json:
        if self.mode == "none":
            return a_field(column.name, column.kind)
        metadata = {
            "delta.columnMapping.id": column.number,
            "delta.columnMapping.physicalName": column.physical,
        } | ({NESTED_IDS: column.items} if self.iceberg == "compat" else {})
        return a_field(column.name, column.kind, **metadata)

    def metadata(self) -> Action:
        """The metadata as it is now."""
        fields = [self._as_field(each) for each in self.columns]
        columns = ["part"] if self.partitioned else []
        return a_metadata(*fields, configuration=self.configuration, partitionColumns=columns)

    def commit(self, actions: Iterable[Action]) -> None:
        """Write the next version."""
        self.version += 1
        write_commit(self.root, self.version, a_commit(a_commit_info(), *actions))

    # -- files -----------------------------------------------------------------------------------------------------

    def new_file(self, rows: int, **more: Any) -> Action:
        """A file of drawn rows in a drawn partition; `more` has further fields of its add."""
        drawn = self.drawn
        stored = [each for each in self.columns if each.name != "part"]
        if drawn.random() < 0.3:
            drawn.shuffle(stored)
        if len(stored) > 1 and drawn.random() < 0.2:
            stored = stored[1:]
        arrays, fields = [], []
        for column in stored:
            kind = arrow_field(self._as_field(column), self.mode)
            arrays.append(pa.array([self.value(column.kind) for _ in range(rows)], kind.type))
            fields.append(kind)
        if self.tracking == "enabled" and drawn.random() < 0.5:
            kept = [
                [drawn.choice([None, 10_000 + drawn.randrange(1000)]) for _ in range(rows)] for _ in ROW_IDS
            ]
            arrays += [pa.array(each, pa.int64()) for each in kept]
            fields += [pa.field(name, pa.int64()) for name in ROW_IDS]
        if self.partitioned and self.iceberg != "none" and drawn.random() < 0.5:
            # Any value: the log alone says what it is.
            (own,) = (each for each in self.columns if each.name == "part")
            arrays.append(pa.array([drawn.choice(PARTITIONS)] * rows, pa.string()))
            fields.append(arrow_field(self._as_field(own), self.mode))
        sink = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
            sink,
            row_group_size=drawn.choice([1, 3, 100]),
            store_schema=False,
            compression=drawn.choice(["snappy", "zstd", "none"]),
        )
        name = f"{drawn.choice(['', 'some folder/', 'ü 漢/'])}f-{len(list(self.root.rglob('*.parquet')))}.parquet"
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sink.getvalue())
        others: dict[str, Any] = {
            "size": len(sink.getvalue()),
            "tags": drawn.choice([None, {"INSERTION_TIME": "1"}]),
        }
        if self.partitioned:
            own = next(each for each in self.columns if each.name == "part")
            others["partitionValues"] = {own.physical: drawn.choice(PARTITIONS)}
        if self.tracking != "none":
            others |= {"baseRowId": self.mark + 1, "defaultRowCommitVersion": self.version + 1}
            self.mark += rows
        is_counted = drawn.random() < 0.85 or self.tracking != "none"
        return an_add(path=name.replace(" ", "%20"), rows=rows if is_counted else None, **others, **more)

    def value(self, kind: Any) -> Any:  # noqa: PLR0911 - one for each type
        """A drawn value of a type, often null."""
        drawn = self.drawn
        if drawn.random() < 0.2:
            return None
        if isinstance(kind, dict):
            match kind["type"]:
                case "struct":
                    names = [arrow_field(each, self.mode).name for each in kind["fields"]]
                    return {
                        name: self.value(each["type"])
                        for name, each in zip(names, kind["fields"], strict=True)
                    }
                case "array":
                    return [self.value("string") for _ in range(drawn.randrange(3))]
                case _:
                    return [(f"k{each}", self.value("long")) for each in range(drawn.randrange(3))]
        day = date(
            drawn.choice([1, 1582, 1900, 1969, 2026, 9999]), drawn.randint(1, 12), drawn.randint(1, 28)
        )
        moment = datetime(
            day.year, day.month, day.day, 12, 0, 0, drawn.choice([0, 123_999, 999_999]), tzinfo=UTC
        )
        match kind:
            case "byte" | "short" | "integer" | "long":
                bits = _TYPES[kind].bit_width - 1
                return drawn.choice([0, -1, 7, (1 << bits) - 1, -(1 << bits)])
            case "float" | "double":
                return drawn.choice([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf")])
            case "string":
                return drawn.choice(
                    ["", "a", "é" * 40, "\U0010ffff" * 40, "z" * 31 + "\U0001f600z", "x" * 33]
                )
            case "binary":
                return drawn.choice([b"", b"\x00\xff"])
            case "boolean":
                return drawn.random() < 0.5
            case "date":
                return day
            case "timestamp":
                return moment
            case "timestamp_ntz":
                return moment.replace(tzinfo=None)
            case _:
                return Decimal(drawn.choice(["0.00", "-1234567.89", "9999999.99"]))

    # -- commits ---------------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Commit some files."""
        actions = [self.new_file(self.drawn.randint(1, 8)) for _ in range(self.drawn.randint(1, 4))]
        self.write(actions)

    def write(self, actions: Sequence[Action]) -> None:
        """Commit files, and the mark of row ids that they need."""
        for action in actions:
            if "add" in action:
                self.live[action["add"]["path"]] = action["add"]
        domain = [a_row_id_mark(self.mark)] if self.tracking != "none" else []
        self.commit([*actions, *domain])

    def remove_of(self, add: Json) -> Action:
        """The remove of an add."""
        kept = (
            "path",
            "partitionValues",
            "size",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
        )
        fields = {name: add[name] for name in kept if name in add}
        return {
            "remove": {**fields, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}
        }

    def delete_rows(self) -> None:
        """Delete rows of a file by a vector: of some files all."""
        if not self.live:
            return
        add = self.drawn.choice([*self.live.values()])
        count = self.count(add)
        before = deleted_positions(self.root, add)
        gone = before | {*self.drawn.sample(range(count), self.drawn.randint(1, count))}
        if gone == before:
            return
        if self.drawn.random() < 0.5:
            vector = an_inline_vector(sorted(gone))
        else:
            self.vectors += 1
            _, vector = write_vectors(self.root, self.vectors, [0], sorted(gone))
        stats = {**json.loads(add.get("stats", "{}")), "numRecords": count, "tightBounds": False}
        new = {**add, "deletionVector": vector, "stats": json.dumps(stats)}
        self.write([self.remove_of(add), {"add": new}])

    def drop_file(self) -> None:
        """Remove a file, as an overwrite does."""
        if self.live:
            path = self.drawn.choice([*self.live])
            self.write([self.remove_of(self.live.pop(path))])

    def update_file(self) -> None:
        """Write other rows in the place of a file, as UPDATE and MERGE do without vectors."""
        if self.live:
            path = self.drawn.choice([*self.live])
            self.write([self.remove_of(self.live.pop(path)), self.new_file(self.drawn.randint(1, 4))])

    def merge_vector(self) -> None:
        """Have the same rows of a file deleted by another vector."""
        with_vectors = [add for add in self.live.values() if add.get("deletionVector")]
        if with_vectors:
            add = self.drawn.choice(with_vectors)
            self.vectors += 1
            gone = sorted(deleted_positions(self.root, add))
            _, vector = write_vectors(self.root, self.vectors, [0], gone)
            self.write([self.remove_of(add), {"add": {**add, "deletionVector": vector}}])

    def track(self) -> None:
        """Enable row tracking: all files get ids, each of their rows another than any."""
        if self.tracking == "enabled":
            return
        actions: list[Action] = []
        for add in self.live.values():
            count = self.count(add)
            stats = json.dumps({**json.loads(add.get("stats") or "{}"), "numRecords": count})
            ids = {"baseRowId": self.mark + 1, "defaultRowCommitVersion": self.version + 1}
            actions.append({"add": {**add, "stats": stats, **({} if "baseRowId" in add else ids)}})
            self.mark += 0 if "baseRowId" in add else count
        self.tracking = "enabled"
        self.configuration |= TRACKED
        self.write([self.protocol(), self.metadata(), *actions])

    def count(self, add: Json) -> int:
        """The rows of a file."""
        return int(pq.ParquetFile(self.root / unquote(add["path"])).metadata.num_rows)

    def evolve(self) -> None:
        """Widen a column, add one, or with mapping drop or rename one."""
        own = [
            each for each in self.columns if each.name != "part" and each.physical not in self.clustered_by
        ]
        wider = [each for each in own if isinstance(each.kind, str) and each.kind in _WIDER]
        choice = self.drawn.choice(["add", "widen", "drop", "rename"])
        if choice == "widen" and wider:
            column = self.drawn.choice(wider)
            column.kind = self.drawn.choice(_WIDER[column.kind])
        elif choice == "drop" and self.mode != "none" and len(own) > 1:
            self.columns.remove(self.drawn.choice(own))
        elif choice == "rename" and self.mode != "none" and own:
            self.drawn.choice(own).name += "r"
        else:
            self.add_column()
        self.commit([self.metadata()])

    def reload(self) -> None:
        """Go on from what others committed."""
        state = state_of(self.root)
        self.live = {add["path"]: add for add in state.adds.values()}
        self.version = int(commits_of(self.root)[-1].stem)
        if (mark := state.domains.get("delta.rowTracking")) is not None:
            self.mark = json.loads(mark["configuration"])["rowIdHighWaterMark"]

    def step(self) -> None:
        """Any commit of a writer."""
        steps = [
            *(self.append, self.append, self.append, self.delete_rows, self.delete_rows, self.drop_file),
            *(self.evolve, self.update_file, self.merge_vector),
        ]
        if self.iceberg == "compat":
            steps = [each for each in steps if each not in (self.delete_rows, self.merge_vector)]
        self.drawn.choice(steps)()
        if self.drawn.random() < 0.03:
            self.track()


def arrow_field(document: Json, mode: str) -> pa.Field:
    """A field of a file, by the schema's document of it."""
    metadata = document.get("metadata", {})
    name = document["name"] if mode == "none" else metadata["delta.columnMapping.physicalName"]
    kind = document["type"]
    if isinstance(kind, dict):
        match kind["type"]:
            case "struct":
                arrow: pa.DataType = pa.struct([arrow_field(each, mode) for each in kind["fields"]])
            case "array":
                arrow = pa.list_(pa.field("element", pa.string(), metadata=_item_id(metadata, "element")))
            case _:
                key = pa.field("key", pa.string(), nullable=False, metadata=_item_id(metadata, "key"))
                arrow = pa.map_(key, pa.field("value", pa.int64(), metadata=_item_id(metadata, "value")))
    else:
        arrow = _TYPES[kind]
    ids = {} if mode == "none" else {"PARQUET:field_id": str(metadata["delta.columnMapping.id"])}
    return pa.field(name, arrow, metadata=ids)


def _item_id(metadata: Json, name: str) -> dict[str, str]:
    items = {place.rpartition(".")[2]: number for place, number in metadata.get(NESTED_IDS, {}).items()}
    return {"PARQUET:field_id": str(items[name])} if name in items else {}


def drawn_table(root: Path, seed: int) -> DrawnTable:
    """A table of some commits."""
    drawn = random.Random(seed)
    mode = drawn.choice(["none", "name", "id"])
    table = DrawnTable(
        root,
        drawn,
        mode=mode,
        tracking=drawn.choice(["none", "supported", "enabled"]),
        partitioned=drawn.random() < 0.5,
        fed=drawn.random() < 0.3,
        iceberg=drawn.choice(["none", *(each for each in FOR_ICEBERG if each != "compat" or mode != "none")]),
    )
    table.clustered = not table.partitioned and drawn.random() < 0.5
    table.found()
    for _ in range(drawn.randint(2, 9)):
        table.step()
    return table

"""A writer of another engine on a table in memory: it appends, deletes and overwrites rows that it picks by value.

Each row has a value of `n` that no other one ever had, so what should be in the table is a set of numbers. Which file a
row is in is read from the table as it is then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CommitConflict
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.world import World
from iceberg_cli.testing.iceberg_files import DATA, DELETED
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of
from iceberg_cli.testing.iceberg_rows import ROW_ID, LiteralRow, read_rows
from iceberg_cli.testing.iceberg_writer import is_vector
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable, of
from tests.manifest_tables import NAME, NOW_MS, Opened, opened, unseen

PARTITIONS = (None, "x", "y", "null")
OPERATION = "iceberg-cli.operation-id"


@dataclass(kw_only=True)
class OtherWriter:
    """Commits to a table as it is; `numbers` are the rows that should be there."""

    drawn: random.Random
    version: int
    is_sorted: bool = False  # as the table asks for it; no file is, or says so
    table: RowsTable = field(init=False)
    opened: Opened = field(init=False)
    numbers: dict[int, Any] = field(default_factory=dict)  # by number the partition
    commits: int = 0
    next_number: int = 0
    history: dict[int, dict[int, Any]] = field(default_factory=dict)  # `numbers` by snapshot of its own

    def __post_init__(self) -> None:
        self.table = RowsTable(format_version=self.version)
        self.table.document["default-spec-id"] = 1  # by k; it goes on to write files of spec 0, too
        if self.is_sorted:
            transform = "truncate[10]" if self.version == 2 else "identity"
            key = {"transform": transform, "source-id": 1, "direction": "desc", "null-order": "nulls-last"}
            self.table.document["sort-orders"].append({"order-id": 1, "fields": [key]})
            self.table.document["default-sort-order-id"] = 1
        for _ in range(self.drawn.randint(3, 9)):
            self._add_file()
        self._commit()
        self.opened = opened(self.table.storage, self.table.publish())

    @property
    def document(self) -> dict[str, Any]:
        return self.opened.metadata()

    def rows(self, snapshot_id: int | None = None) -> list[LiteralRow]:
        document = self.document
        return read_rows(self.table.storage, document, snapshot_id or document["current-snapshot-id"])

    # -- what it does ------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One commit of a kind that is drawn."""
        self._reload()
        chance = self.drawn.random()
        if chance < 0.2:
            change = self.roll_back if chance < 0.08 else self.expire if chance < 0.15 else self.evolve
            change()
            self.opened.catalog.locations[NAME] = self.table.publish()
            return
        kinds: Sequence[Callable[[], None]] = (
            self.append, self.append, self.delete, self.delete, self.delete, self.delete_by_value, self.delete_by_value,
            self.remove, self.overwrite, self.upsert, self.upsert,
        )  # fmt: skip
        if self.version == 1:  # which has no deletes
            kinds = (self.append, self.append, self.remove, self.overwrite)
        self.drawn.choice(kinds)()
        self._commit()
        self.opened.catalog.locations[NAME] = self.table.publish()

    def roll_back(self) -> None:
        """Main is set to a snapshot of the past, if one of them is there."""
        if not self.history:
            return
        snapshot_id = self.drawn.choice(sorted(self.history))
        document = self.table.document
        document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = snapshot_id
        self.numbers = dict(self.history[snapshot_id])

    def expire(self) -> None:
        """All snapshots go but the current one; files stay where they are."""
        document = self.table.document
        current = document["current-snapshot-id"]
        document["snapshots"] = [each for each in document["snapshots"] if each["snapshot-id"] == current]
        self.history = {number: rows for number, rows in self.history.items() if number == current}

    def evolve(self) -> None:
        """A column is added, with a value for the rows that are there where the version has such, or one is renamed."""
        now = next(
            each
            for each in self.table.document["schemas"]
            if each["schema-id"] == self.table.document["current-schema-id"]
        )
        fields = list(now["fields"])
        if self.drawn.random() < 0.5:
            default = {"initial-default": 7, "write-default": 8} if self.version >= 3 else {}
            number = 100 + len(fields)
            fields.append({"id": number, "name": f"c{number}", "required": False, "type": "int", **default})
        else:
            fields[1] = {**fields[1], "name": f"k{self.commits}"}
        number = max(each["schema-id"] for each in self.table.document["schemas"]) + 1
        self.table.evolve({**now, "fields": fields, "schema-id": number})

    def append(self) -> None:
        for _ in range(self.drawn.randint(1, 2)):
            self._add_file()

    def delete(self) -> None:
        """Rows of one or several files, by their positions."""
        rows = self.rows()
        chosen = self.drawn.sample(rows, min(len(rows), self.drawn.randint(1, 4)))
        if not chosen:
            return
        by_file: dict[str, set[int]] = {}
        for row in chosen:
            by_file.setdefault(self._name(row), set()).add(row.position)
            del self.numbers[row.values[1]]
        for partition in {self._partition_of(name) for name in by_file}:
            own = {name: places for name, places in by_file.items() if self._partition_of(name) == partition}
            label = f"d{self.commits}-{partition}"
            if self.version >= 3:
                self.table.vectors(
                    label, {name: places | self._deleted(name) for name, places in own.items()}, k=partition
                )
            elif self.drawn.random() < 0.5:
                for name, places in own.items():
                    only = {"referenced_data_file": self._path(name)}
                    self.table.positions(f"{label}-{name}", {name: places}, k=partition, **only)
            else:
                self.table.positions(label, own, k=partition)

    def delete_by_value(self) -> None:
        """Rows by their numbers, in one partition or in all."""
        everywhere = self.drawn.random() < 0.4
        partition = None if everywhere else self.drawn.choice(PARTITIONS[1:])
        candidates = [n for n, own in self.numbers.items() if everywhere or own == partition]
        chosen = self.drawn.sample(candidates, min(len(candidates), self.drawn.randint(1, 3)))
        self.table.equality_rows(f"e{self.commits}", [(N, [*chosen, -1])], k=partition)
        for number in chosen:
            del self.numbers[number]

    def upsert(self) -> None:
        """Rows of a partition are deleted by their numbers, and new rows have the same numbers, in one commit."""
        partition = self.drawn.choice(PARTITIONS[1:])
        candidates = [number for number, own in self.numbers.items() if own == partition]
        chosen = self.drawn.sample(candidates, min(len(candidates), self.drawn.randint(1, 3)))
        if chosen:
            self.table.equality_rows(f"e{self.commits}", [(N, chosen)], k=partition)
            texts = [None if partition == "null" else partition] * len(chosen)
            self._file([(N, chosen), (K, texts)], partition)

    def remove(self) -> None:
        """A file with all its rows."""
        rows = self.rows()
        if rows:
            name = self._name(self.drawn.choice(rows))
            for row in rows:
                if self._name(row) == name:
                    del self.numbers[row.values[1]]
            self._take_out(name)

    def overwrite(self) -> None:
        """Copy-on-write: some rows of a file go, the others stand in a new one."""
        rows = self.rows()
        if not rows:
            return
        name = self._name(self.drawn.choice(rows))
        own = [row for row in rows if self._name(row) == name]
        gone = self.drawn.sample(own, self.drawn.randint(0, len(own) - 1))
        for row in gone:
            del self.numbers[row.values[1]]
        partition = self._partition_of(name)
        self._take_out(name)
        self._add_rows([row for row in own if row not in gone], partition)

    # -- how ----------------------------------------------------------------------------------------------------

    def _add_file(self) -> None:
        partition = self.drawn.choice(PARTITIONS)
        count = self.drawn.randint(1, 6)
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count
        self.numbers |= dict.fromkeys(numbers, partition)
        texts = [
            f"t{number % 3}" if partition is None else None if partition == "null" else partition
            for number in numbers
        ]
        self._file([(N, numbers), (K, texts)], partition)

    def _add_rows(self, rows: Sequence[LiteralRow], partition: Any) -> None:
        columns = [(N, [row.values[1] for row in rows]), (K, [row.values[2] for row in rows])]
        if self.version >= 3:
            columns.append((of(ROW_ID, "_row_id", pa.int64()), [row.row_id for row in rows]))
        self._file(columns, partition)

    def _file(self, columns: Any, partition: Any) -> None:
        self.table.rows(f"f{self.commits}-{len(self.table.added)}", columns, k=partition)

    def _take_out(self, name: str) -> None:
        path = self._path(name)
        self.table._drop(lambda entry: entry["file_path"] == path)
        self.table._drop_vectors({path})

    def _name(self, row: LiteralRow) -> str:
        return row.path.removeprefix(f"{self.table.location}/data/").removesuffix(".parquet")

    def _path(self, name: str) -> str:
        return f"{self.table.location}/data/{name}.parquet"

    def _entry(self, name: str) -> Mapping[str, Any]:
        return next(each for each in self.table.live() if each["file_path"] == self._path(name))

    def _partition_of(self, name: str) -> Any:
        partition = self._entry(name)["partition"]
        if not partition:
            return None
        (value,) = partition.values()
        return "null" if value is None else value

    def _deleted(self, name: str) -> set[int]:
        from iceberg_cli.testing.iceberg_reader import deleted_positions

        deletes = [each for each in self.table.live() if each["content"] == 1]
        return deleted_positions(self.table.storage, self._entry(name), deletes)

    def _reload(self) -> None:
        self.table.reload(self.document, self.table.version)

    def _commit(self) -> None:
        self.commits += 1
        self.table.commit(1_000 + self.commits)
        self.history[1_000 + self.commits] = dict(self.numbers)


class DisturbedEngine(LocalEngine):
    """Runs tasks in turn, and lets others act between them."""

    meanwhile: ClassVar[Callable[[], None]]

    def run(self, task: Any, items: Sequence[Any], *, may_begin: Any, processes: int) -> Any:
        for index, item in enumerate(items):
            type(self).meanwhile()
            for end in super().run(task, [item], may_begin=may_begin, processes=processes):
                assert end is not None
                yield replace(end, index=index)


def runtime(world: World) -> Runtime:
    return Runtime(
        now_ms=lambda: NOW_MS,
        new_uuid=world.new_uuid,
        sleep_ms=lambda _ms: None,
        on_event=unseen,
        host="here",
        process_id=1,
    )


def rewritten(found: Opened, world: World, **values: Any) -> Report | None:
    """The report of a run; None where there was nothing to do, or others were in the way of all groups."""
    found.table.load()
    planned = VERB.plan(found.table, RewriteDataFiles(**values), as_of_ms=NOW_MS)
    if not planned.plan.due:
        return None
    try:
        return apply(planned, found.table, VERB, runtime(world))
    except CommitConflict:
        return None


def plan_of(found: Opened, **values: Any) -> Plan:
    found.table.load()
    return VERB.plan(found.table, RewriteDataFiles(**values), as_of_ms=NOW_MS).plan


def comparable(rows: Sequence[LiteralRow], *, with_ids: bool) -> Counter[Any]:
    """The rows as a multiset; with their ids and the sequence numbers of their last updates."""
    return Counter(
        (tuple(sorted(row.values.items())), *((row.row_id, row.last_updated) if with_ids else ()))
        for row in rows
    )


def check_vectors(writer: OtherWriter, snapshot: Mapping[str, Any]) -> None:
    """Each deletion vector is of a data file that the snapshot has, and no such file has two."""
    storage = writer.table.storage
    entries = [
        entry
        for manifest in manifests_of(storage, snapshot)
        for entry in entries_of(storage, manifest)
        if entry["status"] != DELETED
    ]
    data = {entry["file_path"] for entry in entries if entry["content"] == DATA}
    vectors = [entry["referenced_data_file"] for entry in entries if is_vector(entry)]
    assert len(set(vectors)) == len(vectors)
    assert {*vectors} <= data


def check_own_snapshots(writer: OtherWriter) -> int:
    """Each snapshot of a rewrite has the rows of its parent; how many such there are."""
    document, storage = writer.document, writer.table.storage
    known = {each["snapshot-id"] for each in document["snapshots"]}
    own = [each for each in document["snapshots"] if OPERATION in each["summary"]]
    for snapshot in own:
        check_vectors(writer, snapshot)
        if snapshot["parent-snapshot-id"] not in known:
            continue  # it was expired
        assert snapshot["summary"]["operation"] == "replace"
        after = comparable(
            read_rows(storage, document, snapshot["snapshot-id"]), with_ids=writer.version >= 3
        )
        before = comparable(
            read_rows(storage, document, snapshot["parent-snapshot-id"]), with_ids=writer.version >= 3
        )
        assert after == before
    return len(own)

"""A small warehouse to try every command on: three local tables with a history of about 40 days.

`events` (Iceberg v2, partitioned by day) has appends, overwrites, position deletes, a tag, a branch and a snapshot
that was rolled back. `orders` (Iceberg v3) has deletion vectors that share Puffin files, and row lineage. `visits`
(Delta) has removed files that are past their retention and others that are not, deletion vectors in many files, and
more commits since its last checkpoint than its property asks for.
"""

from __future__ import annotations

import errno
import io
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_cli.errors import IcebergCliError, UsageError, unavailable
from iceberg_cli.testing.delta_vectors import a_vector_file
from iceberg_cli.testing.delta_writer import (
    Action,
    Json,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_field,
    a_metadata,
    a_protocol_with,
    a_remove,
    an_add,
)
from iceberg_cli.testing.iceberg_files import Entry
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Key, key_of

DAY_MS = 86_400_000
HISTORY_MS = 40 * DAY_MS
# No folder of that name can exist, whatever space and permissions there are.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST)
_KINDS = ("click", "view", "purchase", "search")
_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald")
_PAGES = ("home", "search", "basket", "help")
_CREATED_BY = "iceberg-cli demo"

EVENTS_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "event_id", "required": True, "type": "long"},
        {"id": 2, "name": "at", "required": True, "type": "timestamptz"},
        {"id": 3, "name": "kind", "required": False, "type": "string"},
        {"id": 4, "name": "duration_ms", "required": False, "type": "int"},
    ],
}
EVENTS_SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "at_day", "transform": "day"}],
}
ORDERS_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "order_id", "required": True, "type": "long"},
        {"id": 2, "name": "customer", "required": False, "type": "string"},
        {"id": 3, "name": "ordered_on", "required": False, "type": "date"},
        {"id": 4, "name": "amount", "required": False, "type": "decimal(9,2)"},
    ],
}
ORDERS_SPEC: dict[str, Any] = {"spec-id": 0, "fields": []}
VISITS_COLUMNS = (
    a_field("visit_id", "long"), a_field("day", "date"), a_field("page", "string"), a_field("seconds", "integer"),
)  # fmt: skip
CHECKPOINT_INTERVAL = 5  # versions, of `visits`
REMOVED_FILES_MS = 7 * DAY_MS  # Delta's default for `delta.deletedFileRetentionDuration`


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTables:
    """The locations of the demo tables: folders with `metadata/version-hint.text`, that of `visits` with a log."""

    events: str
    orders: str
    visits: str

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return self.events, self.orders, self.visits


def create_demo(folder: str, *, now_ms: int) -> DemoTables:
    """Create the warehouse: `<folder>/db/events`, `<folder>/db/orders` and `<folder>/db/visits`.

    The same `now_ms` gives the same tables: names, ids, rows and times.

    Args:
        folder: made if absent; may hold other things.
        now_ms: the time of the newest snapshots and the newest version, in milliseconds since 1970.

    Raises:
        UsageError: one of the tables is there already, or no folder can be made of that name.
        BackendUnavailable: a file cannot be written.
    """
    if not folder:
        raise UsageError("Cannot create tables in '': it names no folder.", next_step="Name a folder.")
    database = os.path.join(os.path.abspath(folder), "db")
    tables = DemoTables(events=f"{database}/events", orders=f"{database}/orders", visits=f"{database}/visits")
    for location in tables.every:
        if os.path.lexists(location):
            raise UsageError(f"Cannot create {location}: it exists.", next_step="Name another folder.")
    try:
        _Events(tables.events, now_ms).create()
        _Orders(tables.orders, now_ms).create()
        _Visits(tables.visits, now_ms).create()
    except OSError as error:
        raise _not_written(error, database) from error
    return tables


def _not_written(error: OSError, database: str) -> IcebergCliError:
    """The error that the warehouse could not be written, or not all of it."""
    message = f"Cannot write {error.filename or database}: {error.strerror}"
    raised: IcebergCliError
    if error.errno in _NO_FOLDER:
        raised = UsageError(message, next_step="Name another folder.")
    else:
        raised = unavailable(message, error, next_step="Mend that or name another folder.")
    if os.path.lexists(database):
        raised.state = f"What was written before is in {database}."
    return raised


class _Folder:
    """Files of this machine, each as old as the commit that writes it."""

    time_ms = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._write(path, "xb", data)

    def replace(self, path: str, data: bytes) -> None:
        self._write(path, "wb", data)

    def _write(self, path: str, mode: str, data: bytes) -> None:
        with open(path, mode) as file:
            file.write(data)
        os.utime(path, ns=(self.time_ms * 1_000_000,) * 2)


class _Timeline:
    """When the commits of a demo table are made, and the ids of its rows."""

    def __init__(self, *, now_ms: int, steps: int) -> None:
        self.folder = _Folder()
        self.now_ms = now_ms
        self.step_ms = HISTORY_MS // steps
        self.left = steps
        self.next_id = 1

    def tick(self) -> None:
        """Advance the time by one interval; the last one ends now."""
        self.left -= 1
        self.folder.time_ms = self.now_ms - self.left * self.step_ms

    def ids(self, n: int) -> range:
        """The next n ids."""
        self.next_id += n
        return range(self.next_id - n, self.next_id)


class _History(_Timeline):
    """The history of an Iceberg table: its writer, and the files of each append in order."""

    def __init__(self, location: str, *, now_ms: int, steps: int, seed: str, **values: Any) -> None:
        super().__init__(now_ms=now_ms, steps=steps)
        self.table = IcebergWriter(
            storage=self.folder,
            location=location,
            properties={"owner": "demo", "write.delete.mode": "merge-on-read"},
            seed=f"{seed} {now_ms}",
            created_by=_CREATED_BY,
            time_ms=now_ms - HISTORY_MS,
            **values,
        )
        self.appends: list[list[Entry]] = []

    def tick(self) -> None:
        """See `_Timeline.tick`."""
        super().tick()
        self.table.time_ms = self.folder.time_ms

    def publish(self) -> None:
        """Write the next metadata file, and point the version hint at it."""
        self.folder.time_ms = self.table.time_ms
        self.table.publish()
        with open(f"{self.table.location}/metadata/version-hint.text", "w", encoding="ascii") as hint:
            hint.write(str(self.table.version))

    def commit(self, operation: str, *files: Iterable[Any], ref: str = "main") -> int:
        """Commit files that are added, and keys of those that are removed."""
        snapshot_id = self.table.commit_files(operation, *files, ref=ref)
        self.publish()
        return snapshot_id

    def set_ref(self, name: str, snapshot_id: int, **ref: Any) -> None:
        self.tick()
        retention = {key.replace("_", "-"): value for key, value in ref.items()}
        self.table.set_ref(name, {**retention, "snapshot-id": snapshot_id})
        self.publish()


class _Events(_History):
    """The history of table `events`."""

    def __init__(self, location: str, now_ms: int) -> None:
        super().__init__(
            location,
            now_ms=now_ms,
            steps=25,
            seed="events",
            format_version=2,
            schema=EVENTS_SCHEMA,
            spec=EVENTS_SPEC,
        )

    def create(self) -> None:
        """Commit the whole history."""
        self.publish()
        for _ in range(6):
            self.append()
        self.delete_positions({self.appends[1][0]["file_path"]: range(10)}, self.appends[1][0]["partition"])
        self.append()
        self.correct(self.appends[2][0])
        self.set_ref("eom", self.append(), type="tag")
        good = self.append()
        self.append()
        self.set_ref("main", good, type="branch")  # rolls the append before it back
        self.append()
        self.drop(self.appends[0])
        first, second = self.appends[6]
        positions = {first["file_path"]: [3, 5, 39], second["file_path"]: range(5, 15)}
        self.delete_positions(positions, first["partition"])
        self.set_ref(
            "audit",
            self.append(),
            type="branch",
            min_snapshots_to_keep=2,
            max_snapshot_age_ms=5 * DAY_MS,
            max_ref_age_ms=90 * DAY_MS,
        )
        self.append("audit")
        self.append()
        self.compact(self.appends[4])
        self.append()
        self.drop(self.appends[1])
        self.append()

    def append(self, ref: str = "main") -> int:
        """Append a large and a small file of today."""
        self.tick()
        self.appends.append([self.file(self.ids(40)), self.file(self.ids(20))])
        return self.commit("append", self.appends[-1], ref=ref)

    def file(self, ids: Sequence[int], day: int | None = None) -> Entry:
        """A data file with rows of `day` (in days since 1970), none of them later than now."""
        today, passed_ms = divmod(self.table.time_ms, DAY_MS)
        day, until_ms = (today, passed_ms) if day is None else (day, DAY_MS)
        at = [1000 * (day * DAY_MS + until_ms * i // len(ids)) for i in range(len(ids))]
        columns = {
            "event_id": pa.array(ids, pa.int64()),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "kind": pa.array([_KINDS[i % len(_KINDS)] for i in ids]),
            "duration_ms": pa.array([None if i % 11 == 0 else i * 37 % 1000 for i in ids], pa.int32()),
        }
        return self.table.data_file(pa.table(columns), {"at_day": day})

    def delete_positions(self, positions: Mapping[str, Sequence[int]], partition: Mapping[str, Any]) -> None:
        self.tick()
        self.commit("delete", [self.table.position_deletes(positions, partition)])

    def correct(self, old: Entry) -> None:
        """Overwrite a file by one with as many new rows."""
        self.tick()
        new = self.file(self.ids(old["record_count"]), old["partition"]["at_day"])
        self.commit("overwrite", [new], [key_of(old)])

    def compact(self, files: Sequence[Entry]) -> None:
        """Replace files of one day by a single one with the same rows."""
        self.tick()
        tables = [pq.read_table(entry["file_path"], partitioning=None) for entry in files]
        new = self.table.data_file(pa.concat_tables(tables), files[0]["partition"])
        self.commit("replace", [new], [key_of(entry) for entry in files])

    def drop(self, files: Sequence[Entry]) -> None:
        """Delete all files of a day, and the position deletes that applied to them."""
        self.tick()
        day = files[0]["partition"]
        self.commit("delete", (), [key_of(e) for e in self.table.live() if e["partition"] == day])


class _Orders(_History):
    """The history of table `orders`."""

    def __init__(self, location: str, now_ms: int) -> None:
        super().__init__(
            location,
            now_ms=now_ms,
            steps=21,
            seed="orders",
            format_version=3,
            schema=ORDERS_SCHEMA,
            spec=ORDERS_SPEC,
        )
        self.deleted: dict[str, set[int]] = {}

    def create(self) -> None:
        """Commit the whole history."""
        self.publish()
        a = self.append(4)
        b = self.append(2)
        # The first Puffin file: of its four deletion vectors, only the last is not replaced later.
        self.delete({a[0]: [0], a[1]: range(5), a[2]: [7, 9], a[3]: range(30, 40)})
        c = self.append(2)
        self.delete({a[0]: [1, 2]})
        self.delete({a[1]: [20]})
        d = self.append(1)
        self.set_ref(
            "closed", self.table.document["current-snapshot-id"], type="tag", max_ref_age_ms=365 * DAY_MS
        )
        self.delete({a[2]: [1], b[0]: [0, 39], b[1]: range(0, 40, 2)})
        self.append(1)
        self.rewrite(b[0])
        self.append(2)
        self.delete({c[0]: [11]})
        self.delete({c[0]: [12]})
        self.append(1)
        self.delete({b[1]: [1]})
        self.append(1)
        self.drop(c[1])
        self.delete({d[0]: [0, 1, 2], c[0]: [13]})
        self.append(2)
        self.delete({d[0]: [3]})

    def append(self, n_files: int) -> list[str]:
        """Append files of 40 rows; returns their paths."""
        self.tick()
        files = [self.file(self.ids(40)) for _ in range(n_files)]
        self.commit("append", files)
        return [entry["file_path"] for entry in files]

    def file(self, ids: Sequence[int]) -> Entry:
        """A data file with orders of today."""
        columns = {
            "order_id": pa.array(ids, pa.int64()),
            "customer": pa.array([_CUSTOMERS[i % len(_CUSTOMERS)] for i in ids]),
            "ordered_on": pa.array([self.table.time_ms // DAY_MS] * len(ids), pa.int32()).cast(pa.date32()),
            "amount": pa.array([Decimal(i * 131 % 10_000) / 100 for i in ids], pa.decimal128(9, 2)),
        }
        return self.table.data_file(pa.table(columns))

    def delete(self, positions: Mapping[str, Sequence[int]]) -> None:
        """Delete more rows of files, through one new Puffin file."""
        self.tick()
        for path, some in positions.items():
            self.deleted.setdefault(path, set()).update(some)
        vectors, replaced = self.table.deletion_vectors(
            {path: sorted(self.deleted[path]) for path in positions}
        )
        self.commit("delete", vectors, replaced)

    def rewrite(self, path: str) -> None:
        """Replace a data file and its deletion vector by a file of new rows."""
        self.tick()
        self.commit("overwrite", [self.file(self.ids(38))], self.keys_of_data(path))

    def drop(self, path: str) -> None:
        """Delete all rows of a data file."""
        self.tick()
        self.commit("delete", (), self.keys_of_data(path))

    def keys_of_data(self, path: str) -> list[Key]:
        """The keys of a data file and its deletion vector, which must be removed together."""
        return [
            key_of(e) for e in self.table.live() if path in {e["file_path"], e.get("referenced_data_file")}
        ]


class _Visits(_Timeline):
    """The history of table `visits`: its active files, by path, and the removes of those that were."""

    def __init__(self, location: str, now_ms: int) -> None:
        super().__init__(now_ms=now_ms, steps=26)
        self.location = location
        self.version = -1
        self.names = 0
        self.founding: list[Action] = []
        self.active: dict[str, Json] = {}
        self.removed: list[Json] = []
        self.deleted: dict[str, set[int]] = {}

    def create(self) -> None:
        """Commit the whole history."""
        self.found()
        a = self.append(3)
        b = self.append(2)
        self.delete({a[0]: [0, 39], a[1]: range(0, 40, 4)})
        c = self.append(2)
        self.delete({a[2]: range(10), b[0]: [7]})
        self.checkpoint()
        self.append(1)
        self.delete({a[0]: [1, 2, 3]})
        self.delete({b[1]: [5], c[0]: [5, 6]})
        self.append(1)
        self.delete({c[1]: [0, 1]})
        self.checkpoint()
        d = self.append(2)
        self.delete({a[1]: [1, 2]})
        self.drop(b[0])
        self.append(1)
        self.delete({d[0]: [30]})
        self.optimize([a[1], a[2]])
        e = self.append(2)
        self.delete({b[1]: range(6, 16), d[1]: [0]})
        self.leave_behind()
        f = self.append(1)
        self.drop(c[1])
        self.delete({e[0]: [1, 3, 5]})
        self.append(1)
        self.delete({d[0]: [31]})
        self.optimize([e[1], f[0]])
        self.append(1)

    def found(self) -> None:
        """Create the table."""
        self.tick()
        properties = {
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            "delta.enableDeletionVectors": "true",
        }
        table_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"visits {self.now_ms}"))
        self.founding = [
            a_protocol_with("deletionVectors"),
            a_metadata(
                *VISITS_COLUMNS, configuration=properties, id=table_id, createdTime=self.folder.time_ms
            ),
        ]
        self.commit("CREATE TABLE", *self.founding)

    def append(self, n_files: int) -> list[str]:
        """Append files of 40 rows; returns their paths."""
        self.tick()
        adds = [self.file(self.rows(self.ids(40))) for _ in range(n_files)]
        self.commit("WRITE", *adds, mode="Append")
        return [add["add"]["path"] for add in adds]

    def delete(self, positions: Mapping[str, Iterable[int]]) -> None:
        """Delete more rows of files, through one new file of deletion vectors."""
        self.tick()
        for path, some in positions.items():
            self.deleted.setdefault(path, set()).update(some)
        name, data, vectors = a_vector_file(
            self.number(), *(sorted(self.deleted[path]) for path in positions)
        )
        self.folder.put_if_absent(f"{self.location}/{name}", data)
        actions: list[Action] = []
        for path, vector in zip(positions, vectors, strict=True):
            # Bounds hold for rows, too, that are deleted.
            stats = json.dumps({**json.loads(self.active[path]["stats"]), "tightBounds": False})
            add = {**self.active[path], "deletionVector": vector, "stats": stats}
            actions += [self.remove(path), {"add": add}]
        self.commit("DELETE", *actions)

    def drop(self, path: str) -> None:
        """Delete all rows of a file."""
        self.tick()
        self.commit("DELETE", self.remove(path))

    def optimize(self, paths: Sequence[str]) -> None:
        """Replace files by one with the same rows."""
        self.tick()
        removes = [self.remove(path, dataChange=False) for path in paths]
        rows = pa.concat_tables([self.live_rows(path) for path in paths])
        self.commit("OPTIMIZE", *removes, self.file(rows, dataChange=False))

    def leave_behind(self) -> None:
        """Write a file that no commit names, as a writer does that is killed."""
        self.file(self.rows(self.ids(40)))

    def rows(self, ids: Sequence[int]) -> pa.Table:
        """Visits of today."""
        return pa.table(
            {
                "visit_id": pa.array(ids, pa.int64()),
                "day": pa.array([self.folder.time_ms // DAY_MS] * len(ids), pa.int32()).cast(pa.date32()),
                "page": pa.array([_PAGES[i % len(_PAGES)] for i in ids]),
                "seconds": pa.array([i * 53 % 600 for i in ids], pa.int32()),
            }
        )

    def live_rows(self, path: str) -> pa.Table:
        """The rows of a file that are not deleted."""
        rows = pq.read_table(f"{self.location}/{path}", partitioning=None)
        deleted = self.deleted.get(path, set())
        return rows.take([position for position in range(len(rows)) if position not in deleted])

    def file(self, rows: pa.Table, **others: Any) -> Action:
        """Write a data file; returns its add."""
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        path = f"part-00000-{uuid.UUID(int=self.number())}-c000.snappy.parquet"
        self.folder.put_if_absent(f"{self.location}/{path}", sink.getvalue())
        bounds = {name: pc.min_max(rows[name]).as_py() for name in rows.column_names}
        stats = {
            "numRecords": len(rows),
            "minValues": {name: each["min"] for name, each in bounds.items()},
            "maxValues": {name: each["max"] for name, each in bounds.items()},
            "nullCount": dict.fromkeys(bounds, 0),
            "tightBounds": True,
        }
        return an_add(
            path=path,
            size=len(sink.getvalue()),
            modificationTime=self.folder.time_ms,
            stats=json.dumps(stats, default=str),
            **others,
        )

    def remove(self, path: str, **others: Any) -> Action:
        """The remove of an active file, by which its deletion vector goes too."""
        active = self.active[path]
        return a_remove(
            path=path,
            dv=active.get("deletionVector"),
            deletionTimestamp=self.folder.time_ms,
            extendedFileMetadata=True,
            partitionValues={},
            size=active["size"],
            **others,
        )

    def commit(self, operation: str, *actions: Action, **parameters: str) -> None:
        """Write the next version."""
        info = a_commit_info(
            operation=operation,
            timestamp=self.folder.time_ms,
            operationParameters=parameters,
            engineInfo=_CREATED_BY,
        )
        self.version += 1
        self.folder.put_if_absent(self.log_file(".json"), a_commit(info, *actions))
        for action in actions:
            if remove := action.get("remove"):
                del self.active[remove["path"]]
                self.removed.append(remove)
        self.active |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, and point the hint at it."""
        kept_ms = self.folder.time_ms - REMOVED_FILES_MS
        removed = [each for each in self.removed if each["deletionTimestamp"] > kept_ms]
        files = [("add", each) for each in self.active.values()] + [("remove", each) for each in removed]
        actions = [*self.founding, *({kind: {**each, "dataChange": False}} for kind, each in files)]
        data = a_checkpoint(*actions)
        self.folder.put_if_absent(self.log_file(".checkpoint.parquet"), data)
        hint = {"version": self.version, "size": len(actions), "sizeInBytes": len(data)}
        self.folder.replace(f"{self.location}/_delta_log/_last_checkpoint", json.dumps(hint).encode())

    def log_file(self, ending: str) -> str:
        """The path of a file of the newest version."""
        return f"{self.location}/_delta_log/{self.version:020}{ending}"

    def number(self) -> int:
        """What the next file is named by."""
        self.names += 1
        return uuid.uuid5(uuid.NAMESPACE_URL, f"visits {self.now_ms} {self.names}").int

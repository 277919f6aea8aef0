"""A small warehouse to try every command on: two local tables with a history of about 40 days.

`events` (v2, partitioned by day) has appends, overwrites, position deletes, a tag, a branch and a
snapshot that was rolled back. `orders` (v3) has deletion vectors that share Puffin files, and row lineage.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.errors import IcebergCliError, UsageError, unavailable
from iceberg_cli.testing.iceberg_files import Entry
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Key, key_of

DAY_MS = 86_400_000
HISTORY_MS = 40 * DAY_MS
# No folder of that name can exist, whatever space and permissions there are.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST)
_KINDS = ("click", "view", "purchase", "search")
_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTables:
    """The locations of the demo tables: folders with `metadata/version-hint.text`."""

    events: str
    orders: str


def create_demo(folder: str, *, now_ms: int) -> DemoTables:
    """Create the warehouse `<folder>/db/events` and `<folder>/db/orders`.

    The same `now_ms` gives the same tables: names, ids, rows and times.

    Args:
        folder: made if absent; may hold other things.
        now_ms: the time of the newest snapshots, in milliseconds since 1970.

    Raises:
        UsageError: one of the tables is there already, or no folder can be made of that name.
        BackendUnavailable: a file cannot be written.
    """
    if not folder:
        raise UsageError("Cannot create tables in '': it names no folder.", next_step="Name a folder.")
    database = os.path.join(os.path.abspath(folder), "db")
    tables = DemoTables(events=f"{database}/events", orders=f"{database}/orders")
    for location in (tables.events, tables.orders):
        if os.path.lexists(location):
            raise UsageError(f"Cannot create {location}: it exists.", next_step="Name another folder.")
    try:
        _Events(tables.events, now_ms).create()
        _Orders(tables.orders, now_ms).create()
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
        with open(path, "xb") as file:
            file.write(data)
        os.utime(path, (self.time_ms / 1000, self.time_ms / 1000))


class _History:
    """The history of a demo table: its writer, the time of its next commit, and the files of each append in order."""

    def __init__(self, location: str, *, now_ms: int, steps: int, seed: str, **values: Any) -> None:
        self.folder = _Folder()
        self.table = IcebergWriter(
            storage=self.folder,
            location=location,
            properties={"owner": "demo", "write.delete.mode": "merge-on-read"},
            seed=f"{seed} {now_ms}",
            created_by="iceberg-cli demo",
            time_ms=now_ms - HISTORY_MS,
            **values,
        )
        self.now_ms = now_ms
        self.step_ms = HISTORY_MS // steps
        self.left = steps
        self.appends: list[list[Entry]] = []
        self.next_id = 1

    def tick(self) -> None:
        """Advance the time by one interval; the last one ends now."""
        self.left -= 1
        self.table.time_ms = self.folder.time_ms = self.now_ms - self.left * self.step_ms

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

    def ids(self, n: int) -> range:
        """The next n ids."""
        self.next_id += n
        return range(self.next_id - n, self.next_id)


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

"""Spark and our verbs take turns on one table, by chance from a seed; a model knows the rows.

After each verb Spark reads the rows of the model with the row ids that they had, Iceberg Java's metadata tables agree
with our `inspect`, `inspect --check --deep` finds no error, and the same verb has nothing more to do. The seed is in
the name of the test, and a failure prints every statement and command up to it.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.budget import FULL
from tests.paths import ROOT
from tests.spark_tables import Lake, Shape, in_order, write

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

ROUNDS = 5 if FULL else 3
SEEDS = range(1, 11) if FULL else (1,)
DONE, NOTHING = "done", "nothing_to_do"
NEED_V3 = ("assign-row-ids",)
# What each verb is run with, by chance.
VERBS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "expire-snapshots": tuple(("--older-than", "0s", "--retain-last", str(n)) for n in (1, 2, 4)),
    "rewrite-manifests": ((), ("--target-size", "9KiB"), ("--sort-by", "k"), ("--content", "deletes")),
    "merge-dvs": ((), ("--min-files", "2"), ("--min-files", "1", "--dead-ratio", "0.1", "--keep-dangling")),
    "assign-row-ids": ((), ("--share-ids",)),
    "upgrade-v3": ((), ("--with", "assign-row-ids"), ("--with", "merge-dvs,assign-row-ids")),
}
ONCE = "upgrade-v3"


# -- a table's rows as a Python dictionary, and the random statements that change both in the same way -------------


Values = tuple[str | None, int]  # k, n
COLUMNS = "id bigint, k string, n int"
_COMPACTION = "CALL {c}.system.rewrite_data_files(table => '{t}', "


@dataclass(kw_only=True)
class Model:
    """What the table holds. Each method but `statement` changes the model and returns the SQL that does the same.

    Args:
        draw: decides everything, so that a seed tells the whole story.
    """

    draw: random.Random
    rows: dict[int, Values] = field(default_factory=dict)  # by id
    written: set[int] = field(default_factory=set)  # ids of the rows that the last statement wrote anew
    next_id: int = 0
    kinds: list[Callable[[], str]] = field(default_factory=list)  # of statements that are still to come

    def statement(self) -> str:
        """One statement; all kinds have had their turn, in any order, before one comes again."""
        if not self.kinds:
            self.kinds = [self.insert, self.update, self.delete, self.merge, self.compact]
            self.draw.shuffle(self.kinds)
        return self.insert() if len(self.rows) < 15 else self.kinds.pop()()

    def insert(self, count: int | None = None, k: str | None = None) -> str:
        """New rows, in every partition or in one."""
        new = self._new_rows(count or self.draw.randint(6, 20))
        self._write({key: (k or value[0], value[1]) for key, value in new.items()})
        new = {key: self.rows[key] for key in new}
        return f"INSERT INTO {{t}} VALUES {_values(new)}"

    def update(self) -> str:
        """Some rows get another number, or go to another partition."""
        chosen = self._some()
        if self.draw.random() < 0.5:
            k = self._k()
            self._write({key: (k, self.rows[key][1]) for key in chosen})
            return f"UPDATE {{t}} SET k = {_literal(k)} WHERE {_in(chosen)}"
        self._write({key: (self.rows[key][0], self.rows[key][1] + 1000) for key in chosen})
        return f"UPDATE {{t}} SET n = n + 1000 WHERE {_in(chosen)}"

    def delete(self, keys: list[int] | None = None) -> str:
        """These or some rows, now and then all that an old partition field has in one partition."""
        if keys is None and self.draw.random() < 0.2 and len(self.rows) > 30:
            k = self._k()
            self._remove([key for key, values in self.rows.items() if values[0] == k])
            return f"DELETE FROM {{t}} WHERE k <=> {_literal(k)}"
        chosen = keys or self._some()
        self._remove(chosen)
        return f"DELETE FROM {{t}} WHERE {_in(chosen)}"

    def merge(self) -> str:
        """Rows that are deleted, rows that are changed and rows that are new, in one statement."""
        chosen = self._some()
        gone = [key for key in chosen if self.draw.random() < 0.3]
        changed = {key: (self._k(), self.draw.randint(0, 99)) for key in chosen if key not in gone}
        new = self._new_rows(self.draw.randint(1, 5))
        source = {**dict.fromkeys(gone, (None, -1)), **changed, **new}
        self._remove(gone)
        self._write({**changed, **new})
        return (
            f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {_values(source)} AS s(id, k, n)) s ON t.id = s.id"
            " WHEN MATCHED AND s.n < 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET t.k = s.k, t.n = s.n"
            " WHEN NOT MATCHED THEN INSERT (id, k, n) VALUES (s.id, s.k, s.n)"
        )

    def compact(self) -> str:
        """New data files with the same rows, for all or for some of the old ones."""
        self.written = set()
        chosen = self.draw.choice(
            (
                "options => map('rewrite-all', 'true'))",
                f"where => 'k = \"{self.draw.choice('abc')}\"', options => map('rewrite-all', 'true'))",
                "options => map('min-input-files', '2', 'delete-file-threshold', '1'))",
            )
        )
        return _COMPACTION + chosen

    def _k(self) -> str | None:
        return self.draw.choice(["a", "b", "c", None])

    def _new_rows(self, count: int) -> dict[int, Values]:
        first, self.next_id = self.next_id, self.next_id + count
        return {key: (self._k(), self.draw.randint(0, 99)) for key in range(first, first + count)}

    def _some(self) -> list[int]:
        most = max(1, len(self.rows) // 5)
        return sorted(self.draw.sample(sorted(self.rows), self.draw.randint(1, most)))

    def _write(self, rows: dict[int, Values]) -> None:
        self.rows.update(rows)
        self.written = set(rows)

    def _remove(self, keys: list[int]) -> None:
        for key in keys:
            del self.rows[key]
        self.written = set()


def _literal(k: str | None) -> str:
    return "CAST(NULL AS STRING)" if k is None else f"'{k}'"


def _values(rows: dict[int, Values]) -> str:
    return ", ".join(f"({key}L, {_literal(k)}, {n})" for key, (k, n) in rows.items())


def _in(keys: list[int]) -> str:
    return f"id IN ({', '.join(map(str, keys))})"


# -- Iceberg Java's metadata tables beside our `inspect` -----------------------------------------------------------


Row = dict[str, Any]
_FILE = (
    "content",
    "file_path",
    "file_format",
    "spec_id",
    "record_count",
    "file_size_in_bytes",
    "split_offsets",
    "sort_order_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
    "first_row_id",
)
_MAPS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
_LINEAGE = ("snapshot_id", "sequence_number", "file_sequence_number")
_MANIFEST = (
    "content",
    "path",
    "length",
    "partition_spec_id",
    "added_snapshot_id",
    *(
        f"{status}_{kind}_files_count"
        for kind in ("data", "delete")
        for status in ("added", "existing", "deleted")
    ),
)
_SUMMARY = ("contains_null", "contains_nan", "lower_bound", "upper_bound")
_IDS = ("first_row_id", "added_snapshot_id", *_LINEAGE)  # text in our documents
# Columns of the tables, then the reserved ones. Spec: "Reserved Field IDs".
_STRINGS = {2, 2147483546}
_INTEGERS = {1: "<q", 3: "<i", 2147483545: "<q", 2147483540: "<q", 2147483539: "<q"}


def check_agreement(lake: Lake, table: str) -> None:
    """The current snapshot in both listings.

    Raises:
        AssertionError: with the rows that differ.
    """
    files = f"{', '.join((*_FILE, *_MAPS))}, partition"
    ours = {what: _inspected(lake, table, what) for what in ("files", "deletes", "manifests")}
    java = {
        name: [row.asDict(recursive=True) for row in lake.sql(table, f"SELECT {columns} FROM {{t}}.{name}")]
        for name, columns in (
            ("files", files),
            ("delete_files", files),
            ("manifests", "*"),
            ("entries", "status, data_file.file_path, data_file.content_offset, " + ", ".join(_LINEAGE)),
        )
    }
    entries = [row for row in java["entries"] if row["status"] != 2]
    _equal("files", [_java_file(row) for row in java["files"]], [_our_file(row) for row in ours["files"]])
    _equal(
        "delete_files",
        [_java_file(row) for row in java["delete_files"]],
        [_our_file(row) for row in ours["deletes"]],
    )
    place = ("file_path", "content_offset", *_LINEAGE)
    _equal("entries", [_only(place, row) for row in entries], [_only(place, row) for row in ours["files"]])
    _equal(
        "manifests",
        [_manifest(row) for row in java["manifests"]],
        [_manifest(row) for row in ours["manifests"]],
    )


def _inspected(lake: Lake, table: str, what: str) -> list[Row]:
    code, document = lake.cli("inspect", lake.argument(table), what)
    assert code == 0, document
    rows: list[Row] = document["rows"]
    return [
        {name: int(value) if name in _IDS and value is not None else value for name, value in row.items()}
        for row in rows
    ]


def _equal(what: str, java: list[Row], ours: list[Row]) -> None:
    """In any order; what differs is in the message."""
    theirs, mine = sorted(map(repr, java)), sorted(map(repr, ours))
    only_java = [row for row in theirs if row not in mine]
    only_ours = [row for row in mine if row not in theirs]
    assert theirs == mine, f"{what}: only in Java: {only_java}; only in ours: {only_ours}"


def _only(names: tuple[str, ...], row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in names}


def _java_file(row: Mapping[str, Any]) -> Row:
    found = _only(_FILE, row)
    for name in _MAPS:
        value: Callable[[int, Any], Any] = _bound if name.endswith("bounds") else lambda _, number: number
        found[name] = {key: value(key, row[name][key]) for key in sorted(row[name] or {})}
    # Java shows the fields of all specs in each row.
    return found | {"partition": _given(row["partition"])}


def _our_file(row: Mapping[str, Any]) -> Row:
    found = _only(_FILE, row)
    for name in _MAPS:
        found[name] = {int(key): row[name][key] for key in sorted(row[name] or {}, key=int)}
    return found | {"partition": _given(row["partition"])}


def _given(partition: Mapping[str, Any]) -> Row:
    return {name: partition[name] for name in sorted(partition) if partition[name] is not None}


def _bound(field_id: int, data: bytes) -> Any:
    """A bound's value. Spec: "Binary Single-Value Serialization"."""
    return bytes(data).decode() if field_id in _STRINGS else struct.unpack(_INTEGERS[field_id], data)[0]


def _manifest(row: Mapping[str, Any]) -> Row:
    summaries = [_only(_SUMMARY, each) for each in row["partition_summaries"]]
    # Java spells a bound that is not there "null"; no value of the tables is called that.
    bare = [{name: None if value == "null" else value for name, value in each.items()} for each in summaries]
    return _only(_MANIFEST, row) | {"partition_summaries": bare}


# -- the game ------------------------------------------------------------------------------------------------------


Lineage = tuple[int | None, int | None]  # row id, last updated sequence number


@dataclass(frozen=True)
class Seen:
    """The rows that Spark reads, by id."""

    values: Mapping[int, Values]
    lineage: Mapping[int, Lineage]  # nulls below version 3

    def check_since(self, before: Seen, *, written: set[int]) -> None:
        """No two rows have one row id; a row that had one keeps it, and is of the same commit until it is written."""
        given = [row_id for row_id, _ in self.lineage.values() if row_id is not None]
        assert len(set(given)) == len(given), "two rows have the same row id"
        for key in before.lineage.keys() & self.lineage.keys():
            (row_id, updated), (id_now, updated_now) = before.lineage[key], self.lineage[key]
            if row_id is None or updated is None:
                continue
            assert id_now == row_id, f"row {key} had the row id {row_id} and has {id_now}"
            assert updated_now is not None
            assert (updated_now > updated) if key in written else (updated_now == updated), (
                f"row {key} was last updated by {updated} and now by {updated_now}; written: {key in written}"
            )


class Game:
    """One table, its model and the checks."""

    def __init__(self, lake: Lake, table: str, *, version: int, seed: int) -> None:
        self.lake, self.table, self.version = lake, table, version
        self.draw = random.Random(seed)
        self.model = Model(draw=self.draw)
        self.by_snapshot: dict[int, Seen] = {}
        self.elsewhere: dict[str, Seen] = {}  # by ref other than main
        self.worked: set[str] = set()  # verbs that found something to do
        self.not_applicable: set[str] = set()

    # -- Spark -------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> None:
        print(f"  spark: {text}")
        self.lake.sql(self.table, text)

    def make(self) -> None:
        """Data files of two specs, deletes of both granularities, a tag and a branch with rows of its own."""
        granularity = self.draw.choice(["partition", "file"])
        properties = {
            "write.delete.granularity": granularity,
            "commit.manifest.min-count-to-merge": self.draw.choice(["3", "100"]),
        }
        shape = Shape(version=self.version, columns=COLUMNS, by="k", properties=properties)
        write(self.lake, self.table, shape)
        other = {"partition": "file", "file": "partition"}[granularity]
        for text in (
            self.model.insert(),
            self.model.insert(),
            self.model.delete(),
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)",
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.granularity' = '{other}')",
            self.model.insert(),
            self.model.update(),
            "ALTER TABLE {t} CREATE TAG eom",
            "ALTER TABLE {t} CREATE BRANCH audit",
            "INSERT INTO {t}.branch_audit VALUES (100000L, 'a', 1), (100001L, CAST(NULL AS STRING), 2)",
            "DELETE FROM {t}.branch_audit WHERE id IN (0, 8, 100001)",
            self.model.delete(),
        ):
            self.sql(text)
        self.now = self.look()
        self.elsewhere = self.refs()

    def read(self, snapshot_id: int) -> Seen:
        """A snapshot as Spark reads it now."""
        lineage = self.version >= 3
        rows = self.lake.rows(self.table, snapshot_id, row_ids=lineage)
        assert len({row[0] for row in rows}) == len(rows), "a row is there twice"
        values = {row[0]: row[1:3] for row in rows}
        return Seen(values, {row[0]: row[3:] if lineage else (None, None) for row in rows})

    def look(self) -> Seen:
        """Main, which holds the model's rows."""
        head: int = self.lake.metadata(self.table)["current-snapshot-id"]
        seen = self.read(head)
        assert seen.values == self.model.rows
        self.by_snapshot[head] = seen
        return seen

    def refs(self) -> dict[str, Seen]:
        """Every other ref."""
        refs = self.lake.metadata(self.table)["refs"]
        return {name: self.read(ref["snapshot-id"]) for name, ref in refs.items() if name != "main"}

    def branch_off(self) -> None:
        """A branch is made anew where the tag is: its rows have no ids yet, and main may have some of its files."""
        head = self.lake.metadata(self.table)["refs"]["eom"]["snapshot-id"]
        self.sql(f"ALTER TABLE {{t}} CREATE OR REPLACE BRANCH late AS OF VERSION {head}")
        self.elsewhere["late"] = self.elsewhere["eom"]

    def spark(self) -> None:
        """One statement."""
        before = self.now
        self.sql(self.model.statement())
        self.now = self.look()
        self.now.check_since(before, written=self.model.written)

    # -- our verbs ---------------------------------------------------------------------------------------------

    def round(self, *, upgrade: bool) -> None:
        """Every verb, in any order, most of them after a statement of Spark's."""
        verbs = [verb for verb in VERBS if verb != ONCE or upgrade]
        self.draw.shuffle(verbs)
        self.branch_off()
        for verb in verbs:
            if self.draw.random() < 0.7:
                self.spark()
            self.verb(verb, self.draw.choice(VERBS[verb]))
        self.take_back()
        self.take_orphans()
        found = self.refs()
        for name, before in self.elsewhere.items():
            assert found[name].values == before.values, name
            found[name].check_since(before, written=set())
        self.elsewhere = found

    def verb(self, verb: str, arguments: tuple[str, ...]) -> None:
        """Run a verb; what readers see stays, and a second run has nothing to do."""
        location = self.lake.metadata_location(self.table)
        code, report = self.run(verb, arguments)
        moved = self.lake.metadata_location(self.table) != location
        if self.version < 3 and verb in NEED_V3:
            assert (code, report.get("status"), moved) == (0, NOTHING, False), report
            assert report["not_applicable"]
            self.not_applicable.add(verb)
            return
        assert (code, report.get("status")) == (0, DONE if moved else NOTHING), report
        if moved:
            self.worked.add(verb)
            self.version = 3 if verb == ONCE else self.version
            before, self.now = self.now, self.look()
            self.now.check_since(before, written=set())
            self.check(verb, arguments)
        again = self.lake.cli(verb, self.lake.argument(self.table), "--yes", *arguments)
        assert (again[0], again[1].get("status")) == (0, NOTHING), again

    def run(self, verb: str, arguments: tuple[str, ...]) -> tuple[int, dict[str, Any]]:
        """The program as it is called from a shell."""
        command = [verb, self.lake.argument(self.table), "--yes", *arguments, *self.lake.options()]
        done = subprocess.run(
            [sys.executable, "-m", "iceberg_cli", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        print(f"  we: {verb} {' '.join(arguments)}: {done.returncode} {report.get('status')}")
        return done.returncode, report

    def take_back(self) -> None:
        """An expiry that waits: Spark commits, `undo` follows, and every snapshot that was there has its rows again."""
        ids = set(self.lake.snapshot_ids(self.table))
        report = self.lake.verb(
            "expire-snapshots", self.table, *VERBS["expire-snapshots"][0], "--grace", "1h"
        )
        gone = ids - set(self.lake.snapshot_ids(self.table))
        assert (report["status"], bool(gone)) in (("waiting", True), (NOTHING, False)), report
        if not gone:
            return
        self.spark()
        assert self.lake.verb("undo", self.table)["restored_snapshots_count"] == len(gone)
        assert ids < set(self.lake.snapshot_ids(self.table))
        for snapshot_id in ids & self.by_snapshot.keys():
            assert self.read(snapshot_id) == self.by_snapshot[snapshot_id]
        self.worked.add("undo")
        self.check("undo", ())

    def take_orphans(self) -> None:
        """What a writer that died left goes; nothing does that Spark reaches."""
        folder = self.lake.folder(self.table)
        planted = {str(folder / name) for name in ("data/k=a/dead.parquet", "metadata/dead-m0.avro")}
        for path in planted:
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_bytes(b"PAR1")
        reachable, before = self.lake.reachable(self.table), self.lake.files(self.table)
        assert planted <= before
        report = self.lake.verb(
            "remove-orphan-files", self.table, "--older-than", "0s", "--unsafe-allow-young"
        )
        gone = before - self.lake.files(self.table)
        assert planted <= gone
        assert not gone & reachable
        assert report["deleted_orphan_files_count"] == len(gone)
        self.worked.add("remove-orphan-files")
        assert self.look() == self.now

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self, verb: str, arguments: tuple[str, ...]) -> None:
        """Java's metadata tables agree with `inspect`, no rule is broken, and the verb did what it is for."""
        check_agreement(self.lake, self.table)
        code, document = self.lake.cli("inspect", self.lake.argument(self.table), "--check", "--deep")
        findings = [each for each in document["findings"] if each["severity"] == "error"]
        assert (code, findings) == (0, [])
        if verb == "expire-snapshots":
            assert self.lake.reachable(self.table) <= self.lake.files(self.table)
        if verb == "assign-row-ids" or "assign-row-ids" in " ".join(arguments):
            refs = self.refs()
            for seen in (self.now, refs["audit"], refs["late"]):
                assert None not in {row_id for row_id, _ in seen.lineage.values()}

    def merge_two_vectors(self) -> None:
        """Two data files whose deletion vectors are in a Puffin file each: too many, as chance need not have it."""
        victims = []
        for _ in range(2):
            self.sql(self.model.insert(10, "a"))
            victims.append(self.model.next_id - 1)
        for key in victims:
            self.sql(self.model.delete([key]))
        self.now = self.look()
        self.verb("merge-dvs", ("--min-files", "2"))

    def finish(self) -> None:
        """Every snapshot that is left has its rows, for other readers too."""
        metadata = self.lake.metadata(self.table)
        kept = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
        for snapshot_id in kept & self.by_snapshot.keys():
            assert self.read(snapshot_id) == self.by_snapshot[snapshot_id]
        for ref in metadata["refs"].values():
            rows = in_order((key, *rest) for key, rest in self.read(ref["snapshot-id"]).values.items())
            assert self.lake.rows_of_pyiceberg(self.table, ref["snapshot-id"]) == rows
            assert self.lake.rows_of_duckdb(self.table, ref["snapshot-id"]) == rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("catalog", "version"), [("hadoop", 2), ("jdbc", 3)])
def test_rows_and_row_ids_stay_while_spark_and_our_verbs_take_turns(
    live_lakes: dict[str, Lake], catalog: str, version: int, seed: int
) -> None:
    print(f"seed {seed}, version {version}")
    game = Game(live_lakes[catalog], f"rounds_{version}_{seed}", version=version, seed=seed)
    game.make()
    for number in range(ROUNDS):
        print(f"round {number + 1}")
        game.round(upgrade=number == 1 and version < 3)
    game.merge_two_vectors()
    game.finish()
    # A game in which a verb never has anything to do would prove nothing about it.
    assert game.worked == {*VERBS, "undo", "remove-orphan-files"} - (
        set() if version < 3 else {ONCE, "assign-row-ids"}
    )
    assert game.not_applicable == (set(NEED_V3) if version < 3 else set())

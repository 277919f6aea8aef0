"""Spark and our verbs take turns on one table, by chance from a seed; a model knows the rows.

After each verb Spark reads the rows of the model with the row ids that they had, Iceberg Java's metadata tables agree
with our `inspect`, `inspect --check --deep` finds no error, and the same verb has nothing more to do. The seed is in
the name of the test, and a failure prints every statement and command up to it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.budget import FULL
from tests.live.agreement import check_agreement
from tests.live.model import COLUMNS, Model, Values
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
    lakes: dict[str, Lake], catalog: str, version: int, seed: int
) -> None:
    print(f"seed {seed}, version {version}")
    game = Game(lakes[catalog], f"rounds_{version}_{seed}", version=version, seed=seed)
    game.make()
    for number in range(ROUNDS):
        print(f"round {number + 1}")
        game.round(upgrade=number == 1 and version < 3)
    game.merge_two_vectors()
    game.finish()
    # A game in which a verb never has anything to do would prove nothing about it.
    assert game.worked == {*VERBS} - (set() if version < 3 else {ONCE, "assign-row-ids"})
    assert game.not_applicable == (set(NEED_V3) if version < 3 else set())

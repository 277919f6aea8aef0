"""Delta Spark writes while we run every verb: no commit is lost, and the rows are right."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.budget import FULL
from tests.cli.running import iceberg_cli
from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, actions, commits, leftovers, rows_of_delta_rs
from tests.delta_live.shapes import Shape
from tests.delta_spark import SparkFailed

pytestmark = pytest.mark.jvm

ROUNDS = 40 if FULL else 10
DONE, REFUSED, CONFLICT = 0, 11, 12
# Removed files go after ten minutes, so that no statement that runs loses the files it began with.
EXPIRE = ("--retention", "10m", "--unsafe-allow-short-retention")
VERBS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("merge-dvs", ("--min-files", 1)),
    ("rewrite-manifests", ()),
    ("expire-snapshots", EXPIRE),
    ("upgrade-v3", ("--feature", "v2Checkpoint")),
    ("assign-row-ids", ("--batch-size", 2)),
)


class Writer(threading.Thread):
    """Appends rows, and deletes some, until it is done; what Spark acknowledged is what it goes by."""

    def __init__(self, lake: DeltaLake, table: Path) -> None:
        super().__init__()
        self._lake, self._table = lake, table
        self.appended: set[int] = set()
        self.deleted: set[int] = set()
        self.refused: list[str] = []
        self.failed: list[str] = []

    def run(self) -> None:
        for number in range(ROUNDS):
            first = 1_000 + 10 * number
            if self._done(shapes.insert(first, first + 3)):
                self.appended.update(range(first, first + 4))
            if number % 2 and self._done(shapes.delete(first, number // 2)):
                self.deleted.update((first, number // 2))

    def _done(self, statement: str) -> bool:
        try:
            self._lake.sql(self._table, statement)
        except SparkFailed as error:
            # Delta Spark gives up where another commit changed the table's metadata or the file it deletes from.
            (self.refused if "DELTA_" in str(error) else self.failed).append(str(error))
            return False
        return True


@pytest.mark.deep
@pytest.mark.parametrize(
    "shape",
    [shapes.IN_COMMIT_TIMES, *([shapes.DELETION_VECTORS] if FULL else [])],
    ids=lambda shape: shape.name,
)
def test_no_commit_is_lost_while_delta_spark_writes_and_every_verb_runs(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    first = max(history) + 1
    writer = Writer(delta_lake, table)
    writer.start()
    outcomes: list[tuple[str, int, Any]] = []
    for verb, options in itertools.cycle(VERBS):
        if not writer.is_alive():
            break
        ran = iceberg_cli(verb, table, *options, "--yes", "--format", "json", "--no-progress")
        outcomes.append((verb, ran.code, ran.err if ran.code else ran.json.get("status")))
    writer.join()

    assert not writer.failed
    assert {code for _, code, _ in outcomes} <= {DONE, REFUSED, CONFLICT}, outcomes
    assert {verb for verb, code, _ in outcomes if code == DONE} == {verb for verb, _ in VERBS}, outcomes
    numbers = {row[0] for row in history[max(history)]} | writer.appended
    rows = delta_lake.rows(table, ids=True)
    assert [row[0] for row in sorted(rows)] == sorted(numbers - writer.deleted)
    assert len({row[-2] for row in rows}) == len(rows)
    assert sorted(row[0] for row in rows_of_delta_rs(table)) == sorted(numbers - writer.deleted)
    versions = commits(table)
    assert versions == list(range(versions[-1] + 1))
    engines = [engine_of(table, version) for version in versions[first:]]
    assert any("iceberg-cli" in engine for engine in engines)
    assert any("Spark" in engine for engine in engines)
    assert not leftovers(table)


def engine_of(table: Path, version: int) -> str:
    return next(str(a["commitInfo"].get("engineInfo")) for a in actions(table, version) if "commitInfo" in a)

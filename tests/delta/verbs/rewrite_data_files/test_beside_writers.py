"""Delta Spark and delta-rs write to a table, again and again, while its files are rewritten: no row differs.

A twin gets the same statements and is left alone. A writer that a rewrite made fail tries again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CommitConflict
from iceberg_cli.testing.delta_rows import rows_of, state_of
from tests.delta_live.lake import Rows, in_order, rows_of_delta_rs
from tests.delta_spark import DeltaSpark, SparkFailed

STATEMENTS = 40  # of delta-rs
SPARK_STATEMENTS = 12
TRIES = 5


@dataclass
class Rewriting:
    """Rewrites of all files of a table, one for each act of its writer: a writer that always loses would never end.

    Args:
        found: what became of runs and groups, and how often the writer failed.
    """

    table: Path
    drawn: random.Random
    found: Counter[str] = field(default_factory=Counter)
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _ended: bool = False

    def beside(self, act: Callable[[], object], error: type[Exception]) -> None:
        """Let a rewrite begin, and the writer act until it succeeds."""
        self._turns.release()
        for _ in range(TRIES):
            try:
                act()
            except error as failure:
                self.found["writer failed"] += 1
                last = failure
            else:
                return
        raise last

    def end(self) -> None:
        self._ended = True
        self._turns.release()

    def run(self) -> None:
        policy = ic.delta.RewriteDataFiles(rewrite_all=True, commit_every="1B", processes=1)
        while self._turns.acquire() and not self._ended:
            time.sleep(self.drawn.random() / 2)
            opened = ic.open_table(str(self.table))
            try:
                report = opened.apply(opened.plan(policy))
            except CommitConflict:
                self.found["conflicts"] += 1
                continue
            self.found["runs"] += 1
            self.found["commits"] += len(report.commits)
            self.found["dropped groups"] += report.counts.get("conflicted_groups_count", 0)
            self.found["moved deletes"] += report.counts.get("remapped_deletes_count", 0)


@contextmanager
def rewriting(table: Path) -> Iterator[Rewriting]:
    rewrites = Rewriting(table, random.Random(7))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            rewrites.run()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rewrites
    finally:
        rewrites.end()
        thread.join()
    if failed:
        raise failed[0]


def statement(drawn: random.Random, next_id: int) -> str:
    match drawn.choice(["INSERT", "INSERT", "UPDATE", "DELETE", "MERGE", "OPTIMIZE"]):
        case "INSERT":
            values = ", ".join(f"({next_id + each}, {each % 3}, 'k{each % 2}')" for each in range(20))
            return f"INSERT INTO {{t}} VALUES {values}"
        case "UPDATE":
            return f"UPDATE {{t}} SET n = n + 1 WHERE id % {drawn.randint(3, 20)} = 1"
        case "DELETE":
            return f"DELETE FROM {{t}} WHERE id % {drawn.randint(30, 60)} = {drawn.randint(0, 9)}"
        case "OPTIMIZE":
            return "OPTIMIZE {t}"
    low = drawn.randrange(max(1, next_id))
    return (
        f"MERGE INTO {{t}} USING (SELECT explode(sequence({low}, {low + 5})) AS id) s ON {{t}}.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET n = 100 WHEN NOT MATCHED THEN INSERT (id, n, k) VALUES (s.id, -1, 'k0')"
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("vectors", "layout"),
    [(True, "PARTITIONED BY (k)"), (False, "PARTITIONED BY (k)"), (True, "CLUSTER BY (id, n)")],
)
def test_no_row_differs_beside_delta_spark(
    delta_spark: DeltaSpark, tmp_path: Path, *, vectors: bool, layout: str
) -> None:
    table, twin = tmp_path / "t", tmp_path / "twin"
    for each in (table, twin):
        delta_spark.sql(
            f"CREATE TABLE delta.`{each}` (id LONG, n LONG, k STRING) USING delta {layout} TBLPROPERTIES ("
            f"'delta.enableDeletionVectors' = '{str(vectors).lower()}', 'delta.enableRowTracking' = 'true')"
        )
    drawn = random.Random(f"{vectors} {layout}")
    with rewriting(table) as rewrites:
        for number in range(SPARK_STATEMENTS):
            text = statement(drawn, 20 * number)
            delta_spark.sql(text.replace("{t}", f"delta.`{twin}`"))
            rewrites.beside(
                lambda text=text: delta_spark.sql(text.replace("{t}", f"delta.`{table}`")), SparkFailed
            )
    found = rewrites.found
    print(found)
    assert found["commits"] > 0
    expected = rows_of_spark(delta_spark, twin)
    assert rows_of_spark(delta_spark, table) == rows_of_delta_rs(table) == expected
    ids = [row.rpartition(", (")[2] for row in rows_of(table)]
    assert len(ids) == len(set(ids)) == len(expected)


def rows_of_spark(spark: DeltaSpark, table: Path) -> Rows:
    (rows,) = spark.queries([f"SELECT * FROM delta.`{table}`"], forget=True)
    return in_order(rows)


@pytest.mark.deep
def test_no_row_differs_beside_delta_rs(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError

    table, twin = tmp_path / "t", tmp_path / "twin"
    drawn = random.Random(0)

    def rows(first: int) -> pa.Table:
        return pa.table({"id": range(first, first + 20), "k": [f"k{each % 2}" for each in range(20)]})

    for each in (table, twin):
        write_deltalake(each, rows(0), partition_by=["k"])
    with rewriting(table) as rewrites:
        for number in range(1, STATEMENTS):
            if drawn.random() < 0.6:
                for each in (table, twin):
                    write_deltalake(each, rows(20 * number), mode="append")
                continue
            predicate = f"id % {drawn.randint(20, 40)} = {drawn.randint(0, 9)}"
            DeltaTable(twin).delete(predicate)
            rewrites.beside(
                lambda predicate=predicate: DeltaTable(table).delete(predicate), CommitFailedError
            )
    found = rewrites.found
    print(found)
    assert found["commits"] > 0
    assert rows_of_delta_rs(table) == rows_of_delta_rs(twin)
    assert len(rows_of(table)) == len(rows_of_delta_rs(twin))
    assert state_of(table).protocol["minWriterVersion"] == 2

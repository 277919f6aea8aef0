"""Compactions that Spark makes raise no alarm, and are all compared; what it reads of each is what its parent had."""

from __future__ import annotations

import pytest

from tests.cli.running import iceberg_cli as run
from tests.spark_tables import Lake, Shape, insert, write
from tests.spark_tables.shape import COMPACT

pytestmark = pytest.mark.deep

MERGE = "CALL {c}.system.rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))"
REGROUP = "CALL {c}.system.rewrite_manifests(table => '{t}')"
DANGLING = (
    "CALL {c}.system.rewrite_data_files(table => '{t}', where => 'k = \"k0\"',"
    " options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
)
STATEMENTS = (
    *(insert(first, first + 9) for first in (0, 20, 40, 60)),
    "DELETE FROM {t} WHERE id % 7 = 1",
    DANGLING,
    insert(80, 89),
    "DELETE FROM {t} WHERE id IN (3, 85)",
    MERGE,
    "UPDATE {t} SET k = 'k1' WHERE id % 5 = 2",
    REGROUP,
    COMPACT,
    "DELETE FROM {t} WHERE id = 44",
    COMPACT,
)


@pytest.mark.parametrize("by", ["k", None])
@pytest.mark.parametrize("version", [2, 3])
def test_compactions_of_spark_raise_no_alarm(hadoop: Lake, version: int, by: str | None) -> None:
    table = f"compacted_v{version}_{by}"
    shape = Shape(version=version, by=by) if by else Shape(version=version)
    write(hadoop, table, shape.then(*STATEMENTS))
    kinds = [each["summary"]["operation"] for each in hadoop.metadata(table)["snapshots"]]
    for deep in ((), ("--deep",)):
        ran = run("inspect", hadoop.argument(table), "--check", *deep, "--format", "json")
        assert ran.code == 0, ran.out
        assert {each["id"] for each in ran.json["findings"]} <= {"deletes-dangling", "every-row-deleted"}
        found = {"found": kinds.count("replace"), "compared": kinds.count("replace")}
        assert ran.json["compactions"] == {**found, "not_compared": [], "left_out": 0}
    assert kinds.count("replace") >= 4

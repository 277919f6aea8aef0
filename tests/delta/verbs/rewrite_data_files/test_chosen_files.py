"""Which files of a Delta table --where and --older-than leave to a rewrite."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import UsageError
from iceberg_cli.formats.open import open_table
from iceberg_cli.plan.plan import Plan
from iceberg_cli.testing.delta_rows import rows_of
from iceberg_cli.testing.delta_writer import NOW_MS, a_field, a_metadata, a_protocol_with, an_add, write_log
from tests.cli.running import iceberg_cli
from tests.delta.verbs.rewrite_data_files.drawn import DrawnTable

COLUMNS = {
    "s": "string", "n": "integer", "x": "double", "p": "decimal(10,2)", "d": "date", "t": "timestamp", "b": "boolean",
}  # fmt: skip
# By column the texts of partitions 0, 1, ...: in each of them are two files.
TEXTS: dict[str, list[str | None]] = {
    "s": ["a", "b", "B", "", None, "10", "9", "it's", "__HIVE_DEFAULT_PARTITION__"],
    "n": ["9", "10", "-3", None, "09"],
    "x": ["9.5", "1e1", "-0.0", "NaN", "Infinity", None],
    "p": ["9.50", "10", "-0.01", None],
    "d": ["2024-02-29", "2024-03-01", "0999-01-01", None],
    "t": ["2024-05-01 10:00:00", "2024-05-01T10:00:00.000001Z", "2024-05-01 12:00:00+02:00", None],
    "b": ["true", "false", None],
}


def a_partitioned_table(root: Path, column: str) -> None:
    actions = [
        an_add(path=f"{place}-{number}.parquet", partitionValues={f"c-{column}": text})
        for place, text in enumerate(TEXTS[column])
        for number in range(2)
    ]
    fields = [
        a_field(
            name, kind, **{"delta.columnMapping.id": place, "delta.columnMapping.physicalName": f"c-{name}"}
        )
        for place, (name, kind) in enumerate([("v", "long"), *COLUMNS.items()], start=1)
    ]
    metadata = a_metadata(
        *fields, partitionColumns=[column], configuration={"delta.columnMapping.mode": "name"}
    )
    write_log(root, [a_protocol_with("columnMapping"), metadata, *actions])


def plan_of(root: Path, **options: Any) -> Plan:
    table = open_table(str(root), storage_options={}, catalog_config=None, on_event=lambda _: None)
    return VERB.plan(table, RewriteDataFiles(rewrite_all=True, **options), as_of_ms=NOW_MS).plan


def chosen(root: Path, **options: Any) -> set[int]:
    groups = plan_of(root, **options).groups
    paths = [] if groups is None else groups.inputs["log_path"].to_pylist()
    return {int(path.split("-")[0]) for path in paths}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # An empty text is null.
        ("s = 'a'", {0}),
        ("s != 'a'", {1, 2, 5, 6, 7, 8}),
        ("s > 'a'", {1, 7}),
        ("s < '9'", {5}),
        ("s IN ('b', 'it''s')", {1, 7}),
        ("s IS NULL", {3, 4}),
        ("s IS NOT NULL", {0, 1, 2, 5, 6, 7, 8}),
        ("s >= 'a' AND s <> 'b'", {0, 7}),
        ("n = 9", {0, 4}),
        ("n > 9.0", {1}),
        ("n < 1e1", {0, 2, 4}),
        ("n IN (10, -3)", {1, 2}),
        ("n IS NULL", {3}),
        ("n IS NOT NULL", {0, 1, 2, 4}),
        # Engines differ on whether NaN is more than any number.
        ("x > 9.5", {1, 3, 4}),
        ("x = 0", {2, 3}),
        ("x <= 10", {0, 1, 2, 3}),
        ("p >= 9.5", {0, 1}),
        ("p < 0", {2}),
        ("d > '2024-02-29'", {1}),
        ("d <= '2024-02-29'", {0, 2}),
        # An old reader took the local time of such an offset for UTC: it may be each.
        ("t = '2024-05-01 10:00:00'", {0, 2}),
        ("t > '2024-05-01 10:00:00'", {1, 2}),
        ("t < '2024-05-01'", {2}),
        ("b = true", {0}),
        ("b != true", {1}),
    ],
)
def test_files_are_chosen_by_the_values_of_their_partition(
    where: str, expected: set[int], tmp_path: Path
) -> None:
    """D5, C3"""
    a_partitioned_table(tmp_path / "t", where.split(maxsplit=1)[0])
    assert chosen(tmp_path / "t", where=where) == expected


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("v = 1", "'v' is no partition column. Partition columns: n."),
        ("nn = 1", "Did you mean 'n'?"),
        ("n = 'a'", "'a' is no value of n"),
        ("n = 9.5", "'9.5' is no value of n"),
        ("n = 3000000000", "'3000000000' is no value of n"),
        ("n = 1e999999999", "is no value of n"),
        ("n = true", "'True' is no value of n"),
        ("n = 1 OR n = 2", "conditions are joined by AND"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(where: str, sentence: str, tmp_path: Path) -> None:
    a_partitioned_table(tmp_path / "t", "n")
    with pytest.raises(UsageError) as refused:
        plan_of(tmp_path / "t", where=where)
    assert sentence in f"{refused.value} {refused.value.next_step}"


def test_only_files_that_were_written_before_are_rewritten(tmp_path: Path) -> None:
    """E7"""
    write_log(
        tmp_path / "t",
        [
            a_protocol_with(),
            a_metadata(a_field("v", "long")),
            *(
                an_add(path=f"{place}-x.parquet", modificationTime=NOW_MS - age_ms)
                for place, age_ms in enumerate([9_000, 5_001, 5_000, 4_999, 0])
            ),
        ],
    )
    assert chosen(tmp_path / "t", older_than=NOW_MS - 5_000) == {0, 1}
    plan = plan_of(tmp_path / "t", older_than=NOW_MS - 9_000)
    assert (
        plan.not_applicable == "the table has no data file that was written before 2027-01-15T07:59:51.000Z"
    )


def test_rows_of_other_partitions_stay_where_they_are(tmp_path: Path) -> None:
    """Hazard 7"""
    table = DrawnTable(tmp_path / "t", random.Random(3), mode="name", tracking="enabled", partitioned=True)
    table.found()
    table.write([table.new_file(4) for _ in range(24)])
    before, partitions = rows_of(table.root), _partitions(table)
    wanted = "a/b"
    ran = iceberg_cli(
        "rewrite-data-files", table.root, "--where", f"part = '{wanted}'", "--min-input-files", "2", "--yes"
    )
    assert ran.code == 0, ran.err
    assert rows_of(table.root) == before
    table.reload()
    now = _partitions(table)
    gone = [partitions[path] for path in partitions.keys() - now.keys()]
    assert gone == [wanted] * [*partitions.values()].count(wanted)
    assert len(gone) > [*now.values()].count(wanted) == 1


def _partitions(table: DrawnTable) -> dict[str, str | None]:
    return {path: next(iter(add["partitionValues"].values())) for path, add in table.live.items()}

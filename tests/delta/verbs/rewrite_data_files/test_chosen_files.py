"""Which files of a Delta table --where and --older-than leave to a rewrite."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import UsageError
from iceberg_cli.formats.open import open_table
from iceberg_cli.plan.plan import Plan
from iceberg_cli.testing.delta_rows import rows_of, state_of
from iceberg_cli.testing.delta_vectors import an_inline_vector
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


STATS: list[Any] = [
    {"numRecords": 4, "minValues": {"c-n": 1, "c-g": {"c-s": "b"}, "c-t": "2024-05-01T10:00:00.000Z"},
     "maxValues": {"c-n": 5, "c-g": {"c-s": "d"}, "c-t": "2024-05-01T10:00:00.123Z"},
     "nullCount": {"c-n": 0, "c-g": {"c-s": 1}, "c-t": 0}},
    {"numRecords": 4, "minValues": {"c-n": 5}, "maxValues": {"c-n": 9}, "nullCount": {"c-n": 1, "c-g": {"c-s": 4}}},
    {"numRecords": 4},
    None,
    {"numRecords": 4, "minValues": {"c-n": 20}, "maxValues": {"c-n": 30},
     "nullCount": {"c-n": 4}, "tightBounds": False},
]  # fmt: skip


def a_table_with_statistics(root: Path) -> None:
    """A file for each of `STATS`; of the last rows are deleted by a vector. Columns n, x, g.s and t."""
    ids = iter(range(1, 9))

    def mapped(name: str, kind: Any) -> Any:
        names = {"delta.columnMapping.id": next(ids), "delta.columnMapping.physicalName": f"c-{name}"}
        return a_field(name, kind, **names)

    fields = [
        mapped("n", "long"),
        mapped("x", "double"),
        mapped("g", {"type": "struct", "fields": [mapped("s", "string")]}),
        mapped("t", "timestamp"),
        mapped("l", {"type": "array", "elementType": "long", "containsNull": True}),
    ]
    actions = [
        an_add(path=f"{place}-0.parquet", stats=None if each is None else json.dumps(each))
        for place, each in enumerate(STATS)
    ]
    actions[-1]["add"]["deletionVector"] = an_inline_vector([0])
    metadata = a_metadata(*fields, configuration={"delta.columnMapping.mode": "name"})
    write_log(root, [a_protocol_with("columnMapping", "deletionVectors"), metadata, *actions])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # What statistics do not tell may be: files 2 and 3 are chosen by each condition on n.
        ("n = 5", {0, 1, 2, 3}),
        ("n = 0", {2, 3}),
        ("n < 5", {0, 2, 3}),
        ("n <= 5", {0, 1, 2, 3}),
        ("n > 5", {1, 2, 3, 4}),
        ("n >= 9", {1, 2, 3, 4}),
        ("n IN (0, 9, 25)", {1, 2, 3, 4}),
        ("n != 5", {0, 1, 2, 3, 4}),
        ("n IS NULL", {1, 2, 3, 4}),
        # Whether the rows that a vector left are null is not known.
        ("n IS NOT NULL", {0, 1, 2, 3, 4}),
        ("x = 1", {0, 1, 2, 3, 4}),
        # Of file 1 all are null.
        ("g.s = 'c'", {0, 2, 3, 4}),
        ("g.s = 'a'", {2, 3, 4}),
        ("g.s IS NOT NULL", {0, 2, 3, 4}),
        # Delta Spark cuts upper bounds to the millisecond.
        ("t > '2024-05-01 10:00:00.123998'", {0, 1, 2, 3, 4}),
        ("t > '2024-05-01 10:00:00.123999'", {1, 2, 3, 4}),
        ("n = 5 AND g.s = 'a'", {2, 3}),
    ],
)
def test_files_are_chosen_by_the_statistics_of_a_column(
    where: str, expected: set[int], tmp_path: Path
) -> None:
    """D5, C3"""
    a_table_with_statistics(tmp_path / "t")
    assert chosen(tmp_path / "t", where=where) == expected


def test_a_column_of_lists_has_no_conditions(tmp_path: Path) -> None:
    a_table_with_statistics(tmp_path / "t")
    with pytest.raises(UsageError, match="'l' is no column of values"):
        plan_of(tmp_path / "t", where="l = 1")


SPELLINGS: list[tuple[str, list[list[str | None]]]] = [
    # Partitions, each with the spellings of its value.
    ("s", [["a"], ["A"], ["", None], ["__HIVE_DEFAULT_PARTITION__"], ["a/b"], ["%2F"], ["01"]]),
    ("n", [["9", "+9", "009"], ["-3"], ["", None], ["9x"]]),
    ("x", [["0.0"], ["-0.0"], ["1.5"], ["1.50"]]),
    ("p", [["9.5", "9.50", "+9.5"], ["0.00", "-0.0"]]),
    ("d", [["2024-02-29", "2024-2-29"], ["2024-02-30"]]),
    (
        "t",
        [
            ["2024-05-01 10:00:00", "2024-05-01 10:00:00.000"],
            ["2024-05-01T10:00:00Z", "2024-05-01T10:00:00.000000Z", "2024-05-01 10:00:00.0Z"],
            ["2024-05-01 12:00:00+02:00"],
            ["2024-05-01 11:00:00+01:00"],
        ],
    ),
    ("b", [["true", "TRUE"], ["false"]]),
]


@pytest.mark.parametrize(("column", "partitions"), SPELLINGS)
def test_values_in_several_spellings_are_one_partition_and_others_are_not(
    column: str, partitions: list[list[str | None]], tmp_path: Path
) -> None:
    """D6, hazard 8, RS 3159"""
    actions = [
        an_add(path=f"{place}-{number}.parquet", partitionValues={column: text})
        for place, texts in enumerate(partitions)
        for number, text in enumerate([*texts, *texts])
    ]
    fields = [a_field("v", "long"), a_field(column, COLUMNS[column])]
    write_log(tmp_path / "t", [a_protocol_with(), a_metadata(*fields, partitionColumns=[column]), *actions])
    groups = plan_of(tmp_path / "t").groups
    assert groups is not None
    found: dict[int, set[str]] = {}
    for number, path in zip(
        *(groups.inputs[name].to_pylist() for name in ("group", "log_path")), strict=True
    ):
        found.setdefault(number, set()).add(path.split("-")[0])
    assert sorted(map(sorted, found.values())) == [[str(place)] for place in range(len(partitions))]


def test_a_new_file_spells_a_value_as_its_files_do_or_as_the_protocol(tmp_path: Path) -> None:
    table = DrawnTable(tmp_path / "t", random.Random(5))
    table.found()
    actions = [table.new_file(4) for _ in range(6)]
    for place, action in enumerate(actions):
        day = "2024-2-29" if place % 2 else "2024-02-29"
        action["add"]["partitionValues"] = {
            "day": day,
            "at": "2024-05-01 10:00:00",
            "s": "" if place else None,
        }
    own = json.loads(table.metadata()["metaData"]["schemaString"])["fields"]
    fields = [*own, a_field("day", "date"), a_field("at", "timestamp"), a_field("s", "string")]
    configuration = {"configuration": table.configuration}
    table.commit([a_metadata(*fields, partitionColumns=["day", "at", "s"], **configuration)])
    table.write(actions)
    ran = iceberg_cli("rewrite-data-files", table.root, "--yes")
    assert ran.code == 0, ran.err
    (add,) = state_of(table.root).adds.values()
    assert add["partitionValues"] == {"day": "2024-02-29", "at": "2024-05-01 10:00:00", "s": None}


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("nope = 1", "'nope' is no column of values. Columns: v, s, n, x, p, d, t, b."),
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

"""Clustered Delta tables (Z5, Z6): a run clusters as the table declares, and says so as Delta does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.errors import CommitConflict, InvalidMetadata, UsageError
from iceberg_cli.testing.delta_rows import commits_of, rows_of
from iceberg_cli.testing.delta_writer import (
    Action,
    a_domain,
    a_field,
    a_metadata,
    a_protocol,
    a_schema,
    an_add,
    commit_path,
)
from tests.cli.running import iceberg_cli as run
from tests.delta.verbs.rewrite_data_files.test_law import rewritten
from tests.delta.verbs.rewrite_data_files.test_meanwhile import new_adds
from tests.delta.verbs.rewrite_data_files.test_plan import plan_of

FEATURES = ["domainMetadata", "clustering", "invariants", "appendOnly"]
FIELDS = [a_field("a", "long"), a_field("b", "string"), a_field("c", "double")]
LIQUID = {"clusteringProvider": "liquid", "tags": {"ZCUBE_ID": "x", "ZCUBE_ZORDER_BY": '["a","b"]'}}
ROWS = 200


def clustering(*paths: list[str]) -> Action:
    """As Delta Spark 4.4 writes it."""
    configuration = {"clusteringColumns": [*paths], "domainName": "delta.clustering"}
    return a_domain(domain="delta.clustering", configuration=json.dumps(configuration, separators=(",", ":")))


class Table:
    """A table that is written commit by commit.

    Args:
        root: its folder.
        first: actions of its first commit, besides protocol and metadata.
        fields: of its schema.
        others: of its metadata.
    """

    def __init__(self, root: Path, *first: Action, fields: Any = FIELDS, **others: Any) -> None:
        self.root, self.version = root, -1
        (root / "_delta_log").mkdir(parents=True)
        features = {"writerFeatures": FEATURES, "minReaderVersion": 1, "minWriterVersion": 7}
        self.commit(a_protocol(**features), a_metadata(*fields, **others), *first)

    def commit(self, *actions: Action) -> None:
        self.version += 1
        text = "".join(f"{json.dumps(each)}\n" for each in actions)
        Path(commit_path(self.root, self.version)).write_text(text)

    def file(self, name: str, seed: int, *, low: int = 0, high: int = 1000, **others: Any) -> Action:
        """A file of rows that are anywhere between two values of `a`, and of 50 words of `b`."""
        a = [low + (place * 7919 + seed * 131) % (high - low) for place in range(ROWS)]
        b = [f"w{(place * 31 + seed) % 50:02}" for place in range(ROWS)]
        rows = pa.table({"a": a, "b": b, "c": [float(each) for each in a]})
        pq.write_table(rows, self.root / name)
        stats = {
            "numRecords": ROWS,
            "minValues": {"a": min(a), "b": min(b)},
            "maxValues": {"a": max(a), "b": max(b)},
            "nullCount": {"a": 0, "b": 0},
        }
        size = (self.root / name).stat().st_size
        return an_add(path=name, size=size, stats=json.dumps(stats), **others)


def a_table(root: Path, *, files: int = 6, columns: tuple[list[str], ...] = (["a"], ["b"])) -> Table:
    table = Table(root, clustering(*columns))
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(files)))
    return table


OPTIONS: dict[str, Any] = {"target_size": 8192}


def opened(adds: list[Any], column: str) -> float:
    """Of all files the share that a read of one value opens: of each value that a file's bounds have at their ends."""
    spans = [
        (json.loads(add["stats"])["minValues"][column], json.loads(add["stats"])["maxValues"][column])
        for add in adds
    ]
    points = [end for span in spans for end in span]
    return sum(low <= point <= high for point in points for low, high in spans) / len(points) / len(spans)


def test_without_a_strategy_rows_are_clustered_as_the_table_declares_and_files_say_so(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    before = rows_of(table.root)
    report = rewritten(table.root, **OPTIONS)
    assert report is not None
    adds = new_adds(table.root)
    assert len(adds) > 1
    assert {add["clusteringProvider"] for add in adds} == {"liquid"}
    assert {add["tags"]["ZCUBE_ZORDER_BY"] for add in adds} == {'["a","b"]'}
    assert len({add["tags"]["ZCUBE_ID"] for add in adds}) == 1  # of one group
    assert {*adds[0]["tags"]} == {"ZCUBE_ID", "ZCUBE_ZORDER_BY"}
    info = json.loads(commits_of(table.root)[-1].read_text().splitlines()[0])["commitInfo"]
    assert info["operation"] == "OPTIMIZE"
    assert info["operationParameters"] == {
        "predicate": "[]",
        "auto": "false",
        "clusterBy": '["a","b"]',
        "zOrderBy": "[]",
        "isFull": "false",
    }
    assert opened(adds, "a") < 1
    assert opened(adds, "b") < 1
    assert rows_of(table.root) == before
    assert rewritten(table.root, **OPTIONS) is None


def test_of_one_column_rows_are_sorted_by_it(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", columns=(["a"],))
    assert rewritten(table.root, **OPTIONS) is not None
    values = [pq.read_table(table.root / add["path"])["a"].to_pylist() for add in new_adds(table.root)]
    assert [each for own in values for each in own] == sorted(each for own in values for each in own)


def test_files_of_other_clusterers_stay_without_full(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    table.commit(
        *(table.file(f"o{number}.parquet", number, clusteringProvider="other") for number in range(2)),
        table.file("l.parquet", 9, **LIQUID),
    )
    plan = plan_of(table.root, **OPTIONS)
    assert plan.groups is not None
    taken = {Path(each).name for each in plan.groups.inputs["path"].to_pylist()}
    assert taken == {*(f"{number}.parquet" for number in range(6)), "l.parquet"}
    assert (
        "2 data files that another program clustered in its own way stay: --full takes them." in plan.warnings
    )
    whole = plan_of(table.root, full=True, **OPTIONS)
    assert whole.groups is not None
    assert len(whole.groups.inputs) == 9


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "z-order", "curve_by": ["a", "b"]},
        {"curve_by": ["a", "c"]},
        {"sort_by": ["c"]},
        {"sort_by": ["a"]},
    ],
    ids=str,
)
def test_other_orders_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_of(a_table(tmp_path / "t").root, **options, **OPTIONS)
    (blocked,) = plan.blocked_by
    assert blocked.startswith("it is clustered by a and b: --strategy declared keeps that")


@pytest.mark.parametrize(
    ("options", "is_clustered"),
    [
        ({"curve_by": ["a", "b"]}, True),
        ({"strategy": "declared"}, True),
        ({"sort_by": ["b", "a"]}, False),
        ({"strategy": "bin-pack", "rewrite_all": True}, False),
    ],
    ids=str,
)
def test_what_is_not_the_clustering_is_not_said_to_be(
    options: dict[str, Any], is_clustered: bool, tmp_path: Path
) -> None:
    """Hazard 33: rows that are packed, or sorted, are in no cube, also where inputs were."""
    table = Table(tmp_path / "t", clustering(["a"], ["b"]))
    table.commit(*(table.file(f"{number}.parquet", number, **LIQUID) for number in range(6)))
    before = rows_of(table.root)
    assert rewritten(table.root, **options, **OPTIONS) is not None
    adds = new_adds(table.root)
    assert {add.get("clusteringProvider") for add in adds} == {"liquid" if is_clustered else None}
    assert all(bool(add.get("tags")) == is_clustered for add in adds)
    assert rows_of(table.root) == before
    removes = [
        json.loads(line)["remove"]
        for line in commits_of(table.root)[-1].read_text().splitlines()
        if "remove" in line
    ]
    assert {remove["tags"]["ZCUBE_ID"] for remove in removes} == {"x"}  # E: each repeats what its add had


def test_a_table_without_clustering_declares_none(tmp_path: Path) -> None:
    """CLUSTER BY NONE is an empty list, and is packed; a domain without its feature is no clustering."""
    table = a_table(tmp_path / "t", columns=())
    with pytest.raises(UsageError, match="--strategy declared: the table declares no clustering"):
        plan_of(table.root, strategy="declared")
    assert rewritten(table.root) is not None
    (add,) = new_adds(table.root)
    assert (add.get("tags"), add.get("clusteringProvider")) == (None, None)
    info = json.loads(commits_of(table.root)[-1].read_text().splitlines()[0])["commitInfo"]
    assert "isFull" not in info["operationParameters"]


def test_a_table_with_partitions_is_not_clustered_too(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", clustering(["a"]), partitionColumns=["b"])
    table.commit(
        *(table.file(f"{number}.parquet", number, partitionValues={"b": "x"}) for number in range(6))
    )
    assert "it has partitions, and is clustered by a: no table may be both" in plan_of(table.root).blocked_by


def test_a_field_of_a_struct_blocks_and_packing_helps(tmp_path: Path) -> None:
    nested = [a_field("s", a_schema(a_field("x", "long"))), *FIELDS]
    table = Table(tmp_path / "t", clustering(["s", "x"]), fields=nested)
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(6)))
    plan = plan_of(table.root)
    assert plan.blocked_by == (
        "--strategy declared: rows are not ordered by s.x, which is a field of a struct",
    )
    with pytest.raises(UsageError, match=r"not ordered by s\.x"):
        plan_of(table.root, strategy="declared")
    assert plan_of(table.root, strategy="bin-pack").blocked_by == ()


def test_names_are_those_of_users_and_columns_those_of_files(tmp_path: Path) -> None:
    """The domain has physical names, tags logical ones; statistics are under physical names."""
    names = {"key": "a", "b": "b", "c": "c"}
    fields = [
        a_field(
            name,
            each["type"],
            **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number},
        )
        for number, (each, (name, physical)) in enumerate(zip(FIELDS, names.items(), strict=True), start=1)
    ]
    table = Table(
        tmp_path / "t",
        clustering(["a"], ["b"]),
        fields=fields,
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    )
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(6)))
    assert rewritten(table.root, **OPTIONS) is not None
    adds = new_adds(table.root)
    assert {add["tags"]["ZCUBE_ZORDER_BY"] for add in adds} == {'["key","b"]'}
    assert opened(adds, "a") < 1


@pytest.mark.parametrize(
    "configuration",
    [{"delta.dataSkippingNumIndexedCols": "0"}, {"delta.dataSkippingStatsColumns": "c"}],
    ids=str,
)
def test_clustering_columns_have_statistics_whatever_properties_say(
    configuration: dict[str, str], tmp_path: Path
) -> None:
    """D19, hazard 27."""
    table = Table(tmp_path / "t", clustering(["b"]), configuration=configuration)
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(6)))
    assert rewritten(table.root, strategy="bin-pack") is not None
    (add,) = new_adds(table.root)
    stats = json.loads(add["stats"])
    assert (stats["minValues"]["b"], stats["maxValues"]["b"], stats["nullCount"]["b"]) == ("w00", "w49", 0)
    assert ("c" in stats["minValues"]) == ("delta.dataSkippingStatsColumns" in configuration)
    assert "a" not in stats["minValues"]


@pytest.mark.parametrize("then", [(["b"],), (), (["a"], ["b"], ["c"])], ids=str)
def test_files_that_were_written_for_another_clustering_are_not_committed(
    then: tuple[list[str], ...], tmp_path: Path
) -> None:
    """E2, hazard 33: ALTER TABLE ... CLUSTER BY while rows are written."""
    table = a_table(tmp_path / "t")
    act: Callable[[], None] = lambda: table.commit(clustering(*then)) if table.version == 1 else None  # noqa: E731
    with pytest.raises(CommitConflict, match="the table is clustered by other columns by now"):
        rewritten(table.root, at_commit=act, **OPTIONS)
    assert len(commits_of(table.root)) == 3


def test_more_than_the_disk_holds_is_not_sorted(tmp_path: Path) -> None:
    """Z4: what is sorted is about four times as large as files, and waits in the folder for temporary files."""
    table = Table(tmp_path / "t", clustering(["a"], ["b"]))
    adds = [table.file(f"{number}.parquet", number)["add"] | {"size": 1 << 48} for number in range(6)]
    table.commit(*({"add": add} for add in adds))
    plan = plan_of(table.root, max_group_size=1 << 60)
    assert [each.partition(", and ")[0] for each in plan.blocked_by] == [
        "new files take about 1536.0 TiB",
        "sorting takes about 6144.0 TiB",
    ]
    assert plan_of(table.root, max_group_size=1 << 60, unsafe_accept_space=True).blocked_by == ()


def test_few_new_files_do_not_take_the_clustered_ones_with_them(tmp_path: Path) -> None:
    """Z6: where new files are of values that few clustered files have, the others stay."""
    small = {"target_size": 3072, "max_size": 12288}
    table = a_table(tmp_path / "t", files=24)
    assert rewritten(table.root, **small) is not None
    clustered = {add["path"] for add in new_adds(table.root)}
    assert len(clustered) > 9
    table.version += 1
    table.commit(*(table.file(f"n{number}.parquet", number, low=0, high=60) for number in range(4)))
    plan = plan_of(table.root, **small)
    assert plan.groups is not None
    taken = {Path(each).name for each in plan.groups.inputs["path"].to_pylist()}
    assert {f"n{number}.parquet" for number in range(4)} <= taken
    assert len(taken & clustered) <= len(clustered) // 2


@pytest.mark.parametrize("then", [(), (["b"],), (["b"], ["a"]), (["a"], ["b"], ["c"])], ids=str)
def test_a_saved_plan_is_for_the_clustering_that_it_was_made_for(
    then: tuple[list[str], ...], tmp_path: Path
) -> None:
    """E2: `apply` after ALTER TABLE ... CLUSTER BY is refused, and leaves nothing open."""
    table = a_table(tmp_path / "t")
    saved = str(tmp_path / "plan.json")
    assert run("plan", table.root, "rewrite-data-files", "--target-size", "8KiB", "-o", saved).code == 0
    table.commit(clustering(*then))
    refused = run("apply", saved, "--yes")
    assert (refused.code, len(commits_of(table.root))) == (11, 3)
    assert "the table is clustered by other columns by now: plan again" in refused.err
    again = run("rewrite-data-files", table.root, "--target-size", "8KiB", "--yes")
    assert again.code == 0, again.err


def test_a_plan_to_pack_is_not_carried_out_on_a_table_that_was_clustered_since(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", columns=())
    saved = str(tmp_path / "plan.json")
    assert run("plan", table.root, "rewrite-data-files", "-o", saved).code == 0
    table.commit(clustering(["a"]))
    assert run("apply", saved, "--yes").code == 11
    assert len(commits_of(table.root)) == 3


@pytest.mark.parametrize("columns", [[[]], [["a"], ["a"]], [["a"], "b"], "a", [["a", 1]]], ids=str)
def test_a_domain_that_names_no_columns_is_damage(columns: Any, tmp_path: Path) -> None:
    domain = a_domain(domain="delta.clustering", configuration=json.dumps({"clusteringColumns": columns}))
    table = Table(tmp_path / "t", domain)
    table.commit(table.file("0.parquet", 0))
    with pytest.raises(InvalidMetadata, match=r"delta\.clustering.*it names no columns"):
        plan_of(table.root)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (a_schema(a_field("x", "long")), "its values have no order that all engines share"),
        ("binary", "Delta's statistics have no bounds of it"),
        (None, "it is no column"),
    ],
    ids=str,
)
def test_a_column_without_bounds_blocks(kind: Any, words: str, tmp_path: Path) -> None:
    fields = [*FIELDS, *([a_field("z", kind)] if kind else [])]
    table = Table(tmp_path / "t", clustering(["z"], ["a"]), fields=fields)
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(6)))
    (blocked,) = plan_of(table.root).blocked_by
    assert blocked.startswith(f"--strategy declared: rows are not ordered by z: {words}")


def test_a_column_with_a_dot_is_no_field_of_a_struct(tmp_path: Path) -> None:
    """The domain has the path of a field of `s`; a column of the table is named `s.x`."""
    numbered = iter(range(1, 9))

    def mapped(name: str, kind: Any, physical: str) -> Any:
        return a_field(
            name,
            kind,
            **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": next(numbered)},
        )

    fields = [mapped("s", a_schema(mapped("x", "long", "p2")), "p1"), mapped("s.x", "long", "a")]
    table = Table(
        tmp_path / "t",
        clustering(["p1", "p2"]),
        fields=fields,
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    )
    table.commit(*(table.file(f"{number}.parquet", number) for number in range(6)))
    assert plan_of(table.root).blocked_by == (
        "--strategy declared: rows are not ordered by s.x, which is a field of a struct",
    )


def test_where_all_files_are_of_other_clusterers_the_reason_says_so(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", clustering(["a"]))
    table.commit(*(table.file(f"{number}.parquet", number, clusteringProvider="x") for number in range(6)))
    assert plan_of(table.root).not_applicable == (
        "the table has no data file that no other program clustered in its own way (--full takes those)"
    )


LONG = "https://example.com/a/path/that/is/longer/"


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("double", lambda drawn: drawn.choice([math.nan, *range(9)]) * 1.0),
        ("string", lambda drawn: f"{LONG}{drawn.randrange(10**6):06}"),
        ("string", lambda drawn: drawn.choice([None, f"{LONG}{drawn.randrange(9)}", "short"])),
    ],
    ids=["NaN", "cut", "some cut"],
)
@pytest.mark.parametrize("columns", [(["v"],), (["v"], ["a"])], ids=str)
def test_what_has_no_bounds_of_use_comes_to_rest(
    kind: str, value: Callable[[random.Random], Any], columns: tuple[list[str], ...], tmp_path: Path
) -> None:
    """Else a nightly run writes the same files anew each night."""
    drawn = random.Random(3)
    table = Table(tmp_path / "t", clustering(*columns), fields=[a_field("v", kind), a_field("a", "long")])
    adds = []
    for number in range(24):
        rows = pa.table(
            {"v": [value(drawn) for _ in range(ROWS)], "a": [drawn.randrange(10**6) for _ in range(ROWS)]}
        )
        pq.write_table(rows, table.root / f"{number}.parquet")
        size = (table.root / f"{number}.parquet").stat().st_size
        adds.append(an_add(path=f"{number}.parquet", size=size, stats=json.dumps({"numRecords": ROWS})))
    table.commit(*adds)
    before = rows_of(table.root)
    options = {"target_size": 16_384, "max_size": 65_536}
    assert rewritten(table.root, **options) is not None
    rewritten(table.root, **options)
    assert rewritten(table.root, **options) is None
    assert rows_of(table.root) == before

"""Whatever a table has been through, and whoever commits meanwhile: its rows and their ids stay the same."""

from __future__ import annotations

import random

import pytest

from iceberg_cli.testing.crash.world import World
from tests.iceberg.verbs.rewrite_data_files.writers import (
    DisturbedEngine,
    OtherWriter,
    check_own_snapshots,
    plan_of,
    rewritten,
)


def drawn_options(drawn: random.Random) -> dict[str, object]:
    target = drawn.choice([4096, 16384, 1 << 20])
    return {
        "target_size": target,
        "max_group_size": target * drawn.choice([1, 2, 8]),
        "min_input_files": drawn.choice([2, 5]),
        "delete_ratio": drawn.choice([0.1, 0.3]),
        "rewrite_all": drawn.random() < 0.3,
        "processes": 1,
        "max_files": drawn.choice([None, None, 2, 3, 5]),
        "commit_every": drawn.choice([None, "1KiB"]),
        # Files without a partition come to those of their rows.
        "output_spec": drawn.choice([None, "current"]),
    }


def with_an_order(options: dict[str, object], writer: OtherWriter, seed: int) -> dict[str, object]:
    """Options by which rows come into an order, for about half of the seeds."""
    drawn = random.Random(f"order {seed}")
    document = writer.table.document
    fields = next(
        each["fields"] for each in document["schemas"] if each["schema-id"] == document["current-schema-id"]
    )
    if writer.is_sorted and drawn.random() < 0.5:
        return {**options, "strategy": "sort", "full": drawn.random() < 0.5}
    names = [each["name"] for each in fields if each["id"] != 2]  # which files are partitioned by
    match drawn.choice(["bin-pack", "sort", "hilbert", "z-order"]):
        case "sort":
            terms = [name + drawn.choice(["", ":desc", ":nulls-last", ":desc:nulls-first"]) for name in names]
            return {**options, "strategy": "sort", "sort_by": terms}
        case "hilbert" | "z-order" as strategy if len(names) > 1:
            return {**options, "strategy": strategy, "curve_by": names, "full": drawn.random() < 0.5}
    return options


@pytest.mark.few(0.25)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_rewrite_of_any_table_keeps_its_rows(seed: int, version: int) -> None:
    drawn = random.Random(seed)
    writer = OtherWriter(drawn=drawn, version=version, is_sorted=seed % 3 == 0)
    for _ in range(drawn.randint(1, 8)):
        writer.act()
    before = writer.rows()
    assert {row.values[1] for row in before} == writer.numbers.keys()
    options = with_an_order(drawn_options(drawn), writer, seed)
    report = rewritten(writer.opened, World(), **options)
    assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()
    assert len(writer.rows()) == len(before)
    assert check_own_snapshots(writer) == (0 if report is None else len(report.commits))
    if report is not None:
        # Files stay where their rows are in more partitions than there are files.
        assert report.status == "done" or options["output_spec"]
        assert report.counts["conflicted_groups_count"] == report.counts["failed_groups_count"] == 0
    for _ in range(3):
        writer.act()
        assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()


@pytest.mark.few(0.25)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_second_rewrite_finds_nothing(seed: int, version: int) -> None:
    drawn = random.Random(seed)
    writer = OtherWriter(drawn=drawn, version=version, is_sorted=seed % 3 == 0)
    for _ in range(drawn.randint(1, 8)):
        writer.act()
    # Groups that are hardly larger than a file leave many small files where rows shrink.
    # Groups that are moved side by side may each have some rows of a partition.
    idle = {"rewrite_all": False, "max_files": None, "max_group_size": None, "output_spec": None}
    options = with_an_order(drawn_options(drawn) | idle, writer, seed)
    rewritten(writer.opened, World(), **options)
    second = plan_of(writer.opened, **options)
    assert not second.due, second.to_json()["rewrite"]


@pytest.mark.few(0.08)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(60))
def test_others_who_commit_before_each_commit_lose_nothing(seed: int, version: int) -> None:
    drawn = random.Random(seed)
    writer = OtherWriter(drawn=drawn, version=version, is_sorted=seed % 3 == 0)
    for _ in range(drawn.randint(1, 5)):
        writer.act()
    committer = writer.opened.committer
    left = drawn.randint(1, 4)

    def act() -> None:
        nonlocal left
        left -= 1
        writer.act()
        if left:
            committer.meanwhile = act

    committer.meanwhile = act
    rewritten(writer.opened, World(), **with_an_order(drawn_options(drawn), writer, seed))
    assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()
    check_own_snapshots(writer)
    committer.meanwhile = None
    for _ in range(3):
        writer.act()
        assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()


@pytest.mark.few(0.08)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(60))
def test_others_who_commit_while_groups_are_rewritten_lose_nothing(seed: int, version: int) -> None:
    drawn = random.Random(seed)
    writer = OtherWriter(drawn=drawn, version=version, is_sorted=seed % 3 == 0)
    for _ in range(drawn.randint(1, 5)):
        writer.act()
    left = drawn.randint(1, 4)

    def act() -> None:
        nonlocal left
        if left and drawn.random() < 0.7:
            left -= 1
            writer.act()

    class Engine(DisturbedEngine):
        meanwhile = staticmethod(act)

    writer.opened.table.use(Engine(writer.table.storage, threads=1))
    rewritten(writer.opened, World(), **with_an_order(drawn_options(drawn), writer, seed))
    assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()
    check_own_snapshots(writer)
    left = 0
    for _ in range(3):
        writer.act()
        assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()

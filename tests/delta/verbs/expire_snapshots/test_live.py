"""expire-snapshots deletes what Delta Spark's VACUUM would, apart from folders.

Delta Spark lists folders as well: those in which it sees nothing that stays, however young, and those that hold only
live deletion vectors, which it then fails to remove. We list none, and remove the folders that our own deletes leave
empty. That is the only difference which these tests allow.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.cli.context import now_ms
from tests.budget import deep_unless
from tests.delta_live import shapes
from tests.delta_live.lake import (
    DeltaLake,
    actions,
    commits,
    files,
    leftovers,
    rows_of_delta_rs,
    set_age,
)
from tests.delta_live.shapes import Shape

DAY_MS = 86_400_000
ALWAYS = (shapes.DELETION_VECTORS, shapes.HIVE_PATHS, shapes.CLONE)
NOW = ("--retention", "0s", "--unsafe-allow-short-retention")
OLD = (
    "orphan.parquet", "sub dir/ol%20d ü.parquet", "k=a b/orphan.parquet", "k=50%25/orphan.parquet", "some.txt",
    "_change_data/cdc-old.parquet", "_delta_index/old.idx", "deletion_vector_old.bin", "metadata/old.avro",
)  # fmt: skip
YOUNG = ("young.parquet", "young only/young.bin", "_change_data/cdc-young.parquet")
HIDDEN = (
    "_hidden/x.parquet",
    ".dot/x.parquet",
    "_temporary/0/x",
    "_orphan.parquet",
    ".orphan.parquet",
    "a/_b/c",
)


def add_traps(table: Path) -> None:
    """Files that no version names: old ones, young ones, and old ones with hidden names; also an empty folder."""
    for names, days in ((OLD, 9), (YOUNG, -1), (HIDDEN, 9)):
        for name in names:
            path = table / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 10)
            set_age(path, days)
    (table / "empty").mkdir()


def make_older(table: Path, days: dict[int, int]) -> None:
    """Let commits, what they removed and what they wrote be so many days old; DV files the oldest of it."""
    for path in table.rglob("*.bin"):
        set_age(path, max(days.values()))
    for version, age in days.items():
        lines = actions(table, version)
        for action in lines:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = int(now_ms() - age * DAY_MS)
            for kind in ("add", "cdc"):
                if kind in action and (table / action[kind]["path"]).exists():
                    set_age(table / action[kind]["path"], age)
        commit = table / "_delta_log" / f"{version:020}.json"
        commit.write_text("".join(json.dumps(action) + "\n" for action in lines))
        set_age(commit, age)
        for companion in (table / "_delta_log").glob(f".{version:020}.json.crc"):
            companion.unlink()  # Hadoop would hold the commit against it


def folders_of(table: Path, listed: set[str]) -> set[str]:
    return {path for path in listed if (table / path).is_dir()}


@pytest.mark.parametrize("shape", deep_unless(ALWAYS, shapes.ALL))
def test_what_goes_is_what_a_dry_run_of_vacuum_lists_without_its_folders(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    add_traps(table)
    listed = delta_lake.dry_vacuum(table)
    ours = {row["file"] for row in delta_lake.planned("expire-snapshots", table, *NOW)}
    assert ours == listed - folders_of(table, listed)
    assert {*OLD} <= ours
    before = files(table)

    delta_lake.verb("expire-snapshots", table, *NOW)

    assert before - files(table) == ours
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == history[max(history)]
    left = delta_lake.dry_vacuum(table)
    assert left == folders_of(table, left)
    assert not leftovers(table)


@pytest.mark.parametrize(
    "shape",
    deep_unless(
        [shapes.DELETION_VECTORS, shapes.HIVE_PATHS],
        [shapes.DELETION_VECTORS, shapes.CHANGE_DATA, shapes.HIVE_PATHS],
    ),
)
def test_the_table_s_own_retention_keeps_what_it_keeps_for_vacuum(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    add_traps(table)
    newest = max(history)
    make_older(table, {version: 1 if version == newest else 9 for version in history})
    listed = {row[0].removeprefix(f"file:{table}/") for row in delta_lake.sql(table, "VACUUM {t} DRY RUN")}

    ours = {row["file"] for row in delta_lake.planned("expire-snapshots", table)}

    assert ours == listed - folders_of(table, listed)
    assert {*OLD} < ours
    assert ours < {row["file"] for row in delta_lake.planned("expire-snapshots", table, *NOW)}
    delta_lake.verb("expire-snapshots", table)
    kept = [newest - 1, newest]  # what the newest commit removed is not old enough
    delta_lake.assert_promised(table, {version: history[version] for version in kept})


def test_an_inventory_gives_both_the_same_files(delta_lake: DeltaLake) -> None:
    table, _ = delta_lake.table(shapes.HIVE_PATHS)
    add_traps(table)
    found = [path for path in table.rglob("*") if "_delta_log" not in path.parts]
    rows = [
        {
            "path": f"file:{path}",
            "length": path.stat().st_size,
            "isDir": path.is_dir(),
            "modificationTime": int(path.stat().st_mtime * 1000),
        }
        for path in found
        if path.name not in ("orphan.parquet", "a")
    ]
    inventory = table.parent / "inventory.parquet"
    pq.write_table(pa.Table.from_pylist(rows), inventory)
    statement = f"VACUUM {{t}} USING INVENTORY (SELECT * FROM parquet.`{inventory}`) RETAIN 0 HOURS DRY RUN"
    listed = {row[0].removeprefix(f"file:{table}/") for row in delta_lake.sql(table, statement)}

    planned = delta_lake.planned("expire-snapshots", table, *NOW, "--inventory", inventory)

    ours = {row["file"] for row in planned}
    # From an inventory Delta Spark takes hidden names too, which we leave alone as in a listing.
    assert ours <= listed
    more = listed - folders_of(table, listed) - ours
    assert all(any(part.startswith((".", "_")) for part in Path(path).parts) for path in more)
    assert "some.txt" in ours
    assert "orphan.parquet" not in ours


@pytest.mark.parametrize(
    "shape",
    deep_unless([shapes.DELETION_VECTORS], [shapes.DELETION_VECTORS, shapes.CHANGE_DATA, shapes.MAPPED]),
)
def test_lite_mode_finds_what_lite_vacuum_finds_and_each_goes_on_from_the_other(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    add_traps(table)
    lite = (*NOW, "--mode", "lite")
    dry = "VACUUM {t} LITE RETAIN 0 HOURS DRY RUN"

    def listed() -> set[str]:
        return {row[0].removeprefix(f"file:{table}/") for row in delta_lake.sql(table, dry)}

    ours = {row["file"] for row in delta_lake.planned("expire-snapshots", table, *lite)}
    assert ours == {path for path in listed() if (table / path).exists()}
    assert ours
    delta_lake.verb("expire-snapshots", table, *lite)
    assert not {path for path in listed() if (table / path).exists()}

    kept, *others = (row[0] for row in history[max(history)])
    # Whole files go: how vectors share a file is for Spark's tasks to say.
    delta_lake.sql(table, shapes.delete(*others))
    assert {path for path in listed() if (table / path).exists()}
    delta_lake.sql(table, "VACUUM {t} LITE RETAIN 0 HOURS")
    assert not delta_lake.planned("expire-snapshots", table, *lite)
    assert [row[0] for row in delta_lake.rows(table)] == [kept]


@pytest.mark.parametrize(
    "shape", deep_unless([shapes.DELETION_VECTORS], [shapes.DELETION_VECTORS, shapes.IN_COMMIT_TIMES])
)
def test_delta_tools_show_our_vacuum_as_one_of_theirs(delta_lake: DeltaLake, shape: Shape) -> None:
    table, _ = delta_lake.table(shape)
    delta_lake.sql(table, shapes.delete(2))  # a second vector takes the first one's place
    plans = delta_lake.planned("expire-snapshots", table, *NOW)
    assert plans
    delta_lake.verb("expire-snapshots", table, *NOW)
    delta_lake.sql(table, shapes.insert(100, 101), shapes.delete(100), "VACUUM {t} RETAIN 0 HOURS")
    found = delta_lake.sql(table, "DESCRIBE HISTORY {t}")
    shown = [(row[4], row[5], row[12]) for row in found if row[4].startswith("VACUUM")]

    assert [row[0] for row in shown] == ["VACUUM END", "VACUUM START"] * 2
    theirs, ours = shown[:2], shown[2:]
    for peer, own in zip(theirs, ours, strict=True):
        assert own[1].keys() == peer[1].keys()
        assert own[2].keys() == peer[2].keys()
    assert ours[0][1] == {"status": "COMPLETED"}
    assert ours[1][2]["numFilesToDelete"] == ours[0][2]["numDeletedFiles"] == str(len(plans))
    if shape is shapes.IN_COMMIT_TIMES:
        times = [actions(table, version)[0]["commitInfo"]["inCommitTimestamp"] for version in commits(table)]
        assert times == sorted(set(times))

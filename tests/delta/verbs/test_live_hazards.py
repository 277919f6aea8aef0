"""What goes wrong elsewhere, by name: with the tables and the readers of Delta Spark and delta-rs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from iceberg_cli.cli.context import now_ms
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, a_remove, an_add
from tests.budget import deep_unless
from tests.cli.running import iceberg_cli
from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, actions, commits, rows_of_delta_rs, set_age
from tests.delta_live.shapes import Shape
from tests.delta_opened import a_log

DAY_MS = 86_400_000
NOW = ("--retention", "0s", "--unsafe-allow-short-retention")


def names_of(shape: Shape) -> str:
    return shape.name


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


@pytest.mark.parametrize(
    "shape",
    deep_unless(
        [shapes.DELETION_VECTORS],
        [shapes.DELETION_VECTORS, shapes.V2_CHECKPOINTS, shapes.MAPPED, shapes.CLONE],
    ),
)
def test_a_live_dv_file_is_never_vacuumed_where_delta_rs_would_delete_it(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    for path in table.rglob("*.bin"):
        set_age(path, 100)
    peer = DeltaTable(str(table)).vacuum(
        retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True
    )
    vectors = {str(path.relative_to(table)) for path in table.rglob("*.bin")}
    assert vectors <= {*peer}

    going = {row["file"] for row in delta_lake.planned("expire-snapshots", table, *NOW)}
    delta_lake.verb("expire-snapshots", table, *NOW)

    left = {str(path.relative_to(table)) for path in table.rglob("*.bin")}
    assert left == vectors - going != set()
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == history[max(history)]


@pytest.mark.parametrize("kind", deep_unless(["v2"], ["classic", "v2"]))
def test_actions_and_fields_that_nobody_knows_survive_a_checkpoint(delta_lake: DeltaLake, kind: str) -> None:
    table, _ = delta_lake.table(shapes.CLUSTERED)
    if kind == "v2":
        delta_lake.sql(
            table, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.v2Checkpoint' = 'supported')"
        )
    before = delta_lake.rows(table, ids=True)
    newest = max(commits(table))
    past = [action for version in commits(table) for action in actions(table, version)]
    removed = {action["remove"]["path"] for action in past if "remove" in action}
    (add,) = (action["add"] for action in past if "add" in action and action["add"]["path"] not in removed)
    unknown = [
        {"commitInfo": {"timestamp": now_ms(), "operation": "FUTURE"}},
        {"futureAction": {"number": 1, "nested": {"text": "x"}}},
        {"domainMetadata": {"domain": "app.settings", "configuration": '{"x":1}', "removed": False}},
        {"add": {**add, "dataChange": False, "futureField": "kept"}},
    ]
    text = "".join(json.dumps(action) + "\n" for action in unknown)
    log_file(table, f"{newest + 1:020}.json").write_text(text)

    delta_lake.verb("rewrite-manifests", table, "--checkpoint", kind)

    for version in range(newest + 2):  # readers have nothing but the checkpoint
        for path in (table / "_delta_log").glob(f"*{version:020}.*"):
            if "checkpoint" not in path.name and version <= newest:
                path.unlink()
    assert delta_lake.rows(table, ids=True) == before
    found = [
        action
        for path in (table / "_delta_log").rglob("*.parquet")
        for action in pq.read_table(path).to_pylist()
    ]
    for path in (table / "_delta_log").glob("[0-9]*.checkpoint.*.json"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    future = [action["futureAction"] for action in found if action.get("futureAction")]
    assert future == [{"number": 1, "nested": {"text": "x"}}]
    domains = {action["domainMetadata"]["domain"] for action in found if action.get("domainMetadata")}
    assert domains == {"app.settings", "delta.clustering", "delta.rowTracking"}
    assert [action["txn"]["appId"] for action in found if action.get("txn")] == ["loader"]
    kept = {
        action["add"]["path"] for action in found if (action.get("add") or {}).get("futureField") == "kept"
    }
    assert kept == {add["path"]}
    delta_lake.sql(table, *shapes.WRITE_ON, "OPTIMIZE {t}")
    delta_lake.verb("merge-dvs", table, "--min-files", 1)
    delta_lake.verb("rewrite-manifests", table, "--checkpoint", kind)
    assert rows_of_delta_rs(table) == delta_lake.rows(table)


@pytest.mark.parametrize("shape", [shapes.HIVE_PATHS, shapes.MAPPED], ids=names_of)
def test_a_percent_sign_or_a_space_in_a_partition_value_deletes_nothing_live(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, history = delta_lake.table(shape)
    for path in table.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            set_age(path, 100)
    live = {
        Path(unquote(urlsplit(row[0]).path))
        for row in delta_lake.sql(table, "SELECT DISTINCT _metadata.file_path FROM {t}")
    }
    assert all(path.exists() for path in live)
    folders = {path.parent for path in live}
    for folder in folders:
        (folder / "old.parquet").touch()
        set_age(folder / "old.parquet", 100)

    delta_lake.verb("expire-snapshots", table, *NOW)

    assert all(path.exists() for path in live)
    assert not [folder for folder in folders if (folder / "old.parquet").exists()]
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == history[max(history)]


def make_log_older(table: Path, *, days_apart: float) -> None:
    """Let each version's files in the log be so many days older than the next one's."""
    newest = max(commits(table))
    for path in (table / "_delta_log").rglob("*"):
        version = path.name.lstrip(".")[:20]
        if path.is_file() and version.isdigit():
            set_age(path, (newest - int(version)) * days_apart)


def make_commits_older(table: Path, *, days_apart: int) -> None:
    """Let each version's in-commit timestamp be so many days older than the next one's; its file stays young."""
    newest = max(commits(table))
    for version in commits(table):
        past = actions(table, version)
        past[0]["commitInfo"]["inCommitTimestamp"] = now_ms() - (newest - version) * days_apart * DAY_MS
        log_file(table, f"{version:020}.json").write_text(
            "".join(json.dumps(action) + "\n" for action in past)
        )
        for checksum in (f"{version:020}.crc", f".{version:020}.crc.crc", f".{version:020}.json.crc"):
            log_file(table, checksum).unlink(missing_ok=True)  # they tell the time too


@pytest.mark.parametrize(
    "shape",
    deep_unless(
        [shapes.V2_CHECKPOINTS],
        [shapes.V2_CHECKPOINTS, shapes.MULTI_PART, shapes.IN_COMMIT_TIMES, shapes.HIVE_PATHS],
    ),
)
def test_log_cleanup_never_leaves_a_version_that_cannot_be_read(delta_lake: DeltaLake, shape: Shape) -> None:
    table, history = delta_lake.table(shape)
    newest = max(history)
    if shape is shapes.IN_COMMIT_TIMES:
        make_commits_older(table, days_apart=16)
    else:
        make_log_older(table, days_apart=9)
    if shape is shapes.HIVE_PATHS:
        delta_lake.verb("rewrite-manifests", table)
        delta_lake.sql(table, *(shapes.insert(100 + n, 100 + n) for n in range(5)))
        history |= {version: rows_of_delta_rs(table, version) for version in range(newest + 1, newest + 6)}
        make_log_older(table, days_apart=9)
    checkpoints = {path.name for path in (table / "_delta_log").glob("[0-9]*.checkpoint.*")}

    delta_lake.verb("expire-snapshots", table)

    left = commits(table)
    assert 0 < left[0] <= max(history)
    assert left == list(range(left[0], left[-1] + 1))
    assert [name for name in checkpoints if int(name[:20]) == left[0] and log_file(table, name).exists()]
    promised = {version: rows for version, rows in history.items() if version >= left[0]}
    delta_lake.assert_promised(table, promised)
    named = [
        action["sidecar"]["path"]
        for path in (table / "_delta_log").glob("[0-9]*.checkpoint.*.json")
        for action in map(json.loads, path.read_text().splitlines())
        if "sidecar" in action
    ]
    assert all(log_file(table, f"_sidecars/{name}").exists() for name in named)
    delta_lake.sql(table, *shapes.WRITE_ON)
    assert delta_lake.rows(table) == rows_of_delta_rs(table)


def a_table_of_files(root: Path, *names: str) -> dict[str, dict[str, Any]]:
    """Parquet files of one row each, and the fields of their adds."""
    root.mkdir()
    adds = {}
    for number, name in enumerate(names):
        pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), root / f"{name}.parquet")
        size = (root / f"{name}.parquet").stat().st_size
        adds[name] = an_add(path=f"{name}.parquet", rows=1, size=size)["add"]
    return adds


def test_what_delta_spark_and_delta_rs_read_alike_is_read_so_and_a_checkpoint_changes_nothing(
    delta_lake: DeltaLake,
) -> None:
    root = delta_lake.folder / "odd"
    adds = a_table_of_files(root, *"abcd")
    beside = json.dumps({"add": adds["b"], "alongside": ["a", "1"]})
    a_log(
        root,
        [a_protocol(), a_metadata(), {"add": adds["a"]}],
        f'{{"commitInfo":{{"operation":"READ","operation":"WRITE"}}}}\n{beside}\n'.encode(),
        [
            {"futureAction": {}},
            {"other": {"a": 1}},
            {"other": {"a": "x"}},
            {"add": adds["c"]},
        ],
        [{"third": 7}, {"add": adds["d"]}],
    )
    every = [(number,) for number in range(4)]
    assert delta_lake.rows(root) == rows_of_delta_rs(root) == every
    delta_lake.verb("rewrite-manifests", root)
    for path in (root / "_delta_log").glob("*.json"):
        if int(path.name[:20]) < 3:
            path.unlink()
    assert delta_lake.rows(root) == rows_of_delta_rs(root) == every


def test_two_actions_of_a_commit_for_one_file_are_read_in_two_ways_so_no_checkpoint_decides_it(
    delta_lake: DeltaLake,
) -> None:
    root = delta_lake.folder / "clash"
    adds = a_table_of_files(root, "a")
    again = [a_remove(path="a.parquet"), {"add": adds["a"]}]
    a_log(root, [a_protocol(), a_metadata(), {"add": adds["a"]}], again)
    assert (delta_lake.rows(root), rows_of_delta_rs(root)) == ([(0,)], [])
    ran = iceberg_cli("rewrite-manifests", root, "--yes")
    assert ran.code == 11
    assert not list((root / "_delta_log").glob("*checkpoint*"))

"""Tables in folders below a table's own: their files stay, whenever they became tables and whoever names the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import Field, Schema, convert_to_deltalake

from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.plan.plan import Plan
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.table.nested_tables import NestedTables
from iceberg_cli.testing.delta_writer import NOW_MS, a_remove, an_add, set_modified
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING
from tests.cli.lakes import AS_OF_MS, listing
from tests.cli.running import dry
from tests.delta_opened import Operator, a_log
from tests.hazard_tables import Hazard, entry, expire, removed
from tests.servers import S3Server

DAY_MS = 86_400_000
OLD_MS = NOW_MS - 20 * DAY_MS
SUB = ("sub/p=1/a.parquet", "sub/p=2/b.parquet")
NAMES = ("live.parquet", "gone.parquet", *SUB)


# -- Delta -----------------------------------------------------------------------------------------------------


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """A Delta table that has long removed one file at its top, and two in the folder `sub`."""
    root = tmp_path / "outer"
    removes = [a_remove(path=name, deletionTimestamp=OLD_MS) for name in NAMES[1:]]
    a_log(root, [an_add(path=name) for name in NAMES], removes, age_ms=20 * DAY_MS)
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"i": [1, 2]}), root / name)
        set_modified(root / name, OLD_MS)
    return root


def convert(folder: Path) -> None:
    """Make a Delta table of the Parquet files that are in a folder, in place."""
    partitions = Schema([Field("p", "long")])
    convert_to_deltalake(folder, partition_by=partitions, partition_strategy="hive")


def rows_of(folder: Path) -> int:
    return int(DeltaRs(folder).to_pyarrow_table().num_rows)


OPERATOR = Operator(VERB)
planned = OPERATOR.plan


def going(plan: Plan, root: Path) -> set[str]:
    assert plan.removals is not None
    return {path.removeprefix(f"{root}/") for path in plan.removals.rows["path"].to_pylist()}


def policy_of(mode: str, root: Path, tmp_path: Path) -> dict[str, str]:
    """The policy of an expiry by listing, by the log alone, or by an inventory of data files alone."""
    if mode != "inventory":
        return {"mode": mode}
    rows = [
        {"path": str(root / name), "length": 4, "isDir": False, "modificationTime": OLD_MS} for name in NAMES
    ]
    path = tmp_path / "inventory.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"inventory": str(path)}


@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
def test_files_of_a_folder_that_became_a_table_are_not_planned(
    outer: Path, tmp_path: Path, mode: str
) -> None:
    policy = policy_of(mode, outer, tmp_path)
    assert going(planned(outer, **policy), outer) == set(NAMES[1:])
    convert(outer / "sub")
    plan = planned(outer, **policy)
    assert going(plan, outer) == {"gone.parquet"}
    (reason,) = (verdict.reason for verdict in plan.verdicts if "another table" in verdict.reason)
    assert reason == f"kept: they are in the folder of another table, {outer / 'sub'}"


@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
def test_files_of_a_folder_that_became_a_table_after_the_plan_stay(
    outer: Path, tmp_path: Path, mode: str
) -> None:
    table, made = OPERATOR.prepare(outer, **policy_of(mode, outer, tmp_path))
    convert(outer / "sub")
    report = OPERATOR.apply(made, table)
    assert (report.status, report.kept_again) == ("done", 2)
    assert not (outer / "gone.parquet").exists()
    assert rows_of(outer / "sub") == 4


@pytest.mark.parametrize(
    "record", ["_delta_log/x", "metadata/v3.metadata.json", "metadata/version-hint.text"]
)
@pytest.mark.parametrize("above", ["sub", "sub/p=1"])
def test_a_folder_is_a_tables_by_its_log_its_metadata_or_its_hint(
    outer: Path, above: str, record: str
) -> None:
    (outer / above / record).parent.mkdir(parents=True)
    (outer / above / record).touch()
    kept = {name for name in SUB if name.startswith(f"{above}/")}
    assert going(planned(outer, mode="lite"), outer) == set(NAMES[1:]) - kept


@pytest.mark.parametrize("record", ["metadata/a.avro", "metadata/deep/v3.metadata.json", "x/_delta_log"])
def test_a_folder_with_other_files_of_these_names_is_no_table(outer: Path, record: str) -> None:
    (outer / "sub" / record).parent.mkdir(parents=True)
    (outer / "sub" / record).touch()
    assert going(planned(outer, mode="lite"), outer) == set(NAMES[1:])


# -- Iceberg ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=[{}, {"write.data.path": "data"}], ids=["plain", "with a data path"])
def events(tmp_path: Path, request: pytest.FixtureRequest) -> Hazard:
    """A table whose older snapshot reaches one file in `data` and two in its folder `sub`; `live` is in both."""
    folder = tmp_path / "events"
    places = {name: str(folder / place) for name, place in request.param.items()}
    table = Hazard(location=str(folder), properties=places)
    paths = table.data(*NAMES)
    table.snapshot(9, table.manifest("m9", *(entry(ADDED, path) for path in paths)))
    table.snapshot(1, table.manifest("m1", entry(EXISTING, paths[0])), parent=9)
    table.publish(main=1)
    return table


OWN_GONE = {"metadata/m9.avro", "metadata/snap-9.avro"}
RECORDS = ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json", "metadata/version-hint.text"]


def put(table: Hazard, name: str) -> None:
    table.storage.put_if_absent(f"{table.location}/{name}", b"another's")


@pytest.mark.parametrize("record", RECORDS)
def test_an_expiry_leaves_the_files_of_a_table_in_a_folder_below(events: Hazard, record: str) -> None:
    put(events, f"data/sub/{record}")
    plan = dry(events.location, "--as-of", AS_OF_MS)
    assert plan["removals"]["by_kind"]["data_file"]["count"] == 1
    (verdict,) = (each for each in plan["verdicts"] if each["subject"] == "files")
    assert (verdict["id"], verdict["keep"]) == ("2 of 20 bytes", True)
    assert verdict["reason"] == f"kept: they are in the folder of another table, {events.location}/data/sub"
    assert plan["blocked_by"] == []
    assert removed(events) == {"data/gone.parquet", *OWN_GONE}


def test_the_data_folder_may_become_another_table_itself(events: Hazard) -> None:
    put(events, f"data/{RECORDS[0]}")
    assert removed(events) == OWN_GONE


def test_the_files_of_a_table_that_came_to_be_after_the_commit_stay(events: Hazard) -> None:
    before = set(listing(Path(events.location)))
    assert expire(events, "--limit-deletes", 1).json["status"] == "partial"
    put(events, f"data/sub/{RECORDS[1]}")
    assert expire(events).code == 0
    gone = before - set(listing(Path(events.location)))
    assert gone == {"data/gone.parquet", *OWN_GONE}


def test_a_tables_own_metadata_makes_no_other_table_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    properties = {"write.metadata.path": f"{folder}/deep/metadata"}
    table = Hazard(location=str(folder), properties=properties)
    (path,) = table.data("../deep/gone")
    path = path.replace("data/../", "")
    table.snapshot(9, table.manifest("m9", entry(ADDED, path)))
    table.snapshot(1, table.manifest("m1"), parent=9)
    table.publish(main=1)
    put(table, "deep/metadata/version-hint.text")
    assert removed(table) == {"deep/gone", *OWN_GONE}


# -- what the look costs ---------------------------------------------------------------------------------------


class CountingStorage(LocalStorage):
    """Counts the folders that are looked at."""

    looks = 0

    def subfolders_many(self, folders: Any, names: Any) -> Any:
        self.looks += len(folders)
        return super().subfolders_many(folders, names)


def test_each_folder_is_looked_at_once_whatever_the_number_of_files(tmp_path: Path) -> None:
    storage = CountingStorage()
    tables = NestedTables(storage=storage, roots=["/nowhere/t"], own=["/nowhere/t"])
    paths = pa.array([f"/nowhere/t/y={i % 3}/d={i % 6}/{i}" for i in range(10_000)])
    for _ in range(2):
        assert tables.holding(paths).null_count == len(paths)
        assert storage.looks == 3 + 6
    assert tables.holding(pa.array(["/nowhere/t/a", "/elsewhere/b/c"])).null_count == 2
    assert storage.looks == 3 + 6


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_the_outermost_folders_of_files_tell_their_table(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    root, storage = str(tmp_path), open_storage()
    if kind == "s3":
        server: S3Server = request.getfixturevalue("versitygw")
        root, storage = f"s3://{server.bucket}{tmp_path}", open_storage(server.options)
    for name in ("_delta_log/0", "a/b/_delta_log/0", "a/b/c/metadata/00001-x.metadata.json"):
        storage.put_if_absent(f"{root}/{name}", b"")
    names = ["x", "a/x", "a/b/x", "a/b/d/x", "a/b/c/x", "a/b/c/d/e/x", "ab/x"]
    tables = NestedTables(storage=storage, roots=[root], own=[root])
    found = tables.holding(pa.array([f"{root}/{name}" for name in names]))
    none = [None, None]
    assert found.to_pylist() == [*none, *[f"{root}/a/b"] * 2, *[f"{root}/a/b/c"] * 2, None]

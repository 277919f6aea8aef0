"""assign-row-ids as a program, on tables as an upgrade leaves them. What it wrote is read with fastavro."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pytest

from iceberg_cli.testing.iceberg_files import ADDED, DELETED
from tests.builders import a_branch, a_tag
from tests.cli.lakes import FolderTable, listing
from tests.cli.running import Ran, iceberg_cli
from tests.cli.tables_without_row_ids import Table
from tests.hazard_tables import a_dv, entry


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """main has a (3 rows) and b (4), the branch b has a and c (5), the tag old is on main's snapshot."""
    made = Table(location=str(tmp_path / "t"), format_version=3)
    a, b, c = made.data("a", "b", "c")
    made.holding("m1", (ADDED, a, 3))
    made.holding("m2", (ADDED, b, 4), (DELETED, c, 9))
    made.holding("m3", (ADDED, c, 5))
    made.holding("dead", (DELETED, b, 8))
    made.manifest("deletes", a_dv(ADDED, f"{made.location}/data/p.puffin", a), content=1)
    made.snapshot(9, "m2", "dead", "deletes", "m1")
    made.snapshot(8, "m3", "m1", parent=9)
    made.publish(main=9, b=a_branch(8), old=a_tag(9))
    return made


def assign(table: Table, *arguments: object) -> Ran:
    ran = iceberg_cli("assign-row-ids", table.location, "--yes", "--format", "json", *arguments)
    assert ran.code == 0, ran.out + ran.err
    return ran


def test_every_data_manifest_gets_a_range_in_list_order_and_nothing_else_is_written(table: Table) -> None:
    before = listing(table.folder)
    document = assign(table, "--ref", "main").json
    assert [(Path(row["manifest_path"]).stem, row["first_row_id"]) for row in table.listed()] == [
        ("m2", 0), ("dead", 4), ("deletes", None), ("m1", 4),
    ]  # fmt: skip
    head = table.head()
    assert (head["first-row-id"], head["added-rows"], table.metadata()["next-row-id"]) == (0, 7, 7)
    assert head["summary"]["operation"] == "replace"
    assert head["summary"]["total-data-files"] == "2"
    assert (document["assigned_rows_count"], document["assigned_manifests_count"]) == (7, 3)
    new = set(listing(table.folder)) - set(before)
    assert {path for path in new if path.endswith(".avro")} == {
        str(Path(head["manifest-list"]).relative_to(table.folder))
    }
    assert all(listing(table.folder)[path] == digest for path, digest in before.items())


def test_each_branch_gets_its_own_ranges_main_first(table: Table) -> None:
    document = assign(table).json
    assert table.first_row_ids() == {"b": 0, "a": 4}
    assert table.first_row_ids("b") == {"c": 7, "a": 12}
    assert table.metadata()["next-row-id"] == 15
    assert document["assigned_rows_count"] == 15
    assert document["notes"] == [
        "Row ids 0 to 6 were reserved on main: next-row-id was 0 and is 7.",
        "Row ids 7 to 14 were reserved on b: next-row-id was 7 and is 15.",
    ]
    assert document["rows_with_two_ids_count"] == 3


def test_shared_files_have_mains_ids_with_share_ids(table: Table) -> None:
    document = assign(table, "--share-ids").json
    assert table.first_row_ids() == {"b": 0, "a": 4}
    assert table.first_row_ids("b") == {"a": 4, "c": 7}
    assert table.metadata()["next-row-id"] == 12
    assert (document["shared_rows_count"], document["rows_with_two_ids_count"]) == (3, 0)
    assert document["assigned_rows_count"] == 12


def test_a_manifest_that_is_shared_in_part_keeps_the_rest_for_inheritance(tmp_path: Path) -> None:
    table = Table(location=str(tmp_path / "t"), format_version=3)
    a, b, c = table.data("a", "b", "c")
    table.holding("m1", (ADDED, a, 3), (ADDED, b, 4))
    table.holding("m2", (ADDED, c, 5), (0, a, 3), (DELETED, b, 4))
    table.snapshot(9, "m1")
    table.snapshot(8, "m2")
    table.publish(main=9, b=a_branch(8))
    assign(table, "--share-ids")
    assert table.first_row_ids() == {"a": 0, "b": 3}
    assert table.first_row_ids("b") == {"c": 7, "a": 0}
    (row,) = table.listed("b")
    assert (row["existing_files_count"], row["existing_rows_count"], row["deleted_files_count"]) == (2, 8, 0)
    with open(row["manifest_path"], "rb") as file:
        numbers = [(r["status"], r["snapshot_id"], r["sequence_number"]) for r in fastavro.reader(file)]  # type: ignore[index, call-overload]
    assert numbers == [(0, 1, 1), (0, 1, 1)]


def test_share_ids_needs_main_to_have_them(table: Table) -> None:
    ran = iceberg_cli("assign-row-ids", table.location, "--ref", "b", "--share-ids")
    assert ran.code == 11
    assert "main has none" in ran.err


def test_second_run_finds_nothing_to_do(table: Table) -> None:
    assign(table)
    before = listing(table.folder)
    assert assign(table).json["status"] == "nothing_to_do"
    assert listing(table.folder) == before


def test_inspect_shows_what_a_manifest_list_tells_of_ids_and_no_more(table: Table) -> None:
    """m2 and m1 hold added files, which have no ids of their own; in a manifest with existing files nobody knows."""
    assign(table, "--ref", "main")
    ran = iceberg_cli("inspect", table.location, "row-ids", "--format", "json")
    found = {Path(row["path"]).stem: row for row in ran.json["rows"] if row["kind"] == "manifest"}
    assert {name: (row["first_row_id"], row["assigned_rows"]) for name, row in found.items()} == {
        "m2": ("0", 4), "dead": ("4", 0), "m1": ("4", 3),
    }  # fmt: skip
    ran = iceberg_cli("rewrite-manifests", table.location, "--yes", "--format", "json")
    assert ran.code == 0, ran.out
    ran = iceberg_cli("inspect", table.location, "row-ids", "--format", "json")
    manifests = [row for row in ran.json["rows"] if row["kind"] == "manifest"]
    assert manifests
    assert {row["assigned_rows"] for row in manifests} == {None}
    assert "unknown" in iceberg_cli("inspect", table.location, "row-ids").out


def test_manifests_without_ids_have_none_assigned(table: Table) -> None:
    ran = iceberg_cli("inspect", table.location, "row-ids", "--format", "json")
    manifests = [row for row in ran.json["rows"] if row["kind"] == "manifest"]
    assert {(row["first_row_id"], row["assigned_rows"]) for row in manifests} == {(None, 0)}


def test_ids_that_are_there_never_change(table: Table) -> None:
    assign(table, "--ref", "main")
    ids = table.first_row_ids()
    document = assign(table).json
    assert table.first_row_ids() == ids
    assert (document["assigned_rows_count"], document["rows_with_two_ids_count"]) == (8, 3)


def test_plan_tells_of_tags_and_older_snapshots(table: Table) -> None:
    plan = assign(table, "--dry-run").json
    assert [(v["id"], v["keep"]) for v in plan["verdicts"]] == [("main", False), ("b", False)]
    assert "from 0 on if nothing else commits" in plan["verdicts"][0]["reason"]
    assert "from 7 on if nothing else commits" in plan["verdicts"][1]["reason"]
    assert any("2 snapshots from before, tags old among them" in warning for warning in plan["warnings"])
    assert any("3 rows of branch b" in warning for warning in plan["warnings"])
    assert [step["name"] for step in plan["steps"]] == ["assign-row-ids main", "assign-row-ids b"]


def test_versions_before_3_have_no_row_ids_and_the_way_forward_is_said(tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "t")
    table.commit(1, add=["a"])
    name = table.publish()
    ran = iceberg_cli("assign-row-ids", name, "--yes")
    assert ran.code == 0
    assert "upgrade-v3 --with assign-row-ids" in ran.out
    assert iceberg_cli("assign-row-ids", name, "--dry-run").code == 0


@pytest.mark.parametrize(("ref", "text"), [("old", "tag old"), ("nowhere", "branch nowhere")])
def test_only_branches_can_be_named(table: Table, ref: str, text: str) -> None:
    ran = iceberg_cli("assign-row-ids", table.location, "--ref", ref)
    assert ran.code == 2
    assert text in ran.err


def test_ids_at_the_tables_counter_block(tmp_path: Path) -> None:
    """Somebody wrote ids and did not raise next-row-id: giving them again would make two rows one."""
    other = Table(location=str(tmp_path / "t"), format_version=3)
    (a,) = other.data("a")
    other.holding("m1", (ADDED, a, 3))
    other.holding("m2", (ADDED, a, 3))
    other.rows["m1"]["first_row_id"] = 5
    other.snapshot(9, "m2", "m1")
    other.publish(main=9)
    ran = iceberg_cli("assign-row-ids", other.location)
    assert ran.code == 11
    assert "row-ids-above-next" in ran.err
    assert "ids up to 7" in ran.err


def test_ids_that_two_rows_have_block(tmp_path: Path) -> None:
    """Two writers gave one range, and nobody saw."""
    table = Table(location=str(tmp_path / "t"), format_version=3)
    a, b, c = table.data("a", "b", "c")
    table.holding("m1", (ADDED, a, 5))
    table.holding("m2", (ADDED, b, 5))
    table.holding("m3", (ADDED, c, 3))
    table.rows["m1"]["first_row_id"] = 0
    table.rows["m2"]["first_row_id"] = 3
    table.snapshot(9, "m3", "m2", "m1")
    table.fields = {"next-row-id": 100}
    table.publish(main=9)
    ran = iceberg_cli("assign-row-ids", table.location)
    assert ran.code == 11
    assert "row-ids-overlap" in ran.err
    assert "from 3 to 4" in ran.err
    found = iceberg_cli("inspect", table.location, "--check", "--format", "json")
    assert "row-ids-overlap" in found.out


def test_ranges_that_overlap_in_the_list_alone_do_not_block(tmp_path: Path) -> None:
    """As rewrite-manifests leaves them: entries have ids of their own, and all ranges begin at next-row-id."""
    table = Table(location=str(tmp_path / "t"), format_version=3)
    a, b, c = table.data("a", "b", "c")
    for name, path, first_row_id in (("m1", a, 0), ("m2", b, 5)):
        table.manifest(name, entry(0, path, record_count=5, first_row_id=first_row_id))
        table.rows[name]["first_row_id"] = 10
    table.holding("m3", (ADDED, c, 3))
    table.snapshot(9, "m3", "m2", "m1")
    table.fields = {"next-row-id": 10}
    table.publish(main=9)
    assign(table)
    assert table.first_row_ids() == {"a": 0, "b": 5, "c": 10}


def test_null_counts_are_counted(tmp_path: Path) -> None:
    """As in a table that was of version 1 once: its list stays as it was."""
    table = Table(location=str(tmp_path / "t"), format_version=1)
    a, b = table.data("a", "b")
    table.holding("m1", (ADDED, a, 3), (DELETED, b, 9))
    table.holding("m2", (0, b, 4))
    table.forget_counts()
    table.snapshot(9, "m1", "m2", summary={})
    table.format_version = 3
    table.publish(main=9)
    assign(table)
    assert [row["first_row_id"] for row in table.listed()] == [0, 3]
    assert [row["existing_rows_count"] for row in table.listed()] == [0, 4]
    assert table.metadata()["next-row-id"] == 7

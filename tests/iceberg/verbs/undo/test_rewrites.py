"""A rewrite whose snapshot is still the head is taken back: drawn tables, read by the referee; and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.budget import few_or_many
from tests.cli.lakes import AS_OF, FolderTable, four_snapshots, head_of, metadata_of, newest_metadata
from tests.cli.running import Ran, iceberg_cli
from tests.delete_tables import STORAGE, two_generations
from tests.iceberg.verbs.test_random_tables import Game
from tests.scan_planning import view

OF_THE_VERSION = {"last-updated-ms", "metadata-log", "snapshot-log", "snapshots", "last-sequence-number"}
COUNTER = {"next-row-id"}  # is never lowered
REWRITES = (("rewrite-manifests", "--all-manifests"), ("merge-dvs", "--min-files", "1"))


def cli(verb: str, folder: Path, *options: object) -> Ran:
    return iceberg_cli(verb, folder, *options, "--yes", "--format", "json")


def history_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = iceberg_cli("history", folder, "--format", "json").json["operations"]
    return found


def without(document: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in names}


@pytest.mark.few(2)
@few_or_many(3, many=12, all_of=60)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_branch_goes_back_to_the_same_rows(tmp_path: Path, version: int, budget: int) -> None:
    undone = set()
    for seed in range(budget):
        game = Game(tmp_path / f"{seed}" / "t", version=version, seed=11_000 * version + seed)
        folder = game.table.folder
        for verb, *options in REWRITES:
            before, rows, files = game.table.document, game.read(), game.files()
            done = cli(verb, folder, *options).json
            if game.table.document == before:
                continue
            ran = cli("undo", folder)
            if version == 3 and ran.code == 11:
                # Spec, "Row Lineage": a data manifest without a first row id gets one by the next commit.
                assert "have no row ids" in ran.json["message"]
                continue
            assert (ran.code, ran.json["restored_refs_count"]) == (0, 1), ran
            undone.add(verb)
            own = OF_THE_VERSION | COUNTER
            assert without(game.table.document, own) == without(before, own)
            assert game.table.document.get("next-row-id", 0) >= before.get("next-row-id", 0)
            assert game.read() == rows
            assert files <= game.files()
            history = {each["operation_id"]: each for each in history_of(folder)}
            took, first = history[ran.json["operation_id"]], history[done["operation_id"]]
            assert (took["undoes"], first["undone_by"]) == (first["operation_id"], took["operation_id"])
            again = cli("undo", folder, done["operation_id"])
            assert (again.code, "it was taken back already" in again.json["message"]) == (11, True)
    assert "rewrite-manifests" in undone


def test_merged_deletes_are_taken_back_as_readers_see_them(tmp_path: Path) -> None:
    table = two_generations(tmp_path / "t")
    table.publish()
    folder = tmp_path / "t"
    before = view(STORAGE.read, metadata_of(folder))
    assert cli("merge-dvs", folder, "--min-files", "1").json["status"] == "done"
    merged = metadata_of(folder)["current-snapshot-id"]
    assert cli("undo", folder).code == 0
    after = metadata_of(folder)
    assert (merged != 3, after["current-snapshot-id"]) == (True, 3)
    assert view(STORAGE.read, after) == before


@pytest.fixture
def rewritten(tmp_path: Path) -> tuple[FolderTable, dict[str, Any]]:
    """A table whose manifests were rewritten, and the report of that."""
    table = four_snapshots(tmp_path / "t")
    table.publish()
    report = cli("rewrite-manifests", table.folder, "--all-manifests").json
    assert report["status"] == "done"
    return table, report


def refusal(table: FolderTable, *options: object) -> str:
    """Why an undo is refused, which changes nothing."""
    before = newest_metadata(table.folder)
    ran = cli("undo", table.folder, *options)
    assert ran.code == 11, ran
    assert newest_metadata(table.folder) == before
    return str(ran.json["message"])


Rewritten = tuple[FolderTable, dict[str, Any]]


def test_the_retention_of_a_branch_stays_and_the_plan_says_what_the_next_expiry_takes(
    rewritten: Rewritten,
) -> None:
    table, report = rewritten
    own = report["committed_snapshot_id"]
    plan = iceberg_cli("undo", table.folder, "--dry-run", "--format", "json").json
    assert plan["warnings"] == [
        f"the next expiry takes snapshot {own} once it is older than the cut-off; a tag on it keeps it"
    ]
    assert [(each["subject"], each["id"]) for each in plan["verdicts"]] == [("branch", "main")]
    assert cli("undo", table.folder).code == 0
    assert head_of(table.folder)["snapshot-id"] == 4


def test_not_where_no_branch_is_at_it_any_more(rewritten: Rewritten) -> None:
    table, report = rewritten
    assert cli("restore", table.folder, "--to", "4").code == 0
    assert "no branch is at its snapshot any more" in refusal(table, report["operation_id"])


def test_not_where_a_file_of_the_parent_is_gone(rewritten: Rewritten) -> None:
    table, report = rewritten
    (table.folder / "data" / "keep.parquet").unlink()
    assert "1 file of snapshot 4 are not there, such as" in refusal(table)
    assert "keep.parquet" in refusal(table, report["operation_id"])


def test_not_where_rows_of_the_parent_have_no_ids_yet(tmp_path: Path) -> None:
    """Spec, "Row Lineage": as head of a branch it would give its rows other ids than readers have seen."""
    table = four_snapshots(tmp_path / "t")
    table.publish()
    assert cli("upgrade-v3", table.folder).code == 0
    assert cli("rewrite-manifests", table.folder, "--all-manifests").json["status"] == "done"
    assert "have no row ids" in refusal(table)


def test_not_where_the_parent_was_expired(rewritten: Rewritten) -> None:
    table, report = rewritten
    assert cli("expire-snapshots", table.folder, *AS_OF, "--older-than", "0s", "--retain-last", "1").code == 0
    own = report["committed_snapshot_id"]
    assert f"the parent of snapshot {own} is not there any more" in refusal(table, report["operation_id"])


@pytest.mark.parametrize(
    ("verb", "options", "instead"),
    [
        ("expire-snapshots", ("--older-than", "0s"), "--grace has files wait next time"),
        ("upgrade-v3", (), "nothing: clients have seen the new format"),
        ("tag", ("eod",), "`tag TABLE NAME --replace` puts it elsewhere"),
        ("restore", ("--to", "3"), "`restore TABLE --to TAG --not-an-ancestor`"),
    ],
)
def test_other_verbs_say_what_does_it_instead(
    verb: str, options: tuple[str, ...], instead: str, tmp_path: Path
) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    report = cli(verb, table.folder, *options).json
    assert report["status"] == "done"
    said = refusal(table)
    assert f"operation {report['operation_id']}, {verb}, cannot be taken back: it is over" in said
    assert instead in said


def test_an_undo_is_no_operation_that_is_taken_back(rewritten: Rewritten) -> None:
    table, _ = rewritten
    undone = cli("undo", table.folder).json
    assert "it was taken back already" in refusal(table)
    assert f"operation {undone['operation_id']}, undo, cannot be taken back" in refusal(
        table, undone["operation_id"]
    )


def test_an_operation_that_nobody_knows_is_a_usage_error(rewritten: Rewritten) -> None:
    table, _ = rewritten
    ran = cli("undo", table.folder, "01a2-b3")
    assert (ran.code, "No operation 01a2-b3 of" in ran.json["message"]) == (2, True)
    assert json.loads(newest_metadata(table.folder).read_text())["current-snapshot-id"] != 4

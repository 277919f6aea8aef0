"""Law: a rewrite that is taken back while it is the newest of its branch leaves the branch as it was.

Random tables of the referee, which shares no code with the package, reads rows and manifests.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.budget import few_or_many
from tests.cli.running import Ran, iceberg_cli
from tests.iceberg.verbs.test_random_tables import NOW_MS, Game
from tests.referee.iceberg import entries_of, manifests_of, rows_of

DATA = 0
REWRITES: dict[str, tuple[str, ...]] = {
    "rewrite-manifests": ("--all-manifests",),
    "merge-dvs": ("--min-files", "1"),
    "rewrite-data-files": ("--rewrite-all", "--processes", "1"),
}


def run(verb: str, game: Game, *words: object) -> Ran:
    return iceberg_cli(verb, game.table.folder, *words, "--yes", "--no-cache", "--format", "json")


def rewrite(game: Game, verb: str, *, possible: bool = True) -> str | None:
    """The operation of a rewrite that moved main, or None where there was nothing to do.

    Args:
        game: on whose table.
        verb: that rewrites.
        possible: whether its report says that it can be taken back.
    """
    before = game.table.document["refs"]["main"]["snapshot-id"]
    ran = run(verb, game, *REWRITES[verb])
    assert ran.code == 0, ran.out + ran.err
    if game.table.document["refs"]["main"]["snapshot-id"] == before:
        return None
    assert ran.json["undo"]["possible"] is possible
    found: str = ran.json["operation_id"]
    return found


def history(game: Game) -> dict[str, dict[str, Any]]:
    """The operations by their ids, the newest first."""
    ran = iceberg_cli("history", game.table.folder, "--format", "json")
    assert ran.code == 0, ran.err
    return {each["operation_id"]: each for each in ran.json["operations"]}


def head(game: Game, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """The snapshot of main."""
    document = game.table.document if document is None else document
    wanted = document["refs"]["main"]["snapshot-id"]
    (found,) = (each for each in document["snapshots"] if each["snapshot-id"] == wanted)
    snapshot: dict[str, Any] = found
    return snapshot


def without_ids(snapshot: dict[str, Any]) -> bool:
    """Whether a data manifest of a snapshot has no `first_row_id`."""
    return any(
        each["content"] == DATA and each.get("first_row_id") is None for each in manifests_of(snapshot)
    )


@pytest.mark.few(3)
@few_or_many(1, many=6, all_of=100)
@pytest.mark.parametrize(
    ("version", "verb"),
    [case for case in itertools.product([1, 2, 3], REWRITES) if case[0] > 2 or case[1] != "merge-dvs"],
)
def test_the_branch_is_as_before_and_nothing_is_deleted(
    tmp_path: Path, version: int, verb: str, budget: int
) -> None:
    undone = 0
    for seed in range(3 * budget):
        if undone == budget:
            break
        game = Game(tmp_path / f"{seed}" / "table", version=version, seed=3_000 * version + seed)
        before = game.table.document
        lacks_ids = version == 3 and without_ids(head(game, before))
        operation_id = rewrite(game, verb, possible=not lacks_ids or verb == "rewrite-data-files")
        if operation_id is None:
            continue
        rewritten, files = game.table.document, game.files()
        refuses = version == 3 and without_ids(head(game, before))
        record = history(game)[operation_id]
        assert (record["undo"]["possible"], record["undo"]["until_ms"]) == (not refuses, None)
        assert record["undone_by"] is None
        ran = run("undo", game)
        if refuses:
            assert (ran.code, "row ids" in ran.out) == (11, True)
            assert game.table.document == rewritten
            continue
        assert ran.code == 0, ran.err
        undone += 1
        after = game.table.document
        assert after["refs"] == before["refs"]
        assert after["current-snapshot-id"] == before["current-snapshot-id"]
        assert after["snapshots"] == rewritten["snapshots"]
        for name in ("last-sequence-number", "next-row-id", "schemas", "partition-specs", "properties"):
            assert after.get(name) == rewritten.get(name)
        game.check()  # rows, and their ids
        assert files <= game.files()
        report = ran.json
        assert report["undone"] == {"operation_id": operation_id, "operation": verb}
        left = len(rewritten["snapshots"]) - len(before["snapshots"])
        assert report["left_snapshots_count"] == left
        assert report["undo"]["possible"] is False
        (own, theirs, *_) = history(game).values()
        assert (own["operation"], own["operation_id"]) == ("undo", report["operation_id"])
        assert (theirs["operation_id"], theirs["undone_by"]) == (operation_id, report["operation_id"])
        assert theirs["undo"]["possible"] is False
        # What takes back is not taken back; by its id neither is what is taken back already.
        for named in ((), (operation_id,)):
            again = run("undo", game, *named)
            assert (again.code, game.table.document) == (11, after)
    assert undone


@pytest.mark.parametrize("foreign", [False, True])
def test_commits_of_one_operation_are_taken_back_together_or_not_at_all(
    tmp_path: Path, *, foreign: bool
) -> None:
    """What a killed run left is committed by the next one, and another writer may have come in between."""
    game = Game(tmp_path / "table", version=2, seed=11)
    before = game.table.document
    operation_id = rewrite(game, "rewrite-manifests")
    assert operation_id is not None
    ours = head(game)
    if foreign:
        game.table.append()
    # One more snapshot of the same operation, as another of its commits makes one.
    game.table.append()
    document = game.table.document
    head(game, document)["summary"]["iceberg-cli.operation-id"] = operation_id
    newest = game.table.folder / "metadata" / f"v{game.table.number}.metadata.json"
    newest.write_text(json.dumps(document))
    ran = run("undo", game, operation_id)
    if foreign:
        assert (ran.code, "other commits between its own" in ran.out) == (11, True)
        assert game.table.document == document
    else:
        assert (ran.code, ran.json["left_snapshots_count"]) == (0, 2)
        assert head(game)["snapshot-id"] == head(game, before)["snapshot-id"] == ours["parent-snapshot-id"]


def a_rewrite(folder: Path, *, version: int = 2, seed: int = 1) -> tuple[Game, dict[str, Any], str]:
    """A table, its metadata before a rewrite of its manifests, and the operation."""
    game = Game(folder / "table", version=version, seed=seed)
    before = game.table.document
    operation_id = rewrite(game, "rewrite-manifests")
    assert operation_id is not None
    return game, before, operation_id


def test_after_a_commit_of_others_it_is_refused(tmp_path: Path) -> None:
    game, _, operation_id = a_rewrite(tmp_path)
    game.table.append()
    document = game.table.document
    ran = run("undo", game)
    assert (ran.code, "branch main has other commits since" in ran.out) == (11, True)
    assert game.table.document == document
    assert history(game)[operation_id]["undo"] == {
        "possible": False, "until_ms": None, "until": None, "reason": "branch main has other commits since",
    }  # fmt: skip


def test_a_saved_plan_is_a_conflict_where_others_committed(tmp_path: Path) -> None:
    game, _, _ = a_rewrite(tmp_path)
    file = tmp_path / "plan.json"
    planned = iceberg_cli("plan", game.table.folder, "undo", "--output", file)
    assert planned.code == 0, planned.err
    game.table.append()
    document = game.table.document
    done = iceberg_cli("apply", file, "--yes")
    assert (done.code, game.table.document) == (12, document), done.err


def test_the_snapshot_before_it_must_be_there(tmp_path: Path) -> None:
    game, before, operation_id = a_rewrite(tmp_path)
    old = head(game, before)["snapshot-id"]
    for name, ref in before["refs"].items():
        if name != "main" and ref["snapshot-id"] == old:
            pytest.fail("another ref holds it")
    ran = run("expire-snapshots", game, "--snapshot-id", old, "--as-of", NOW_MS)
    assert ran.code == 0, ran.err
    document = game.table.document
    # The expiry is the newest one by now, and nothing of it waits.
    assert (run("undo", game).code, game.table.document) == (11, document)
    named = run("undo", game, operation_id)
    assert (named.code, f"the snapshot before it, {old}, has expired" in named.out) == (11, True)
    assert game.table.document == document


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["list", "manifest", "data"])
def test_a_file_that_is_gone_is_named_and_nothing_changes(tmp_path: Path, kind: str) -> None:
    game, before, _ = a_rewrite(tmp_path)
    old = head(game, before)
    (manifest, *_) = manifests_of(old)
    live = next(each for each in entries_of(manifest) if each["status"] != 2)
    gone = {"list": old["manifest-list"], "manifest": manifest["manifest_path"], "data": live["file_path"]}
    Path(gone[kind]).unlink()
    document = game.table.document
    ran = run("undo", game)
    assert (ran.code, gone[kind] in ran.out, "1 file " in ran.out) == (11, True, True), ran.err
    assert game.table.document == document
    assert iceberg_cli("resume", game.table.folder, "--list", "--format", "json").json["operations"] == []


def test_rows_that_got_their_ids_by_the_rewrite_would_lose_them(tmp_path: Path) -> None:
    """A table of version 2, upgraded: no manifest of the snapshot before the rewrite has a first row id."""
    game = Game(tmp_path / "table", version=2, seed=4)
    assert run("upgrade-v3", game).code == 0
    old = head(game)
    assert without_ids(old)
    operation_id = rewrite(game, "rewrite-manifests", possible=False)
    assert operation_id is not None
    rows = rows_of(head(game))
    document = game.table.document
    assert document["next-row-id"] > 0
    ran = run("undo", game)
    assert (ran.code, "row ids" in ran.out) == (11, True)
    assert (game.table.document, rows_of(head(game))) == (document, rows)
    assert history(game)[operation_id]["undo"]["possible"] is False


def test_the_report_of_a_rewrite_says_that_it_can_be_taken_back(tmp_path: Path) -> None:
    game = Game(tmp_path / "table", version=2, seed=1)
    report = run("rewrite-manifests", game, "--all-manifests").json
    assert report["undo"]["possible"] is True
    assert report["undone"] is None
    idle = run("rewrite-manifests", game).json
    assert (idle["status"], idle["undo"]["possible"]) == ("nothing_to_do", False)


def test_the_plan_says_what_leaves_and_that_a_tag_keeps_it(tmp_path: Path) -> None:
    game, before, operation_id = a_rewrite(tmp_path)
    old, ours = head(game, before)["snapshot-id"], head(game)["snapshot-id"]
    plan = iceberg_cli("undo", game.table.folder, "--dry-run", "--format", "json").json
    assert plan["undoes"] == {"operation_id": operation_id, "operation": "rewrite-manifests"}
    assert {(each["subject"], each["id"]) for each in plan["verdicts"]} == {
        ("branch", "main"), ("commit", str(ours)),
    }  # fmt: skip
    (update,) = plan["steps"][0]["change"]["updates"]
    assert (update["ref-name"], update["snapshot-id"]) == ("main", str(old))
    assert any(f"a tag on {ours} keeps it" in each for each in plan["warnings"])


@pytest.mark.few(2)
@pytest.mark.parametrize("verb", ["upgrade-v3", "assign-row-ids", "restore", "tag"])
def test_what_has_no_way_back_says_what_does_it_instead(tmp_path: Path, verb: str) -> None:
    game = Game(tmp_path / "table", version=2, seed=2)
    if verb == "assign-row-ids":
        assert run("upgrade-v3", game).code == 0
    target = game.table.document["snapshots"][0]["snapshot-id"]
    words = {"restore": ("--to", target, "--not-an-ancestor"), "tag": ("eod",)}.get(verb, ())
    done = run(verb, game, *words)
    assert (done.code, done.json["status"], done.json["undo"]["possible"]) == (0, "done", False), done.err
    document = game.table.document
    ran = run("undo", game)
    assert (ran.code, game.table.document) == (11, document)
    expected = {
        "upgrade-v3": "no format version goes back", "assign-row-ids": "readers have seen the row ids",
        "restore": "`restore --to`", "tag": "`tag --drop`",
    }  # fmt: skip
    assert expected[verb] in ran.out

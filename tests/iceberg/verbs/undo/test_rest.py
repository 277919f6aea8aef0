"""`undo` over REST: what the catalog gets, another writer's commit between, and what no catalog takes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg.catalogs.test_rest import Lake, lake
from tests.iceberg.catalogs.test_rest_conflicts import Served, meet, of_deletes

__all__ = ["lake"]


@pytest.fixture
def config(lake: Lake, tmp_path: Path) -> Path:
    config = tmp_path / "pyiceberg.yaml"
    config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {lake.front.uri}\n")
    return config


@pytest.fixture
def served(lake: Lake, config: Path) -> Served:
    """A table of version 2 with two snapshots."""
    made = Served(lake, "t", config)
    made.commit_of_others()
    return made


def refs(served: Served) -> dict[str, Any]:
    return {name: ref["snapshot-id"] for name, ref in served.metadata["refs"].items()}


def rewritten(served: Served) -> tuple[dict[str, Any], int]:
    """The refs before a rewrite of the manifests, and main after it; what the catalog got is forgotten."""
    before = refs(served)
    ran = served.run("rewrite-manifests", "--all-manifests", "--yes")
    assert (ran.code, ran.json["status"], ran.json["undo"]["possible"]) == (0, "done", True), ran.out
    served.lake.front.bodies.clear()
    head = refs(served)["main"]
    assert head != before["main"]
    return before, head


def test_a_rewrite_is_taken_back_under_where_main_was_seen(served: Served) -> None:
    rows = served.lake.table.scan().to_arrow().sort_by("i")
    before, head = rewritten(served)
    ran = served.run("undo", "--yes")
    assert (ran.code, ran.json.get("status")) == (0, "done"), ran.out + ran.err
    (sent,) = map(json.loads, served.lake.front.bodies)
    asserted = {
        each["ref"]: each["snapshot-id"]
        for each in sent["requirements"]
        if each["type"] == "assert-ref-snapshot-id"
    }
    assert asserted == {"main": head}
    # The other one is the property by which a commit is known again whose answer was lost.
    assert [each["action"] for each in sent["updates"]] == ["set-snapshot-ref", "set-properties"]
    assert (sent["updates"][0]["ref-name"], sent["updates"][0]["snapshot-id"]) == ("main", before["main"])
    assert refs(served) == before
    served.lake.table.refresh()
    assert served.lake.table.scan().to_arrow().sort_by("i").equals(rows)


def test_merged_vectors_of_version_3_are_taken_back_and_rows_keep_their_ids(
    lake: Lake, config: Path, tmp_path: Path
) -> None:
    served = of_deletes(lake, tmp_path)
    before = served.metadata
    ran = served.run("merge-dvs", "--min-files", "1", "--yes")
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
    after, possible = served.metadata, ran.json["undo"]["possible"]
    (old,) = (each for each in before["snapshots"] if each["snapshot-id"] == before["current-snapshot-id"])
    (new,) = (each for each in after["snapshots"] if each["snapshot-id"] == after["current-snapshot-id"])
    assert possible == (new["added-rows"] == 0)
    undone = served.run("undo", "--yes")
    if possible:
        assert undone.code == 0, undone.out
        assert refs(served)["main"] == old["snapshot-id"]
        assert served.metadata["next-row-id"] == after["next-row-id"]
    else:
        assert (undone.code, "row ids" in undone.out) == (11, True), undone.out
        assert refs(served)["main"] == new["snapshot-id"]


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", ["before our last look", "after it"])
def test_a_commit_of_others_stands_and_an_undo_changes_nothing(
    served: Served, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = rewritten(served)
    foreign = meet(served, moment, monkeypatch)
    ran = served.run("undo", "--yes")
    assert (ran.code, ran.json["state"]) == (12, "The table was not changed."), ran.out
    assert refs(served) == {**before, "main": foreign[0]}
    assert served.run("resume", "--list").json["operations"] == []


def test_an_expiry_is_refused_with_the_metadata_that_can_be_registered(served: Served) -> None:
    oldest = served.metadata["snapshots"][0]["snapshot-id"]
    ran = served.run("expire-snapshots", "--snapshot-id", str(oldest), "--grace", "24h", "--yes")
    assert (ran.code, ran.json["status"]) == (0, "waiting"), ran.out
    assert ran.json["undo"]["possible"] is False
    assert "Register" in ran.json["undo"]["reason"]
    (listed,) = served.run("resume", "--list").json["operations"]
    assert (listed["state"], listed["undo"]) == ("waiting", ran.json["undo"])
    undone = served.run("undo", "--yes")
    assert (undone.code, "Register" in undone.out) == (11, True)

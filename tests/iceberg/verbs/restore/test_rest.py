"""`restore` and `tag` over REST: what the catalog gets, and another writer's commit between our look and ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg.catalogs.test_rest import Lake, lake
from tests.iceberg.catalogs.test_rest_conflicts import Served, meet

__all__ = ["lake"]


@pytest.fixture
def served(lake: Lake, tmp_path: Path) -> Served:
    """A table of the catalog with two snapshots, the first of which has all rows."""
    config = f"catalog:\n  prod:\n    type: rest\n    uri: {lake.front.uri}\n"
    (tmp_path / "pyiceberg.yaml").write_text(config)
    made = Served(lake, "t", tmp_path / "pyiceberg.yaml")
    made.commit_of_others()
    return made


def refs(served: Served) -> dict[str, Any]:
    return {name: ref["snapshot-id"] for name, ref in served.metadata["refs"].items()}


def test_the_catalog_gets_both_refs_in_one_commit_under_where_they_were_seen(served: Served) -> None:
    head = served.metadata["current-snapshot-id"]
    (target,) = [
        each["parent-snapshot-id"] for each in served.metadata["snapshots"] if each["snapshot-id"] == head
    ]
    before = refs(served)
    ran = served.run("restore", "--to", str(target), "--keep-as", "bad", "--yes")
    assert (ran.code, ran.json.get("status")) == (0, "done"), ran.out + ran.err
    (sent,) = map(json.loads, served.lake.front.bodies)
    asserted = {
        each["ref"]: each["snapshot-id"]
        for each in sent["requirements"]
        if each["type"] == "assert-ref-snapshot-id"
    }
    assert asserted == {"main": head, "bad": None}
    set_to = [
        (each["ref-name"], each["type"], each["snapshot-id"])
        for each in sent["updates"]
        if each["action"] == "set-snapshot-ref"
    ]
    assert set_to == [("bad", "tag", head), ("main", "branch", target)]
    assert refs(served) == {**before, "main": target, "bad": head}
    assert served.metadata["current-snapshot-id"] == target
    assert served.lake.table.scan().to_arrow()["i"].sort().to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("moment", ["before our last look", "after it"])
def test_a_commit_of_others_stands_and_a_restore_changes_nothing(
    served: Served, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = served.metadata["current-snapshot-id"]
    (target,) = [
        each["parent-snapshot-id"] for each in served.metadata["snapshots"] if each["snapshot-id"] == head
    ]
    before = refs(served)
    foreign = meet(served, moment, monkeypatch)
    ran = served.run("restore", "--to", str(target), "--yes")
    assert (ran.code, ran.json["state"]) == (12, "The table was not changed."), ran.out
    assert refs(served) == {**before, "main": foreign[0]}
    assert served.run("resume", "--list").json["operations"] == []


@pytest.mark.parametrize("moment", ["before our last look", "after it"])
def test_a_commit_of_others_on_main_is_no_conflict_of_a_tag(
    served: Served, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = refs(served)
    foreign = meet(served, moment, monkeypatch)
    ran = served.run("tag", "eod", "--max-age", "30d", "--yes")
    assert (ran.code, ran.json.get("status")) == (0, "done"), ran.out
    assert refs(served) == {**before, "main": foreign[0], "eod": before["main"]}

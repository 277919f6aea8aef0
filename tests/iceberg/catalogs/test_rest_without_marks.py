"""A catalog that lets no client set properties: a commit without a snapshot is known again by its effect."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from tests.iceberg.catalogs.test_rest import MARK, Lake, expiry, files_of, lake, run
from tests.rest_servers import Fate

__all__ = ["lake"]

WORDS = [
    (400, "iceberg-cli.operation-id cannot be set"),
    (403, "Setting table properties is not supported"),
    (422, "unsupported update: set-properties"),
]


def let_no_properties_be_set(lake: Lake, status: int = 400, message: str = WORDS[0][1]) -> None:
    def refusal(method: str, _path: str, _headers: Mapping[str, str], body: bytes) -> tuple[int, str] | None:
        return (status, message) if method == "POST" and b"set-properties" in body else None

    lake.front.refusal = refusal


def table_and_requests(lake: Lake) -> tuple[list[int], list[str]]:
    """What the table's snapshots are, and the actions of the requests that reached the server."""
    actions = [update["action"] for body in lake.front.bodies for update in json.loads(body)["updates"]]
    return [each.snapshot_id for each in lake.table.metadata.snapshots], actions


@pytest.mark.parametrize(("status", "message"), WORDS)
def test_the_request_is_sent_without_the_property(
    lake: Lake, tmp_path: Path, status: int, message: str
) -> None:
    let_no_properties_be_set(lake, status, message)
    *_, head = (each.snapshot_id for each in lake.table.metadata.snapshots)
    run(lake, tmp_path, *expiry(lake))
    assert table_and_requests(lake) == ([head], ["remove-snapshots"])
    assert MARK not in lake.table.properties
    assert "No open operation" in run(lake, tmp_path, "resume", "--list")


@pytest.mark.parametrize(("status", "message"), [(403, "no"), (400, "a snapshot is in use")])
def test_other_refusals_are_none_of_the_property(
    lake: Lake, status: int, message: str, tmp_path: Path
) -> None:
    let_no_properties_be_set(lake, status, message)
    before = files_of(lake)
    run(lake, tmp_path, *expiry(lake), exit_code=16 if status == 403 else 11)
    assert lake.front.bodies == []
    assert files_of(lake) >= before


@pytest.mark.parametrize(
    "fate", ["lost before", "lost after", "reset before", "reset after", "500 after", "late"]
)
def test_a_lost_answer_is_settled_by_the_effect(lake: Lake, tmp_path: Path, fate: Fate) -> None:
    let_no_properties_be_set(lake)
    *_, head = (each.snapshot_id for each in lake.table.metadata.snapshots)
    before, happened = files_of(lake), fate.endswith("after")
    lake.front.fates += ["", fate]  # the first request is refused
    run(lake, tmp_path, *expiry(lake), exit_code=0 if happened else 13)
    if not happened:
        assert files_of(lake) >= before
        if fate == "late":
            assert lake.front.release() == [200]
        run(lake, tmp_path, "resume")  # in a process that has not met the refusal: the same bytes once more
        assert len(set(lake.front.bodies)) == 1
    assert table_and_requests(lake)[0] == [head]
    assert not files_of(lake) >= before
    assert "No fault was found" in run(lake, tmp_path, "inspect", "--check")


def test_the_outcome_is_read_from_what_the_table_shows(lake: Lake) -> None:
    marked, committer = lake.attempt(), lake.open()
    commit: Any = marked.commit
    removal, _ = commit.updates
    bare = dataclasses.replace(commit, updates=(removal,), recorded=True)
    attempt = committer.prepare(bare, base_location=marked.base)
    assert isinstance(committer.settle(attempt), Unknown)
    lake.set_property("colour")  # no ref moves
    assert isinstance(committer.settle(attempt), Unknown)
    lake.append()
    moved = committer.settle(attempt)
    assert isinstance(moved, Conflict)
    assert moved.may_arrive
    assert isinstance(lake.open().commit(lake.attempt()), Committed)  # another's, of the same snapshot
    found = committer.settle(attempt)
    assert isinstance(found, Committed)
    assert found.metadata_location == lake.table.metadata_location
    # It stands on an append that ours did not know of, so that it can be another's: nothing is deleted after it.
    assert found.withheld is not None

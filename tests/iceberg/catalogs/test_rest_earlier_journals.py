"""Journals of earlier versions, whose intents lack the property by which a REST catalog's commit is known again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg.catalogs.test_rest import Lake, expiry, files_of, lake, run
from tests.rest_servers import Fate

__all__ = ["lake"]


def without_the_last(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Updates without the property, as versions had them that had it in the request, and not in the record of it."""
    *others, last = updates
    assert last["action"] == "set-properties"
    return others


def change_intents(folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Write the journal anew, with other updates in its intents."""
    previous = ""
    for path in sorted(folder.rglob("[0-9]*.json")):
        record = json.loads(path.read_bytes())
        if record["kind"] == "commit-intent":
            record["body"]["updates"] = change(record["body"]["updates"])
        text = json.dumps({"kind": record["kind"], "previous": previous, "body": record["body"]})[:-1]
        data = f'{text}, "digest": "{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()
        path.write_bytes(data)
        previous = hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("fate", ["lost before", "late"])
def test_a_commit_without_an_outcome_is_settled_and_sent_as_it_was(
    lake: Lake, tmp_path: Path, fate: Fate
) -> None:
    *_, head = (each.snapshot_id for each in lake.table.metadata.snapshots)
    lake.front.fates.append(fate)
    run(lake, tmp_path, *expiry(lake), exit_code=13)
    change_intents(tmp_path / "t" / "_iceberg_cli" / "ops", without_the_last)
    lake.front.release()
    run(lake, tmp_path, "resume")
    assert [each.snapshot_id for each in lake.table.metadata.snapshots] == [head]
    assert len(set(lake.front.bodies)) == 1
    assert "No open operation" in run(lake, tmp_path, "resume", "--list")


def test_a_commit_that_cannot_be_made_again_is_not_sent_and_nothing_is_deleted(
    lake: Lake, tmp_path: Path
) -> None:
    lake.front.fates.append("lost before")
    run(lake, tmp_path, *expiry(lake), exit_code=13)
    more = {"action": "set-properties", "updates": {"colour": "red"}}
    change_intents(tmp_path / "t" / "_iceberg_cli" / "ops", lambda updates: [*updates, more])
    before, sent = files_of(lake), len(lake.front.bodies)
    printed = run(lake, tmp_path, "resume", exit_code=11)
    assert "its commit cannot be made again with the same content" in printed
    assert len(lake.front.bodies) == sent
    assert before <= files_of(lake)

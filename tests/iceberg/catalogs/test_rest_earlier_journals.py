"""Journals of earlier versions, whose intents lack the property by which a REST catalog's commit is known again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.iceberg.catalogs.test_rest import Lake, expiry, lake, run
from tests.rest_servers import Fate

__all__ = ["lake"]


def leave_out_the_property(folder: Path) -> None:
    """Write the journal anew as versions did that had the property in the request, and not in the record of it."""
    previous = ""
    for path in sorted(folder.rglob("[0-9]*.json")):
        record = json.loads(path.read_bytes())
        if record["kind"] == "commit-intent":
            *updates, last = record["body"]["updates"]
            assert last["action"] == "set-properties"
            record["body"]["updates"] = updates
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
    leave_out_the_property(tmp_path / "t" / "_iceberg_cli" / "ops")
    lake.front.release()
    run(lake, tmp_path, "resume")
    assert [each.snapshot_id for each in lake.table.metadata.snapshots] == [head]
    assert len(set(lake.front.bodies)) == 1
    assert "No open operation" in run(lake, tmp_path, "resume", "--list")

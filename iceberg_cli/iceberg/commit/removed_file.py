"""The file of a journal with what a commit takes out of the metadata, by the commit's UUID."""

from __future__ import annotations

from typing import Final

from iceberg_cli.encoding.strict_json import dumps
from iceberg_cli.iceberg.commit.update import Commit, with_updates
from iceberg_cli.iceberg.spec.table_metadata.restoring import removed_by
from iceberg_cli.operation.outcomes import Attempt

_NAME: Final = "removed-{}.json"


def name_of(commit_uuid: str) -> str:
    """The file's name."""
    return _NAME.format(commit_uuid)


def removed_file(attempt: Attempt) -> dict[str, bytes]:
    """The file of a commit that is about to be sent, by its name."""
    commit = attempt.commit
    assert isinstance(commit, Commit)
    after = with_updates(
        commit.base, commit.updates, base_location=attempt.base, timestamp_ms=commit.timestamp_ms
    )
    return {name_of(commit.commit_uuid): dumps(removed_by(commit.base, after).to_json())}

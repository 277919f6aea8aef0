"""The commit that an intent of the journal describes, made again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from iceberg_cli.iceberg.commit.update import Commit, requirements_for, updates_from_json
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata

if TYPE_CHECKING:
    from iceberg_cli.operation.records import CommitIntent


def possible_commits(intent: CommitIntent, base: TableMetadata) -> Iterator[Commit]:
    """The commits that an intent may describe, one of which has its digest; the likeliest first.

    Earlier versions asserted every ref in each commit, as is done still where a catalog overlooks numbers; and some
    recorded it without the property that a REST catalog got with it.

    Args:
        intent: of the journal.
        base: the metadata that it was bound to.
    """
    updates = updates_from_json(intent.updates)
    for recorded, every_ref in product((True, False), (False, True)):
        yield Commit(
            updates=updates,
            requirements=requirements_for(updates, base, every_ref=every_ref),
            base=base,
            timestamp_ms=intent.timestamp_ms,
            commit_uuid=intent.commit_uuid,
            recorded=recorded,
        )

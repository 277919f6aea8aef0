"""Tables without data for the committers: a first metadata file, and how to change it."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.commit.update import Commit, SetProperties, requirements_for
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage

CREATED_MS = 1_700_000_000_000


def first_metadata(location: str, properties: Mapping[str, str] | None = None) -> bytes:
    """Version 2 metadata of a table that has one column and no snapshot."""
    field = {"id": 1, "name": "i", "required": False, "type": "int"}
    document: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": CREATED_MS,
        "last-column-id": 1,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "properties": dict(properties or {}),
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    return json.dumps(document).encode()


def load(storage: Storage, location: str) -> TableMetadata:
    """The metadata in a file."""
    return TableMetadata.from_json(decode_metadata_file(storage.read(location), location), path=location)


def properties_of(storage: Storage, committer: Committer) -> Mapping[str, str]:
    """The properties of the table as it is now."""
    return load(storage, committer.current()).properties


def a_commit(
    storage: Storage, base_location: str, properties: Mapping[str, str], *, now_ms: int | None = None
) -> Commit:
    """A commit that sets properties on one version of a table."""
    base = load(storage, base_location)
    updates = (SetProperties(updates=properties),)
    return Commit(
        updates=updates,
        requirements=requirements_for(updates, base),
        base=base,
        timestamp_ms=int(time.time() * 1000) if now_ms is None else now_ms,  # noqa: TID251  (a test is a shell)
        commit_uuid=str(uuid.uuid4()),
    )


def an_attempt(
    committer: Committer,
    storage: Storage,
    properties: Mapping[str, str],
    *,
    fresh: bool = True,
    now_ms: int | None = None,
) -> Attempt:
    """An attempt to set properties on the table as it is now."""
    # Asked once: a writer that builds on one version and swaps another would lose what came between.
    location = committer.current()
    commit = a_commit(storage, location, properties, now_ms=now_ms)
    return dataclasses.replace(committer.prepare(commit, base_location=location), fresh=fresh)


def set_property(committer: Committer, storage: Storage, name: str, value: str = "yes") -> int:
    """Commit until it is in; a retry after an unknown outcome sends the same attempt. Returns the conflicts met."""
    conflicts = 0
    while True:
        attempt = an_attempt(committer, storage, {name: value})
        outcome: Outcome = committer.commit(attempt)
        while isinstance(outcome, Unknown):
            time.sleep(0.01)
            outcome = committer.commit(attempt)
        match outcome:
            case Committed():
                return conflicts
            case Conflict():
                conflicts += 1

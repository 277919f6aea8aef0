"""Journals as they are stored: records of any kind and body, also such as no code of today writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.records import Line


def append(journal: Journal, kind: str, body: Mapping[str, Any]) -> None:
    """Add a record as it is."""
    journal._append(Line(kind=kind, body=body))


def bodies(journal: Journal, kind: str) -> list[Mapping[str, Any]]:
    """The bodies of all records of a kind, in order."""
    return [line.body for line in journal._lines if line.kind == kind]


BEGIN = {
    "version": 1,
    "operation": "expire-snapshots",
    "table_uuid": "u",
    "at_ms": 7,
    "plan_digest": "d",
    "steps": ["main"],
    "host": "h",
    "process_id": 3,
    "process_started": "s",
}


RESUME = {"at_ms": 9, "host": "other", "process_id": 4, "process_started": "t"}

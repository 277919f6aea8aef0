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


def intent(step: str = "main", *, grace_ms: int = 0, served: bool = False) -> tuple[str, dict[str, Any]]:
    """The record of a commit that is sent; by a catalog that writes the metadata itself where `served`."""
    body = {
        "step": step,
        "base_location": "m1",
        "metadata_location": None if served else "m2",
        "digest": "d",
        "timestamp_ms": 1,
        "commit_uuid": "c",
        "updates": [],
        "counts": {},
        "removals_file": None,
        "grace_ms": grace_ms,
        "scratch": [],
        "own_files": [],
    }
    return "commit-intent", body


def outcome(
    step: str = "main", *, word: str = "committed", until_ms: int | None = None, **more: str
) -> tuple[str, dict[str, Any]]:
    """The record of what became of a commit."""
    body = {"step": step, "outcome": word, "metadata_location": "m2", "sweep_after_ms": until_ms, **more}
    return "commit-outcome", body

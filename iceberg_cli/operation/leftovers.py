"""Temporary files that killed runs of this tool left beside a table's files."""

from __future__ import annotations

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.operation.table import OpenTable
from iceberg_cli.plan.findings import Findings
from iceberg_cli.storage.leftovers import leftovers_in


def find_leftovers(table: OpenTable, *, now_ms: int) -> list[str]:
    """Those in a table's folders on local disks; none of a table that is read-only.

    Raises:
        BackendUnavailable: a folder cannot be listed.
    """
    folders = [table.storage.canonical(folder) for folder in table.workspace.written_folders()]
    found = leftovers_in([folder for folder in folders if folder.startswith("/")], now_ms=now_ms)
    return found if found and table.read_only_reason() is None else []


def remove_leftovers(table: OpenTable, *, now_ms: int) -> list[str]:
    """Delete them; those that are gone. What is not there any more, or cannot be deleted now, does no harm."""
    try:
        found = find_leftovers(table, now_ms=now_ms)
    except BackendUnavailable:
        return []
    kept = table.storage.delete(found) if found else {}
    return [path for path in found if path not in kept]


def check_leftovers(table: OpenTable, findings: Findings, *, now_ms: int) -> None:
    """Add a finding for each."""
    for path in find_leftovers(table, now_ms=now_ms):
        findings.add("leftover-temporary-file", path, "a run that was killed left it more than a day ago")

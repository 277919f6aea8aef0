"""Findings for temporary files that killed runs of this tool left beside a checked table's files."""

from __future__ import annotations

from iceberg_cli.operation.workspace import OpenTable
from iceberg_cli.plan.findings import RuleFindings


def check_leftovers(table: OpenTable, findings: RuleFindings, *, now_ms: int) -> None:
    """Look for temporary files that killed runs of this tool left in a table's folders."""
    for path in table.leftovers(now_ms=now_ms):
        findings.add("leftover-temporary-file", path, "a run that was killed left it more than a day ago")

"""Documents about many tables, as `survey` and `maintain` print them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from iceberg_cli.fleet.calls.maintenance_result import OUTCOMES
from iceberg_cli.fleet.verb_run import SKIPS, STATUSES
from tests.cli.page.pages import AS_OF_MS

DAY_MS = 86_400_000
_RULES = {
    "ok": "nothing is due",
    "due": "expire-snapshots is due",
    "overdue": "its oldest snapshot is more than twice as old as its retention",
    "broken": "a check found an error",
    "unreadable": "its metadata cannot be read",
}


def of(name: str, kind: str = "iceberg") -> dict[str, Any]:
    """How a document names a table."""
    return {"name": name, "location": f"s3://lake/{name}", "format": kind, "also": []}


def a_table(name: str, grade: str = "due", **fields: Any) -> dict[str, Any]:
    """An element of `tables` of `fleet/1`: 1 MiB in 10 files are freed, unless it says otherwise."""
    due = [
        {
            "operation": "expire-snapshots",
            "reason": "3 snapshots",
            "bytes": 1 << 20,
            "files": 10,
            "exact": True,
            "blocked_by": [],
        }
    ]
    return {
        "table": of(name),
        "format_version": 2,
        "grade": grade,
        "rule": _RULES[grade],
        "snapshots": 20,
        "oldest_snapshot_ms": AS_OF_MS - 30 * DAY_MS,
        "oldest_snapshot": "2026-10-27T09:40:28.233Z",
        "files": 100,
        "small_files": 40,
        "data_bytes": 5 << 30,
        "delete_ratio": 0.125,
        "manifests": 12,
        "manifest_target_ratio": 0.1,
        "metadata_bytes": 40_000,
        "log_versions_since_checkpoint": None,
        "due": due if grade in ("due", "overdue") else [],
        "offers": [],
        "open_operations": 0,
        "findings": [],
        "cost": {"currency": "EUR", "month": 1.5},
        "from_cache": False,
        **fields,
    }


def a_finding(message: str) -> dict[str, str]:
    """An element of `findings`."""
    return {
        "id": "metadata",
        "severity": "error",
        "where": "v3.metadata.json",
        "message": message,
        "section": "Table Metadata",
        "remedy": "Restore it.",
    }


def an_unreadable_table(name: str) -> dict[str, Any]:
    """One of which nothing is known but why."""
    known = a_table(name, "unreadable", findings=[a_finding("Cannot read v3.metadata.json at byte 17")])
    kept = ("table", "grade", "rule", "due", "offers", "findings", "from_cache")
    return {key: value if key in kept else None for key, value in known.items()}


def a_fleet(*tables: dict[str, Any], failed: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A `fleet/1` document."""
    money = [each["cost"]["month"] for each in tables if each["cost"]]

    def total(name: str) -> int:
        return sum(each[name] or 0 for each in tables)

    def freed(name: str) -> int:
        return sum(due[name] or 0 for each in tables for due in each["due"] if not due["blocked_by"])

    return {
        "schema": "iceberg-cli/fleet/1",
        "as_of_ms": AS_OF_MS,
        "policy": {"path": "policy.toml", "digest": "4f"},
        "tables": list(tables),
        "failed": list(failed),
        "totals": {
            "tables": len(tables),
            "due": sum(bool(each["due"]) for each in tables),
            "grades": {grade: sum(each["grade"] == grade for each in tables) for grade in _RULES},
            "offers": dict(Counter(offer["operation"] for each in tables for offer in each["offers"])),
            "open_operations": 0,
            "freed_bytes": freed("bytes"),
            "freed_files": freed("files"),
            **{
                name: total(name)
                for name in ("snapshots", "files", "small_files", "data_bytes", "metadata_bytes")
            },
            "cost": [{"currency": "EUR", "month": sum(money)}] if money else [],
        },
    }


def a_large_fleet(count: int) -> dict[str, Any]:
    """So many tables of both formats and all grades, the same each time."""
    chance = random.Random(3)
    tables = []
    for number in range(count):
        name, grade = f"prod.sales.orders_{number:04}", chance.choice([*_RULES, "ok", "ok", "due", "due"])
        if grade == "unreadable":
            tables.append(an_unreadable_table(name))
            continue
        kind = chance.choice(["iceberg", "iceberg", "delta"])
        table = a_table(
            name,
            grade,
            table=of(name, kind),
            format_version=7 if kind == "delta" else chance.choice([1, 2, 3]),
            snapshots=chance.randint(1, 4_000),
            files=chance.randint(1, 200_000),
            oldest_snapshot_ms=AS_OF_MS - chance.randint(0, 400) * DAY_MS,
            delete_ratio=chance.random() * 0.3,
            log_versions_since_checkpoint=chance.randint(0, 90) if kind == "delta" else None,
        )
        for due in table["due"]:
            due["bytes"] = int(chance.lognormvariate(20, 3))
        tables.append(table)
    return a_fleet(*tables)


def a_run(name: str, operation: str, status: str = "done", **fields: Any) -> dict[str, Any]:
    """An element of `runs` of `maintenance/1`."""
    is_done = status == "done"
    return {
        "table": of(name),
        "operation": operation,
        "status": status,
        "reason": "",
        "skipped_for": None,
        "exit_code": 0,
        "operation_id": "996ad860-2a9a-504f-8861-aeafd0b2ae29" if is_done else None,
        "committed_snapshot_id": "1728709679004827585" if is_done else None,
        "committed_version": None,
        "deleted_files_count": 25 if is_done else 0,
        "reclaimed_bytes": 3 << 20 if is_done else 0,
        "duration_ms": 1_200,
        "error": None,
        **fields,
    }


def an_error(message: str) -> dict[str, Any]:
    """The field `error` of a run."""
    return {
        "error": "CorruptFile",
        "message": message,
        "state": "Nothing was changed.",
        "next": "",
    }


def a_maintenance(*runs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A `maintenance/1` document."""
    exit_code = max((each["exit_code"] for each in runs), default=0)
    statuses = dict.fromkeys(STATUSES, 0)
    for each in runs:
        statuses[each["status"]] += 1
    return {
        "schema": "iceberg-cli/maintenance/1",
        "run_id": "199160ee-3b65-4b8f-a23f-21a24de79d24",
        "as_of_ms": AS_OF_MS,
        "policy": {"path": "policy.toml", "digest": "4f"},
        "runs": list(runs),
        "left": [],
        "failed": [],
        "totals": {
            "tables": len({each["table"]["name"] for each in runs}),
            "outcomes": dict.fromkeys(OUTCOMES, 0),
            "skipped_for": dict.fromkeys(SKIPS, 0),
            "statuses": statuses,
            "deleted_files_count": sum(each["deleted_files_count"] for each in runs),
            "reclaimed_bytes": sum(each["reclaimed_bytes"] for each in runs),
            "exit_code": exit_code,
        },
        "exit_code": exit_code,
        **fields,
    }

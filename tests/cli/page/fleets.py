"""Documents about many tables, as `survey` and `maintain` print them."""

from __future__ import annotations

import random
from typing import Any

from tests.cli.page.pages import AS_OF_MS

DAY_MS = 86_400_000
_RULES = {
    "ok": "nothing is due",
    "due": "expire-snapshots is due",
    "overdue": "its oldest snapshot is more than twice as old as its retention",
    "broken": "a check found an error",
    "unreadable": "its metadata cannot be read",
}


def a_table(name: str, grade: str = "due", **fields: Any) -> dict[str, Any]:
    """An element of `tables` of `fleet/1`: 1 MiB in 10 files are freed, unless it says otherwise."""
    due = [{"operation": "expire-snapshots", "bytes": 1 << 20, "files": 10, "exact": True, "blocked_by": []}]
    return {
        "table": {"name": name, "location": f"s3://lake/{name}", "format": "iceberg"},
        "format_version": 2,
        "grade": grade,
        "rule": _RULES[grade],
        "snapshots": 20,
        "oldest_snapshot_ms": AS_OF_MS - 30 * DAY_MS,
        "files": 100,
        "small_files": 40,
        "data_bytes": 5 << 30,
        "delete_ratio": 0.125,
        "manifests": 12,
        "manifest_target_ratio": 0.1,
        "metadata_bytes": 40_000,
        "log_versions_since_checkpoint": None,
        "due": due if grade in ("due", "overdue") else [],
        "findings": [],
        "cost": {"currency": "EUR", "month": 1.5},
        "from_cache": False,
        **fields,
    }


def an_unreadable_table(name: str) -> dict[str, Any]:
    """One of which nothing is known but why."""
    return {
        "table": {"name": name, "location": f"s3://lake/{name}", "format": "iceberg"},
        "grade": "unreadable",
        "rule": _RULES["unreadable"],
        "due": [],
        "findings": [
            {"id": "metadata", "severity": "error", "message": "Cannot read v3.metadata.json at byte 17"}
        ],
    }


def a_fleet(*tables: dict[str, Any]) -> dict[str, Any]:
    """A `fleet/1` document."""
    return {
        "schema": "iceberg-cli/fleet/1",
        "as_of_ms": AS_OF_MS,
        "policy": {"path": "policy.toml", "digest": "4f"},
        "tables": list(tables),
        "totals": {},
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
            table={"name": name, "location": f"s3://lake/{name}", "format": kind},
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
        "table": {"name": name, "location": f"s3://lake/{name}", "format": "iceberg"},
        "operation": operation,
        "status": status,
        "reason": None,
        "exit_code": 0,
        "operation_id": "996ad860-2a9a-504f-8861-aeafd0b2ae29" if is_done else None,
        "committed_snapshot_id": "1728709679004827585" if is_done else None,
        "deleted_files_count": 25 if is_done else 0,
        "reclaimed_bytes": 3 << 20 if is_done else 0,
        "duration_ms": 1_200,
        "error": None,
        **fields,
    }


def a_maintenance(*runs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A `maintenance/1` document."""
    return {
        "schema": "iceberg-cli/maintenance/1",
        "run_id": "20261126T094028Z-1",
        "as_of_ms": AS_OF_MS,
        "policy": {"path": "policy.toml", "digest": "4f"},
        "runs": list(runs),
        "left": [],
        "totals": {},
        "exit_code": 0,
        **fields,
    }

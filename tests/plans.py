"""Plans and verdicts as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from iceberg_cli.plan.plan import Base, Change, Option, Plan, Step, Task, Verdict
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals

BIG_ID = 2**63 - 1  # a JSON number of this size loses digits in many readers


def some_removals(*paths: str) -> Removals:
    rows = [
        {
            "step": "expire",
            "path": path,
            "as_written": path,
            "kind": "data_file",
            "size_bytes": 10,
            "reason": "last reached by expired snapshot 1",
        }
        for path in paths
    ]
    return Removals.of(pa.Table.from_pylist(rows, schema=SCHEMA))


def a_verdict(name: str, *, keep: bool, subject: str = "snapshot") -> Verdict:
    return Verdict(subject=subject, id=name, keep=keep, reason="why", timestamp_ms=1_700_000_000_123)


def a_plan(*, removals: Removals | None = None, verdicts: tuple[Verdict, ...] = (), **changes: Any) -> Plan:
    made = Plan(
        verb="expire-snapshots",
        table={"name": "cat.shop.events", "location": "/t", "format": "iceberg", "format_version": 2},
        base=Base(
            table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
            version="/t/metadata/v3.metadata.json",
            refs={"main": BIG_ID, "audit": 2},
            last_sequence_number=7,
            next_row_id=BIG_ID,
        ),
        as_of_ms=1_700_000_000_123,
        options={"retain_last": Option(value=2, source="--retain-last")},
        policy={"retain_last": 2},
        verdicts=verdicts or (a_verdict("1", keep=False), a_verdict("2", keep=True)),
        warnings=("a warning",),
        steps=(
            Step(
                name="expire",
                requires="every manifest has counts",
                tasks=(Task(name="m0", kind="manifest", inputs=("/t/a",)),),
                change=Change(updates=({"action": "remove-snapshots", "snapshot-ids": [1]},)),
            ),
        ),
        grace_ms=5,
        removals=some_removals("/t/data/a") if removals is None else removals,
    )
    return replace(made, **changes)

"""Plans and verdicts as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from iceberg_cli.plan.plan import Base, Change, Option, Plan, Step, Task, Verdict
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals

BIG_ID = 2**63 - 1  # a JSON number of this size loses digits in many readers


def a_removal(path: str, **others: Any) -> dict[str, Any]:
    """A row of what is removed; `others` are its fields by their names."""
    row = {
        "step": "expire",
        "path": path,
        "as_written": path,
        "kind": "data_file",
        "size_bytes": 10,
        "reason": "last reached by expired snapshot 1",
    }
    assert others.keys() <= row.keys()
    return row | others


def removal_rows(
    kinds: Sequence[str], *, min_size: int, max_size: int
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of some kinds in two steps, each of another path."""
    row = st.fixed_dictionaries(
        {
            "step": st.sampled_from(["expire", "sweep"]),
            "path": st.text(min_size=1, max_size=6),
            "as_written": st.text(max_size=6),
            "kind": st.sampled_from(kinds),
            "size_bytes": st.none() | st.integers(0, 2**62),
            "reason": st.text(max_size=4),
        }
    )
    return st.lists(row, unique_by=lambda each: each["path"], min_size=min_size, max_size=max_size)


def removals_of(*rows: Mapping[str, Any]) -> Removals:
    return Removals.of(pa.Table.from_pylist(list(rows), schema=SCHEMA))


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
        removals=removals_of(a_removal("/t/data/a")) if removals is None else removals,
    )
    return replace(made, **changes)

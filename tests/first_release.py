"""Documents as the first release wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def first_plan(document: Mapping[str, Any]) -> dict[str, Any]:
    """`plan/1` for a `plan/2` document: ids and the sequence number are numbers, and no warning is set apart."""
    plan: dict[str, Any] = json.loads(json.dumps(document))
    assert plan["schema"] == "iceberg-cli/plan/2"
    plan["schema"] = "iceberg-cli/plan/1"
    plan["base"]["last_sequence_number"] = int(plan["base"]["last_sequence_number"])
    del plan["lasting"]
    for step in plan["steps"]:
        for update in step["change"]["updates"]:
            if "snapshot-ids" in update:
                update["snapshot-ids"] = [int(snapshot_id) for snapshot_id in update["snapshot-ids"]]
    return plan

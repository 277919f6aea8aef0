"""Our restore and Delta Spark's own RESTORE, each on a copy of the same table: the same actions, the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.budget import deep_unless
from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, actions, commits
from tests.delta_live.shapes import Shape

TURNED_ON_AND_OFF = Shape(
    name="turned_on_and_off",
    properties=shapes.VECTORS,
    history=(
        shapes.insert(0, 9),
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableChangeDataFeed' = 'true')",
        shapes.delete(1),
        "ALTER TABLE {t} ADD COLUMN d DATE",
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.enableInCommitTimestamps')",
        shapes.insert(10, 19),
    ),
)
MAPPED_LATER = Shape(
    name="mapped_later",
    history=(
        shapes.insert(0, 9),
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {t} RENAME COLUMN k TO key",
        "INSERT INTO {t} VALUES (20, 'x')",
    ),
)
OWN = (TURNED_ON_AND_OFF, MAPPED_LATER)


def told(table: Path, version: int) -> dict[str, Any]:
    """What a version says, without what is each commit's own."""
    found: dict[str, Any] = {"add": {}, "remove": {}, "domainMetadata": {}}
    for action in actions(table, version):
        ((kind, body),) = action.items()
        match kind:
            case "commitInfo":
                names = (
                    "operation",
                    "operationParameters",
                    "operationMetrics",
                    "isolationLevel",
                    "isBlindAppend",
                )
                found[kind] = {name: body[name] for name in names}
            case "metaData":
                schema = json.loads(body["schemaString"])
                found[kind] = {**body, "schemaString": schema}
            case "protocol":
                found[kind] = {
                    key: sorted(value) if isinstance(value, list) else value for key, value in body.items()
                }
            case "domainMetadata":
                found[kind][body["domain"]] = {**body, "configuration": json.loads(body["configuration"])}
            case _:
                vector = body.get("deletionVector", {})
                key = body["path"], vector.get("pathOrInlineDv"), vector.get("offset")
                found[kind][key] = {
                    name: value for name, value in body.items() if name != "deletionTimestamp"
                }
    return found


@pytest.mark.parametrize("shape", deep_unless([shapes.TRACKED_LATER], [*shapes.ALL, *OWN]))
def test_the_commit_is_that_of_delta(delta_lake: DeltaLake, shape: Shape) -> None:
    newest = None
    for target in (1, 3) if shape in OWN else (1,):
        ours, _ = delta_lake.table(shape)
        theirs, _ = delta_lake.table(shape)
        newest = max(commits(ours))
        version = target if target >= 0 else newest + 1 + target
        delta_lake.sql(theirs, f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
        delta_lake.verb("restore", ours, "--to", version)
        a, b = told(ours, newest + 1), told(theirs, newest + 1)
        if a != b:
            print("=====", shape.name, version)
            for kind in sorted(a.keys() | b.keys()):
                x, y = a.get(kind), b.get(kind)
                if x == y:
                    continue
                if isinstance(x, dict) and isinstance(y, dict):
                    for k in sorted(x.keys() | y.keys(), key=repr):
                        if x.get(k) != y.get(k):
                            print(kind, k, "\n   OURS  ", x.get(k), "\n   THEIRS", y.get(k))
                else:
                    print(kind, "\n   OURS  ", x, "\n   THEIRS", y)

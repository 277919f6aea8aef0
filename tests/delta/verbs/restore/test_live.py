"""Our restore and Delta Spark's own RESTORE, each on a copy of the same table: the same actions, the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.testing.delta_rows import LiteralState, state_of
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
# Version 2 is of before row tracking: what comes back gets row ids. Version 3 has in-commit timestamps.
TARGETS = {shapes.TRACKED_LATER.name: 2, TURNED_ON_AND_OFF.name: 3}
SINCE = "delta.inCommitTimestampEnablementTimestamp"


def told(table: Path, version: int, before: LiteralState) -> dict[str, Any]:
    """What a version says that changes anything, without what is each commit's own."""
    found: dict[str, Any] = {"add": {}, "remove": {}, "domain": {}, "ids": []}
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
                own_ms = body.get("inCommitTimestamp")
                found["timed"] = own_ms is not None
            case "metaData":
                configuration = dict(body["configuration"])
                if SINCE in configuration and configuration[SINCE] == str(own_ms):
                    configuration[SINCE] = "the commit's"
                schema = json.loads(body["schemaString"])
                found[kind] = {**body, "schemaString": schema, "configuration": configuration}
            case "protocol":
                # Delta Spark repeats it; so it does the columns of clustering, below.
                if as_sets(body) != as_sets(before.protocol):
                    found[kind] = as_sets(body)
            case "domainMetadata":
                configuration = json.loads(body["configuration"])
                own = before.domains.get(body["domain"], {}).get("configuration", "null")
                if configuration != json.loads(own):
                    found["domain"][body["domain"]] = configuration
            case "add" | "remove":
                vector = body.get("deletionVector", {})
                key = body["path"], vector.get("pathOrInlineDv"), vector.get("offset")
                own_fields = {name: value for name, value in body.items() if name != "deletionTimestamp"}
                # Delta Spark leaves out the partition values that are null.
                values = {name: text for name, text in body["partitionValues"].items() if text is not None}
                if (
                    body.get("defaultRowCommitVersion") == version
                ):  # which file comes first is each writer's own
                    found["ids"].append(own_fields.pop("baseRowId"))
                found[kind][key] = {**own_fields, "partitionValues": values}
    found["ids"].sort()
    return found


def as_sets(protocol: dict[str, Any]) -> dict[str, Any]:
    return {name: {*value} if isinstance(value, list) else value for name, value in protocol.items()}


@pytest.mark.parametrize(
    "shape", deep_unless([shapes.TRACKED_LATER], [*shapes.ALL, TURNED_ON_AND_OFF, MAPPED_LATER])
)
def test_the_commit_is_that_of_delta(delta_lake: DeltaLake, shape: Shape) -> None:
    ours, _ = delta_lake.table(shape)
    theirs, _ = delta_lake.table(shape)
    target, version = TARGETS.get(shape.name, 1), max(commits(ours)) + 1
    before = state_of(ours)
    there = delta_lake.rows(theirs, target)

    delta_lake.sql(theirs, f"RESTORE TABLE {{t}} TO VERSION AS OF {target}")
    delta_lake.verb("restore", ours, "--to", target)

    assert told(ours, version, before) == told(theirs, version, before)
    for table in (ours, theirs):
        assert delta_lake.rows(table) == there
    if shape is shapes.CHANGE_DATA:
        changes = "SELECT n, k, _change_type FROM table_changes_by_path('{}', {}, {})"
        mine, peer = (
            sorted(delta_lake.sql(each, changes.format(each, version, version))) for each in (ours, theirs)
        )
        assert mine == peer != []


@pytest.mark.deep
def test_rows_have_the_ids_again_that_they_had_and_delta_goes_on(delta_lake: DeltaLake) -> None:
    table, _ = delta_lake.table(shapes.ROWS_TRACKED)
    newest = max(commits(table))
    before, there = delta_lake.rows(table, ids=True), delta_lake.rows(table, 4, ids=True)
    delta_lake.verb("restore", table, "--to", 4)
    assert delta_lake.rows(table, ids=True) == there
    delta_lake.sql(table, shapes.insert(90, 93), shapes.delete(5))
    rows = delta_lake.rows(table, ids=True)
    assert len({row[-2] for row in rows}) == len(rows)
    assert not {row[-2] for row in rows if row[0] >= 90} & {row[-2] for row in [*before, *there]}
    delta_lake.verb("restore", table, "--to", newest)
    assert delta_lake.rows(table, ids=True) == before

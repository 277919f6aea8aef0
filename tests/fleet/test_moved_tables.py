"""A table that another run rewrites and expires is not damaged for one that has just looked at it."""

from __future__ import annotations

from pathlib import Path

import pytest

import iceberg_cli as ic
from tests.fleet.builder import Format, Place, build_fleet
from tests.fleet.maintaining import EXPIRE, maintain

VERBS = {"rewrite-manifests": "{ min-manifests = 2 }", **EXPIRE}


@pytest.mark.parametrize(
    ("place", "table_format"), [("sqlite", "iceberg"), ("folder", "iceberg"), ("folder", "delta")]
)
def test_a_plan_is_made_on_the_table_as_another_run_left_it(
    tmp_path: Path, place: Place, table_format: Format
) -> None:
    fleet = build_fleet(tmp_path, {(place, table_format): 1})
    [table] = fleet.tables
    opened = ic.open_table(table.name, catalog_config=str(tmp_path / ".pyiceberg.yaml"))
    assert maintain(tmp_path, VERBS, table.name, options=fleet.options).code == 0
    policies = ic.iceberg if table_format == "iceberg" else ic.delta
    for policy in (policies.RewriteManifests(), policies.MergeDvs(), policies.ExpireSnapshots()):
        assert not opened.plan(policy).removals.count

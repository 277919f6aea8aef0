"""What a plan says of a Delta table: what is blocked and why, and groups that another writer has changed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.formats.open import open_table
from iceberg_cli.plan.plan import Plan
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit,
    a_field,
    a_metadata,
    a_protocol_with,
    write_commit,
)
from tests.cli.running import iceberg_cli
from tests.delta.verbs.rewrite_data_files.drawn import FEATURES, DrawnTable
from tests.delta.verbs.rewrite_data_files.test_law import NOW_MS


def a_table(root: Path, *, files: int = 6, tracking: str = "none", mode: str = "none") -> DrawnTable:
    table = DrawnTable(root, random.Random(3), mode=mode, tracking=tracking)
    table.found()
    table.write([table.new_file(4) for _ in range(files)])
    return table


def plan_of(root: Path, **options: Any) -> Plan:
    table = open_table(str(root), storage_options={}, catalog_config=None, on_event=lambda _: None)
    return VERB.plan(table, RewriteDataFiles(**options), as_of_ms=NOW_MS).plan


def with_(*features: str, **configuration: str) -> Callable[[DrawnTable], list[Action]]:
    def actions(table: DrawnTable) -> list[Action]:
        table.configuration |= {
            f"delta.{name.replace('_', '.')}": text for name, text in configuration.items()
        }
        return [a_protocol_with(*FEATURES, *features), table.metadata()]

    return actions


def variant(table: DrawnTable) -> list[Action]:
    fields = json.loads(table.metadata()["metaData"]["schemaString"])["fields"]
    return [
        a_protocol_with(*FEATURES, "variantType"),
        a_metadata(*fields, a_field("v", "variant"), configuration=table.configuration),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_(enableIcebergCompatV3="true"), "delta.enableIcebergCompatV3 is true, which asks for files"),
        (with_("icebergCompatV2", enableIcebergCompatV2="true"), "true, which exclude each other"),
        (with_("icebergCompatV1", enableIcebergCompatV1="true"), "true, which exclude each other"),
        (with_(universalFormat_enabledFormats="iceberg"), "delta.universalFormat.enabledFormats is iceberg"),
        (with_("rowTracking", "domainMetadata", rowTrackingSuspended="true"), "rows would lose their ids"),
        (with_("rowTracking", "domainMetadata", enableRowTracking="true"), "have no column"),
        (lambda table: [table.new_file(2, note="x")], "adds have note, which Delta's protocol does not name"),
        (variant, "values of v have a type that is not written here"),
        (
            lambda _: [a_metadata(a_field("part", "string"), partitionColumns=["part"])],
            "it has no columns besides those of its partitions",
        ),
    ],
)
def test_what_new_files_would_not_keep_blocks_the_plan(
    change: Callable[[DrawnTable], list[Action]], sentence: str, tmp_path: Path
) -> None:
    """D11, D13, D15, D16, D18, Z5"""
    table = a_table(tmp_path / "t")
    assert plan_of(table.root).blocked_by == ()
    table.commit(change(table))
    plan = plan_of(table.root)
    assert plan.due
    assert any(sentence in each for each in plan.blocked_by), plan.blocked_by
    ran = iceberg_cli("rewrite-data-files", table.root, "--yes")
    assert ran.code == 11
    assert sentence.split(maxsplit=1)[0] in ran.err + ran.out


def test_what_others_do_to_the_table_is_told(tmp_path: Path) -> None:
    """E6, E7, D23"""
    table = a_table(tmp_path / "t")
    assert plan_of(table.root).warnings == ()
    for operation in ("MERGE", "OPTIMIZE", "DELETE", "WRITE"):
        table.version += 1
        info = {"commitInfo": {"operation": operation, "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.0"}}
        write_commit(table.root, table.version, a_commit(info))
    ours = {"commitInfo": {"operation": "OPTIMIZE", "engineInfo": "iceberg-cli/9.9"}}
    write_commit(table.root, table.version + 1, a_commit(ours))
    table.version += 1
    others, changes = plan_of(table.root).warnings
    assert others.startswith("Others compact the table too (OPTIMIZE wrote version 3): ")
    assert changes.startswith("2 of the last 7 commits changed rows: ")
    assert plan_of(table.root, older_than=NOW_MS).warnings == (others,)
    table.configuration |= {
        "delta.autoOptimize.autoCompact": "auto",
        "delta.tuneFileSizesForRewrites": "true",
        "delta.autoOptimize.optimizeWrite": "true",
    }
    table.commit([table.metadata()])
    others, *_, tuned = plan_of(table.root, target_size="1GiB").warnings
    assert "(OPTIMIZE wrote version 3, delta.autoOptimize.autoCompact is auto)" in others
    assert tuned.startswith("delta.tuneFileSizesForRewrites is true: MERGE writes smaller files")


def test_sizes_are_those_of_the_table_or_as_delta_spark_counts(tmp_path: Path) -> None:
    """D23"""
    table = a_table(tmp_path / "t")
    assert plan_of(table.root).options["target_size_bytes"].value == 1 << 30
    table.configuration["delta.targetFileSize"] = "64mb"
    table.commit([table.metadata()])
    option = plan_of(table.root).options["target_size_bytes"]
    assert (option.value, option.source) == (64_000_000, "table property delta.targetFileSize")


def test_a_damaged_vector_leaves_out_its_group_alone(tmp_path: Path) -> None:
    """D3, hazard 5"""
    table = DrawnTable(tmp_path / "t", random.Random(5), partitioned=True)
    table.found()
    for part in ("x", "y"):
        actions = [table.new_file(4) for _ in range(5)]
        for action in actions:
            action["add"]["partitionValues"] = {"part": part}
        table.write(actions)
    while not list(table.root.glob("*.bin")):
        table.delete_rows()
    (vector, *_) = table.root.glob("*.bin")
    vector.write_bytes(vector.read_bytes()[:-3] + b"abc")
    ran = iceberg_cli("rewrite-data-files", table.root, "--yes", "--format", "json")
    assert ran.code == 15
    assert (ran.json["status"], len(ran.json["failed_groups"]), len(ran.json["commits"])) == ("partial", 1, 1)
    assert vector.name in ran.json["failed_groups"][0]["reason"]
    assert len(list(table.root.rglob("part-*.parquet"))) == 1

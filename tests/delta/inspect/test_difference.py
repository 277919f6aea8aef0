"""`inspect TABLE diff` of Delta tables: two versions, against what delta-rs lists of each and what Delta counted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from tests.cli.running import iceberg_cli as run
from tests.fixtures.delta_tables import EXPECTED, spark_tables
from tests.paths import FIXTURES, needs_fixtures

pytestmark = needs_fixtures

MAPPED = "34-delta-spark-column-mapping-special-paths/mapped"


def shown(table: Path, *arguments: object) -> dict[str, Any]:
    ran = run("inspect", table, "diff", *arguments, "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def listed(table: Path, version: int) -> dict[str, tuple[int, int, str]] | None:
    """By path, the bytes and records of the files of a version as delta-rs lists them; None where it cannot open it."""
    try:
        adds = DeltaTable(str(table), version=version).get_add_actions(flatten=False)
    except Exception:  # noqa: BLE001 - features that it does not know
        return None
    rows = [
        dict(zip(adds.schema.names, row, strict=True))
        for row in zip(*(c.to_pylist() for c in adds.columns), strict=True)
    ]
    return {
        unquote(row["path"]): (
            row["size_bytes"],
            row["num_records"],
            json.dumps(row.get("partition"), default=str),
        )
        for row in rows
    }


def pairs(case: str, name: str) -> list[tuple[int, int]]:
    versions = sorted(map(int, EXPECTED[case][name]["versions"]))
    return [*itertools.pairwise(versions), (versions[-1], versions[0])]


@pytest.mark.few(3)
@pytest.mark.parametrize(("case", "name"), spark_tables())
def test_differences_are_those_between_the_files_of_two_versions(case: str, name: str) -> None:
    table, known = FIXTURES / case / name, EXPECTED[case][name]["versions"]
    files = {version: listed(table, version) for pair in pairs(case, name) for version in pair}
    for before, after in pairs(case, name):
        ran = run("inspect", table, "diff", before, after, "--by-partition", "--format", "json")
        if ran.code == 15:
            assert "35-delta-spark-log-cleanup" in case, "the log of an early version is gone"
            continue
        document = ran.json
        assert document["rows"]["net"] == known[str(after)]["rows"] - known[str(before)]["rows"]
        old, new = files[before], files[after]
        if old is None or new is None:
            continue
        added, removed = [new[path] for path in new.keys() - old], [old[path] for path in old.keys() - new]
        assert document["files"] == {"added": len(added), "removed": len(removed)}
        assert document["bytes"] == {
            "added": sum(size for size, _, _ in added),
            "removed": sum(size for size, _, _ in removed),
        }
        held = [{part for _, _, part in each.values()} for each in (old, new)]
        if any(row["partition"] for row in document["partitions"]["rows"]):
            assert document["partitions"]["added"] == len(held[1] - held[0])
            assert document["partitions"]["gone"] == len(held[0] - held[1])


def test_deletion_vectors_are_added_and_removed_and_their_data_files_stay() -> None:
    table = FIXTURES / "31-delta-spark-many-dvs/table"
    known = EXPECTED["31-delta-spark-many-dvs"]["table"]["versions"]
    versions = sorted(map(int, known))
    seen = 0
    for before, after in itertools.pairwise(versions):
        document = shown(table, before, after)
        old, new = (known[str(version)].get("dv_cardinality", {}) for version in (before, after))
        deleted = (
            document["deletes"]["added"]["deleted_rows"] - document["deletes"]["removed"]["deleted_rows"]
        )
        assert deleted == sum(new.values()) - sum(old.values())
        seen += document["deletes"]["added"]["deletion_vectors"]
    assert seen


def test_a_renamed_column_is_the_same_by_its_id() -> None:
    versions = EXPECTED["34-delta-spark-column-mapping-special-paths"]["mapped"]["versions"]
    (renamed,) = [int(v) for v, each in versions.items() if each["operation"] == "RENAME COLUMN"]
    changes = shown(FIXTURES / MAPPED, renamed - 1, renamed)["schema_changes"]
    assert len(changes["renamed"]) == 1
    assert not changes["added"]
    assert not changes["removed"]


def test_properties_are_those_of_each_version() -> None:
    case, name = "33-delta-spark-row-tracking-enabled-later", "enabled"
    versions = EXPECTED[case][name]["versions"]
    stated = {int(v): each["configuration"] for v, each in versions.items() if "configuration" in each}
    first, last = min(stated), max(stated)
    changes = shown(FIXTURES / case / name, first, last)["properties"]
    assert changes["added"] == {k: v for k, v in stated[last].items() if k not in stated[first]}
    assert changes["added"]


@pytest.mark.parametrize(("word", "says"), [("999", "999"), ("mian", "is no version or time"), ("-1", "")])
def test_a_version_that_is_not_there_is_refused(word: str, says: str) -> None:
    ran = run("inspect", FIXTURES / MAPPED, "diff", word)
    assert ran.code == 2
    assert says in ran.err

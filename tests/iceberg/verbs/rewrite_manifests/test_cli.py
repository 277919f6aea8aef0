"""`rewrite-manifests` as it is typed: what it shows, writes, reports and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.lakes import CatalogTable, FolderTable, catalog_table, listing
from tests.cli.running import iceberg_cli

VERB = "rewrite-manifests"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    table = catalog_table(tmp_path, monkeypatch)
    for first in range(0, 12, 3):
        table.append(first, first + 1, first + 2)
    return table


def test_small_manifests_become_one_and_pyiceberg_reads_the_same_rows(lake: CatalogTable) -> None:
    before = {snapshot_id: lake.ids(snapshot_id) for snapshot_id in lake.snapshot_ids()}
    ran = iceberg_cli(VERB, lake.name, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["status"] == "done"
    assert (ran.json["rewritten_manifests_count"], ran.json["added_manifests_count"]) == (4, 1)
    snapshot = lake.open().current_snapshot()
    assert snapshot is not None
    assert str(snapshot.snapshot_id) == ran.json["committed_snapshot_id"]
    assert len(snapshot.manifests(lake.open().io)) == 1
    assert lake.ids() == list(range(12))
    assert {snapshot_id: lake.ids(snapshot_id) for snapshot_id in before} == before
    lake.append(100)
    assert lake.ids() == [*range(12), 100]


def test_a_second_run_says_that_nothing_is_to_do_and_writes_nothing(lake: CatalogTable) -> None:
    assert iceberg_cli(VERB, lake.name, "--yes").code == 0
    before = listing(lake.folder)
    ran = iceberg_cli(VERB, lake.name, "--yes")
    assert ran.code == 0
    assert "Nothing to do" in ran.out
    assert listing(lake.folder) == before


def test_a_dry_run_shows_every_manifest_with_its_reason_and_writes_nothing(lake: CatalogTable) -> None:
    before = listing(lake.folder)
    ran = iceberg_cli(VERB, lake.name, "--dry-run", "--exit-code", "--format", "json")
    assert ran.code == 3
    assert {verdict["subject"] for verdict in ran.json["verdicts"]} == {"manifest"}
    assert [verdict["keep"] for verdict in ran.json["verdicts"]] == [False] * 4
    assert all("small" in verdict["reason"] for verdict in ran.json["verdicts"])
    assert ran.json["options"]["target_size_bytes"] == {"value": 8 << 20, "source": "default"}
    assert ran.json["due"]
    assert listing(lake.folder) == before
    text = iceberg_cli(VERB, lake.name, "--dry-run")
    assert text.code == 0
    assert "small" in text.out


def test_a_saved_plan_leaves_alone_what_came_after_it(lake: CatalogTable, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert iceberg_cli("plan", lake.name, VERB, "-o", file).code == 0
    lake.append(50)
    ran = iceberg_cli("apply", file, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert (ran.json["rewritten_manifests_count"], ran.json["added_manifests_count"]) == (4, 1)
    snapshot = lake.open().current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(lake.open().io)) == 2
    assert lake.ids() == [*range(12), 50]


def test_the_table_property_gives_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = catalog_table(tmp_path, monkeypatch, **{"commit.manifest.target-size-bytes": "123456"})
    lake.append(1)
    options = iceberg_cli(VERB, lake.name, "--dry-run", "--format", "json").json["options"]
    expected = {"value": 123456, "source": "table property commit.manifest.target-size-bytes"}
    assert options["target_size_bytes"] == expected
    ran = iceberg_cli(VERB, lake.name, "--dry-run", "--format", "json", "--target-size", "1MiB")
    assert ran.json["options"]["target_size_bytes"] == {"value": 1 << 20, "source": "--target-size"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--content", "both"),
        ("--target-size", "0"),
        ("--target-size", "big"),
        ("--min-manifests", "0"),
        ("--spec-id", "7"),
        ("--sort-by", "nothing"),
    ],
)
def test_an_option_without_meaning_is_a_usage_error_that_names_it(
    lake: CatalogTable, option: str, value: str
) -> None:
    ran = iceberg_cli(VERB, lake.name, option, value, "--yes")
    assert ran.code == 2
    assert option in ran.err


def test_deleted_files_leave_the_manifests_and_the_history_stays(tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "t")
    for number in range(1, 4):
        table.commit(number, add=[f"a{number}"])
    table.commit(4, remove=["a1"])
    name = table.publish()
    before = table.files()
    ran = iceberg_cli(VERB, name, "--yes", "--format", "json")
    assert (ran.code, ran.json["rewritten_manifests_count"]) == (0, 3), ran.out + ran.err
    assert before <= table.files()
    (manifest,) = iceberg_cli("inspect", name, "manifests", "--format", "json").json["rows"]
    assert manifest["existing_data_files_count"] == 2
    files = iceberg_cli("inspect", name, "files", "--format", "json").json["rows"]
    assert sorted(row["file_path"].rsplit("/")[-1] for row in files) == ["a2.parquet", "a3.parquet"]
    metadata = json.loads((tmp_path / "t/metadata/v2.metadata.json").read_text())
    assert len(metadata["snapshots"]) == 5

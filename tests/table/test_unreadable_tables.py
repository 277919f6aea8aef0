"""Tables whose current state cannot be read: what a check says of them, and how their operations are closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    a_commit,
    a_remove,
    an_add,
    commit_path,
    set_modified,
    write_checkpoint,
    write_commit,
    write_file,
)
from tests.cli.lakes import four_snapshots
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log

DAY_MS = 86_400_000
NO_RETENTION = ("--retention", "0s", "--unsafe-allow-short-retention")


def journals(root: Path) -> list[Path]:
    folder = root / "_iceberg_cli" / "ops"
    return [*folder.iterdir()] if folder.exists() else []


def damage_metadata(root: Path) -> Path:
    """The newest metadata file, cut in half."""
    newest = max((root / "metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
    data = newest.read_bytes()
    newest.write_bytes(data[: len(data) // 2])
    return newest


def an_iceberg_table_with_an_open_operation(root: Path) -> Path:
    four_snapshots(root).publish()
    done = iceberg_cli("expire-snapshots", root, "--yes", "--grace", "24h", "--retain-last", "1")
    assert done.code == 0, done.err
    return damage_metadata(root)


def a_delta_table_with_an_open_operation(root: Path) -> Path:
    names = [f"{number}.parquet" for number in range(4)]
    a_log(
        root,
        [an_add(path=name, size=4) for name in names],
        [a_remove(path=name, deletionTimestamp=1_000) for name in names[1:]],
    )
    for version in range(2):
        set_modified(commit_path(root, version), 1_000 + version)
    for name in names:
        write_file(root, name, b"data", modified_ms=1_000)
    done = iceberg_cli("expire-snapshots", root, "--yes", "--limit-deletes", "1", *NO_RETENTION)
    assert done.code == 0, done.err
    newest = max((root / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-9])
    return newest


OPEN = {
    "iceberg": an_iceberg_table_with_an_open_operation,
    "delta": a_delta_table_with_an_open_operation,
}


@pytest.mark.parametrize("kind", OPEN)
def test_an_operation_of_a_table_that_cannot_be_read_is_abandoned_and_nothing_else_goes(
    tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "t"
    OPEN[kind](root)
    assert len(journals(root)) == 1
    for arguments in (("resume", root), ("resume", root, "--list"), ("inspect", root)):
        assert iceberg_cli(*arguments).code == 15
    kept = {path for path in root.rglob("*") if path.is_file() and "_iceberg_cli" not in path.parts}
    done = iceberg_cli("resume", root, "--abandon", "--format", "json")
    assert done.code == 0, done.err
    (report,) = done.json["reports"]
    assert report["status"] == "done"
    assert report["abandoned"]["orphan_files_count"] > 0
    assert report["abandoned"]["orphan_files_checked"] is False
    assert journals(root) == []
    assert {path for path in root.rglob("*") if path.is_file() and "_iceberg_cli" not in path.parts} == kept
    again = iceberg_cli("resume", root, "--abandon")
    assert (again.code, again.out) == (0, "No open operation.\n")


def test_a_check_names_the_metadata_file_and_the_older_one_that_would_do(tmp_path: Path) -> None:
    four_snapshots(tmp_path).publish()
    assert iceberg_cli("upgrade-v3", tmp_path, "--yes").code == 0
    files = sorted((tmp_path / "metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
    damaged = damage_metadata(tmp_path)
    assert damaged == files[-1]
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 15
    (finding,) = checked.json["findings"]
    assert (finding["id"], finding["where"]) == ("metadata-unreadable", str(damaged))
    assert f"; {files[-2]}, of " in finding["message"]
    assert finding["message"].endswith(", can be read")
    assert "Restore the file" in finding["remedy"]
    assert checked.json["format_version"] == 2
    assert checked.json["counts"]["error"] == 1
    assert f"error: metadata-unreadable (1)\n  {damaged.relative_to(tmp_path)}" in (
        iceberg_cli("inspect", tmp_path, "--check").out.replace(f"{tmp_path}/", "")
    )


def test_a_check_says_so_where_no_older_metadata_file_can_be_read(tmp_path: Path) -> None:
    four_snapshots(tmp_path).publish()
    for path in (tmp_path / "metadata").glob("*.metadata.json"):
        path.write_bytes(b"{")
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 15
    (finding,) = checked.json["findings"]
    assert finding["message"].endswith("; no older state of the table can be read")
    assert checked.json["format_version"] is None


def a_damaged_commit(root: Path) -> str:
    write_commit(root, 2, b'{"add":')
    return "commit-unreadable"


def a_missing_commit(root: Path) -> str:
    commit_path(root, 2).unlink()
    return "commit-missing"


def a_damaged_checkpoint(root: Path) -> str:
    write_checkpoint(root, 3, an_add()).write_bytes(b"PAR1")
    commit_path(root, 0).unlink()
    write_checkpoint(root, 2, *STATE)
    commit_path(root, 3).unlink()
    return "checkpoint-unreadable"


STATE = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
            "createdTime": NOW_MS,
        }
    },
    an_add(path="0"),
]


@pytest.mark.parametrize(
    ("damage", "older"),
    [(a_damaged_commit, 1), (a_missing_commit, 1), (a_damaged_checkpoint, 2)],
)
def test_a_check_names_what_is_damaged_in_a_log_and_the_version_that_can_be_read(
    tmp_path: Path, damage: Callable[[Path], str], older: int
) -> None:
    a_log(tmp_path, *([an_add(path=f"{version}")] for version in range(4)))
    rule = damage(tmp_path)
    assert iceberg_cli("plan", tmp_path).code == 15
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 15
    assert rule in [each["id"] for each in checked.json["findings"]]
    finding = next(each for each in checked.json["findings"] if each["id"] == rule)
    assert finding["message"].endswith(f"; version {older} can be read")
    assert finding["remedy"]


def test_every_commit_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    a_log(tmp_path, *([an_add(path=f"{version}")] for version in range(4)))
    for version in (1, 3):
        write_commit(tmp_path, version, a_commit(an_add())[:-5])
    found = iceberg_cli("inspect", tmp_path, "--check", "--format", "json").json["findings"]
    assert [each["where"] for each in found] == [str(commit_path(tmp_path, version)) for version in (1, 3)]
    assert found[-1]["message"].endswith("; version 0 can be read")


def test_a_state_that_is_named_is_not_looked_for(tmp_path: Path) -> None:
    a_log(tmp_path, *([an_add(path=f"{version}")] for version in range(4)))
    a_damaged_commit(tmp_path)
    refused = iceberg_cli("inspect", tmp_path, "--check", "--version", "1")
    assert (refused.code, "line 1" in refused.err) == (15, True)

"""`demo` where no warehouse can be: one error that says why, and what of it is there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.cli.lakes import listing
from tests.cli.running import as_nobody, iceberg_cli, mounted


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("{}/file", "Not a directory"),
        ("{}/file/below", "Not a directory"),
        ("{}/" + "n" * 300, "File name too long"),
        ("/proc/x", "No such file or directory"),
        ("", "names no folder"),
    ],
    ids=["file", "below a file", "long", "proc", "empty"],
)
def test_what_can_be_no_folder_is_a_usage_error(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("somebody's")
    ran = iceberg_cli("demo", name.format(tmp_path), "--format", "json")
    assert (ran.code, ran.json["error"]) == (2, "UsageError")
    assert reason in ran.json["message"]
    assert ran.json["state"] == "Nothing was changed."
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_may_not_be_written_to_is_denied() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with as_nobody():
            ran = iceberg_cli("demo", f"{folder}/x", "--format", "json")
        assert listing(Path(folder)) == {}
    assert (ran.code, ran.json["error"]) == (16, "AccessDenied")
    assert ran.json["message"] == f"Cannot write {folder}/x: Permission denied"
    assert ran.json["state"] == "Nothing was changed."


def test_a_read_only_disk_is_denied(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as disk:
        ran = iceberg_cli("demo", disk / "x", "--format", "json")
    assert (ran.code, ran.json["error"]) == (16, "AccessDenied")
    assert ran.json["message"] == f"Cannot write {disk}/x: Read-only file system"


def test_a_full_disk_says_that_room_is_missing_and_what_is_there(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        ran = iceberg_cli("demo", disk / "x", "--format", "json")
        assert listing(disk)
    assert (ran.code, ran.json["error"]) == (16, "StorageFull")
    assert ran.json["message"].endswith(": No space left on device")
    assert ran.json["state"] == f"What was written before is in {disk}/x/db."

"""Temporary files of runs that were killed: who removes them, and which files are never taken for one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.local.write import leftovers_in
from iceberg_cli.testing.delta_writer import an_add
from tests.cli.lakes import AS_OF_MS, four_snapshots
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log

DAY_S = 86_400
ID = UUID(int=0xABC)


def a_leftover(folder: Path, *, age_s: int = 2 * DAY_S) -> Path:
    path = folder / f".iceberg-cli-{uuid4()}.tmp"
    path.write_bytes(b"half of")
    _made_older(path, age_s)
    return path


def _made_older(path: Path, age_s: int) -> None:
    status = path.stat()
    os.utime(path, (status.st_mtime - age_s,) * 2)


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A table's folder, and the folders in which a run could leave something."""
    root = tmp_path / "t"
    if request.param == "iceberg":
        four_snapshots(root).publish()
        return root, [root / "metadata", root / "data", root]
    a_log(root, [an_add(path="a.parquet")])
    (root / "a.parquet").write_bytes(b"data")
    (root / "_delta_log" / "_sidecars").mkdir()
    return root, [root / "_delta_log", root / "_delta_log" / "_sidecars", root]


@pytest.mark.parametrize("verb", ["rewrite-manifests", "resume"])
def test_a_writing_verb_and_resume_remove_what_killed_runs_left_more_than_a_day_ago(
    table: tuple[Path, list[Path]], verb: str
) -> None:
    root, folders = table
    old = [a_leftover(folder) for folder in folders]
    young = [a_leftover(folder, age_s=DAY_S - 600) for folder in folders]
    before = iceberg_cli("inspect", root, "--check", "--format", "json").json["findings"]
    assert {each["where"] for each in before if each["id"] == "leftover-temporary-file"} == set(map(str, old))
    for looking in (["resume", root, "--list"], ["rewrite-manifests", root, "--dry-run"]):
        assert iceberg_cli(*looking).code == 0
        assert all(path.exists() for path in old)
    ran = iceberg_cli(verb, root, *(["--yes"] if verb != "resume" else []))
    assert ran.code == 0
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)
    if verb == "resume":
        first = min(map(str, old))
        assert f"Removed 3 temporary files that a killed run had left, such as {first}." in ran.out
    after = iceberg_cli("inspect", root, "--check", "--format", "json").json["findings"]
    assert "leftover-temporary-file" not in {each["id"] for each in after}


def test_nothing_is_taken_for_a_leftover_that_has_another_name_or_is_no_file(tmp_path: Path) -> None:
    names = [
        f"iceberg-cli-{ID}.tmp",
        f".iceberg-cli-{ID}.tmp2",
        f".iceberg-cli-{ID}.tmp\n",
        f".iceberg-cli-{str(ID).upper()}.tmp",
        f".iceberg-cli-{ID.hex}.tmp",
        ".iceberg-cli-x.tmp",
        f"x.iceberg-cli-{ID}.tmp",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"somebody else's")
    (tmp_path / f".iceberg-cli-{UUID(int=1)}.tmp").mkdir()
    (tmp_path / f".iceberg-cli-{UUID(int=2)}.tmp").symlink_to(tmp_path / names[0])
    ours = a_leftover(tmp_path)
    later_ms = time.time_ns() // 1_000_000 + 9 * DAY_S * 1_000  # noqa: TID251 - the files are of now
    folders = [str(tmp_path), str(tmp_path), str(tmp_path / "absent"), str(ours)]
    assert leftovers_in(folders, now_ms=later_ms) == [str(ours)]


@pytest.mark.parametrize("write", ["put_if_absent", "replace"])
def test_what_a_killed_write_leaves_is_known_by_its_name(tmp_path: Path, write: str) -> None:
    # The process dies in front of the system call that gives the file its name.
    pid = os.fork()
    if not pid:
        os.link = os.replace = lambda *_, **__: os._exit(0)  # type: ignore[assignment]
        getattr(LocalStorage(unnamed_temporaries=False), write)(f"{tmp_path}/file", b"content")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    [left] = tmp_path.iterdir()
    _made_older(left, 2 * DAY_S)
    now_ms = time.time_ns() // 1_000_000  # noqa: TID251 - the file is of now
    assert leftovers_in([str(tmp_path)], now_ms=now_ms) == [str(left)]


def test_an_operation_that_is_open_does_not_keep_leftovers(tmp_path: Path) -> None:
    root = tmp_path / "t"
    four_snapshots(root).publish()
    ran = iceberg_cli("expire-snapshots", root, "--as-of", AS_OF_MS, "--grace", "1h", "--yes")
    assert ran.code == 0
    left = a_leftover(root / "metadata")
    assert iceberg_cli("rewrite-manifests", root, "--yes").code == 0
    assert not left.exists()

"""A verb that has nothing to do on a kind of table says why and exits 0; what the system forbids has its own words."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, StorageFull, unavailable
from iceberg_cli.formats import maintenance_verbs, verbs_of
from iceberg_cli.testing.delta_writer import an_add
from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import FolderTable, four_snapshots, listing
from tests.cli.running import as_nobody, iceberg_cli, mounted
from tests.delta_opened import a_log
from tests.hazard_tables import Hazard, entry

NO_DELETES = "main has no delete files"
REASONS = {
    (1, "merge-dvs"): "the table has format version 1, which has no delete files",
    (2, "merge-dvs"): NO_DELETES,
    (3, "merge-dvs"): NO_DELETES,
    (1, "assign-row-ids"): "the table has format version 1, and rows have ids from version 3 on; "
    "`upgrade-v3 --with assign-row-ids` does both",
    (2, "assign-row-ids"): "the table has format version 2, and rows have ids from version 3 on; "
    "`upgrade-v3 --with assign-row-ids` does both",
}


def a_table(folder: Path, version: int) -> str:
    """A table of a format version without deletes, with one snapshot that stays."""
    table = Hazard(location=str(folder), format_version=version)
    table.manifest("m1", entry(ADDED, *table.data("a")))
    table.snapshot(9, "m1")
    table.publish(main=9)
    return str(folder)


@pytest.mark.pairs
@pytest.mark.parametrize("verb", maintenance_verbs())
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_nightly_line_over_tables_of_every_version_is_green(
    tmp_path: Path, version: int, verb: str
) -> None:
    name = a_table(tmp_path / "t", version)
    before = listing(tmp_path)
    reason = REASONS.get((version, verb))
    assert iceberg_cli(verb, name, "--dry-run", "--format", "json").json["not_applicable"] == reason
    text = iceberg_cli(verb, name, "--yes")
    assert text.code == 0, text.err
    document = iceberg_cli(verb, name, "--yes", "--format", "json").json
    assert (document["status"], document["not_applicable"]) == ("nothing_to_do", reason)
    if reason is not None:
        assert text.out.partition("\n")[0].startswith(f"Nothing to do: {reason}")
        assert f"{verb}: nothing to do: {reason}\n" in iceberg_cli("plan", name).out
        assert listing(tmp_path) == before


@pytest.mark.parametrize("verb", [verb for verb in verbs_of("delta") if verb in maintenance_verbs()])
def test_the_same_line_is_green_on_a_delta_table_without_any_feature(tmp_path: Path, verb: str) -> None:
    a_log(tmp_path / "t", [an_add(path="a.parquet")])
    ran = iceberg_cli(verb, tmp_path / "t", "--yes", "--format", "json")
    assert ran.code == 0, ran.out
    reason = "the table has no deletion vectors" if verb == "merge-dvs" else None
    assert ran.json["not_applicable"] == reason


@pytest.mark.parametrize("verb", ["rewrite-manifests", "merge-dvs"])
def test_a_table_without_a_snapshot_has_nothing_for_it(tmp_path: Path, verb: str) -> None:
    name = FolderTable(folder=tmp_path / "t").publish()
    ran = iceberg_cli(verb, name, "--yes", "--format", "json")
    assert (ran.code, ran.json["not_applicable"]) == (0, "main has no snapshot")


# -- what the operating system forbids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("EACCES", AccessDenied),
        ("EPERM", AccessDenied),
        ("EROFS", AccessDenied),
        ("ENOSPC", StorageFull),
        ("EDQUOT", StorageFull),
        ("EIO", BackendUnavailable),
    ],
)
def test_errors_are_told_apart_by_their_number(name: str, kind: type[BackendUnavailable]) -> None:
    number = getattr(errno, name)
    error = unavailable("Cannot write /x", OSError(number, os.strerror(number)))
    assert (type(error), error.exit_code) == (kind, 16)
    assert error.next_step == kind.default_next_step


def test_a_table_that_may_not_be_read_says_whose_right_is_missing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = four_snapshots(Path(folder) / "t")
        name = table.publish()
        for each in (Path(folder), *Path(folder).rglob("*")):
            each.chmod(0o755)
        (table.folder / "metadata").chmod(0)
        with as_nobody():
            ran = iceberg_cli("inspect", name, "--format", "json")
        (table.folder / "metadata").chmod(0o755)
    assert (ran.code, ran.json["error"]) == (16, "AccessDenied")
    assert "Permission denied" in ran.json["message"]
    assert "Give this user that right" in ran.json["next"]


def test_a_full_disk_says_that_room_is_missing_and_the_same_command_goes_on_later(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as small_disk:
        name = four_snapshots(small_disk / "t").publish()
        before = listing(small_disk)
        ballast = small_disk / "ballast"
        with open(ballast, "wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        ran = iceberg_cli("rewrite-manifests", name, "--yes", "--format", "json")
        assert (ran.code, ran.json["error"]) == (16, "StorageFull"), ran.out
        assert "No space left on device" in ran.json["message"]
        assert "Free space there or raise the quota" in ran.json["next"]
        ballast.unlink()
        assert before.items() <= listing(small_disk).items()
        assert iceberg_cli("rewrite-manifests", name, "--yes").code == 0

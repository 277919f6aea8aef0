"""Who is asked before anything is written: somebody on a terminal, or `--yes`; never nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.crash.world import DELTA_TABLE
from tests.cli.lakes import AS_OF, GONE, four_snapshots, listing, unchanged
from tests.cli.running import Ran, expire, iceberg_cli
from tests.crash.delta_scenes import Scene
from tests.delete_tables import DeleteTable


def an_iceberg_table(folder: Path) -> str:
    """Version 2; something is due for every verb but `assign-row-ids` and `merge-dvs`."""
    return four_snapshots(folder).publish()


def an_upgraded_table(folder: Path) -> str:
    """Version 3, and its rows have no ids yet."""
    name = four_snapshots(folder).publish()
    assert iceberg_cli("upgrade-v3", name, "--yes").code == 0
    return name


def a_table_with_position_deletes(folder: Path) -> str:
    table = DeleteTable(storage=LocalStorage(), location=str(folder))
    table.data("a", 100, k="x")
    table.commit(1)
    table.positions("p", {"a": [1, 2]}, k="x")
    table.commit_and_publish(2)
    return str(folder)


def a_delta_table(folder: Path) -> str:
    """Something is due for every verb: tombstones, several vectors, no checkpoint, an old protocol."""
    for path, data in Scene().world.files.items():
        target = folder / path.removeprefix(f"{DELTA_TABLE}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        os.utime(target, (0, 0))
    return str(folder)


Make = Callable[[Path], str]
DUE: dict[str, tuple[Make, tuple[str, ...]]] = {
    "expire-snapshots": (an_iceberg_table, ()),
    "rewrite-manifests": (an_iceberg_table, ()),
    "merge-dvs": (a_table_with_position_deletes, ()),
    "upgrade-v3": (an_iceberg_table, ()),
    "assign-row-ids": (an_upgraded_table, ()),
    "Delta expire-snapshots": (a_delta_table, ()),
    "Delta rewrite-manifests": (a_delta_table, ("--checkpoint", "classic")),
    "Delta merge-dvs": (a_delta_table, ("--min-files", "2")),
    "Delta upgrade-v3": (a_delta_table, ("--feature", "inCommitTimestamp")),
    "Delta assign-row-ids": (a_delta_table, ()),
}


@pytest.fixture(params=DUE)
def due(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, tuple[str, ...]]:
    """A verb, a table on which it has something to do, and its options."""
    make, options = DUE[request.param]
    verb, name = str(request.param).rpartition(" ")[2], make(tmp_path / "t")
    if request.param == "Delta assign-row-ids":
        assert iceberg_cli("upgrade-v3", name, "--feature", "rowTracking", "--yes").code == 0
    ran = iceberg_cli(verb, name, *options, "--dry-run", "--exit-code")
    assert ran.code == 3, ran.out + ran.err
    return verb, name, options


def asked_in_vain(ran: Ran) -> None:
    assert ran.code == 2, ran.out + ran.err
    assert "Nobody can be asked: standard input is no terminal" in ran.err
    assert "Nothing was changed." in ran.err
    assert "Add --yes, or look with --dry-run." in ran.err


def test_no_verb_goes_on_without_a_terminal_and_without_yes(due: tuple[str, str, tuple[str, ...]]) -> None:
    verb, name, options = due
    before = listing(Path(name))
    asked_in_vain(iceberg_cli(verb, name, *options))
    asked_in_vain(iceberg_cli(verb, name, *options, "--quiet"))
    ran = iceberg_cli(verb, name, *options, "--format", "json")
    assert (ran.code, ran.json["exit_code"], ran.json["next"]) == (2, 2, "Add --yes, or look with --dry-run.")
    assert listing(Path(name)) == before
    assert iceberg_cli(verb, name, *options, "--yes").code == 0
    assert listing(Path(name)) != before


@pytest.mark.parametrize("verb", ["expire-snapshots", "rewrite-manifests"])
def test_a_saved_plan_does_not_go_on_either(tmp_path: Path, verb: str) -> None:
    name, file = an_iceberg_table(tmp_path / "t"), tmp_path / "plan.json"
    assert iceberg_cli("plan", name, verb, "--output", file).code == 0
    with unchanged(tmp_path):
        asked_in_vain(iceberg_cli("apply", file))


def test_an_expiry_without_any_file_to_delete_is_asked_for_too(tmp_path: Path) -> None:
    name = an_iceberg_table(tmp_path / "t")
    with unchanged(tmp_path):
        asked_in_vain(iceberg_cli("expire-snapshots", name, *AS_OF, "--cleanup", "none"))


@pytest.mark.parametrize("verb", ["resume", "expire-snapshots", "rewrite-manifests"])
def test_the_sweep_of_an_open_operation_asks_nothing_for_that_was_agreed(tmp_path: Path, verb: str) -> None:
    table = four_snapshots(tmp_path / "t")
    name, files = table.publish(), table.files()
    assert expire(name, *AS_OF, "--limit-deletes", "1").json["status"] == "partial"
    assert not table.files() >= GONE
    ran = iceberg_cli(verb, name, *(() if verb == "resume" else AS_OF))
    assert ran.code in (0, 2), ran.out + ran.err
    assert files - table.files() == GONE


@pytest.mark.parametrize("verb", ["rewrite-manifests", "merge-dvs", "Delta merge-dvs"])
def test_a_target_size_whose_unit_was_forgotten_is_a_usage_error(tmp_path: Path, verb: str) -> None:
    make, options = DUE[verb]
    name = make(tmp_path / "t")
    with unchanged(tmp_path):
        ran = iceberg_cli(verb.rpartition(" ")[2], name, *options, "--target-size", "8", "--yes")
        assert ran.code == 2
        assert "--target-size must be between 4KiB and 1TiB, not '8', which is 8 bytes" in ran.err

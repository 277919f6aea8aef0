"""One truth for both engines: every verb plans the same on Spark, and every inspection finds the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.context import now_ms
from iceberg_cli.engines.spark.session import Session
from iceberg_cli.storage.local import LocalStorage
from tests.cli.lakes import four_snapshots, listing
from tests.cli.running import Ran, iceberg_cli
from tests.delete_tables import DeleteTable
from tests.fixtures.test_inspect_fixtures import ALL
from tests.manifest_tables import live_entries, of_folder
from tests.paths import FIXTURES, needs_fixtures
from tests.test_iceberg_rewrite_manifests import a_lot

pytestmark = pytest.mark.jvm

NOW_MS = now_ms()
COMMANDS = {
    "expire": ("plan", "expire-snapshots", "--older-than", "1s", "--retain-last", "1"),
    "rewrite": ("plan", "rewrite-manifests", "--target-size", "8KiB", "--min-manifests", "1"),
    "merge": ("plan", "merge-dvs"),
    "upgrade": ("plan", "upgrade-v3"),
    "row ids": ("plan", "assign-row-ids"),
    "check": ("inspect", "--check", "--deep"),
    "files": ("inspect", "files"),
}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one engine learnt would spare the other one its reading."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache") / "none"))


def both(table: object, command: tuple[str, ...]) -> Ran:
    """Run a command with each engine.

    Returns:
        What both said.
    """
    verb, *options = command
    shared = ("--as-of", NOW_MS, "--format", "json")
    local, spark = (
        iceberg_cli(verb, table, *options, *shared, "--engine", name) for name in ("local", "spark")
    )
    assert spark.out == local.out
    assert spark == local
    return local


def in_turn() -> list[Any]:
    """Every table with every command, as deep tests but for one command of each table."""
    names = list(COMMANDS)
    return [
        pytest.param(table, name, marks=() if names[number % len(names)] == name else pytest.mark.deep)
        for number, table in enumerate(ALL)
        for name in names
    ]


@needs_fixtures
@pytest.mark.parametrize(("table", "command"), in_turn())
def test_tables_of_other_engines_get_the_same_answer(
    spark_session: Session, table: str, command: str
) -> None:
    both(FIXTURES / table, COMMANDS[command])


def with_deletes(folder: Path) -> None:
    """A table of version 3 with position deletes and deletion vectors of several commits in two partitions."""
    table = DeleteTable(storage=LocalStorage(), location=str(folder))
    for number in range(1, 5):
        table.data(f"d{number}", 100, k=f"k{number % 2}")
        table.commit(number)
    table.positions("p", {"d1": [1, 5], "d3": [7]}, k="k1")
    table.commit(5)
    table.vectors("v1", {"d2": range(10)}, k="k0")
    table.commit(6)
    table.vectors("v2", {"d2": range(20), "d4": [3]}, k="k0")
    table.commit(7)
    table.publish()


def with_dangling_deletes(folder: Path) -> None:
    """A table of version 2 with position deletes of two partitions that dangle, that are needed, and that do both."""
    table = DeleteTable(storage=LocalStorage(), location=str(folder), format_version=2)
    for name, k in (("a", "x"), ("b", "x"), ("c", "y")):
        table.data(name, 100, k=k)
    table.commit(1)
    table.positions("gone", {"b": [1, 5], "never": [2]}, k="x")
    table.positions("mixed", {"a": [7], "b": [8]}, k="x")
    table.positions("of-y", {"c": [7]}, k="y")
    table.commit(2)
    table.remove("b", "c")
    table.commit(3)
    table.publish()


def of_four_snapshots(folder: Path) -> None:
    """A table from which three snapshots and what they alone reach can go."""
    four_snapshots(folder).publish()


def of_many_files(folder: Path) -> None:
    """A table of version 2 with 400 files of 20 partitions, strewn over 8 manifests."""
    a_lot(2, storage=LocalStorage(), location=str(folder)).table()


CARRIED_OUT = {
    "expire": (of_four_snapshots, ("expire-snapshots", "--older-than", "1s", "--retain-last", "1")),
    "rewrite": (with_deletes, ("rewrite-manifests", "--min-manifests", "1")),
    "rewrite into many": (of_many_files, ("rewrite-manifests", "--target-size", "8KiB")),
    "merge": (with_deletes, ("merge-dvs", "--min-files", "1")),
    "merge below version 3": (with_dangling_deletes, ("merge-dvs",)),
    "upgrade": (of_four_snapshots, ("upgrade-v3",)),
}


BY_CHANCE = {"operation_id", "committed_snapshot_id", "metadata_location", "duration_ms"}


@pytest.mark.parametrize("name", CARRIED_OUT)
def test_a_verb_leaves_the_same_table_and_says_the_same_of_it(
    spark_session: Session, tmp_path: Path, name: str
) -> None:
    make, (verb, *options) = CARRIED_OUT[name]
    folder, aside = tmp_path / "t", tmp_path / "aside"
    make(folder)
    shutil.copytree(folder, aside)
    found: list[Any] = []
    for engine in ("local", "spark"):
        shutil.rmtree(folder)
        shutil.copytree(aside, folder)
        done = iceberg_cli(verb, folder, *options, "--yes", "--format", "json", "--engine", engine)
        assert done.code == 0, done.out + done.err
        checked = iceberg_cli("inspect", folder, "--check", "--format", "json", "--engine", engine).json
        left = {path for path in listing(folder) if (aside / path).exists()}
        report = {key: value for key, value in done.json.items() if key not in BY_CHANCE}
        # A merge writes entries of new files, whose names are drawn.
        entries = live_entries(of_folder(folder)) if verb != "merge-dvs" else []
        found.append((report, left, len(listing(folder)), checked["counts"], checked["checked"], entries))
    assert found[1] == found[0]
    assert found[0][0]["status"] == "done"

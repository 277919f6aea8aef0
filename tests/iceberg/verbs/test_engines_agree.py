"""One truth for both engines: every verb plans the same on Spark, and every inspection finds the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.engines.spark.session import Session
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_rows import read_rows
from tests.budget import deep_unless
from tests.cli.lakes import listing
from tests.cli.running import iceberg_cli
from tests.conformance.both_engines import (
    BY_CHANCE,
    CARRIED_OUT,
    DRAWS_NAMES,
    both,
)
from tests.fixtures.iceberg_tables import ALL
from tests.manifest_tables import live_entries, of_folder
from tests.paths import FIXTURES, needs_fixtures

pytestmark = pytest.mark.jvm

COMMANDS = {
    "expire": ("plan", "expire-snapshots", "--older-than", "1s", "--retain-last", "1"),
    "rewrite": ("plan", "rewrite-manifests", "--target-size", "8KiB", "--min-manifests", "1"),
    "merge": ("plan", "merge-dvs"),
    "upgrade": ("plan", "upgrade-v3"),
    "row ids": ("plan", "assign-row-ids"),
    "orphans": (
        "plan",
        "remove-orphan-files",
        "--older-than",
        "0s",
        "--unsafe-allow-young",
        "--metadata-files",
    ),
    "check": ("inspect", "--check", "--deep"),
    "files": ("inspect", "files"),
}
EACH_VERB = ("expire", "rewrite", "merge", "upgrade", "compact")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one engine learnt would spare the other one its reading."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache") / "none"))


@needs_fixtures
@pytest.mark.deep
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("table", ALL)
def test_tables_of_other_engines_get_the_same_answer(
    spark_session: Session, table: str, command: str
) -> None:
    both(FIXTURES / table, COMMANDS[command])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", deep_unless(EACH_VERB, [*CARRIED_OUT]))
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
        entries = live_entries(of_folder(folder)) if verb not in DRAWS_NAMES else []
        rows = rows_of(folder) if name == "compact" else []
        found.append(
            (report, left, len(listing(folder)), checked["counts"], checked["checked"], entries, rows)
        )
    assert found[1] == found[0]
    assert found[0][0]["status"] == "done"
    assert name != "compact" or found[0][-1] == rows_of(aside)


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    """Of the head, by their ids, with the sequence numbers of their last updates."""
    newest = max(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    document = json.loads(newest.read_text())
    rows = read_rows(LocalStorage(), document, document["current-snapshot-id"])
    return sorted((row.row_id, row.last_updated, *row.values.values()) for row in rows)

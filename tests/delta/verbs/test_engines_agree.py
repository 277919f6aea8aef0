"""One truth for both engines: every verb plans the same for a Delta table on Spark, and leaves the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.engines.spark.session import Session
from tests.budget import FULL, deep_unless
from tests.cli.lakes import listing
from tests.cli.running import iceberg_cli
from tests.conformance.both_engines import BY_CHANCE, NOW_MS, both
from tests.delta_opened import opened
from tests.fixtures.delta_tables import a_copy, sound_tables
from tests.paths import FIXTURES, needs_fixtures

pytestmark = [pytest.mark.jvm, needs_fixtures]

HOUR_AGO_S = NOW_MS / 1_000 - 3_600
SHORT = ("--retention", "0s", "--unsafe-allow-short-retention", "--log-retention", "0s")
PLANS = {
    "vacuum": ("plan", "expire-snapshots", *SHORT),
    "vacuum lite": ("plan", "expire-snapshots", *SHORT, "--mode", "lite"),
    "checkpoint": ("plan", "rewrite-manifests"),
    "merge": ("plan", "merge-dvs", "--min-files", "1"),
    "upgrade": ("plan", "upgrade-v3", "--feature", "deletionVectors"),
    "row ids": ("plan", "assign-row-ids"),
    "check": ("inspect", "--check", "--deep"),
    "files": ("inspect", "files"),
}
SIDECARS = "30-delta-spark-v2-checkpoint-sidecars/table"
MANY_DVS = "31-delta-spark-many-dvs/table"
PENDING = "33-delta-spark-row-tracking-enabled-later/pending"
MULTI_PART = "12-delta-golden-checkpoints/multi-part-checkpoint"
CARRIED_OUT = {
    "vacuum": (MANY_DVS, ("expire-snapshots", *SHORT)),
    "vacuum lite": (MANY_DVS, ("expire-snapshots", *SHORT, "--mode", "lite")),
    "log cleanup": (SIDECARS, ("expire-snapshots", *SHORT)),
    "classic checkpoint": (MANY_DVS, ("rewrite-manifests", "--checkpoint", "classic")),
    "V2 checkpoint": (SIDECARS, ("rewrite-manifests", "--checkpoint", "v2", "--part-size", "2")),
    "log compaction": (MANY_DVS, ("rewrite-manifests", "--compact-log", "2..9")),
    "merge": (MANY_DVS, ("merge-dvs", "--min-files", "1")),
    "upgrade": (MULTI_PART, ("upgrade-v3", "--feature", "deletionVectors")),
    "row ids": (PENDING, ("assign-row-ids", "--batch-size", "2")),
}
EACH_VERB = ("vacuum", "classic checkpoint", "merge", "upgrade", "row ids")


def jobs(session: Session) -> int:
    """How many jobs the session has run, but for those of groups."""
    return len(session.spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def few_or_all() -> list[Any]:
    """Each table with one command of its own; with FULL_SUITES with all."""
    names = list(PLANS)
    found = []
    for number, table in enumerate(sound_tables()):
        own = names[number % len(names)]
        found += [pytest.param(table, name, id=f"{table}-{name}") for name in (names if FULL else [own])]
    return found


@pytest.mark.deep
@pytest.mark.parametrize(("table", "name"), few_or_all())
def test_tables_of_other_engines_get_the_same_answer(spark_session: Session, table: str, name: str) -> None:
    before = jobs(spark_session)
    both(FIXTURES / table, PLANS[name])
    assert jobs(spark_session) > before


@pytest.mark.few(2)
@pytest.mark.parametrize("name", deep_unless(EACH_VERB, [*CARRIED_OUT]))
def test_a_verb_leaves_the_same_table_and_says_the_same_of_it(
    spark_session: Session, tmp_path: Path, name: str
) -> None:
    table, (verb, *options) = CARRIED_OUT[name]
    folder, aside = tmp_path / "t", a_copy(table, tmp_path / "aside")
    for path in aside.rglob("*"):  # commits of one moment count as one ms apart, the last ones in the future
        os.utime(path, (HOUR_AGO_S, HOUR_AGO_S))
    found: list[Any] = []
    for engine in ("local", "spark"):
        before = jobs(spark_session)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(aside, folder)
        done = iceberg_cli(verb, folder, *options, "--yes", "--format", "json", "--engine", engine)
        assert done.code == 0, done.out + done.err
        assert (jobs(spark_session) > before) == (engine == "spark")
        checked = iceberg_cli("inspect", folder, "--check", "--format", "json").json
        left = {path for path in listing(folder) if (aside / path).exists()}
        report = {key: value for key, value in done.json.items() if key not in BY_CHANCE}
        found.append(
            (report, left, len(listing(folder)), checked["counts"], checked["checked"], state(folder))
        )
    assert found[1] == found[0]
    assert found[0][0]["status"] == "done"


def state(folder: Path) -> list[dict[str, Any]]:
    """The active files, without the drawn names of their vectors."""
    adds = opened(folder).snapshot.adds.to_pylist()
    for add in adds:
        if add["deletionVector"] is not None:
            add["deletionVector"] = add["deletionVector"]["cardinality"]
    return sorted(adds, key=lambda add: str(add["path"]))

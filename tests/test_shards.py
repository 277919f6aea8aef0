"""Three suites in a row run every deep test, each once; and which number a suite has."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from tests import budget, shards
from tests.paths import ROOT


def collected(*arguments: str, suite_number: int = 0) -> list[str]:
    """The ids of the deep tests that a run would have."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-m",
        "deep",
        *arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "FULL_SUITES"}
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, shards.VARIABLE: str(suite_number)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 5), ran.stdout + ran.stderr  # 5: a shard of few tests may have none
    return [line for line in ran.stdout.splitlines() if re.match(r"tests/.*::", line)]


@pytest.mark.deep
def test_three_suites_in_a_row_run_every_deep_test_once() -> None:
    whole = collected("-k", "test")
    parts = [collected(suite_number=number) for number in (7, 8, 9)]
    assert sorted(test for part in parts for test in part) == sorted(whole)
    assert len({*whole}) == len(whole) > 0
    assert collected(suite_number=10) == parts[0]


@pytest.mark.deep
def test_a_shard_leaves_out_what_is_not_asked_for_by_its_id() -> None:
    module = "tests/test_shards.py"
    name = f"{module}::test_three_suites_in_a_row_run_every_deep_test_once"
    other = zlib.crc32(name.encode()) + 1
    assert collected(module, suite_number=other) == []
    assert collected(name, suite_number=other) == [name]


@pytest.mark.deep
def test_what_workers_forget_of_tests_the_process_that_shows_them_keeps() -> None:
    name = "test_deep_tests_draw_by_the_number_of_the_suite_and_others_always_the_same"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "1",
        "--durations-min=0",
        "--durations=5",
        f"tests/test_shards.py::{name}",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"s call +tests/test_shards.py::{name}", ran.stdout), ran.stdout
    assert "1 passed" in ran.stdout


def test_deep_tests_draw_by_the_number_of_the_suite_and_others_always_the_same() -> None:
    cases = range(1_000)
    budget.draw_by(8, "one")
    drawn = budget.some(cases, 9)
    for number, test in ((9, "one"), (8, "another")):
        budget.draw_by(number, test)
        assert budget.some(cases, 9) != drawn
    budget.draw_by(8, "one")
    assert budget.some(cases, 9) == drawn


def test_of_products_as_few_are_always_run_as_have_all_pairs_together() -> None:
    def of(*counts: int) -> list[budget.Combination]:
        return [tuple(enumerate(values)) for values in itertools.product(*map(range, counts))]

    two = of(7, 3)
    assert len(budget.covering(two)) == 7
    assert {value for case in budget.covering(two) for value in case} == {
        value for case in two for value in case
    }
    three = of(4, 3, 3)
    pairs = {pair for case in three for pair in itertools.combinations(case, 2)}
    assert {pair for case in budget.covering(three) for pair in itertools.combinations(case, 2)} == pairs
    assert len(budget.covering(three)) <= 14  # of 36; 12 is the least


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_number_is_the_count_of_commits_or_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {int(time.time()) // 86_400 + late for late in (0, 1)}  # noqa: TID251 - midnight may come
    monkeypatch.setattr(shards, "_ROOT", tmp_path)
    assert shards.newest_number() in days
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    for number in range(3):
        git(whole, "commit", "-q", "--allow-empty", "-m", str(number))
    monkeypatch.setattr(shards, "_ROOT", whole)
    assert shards.newest_number() == 3
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{whole}", "shallow")
    monkeypatch.setattr(shards, "_ROOT", tmp_path / "shallow")
    assert shards.newest_number() in days

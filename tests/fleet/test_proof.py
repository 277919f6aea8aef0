"""A fleet, 10 of its tables broken and 3 written to, is maintained: twice at once, killed, and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.budget import FULL
from tests.cli.lakes import listing
from tests.cli.running import JSON, Ran, iceberg_cli
from tests.fleet.builder import BROKEN, Fleet, FleetTable, Format, Place, build_fleet
from tests.fleet.maintaining import policy_file
from tests.paths import ROOT
from tests.servers import Versitygw

# 300 tables, and an eighth of them where the deep suite has a budget.
COUNTS: dict[tuple[Place, Format], int] = {
    place: count if FULL else count // 8
    for place, count in {
        ("folder", "iceberg"): 60, ("folder", "delta"): 60, ("sqlite", "iceberg"): 60,
        ("rest", "iceberg"): 40, ("s3", "iceberg"): 40, ("s3", "delta"): 40,
    }.items()
}  # fmt: skip
VERBS = {
    "expire-snapshots": '{ older-than = "5d", retain-last = 1 }',
    "rewrite-manifests": "{ min-manifests = 2 }",
    "merge-dvs": "{ min-files = 2 }",
}
BY_SEVERITY = (1, 13, 15, 14, 16, 12, 10, 11, 0)  # of exit codes, the worst first
VOUCHED = "--unsafe-conditional-writes"  # for Delta tables on S3
WRITTEN = 4  # the table of this number, of three places
RECORDS_BEFORE_THE_KILL = sum(COUNTS.values()) // 5


def worst(codes: Sequence[int]) -> int:
    return min(codes, key=BY_SEVERITY.index)


@contextmanager
def writers(fleet: Fleet, tables: Sequence[FleetTable]) -> Iterator[dict[str, set[int]]]:
    """A process that appends to tables meanwhile; by table, at the end, the rows that it committed."""
    committed: dict[str, set[int]] = {table.name: set() for table in tables}
    command = [sys.executable, "-m", "tests.fleet.writing", *committed]
    pipe, env = subprocess.PIPE, {**os.environ, "PYICEBERG_HOME": str(fleet.root)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield committed
    out, _ = process.communicate()
    assert process.returncode == 0
    for line in out.splitlines():
        name, row = line.split()
        committed[name].add(int(row))


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "iceberg_cli", *arguments, "--jsonl", "-q"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def by_table(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(run["table"]["name"], []).append(run)
    return found


def check_rows(fleet: Fleet, committed: Mapping[str, set[int]]) -> None:
    """Every table that can be read has its rows, and those that other writers committed."""
    for table in fleet.sound:
        rows = fleet.rows_of(table)
        assert len(rows) == len(set(rows)), table.name
        assert set(rows) == table.rows | committed.get(table.name, set()), table.name


@pytest.mark.deep
def test_a_small_fleet_is_maintained_and_its_broken_tables_are_named(tmp_path: Path) -> None:
    counts: dict[tuple[Place, Format], int] = {
        ("folder", "iceberg"): 5, ("folder", "delta"): 5, ("sqlite", "iceberg"): 6,
    }  # fmt: skip
    fleet = build_fleet(tmp_path, counts, broken=BROKEN)
    check_survey(fleet, iceberg_cli("survey", *fleet.patterns, *fleet.options, VOUCHED, *JSON))
    with the_broken_as_they_are(fleet):
        check_last_runs(fleet, {}, command_for(fleet))


@pytest.mark.deep
@pytest.mark.jvm
def test_a_fleet_is_maintained_whatever_happens_meanwhile(
    tmp_path: Path, rest_server: str, versitygw: Versitygw
) -> None:
    fleet = build_fleet(tmp_path, COUNTS, rest_uri=rest_server, s3=versitygw, broken=BROKEN)
    check_rows(fleet, {})
    check_survey(fleet, iceberg_cli("survey", *fleet.patterns, *fleet.options, VOUCHED, *JSON))
    command = command_for(fleet)
    places = [("sqlite", "iceberg"), ("rest", "iceberg"), ("folder", "delta")]
    written = [
        table
        for table in fleet.sound
        if table.location.endswith(f"{WRITTEN:03d}") and (table.place, table.table_format) in places
    ]
    assert len(written) == len(places)
    with the_broken_as_they_are(fleet):
        with writers(fleet, written) as committed:
            first, second = start(command), start(command)
            assert first.stdout is not None
            for _ in range(RECORDS_BEFORE_THE_KILL):
                assert json.loads(first.stdout.readline())["schema"] == "iceberg-cli/maintenance-run/1"
            first.kill()
            first.communicate()
            out, err = second.communicate()
            check_code(second.returncode, [json.loads(line) for line in out.splitlines()], err)
        check_rows(fleet, committed)
        check_last_runs(fleet, committed, command)


def command_for(fleet: Fleet) -> list[str]:
    """The command that maintains all tables by one policy."""
    policy = policy_file(fleet.root / "policy.toml", VERBS, fleet.patterns)
    return ["maintain", *fleet.patterns, *fleet.options, "--policy", str(policy), "--yes", VOUCHED]


@contextmanager
def the_broken_as_they_are(fleet: Fleet) -> Iterator[None]:
    """No file of a broken table goes, changes or is added."""
    broken = [table.folder for table in fleet.tables if table.broken]
    before = [listing(folder) for folder in broken]
    yield
    assert [listing(folder) for folder in broken] == before


def check_last_runs(fleet: Fleet, committed: Mapping[str, set[int]], command: Sequence[str]) -> None:
    """A run does all that is due and leaves nothing open, and the next one finds nothing due; rows stay."""
    broken = {table.name: table for table in fleet.tables if table.broken}
    ran = iceberg_cli(*command, *JSON)
    check_rows(fleet, committed)
    check_code(ran.code, ran.json["runs"], ran.err)
    check_broken(broken, by_table(ran.json["runs"]))
    for table in fleet.sound:
        assert not list(table.folder.glob("_iceberg_cli/ops/*")), f"{table.name} has an operation open"
    again = iceberg_cli(*command, *JSON)
    assert again.code == ran.code
    runs = {name: runs for name, runs in by_table(again.json["runs"]).items() if name not in broken}
    assert set(runs) == {table.name for table in fleet.sound}
    left = [run for each in runs.values() for run in each if run["status"] != "not_due"]
    assert left == []
    check_rows(fleet, committed)


def check_survey(fleet: Fleet, surveyed: Ran) -> None:
    """It has a row for every table; what is due, and which tables are broken."""
    found = {each["table"]["name"]: each for each in surveyed.json["tables"]}
    assert set(found) == {table.name for table in fleet.tables}
    for table in fleet.tables:
        row = found[table.name]
        if table.broken:
            assert row["grade"] in ("broken", "unreadable"), (table.broken, row)
        else:
            assert row["grade"] in ("due", "overdue"), (table.name, row)
            # Without a policy file these have too few small manifests, and may have a checkpoint that is new enough.
            assert "expire-snapshots" in {each["operation"] for each in row["due"]}, table.name
    assert surveyed.code == worst([BROKEN[table.broken].exit_code for table in fleet.tables if table.broken])


def check_broken(broken: Mapping[str, FleetTable], runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Each is named, with the exit code of what ails it."""
    for name, table in broken.items():
        codes = [run["exit_code"] for run in runs[name]]
        assert worst(codes) == BROKEN[table.broken].exit_code, (table.broken, runs[name])
        assert {run["status"] for run in runs[name] if run["exit_code"]} <= {
            "failed",
            "blocked",
            "refused",
        }, table.broken


def check_code(code: int, lines: Sequence[Mapping[str, Any]], stated: str) -> None:
    """The exit code is the worst of all runs."""
    runs = [line for line in lines if "operation" in line]
    assert code == worst([run["exit_code"] for run in runs]), stated

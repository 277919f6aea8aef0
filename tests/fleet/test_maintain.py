"""What `maintain` does of what a policy names, where it stops, and what it leaves alone."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from glob import glob
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tests.budget import FULL, few_or_many
from tests.cli.lakes import listing, unchanged
from tests.cli.running import JSON, iceberg_cli
from tests.cli.terminals import PATIENCE_S, Gate, terminal
from tests.fleet.builder import Fleet, Format, Place, build_fleet
from tests.fleet.maintaining import EXPIRE, maintain, policy_file, runs_of
from tests.paths import ROOT

VERBS = {**EXPIRE, "rewrite-manifests": "{ min-manifests = 2 }", "merge-dvs": "{ min-files = 2 }"}
ORDER = ["merge-dvs", "rewrite-manifests", "expire-snapshots"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Tables of versions 1, 2 and 3 in a SQLite catalog."""
    return build_fleet(tmp_path, {("sqlite", "iceberg"): 3})


def files_of(fleet: Fleet) -> set[Path]:
    """All but journals."""
    found = {path for table in fleet.tables for path in table.folder.rglob("*") if path.is_file()}
    return {path for path in found if "_iceberg_cli" not in path.parts}


def check_rows(fleet: Fleet) -> None:
    for table in fleet.tables:
        assert fleet.rows_of(table) == sorted(table.rows), table.name


def test_the_verbs_of_a_table_run_in_the_order_that_frees_most(fleet: Fleet, tmp_path: Path) -> None:
    ran = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    assert ran.code == 0, ran.err
    operations: dict[str, list[str]] = {}
    for run in ran.json["runs"]:
        operations.setdefault(run["table"]["name"], []).append(run["operation"])
    assert operations == {table.name: ORDER for table in fleet.tables}
    totals = ran.json["totals"]
    for name in ("deleted_files_count", "reclaimed_bytes"):
        assert totals[name] == sum(run[name] for run in ran.json["runs"])
    check_rows(fleet)


def test_a_dry_run_says_what_is_due_and_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns)
    with unchanged(tmp_path):
        ran = iceberg_cli("maintain", *fleet.patterns, *fleet.options, "--policy", policy, "-n", *JSON)
    assert ran.code == 0, ran.err
    due = {
        name
        for (name, verb), run in runs_of(ran).items()
        if verb == "expire-snapshots" and run["status"] == "due"
    }
    assert due == {table.name for table in fleet.tables}


def test_a_survey_by_a_policy_file_looks_at_the_tables_that_are_maintained_by_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [each.name for each in fleet.tables[:2]])
    by_policy = ("--policy", policy, *fleet.options, *JSON)
    surveyed = iceberg_cli("survey", *by_policy).json["tables"]
    maintained = iceberg_cli("maintain", *by_policy, "--dry-run").json["runs"]
    names = {each["table"]["name"] for each in surveyed}
    assert names == {each["table"]["name"] for each in maintained}
    assert names == {each.name for each in fleet.tables[:2]}


def test_a_verb_that_the_policy_does_not_name_never_runs(fleet: Fleet, tmp_path: Path) -> None:
    ran = maintain(tmp_path, {"rewrite-manifests": "{}"}, *fleet.patterns, options=fleet.options)
    assert {run["operation"] for run in ran.json["runs"]} == {"rewrite-manifests"}
    before = files_of(fleet)
    ran = maintain(tmp_path, {"merge-dvs": '{ when = "never" }'}, *fleet.patterns, options=fleet.options)
    assert ran.code == 0
    assert files_of(fleet) == before


def test_the_bound_of_deletions_is_of_the_whole_run(fleet: Fleet, tmp_path: Path) -> None:
    gone = 0
    while True:
        before = files_of(fleet)
        ran = maintain(tmp_path, EXPIRE, *fleet.patterns, options=[*fleet.options, "--limit-deletes", 10])
        assert ran.code == 0, ran.err
        deleted = len(before - files_of(fleet))
        assert deleted <= 10
        check_rows(fleet)
        gone += deleted
        if not ran.json["left"]:
            break
        assert deleted == 10
    assert gone == 8 * len(fleet.tables)  # as each plan had it
    assert (
        maintain(tmp_path, EXPIRE, *fleet.patterns, options=fleet.options).json["totals"][
            "deleted_files_count"
        ]
        == 0
    )


def test_the_bound_of_bytes_is_spent_first_where_most_is_freed(fleet: Fleet, tmp_path: Path) -> None:
    planned = iceberg_cli("survey", *fleet.patterns, *fleet.options, *JSON).json["tables"]
    bytes_of = {
        each["table"]["name"]: next(d["bytes"] for d in each["due"] if d["operation"] == "expire-snapshots")
        for each in planned
    }
    most = max(bytes_of, key=lambda name: bytes_of[name])
    ran = maintain(
        tmp_path,
        EXPIRE,
        *fleet.patterns,
        options=[*fleet.options, "--max-bytes", bytes_of[most], "--jobs", 1],
    )
    assert ran.code == 0, ran.err
    runs = runs_of(ran)
    assert runs[most, "expire-snapshots"]["status"] == "done"
    assert ran.json["totals"]["reclaimed_bytes"] <= bytes_of[most]
    left = {each["table"]["name"] for each in ran.json["left"]}
    assert left >= {table.name for table in fleet.tables} - {most}
    check_rows(fleet)


def test_after_the_deadline_nothing_begins(fleet: Fleet, tmp_path: Path) -> None:
    before = files_of(fleet)
    ran = maintain(tmp_path, EXPIRE, *fleet.patterns, options=[*fleet.options, "--deadline", "0s"])
    assert ran.code == 0, ran.err
    assert files_of(fleet) == before
    assert {each["table"]["name"] for each in ran.json["left"]} == {table.name for table in fleet.tables}


# -- holds -----------------------------------------------------------------------------------------------------


def hold(name: str) -> list[str]:
    return ["[[tables]]", f'match = ["{name}"]', "maintain = false", 'reason = "litigation hold"']


@pytest.mark.parametrize("by", ["name", "location"])
def test_a_table_on_hold_is_left_alone_by_whichever_name(fleet: Fleet, tmp_path: Path, by: str) -> None:
    held = fleet.tables[1]
    name = held.name if by == "name" else held.location
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns, more=hold(name))
    before = listing(held.folder)
    ran = iceberg_cli("maintain", *fleet.patterns, *fleet.options, "--policy", policy, "--yes", *JSON)
    assert ran.code == 0, ran.err
    assert listing(held.folder) == before
    mine = [run for run in ran.json["runs"] if run["table"]["name"] == held.name]
    assert {run["status"] for run in mine} == {"skipped"}
    assert all("litigation hold" in run["reason"] for run in mine)
    others = {run["table"]["name"] for run in ran.json["runs"] if run["status"] == "done"}
    assert others == {table.name for table in fleet.tables} - {held.name}


def test_a_hold_by_the_name_in_another_catalog_holds(fleet: Fleet, tmp_path: Path) -> None:
    held = fleet.tables[1]
    fleet.register_in_sqlite("other", [("copy", fleet.pointer(held))])
    configuration = tmp_path / ".pyiceberg.yaml"
    configuration.write_text(
        f"{configuration.read_text()}  other:\n    type: sql\n    uri: sqlite:///{tmp_path}/other.db\n"
    )
    policy = policy_file(
        tmp_path / "policy.toml", VERBS, fleet.patterns, more=hold(f"other.{fleet.namespace}.copy")
    )
    with unchanged(held.folder):
        ran = iceberg_cli("maintain", "lake", *fleet.options, "--policy", policy, "--yes", *JSON)
    assert ran.code == 0, ran.err
    assert {run["status"] for run in ran.json["runs"] if run["table"]["name"] == held.name} == {"skipped"}


@pytest.mark.parametrize("place", ["a catalog that does not answer", "a table that cannot be found"])
def test_where_it_cannot_be_found_out_what_is_held_nothing_runs(
    place: str, fleet: Fleet, tmp_path: Path
) -> None:
    configuration = tmp_path / ".pyiceberg.yaml"
    nobody = "    type: rest\n    uri: http://127.0.0.1:9\n"
    if place == "a catalog that does not answer":
        configuration.write_text(f"{configuration.read_text()}  other:\n{nobody}")
        held = "other.legal.*"
    else:
        fleet.register_in_sqlite("other", [("copy", str(tmp_path / "nothing" / "v1.metadata.json"))])
        sqlite = f"    type: sql\n    uri: sqlite:///{tmp_path}/other.db\n"
        configuration.write_text(f"{configuration.read_text()}  other:\n{sqlite}")
        held = f"other.{fleet.namespace}.copy"
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns, more=hold(held))
    before = files_of(fleet)
    ran = iceberg_cli("maintain", *fleet.patterns, *fleet.options, "--policy", policy, "--yes", *JSON)
    assert ran.code in (10, 11, 16), ran.out
    assert "nothing may run" in ran.json["message"]
    assert files_of(fleet) == before


def test_a_table_on_which_somebody_else_is_at_work_is_left_to_them(fleet: Fleet, tmp_path: Path) -> None:
    gate, table = Gate.at(tmp_path / "held", "000001.json"), fleet.tables[1]
    old = ["--older-than", "5d", "--retain-last", "1", "--yes"]
    command = gate.command("put_if_absent", "expire-snapshots", table.name, *fleet.options, *old)
    theirs = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        gate.wait()
        before = listing(table.folder)
        ran = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
        assert ran.code == 0, ran.err
        [mine] = [run for run in ran.json["runs"] if run["table"]["name"] == table.name]
        assert (mine["operation"], mine["status"]) == (None, "skipped")
        [operation] = [path.name for path in (table.folder / "_iceberg_cli" / "ops").iterdir()]
        assert mine["reason"].startswith(f"operation {operation} of it is ")
        again = iceberg_cli("resume", table.name, *fleet.options)
        assert again.code == 11, again.out + again.err
        assert f"Process {theirs.pid} is still working on it" in again.err
        assert listing(table.folder) == before
        gate.open()
        assert theirs.wait(PATIENCE_S) == 0
    finally:
        theirs.kill()
    check_rows(fleet)


def test_no_more_is_deleted_than_was_shown_when_the_question_was_asked(fleet: Fleet, tmp_path: Path) -> None:
    """An append between question and answer lets the snapshot before it come due, which nobody was shown."""
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, fleet.patterns)
    [table] = fleet.tables[:1]
    catalog = load_catalog(
        "lake", **yaml.safe_load((tmp_path / ".pyiceberg.yaml").read_text())["catalog"]["lake"]
    )
    theirs = catalog.load_table(table.name.split(".", 1)[1])
    head = theirs.current_snapshot()
    assert head is not None
    with terminal(
        [
            sys.executable,
            "-m",
            "iceberg_cli",
            "maintain",
            *fleet.patterns,
            *fleet.options,
            "--policy",
            policy,
        ],
        columns=160,
    ) as screen:
        screen.wait_for("Go on?")
        theirs.append(theirs.scan(limit=1).to_arrow())
        screen.send("y\n")
        assert screen.end() == 0, screen.text
    left = [each.snapshot_id for each in catalog.load_table(table.name.split(".", 1)[1]).snapshots()]
    assert left[0] == head.snapshot_id
    assert len(left) == 2


def interrupted(fleet: Fleet, number: int) -> None:
    """Kill an expiry of a table after its first record."""
    table = fleet.tables[number]
    command = [
        "expire-snapshots",
        table.name,
        *fleet.options,
        "--older-than",
        "5d",
        "--retain-last",
        "1",
        "--yes",
    ]
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-m", "iceberg_cli", *command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not list(table.folder.glob("_iceberg_cli/ops/*/000000.json")):
            pass
        process.kill()
        process.wait()
        if (table.folder / "_iceberg_cli" / "ops").exists():
            return
    pytest.fail("it was never killed in the middle")


def test_an_open_operation_is_settled_but_not_on_a_table_on_hold(fleet: Fleet, tmp_path: Path) -> None:
    interrupted(fleet, 1)
    table = fleet.tables[1]
    held = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns, more=hold(table.name))
    command = ["maintain", *fleet.patterns, *fleet.options, "--yes", *JSON]
    with unchanged(table.folder):
        assert iceberg_cli(*command, "--policy", held).code == 0
    free = policy_file(tmp_path / "free.toml", VERBS, fleet.patterns)
    ran = iceberg_cli(*command, "--policy", free)
    assert ran.code == 0, ran.err
    assert not (table.folder / "_iceberg_cli" / "ops").exists()
    check_rows(fleet)
    last = maintain(tmp_path, EXPIRE, *fleet.patterns, options=fleet.options)
    assert {run["status"] for run in last.json["runs"]} == {"not_due"}


def test_a_catalogs_table_is_not_written_to_by_way_of_its_folder(fleet: Fleet, tmp_path: Path) -> None:
    pattern = f"{tmp_path}/sqlite/iceberg/*"
    with unchanged(tmp_path / "sqlite"):
        ran = maintain(tmp_path, VERBS, pattern)
    assert ran.code == 11
    assert {run["status"] for run in ran.json["runs"]} <= {"refused", "blocked", "not_due"}


# -- two at once, signals --------------------------------------------------------------------------------------


def start(fleet: Fleet, policy: Path) -> subprocess.Popen[str]:
    command = ["maintain", *fleet.patterns, *fleet.options, "--policy", str(policy), "--yes", "--jsonl"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "iceberg_cli", *command], cwd=ROOT, stdout=pipe, stderr=pipe, text=True
    )


def test_two_at_once_do_the_work_of_one(fleet: Fleet, tmp_path: Path) -> None:
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns)
    both = [start(fleet, policy) for _ in range(2)]
    for process in both:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert [json.loads(line)["schema"] for line in out.splitlines()][-1] == "iceberg-cli/totals/1"
    check_rows(fleet)
    last = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    assert (last.code, {run["status"] for run in last.json["runs"]}) == (0, {"not_due"})


@pytest.mark.deep
@pytest.mark.parametrize("number", range(60 if FULL else 8))
def test_many_at_once_end_well(tmp_path: Path, number: int) -> None:
    """None takes for damage what another has just deleted."""
    rng = random.Random(number)
    counts: dict[tuple[Place, Format], int] = {
        ("sqlite", "iceberg"): 3, ("folder", "iceberg"): 3, ("folder", "delta"): 2,
    }  # fmt: skip
    fleet = build_fleet(tmp_path, counts)
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns)
    processes = []
    for _ in range(3):
        processes.append(start(fleet, policy))
        time.sleep(rng.uniform(0, 0.3) if number % 2 else 0)
    for process in processes:
        out, err = process.communicate()
        wrong = [run for run in map(json.loads, out.splitlines()) if run.get("exit_code")]
        assert (process.returncode, wrong) == (0, []), err
    check_rows(fleet)
    last = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    assert (last.code, {run["status"] for run in last.json["runs"]}) == (0, {"not_due"})


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.deep)])
def test_a_signal_ends_it_at_the_next_safe_point_and_the_same_command_does_the_rest(
    fleet: Fleet, tmp_path: Path, number: signal.Signals
) -> None:
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns)
    process = start(fleet, policy)
    assert process.stdout is not None
    while json.loads(process.stdout.readline())["status"] != "done":
        pass
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 14, err
    assert json.loads(out.splitlines()[-1])["schema"] == "iceberg-cli/totals/1"
    assert "Traceback" not in err
    check_rows(fleet)
    again = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    assert again.code == 0, again.err
    last = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    assert {run["status"] for run in last.json["runs"]} == {"not_due"}
    check_rows(fleet)


@pytest.mark.deep
@few_or_many(1, many=12, all_of=60)
def test_killed_at_random_moments_it_goes_on_where_it_was(tmp_path: Path, budget: int) -> None:
    rng = random.Random(17)
    open_after = 0
    for number in range(budget):
        folder = tmp_path / f"fleet{number}"
        folder.mkdir()
        fleet = build_fleet(folder, {("sqlite", "iceberg"): 3, ("folder", "delta"): 2})
        process = start(fleet, policy_file(folder / "policy.toml", VERBS, fleet.patterns))
        record = rng.randrange(7)
        while process.poll() is None and not glob(f"{folder}/*/*/*/_iceberg_cli/ops/*/{record:06d}.json"):
            pass
        time.sleep(rng.uniform(0, 0.1) if number % 2 else 0)
        process.kill()
        process.communicate()
        open_after += bool(glob(f"{folder}/*/*/*/_iceberg_cli/ops/*"))
        check_rows(fleet)
        again = maintain(folder, VERBS, *fleet.patterns, options=fleet.options)
        assert again.code == 0, again.err
        check_rows(fleet)
        last = maintain(folder, VERBS, *fleet.patterns, options=fleet.options)
        assert {run["status"] for run in last.json["runs"]} == {"not_due"}
    print(f"{open_after} of {budget} kills left an operation open")
    assert open_after


def test_nothing_goes_that_another_entry_of_a_catalog_still_points_to(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("sqlite", "iceberg"): 1})
    [table] = fleet.tables
    catalog, namespace, name = table.name.split(".")
    [database] = glob(f"{tmp_path}/**/*.db", recursive=True)
    with sqlite3.connect(database) as connection:
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) SELECT"
            " catalog_name, table_namespace, 'zz_other', metadata_location FROM iceberg_tables WHERE table_name = ?",
            (name,),
        )
    before = files_of(fleet)
    ran = maintain(tmp_path, VERBS, *fleet.patterns, options=fleet.options)
    runs = {run["operation"]: run for run in ran.json["runs"]}
    assert ran.code == runs["expire-snapshots"]["exit_code"] == 11
    assert f"{catalog}.{namespace}.zz_other" in runs["expire-snapshots"]["reason"]
    # The verbs before it moved one of the two.
    again = maintain(tmp_path, EXPIRE, *fleet.patterns, options=fleet.options)
    assert [run["status"] for run in again.json["runs"] if run["operation"] == "expire-snapshots"] == [
        "blocked"
    ]
    assert before <= files_of(fleet)


def test_a_copy_of_a_table_does_not_stand_in_for_it(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("folder", "iceberg"): 1})
    [table] = fleet.tables
    shutil.copytree(table.folder, table.folder.parent / f"a_{table.folder.name}")
    ran = maintain(tmp_path, EXPIRE, f"{table.folder.parent}/*", options=fleet.options)
    runs = {run["table"]["name"]: run["status"] for run in ran.json["runs"]}
    assert runs[table.name] == "done"
    check_rows(fleet)


@pytest.mark.deep
@pytest.mark.jvm
def test_on_spark_one_session_serves_tables_that_are_worked_on_side_by_side(
    fleet: Fleet, tmp_path: Path
) -> None:
    policy = policy_file(tmp_path / "policy.toml", VERBS, fleet.patterns)
    words = [
        "maintain",
        *fleet.patterns,
        *fleet.options,
        "--policy",
        str(policy),
        "--yes",
        "--jobs",
        "3",
        "--jsonl",
    ]
    spark = ["--engine", "spark", "--spark-master", "local[2]", "--spark-conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        [sys.executable, "-m", "iceberg_cli", *words, *spark],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    runs = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    assert {(run["table"]["name"], run["operation"]) for run in runs} == {
        (table.name, verb) for table in fleet.tables for verb in ORDER
    }
    assert {run["status"] for run in runs} <= {"done", "not_due"}
    assert {run["status"] for run in runs if run["operation"] == "expire-snapshots"} == {"done"}
    assert done.stderr.count("Spark version") <= 1
    check_rows(fleet)

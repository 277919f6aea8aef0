"""What a run over many tables says of them as a whole: what is wrong first, tables counted as tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.printed import plain, run_on_a_terminal
from tests.cli.running import iceberg_cli
from tests.referee.iceberg import Table

NOW_MS = 1_790_000_000_000
POLICY = """\
version = 1
[[tables]]
match = ["{lake}/*"]
except = ["{lake}/nobody"]
expire-snapshots = {{ older-than = "5d" }}
rewrite-manifests = {{}}

[[tables]]
match = ["{lake}/held"]
maintain = false
reason = "litigation"
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Five sound tables and one whose metadata is cut short."""
    for name in ("due", "young", "held", "nobody", "opted_out"):
        table = Table(tmp_path / "lake" / name, version=2, seed=len(name), now_ms=NOW_MS)
        for _ in range(1 if name == "young" else 4):
            table.append()
        if name == "opted_out":
            table.change({**table.document, "properties": {"iceberg-cli.maintain": "false"}})
    shutil.copytree(tmp_path / "lake" / "due", tmp_path / "lake" / "broken")
    newest = max((tmp_path / "lake" / "broken" / "metadata").glob("v*.metadata.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    (tmp_path / "policy.toml").write_text(POLICY.format(lake=tmp_path / "lake"))
    return tmp_path / "lake"


def test_tables_are_counted_by_what_came_of_them(lake: Path) -> None:
    words = ("maintain", lake / "*", "--policy", lake.parent / "policy.toml", "--as-of", NOW_MS)
    ran = iceberg_cli(*words, "--dry-run")
    assert ran.code == 15
    lines = ran.out.splitlines()
    assert (
        "6 tables: 1 failed, 1 to be worked on, 1 with nothing due, 3 skipped (2 held, 1 in no policy)"
        in lines
    )
    assert "Verbs: 1 due, 1 failed and 3 not due" in lines

    ran = iceberg_cli(*words, "--yes", "--format", "json")
    totals = ran.json["totals"]
    assert {name: number for name, number in totals["outcomes"].items() if number} == {
        "failed": 1,
        "worked_on": 1,
        "not_due": 1,
        "skipped": 3,
    }
    assert {name: number for name, number in totals["skipped_for"].items() if number} == {
        "held": 2,
        "in_no_policy": 1,
    }
    skipped = {run["table"]["name"].rpartition("/")[2]: run["skipped_for"] for run in ran.json["runs"]}
    assert skipped == {
        "broken": None,
        "due": None,
        "young": None,
        "held": "held",
        "opted_out": "held",
        "nobody": "in_no_policy",
    }


def test_rows_stand_by_table_however_many_are_done_at_once(lake: Path) -> None:
    words = (
        "maintain",
        lake / "*",
        "--policy",
        lake.parent / "policy.toml",
        "--as-of",
        NOW_MS,
        "--dry-run",
        "-v",
    )
    shown = {jobs: iceberg_cli(*words, "--jobs", jobs).out for jobs in (1, 4)}
    assert shown[1] == shown[4]
    rows = shown[1].split("\n\n")[0].splitlines()
    names = [line.split()[0] for line in rows if line.startswith(str(lake))]
    assert names == sorted(names)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_is_broken_comes_first_with_its_reason_at_any_width(width: int, lake: Path) -> None:
    shown = run_on_a_terminal(width, "survey", lake / "*", "--as-of", NOW_MS)
    verdict, first = plain(shown.out).split("\n\n")[:2]
    assert verdict.startswith("6 tables: 1 ok, 4 overdue and 1 broken\n")
    text = "".join(first.split())
    assert text.startswith(f"{lake}/brokenisbroken:Cannotread{lake}/broken/metadata/v5.metadata.json")
    row = iceberg_cli("survey", lake / "*", "--as-of", NOW_MS, "--format", "json").json["tables"][0]
    assert (row["table"]["name"], row["grade"]) == (f"{lake}/broken", "broken")


def test_an_operation_that_waits_for_its_grace_is_counted(lake: Path) -> None:
    words = ("--as-of", NOW_MS, "--no-cache")
    before = iceberg_cli("survey", lake / "*", *words)
    assert "open" not in before.out.split()
    table = lake / "due"
    assert iceberg_cli("expire-snapshots", table, "--as-of", NOW_MS, "--grace", "24h", "--yes").code == 0
    found = iceberg_cli("survey", lake / "*", *words, "--format", "json").json
    assert found["totals"]["open_operations"] == 1
    assert {
        row["table"]["name"]: row["open_operations"] for row in found["tables"] if row["open_operations"]
    } == {str(table): 1}
    shown = iceberg_cli("survey", lake / "*", *words).out
    assert "open" in next(line for line in shown.splitlines() if line.startswith("table")).split()
    assert "1 open operation: `resume PATTERN --list` shows them" in shown.splitlines()


def test_a_folder_without_a_star_means_every_table_below_it(lake: Path) -> None:
    def names(*patterns: object) -> list[str]:
        ran = iceberg_cli("list", *patterns, "--format", "json")
        assert ran.code == 0, ran.err
        return [each["name"].rpartition("/")[2] for each in ran.json["tables"]]

    every = ["broken", "due", "held", "nobody", "opted_out", "young"]
    assert names(lake.parent) == names(lake) == names(f"{lake}/") == every
    assert names(lake / "due") == ["due"]
    assert names(lake / "due", lake / "held") == ["due", "held"]  # as a shell writes `*`
    ran = iceberg_cli("list", lake / "due" / "data")
    assert (ran.code, f"No table matches {lake}/due/data. Nor is there one below it." in ran.err) == (
        10,
        True,
    )


def test_a_policy_goes_by_its_own_patterns_whatever_is_typed(lake: Path) -> None:
    policy = lake.parent / "policy.toml"
    words = ("--policy", policy, "--as-of", NOW_MS, "--dry-run", "--format", "json", "--jobs", 1)
    by_star, by_folder = (iceberg_cli("maintain", typed, *words).json for typed in (lake / "*", lake))
    assert [run["table"]["name"] for run in by_star["runs"]] == [
        run["table"]["name"] for run in by_folder["runs"]
    ]
    assert by_star["totals"] == by_folder["totals"]


def test_a_word_that_is_a_folder_here_is_not_only_an_unknown_catalog(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.parent)
    ran = iceberg_cli("survey", "lake")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == "The folder of this name is ./lake."


def test_sixty_tables_of_long_names_are_one_screen_with_the_verdict_first(tmp_path: Path) -> None:
    table = Table(tmp_path / "lake" / "t", version=2, seed=1, now_ms=NOW_MS)
    for _ in range(3):
        table.append()
    for number in range(59):
        shutil.copytree(tmp_path / "lake/t", tmp_path / "lake" / f"t{number:02}")
    (tmp_path / "lake/t").rename(tmp_path / "lake" / ("orders_by_customer_" * 4)[:62])
    lines = plain(run_on_a_terminal(80, "survey", tmp_path / "lake", "--as-of", NOW_MS).out).splitlines()
    assert lines[0].startswith("60 tables: ")
    assert len(lines) <= 70
    assert sum("/lake/t" in line or "…" in line for line in lines) == 60


def test_what_failed_is_named_last_with_the_reason_and_what_to_do(lake: Path) -> None:
    policy = ("--policy", lake.parent / "policy.toml", "--as-of", NOW_MS)
    for ran in (
        iceberg_cli("maintain", lake / "*", *policy, "--dry-run"),
        run_on_a_terminal(60, "maintain", lake / "*", *policy, "--yes"),
    ):
        last = "".join(plain(ran.out).rstrip().split("\n\n")[-1].split())
        assert last.startswith(f"{lake}/broken:failed:Cannotread{lake}/broken/metadata/")
        assert "`inspectTABLE--check`" in last
    *_, command = iceberg_cli("survey", lake, *policy[2:]).out.splitlines()
    assert command == f"  iceberg-cli inspect {lake}/broken --check"


def test_a_dry_run_and_the_run_of_the_same_state_agree_on_files(lake: Path) -> None:
    words = ("maintain", lake / "*", "--policy", lake.parent / "policy.toml", "--as-of", NOW_MS)
    before = {path for path in lake.rglob("*") if path.is_file()}
    planned, done = (
        iceberg_cli(*words, how, "--format", "json").json["totals"] for how in ("--dry-run", "--yes")
    )
    gone = before - {path for path in lake.rglob("*") if path.is_file()}
    assert planned["deleted_files_count"] == done["deleted_files_count"] == len(gone) > 0
    assert planned["reclaimed_bytes"] == done["reclaimed_bytes"]

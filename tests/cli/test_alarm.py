"""The alarm on the command line: plans that would delete far more than the runs before them are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli import open_table
from iceberg_cli.delta import ExpireSnapshots
from iceberg_cli.errors import Refused, UsageError
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, FolderTable, delta_with_removed_files, listing, old_files
from tests.cli.running import dry, expire, iceberg_cli
from tests.fleet.maintaining import maintain, runs_of

EXPIRY = "expire-snapshots"
ACCEPT = "--unsafe-accept-alarm"
# Of 40, 30 and 50 files before it is six times 40.
REASON = (
    "1,000 files would be deleted, more than 240: 6 times 40, the median of the last 3 runs of expire-snapshots here "
    "that deleted files. --unsafe-accept-alarm carries it out"
)


def some_files(table: Path, number: int, name: str = "nobody") -> None:
    """Files in the table's folder that no version needs."""
    old_files(table, *(f"{name}-{index}.parquet" for index in range(number)))


@pytest.fixture(scope="module")
def often_vacuumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table that was vacuumed three times, of 40, 30 and 50 files, and has 1,000 more to go."""
    table = tmp_path_factory.mktemp("alarm") / "visits"
    delta_with_removed_files(table)
    for number in (40, 30, 50):
        some_files(table, number)
        assert expire(str(table), *AS_OF).json["status"] == "done"
    some_files(table, 1_000)
    return table


@pytest.fixture
def visits(often_vacuumed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(often_vacuumed, tmp_path / "visits")


def left(table: Path) -> int:
    return len([*table.glob("nobody-*.parquet")])


def test_a_run_that_would_delete_far_more_than_those_before_is_refused_and_changes_nothing(
    visits: Path,
) -> None:
    before = listing(visits)
    ran = iceberg_cli(EXPIRY, visits, *AS_OF, "--yes", "--format", "json")
    assert (ran.code, ran.json["schema"]) == (11, "iceberg-cli/error/2")
    assert ran.json["message"] == f"Cannot {EXPIRY} {visits}: {REASON}"
    assert listing(visits) == before


def test_a_dry_run_shows_the_rows_and_what_blocks_them(visits: Path) -> None:
    plan = dry(str(visits), *AS_OF)
    assert (plan["removals"]["count"], plan["blocked_by"], plan["due"]) == (1_000, [REASON], True)
    assert "Blocked: 1,000 files" in iceberg_cli(EXPIRY, visits, *AS_OF, "--dry-run").out
    assert iceberg_cli(EXPIRY, visits, *AS_OF, "--dry-run", "--exit-code").code == 0


@pytest.mark.parametrize("options", [(ACCEPT,), ("--alarm", "off"), ("--alarm", "25")])
def test_it_is_carried_out_where_the_operator_accepts_it_or_knows_better(
    visits: Path, options: tuple[str, ...]
) -> None:
    plan = dry(str(visits), *AS_OF, *options)
    assert plan["blocked_by"] == []
    shown = {"--unsafe-accept-alarm": ("unsafe_accept_alarm", True)}.get(options[0], ("alarm", options[-1]))
    value = float(shown[1]) if shown[1] == "25" else shown[1]
    assert plan["options"][shown[0]] == {"value": value, "source": options[0]}
    assert expire(str(visits), *AS_OF, *options).json["status"] == "done"
    assert left(visits) == 0


def test_one_file_fewer_than_a_thousand_raises_none(visits: Path) -> None:
    (visits / "nobody-0.parquet").unlink()
    assert expire(str(visits), *AS_OF).json["status"] == "done"
    assert left(visits) == 0


def test_a_factor_of_ones_own_is_held_to(visits: Path) -> None:
    assert dry(str(visits), *AS_OF, "--alarm", "24.9")["blocked_by"] == [
        REASON.replace("240: 6 times", "996: 24.9 times")
    ]


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "many", ""])
def test_what_is_no_factor_is_refused(visits: Path, given: str) -> None:
    ran = iceberg_cli(EXPIRY, visits, "--alarm", given, "--dry-run")
    assert ran.code == 2
    assert "--alarm" in ran.err
    with pytest.raises(UsageError, match="alarm"):
        ExpireSnapshots(alarm=given)


# -- plans that were saved, and other processes ----------------------------------------------------------------


def test_a_saved_plan_that_is_blocked_stays_blocked_and_one_that_was_accepted_is_carried_out(
    visits: Path, tmp_path: Path
) -> None:
    for name, options in (("blocked", ()), ("accepted", (ACCEPT,))):
        assert iceberg_cli("plan", visits, EXPIRY, *AS_OF, *options, "-o", tmp_path / name).code == 0
    ran = iceberg_cli("apply", tmp_path / "blocked", "--yes")
    assert (ran.code, left(visits)) == (11, 1_000)
    assert REASON in ran.err
    assert iceberg_cli("apply", tmp_path / "accepted", "--yes").code == 0
    assert left(visits) == 0


def test_what_was_begun_is_resumed_without_another_alarm(visits: Path) -> None:
    first = expire(str(visits), *AS_OF, ACCEPT, "--limit-deletes", "1").json
    assert (first["status"], left(visits)) == ("partial", 999)
    assert iceberg_cli("resume", visits).code == 0
    assert left(visits) == 0


def test_a_program_is_refused_as_well(visits: Path) -> None:
    table = open_table(str(visits))
    plan = table.plan(ExpireSnapshots(), as_of=AS_OF_MS)
    assert plan.blocked_by == (REASON,)
    with pytest.raises(Refused):
        table.apply(plan)
    accepted = table.plan(ExpireSnapshots(unsafe_accept_alarm=True), as_of=AS_OF_MS)
    assert table.apply(accepted).status == "done"


def test_in_a_policy_file_only_the_factor_is_taken_and_maintenance_is_blocked(
    visits: Path, tmp_path: Path
) -> None:
    blocked = maintain(tmp_path, {EXPIRY: "{}"}, visits, options=AS_OF)
    assert blocked.code == 11
    (run,) = runs_of(blocked).values()
    assert (run["status"], run["reason"], left(visits)) == ("blocked", REASON, 1_000)
    refused = maintain(tmp_path, {EXPIRY: "{ unsafe-accept-alarm = true }"}, visits, options=AS_OF)
    assert refused.code == 2
    assert maintain(tmp_path, {EXPIRY: '{ alarm = "off" }'}, visits, options=AS_OF).code == 0
    assert left(visits) == 0


# -- what the history says -------------------------------------------------------------------------------------


def a_record(table: FolderTable, number: int, *, days_ago: int = 0, **values: Any) -> dict[str, Any]:
    """An expiry that was done, as it stands in a table's history."""
    return {
        "version": 1,
        "operation_id": f"op-{number}",
        "operation": EXPIRY,
        "table_uuid": table.writer.document["table-uuid"],
        "actor": None,
        "started_ms": AS_OF_MS - days_ago * DAY_MS,
        "finished_ms": AS_OF_MS - days_ago * DAY_MS + 5_000,
        "status": "done",
        "committed": [],
        "deleted_files_count": 10,
        "reclaimed_bytes": 100,
        "counts": {},
        "resumed": False,
        **values,
    }


def record(table: FolderTable, *records: dict[str, Any] | bytes) -> None:
    """Write a history."""
    folder = table.folder / "_iceberg_cli" / "history"
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(records):
        started_ms = AS_OF_MS - number if isinstance(each, bytes) else each["started_ms"]
        verb = EXPIRY if isinstance(each, bytes) else each["operation"]
        data = each if isinstance(each, bytes) else json.dumps(each).encode()
        (folder / f"{started_ms}-{verb}-op-{number}.json").write_bytes(data)


@pytest.fixture
def orders(tmp_path: Path) -> FolderTable:
    """An Iceberg table of which an expiry deletes 1,000 data files, and what belongs to their snapshot."""
    table = FolderTable(folder=tmp_path / "orders")
    names = [f"d{number}" for number in range(1_000)]
    table.commit(1, age_ms=9 * DAY_MS, add=["keep", *names])
    table.commit(2, age_ms=8 * DAY_MS, add=["two"], remove=names)
    table.commit(3, age_ms=6 * DAY_MS, add=["three"])
    table.publish()
    return table


def reasons(table: FolderTable) -> list[str]:
    found: list[str] = dry(table.name, *AS_OF)["blocked_by"]
    return found


def test_of_an_iceberg_table_it_is_the_same(orders: FolderTable) -> None:
    record(orders, *(a_record(orders, number, days_ago=number + 2) for number in range(3)))
    (reason,) = reasons(orders)
    assert "more than 120: 6 times 10, the median of the last 3 runs of expire-snapshots here" in reason
    assert "times 2, for the last was 2 d ago and they are 1 d apart" in reason
    with orders.loses(set()):
        assert iceberg_cli(EXPIRY, orders.name, *AS_OF, "--yes").code == 11


def test_two_runs_are_too_few_to_know_what_is_usual(orders: FolderTable) -> None:
    record(orders, a_record(orders, 0), a_record(orders, 1, days_ago=1))
    assert reasons(orders) == []


BESIDES: dict[str, dict[str, Any] | bytes] = {
    "a damaged record": b'{"version": 1, "operation"',
    "a record without a number": b'{"version": 1, "operation": "expire-snapshots"}',
    "a record of a newer program": {"version": 2},
    "a run that deleted nothing": {"deleted_files_count": 0},
    "a run on a table that was here before": {"table_uuid": "another"},
    "a run of another verb": {"operation": "merge-dvs"},
}


@pytest.mark.parametrize("beside", BESIDES.values(), ids=BESIDES.keys())
def test_what_does_not_count_neither_counts_nor_fails(
    orders: FolderTable, beside: dict[str, Any] | bytes
) -> None:
    other = beside if isinstance(beside, bytes) else a_record(orders, 2, days_ago=0, **beside)
    record(orders, other, a_record(orders, 0), a_record(orders, 1, days_ago=1))
    assert reasons(orders) == [], "two others are too few"
    record(orders, other, *(a_record(orders, number, days_ago=number) for number in range(3)))
    assert ["6 times 10, the median of the last 3 runs" in each for each in reasons(orders)] == [True]

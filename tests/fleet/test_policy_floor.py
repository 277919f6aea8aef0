"""A policy file keeps no less than a table's own properties ask for, unless it says so for that table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.fleet.policy_file import GivenOptions
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, a_remove, an_add, write_log
from tests.builders import DAY_MS, HOUR_MS, NOW_MS
from tests.cli.lakes import AS_OF_MS, edited, four_snapshots, newest_metadata, old_files
from tests.fleet.policy_files import of_table

AGE, COUNT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
UNSAFE = 'unsafe = ["short-retention"]'
BY_AND_LESS = ", which may keep less than the table's properties"
VERB = "expire-snapshots"


def an_iceberg_table(folder: Path, **properties: str) -> str:
    """Snapshots 1 to 4, nine to six days old."""
    return four_snapshots(folder / "t", properties=properties).publish()


def a_delta_table(folder: Path, **configuration: str) -> str:
    """Files removed 20 and 10 days ago, and a version for each."""
    names = ("a", "b", "c")
    first = [
        a_protocol(),
        a_metadata(configuration=configuration),
        *(an_add(path=f"{n}.parquet") for n in names),
    ]
    removes = [
        a_remove(path=f"{name}.parquet", deletionTimestamp=AS_OF_MS - days * DAY_MS)
        for name, days in (("b", 20), ("c", 10))
    ]
    ages = [NOW_MS - AS_OF_MS + days * DAY_MS for days in (40, 20, 10)]
    write_log(folder / "t", first, *([each] for each in removes), age_ms=ages)
    old_files(folder / "t", *(f"{name}.parquet" for name in names))
    return str(folder / "t")


def planned(folder: Path, table: str, text: str, **around: GivenOptions) -> ic.Plan:
    """The plan of expire-snapshots by a policy file with these lines for all tables."""
    opened = ic.open_table(table)
    found = of_table(folder, f'[[tables]]\nmatch = ["{folder}/**"]\n{text}', table)
    policy = found.verbs[VERB].policy(opened.format, now_ms=AS_OF_MS, **around)
    return opened.plan(policy, as_of=AS_OF_MS)


def source(folder: Path, key: str) -> str:
    return f"{folder}/policy.toml: tables[0].{VERB}.{key}"


def option(plan: ic.Plan, name: str) -> tuple[Any, str]:
    return plan.content.options[name].value, plan.content.options[name].source


@pytest.mark.parametrize(
    ("days", "text", "cut_days", "wins"),
    [
        (8, "7d", 8, True),
        (8, "8d", 8, False),
        (8, "9d", 9, False),
        (30, "1h", 30, True),
        (None, "1d", 1, False),
    ],
)
def test_the_greater_age_decides(
    days: int | None, text: str, cut_days: int, wins: bool, tmp_path: Path
) -> None:
    table = an_iceberg_table(tmp_path, **({} if days is None else {AGE: str(days * DAY_MS)}))
    own = source(tmp_path, "older-than")
    plan = planned(tmp_path, table, f'{VERB}.older-than = "{text}"')
    stated = f"table property {AGE}, which keeps more than {own}" if wins else own
    assert option(plan, "older_than_ms") == (AS_OF_MS - cut_days * DAY_MS, stated)


@pytest.mark.parametrize(
    ("count", "own", "kept", "wins"), [(3, 2, 3, True), (3, 3, 3, False), (2, 3, 3, False)]
)
def test_the_greater_count_decides(count: int, own: int, kept: int, wins: bool, tmp_path: Path) -> None:
    table = an_iceberg_table(tmp_path, **{COUNT: str(count)})
    plan = planned(tmp_path, table, f"{VERB}.retain-last = {own}")
    file = source(tmp_path, "retain-last")
    stated = f"table property {COUNT}, which keeps more than {file}" if wins else file
    assert option(plan, "retain_last") == (kept, stated)


def test_with_short_retention_it_keeps_less_than_the_properties(tmp_path: Path) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(30 * DAY_MS), COUNT: "4"})
    lines = f'{VERB} = {{ older-than = "7d", retain-last = 1 }}'
    careful = planned(tmp_path, table, lines)
    assert (careful.due, option(careful, "retain_last")[0]) == (False, 4)
    plan = planned(tmp_path, table, f"{UNSAFE}\n{lines}")
    assert option(plan, "older_than_ms") == (
        AS_OF_MS - 7 * DAY_MS, source(tmp_path, "older-than") + BY_AND_LESS,
    )  # fmt: skip
    assert option(plan, "retain_last") == (1, source(tmp_path, "retain-last") + BY_AND_LESS)
    assert {each.id for each in plan.verdicts if not each.keep} == {"1", "2"}


def test_what_a_file_or_variable_has_for_all_tables_does_not_keep_less_even_then(tmp_path: Path) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(30 * DAY_MS), COUNT: "4"})
    general = GivenOptions(
        given={"--older-than": "1d", "--retain-last": 1},
        sources={"--older-than": "variable A", "--retain-last": "variable B"},
    )
    for around in ({"stronger": general}, {"weaker": general}):
        plan = planned(tmp_path, table, f"{UNSAFE}\n{VERB} = {{}}", **around)
        assert option(plan, "older_than_ms")[0] == AS_OF_MS - 30 * DAY_MS
        assert option(plan, "retain_last") == (4, f"table property {COUNT}, which keeps more than variable B")


def test_what_a_branch_asks_for_is_stronger_than_short_retention(tmp_path: Path) -> None:
    table = an_iceberg_table(tmp_path)
    with edited(newest_metadata(tmp_path / "t")) as metadata:
        metadata["refs"]["main"]["min-snapshots-to-keep"] = 3
    plan = planned(tmp_path, table, f'{UNSAFE}\n{VERB} = {{ older-than = "1d", retain-last = 1 }}')
    assert {each.id for each in plan.verdicts if not each.keep} == {"1"}


def test_a_plan_that_is_made_again_is_allowed_the_same(tmp_path: Path) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(30 * DAY_MS), COUNT: "4"})
    plan = planned(tmp_path, table, f'{UNSAFE}\n{VERB} = {{ older-than = "7d", retain-last = 1 }}')
    again = ic.iceberg.ExpireSnapshots.of_plan(plan.content)
    assert again.is_explicit("older_than")
    assert again.is_explicit("retain_last")


# -- Delta -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "text", "days", "wins"),
    [
        ("interval 15 days", "8d", 15, True),
        ("interval 15 days", "2w", 15, True),
        ("interval 2 weeks", "15d", 15, False),
        (None, "8d", 8, False),
    ],
)
def test_the_longer_retention_of_removed_files_decides(
    interval: str | None, text: str, days: int, wins: bool, tmp_path: Path
) -> None:
    table = a_delta_table(tmp_path, **({} if interval is None else {FILES: interval}))
    own = source(tmp_path, "retention")
    plan = planned(
        tmp_path, table, f'{VERB} = {{ retention = "{text}", older-than = "1d", retain-last = 1 }}'
    )
    stated = f"table property {FILES}, which keeps more than {own}" if wins else own
    assert option(plan, "retention_ms") == (days * DAY_MS, stated)
    assert plan.blocked_by == ()


@pytest.mark.parametrize(
    ("text", "days", "wins"), [("20d", 35, True), ("35d", 35, False), ("36d", 36, False)]
)
def test_the_longer_retention_of_the_log_decides(text: str, days: int, wins: bool, tmp_path: Path) -> None:
    table = a_delta_table(tmp_path, **{LOG: "interval 35 days"})
    own = source(tmp_path, "log-retention")
    plan = planned(tmp_path, table, f'{VERB}.log-retention = "{text}"')
    stated = f"table property {LOG}, which keeps more than {own}" if wins else own
    assert option(plan, "log_retention_ms") == (days * DAY_MS, stated)


def test_less_than_delta_promises_by_default_is_blocked(tmp_path: Path) -> None:
    table = a_delta_table(tmp_path)
    lines = f'{VERB}.retention = "1h"'
    (reason,) = planned(tmp_path, table, lines).blocked_by
    assert reason.startswith(
        f"{source(tmp_path, 'retention')} 1 h is less than the 168 h that the table promises"
    )
    plan = planned(tmp_path, table, f"{UNSAFE}\n{lines}")
    assert plan.blocked_by == ()
    assert option(plan, "unsafe_short_retention") == (True, f"{tmp_path}/policy.toml: tables[0].unsafe")


def test_with_short_retention_delta_keeps_less_than_its_properties(tmp_path: Path) -> None:
    table = a_delta_table(tmp_path, **{FILES: "interval 15 days", LOG: "interval 35 days"})
    plan = planned(tmp_path, table, f'{UNSAFE}\n{VERB} = {{ retention = "1h", log-retention = "1d" }}')
    assert plan.blocked_by == ()
    assert option(plan, "retention_ms") == (HOUR_MS, source(tmp_path, "retention") + BY_AND_LESS)
    assert option(plan, "log_retention_ms") == (DAY_MS, source(tmp_path, "log-retention") + BY_AND_LESS)


def test_short_retention_without_a_retention_changes_nothing(tmp_path: Path) -> None:
    table = a_delta_table(tmp_path, **{FILES: "interval 15 days"})
    plan = planned(tmp_path, table, f"{UNSAFE}\n{VERB} = {{}}")
    assert "unsafe_short_retention" not in plan.content.options
    assert option(plan, "retention_ms") == (15 * DAY_MS, f"table property {FILES}")


@pytest.mark.parametrize("place", ["weaker", "stronger"])
@pytest.mark.parametrize("lines", [f"{VERB} = {{}}", f'{VERB}.log-retention = "1d"'])
def test_short_retention_of_a_variable_stays_blocked(place: str, lines: str, tmp_path: Path) -> None:
    table = a_delta_table(tmp_path)
    general = GivenOptions(given={"--retention": "1h"}, sources={"--retention": "variable R"})
    plan = planned(tmp_path, table, f"{UNSAFE}\n{lines}", **{place: general})
    assert any(each.startswith("variable R 1 h is less than the 168 h") for each in plan.blocked_by)

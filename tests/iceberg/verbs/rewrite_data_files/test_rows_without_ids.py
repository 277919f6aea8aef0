"""Rows have no ids, as after an upgrade: they get some first, and keep these when their files are rewritten.

Else the first commit of a group gave ids to the files that are left, and what was read of these before has none.
"""

from __future__ import annotations

from typing import Any

from iceberg_cli.errors import Interrupted
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.plan.plan import Plan
from tests.iceberg.verbs.rewrite_data_files.tables import RowsTable
from tests.iceberg.verbs.rewrite_data_files.test_hazards_meanwhile import X_AND_Y, two_partitions, without
from tests.iceberg.verbs.rewrite_data_files.whole_runs import PLAIN, Run, numbers, reload, rewrite
from tests.manifest_tables import NAME, NOW_MS, opened

ROWS = 15


def upgraded() -> RowsTable:
    """Nobody has committed since the upgrade."""
    table = two_partitions(2)
    table.document |= {"format-version": 3, "next-row-id": 0}
    table.format_version = 3
    return table


def ids_of(run: Run) -> dict[Any, int | None]:
    """By the numbers of rows."""
    return {row[0]: row[-2] for row in run.rows_with_ids}


def appended(table: RowsTable) -> None:
    numbers(table, "new", [50, 51], k="x")
    table.commit(7)


def test_rows_get_ids_by_a_commit_of_its_own_and_keep_them() -> None:
    """H18, C14"""
    table = upgraded()
    run = rewrite(table)
    assert [step.name for step in run.plan.steps] == ["assign-row-ids main", "rewrite-data-files main"]
    assert run.report is not None
    assert (run.report.status, run.report.verb) == ("done", VERB.name)
    assert [(each["snapshot_id"], each["groups"]) for each in run.report.commits] == [
        (run.first[0]["snapshot-id"], 0),
        (run.own[0]["snapshot-id"], 2),
    ]
    assert "15 assigned rows" in run.report.notes[0]
    assert run.rows == X_AND_Y
    # One manifest has all files, in the order in which they were added: 10, 2, 2 and 1 rows.
    assert ids_of(run) == {**{n: n for n in range(12)}, 20: 12, 21: 13, 22: 14}
    assert run.document["next-row-id"] >= ROWS
    assert rewrite(table, rewrite_all=False).report is None


def test_where_nothing_is_to_be_rewritten_no_row_gets_an_id() -> None:
    run = rewrite(upgraded(), rewrite_all=False)
    assert run.plan.steps == ()
    assert {each.subject for each in run.plan.verdicts} == {"partition"}
    assert run.document["next-row-id"] == 0


def test_policy_files_do_not_have_ids_given_by_this_verb() -> None:
    run = rewrite(upgraded(), no_assign_row_ids=True)
    assert run.plan.blocked_by == (
        "some rows of the branch have no ids yet; `assign-row-ids` gives them some",
    )


def test_what_is_appended_before_rows_get_ids_is_in_no_group() -> None:
    run = rewrite(upgraded(), meanwhile=appended)
    assert run.report is not None
    assert run.report.status == "done"
    assert run.left == ["new"]
    assert run.rows == without([*X_AND_Y, (50, "x"), (51, "x")])
    ids = ids_of(run)
    assert len({*ids.values()} - {None}) == len(ids)


def test_another_writers_commit_has_given_the_ids() -> None:
    """Any commit of version 3 does; then nothing is left to do first."""
    table = upgraded()
    run = rewrite(table, after_plan=appended, loads_again=True)
    assert run.report is not None
    assert run.first == []
    assert [each["groups"] for each in run.report.commits] == [2]
    assert run.left == ["new"]
    assert len({*ids_of(run).values()} - {None}) == ROWS + 2


def test_rows_are_deleted_after_they_got_ids() -> None:
    def deleted(table: RowsTable) -> None:
        table.vectors("p", {"a": [3]}, k="x")
        table.commit(7)

    run = rewrite(upgraded(), between=deleted, commit_every=None, single_commit=True)
    assert run.report is not None
    assert run.report.counts["remapped_deletes_count"] == 1
    assert run.rows == without(X_AND_Y, 3)
    assert ids_of(run) == {**{n: n for n in range(12) if n != 3}, 20: 12, 21: 13, 22: 14}


def test_no_group_can_be_committed_after_rows_got_ids() -> None:
    """The table is as it should be for the next run: that is no error."""

    def removed(table: RowsTable) -> None:
        table.remove("a", "c")
        table.commit(7)

    run = rewrite(upgraded(), between=removed, commit_every=None, single_commit=True)
    assert run.error is None
    assert run.report is not None
    assert (run.report.status, run.report.exit_code, len(run.first), run.own) == ("partial", 0, 1, [])
    assert any("is not live any more" in note for note in run.report.notes)
    assert run.report.counts["rewritten_data_files_count"] == 0
    again = rewrite(run.table)
    assert again.rows == run.rows


def test_a_saved_plan_is_carried_out_before_and_after_rows_got_ids() -> None:
    table = upgraded()
    found = opened(table.storage, table.publish())
    found.table.load()
    policy = RewriteDataFiles(**PLAIN)
    saved = VERB.plan(found.table, policy, as_of_ms=NOW_MS).plan

    def again() -> Plan:
        found.table.load()
        return VERB.plan(found.table, policy, as_of_ms=NOW_MS, within=saved).plan

    assert [step.name for step in again().steps] == [step.name for step in saved.steps]
    reload(table, found)
    appended(table)
    found.catalog.locations[NAME] = table.publish()
    now = again()
    assert [step.name for step in now.steps] == ["rewrite-data-files main"]
    assert {each.subject for each in now.verdicts} <= {"partition"}
    assert saved.groups is not None
    assert now.groups is not None
    assert saved.groups.inputs["first_row_id"].null_count == 4
    live = {each["file_path"]: each["first_row_id"] for each in table.live()}
    inputs = zip(
        now.groups.inputs["path"].to_pylist(), now.groups.inputs["first_row_id"].to_pylist(), strict=True
    )
    assert dict(inputs) == {path: first for path, first in live.items() if not path.endswith("new.parquet")}


def test_a_plan_from_before_the_upgrade_gives_no_ids() -> None:
    table = two_partitions(2)
    found = opened(table.storage, table.publish())
    found.table.load()
    policy = RewriteDataFiles(**PLAIN)
    saved = VERB.plan(found.table, policy, as_of_ms=NOW_MS).plan
    reload(table, found)
    table.document |= {"format-version": 3, "next-row-id": 0}
    found.catalog.locations[NAME] = table.publish()
    found.table.load()
    (reason,) = VERB.plan(found.table, policy, as_of_ms=NOW_MS, within=saved).plan.blocked_by
    assert reason.endswith("plan again")


def test_a_signal_after_rows_got_ids_says_that_they_did() -> None:
    table = upgraded()
    ends, seen = f"{table.location}/_iceberg_cli/groups", set[str]()

    def stop_requested() -> bool:
        seen.update(each.path for each in table.storage.list(ends))
        return bool(seen)

    run = rewrite(table, stop_requested=stop_requested)
    assert isinstance(run.error, Interrupted)
    assert run.error.exit_code == 14
    assert "Commits before it: 1" in str(run.error.state)
    assert (len(run.first), len(run.own)) == (1, 1)

"""What a new head of a branch would leave unpublished is told, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.rewrite_data_files.strands import stranded
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.iceberg.verbs.rewrite_data_files.writers import plan_of
from tests.manifest_tables import opened


def a_table() -> RowsTable:
    table = RowsTable(format_version=2)
    for number in range(5):
        table.rows(f"f{number}", [(N, [number]), (K, ["a"])])
    table.commit(1)
    table.rows("f5", [(N, [5]), (K, ["a"])])
    table.commit(2)
    return table


def found(document: dict[str, Any]) -> tuple[str, ...]:
    return stranded(TableMetadata.from_json(document, path="m"), "main")


def with_audit(document: dict[str, Any], *, main: int, audit: int) -> dict[str, Any]:
    document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = main
    document["refs"]["audit"] = {"snapshot-id": audit, "type": "branch"}
    return document


def test_a_branch_that_is_ahead_is_told_and_one_that_is_not_is_not() -> None:
    assert found(with_audit(a_table().document, main=2, audit=1)) == ()
    assert found(with_audit(a_table().document, main=2, audit=2)) == ()
    (reason,) = found(with_audit(a_table().document, main=1, audit=2))
    assert reason == "branch audit is ahead of main, which could not be fast-forwarded to it any more"


def test_a_tag_ahead_of_a_branch_is_nothing_to_publish() -> None:
    document = with_audit(a_table().document, main=1, audit=2)
    document["refs"]["audit"]["type"] = "tag"
    assert found(document) == ()


@pytest.mark.parametrize(
    ("operation", "more", "is_told"),
    [
        ("overwrite", {}, True),
        ("delete", {}, True),
        ("append", {}, False),
        ("overwrite", {"published": True}, False),
    ],
)
def test_a_staged_snapshot_that_can_only_be_published_on_this_head_is_told(
    operation: str, more: dict[str, bool], is_told: bool
) -> None:
    document = a_table().document
    document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = 1
    (staged,) = (each for each in document["snapshots"] if each["snapshot-id"] == 2)
    staged["summary"] |= {"operation": operation, "wap.id": "w"}
    if more:
        (first,) = (each for each in document["snapshots"] if each["snapshot-id"] == 1)
        first["summary"]["published-wap-id"] = "w"
    assert bool(found(document)) is is_told


def test_a_plan_is_blocked_by_it_unless_that_is_accepted() -> None:
    table = a_table()
    with_audit(table.document, main=1, audit=2)
    opening = opened(table.storage, table.publish())
    plan = plan_of(opening)
    assert plan.due
    assert [each.partition(",")[0] for each in plan.blocked_by] == ["branch audit is ahead of main"]
    accepted = plan_of(opening, unsafe_strand_branches=True)
    assert accepted.blocked_by == ()
    assert any("branch audit is ahead of main" in each for each in accepted.warnings)


def test_a_plan_is_blocked_by_a_staged_snapshot_too() -> None:
    table = a_table()
    table.document["refs"]["main"]["snapshot-id"] = table.document["current-snapshot-id"] = 1
    (staged,) = (each for each in table.document["snapshots"] if each["snapshot-id"] == 2)
    staged["summary"] |= {"operation": "overwrite", "wap.id": "w"}
    (reason,) = plan_of(opened(table.storage, table.publish())).blocked_by
    assert reason.startswith("snapshot 2 is staged on main (wap.id w), and could not be published any more")

"""Which snapshots of a branch are an operation's own, and where the branch goes, on documents of a few snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_cli.iceberg.commit.own_snapshots import OwnSnapshots, head_state, own_snapshots
from iceberg_cli.iceberg.verbs.undo import rules
from tests.metadata_documents import a_document, a_snapshot, parsed

OURS = {"operation": "replace", "iceberg-cli.operation-id": "ours"}
MAIN = ("main",)


def a_line(*own: int, version: int = 2, newest: int = 4, **refs: int) -> dict[str, Any]:
    """Snapshots 1 to `newest`, each on top of the one before; those of `own` are an operation's."""
    document = a_document(version, *range(1, newest + 1))
    document["snapshots"] = [
        a_snapshot(
            each,
            parent_snapshot_id=each - 1 or None,
            summary=OURS if each in own else {"operation": "append"},
            **({"first_row_id": 10 * each, "added_rows": 0} if version > 2 else {}),
        )
        for each in range(1, newest + 1)
    ]
    if version > 2:
        document["next-row-id"] = 1_000
    document["refs"] |= {name: {"snapshot-id": each, "type": "branch"} for name, each in refs.items()}
    return document


def found(document: dict[str, Any], branches: tuple[str, ...] | None = MAIN) -> OwnSnapshots | str:
    return own_snapshots(parsed(document), "ours", branches)


def ids(own: OwnSnapshots | str) -> tuple[str, list[int], int]:
    assert isinstance(own, OwnSnapshots), own
    return own.branch, [each.snapshot_id for each in own.snapshots], own.before.snapshot_id


def test_all_commits_of_an_operation_go_together() -> None:
    assert ids(found(a_line(4))) == ("main", [4], 3)
    assert ids(found(a_line(3, 4))) == ("main", [4, 3], 2)


@pytest.mark.parametrize(
    ("document", "branches", "reason"),
    [
        (a_line(3), MAIN, "branch main has other commits since"),
        (a_line(2, 4), MAIN, "branch main has other commits between its own"),
        (a_line(), MAIN, "its snapshots are not in the table any more, or it made none"),
        (a_line(3), None, "its branch has moved since"),
        (a_line(4, audit=4), None, "which of the branches audit, main it committed to is not known"),
        (a_line(4, audit=4), ("other",), "its branch has moved since"),
    ],
)
def test_why_a_branch_does_not_go_back(
    document: dict[str, Any], branches: tuple[str, ...] | None, reason: str
) -> None:
    assert found(document, branches) == reason


def test_a_branch_that_others_made_from_it_stays_where_it_is() -> None:
    document = a_line(4, audit=4)
    own = found(document, MAIN)
    assert ids(own) == ("main", [4], 3)
    assert isinstance(own, OwnSnapshots)
    (update,) = rules.move_back(parsed(document), own).updates()
    assert (update["ref-name"], update["snapshot-id"]) == ("main", 3)


def test_the_snapshot_before_it_must_be_in_the_table() -> None:
    document = a_line(4)
    document["snapshots"] = [each for each in document["snapshots"] if each["snapshot-id"] != 3]
    document["snapshot-log"] = document["snapshot-log"][3:]
    assert found(document) == "the snapshot before it, 3, has expired"
    first = a_line(1, newest=1)
    assert found(first) == "the snapshot before it, None, has expired"


def test_retention_of_the_branch_stays() -> None:
    document = a_line(4)
    document["refs"]["main"] |= {"min-snapshots-to-keep": 3, "max-snapshot-age-ms": 5, "max-ref-age-ms": 7}
    own = found(document)
    assert isinstance(own, OwnSnapshots)
    (update,) = rules.move_back(parsed(document), own).updates()
    assert update == {
        "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 3,
        "min-snapshots-to-keep": 3, "max-snapshot-age-ms": 5, "max-ref-age-ms": 7,
    }  # fmt: skip


def test_what_the_rewrite_reserved_for_new_files_is_no_obstacle() -> None:
    document = a_line(4, version=3)
    document["snapshots"][-1]["added-rows"] = 5
    assert head_state(parsed(document), "ours", MAIN).possible


def test_a_snapshot_of_before_version_3_has_no_row_ids() -> None:
    document = a_line(4, version=3)
    del document["snapshots"][2]["first-row-id"], document["snapshots"][2]["added-rows"]
    state = head_state(parsed(document), "ours", MAIN)
    assert (state.possible, "no row ids" in state.reason) == (False, True)

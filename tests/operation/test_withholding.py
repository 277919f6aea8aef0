"""Which of a table's open operations other ones wait for, and which forbid them deletions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import Refused
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.withholding import EarlierOperation, check_others, earlier_operation
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.table.table import OpenTable
from tests.cli.lakes import four_snapshots
from tests.journals import BEGIN, append, intent, outcome

NOW_MS = 1_000


class Place:
    """A table in a folder, and operations on it that other processes began."""

    def __init__(self, folder: Path) -> None:
        self.table: OpenTable = open_table(
            four_snapshots(folder / "t").publish(), storage_options={}, on_event=lambda _: None
        )
        self.table.load()

    def operation(self, name: str, *records: tuple[str, Mapping[str, Any]]) -> Operation:
        """One with these records after its begin."""
        journal = Journal.create(LocalStorage(), self.table.location, name)
        append(journal, "begin", {**BEGIN, "steps": ["main", "other"]})
        for kind, body in records:
            append(journal, kind, body)
        found = journal.operation()
        assert found is not None
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def waits(place: Place, name: str, until_ms: int) -> Operation:
    """An operation whose files wait for a grace."""
    return place.operation(name, intent(grace_ms=5), outcome(until_ms=until_ms))


# -- what is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_the_longest_grace_is_waited_for(place: Place, order: tuple[int, ...]) -> None:
    all_of_them = [waits(place, f"op{until}", until) for until in (NOW_MS + 5, NOW_MS + 9, NOW_MS + 7)]
    found = earlier_operation([None, *(all_of_them[number] for number in order)], now_ms=NOW_MS)
    assert found == EarlierOperation(operation_id=f"op{NOW_MS + 9}", until_ms=NOW_MS + 9)


@pytest.mark.parametrize(("until_ms", "is_over"), [(NOW_MS - 1, True), (NOW_MS, True), (NOW_MS + 1, False)])
def test_a_grace_that_is_over_is_not_waited_for(place: Place, until_ms: int, *, is_over: bool) -> None:
    assert (earlier_operation([waits(place, "op", until_ms)], now_ms=NOW_MS) is None) is is_over


def test_a_closed_operation_is_not_waited_for(place: Place) -> None:
    closed = place.operation(
        "op",
        intent(grace_ms=5),
        outcome(until_ms=NOW_MS + 5),
        ("close", {"status": "abandoned", "begin": BEGIN}),
    )
    assert earlier_operation([closed, None], now_ms=NOW_MS) is None


@pytest.mark.parametrize("answer", [(), (outcome(word="unknown"),)])
def test_a_commit_without_a_known_outcome_is_waited_for_before_any_grace(
    place: Place, answer: tuple[tuple[str, dict[str, Any]], ...]
) -> None:
    asking = place.operation("asks", intent(grace_ms=5), *answer)
    found = earlier_operation([waits(place, "waits", NOW_MS + 5), asking], now_ms=NOW_MS)
    assert found == EarlierOperation(operation_id="asks", until_ms=None)


def test_what_is_waited_for_is_named_with_the_way_out() -> None:
    way_out = "`resume TABLE op --abandon` frees them"
    known = str(EarlierOperation(operation_id="op", until_ms=0))
    assert known == f"operation op, whose grace ends at 1970-01-01T00:00:00.000Z; {way_out}"
    unknown = str(EarlierOperation(operation_id="op", until_ms=None))
    assert unknown == f"operation op, whose commit has no known outcome; {way_out}"


# -- what forbids deletions -------------------------------------------------------------------------------------------


def test_an_operation_that_keeps_all_files_forbids_deletions_to_others(place: Place) -> None:
    place.operation("op", intent(), outcome(withheld="a tag went with it"))
    with pytest.raises(Refused, match="operation op keeps all of them: a tag went with it"):
        check_others(place.table, "t")
    assert check_others(place.table, "t", besides="op") == ()


@pytest.mark.parametrize("first", [(), (intent(), outcome(), ("step-done", {"step": "main"}))])
def test_a_request_without_an_answer_forbids_deletions_to_others(
    place: Place, first: tuple[tuple[str, dict[str, Any]], ...]
) -> None:
    place.operation("op", *first, intent("other", served=True))
    with pytest.raises(Refused, match="what became of the commit of operation op is not known"):
        check_others(place.table, "t")


def test_those_whose_files_wait_are_named(place: Place) -> None:
    waits(place, "waits", NOW_MS)
    place.operation("asks", intent(grace_ms=5))
    place.operation("sweeps", intent(), outcome())
    Journal.create(LocalStorage(), place.table.location, "not-begun").put("plan.json", b"{}")
    assert "not-begun" in place.table.workspace.open_operations()
    assert set(check_others(place.table, "t")) == {"waits", "asks"}
    assert check_others(place.table, "t", besides="waits") == ("asks",)

"""When `maintain` leaves a table or a verb alone, and what of a run is known after an error: tables in folders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli import api
from iceberg_cli.errors import CommitStateUnknown, DeletesFailed, Refused
from iceberg_cli.fleet import maintenance
from iceberg_cli.fleet.opening import TableOpener
from tests.cli.lakes import four_snapshots, listing, unchanged
from tests.cli.running import JSON, Ran, iceberg_cli
from tests.fleet.maintaining import EXPIRE, policy_file

VERBS = {**EXPIRE, "rewrite-manifests": "{ min-manifests = 2 }"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder of two tables on which both verbs have something to do."""
    for name in ("a", "b"):
        four_snapshots(tmp_path / "lake" / name).publish()
    return tmp_path / "lake"


def maintained(lake: Path, *more: str, verbs: dict[str, str] | None = None) -> Ran:
    """A run by a policy of both verbs, and its document."""
    policy = policy_file(lake.parent / "policy.toml", verbs or VERBS, [f"{lake}/*"], more=more)
    return iceberg_cli("maintain", f"{lake}/*", "--policy", policy, "--jobs", "1", "--yes", *JSON)


def records(ran: Ran, name: str) -> list[tuple[str | None, str, str]]:
    """Verb, status and reason of each record of a table."""
    own = [run for run in ran.json["runs"] + ran.json["left"] if run["table"]["name"].endswith(f"/{name}")]
    return [(run["operation"], run.get("status", "left"), run["reason"]) for run in own]


def window(start: datetime, end: datetime) -> str:
    return f'window = {{ from = "{start:%H:%M}", to = "{end:%H:%M}", zone = "UTC" }}'


@pytest.mark.parametrize("is_open", [True, False])
def test_a_table_is_worked_on_in_its_window_alone(lake: Path, *, is_open: bool) -> None:
    now = datetime.now(UTC)  # noqa: TID251 - runs have a deadline of the real clock
    hours = (-2, 2) if is_open else (2, 4)
    own = window(*(now + timedelta(hours=each) for each in hours))
    before = listing(lake)
    ran = maintained(lake, own)
    assert ran.code == 0, ran.err
    statuses = {status for _, status, _ in records(ran, "a")}
    assert statuses == ({"done"} if is_open else {"skipped"})
    assert (listing(lake) == before) is not is_open
    assert is_open or "outside its window" in records(ran, "a")[0][2]


def test_nothing_begins_once_the_window_is_over(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was open when the table was come to, and its end is long past by now."""
    then = datetime(2026, 1, 5, 3, tzinfo=UTC)
    monkeypatch.setattr(maintenance, "_now_ms", lambda: round(then.timestamp() * 1_000))
    with unchanged(lake):
        ran = maintained(lake, window(then - timedelta(hours=1), then + timedelta(hours=1)))
    assert ran.code == 0, ran.err
    assert {(status, reason) for _, status, reason in records(ran, "a")} == {("left", "its window is over")}


def test_a_table_that_cannot_be_read_fails_alone(lake: Path) -> None:
    [metadata] = (lake / "a" / "metadata").glob("v*.metadata.json")
    metadata.write_text("{")
    ran = maintained(lake)
    assert ran.code == 15
    [(verb, status, reason)] = records(ran, "a")
    assert (verb, status) == (None, "failed")
    assert metadata.name in reason
    assert {status for _, status, _ in records(ran, "b")} == {"done"}


def test_a_bug_on_one_table_says_nothing_of_the_others(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = TableOpener.open

    def fails_on_a(self: TableOpener, listed: Any) -> Any:
        if listed.name.endswith("/a"):
            raise RuntimeError("a bug")
        return opened(self, listed)

    monkeypatch.setattr(TableOpener, "open", fails_on_a)
    ran = maintained(lake)
    assert ran.code == 1
    [(verb, status, reason)] = records(ran, "a")
    assert (verb, status) == (None, "failed")
    assert "a bug" in reason
    assert {status for _, status, _ in records(ran, "b")} == {"done"}


def fail(verb: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb ends with an error on table a."""
    applied = api.Table.apply

    def apply(self: api.Table, plan: api.Plan, **values: Any) -> Any:
        if plan.verb == verb and self.name.endswith("/a"):
            raise error
        return applied(self, plan, **values)

    monkeypatch.setattr(api.Table, "apply", apply)


def test_nothing_follows_a_commit_of_unknown_outcome(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail("rewrite-manifests", CommitStateUnknown("Cannot tell whether it happened"), monkeypatch)
    ran = maintained(lake)
    assert ran.code == CommitStateUnknown.exit_code
    first, second = records(ran, "a")
    assert first[:2] == ("rewrite-manifests", "unknown")
    assert second == ("expire-snapshots", "skipped", "what came of operation of this run is not known")
    assert [status for _, status, _ in records(ran, "b")] == ["done", "done"]


def test_other_verbs_follow_one_that_failed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail("rewrite-manifests", DeletesFailed("A file is still there"), monkeypatch)
    ran = maintained(lake)
    assert ran.code == DeletesFailed.exit_code
    statuses = [(verb, status) for verb, status, _ in records(ran, "a")]
    assert ("expire-snapshots", "done") in statuses
    assert ("rewrite-manifests", "done") not in statuses


def test_a_verb_is_left_out_where_the_one_that_it_needs_failed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail("upgrade-v3", Refused("It is refused"), monkeypatch)
    ran = maintained(lake, verbs={"upgrade-v3": "{}", "assign-row-ids": "{}"})
    assert ran.code == Refused.exit_code
    last = records(ran, "a")[-1]
    assert last == ("assign-row-ids", "skipped", "it needs upgrade-v3, which did not come to its end")
    assert "skipped" not in {status for _, status, _ in records(ran, "b")}

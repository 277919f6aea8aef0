"""The history of a table: one record of each operation that is over, whatever befalls the process that ends it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, CommitConflict, CorruptFile
from iceberg_cli.operation.apply import abandon
from iceberg_cli.operation.history import (
    NOT_DUE_ANY_MORE,
    NOTHING_DONE,
    PastOperation,
    last_run_ms,
    past_deletions,
    past_operations,
    record_end,
    rewritten_bytes_per_s,
)
from iceberg_cli.operation.journal import Journal
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.crash.world import NOW_MS, crash
from tests.budget import few_or_many, some
from tests.crash.scenes import Scene, a_scene, journal_files
from tests.journals import BEGIN, append, intent, outcome


@dataclass
class RefusingStorage(LocalStorage):
    """A local storage that takes no record of the history, as long as it has an error."""

    error: BackendUnavailable | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.error is not None and "/history/" in path:
            raise self.error
        super().put_if_absent(path, data)


@pytest.fixture
def scene() -> Scene:
    return a_scene()


def records_of(scene: Scene) -> list[dict[str, Any]]:
    """The records of a table, by name."""
    return [json.loads(data) for path, data in sorted(scene.world.files.items()) if "/history/" in path]


def test_of_an_operation_that_is_done_there_is_one_record(scene: Scene) -> None:
    before = {*scene.world.files}
    process = scene.process()
    report = process.run()
    assert process.shown is not None
    assert process.shown.removals is not None
    removals = process.shown.removals
    gone = [path for path in before if path not in scene.world.files]
    assert records_of(scene) == [
        {
            "version": 1,
            "operation_id": report.operation_id,
            "operation": "expire-snapshots",
            "table_uuid": scene.process().table.base().table_uuid,
            "actor": None,
            "started_ms": NOW_MS,
            "finished_ms": scene.world.now_ms,
            "status": "done",
            "committed": [scene.current],
            "deleted_files_count": len(gone),
            "reclaimed_bytes": report.reclaimed_bytes,
            "counts": {},
            "resumed": False,
            "removals": {
                "count": len(gone),
                "bytes": report.reclaimed_bytes,
                "digest": removals.digest,
            },
        }
    ]
    assert len(gone) == 14
    assert scene.process().run().status == "nothing_to_do"
    assert len(records_of(scene)) == 1


@few_or_many(12, many=1_000)
def test_a_crash_around_any_effect_leaves_one_record_in_the_end(scene: Scene, budget: int) -> None:
    trial = scene.copy().process()
    trial.run()
    resumed = 0
    for number in some(range(len(trial.effects)), budget):
        for moment in ("before", "after"):
            here = scene.copy()
            process = here.process(**{moment: {number: crash}})
            process.dies(process.run)
            begun = here.process().table.workspace.open_operations()
            here.process().resume()
            here.process().run()
            assert [record["status"] for record in records_of(here)] == ["done"], (number, moment)
            (record,) = records_of(here)
            assert record["deleted_files_count"] == 14, (number, moment)
            assert record["operation_id"] in begun or not record["resumed"], (number, moment)
            resumed += record["resumed"]
    assert resumed


def test_what_is_refused_by_others_commits_is_recorded_as_a_conflict(scene: Scene) -> None:
    with pytest.raises(CommitConflict):
        scene.process(swaps=["refused"] * 5).run()
    (record,) = records_of(scene)
    assert (record["status"], record["committed"], record["deleted_files_count"]) == ("conflict", [], 0)


def test_what_stopped_before_its_commit_is_no_operation_of_the_history(scene: Scene) -> None:
    process = scene.process(after={1: crash})
    assert process.dies(process.run)
    (report,) = scene.process().resume()
    assert report.status == "nothing_to_do"
    assert records_of(scene) == []


def test_who_stood_still_while_another_ended_the_operation_changes_nothing_of_its_record(
    scene: Scene,
) -> None:
    first = scene.process(before={2: crash})
    assert first.dies(first.run)
    (operation_id,) = scene.process().table.workspace.open_operations()
    late = scene.process().table.workspace.journal(operation_id)
    process = scene.process()
    abandon(process.table, operation_id, process.runtime)
    with pytest.raises(Exception, match="taken it over"):
        late.close("done", at_ms=5)
    (record,) = records_of(scene)
    assert (record["status"], record["finished_ms"]) == ("abandoned", scene.world.now_ms)
    assert journal_files(scene) == []


def begun(storage: LocalStorage, folder: str, operation_id: str, **body: object) -> Journal:
    journal = Journal.create(storage, folder, operation_id)
    append(journal, "begin", {**BEGIN, **body})
    append(journal, *outcome())
    return journal


def statuses(storage: LocalStorage, folder: str) -> list[tuple[str, int, str]]:
    """Of each record, newest first: verb, when it began, how it ended."""
    damaged: list[CorruptFile] = []
    past = past_operations(storage, folder, "u", on_damage=damaged.append)
    found = [(each.operation, each.started_ms, each.status) for each in past]
    assert damaged == []
    return found


def test_a_storage_that_fails_is_asked_again_by_whoever_comes_next(tmp_path: Any) -> None:
    storage = RefusingStorage(BackendUnavailable("503"))
    begun(storage, str(tmp_path), "op").close("done", at_ms=8)
    operation = Journal.load(storage, str(tmp_path), "op").operation()
    assert operation is not None
    assert operation.closed == "done"
    storage.error = None
    Journal.load(storage, str(tmp_path), "op").clean_up()
    assert statuses(storage, str(tmp_path)) == [("expire-snapshots", 7, "done")]
    assert not (tmp_path / "_iceberg_cli" / "ops").exists()


def test_a_storage_that_forbids_it_is_not_asked_again(tmp_path: Any) -> None:
    storage = RefusingStorage(AccessDenied("403"))
    begun(storage, str(tmp_path), "op").close("done", at_ms=8)
    assert statuses(storage, str(tmp_path)) == []
    assert not (tmp_path / "_iceberg_cli").exists()


def test_what_commits_count_is_summed_where_they_came_in(tmp_path: Any) -> None:
    storage = LocalStorage()
    journal = Journal.create(storage, str(tmp_path), "op")
    append(journal, "begin", {**BEGIN, "steps": ["first", "main"]})
    for step, word, counts in [
        ("first", "conflict", {"added_files_count": 5}),
        ("first", "committed", {"added_files_count": 2, "rewritten_bytes_count": 7}),
        ("main", "unknown", {"added_files_count": 11}),
    ]:
        kind, body = intent(step)
        append(journal, kind, {**body, "counts": counts})
        append(journal, *outcome(step, word=word))
    append(journal, *outcome("main"))  # of the one that was unknown
    assert journal.past(status="open", at_ms=None).counts == {
        "added_files_count": 13,
        "rewritten_bytes_count": 7,
    }


@pytest.mark.parametrize("status", [NOTHING_DONE, NOT_DUE_ANY_MORE])
def test_what_did_nothing_leaves_no_record_and_no_journal(status: str, tmp_path: Any) -> None:
    begun(LocalStorage(), str(tmp_path), "op").close(status, at_ms=8)
    assert not (tmp_path / "_iceberg_cli").exists()


def test_a_record_that_another_process_drops_meanwhile_is_none(tmp_path: Any) -> None:
    class Dropping(LocalStorage):
        def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
            if path.endswith("2-merge-dvs-op-2.json"):
                self.erase([path])
            return super().read(path, span)

    for number in (1, 2, 3):
        assert record_end(LocalStorage(), str(tmp_path), a_past(number))
    assert [started_ms for _, started_ms, _ in statuses(Dropping(), str(tmp_path))] == [3, 1]


def a_past(number: int, **values: Any) -> PastOperation:
    values = {"operation": "merge-dvs", "status": "done", "committed": ("m",), **values}
    return PastOperation(
        operation_id=f"op-{number}",
        actor="somebody",
        table_uuid="u",
        started_ms=number,
        deleted_files_count=1,
        reclaimed_bytes=2,
        **{"finished_ms": number + 1, "counts": {}, "resumed": False, **values},
    )


def test_of_each_verb_the_newest_hundred_stay(tmp_path: Any) -> None:
    storage = LocalStorage()
    keep = partial(record_end, storage, str(tmp_path))
    assert keep(a_past(1, operation="rewrite-manifests"))
    for number in [*range(900, 1_005), 899]:  # the names of which do not sort by number
        assert keep(a_past(number))
    found = statuses(storage, str(tmp_path))
    merges = [number for verb, number, _ in found if verb == "merge-dvs"]
    assert merges == [*range(1_004, 904, -1)]
    assert [verb for verb, _, _ in found if verb != "merge-dvs"] == ["rewrite-manifests"]


def test_files_of_other_names_are_none_and_a_damaged_record_is_named(tmp_path: Any) -> None:
    storage = LocalStorage()
    assert record_end(storage, str(tmp_path), a_past(5))
    folder = tmp_path / "_iceberg_cli" / "history"
    (folder / "notes.txt").write_text("mine")
    (folder / "x-merge-dvs-y.json").write_text("{}")
    (folder / "6-merge-dvs-op.json").write_text("[]")
    (folder / "7-merge-dvs-op.json").write_text("{")
    (folder / "8-merge-dvs-op.json").write_text('{"version": 1}')
    damaged: list[CorruptFile] = []
    found = [*past_operations(storage, str(tmp_path), "u", verb="merge-dvs", on_damage=damaged.append)]
    assert found == [a_past(5)]
    assert [error.path.rpartition("/")[2] for error in damaged] == [
        f"{n}-merge-dvs-op.json" for n in (8, 7, 6)
    ]


def test_what_was_done_to_another_table_at_this_place_is_none_of_its_history(tmp_path: Any) -> None:
    storage = LocalStorage()
    assert record_end(storage, str(tmp_path), a_past(1))

    def found(table_uuid: str) -> int:
        return len([*past_operations(storage, str(tmp_path), table_uuid, on_damage=lambda _: None)])

    # A table of version 1 may have none, and get one later.
    assert (found("u"), found("another"), found("")) == (1, 0, 1)
    assert last_run_ms(storage, str(tmp_path), "another", "merge-dvs") is None
    assert last_run_ms(storage, str(tmp_path), "u", "merge-dvs") == 1
    assert last_run_ms(storage, str(tmp_path), "u", "merge-dv") is None


def a_rewrite(number: int, size_bytes: int, duration_ms: int | None, **values: Any) -> PastOperation:
    finished_ms = None if duration_ms is None else number + duration_ms
    return a_past(number, counts={"rewritten_bytes_count": size_bytes}, finished_ms=finished_ms, **values)


@pytest.mark.parametrize(
    ("runs", "per_s"),
    [
        ([], None),
        ([a_rewrite(1, 500, 1_000)], 500),
        ([a_rewrite(1, 500, 250)], 2_000),
        # The median of the newest three.
        ([a_rewrite(n, size, 1_000) for n, size in enumerate((9_999, 10, 30, 20))], 20),
        ([a_rewrite(1, 10, 1_000), a_rewrite(2, 30, 1_000)], 20),
        ([a_rewrite(1, 10, 1_000), a_rewrite(2, 30, 1_000, resumed=True)], 10),
        ([a_rewrite(1, 10, 1_000), a_rewrite(2, 30, 1_000, status="conflict")], 10),
        ([a_rewrite(1, 10, 1_000), a_rewrite(2, 30, 1_000, operation="rewrite-manifests")], 10),
        ([a_past(1)], None),
        ([a_rewrite(1, 0, 1_000), a_rewrite(2, 30, 0), a_rewrite(3, 30, None)], None),
    ],
)
def test_how_fast_files_were_rewritten_here(
    runs: list[PastOperation], per_s: float | None, tmp_path: Any
) -> None:
    for each in runs:
        assert record_end(LocalStorage(), str(tmp_path), each)
    assert rewritten_bytes_per_s(LocalStorage(), str(tmp_path), "u", "merge-dvs") == per_s


@pytest.mark.parametrize(
    ("values", "finished"),
    [
        ({"status": "done"}, True),
        ({"status": "done", "committed": ()}, True),
        ({"status": "partial"}, True),
        ({"status": "partial", "committed": ()}, False),
        ({"status": "conflict"}, False),
        ({"status": "refused"}, False),
        ({"status": "abandoned"}, False),
    ],
)
def test_what_counts_as_a_finished_run(values: Mapping[str, Any], finished: bool) -> None:
    assert a_past(1, **values).is_finished is finished


@dataclass
class CountedReads(LocalStorage):
    """A local storage that knows what was read of it."""

    read_paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.read_paths.append(path)
        return super().read(path, span)


def test_for_what_the_last_ten_runs_deleted_ten_records_are_read(tmp_path: Path) -> None:
    storage = CountedReads()
    for number in range(30):
        ended = PastOperation(
            operation_id=f"op-{number}",
            operation="expire-snapshots",
            table_uuid="uuid",
            actor=None,
            started_ms=1_000 + number,
            finished_ms=2_000,
            status="done",
            committed=(),
            deleted_files_count=number,
            reclaimed_bytes=0,
            counts={},
            resumed=False,
        )
        assert record_end(storage, str(tmp_path), ended)
    found = past_deletions(storage, str(tmp_path), "uuid", verb="expire-snapshots", limit=10)
    assert found == [(1_000 + number, number) for number in range(29, 19, -1)]
    assert len(storage.read_paths) == 10
    oldest = past_deletions(storage, str(tmp_path), "uuid", verb="expire-snapshots", limit=100)
    assert oldest[-1] == (1_001, 1), "the run that deleted nothing is left out"
    assert past_deletions(storage, str(tmp_path), "uuid", verb="expire", limit=10) == []


@dataclass
class ClosedHistory(LocalStorage):
    """A local storage that does not list histories."""

    error: BackendUnavailable

    def __post_init__(self) -> None:
        super().__init__()

    def paths(self, folder: str) -> Iterator[str]:  # noqa: ARG002 - the port's signature
        raise self.error


def test_where_the_history_may_not_be_read_there_are_no_runs_and_where_the_storage_fails_nothing_is_decided(
    tmp_path: Path,
) -> None:
    denied = ClosedHistory(error=AccessDenied("Cannot list it: denied"))
    assert past_deletions(denied, str(tmp_path), "uuid", verb="expire-snapshots", limit=10) == []
    failing = ClosedHistory(error=BackendUnavailable("Cannot list it: no answer"))
    with pytest.raises(BackendUnavailable, match="no answer"):
        past_deletions(failing, str(tmp_path), "uuid", verb="expire-snapshots", limit=10)

"""A journal in a folder: its bytes, its chain, who may append, and the order in which it is deleted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable, CorruptFile, TakenOver
from iceberg_cli.operation.journal import PLAN_FILE, Journal, load_plan, prune_folders
from iceberg_cli.operation.removal_files import in_files
from iceberg_cli.operation.workspace import open_operations
from iceberg_cli.plan.plan import Plan, encode
from iceberg_cli.storage.local import LocalStorage
from tests.journals import BEGIN, RESUME, append, bodies, intent, outcome
from tests.plans import a_plan, a_removal, removals_of


class WatchedStorage(LocalStorage):
    """A local storage that notes what is deleted, where `before_read` can interfere and some names stay."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[list[str]] = []
        self.stuck = ""
        self.before_read: Callable[[str], None] = lambda _: None
        self.is_listable = True

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.before_read(path)
        return super().read(path, span)

    def paths(self, folder: str) -> Iterator[str]:
        if not self.is_listable:
            raise BackendUnavailable(f"Cannot list {folder}: 403")
        return super().paths(folder)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self.deletions.append(sorted(Path(path).name for path in paths))
        stuck = [path for path in paths if Path(path).name == self.stuck]
        gone = super().delete([path for path in paths if path not in stuck])
        return {**gone, **dict.fromkeys(stuck, "denied")}


@dataclass(frozen=True)
class Place:
    """A table's folder, with an empty folder that is none of the journal's."""

    table: Path
    storage: WatchedStorage

    @property
    def folder(self) -> Path:
        """Of the journal."""
        return self.table / "_iceberg_cli" / "ops" / "op"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def left(self) -> list[str]:
        """What is in the table's folder."""
        return sorted(path.name for path in self.table.iterdir())

    def past(self) -> list[str]:
        """The records of operations that are over."""
        return sorted(path.name for path in (self.table / "_iceberg_cli" / "history").iterdir())

    def created(self, operation_id: str = "op") -> Journal:
        return Journal.create(self.storage, f"{self.table}/", operation_id)

    def begun(self, *, resumes: int = 1) -> Journal:
        journal = self.created()
        append(journal, "begin", BEGIN)
        for _ in range(resumes):
            append(journal, "resume", RESUME)
        return journal

    def loaded(self) -> Journal:
        return Journal.load(self.storage, str(self.table), "op")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "t" / "data").mkdir(parents=True)
    return Place(tmp_path / "t", WatchedStorage())


def record(kind: str, previous: bytes | None, body: object) -> bytes:
    """A record's file as the module describes it."""
    digest = "" if previous is None else hashlib.sha256(previous).hexdigest()
    text = '{"kind": "%s", "previous": "%s", "body": %s' % (kind, digest, json.dumps(body))  # noqa: UP031
    return text.encode() + b', "digest": "' + hashlib.sha256(text.encode()).hexdigest().encode() + b'"}\n'


def test_records_are_lines_that_carry_the_digests_of_the_one_before_and_their_own(place: Place) -> None:
    empty = place.created()
    assert (empty.next_number, empty.operation(), bodies(empty, "begin")) == (0, None, [])
    journal = place.begun()
    first = record("begin", None, BEGIN)
    assert (place.folder / "000000.json").read_bytes() == first
    assert (place.folder / "000001.json").read_bytes() == record("resume", first, RESUME)
    assert place.names() == ["000000.json", "000001.json"]
    assert journal.next_number == 2


def test_what_was_appended_is_read_back_and_goes_on(place: Place) -> None:
    place.begun()
    (place.folder / "plan.json").write_text("{}")
    (place.folder / "000002").write_text("")
    journal = place.loaded()
    assert journal.next_number == 2
    assert bodies(journal, "begin") == [BEGIN]
    assert bodies(journal, "resume") == [RESUME]
    operation = journal.operation()
    assert operation is not None
    assert (operation.started_ms, operation.host) == (7, "other")
    append(journal, "resume", RESUME)
    assert bodies(journal, "resume") == [RESUME, RESUME]
    assert place.loaded().next_number == 3


def test_the_clock_is_that_of_the_newest_record(place: Place) -> None:
    journal = place.begun()
    os.utime(place.folder / "000000.json", (4, 4))
    os.utime(place.folder / "000001.json", (5, 5))
    assert journal.clock_ms() == 5_000


def test_of_two_that_write_one_record_one_goes_on(place: Place) -> None:
    one = place.begun()
    other = place.loaded()
    append(one, "resume", RESUME)
    with pytest.raises(TakenOver):
        append(other, "resume", RESUME)
    assert other.next_number == 2
    assert place.storage.deletions == []
    append(one, "resume", RESUME)


def test_who_appends_to_a_journal_that_another_one_deleted_leaves_nothing(place: Place) -> None:
    journal = place.begun()
    (place.folder / "000000.json").unlink()
    with pytest.raises(TakenOver):
        append(journal, "resume", RESUME)
    assert place.storage.deletions == [["000001.json", "000002.json"]]
    assert place.left() == ["data"]


@pytest.mark.parametrize("closed", [True, False], ids=["closed by another process", "deleted"])
def test_what_is_missing_of_a_journal_that_is_gone_was_taken_over(place: Place, *, closed: bool) -> None:
    journal = place.begun()
    journal.put("plan.json", b"{}")
    looks = (journal.clock_ms, lambda: journal.get("plan.json"))
    for look in looks:
        look()
    if closed:
        place.loaded().close("done", at_ms=2)
    else:
        for path in place.folder.iterdir():
            path.unlink()
    for look in looks:
        with pytest.raises(TakenOver, match="another process has taken it over"):
            look()


@pytest.mark.parametrize("resumes", [0, 1])
def test_what_is_missing_while_the_first_record_is_there_is_missing(place: Place, resumes: int) -> None:
    journal = place.begun(resumes=resumes)
    with pytest.raises(FileNotFoundError):
        journal.get("plan.json")
    if resumes:
        (place.folder / "000001.json").unlink()
        with pytest.raises(FileNotFoundError):
            journal.clock_ms()


def test_an_empty_journal_has_not_been_taken_over(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.created().get("plan.json")


# -- damage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "data", "offset"),
    [
        (1, b"{", None),
        (1, b"[]", None),
        (1, b'{"kind": "resume", "body": {}}\n', None),
        (1, record("resume", record("begin", None, {}), RESUME), "previous"),
        (1, record("resume", None, RESUME), "previous"),
        (0, record("begin", None, BEGIN).replace(b"7", b"8", 1), "digest"),
    ],
)
def test_a_damaged_record_is_named(place: Place, number: int, data: bytes, offset: str | None) -> None:
    place.begun()
    path = place.folder / f"{number:06d}.json"
    path.write_bytes(data)
    with pytest.raises(CorruptFile) as caught:
        place.loaded()
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_record_is_corrupt(place: Place, number: int) -> None:
    place.begun(resumes=2)
    (place.folder / f"{number:06d}.json").unlink()
    with pytest.raises(CorruptFile, match="missing"):
        place.loaded()


@pytest.mark.parametrize("times", [2, 3])
def test_records_that_go_away_while_they_are_read_are_read_three_times(place: Place, times: int) -> None:
    place.begun()
    left = [times]

    def gone(path: str) -> None:
        if path.endswith("000001.json") and left[0]:
            left[0] -= 1
            raise FileNotFoundError(path)

    place.storage.before_read = gone
    if times == 2:
        assert place.loaded().next_number == 2
        assert left == [0]
        return
    with pytest.raises(CorruptFile, match="went away"):
        place.loaded()


def test_a_journal_that_is_deleted_while_it_is_read_is_empty(place: Place) -> None:
    place.begun()

    def deleted(path: str) -> None:
        if path.endswith("000001.json"):
            for name in place.names():
                (place.folder / name).unlink()

    place.storage.before_read = deleted
    journal = place.loaded()
    assert (journal.next_number, journal.operation()) == (0, None)


# -- the end ---------------------------------------------------------------------------------------------------


def test_closing_deletes_the_first_record_first_and_the_last_one_last(place: Place) -> None:
    journal = place.begun()
    journal.put("plan.json", b"{}")
    journal.close("done", at_ms=2)
    assert place.storage.deletions == [["000000.json"], ["000001.json", "plan.json"], ["000002.json"]]
    assert place.left() == ["_iceberg_cli", "data"]
    assert place.past() == ["7-expire-snapshots-op.json"]


def test_a_half_deleted_journal_reads_as_closed_and_is_cleaned_up(place: Place) -> None:
    place.storage.stuck = "000001.json"
    place.begun().close("done", at_ms=2)
    assert place.storage.deletions == [["000000.json"], ["000001.json"]]
    assert place.names() == ["000001.json", "000002.json"]
    journal = place.loaded()
    assert journal.next_number == 3
    assert bodies(journal, "begin") == [BEGIN]
    operation = journal.operation()
    assert operation is not None
    assert operation.closed == "done"
    place.storage.stuck = ""
    journal.clean_up()
    assert place.left() == ["_iceberg_cli", "data"]
    assert place.past() == ["7-expire-snapshots-op.json"]


def test_an_operation_that_is_done_stays_so_where_its_journal_cannot_be_listed(place: Place) -> None:
    place.storage.is_listable = False
    place.begun().close("done", at_ms=2)
    assert place.storage.deletions == []
    place.storage.is_listable = True
    journal = place.loaded()
    operation = journal.operation()
    assert operation is not None
    assert operation.closed == "done"
    journal.clean_up()
    assert place.left() == ["_iceberg_cli", "data"]
    assert not place.folder.exists()


# -- files beside it -------------------------------------------------------------------------------------------


def test_a_file_beside_the_records_is_put_once(place: Place) -> None:
    journal = place.begun()
    journal.put("plan.json", b"one")
    journal.put("plan.json", b"one")
    with pytest.raises(FileExistsError):
        journal.put("plan.json", b"two")
    assert journal.get("plan.json") == b"one"


def test_open_operations_are_the_folders_by_name(place: Place) -> None:
    assert open_operations(place.storage, str(place.table)) == []
    for operation_id in ("b", "a"):
        append(place.created(operation_id), "begin", BEGIN)
    (place.folder.parent / ".hidden").write_text("")
    (place.folder.parent / "a" / "removals").mkdir()
    (place.folder.parent / "a" / "removals" / "one.parquet").write_text("")
    assert open_operations(place.storage, f"{place.table}/") == ["a", "b"]


def test_empty_folders_of_ours_are_removed_and_no_others(place: Place) -> None:
    place.folder.mkdir(parents=True)
    prune_folders(place.storage, f"{place.table}/")
    assert place.left() == ["data"]


# -- the plan beside the records


def with_plan(place: Place, *, digest: str = "") -> tuple[Journal, Plan, str]:
    """A journal that begins with the digest of a plan, or with another one; the plan, and its removals' name."""
    plan = a_plan(removals=in_files(removals_of(a_removal("/t/f1", step="main"))))
    document = encode(plan.to_json(removals_file=plan.removals.file), indent=None)
    journal = place.created()
    append(journal, "begin", {**BEGIN, "plan_digest": digest or hashlib.sha256(document).hexdigest()})
    plan.removals.write(journal.put)
    journal.put(PLAN_FILE, document)
    return journal, plan, plan.removals.file


def test_the_plan_is_read_with_its_removals(place: Place) -> None:
    journal, plan, name = with_plan(place)
    loaded = load_plan(journal)
    assert loaded is not None
    assert (loaded[0].base, loaded[0].steps, loaded[1]) == (plan.base, plan.steps, name)
    assert loaded[0].removals.read_rows([0])["path"].to_pylist() == ["/t/f1"]


def test_another_plan_than_the_journal_began_with_is_no_plan_of_it(place: Place) -> None:
    journal, _, _ = with_plan(place, digest="d")
    with pytest.raises(CorruptFile, match="it is not the plan that the journal began with"):
        load_plan(journal)


def test_a_plan_without_a_begin_record_is_no_plan_of_it(place: Place) -> None:
    journal = place.created()
    journal.put(PLAN_FILE, b"{}")
    with pytest.raises(CorruptFile, match="it is not the plan that the journal began with"):
        load_plan(journal)


def test_a_plan_that_is_not_there_was_never_written_unless_a_step_has_begun(place: Place) -> None:
    assert load_plan(place.created()) is None
    journal = place.begun()
    assert load_plan(journal) is None
    append(journal, *intent())
    with pytest.raises(CorruptFile, match="the journal has steps of this plan and it is not there"):
        load_plan(journal)


def test_the_state_follows_each_record_as_it_is_appended(place: Place) -> None:
    journal = place.begun(resumes=0)
    for kind, body in (intent(), outcome(), ("step-done", {"step": "main"})):
        append(journal, kind, body)
        assert journal.operation() == place.loaded().operation()
    operation = journal.operation()
    assert operation is not None
    assert (operation.started_ms, operation.steps["main"].done) == (BEGIN["at_ms"], True)

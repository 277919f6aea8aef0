"""A journal in a folder: its bytes, its chain, who may append, and the order in which it is deleted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from iceberg_cli.errors import CorruptFile, TakenOver
from iceberg_cli.operation.journal import Journal, prune_folders
from iceberg_cli.operation.workspace import open_operations
from iceberg_cli.storage.local import LocalStorage
from tests.journals import BEGIN, RESUME, append, bodies


class WatchedStorage(LocalStorage):
    """A local storage that notes what is deleted, where `before_read` can interfere and some names stay."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[list[str]] = []
        self.stuck = ""
        self.before_read: Callable[[str], None] = lambda _: None

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.before_read(path)
        return super().read(path, span)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self.deletions.append(sorted(Path(path).name for path in paths))
        stuck = [path for path in paths if Path(path).name == self.stuck]
        gone = super().delete([path for path in paths if path not in stuck])
        return {**gone, **dict.fromkeys(stuck, "denied")}


@pytest.fixture
def storage() -> WatchedStorage:
    return WatchedStorage()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table's folder, with an empty folder that is none of the journal's."""
    (tmp_path / "t" / "data").mkdir(parents=True)
    return tmp_path / "t"


def begun(storage: LocalStorage, table: Path, *, resumes: int = 1) -> Journal:
    journal = Journal.create(storage, f"{table}/", "op")
    append(journal, "begin", BEGIN)
    for _ in range(resumes):
        append(journal, "resume", RESUME)
    return journal


def folder(table: Path) -> Path:
    return table / "_iceberg_cli" / "ops" / "op"


def names(table: Path) -> list[str]:
    return sorted(path.name for path in folder(table).iterdir())


def record(kind: str, previous: bytes | None, body: object) -> bytes:
    """A record's file as the module describes it."""
    digest = "" if previous is None else hashlib.sha256(previous).hexdigest()
    text = '{"kind": "%s", "previous": "%s", "body": %s' % (kind, digest, json.dumps(body))  # noqa: UP031
    return text.encode() + b', "digest": "' + hashlib.sha256(text.encode()).hexdigest().encode() + b'"}\n'


def test_records_are_lines_that_carry_the_digests_of_the_one_before_and_their_own(
    storage: WatchedStorage, table: Path
) -> None:
    empty = Journal.create(storage, str(table), "op")
    assert (empty.next_number, empty.operation(), bodies(empty, "begin")) == (0, None, [])
    journal = begun(storage, table)
    first = record("begin", None, BEGIN)
    assert (folder(table) / "000000.json").read_bytes() == first
    assert (folder(table) / "000001.json").read_bytes() == record("resume", first, RESUME)
    assert names(table) == ["000000.json", "000001.json"]
    assert journal.next_number == 2


def test_what_was_appended_is_read_back_and_goes_on(storage: WatchedStorage, table: Path) -> None:
    begun(storage, table)
    (folder(table) / "plan.json").write_text("{}")
    (folder(table) / "000002").write_text("")
    journal = Journal.load(storage, str(table), "op")
    assert journal.next_number == 2
    assert bodies(journal, "begin") == [BEGIN]
    assert bodies(journal, "resume") == [RESUME]
    operation = journal.operation()
    assert operation is not None
    assert (operation.started_ms, operation.host) == (7, "other")
    append(journal, "resume", RESUME)
    assert bodies(journal, "resume") == [RESUME, RESUME]
    assert Journal.load(storage, str(table), "op").next_number == 3


def test_the_clock_is_that_of_the_newest_record(storage: WatchedStorage, table: Path) -> None:
    journal = begun(storage, table)
    os.utime(folder(table) / "000000.json", (4, 4))
    os.utime(folder(table) / "000001.json", (5, 5))
    assert journal.clock_ms() == 5_000


def test_of_two_that_write_one_record_one_goes_on(storage: WatchedStorage, table: Path) -> None:
    one = begun(storage, table)
    other = Journal.load(storage, str(table), "op")
    append(one, "resume", RESUME)
    with pytest.raises(TakenOver):
        append(other, "resume", RESUME)
    assert other.next_number == 2
    assert storage.deletions == []
    append(one, "resume", RESUME)


def test_who_appends_to_a_journal_that_another_one_deleted_leaves_nothing(
    storage: WatchedStorage, table: Path
) -> None:
    journal = begun(storage, table)
    (folder(table) / "000000.json").unlink()
    with pytest.raises(TakenOver):
        append(journal, "resume", RESUME)
    assert storage.deletions == [["000001.json", "000002.json"]]
    assert [path.name for path in table.iterdir()] == ["data"]


def test_what_is_missing_of_a_journal_that_is_gone_was_taken_over(
    storage: WatchedStorage, table: Path
) -> None:
    journal = begun(storage, table)
    for name in names(table):
        (folder(table) / name).unlink()
    with pytest.raises(TakenOver):
        journal.get("plan.json")
    with pytest.raises(TakenOver):
        journal.clock_ms()


@pytest.mark.parametrize("resumes", [0, 1])
def test_what_is_missing_while_the_first_record_is_there_is_missing(
    storage: WatchedStorage, table: Path, resumes: int
) -> None:
    journal = begun(storage, table, resumes=resumes)
    with pytest.raises(FileNotFoundError):
        journal.get("plan.json")
    if resumes:
        (folder(table) / "000001.json").unlink()
        with pytest.raises(FileNotFoundError):
            journal.clock_ms()


def test_an_empty_journal_has_not_been_taken_over(storage: WatchedStorage, table: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal.create(storage, str(table), "op").get("plan.json")


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
def test_a_damaged_record_is_named(
    storage: WatchedStorage, table: Path, number: int, data: bytes, offset: str | None
) -> None:
    begun(storage, table)
    path = folder(table) / f"{number:06d}.json"
    path.write_bytes(data)
    with pytest.raises(CorruptFile) as caught:
        Journal.load(storage, str(table), "op")
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_record_is_corrupt(storage: WatchedStorage, table: Path, number: int) -> None:
    begun(storage, table, resumes=2)
    (folder(table) / f"{number:06d}.json").unlink()
    with pytest.raises(CorruptFile, match="missing"):
        Journal.load(storage, str(table), "op")


@pytest.mark.parametrize("times", [2, 3])
def test_records_that_go_away_while_they_are_read_are_read_three_times(
    storage: WatchedStorage, table: Path, times: int
) -> None:
    begun(storage, table)
    left = [times]

    def gone(path: str) -> None:
        if path.endswith("000001.json") and left[0]:
            left[0] -= 1
            raise FileNotFoundError(path)

    storage.before_read = gone
    if times == 2:
        assert Journal.load(storage, str(table), "op").next_number == 2
        assert left == [0]
        return
    with pytest.raises(CorruptFile, match="went away"):
        Journal.load(storage, str(table), "op")


def test_a_journal_that_is_deleted_while_it_is_read_is_empty(storage: WatchedStorage, table: Path) -> None:
    begun(storage, table)

    def deleted(path: str) -> None:
        if path.endswith("000001.json"):
            for name in names(table):
                (folder(table) / name).unlink()

    storage.before_read = deleted
    journal = Journal.load(storage, str(table), "op")
    assert (journal.next_number, journal.operation()) == (0, None)


# -- the end ---------------------------------------------------------------------------------------------------


def test_closing_deletes_the_first_record_first_and_the_last_one_last(
    storage: WatchedStorage, table: Path
) -> None:
    journal = begun(storage, table)
    journal.put("plan.json", b"{}")
    journal.close("done")
    assert storage.deletions == [["000000.json"], ["000001.json", "plan.json"], ["000002.json"]]
    assert [path.name for path in table.iterdir()] == ["data"]


def test_a_half_deleted_journal_reads_as_closed_and_is_cleaned_up(
    storage: WatchedStorage, table: Path
) -> None:
    storage.stuck = "000001.json"
    begun(storage, table).close("done")
    assert storage.deletions == [["000000.json"], ["000001.json"]]
    assert names(table) == ["000001.json", "000002.json"]
    journal = Journal.load(storage, str(table), "op")
    assert journal.next_number == 3
    assert bodies(journal, "begin") == [BEGIN]
    operation = journal.operation()
    assert operation is not None
    assert operation.closed == "done"
    storage.stuck = ""
    journal.clean_up()
    assert [path.name for path in table.iterdir()] == ["data"]


# -- files beside it -------------------------------------------------------------------------------------------


def test_a_file_beside_the_records_is_put_once(storage: WatchedStorage, table: Path) -> None:
    journal = begun(storage, table)
    journal.put("plan.json", b"one")
    journal.put("plan.json", b"one")
    with pytest.raises(FileExistsError):
        journal.put("plan.json", b"two")
    assert journal.get("plan.json") == b"one"


def test_open_operations_are_the_folders_by_name(storage: WatchedStorage, table: Path) -> None:
    assert open_operations(storage, str(table)) == []
    for operation_id in ("b", "a"):
        append(Journal.create(storage, str(table), operation_id), "begin", BEGIN)
    (folder(table).parent / ".hidden").write_text("")
    (folder(table).parent / "a" / "removals").mkdir()
    (folder(table).parent / "a" / "removals" / "one.parquet").write_text("")
    assert open_operations(storage, f"{table}/") == ["a", "b"]


def test_empty_folders_of_ours_are_removed_and_no_others(storage: WatchedStorage, table: Path) -> None:
    folder(table).mkdir(parents=True)
    prune_folders(storage, f"{table}/")
    assert [path.name for path in table.iterdir()] == ["data"]

"""Whose is the version that a commit may have made? What a table shows after an answer was lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from iceberg_cli.errors import BackendUnavailable, TableNotFound, UsageError
from iceberg_cli.iceberg.catalogs.read_back import settle_pointer
from iceberg_cli.iceberg.commit.update import Commit
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.table.next_version import NextVersionCommitter
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from tests.builders import LOCATION, NOW_MS, a_table_document

MINUTE_MS = 60_000
HOUR_AGO_MS = NOW_MS - 60 * MINUTE_MS
BASE, OURS, THEIRS = (
    f"{LOCATION}/metadata/{name}.metadata.json" for name in ("00003-a", "00004-b", "00009-c")
)


def an_attempt() -> Attempt:
    """Decided now, on a version of an hour ago."""
    base = TableMetadata.from_json(a_table_document() | {"last-updated-ms": HOUR_AGO_MS}, path=BASE)
    commit = Commit(updates=(), requirements=(), base=base, timestamp_ms=NOW_MS, commit_uuid="b")
    digest = hashlib.sha256(b"ours").hexdigest()
    return Attempt(commit=commit, base=BASE, target=OURS, data=b"ours", digest=digest, name_is_unique=True)


def a_storage(files: Mapping[str, bytes]) -> SimStorage:
    return SimStorage(World(files=dict(files)), Script())


def settled(now: str, *log: tuple[str, int], **document: Any) -> Committed | Conflict | Unknown:
    """The table is at `now`, whose metadata log holds these files with their times."""
    entries = [{"metadata-file": file, "timestamp-ms": time_ms} for file, time_ms in log]
    data = json.dumps({"metadata-log": entries, **document}).encode()
    return settle_pointer(an_attempt(), lambda: now, a_storage({now: data}))


class FileVersions(NextVersionCommitter):
    """A table whose versions are files of one folder."""

    def __init__(self, now: Callable[[], str], storage: SimStorage) -> None:
        super().__init__(f"{LOCATION}/metadata", storage)
        self._now = now

    def unvouched_reason(self) -> None:
        return None

    def vouchers(self) -> tuple[()]:
        return ()

    def current(self) -> str:
        return self._now()

    def _created(self, attempt: Attempt) -> Outcome:
        return Committed(metadata_location=attempt.file)


def settle_file(attempt: Attempt, current: Callable[[], str], storage: SimStorage) -> Outcome:
    return FileVersions(current, storage).settle(attempt)


def failing(error: Exception) -> Callable[[], str]:
    def current() -> str:
        raise error

    return current


def test_a_table_at_our_location_is_ours_however_the_catalog_spells_it() -> None:
    assert settled(OURS) == Committed(metadata_location=OURS)
    assert settled(f"file://{OURS}") == Committed(metadata_location=OURS)


def test_a_table_at_the_base_may_still_take_our_swap() -> None:
    assert settled(BASE) == Unknown(cause=f"the table is still at {BASE}")
    assert isinstance(settled(f"file:{BASE}"), Unknown)


def test_a_log_that_names_our_version_shows_that_it_came_in() -> None:
    assert settled(THEIRS, (BASE, HOUR_AGO_MS), (OURS, NOW_MS)) == Committed(metadata_location=OURS)
    assert settled(THEIRS, (f"file:{OURS}", NOW_MS)) == Committed(metadata_location=OURS)


def test_a_log_that_reaches_back_to_the_base_without_our_version_shows_a_conflict() -> None:
    found = settled(THEIRS, (BASE, HOUR_AGO_MS), (f"{LOCATION}/metadata/00004-x.metadata.json", NOW_MS))
    assert found == Conflict(reason=f"the table has moved from {BASE} to {THEIRS}")


@pytest.mark.parametrize(
    "oldest_ms", [HOUR_AGO_MS - 1, HOUR_AGO_MS, NOW_MS - 5 * MINUTE_MS, NOW_MS, NOW_MS + 1]
)
def test_a_trimmed_log_proves_nothing_whatever_its_times_for_clocks_differ(oldest_ms: int) -> None:
    log = [(f"{LOCATION}/metadata/0000{n}-x.metadata.json", oldest_ms + n) for n in (0, 5)]
    assert isinstance(settled(THEIRS, *log), Unknown)


def test_a_log_that_is_not_there_or_tells_no_times_proves_nothing() -> None:
    assert isinstance(settled(THEIRS), Unknown)
    assert isinstance(settled(THEIRS, **{"metadata-log": None}), Unknown)
    assert isinstance(settled(THEIRS, **{"metadata-log": ["x", {"timestamp-ms": "yesterday"}]}), Unknown)


@pytest.mark.parametrize("error", [BackendUnavailable("no answer"), TableNotFound("it was dropped")])
def test_a_catalog_that_does_not_answer_proves_nothing(error: Exception) -> None:
    attempt = an_attempt()
    assert isinstance(settle_pointer(attempt, failing(error), a_storage({})), Unknown)
    assert isinstance(settle_file(attempt, failing(error), a_storage({})), Unknown)


@pytest.mark.parametrize("files", [{}, {THEIRS: b"{cut"}])
def test_a_current_version_that_cannot_be_read_proves_nothing(files: Mapping[str, bytes]) -> None:
    assert isinstance(settle_pointer(an_attempt(), lambda: THEIRS, a_storage(files)), Unknown)


def test_a_file_under_the_name_that_all_writers_use_is_told_by_its_content() -> None:
    attempt = replace(an_attempt(), name_is_unique=False)
    ours = settle_file(attempt, failing(AssertionError()), a_storage({OURS: b"ours"}))
    theirs = settle_file(attempt, failing(AssertionError()), a_storage({OURS: b"theirs"}))
    assert ours == Committed(metadata_location=OURS)
    assert theirs == Conflict(reason=f"another writer made {OURS}")


def test_no_file_under_that_name_proves_nothing_and_tells_where_the_table_is() -> None:
    attempt = an_attempt()
    still = settle_file(attempt, lambda: BASE, a_storage({}))
    moved = settle_file(attempt, lambda: THEIRS, a_storage({}))
    assert still == Unknown(cause=f"the table is still at {BASE}")
    assert moved == Unknown(cause=f"the table is at {THEIRS}, and {OURS} is gone")


class SilentStorage(SimStorage):
    """Answers no read."""

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:  # noqa: ARG002
        raise BackendUnavailable(f"Cannot read {path}: no answer")


class NarrowStorage(SimStorage):
    """Knows no scheme but its own."""

    def canonical(self, path: str) -> str:
        if path.startswith("gs:"):
            raise UsageError(f"Cannot open {path}")
        return super().canonical(path)


def test_a_storage_that_does_not_answer_proves_nothing() -> None:
    storage = SilentStorage(World(), Script())
    assert isinstance(settle_pointer(an_attempt(), lambda: THEIRS, storage), Unknown)
    assert isinstance(settle_file(an_attempt(), lambda: THEIRS, storage), Unknown)


def test_a_log_entry_of_another_storage_is_not_ours_and_hides_nothing() -> None:
    entries = [{"metadata-file": "gs://elsewhere/v.metadata.json"}, {"metadata-file": BASE}]
    storage = NarrowStorage(World(files={THEIRS: json.dumps({"metadata-log": entries}).encode()}), Script())
    assert isinstance(settle_pointer(an_attempt(), lambda: THEIRS, storage), Conflict)

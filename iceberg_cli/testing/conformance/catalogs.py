"""What every catalog promises, as tests: `class TestMine(CatalogConformance)` with a fixture `catalog`."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Protocol

import pytest

from iceberg_cli.errors import BackendUnavailable, CommitConflict
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.commit.update import AssertTableUuid
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Unknown
from iceberg_cli.storage import Storage
from iceberg_cli.testing.conformance.commits import (
    CREATED_MS,
    a_commit,
    an_attempt,
    load,
    properties_of,
    set_property,
)
from iceberg_cli.testing.conformance.faults import Fault, FaultyCommitter, FaultyStorage, Killed


class CatalogUnderTest(Protocol):
    """A catalog with one table, whose first version is `commits.first_metadata`."""

    @property
    def storage(self) -> Storage:
        """Where the table's metadata files are."""
        ...

    @property
    def commits_by_file(self) -> bool:
        """Whether a commit is the creation of a metadata file of the next name, so that it shows for ever."""
        ...

    def open(self, storage: Storage | None = None) -> Committer:
        """The table's committer, as a new process would open it.

        Args:
            storage: that it writes metadata files through; None: `self.storage`.
        """
        ...


def success(attempt: Attempt) -> Committed:
    """The outcome that says that the attempt is the table's new version."""
    assert attempt.target is not None
    return Committed(metadata_location=attempt.target)


class CatalogConformance:
    """What `Committed`, `Conflict` and `Unknown` promise, and that no commit is lost.

    A subclass defines a fixture `catalog: CatalogUnderTest`, with a new table for each test.
    """

    def test_a_commit_moves_the_table_to_the_location_that_was_prepared(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = catalog.open()
        base = committer.current()
        attempt = an_attempt(committer, catalog.storage, {"colour": "red"})
        assert committer.current() == base
        new = success(attempt).metadata_location
        assert catalog.storage.stat_many([new]) == [None]
        assert committer.commit(attempt) == success(attempt)
        assert committer.current() == catalog.open().current() == new
        after = load(catalog.storage, new)
        assert after.properties == {"colour": "red"}
        assert [(entry.metadata_file, entry.timestamp_ms) for entry in after.metadata_log] == [
            (base, CREATED_MS)
        ]
        assert after.last_updated_ms == attempt.commit.timestamp_ms

    def test_the_digest_is_the_files_and_the_bytes_do_not_depend_on_when_they_are_made(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = catalog.open()
        base = committer.current()
        commit = a_commit(catalog.storage, base, {"colour": "red"})
        attempt = dataclasses.replace(committer.prepare(commit, base_location=base), fresh=True)
        again = committer.prepare(commit, base_location=base)
        assert dataclasses.replace(again, fresh=True) == attempt
        committer.commit(attempt)
        written = catalog.storage.read(committer.current())
        assert hashlib.sha256(written).hexdigest() == attempt.digest
        assert written == attempt.data

    def test_a_requirement_that_does_not_hold_is_a_conflict_before_anything_is_written(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = catalog.open()
        base = committer.current()
        commit = a_commit(catalog.storage, base, {"colour": "red"})
        impossible = dataclasses.replace(commit, requirements=(AssertTableUuid(uuid="another"),))
        with pytest.raises(CommitConflict):
            committer.prepare(impossible, base_location=base)

    def test_a_commit_on_a_base_that_has_moved_is_a_conflict_and_stays_one(
        self, catalog: CatalogUnderTest
    ) -> None:
        ours, theirs = catalog.open(), catalog.open()
        attempt = an_attempt(ours, catalog.storage, {"ours": "yes"})
        set_property(theirs, catalog.storage, "theirs")
        for outcome in (
            ours.commit(attempt),
            ours.commit(attempt),
            ours.settle(attempt),
            catalog.open().settle(attempt),
        ):
            assert isinstance(outcome, Conflict)
        assert properties_of(catalog.storage, ours) == {"theirs": "yes"}

    @pytest.mark.parametrize("refusals", [1, 3])
    def test_after_conflicts_a_new_attempt_on_the_new_base_succeeds(
        self, catalog: CatalogUnderTest, refusals: int
    ) -> None:
        faults: list[Fault] = ["conflict"] * refusals
        committer = FaultyCommitter(catalog.open(), *faults)
        assert set_property(committer, catalog.storage, "ours") == refusals
        assert properties_of(catalog.storage, committer) == {"ours": "yes"}

    @pytest.mark.parametrize("foreign", [2, 30])
    def test_a_fresh_attempt_is_a_conflict_however_short_the_log_is(
        self, catalog: CatalogUnderTest, foreign: int
    ) -> None:
        ours, theirs = catalog.open(), catalog.open()
        set_property(ours, catalog.storage, "write.metadata.previous-versions-max", "1")
        attempt = an_attempt(ours, catalog.storage, {"ours": "yes"})
        for number in range(foreign):
            set_property(theirs, catalog.storage, f"theirs{number}")
        assert isinstance(ours.commit(attempt), Conflict)

    def test_a_commit_whose_answer_was_lost_is_found_and_not_done_twice(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = FaultyCommitter(catalog.open(), "lost after")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        assert isinstance(committer.commit(attempt), Unknown)
        found = success(attempt)
        resumed = dataclasses.replace(attempt, fresh=False)
        assert committer.settle(attempt) == found
        assert committer.commit(attempt) == found
        assert catalog.open().settle(resumed) == found
        assert catalog.open().commit(resumed) == found
        assert committer.current() == attempt.target

    def test_a_commit_that_others_have_built_upon_is_still_ours(self, catalog: CatalogUnderTest) -> None:
        committer = FaultyCommitter(catalog.open(), "lost after")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        committer.commit(attempt)
        for number in range(3):
            set_property(catalog.open(), catalog.storage, f"theirs{number}")
        found = success(attempt)
        resumed = dataclasses.replace(attempt, fresh=False)
        assert committer.settle(attempt) == catalog.open().settle(resumed) == found
        assert committer.commit(attempt) == catalog.open().commit(resumed) == found

    def test_a_request_that_was_lost_stays_unknown_until_it_is_sent_again(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = FaultyCommitter(catalog.open(), "lost before")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        assert isinstance(committer.commit(attempt), Unknown)
        assert isinstance(committer.settle(attempt), Unknown)
        assert isinstance(catalog.open().settle(attempt), Unknown)
        resumed = dataclasses.replace(attempt, fresh=False)
        assert catalog.open().commit(resumed) == success(attempt)
        assert properties_of(catalog.storage, committer) == {"ours": "yes"}

    def test_a_lost_request_is_a_conflict_once_the_base_has_moved(self, catalog: CatalogUnderTest) -> None:
        committer = FaultyCommitter(catalog.open(), "lost before")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        committer.commit(attempt)
        set_property(catalog.open(), catalog.storage, "theirs")
        resumed = dataclasses.replace(attempt, fresh=False)
        assert isinstance(committer.settle(attempt), Conflict)
        assert isinstance(catalog.open().commit(resumed), Conflict)
        assert properties_of(catalog.storage, committer) == {"theirs": "yes"}

    @pytest.mark.parametrize("fault", ["lost before", "lost after"])
    def test_an_outcome_that_history_no_longer_shows_stays_unknown(
        self, catalog: CatalogUnderTest, fault: Fault
    ) -> None:
        if catalog.commits_by_file:
            pytest.skip("the version's own file shows it")
        set_property(catalog.open(), catalog.storage, "write.metadata.previous-versions-max", "2")
        committer = FaultyCommitter(catalog.open(), fault)
        attempt = dataclasses.replace(an_attempt(committer, catalog.storage, {"ours": "yes"}), fresh=False)
        committer.commit(attempt)
        for number in range(4):
            set_property(catalog.open(), catalog.storage, f"theirs{number}")
        assert isinstance(committer.settle(attempt), Unknown)
        assert isinstance(catalog.open().commit(attempt), Unknown)

    @pytest.mark.parametrize("fault", ["lost before", "lost after"])
    @pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
    def test_times_in_a_trimmed_log_say_nothing_for_clocks_may_differ(
        self, catalog: CatalogUnderTest, fault: Fault, ahead_ms: int
    ) -> None:
        if catalog.commits_by_file:
            pytest.skip("the version's own file shows it")
        set_property(catalog.open(), catalog.storage, "write.metadata.previous-versions-max", "2")
        committer = FaultyCommitter(catalog.open(), fault)
        base_ms = load(catalog.storage, committer.current()).last_updated_ms
        attempt = an_attempt(
            committer, catalog.storage, {"ours": "yes"}, fresh=False, now_ms=base_ms + ahead_ms
        )
        committer.commit(attempt)
        for number in range(4):
            set_property(catalog.open(), catalog.storage, f"theirs{number}")
        assert isinstance(committer.settle(attempt), Unknown)

    @pytest.mark.parametrize("when", ["killed before", "killed after"])
    def test_a_kill_at_the_write_leaves_the_table_at_the_old_or_the_new_version(
        self, catalog: CatalogUnderTest, when: str
    ) -> None:
        storage = FaultyStorage(catalog.storage, put=when)  # type: ignore[arg-type]
        committer = catalog.open(storage)
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        with pytest.raises(Killed):
            committer.commit(attempt)
        resumed = dataclasses.replace(attempt, fresh=False)
        committed = when == "killed after" and catalog.commits_by_file
        reopened = catalog.open()
        assert reopened.current() == (attempt.target if committed else attempt.base)
        assert isinstance(reopened.settle(resumed), Committed if committed else Unknown)
        assert reopened.commit(resumed) == success(attempt)
        assert properties_of(catalog.storage, reopened) == {"ours": "yes"}

    @pytest.mark.parametrize("when", ["failed before", "failed after"])
    def test_a_write_that_fails_is_not_called_a_conflict(self, catalog: CatalogUnderTest, when: str) -> None:
        committer = catalog.open(FaultyStorage(catalog.storage, put=when))  # type: ignore[arg-type]
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        if catalog.commits_by_file and when == "failed after":
            assert committer.commit(attempt) == success(attempt)
            return
        with pytest.raises(BackendUnavailable):
            committer.commit(attempt)
        assert catalog.open().current() == attempt.base
        assert isinstance(
            catalog.open(FaultyStorage(catalog.storage, put="failed before")).commit(
                dataclasses.replace(attempt, fresh=False)
            ),
            Unknown,
        )

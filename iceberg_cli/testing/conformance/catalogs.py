"""What every catalog promises, as tests: `class TestMine(CatalogConformance)` with a fixture `catalog`.

Every committer runs every test. What cannot be demanded of one, and why:

- Where the catalog writes the metadata (`Attempt.target` is None, as in REST): neither the location, nor the bytes, nor
  the time of the new version are the attempt's. That another commit came in proves nothing of a request that may still
  be under way, unless that commit moved a ref which the request asserts; so those of the suite do.
- Where a commit is a file of the next name (`commits_by_file`): that its outcome is forgotten. The file shows it.
- Where a write is a request (`may_arrive`): that one without an answer is known not to have been carried out.
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import pytest

from iceberg_cli.errors import BackendUnavailable, CommitConflict
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.commit.update import AssertTableUuid
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage
from iceberg_cli.testing.conformance.commits import (
    a_commit,
    an_attempt,
    load,
    properties_of,
    set_property,
)
from iceberg_cli.testing.conformance.faults import Fault, FaultyCommitter, FaultyStorage, Killed, PutFault

# Properties that catalogs set by themselves, or committers to know a commit again.
_NOT_OF_TESTS: Final = ("write.", "schema.", "iceberg-cli.")


class CatalogUnderTest(ABC):
    """A catalog with one table without snapshots, such as `commits.first_metadata` makes."""

    # A commit is the creation of a metadata file of the next name, so that it shows for ever.
    commits_by_file: bool = False
    # The first thing that a commit writes is the commit.
    commits_at_once: bool = False
    # What a commit writes goes to a server, which may carry it out when nobody waits for the answer any more.
    may_arrive: bool = False

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """Where the table's metadata files are."""

    @abstractmethod
    def open(self, storage: Storage | None = None) -> Committer:
        """The table's committer, as a new process would open it.

        Args:
            storage: that it writes metadata files through, if it does; None: `self.storage`.
        """

    def open_failing(self, put: PutFault) -> Committer:
        """A committer that stops, or whose connection fails, before or after what it writes first."""
        return self.open(FaultyStorage(self.storage, put=put))

    def commit_of_others(self, name: str) -> None:
        """Another writer sets a property, by a commit against which each commit on the same base is held."""
        set_property(self.open(), self.storage, name)


def is_of(outcome: Outcome, attempt: Attempt) -> bool:
    """Whether it says that the attempt came in, at the location that was prepared if one was."""
    return isinstance(outcome, Committed) and attempt.target in (None, outcome.metadata_location)


def set_by_tests(catalog: CatalogUnderTest) -> Mapping[str, str]:
    """The properties of the table as it is now, without those that nobody here has set."""
    properties = properties_of(catalog.storage, catalog.open())
    return {name: value for name, value in properties.items() if not name.startswith(_NOT_OF_TESTS)}


class CatalogConformance:
    """What `Committed`, `Conflict` and `Unknown` promise, and that no commit is lost.

    A subclass defines a fixture `catalog: CatalogUnderTest`, with a new table for each test.
    """

    def test_a_commit_moves_the_table_to_the_location_that_was_prepared(
        self, catalog: CatalogUnderTest
    ) -> None:
        committer = catalog.open()
        base = committer.current()
        before = load(catalog.storage, base)
        attempt = an_attempt(committer, catalog.storage, {"colour": "red"})
        assert committer.current() == base
        if attempt.target is not None:
            assert catalog.storage.stat_many([attempt.target]) == [None]
        outcome = committer.commit(attempt)
        assert is_of(outcome, attempt)
        assert isinstance(outcome, Committed)
        assert committer.current() == catalog.open().current() == outcome.metadata_location
        after = load(catalog.storage, outcome.metadata_location)
        assert set_by_tests(catalog) == {"colour": "red"}
        assert [(entry.metadata_file, entry.timestamp_ms) for entry in after.metadata_log] == [
            (base, before.last_updated_ms)
        ]
        if attempt.target is not None:
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
        assert hashlib.sha256(attempt.data).hexdigest() == attempt.digest
        committer.commit(attempt)
        if attempt.target is not None:
            assert catalog.storage.read(committer.current()) == attempt.data

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
        ours = catalog.open()
        attempt = an_attempt(ours, catalog.storage, {"ours": "yes"})
        catalog.commit_of_others("theirs")
        for outcome in (
            ours.commit(attempt),
            ours.commit(attempt),
            ours.settle(attempt),
            catalog.open().settle(attempt),
        ):
            assert isinstance(outcome, Conflict)
        assert set_by_tests(catalog) == {"theirs": "yes"}

    @pytest.mark.parametrize("refusals", [1, 3])
    def test_after_conflicts_a_new_attempt_on_the_new_base_succeeds(
        self, catalog: CatalogUnderTest, refusals: int
    ) -> None:
        faults: list[Fault] = ["conflict"] * refusals
        committer = FaultyCommitter(catalog.open(), *faults)
        assert set_property(committer, catalog.storage, "ours") == refusals
        assert set_by_tests(catalog) == {"ours": "yes"}

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
        resumed = dataclasses.replace(attempt, fresh=False)
        found = committer.settle(attempt)
        assert is_of(found, attempt)
        assert committer.commit(attempt) == found
        assert catalog.open().settle(resumed) == found
        assert catalog.open().commit(resumed) == found
        assert found == Committed(metadata_location=committer.current())

    def test_a_commit_that_others_have_built_upon_is_still_ours(self, catalog: CatalogUnderTest) -> None:
        committer = FaultyCommitter(catalog.open(), "lost after")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        committer.commit(attempt)
        for number in range(3):
            catalog.commit_of_others(f"theirs{number}")
        resumed = dataclasses.replace(attempt, fresh=False)
        found = committer.settle(attempt)
        assert is_of(found, attempt)
        assert catalog.open().settle(resumed) == found
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
        assert is_of(catalog.open().commit(resumed), attempt)
        assert set_by_tests(catalog) == {"ours": "yes"}

    def test_a_lost_request_is_a_conflict_once_the_base_has_moved(self, catalog: CatalogUnderTest) -> None:
        committer = FaultyCommitter(catalog.open(), "lost before")
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        committer.commit(attempt)
        catalog.commit_of_others("theirs")
        resumed = dataclasses.replace(attempt, fresh=False)
        assert isinstance(committer.settle(attempt), Conflict)
        assert isinstance(catalog.open().commit(resumed), Conflict)
        assert set_by_tests(catalog) == {"theirs": "yes"}

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
        self, catalog: CatalogUnderTest, when: PutFault
    ) -> None:
        committer = catalog.open_failing(when)
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        with pytest.raises(Killed):
            committer.commit(attempt)
        resumed = dataclasses.replace(attempt, fresh=False)
        committed = when == "killed after" and catalog.commits_at_once
        reopened = catalog.open()
        assert (reopened.current() != attempt.base) == committed
        settled = reopened.settle(resumed)
        assert is_of(settled, attempt) if committed else isinstance(settled, Unknown)
        assert is_of(reopened.commit(resumed), attempt)
        assert set_by_tests(catalog) == {"ours": "yes"}

    @pytest.mark.parametrize("when", ["failed before", "failed after"])
    def test_a_write_that_fails_is_not_called_a_conflict(
        self, catalog: CatalogUnderTest, when: PutFault
    ) -> None:
        committer = catalog.open_failing(when)
        attempt = an_attempt(committer, catalog.storage, {"ours": "yes"})
        resumed = dataclasses.replace(attempt, fresh=False)
        if catalog.commits_at_once and when == "failed after":
            assert is_of(committer.commit(attempt), attempt)
        elif catalog.commits_at_once and catalog.may_arrive:
            assert isinstance(committer.commit(attempt), Unknown)
        else:
            with pytest.raises(BackendUnavailable):
                committer.commit(attempt)
            assert catalog.open().current() == attempt.base
            assert isinstance(catalog.open_failing("failed before").commit(resumed), Unknown)
        assert is_of(catalog.open().commit(resumed), attempt)

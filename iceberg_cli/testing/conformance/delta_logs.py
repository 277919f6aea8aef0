"""What a committer of Delta logs promises on every storage, as tests: `class TestMine(DeltaLogConformance)`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import uuid
from collections.abc import Sequence

import pytest

from iceberg_cli.delta.commit import CommitSummary, LogCommit
from iceberg_cli.delta.log_commit import DeltaLogCommitter, transaction_of
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage
from iceberg_cli.testing.conformance.faults import FaultyStorage
from iceberg_cli.testing.delta_writer import a_commit, a_commit_info, a_metadata, a_protocol, a_txn

Log = tuple[str, Storage]  # the table's folder, and its storage


def make_log(root: str, storage: Storage, *, version: int = 0) -> None:
    """The first commit of a table."""
    first = a_commit(a_commit_info(operation="CREATE TABLE"), a_protocol(), a_metadata())
    storage.put_if_absent(path_of(root, version), first)


def path_of(root: str, version: int) -> str:
    """Where a version is."""
    return f"{root}/_delta_log/{version:020d}.json"


def an_attempt(committer: DeltaLogCommitter, name: str, *, fresh: bool = True) -> Attempt:
    """An attempt to commit a transaction of this name as the next version."""
    version = int(committer.current()) + 1
    transaction = str(uuid.uuid4())
    commit = LogCommit(
        version=version,
        data=a_commit({"commitInfo": {"operation": "TEST", "txnId": transaction}}, a_txn(app_id=name)),
        timestamp_ms=1_700_000_000_000,
        commit_uuid=transaction,
        updates=(CommitSummary(version=version, operation="TEST"),),
    )
    return dataclasses.replace(committer.prepare(commit), fresh=fresh)


def add_version(committer: DeltaLogCommitter, name: str) -> int:
    """Commit until it is in; a retry after an unknown outcome sends the same attempt. Returns the conflicts met."""
    conflicts = 0
    while True:
        attempt = an_attempt(committer, name)
        outcome: Outcome = committer.commit(attempt)
        while isinstance(outcome, Unknown):
            time.sleep(0.01)
            outcome = committer.commit(attempt)
        match outcome:
            case Committed():
                return conflicts
            case Conflict():
                conflicts += 1


def names_of(root: str, storage: Storage) -> list[str]:
    """The transactions of all versions from 0 on, in their order, until one is missing."""
    found: list[str] = []
    version = 0
    while True:
        try:
            data = storage.read(path_of(root, version))
        except FileNotFoundError:
            return found
        found += [action["txn"]["appId"] for action in map(json.loads, data.splitlines()) if "txn" in action]
        version += 1


def committer_of(log: Log) -> DeltaLogCommitter:
    """The table's committer, as a new process would open it."""
    return DeltaLogCommitter(*log)


class LosingStorage(FaultyStorage):
    """Loses the answer to the next put alone, before or after the file is made."""

    lost = False

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.lost:
            self.inside.put_if_absent(path, data)
        else:
            self.lost = True
            super().put_if_absent(path, data)


class DeltaLogConformance:
    """What `Committed`, `Conflict` and `Unknown` promise, and that no version is lost or overwritten.

    A subclass defines a fixture `log: Log`, a table of one version that `make_log` wrote, anew for each test.
    """

    def test_a_commit_makes_the_version_after_the_newest(self, log: Log) -> None:
        committer = committer_of(log)
        attempt = an_attempt(committer, "one")
        assert (committer.current(), attempt.base) == ("0", "0")
        assert committer.commit(attempt) == Committed(metadata_location=path_of(log[0], 1))
        assert committer.current() == committer_of(log).current() == "1"
        assert log[1].read(path_of(log[0], 1)) == attempt.data
        assert hashlib.sha256(attempt.data).hexdigest() == attempt.digest

    def test_the_newest_version_may_be_one_of_which_only_a_checkpoint_is_there(self, log: Log) -> None:
        root, storage = log
        storage.put_if_absent(f"{root}/_delta_log/{7:020d}.checkpoint.parquet", b"")
        storage.put_if_absent(f"{root}/_delta_log/{8:020d}.crc", b"")
        storage.put_if_absent(f"{root}/_delta_log/_sidecars/{9:020d}.checkpoint.parquet", b"")
        storage.put_if_absent(f"{root}/_delta_log/.{10:020d}.json.crc", b"")
        committer = committer_of(log)
        assert committer.current() == "7"
        assert committer.commit(an_attempt(committer, "one")) == Committed(metadata_location=path_of(root, 8))

    def test_a_version_that_another_writer_made_is_a_conflict_and_is_never_overwritten(
        self, log: Log
    ) -> None:
        ours, theirs = committer_of(log), committer_of(log)
        attempt = an_attempt(ours, "ours")
        add_version(theirs, "theirs")
        before = log[1].read(path_of(log[0], 1))
        outcomes: Sequence[Outcome] = [
            ours.commit(attempt),
            ours.commit(attempt),
            ours.settle(attempt),
            committer_of(log).settle(dataclasses.replace(attempt, fresh=False)),
            committer_of(log).commit(dataclasses.replace(attempt, fresh=False)),
        ]
        assert [type(outcome) for outcome in outcomes] == [Conflict] * 5
        assert log[1].read(path_of(log[0], 1)) == before
        assert names_of(*log) == ["theirs"]

    def test_an_old_version_whose_name_a_cleanup_made_free_is_not_written_again(self, log: Log) -> None:
        root, storage = log
        attempt = an_attempt(committer_of(log), "ours")
        for name in ("a", "b", "c"):
            add_version(committer_of(log), name)
        storage.put_if_absent(f"{root}/_delta_log/{3:020d}.checkpoint.parquet", b"")
        storage.delete([path_of(root, version) for version in (0, 1, 2)])
        assert isinstance(committer_of(log).commit(attempt), Conflict)
        # One that may have been sent before: nothing tells any more.
        resumed = dataclasses.replace(attempt, fresh=False)
        assert isinstance(committer_of(log).settle(resumed), Unknown)
        assert isinstance(committer_of(log).commit(resumed), Unknown)
        with pytest.raises(FileNotFoundError):
            storage.stat(path_of(root, 1))

    def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(self, log: Log) -> None:
        root, storage = log
        committer = DeltaLogCommitter(root, LosingStorage(storage, put="failed after"))
        attempt = an_attempt(committer, "ours")
        found = Committed(metadata_location=path_of(root, 1))
        resumed = dataclasses.replace(attempt, fresh=False)
        assert committer.commit(attempt) == found
        assert [each.settle(resumed) for each in (committer, committer_of(log))] == [found, found]
        add_version(committer_of(log), "theirs")
        assert committer_of(log).settle(resumed) == committer_of(log).commit(resumed) == found
        assert names_of(*log) == ["ours", "theirs"]

    def test_a_request_that_was_lost_happens_once_it_is_sent_again(self, log: Log) -> None:
        root, storage = log
        committer = DeltaLogCommitter(root, LosingStorage(storage, put="failed before"))
        attempt = an_attempt(committer, "ours")
        if root.startswith("/"):
            with pytest.raises(BackendUnavailable):  # a system call that failed is over
                committer.commit(attempt)
        else:
            assert isinstance(committer.commit(attempt), Unknown)  # a request may still arrive
        resumed = dataclasses.replace(attempt, fresh=False)
        assert isinstance(committer_of(log).settle(resumed), Unknown)
        assert committer_of(log).commit(resumed) == Committed(metadata_location=path_of(root, 1))
        assert names_of(*log) == ["ours"]

    def test_a_lost_request_is_a_conflict_once_another_has_made_the_version(self, log: Log) -> None:
        attempt = dataclasses.replace(an_attempt(committer_of(log), "ours"), fresh=False)
        add_version(committer_of(log), "theirs")
        assert isinstance(committer_of(log).settle(attempt), Conflict)
        assert isinstance(committer_of(log).commit(attempt), Conflict)

    def test_a_commit_is_ours_by_its_transaction_where_another_tool_wrote_its_bytes_anew(
        self, log: Log
    ) -> None:
        attempt = an_attempt(committer_of(log), "ours")
        log[1].put_if_absent(path_of(log[0], 1), attempt.data.replace(b"\n", b"\r\n"))
        assert isinstance(committer_of(log).settle(attempt), Committed)
        assert transaction_of(attempt.data) == attempt.commit.commit_uuid

    def test_a_version_that_is_no_commit_proves_nothing(self, log: Log) -> None:
        attempt = an_attempt(committer_of(log), "ours")
        log[1].put_if_absent(path_of(log[0], 1), attempt.data[: len(attempt.data) // 2])
        assert isinstance(committer_of(log).settle(attempt), Unknown)

    def test_an_attempt_without_its_bytes_is_looked_up_and_never_sent(self, log: Log) -> None:
        attempt = an_attempt(committer_of(log), "ours", fresh=False)
        bare: Attempt = dataclasses.replace(attempt, data=b"")
        assert isinstance(committer_of(log).commit(bare), Unknown)
        assert committer_of(log).current() == "0"
        committer_of(log).commit(attempt)
        assert isinstance(committer_of(log).settle(bare), Committed)

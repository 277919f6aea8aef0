"""The committer of Delta logs, on local disks and in an object store: three outcomes, and no version lost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter, transaction_of
from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage, open_storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.conformance.faults import FaultyStorage, Killed
from tests.conformance.delta_logs import add_version, an_attempt, make_log, names_of, path_of

REPOSITORY = Path(__file__).resolve().parents[2]
Log = tuple[str, Storage]


@pytest.fixture(params=["local", "s3"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    """A table of one version, and its storage."""
    if request.param == "local":
        root, storage = f"{tmp_path}/t", open_storage()
    else:
        server = request.getfixturevalue("s3_server")
        root, storage = f"s3://{server.bucket}/{uuid.uuid4().hex}", open_storage(server.options)
    make_log(root, storage)
    return root, storage


def committer_of(log: Log) -> DeltaLogCommitter:
    return DeltaLogCommitter(*log)


class Losing:
    """A storage whose next answer to a put is lost, before or after the object was made."""

    def __init__(self, inside: Storage, lost: Literal["before", "after"]) -> None:
        self.inside = inside
        self.lost: str | None = lost

    def put_if_absent(self, path: str, data: bytes) -> None:
        lost, self.lost = self.lost, None
        if lost != "before":
            self.inside.put_if_absent(path, data)
        if lost:
            raise BackendUnavailable("Cannot write: the connection was closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)


# One writer


def test_a_commit_makes_the_version_after_the_newest(log: Log) -> None:
    committer = committer_of(log)
    attempt = an_attempt(committer, "one")
    assert (committer.current(), attempt.base) == ("0", "0")
    assert committer.commit(attempt) == Committed(metadata_location=path_of(log[0], 1))
    assert committer.current() == committer_of(log).current() == "1"
    assert log[1].read(path_of(log[0], 1)) == attempt.data
    assert hashlib.sha256(attempt.data).hexdigest() == attempt.digest


def test_the_newest_version_may_be_one_of_which_only_a_checkpoint_is_there(log: Log) -> None:
    root, storage = log
    storage.put_if_absent(f"{root}/_delta_log/{7:020d}.checkpoint.parquet", b"")
    storage.put_if_absent(f"{root}/_delta_log/{8:020d}.crc", b"")
    storage.put_if_absent(f"{root}/_delta_log/_sidecars/{9:020d}.checkpoint.parquet", b"")
    storage.put_if_absent(f"{root}/_delta_log/.{10:020d}.json.crc", b"")
    committer = committer_of(log)
    assert committer.current() == "7"
    assert committer.commit(an_attempt(committer, "one")) == Committed(metadata_location=path_of(root, 8))


def test_a_folder_without_a_version_is_no_table(tmp_path: Path) -> None:
    committer = DeltaLogCommitter(str(tmp_path), open_storage())
    with pytest.raises(TableNotFound):
        committer.current()


# Conflicts


def test_a_version_that_another_writer_made_is_a_conflict_and_is_never_overwritten(log: Log) -> None:
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


def test_an_old_version_whose_name_a_cleanup_made_free_is_not_written_again(log: Log) -> None:
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


# Lost answers


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(log: Log) -> None:
    root, storage = log
    committer = DeltaLogCommitter(root, Losing(storage, "after"))
    attempt = an_attempt(committer, "ours")
    found = Committed(metadata_location=path_of(root, 1))
    resumed = dataclasses.replace(attempt, fresh=False)
    assert committer.commit(attempt) == found
    assert [each.settle(resumed) for each in (committer, committer_of(log))] == [found, found]
    add_version(committer_of(log), "theirs")
    assert committer_of(log).settle(resumed) == committer_of(log).commit(resumed) == found
    assert names_of(*log) == ["ours", "theirs"]


def test_a_request_that_was_lost_happens_once_it_is_sent_again(log: Log) -> None:
    root, storage = log
    committer = DeltaLogCommitter(root, Losing(storage, "before"))
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


def test_a_lost_request_is_a_conflict_once_another_has_made_the_version(log: Log) -> None:
    attempt = dataclasses.replace(an_attempt(committer_of(log), "ours"), fresh=False)
    add_version(committer_of(log), "theirs")
    assert isinstance(committer_of(log).settle(attempt), Conflict)
    assert isinstance(committer_of(log).commit(attempt), Conflict)


def test_a_commit_is_ours_by_its_transaction_where_another_tool_wrote_its_bytes_anew(log: Log) -> None:
    attempt = an_attempt(committer_of(log), "ours")
    log[1].put_if_absent(attempt.target, attempt.data.replace(b"\n", b"\r\n"))
    assert isinstance(committer_of(log).settle(attempt), Committed)
    assert transaction_of(attempt.data) == attempt.commit.commit_uuid


def test_a_version_that_is_no_commit_proves_nothing(log: Log) -> None:
    attempt = an_attempt(committer_of(log), "ours")
    log[1].put_if_absent(attempt.target, attempt.data[: len(attempt.data) // 2])
    assert isinstance(committer_of(log).settle(attempt), Unknown)


def test_an_attempt_without_its_bytes_is_looked_up_and_never_sent(log: Log) -> None:
    attempt = an_attempt(committer_of(log), "ours", fresh=False)
    bare: Attempt = dataclasses.replace(attempt, data=b"")
    assert isinstance(committer_of(log).commit(bare), Unknown)
    assert committer_of(log).current() == "0"
    committer_of(log).commit(attempt)
    assert isinstance(committer_of(log).settle(bare), Committed)


# Crashes and full disks


@pytest.mark.parametrize("when", ["killed before", "killed after"])
def test_a_kill_at_the_write_leaves_the_table_at_the_old_or_the_new_version(
    tmp_path: Path, when: str
) -> None:
    log = (f"{tmp_path}/t", open_storage())
    make_log(*log)
    committer = DeltaLogCommitter(log[0], FaultyStorage(LocalStorage(), put=when))  # type: ignore[arg-type]
    attempt = an_attempt(committer, "ours")
    with pytest.raises(Killed):
        committer.commit(attempt)
    resumed = dataclasses.replace(attempt, fresh=False)
    committed = when == "killed after"
    assert committer_of(log).current() == str(int(committed))
    assert isinstance(committer_of(log).settle(resumed), Committed if committed else Unknown)
    assert isinstance(committer_of(log).commit(resumed), Committed)
    assert names_of(*log) == ["ours"]


# Many writers


def race(log: Log, *, writers: int, commits: int, options: Any = None, delta_rs: bool = False) -> int:
    """Let processes commit; every acknowledged version must be there, none twice. Returns the conflicts they met."""
    root, storage = log
    targets = {"root": root, "options": options, "writers": writers, "commits": commits, "delta_rs": delta_rs}
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.delta_logs", json.dumps(targets)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    expected = sorted(f"w{writer}.{number}" for writer in range(writers) for number in range(commits))
    assert [name for name in result["acknowledged"] if name != "delta-rs"] == expected
    assert sorted(names_of(root, storage)) == expected
    versions = int(committer_of(log).current())
    assert versions == len(expected) + delta_rs * commits
    return int(result["conflicts"])


def test_racing_processes_lose_no_version(tmp_path: Path) -> None:
    log = (f"{tmp_path}/t", open_storage())
    make_log(*log)
    assert race(log, writers=16, commits=5) > 0


@pytest.mark.deep
def test_many_racing_processes_lose_no_version(tmp_path: Path) -> None:
    log = (f"{tmp_path}/t", open_storage())
    make_log(*log)
    assert race(log, writers=16, commits=40) > 0


def test_racing_with_delta_rs_neither_side_loses_a_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    log = (f"{tmp_path}/t", open_storage())
    make_log(*log)
    race(log, writers=2, commits=15, delta_rs=True)
    table = deltalake.DeltaTable(log[0])
    assert table.version() == 45
    assert sorted(table.to_pyarrow_table()["i"].to_pylist()) == list(range(15))


def test_racing_threads_lose_no_version_in_an_object_store(s3_server: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    storage = open_storage(s3_server.options)
    log = (f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", storage)
    make_log(*log)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: add_version(committer_of(log), f"p{n}"), range(24)))
    assert sorted(names_of(*log)) == sorted(f"p{n}" for n in range(24))

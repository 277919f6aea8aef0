"""The committer of Delta logs, on local disks and in an object store, killed, and with many writers at once."""

from __future__ import annotations

import dataclasses
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.errors import TableNotFound
from iceberg_cli.operation.outcomes import Committed, Unknown
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.delta_logs import (
    DeltaLogConformance,
    Log,
    add_version,
    an_attempt,
    committer_of,
    make_log,
    names_of,
)
from iceberg_cli.testing.conformance.faults import FaultyStorage, Killed
from tests.budget import FULL, deep_unless
from tests.conformance.racing import result_of
from tests.emulators import ObjectStore
from tests.servers import S3Server

STORES = ["fake_gcs", "azurite"]


class TestLog(DeltaLogConformance):
    """On a local disk, and in object stores."""

    @pytest.fixture(params=deep_unless(["local", "s3"], ["local", "s3", *STORES]))
    def log(self, request: pytest.FixtureRequest, tmp_path: Path) -> Log:
        """A table of one version, and its storage."""
        if request.param == "local":
            make_log(f"{tmp_path}/t", open_storage())
            return f"{tmp_path}/t", open_storage()
        if request.param in STORES:
            return a_log_in(request.getfixturevalue(request.param))
        return a_log_on_s3(request.getfixturevalue("versitygw"))


def test_a_folder_without_a_version_is_no_table(tmp_path: Path) -> None:
    committer = DeltaLogCommitter(str(tmp_path), open_storage())
    with pytest.raises(TableNotFound):
        committer.current()


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
    result = result_of("tests.conformance.delta_writers", targets)
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


@pytest.mark.deep
def test_racing_with_delta_rs_neither_side_loses_a_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    log = (f"{tmp_path}/t", open_storage())
    make_log(*log)
    race(log, writers=2, commits=15, delta_rs=True)
    table = deltalake.DeltaTable(log[0])
    assert table.version() == 45
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == list(range(15))


def a_log_on_s3(server: S3Server) -> Log:
    """A table of one version."""
    log = (f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage)
    make_log(*log)
    return log


def a_log_in(store: ObjectStore) -> Log:
    """The same."""
    log = (store.new_folder(), store.storage)
    make_log(*log)
    return log


@pytest.mark.few(1)
@pytest.mark.parametrize("server", deep_unless(["versitygw", "fake_gcs"], ["versitygw", *STORES]))
def test_racing_threads_lose_no_version_in_an_object_store(
    server: str, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(server)
    log = a_log_on_s3(found) if server == "versitygw" else a_log_in(found)
    names = [f"w{writer}.{number}" for writer in range(8) for number in range(5)]
    with ThreadPoolExecutor(8) as pool:
        conflicts = sum(pool.map(lambda name: add_version(committer_of(log), name), names))
    assert sorted(names_of(*log)) == names
    assert conflicts > 0


@pytest.mark.deep
def test_many_racing_processes_lose_no_version_on_s3(versitygw: S3Server) -> None:
    commits = 40 if FULL else 10  # every try lists all versions
    assert race(a_log_on_s3(versitygw), writers=16, commits=commits, options=versitygw.options) > 0


@pytest.mark.deep
@pytest.mark.parametrize("name", STORES)
def test_many_racing_processes_lose_no_version_on_gcs_and_azure(
    name: str, request: pytest.FixtureRequest
) -> None:
    store: ObjectStore = request.getfixturevalue(name)
    assert race(a_log_in(store), writers=16, commits=40 if FULL else 2, options=store.options) > 0

"""Tables in HDFS are read where Hadoop's library is, and never written."""

from __future__ import annotations

import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.storage.router import UnsafeOverrides, open_storage
from iceberg_cli.testing.memory_storage import MemoryStorage

ALL_WORDS = UnsafeOverrides(conditional_writes=True, single_writer=True)


@pytest.fixture
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "JAVA_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("path", ["hdfs://namenode:8020/t/a", "HDFS:///t/a", "viewfs://cluster/t/a"])
def test_without_hadoops_library_it_is_said_what_is_missing(path: str, without_hadoop: None) -> None:
    with pytest.raises(UsageError, match="libhdfs") as raised:
        open_storage().read(path)
    assert "HADOOP_HOME" in raised.value.next_step


def test_nothing_is_written_or_deleted() -> None:
    storage, path = open_storage(), "hdfs://namenode:8020/t/a"
    for write in (storage.put_if_absent, storage.replace):
        with pytest.raises(Refused, match="without replacing another writer's"):
            write(path, b"")
    with pytest.raises(Refused, match="without replacing another writer's"):
        storage.create(path)
    assert storage.delete([path]).keys() == {path}


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs"])
def test_no_word_lets_a_table_there_be_committed_to(scheme: str) -> None:
    folder = f"{scheme}://namenode/t"
    for committer in (
        ObjectStoreCommitter(folder, MemoryStorage(), ALL_WORDS),
        DeltaLogCommitter(folder, MemoryStorage(), ALL_WORDS),
    ):
        reason = committer.unvouched_reason()
        assert reason is not None
        assert "pyarrow" in reason

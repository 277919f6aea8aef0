"""Whose word a Delta table on Google Cloud Storage or Azure needs: none on the real services, one on any other."""

from __future__ import annotations

import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.iceberg.catalogs.object_store.committer import SINGLE_WRITER, ObjectStoreCommitter
from iceberg_cli.storage.router import UnsafeOverrides
from iceberg_cli.table.next_version import CONDITIONAL_WRITES
from iceberg_cli.testing.memory_storage import MemoryStorage

WORD = UnsafeOverrides(conditional_writes=True)
GCS, AZURE = "gs://bucket/t", "abfss://container@account.dfs.core.windows.net/t"
REAL = [(GCS, "https://storage.googleapis.com"), (AZURE, "https://account.blob.core.windows.net")]
OTHERS = [(GCS, "http://127.0.0.1:4443"), (AZURE, "http://127.0.0.1:10000/account")]


class AtEndpoint(MemoryStorage):
    """A storage that tells this endpoint."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def endpoint(self, path: str) -> str:  # noqa: ARG002 - one for all
        return self.url


@pytest.mark.parametrize(("folder", "url"), REAL)
def test_nobody_vouches_for_deltas_own_writers_on_the_real_services(folder: str, url: str) -> None:
    for overrides in (UnsafeOverrides(), WORD):
        committer = DeltaLogCommitter(folder, AtEndpoint(url), overrides)
        assert committer.unvouched_reason() is None
        assert committer.vouchers() == ()
        committer.probe(f"{folder}/probe")


@pytest.mark.parametrize(("folder", "url"), OTHERS)
def test_at_any_other_endpoint_the_word_is_for_the_service_alone(folder: str, url: str) -> None:
    reason = DeltaLogCommitter(folder, AtEndpoint(url)).unvouched_reason()
    assert reason is not None
    assert url in reason
    assert CONDITIONAL_WRITES in reason
    assert "Spark" not in reason
    committer = DeltaLogCommitter(folder, AtEndpoint(url), WORD)
    assert committer.unvouched_reason() is None
    [voucher] = committer.vouchers()
    assert (voucher.option, voucher.value) == (CONDITIONAL_WRITES, url)
    assert voucher.sentence.endswith("keeps conditional creates under races")


@pytest.mark.parametrize(("folder", "url"), REAL)
def test_an_iceberg_table_by_file_names_wants_a_single_writer(folder: str, url: str) -> None:
    reason = ObjectStoreCommitter(folder, AtEndpoint(url)).unvouched_reason()
    assert reason is not None
    assert SINGLE_WRITER in reason
    vouched = ObjectStoreCommitter(folder, AtEndpoint(url), UnsafeOverrides(single_writer=True))
    assert vouched.unvouched_reason() is None
    assert [voucher.option for voucher in vouched.vouchers()] == [SINGLE_WRITER]

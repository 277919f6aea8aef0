"""A storage that nobody uses any more leaves nothing: who maintains a thousand tables opens one for each."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Mapping

import pytest

from iceberg_cli.storage.router import RoutedStorage, open_storage
from tests.emulators import Azurite, FakeGcs
from tests.servers import Versitygw

ADAPTERS = {
    "S3Storage",
    "S3FileSystem",
    "S3",
    "GcsStorage",
    "GCSFileSystem",
    "AzureStorage",
    "BlobServiceClient",
}


def alive() -> list[object]:
    """Storages of object stores, and what they connect by."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each).__name__ in ADAPTERS]


def use(storage: RoutedStorage, folder: str) -> None:
    storage.put_if_absent(f"{folder}/a", b"bytes")
    assert storage.read(f"{folder}/a") == b"bytes"
    assert list(storage.paths(folder)) == [f"{folder}/a"]
    assert storage.delete([f"{folder}/a"]) == {}


def check_given_back(options: Mapping[str, str], folder: str) -> None:
    before = {id(each) for each in alive()}
    storage = open_storage(options)
    use(storage, folder)
    ours = [weakref.ref(each) for each in alive() if id(each) not in before]
    assert len(ours) > 1
    del storage
    until = time.monotonic() + 30
    while any(each() is not None for each in ours):  # connections are closed by another thread
        assert time.monotonic() < until
        gc.collect()
        time.sleep(0.05)


def test_a_storage_on_s3_is_given_back(versitygw: Versitygw) -> None:
    check_given_back(versitygw.options, f"s3://{versitygw.bucket}/lifetimes")


@pytest.mark.deep
def test_a_storage_on_google_cloud_storage_is_given_back(fake_gcs: FakeGcs) -> None:
    check_given_back(fake_gcs.options, fake_gcs.new_folder())


@pytest.mark.deep
def test_a_storage_on_azure_is_given_back(azurite: Azurite) -> None:
    check_given_back(azurite.options, azurite.new_folder())

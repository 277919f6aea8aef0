"""Several credentials of one table, each for the paths under its prefix, on a service that holds users to them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping

import pytest

from iceberg_cli.errors import AccessDenied
from iceberg_cli.storage import Storage, StorageCredential, renewals
from iceberg_cli.storage.router import RoutedStorage
from tests.s3_users import GuardedS3


def here(storage: RoutedStorage) -> RoutedStorage:
    return storage


def on_a_worker(storage: RoutedStorage) -> RoutedStorage:
    """As another process makes it."""
    copy: RoutedStorage = pickle.loads(pickle.dumps(storage))
    return copy


@pytest.mark.parametrize("place", [here, on_a_worker])
def test_each_path_has_the_credentials_of_its_longest_prefix(
    guarded_s3: GuardedS3, place: Callable[[RoutedStorage], RoutedStorage]
) -> None:
    first, second = guarded_s3.new_bucket("one"), guarded_s3.new_bucket("two")
    one, two = guarded_s3.options_of("one"), guarded_s3.options_of("two")
    storage = place(
        RoutedStorage(
            one,
            credentials=[
                StorageCredential(prefix="s3", options=two),
                StorageCredential(prefix=f"s3a://{second}/t/data/", options=two),
                StorageCredential(prefix=f"s3://{second}", options=one),
                StorageCredential(prefix=f"s3://{first}/", options=one),
            ],
        )
    )
    metadata, data = f"s3://{first}/t/metadata/v1.json", f"s3://{second}/t/data/a/f.parquet"
    storage.put_if_absent(metadata, b"metadata")
    storage.put_if_absent(data, b"data")
    storage.replace(data, b"new data")
    assert storage.read(metadata) == b"metadata"
    assert storage.read(data.replace("s3:", "s3n:"), (4, 4)) == b"data"
    assert [info and info.size_bytes for info in storage.stat_many([data, metadata])] == [8, 8]
    # A folder's own credentials are those of what is in it.
    for folder in (f"s3://{second}/t/data", f"s3://{second}/t/data/"):
        assert [info.path for info in storage.list(folder)] == [data]
        assert [*storage.paths(folder)] == [data]
        assert storage.holds_any(folder)
    assert storage.subfolders_many([f"s3://{second}/t/data"], ["a", "b"]) == [frozenset({"a"})]
    with pytest.raises(AccessDenied):
        storage.read(f"s3://{second}/t/other")
    with pytest.raises(AccessDenied):
        [*storage.list(f"s3://{second}/t")]
    assert storage.delete([metadata, f"s3://{second}/t/other", data]).keys() == {f"s3://{second}/t/other"}
    assert storage.stat_many([data, metadata]) == [None, None]


def test_each_credential_is_renewed_by_itself(guarded_s3: GuardedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "_YOUNG_S", 0)
    first, second = guarded_s3.new_bucket("one"), guarded_s3.new_bucket("two")
    renewed: list[str] = []

    def renewal(user: str) -> Callable[[], Mapping[str, str]]:
        def renew() -> Mapping[str, str]:
            renewed.append(user)
            # The endpoint stays as it was.
            return {name: text for name, text in guarded_s3.options_of(user).items() if name != "s3.endpoint"}

        return renew

    ended = {**guarded_s3.options_of("one"), "s3.secret-access-key": "one-that-has-ended"}
    storage: Storage = RoutedStorage(
        guarded_s3.options_of("one"),
        credentials=[
            StorageCredential(prefix="", options=guarded_s3.options_of("one"), renewal=renewal("nobody")),
            StorageCredential(prefix=f"s3://{first}/", options=ended, renewal=renewal("one")),
            StorageCredential(prefix=f"s3://{second}/", options=ended, renewal=renewal("two")),
        ],
    )
    storage.put_if_absent(f"s3://{first}/a", b"a")
    assert renewed == ["one"]
    storage.put_if_absent(f"s3://{second}/b", b"b")
    assert renewed == ["one", "two"]
    assert storage.read(f"s3://{first}/a") + storage.read(f"s3://{second}/b") == b"ab"
    assert renewed == ["one", "two"]

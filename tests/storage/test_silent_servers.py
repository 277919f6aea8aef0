"""Servers that take a connection and never answer, as behind a network that drops packets: nobody waits for ever."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import obstore.store
import pytest

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage import Storage, backoff
from iceberg_cli.storage.s3 import objects as s3
from iceberg_cli.storage.s3.objects import S3Storage


@pytest.fixture
def silent() -> Iterator[str]:
    """The host and port of one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients wait a moment for an answer, and ask once."""
    usual = obstore.store.S3Store

    def store(*arguments: Any, **options: Any) -> obstore.store.S3Store:
        assert "read_timeout" in options["client_options"]
        options["client_options"] = {**options["client_options"], "read_timeout": "200ms"}
        return usual(*arguments, **options)

    monkeypatch.setattr(obstore.store, "S3Store", store)
    monkeypatch.setattr(s3, "_ANSWER_S", 0.2)
    monkeypatch.setattr(s3, "_SLOWEST", 80_000_000)
    monkeypatch.setattr(backoff, "_TRIES", 1)


def delete(storage: Storage) -> None:
    """A batch."""
    failures = storage.delete(["s3://bucket/a", "s3://bucket/b"])
    raise BackendUnavailable("; ".join(failures.values()))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.put_if_absent("s3://bucket/key", b"x"),
        lambda storage: storage.put_if_absent("s3://bucket/key", b"x" * 8_000_000),
        lambda storage: storage.replace("s3://bucket/key", b"x"),
        lambda storage: storage.read("s3://bucket/key"),
        delete,
    ],
    ids=["create", "create a large one", "replace", "read", "delete"],
)
def test_a_request_to_s3_ends(silent: str, act: Callable[[Storage], object]) -> None:
    """A client asks whether it may send a body, and by itself waits for ever for the answer to that."""
    options = {"endpoint_url": f"http://{silent}", "key": "AK", "secret": "a-secret", "region": "us-east-1"}
    with pytest.raises(BackendUnavailable, match="Read timeout on endpoint URL"):
        act(S3Storage(options))

"""Uploads in parts to Google Cloud Storage and Azure, of which answers get lost or say no."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage import Storage
from iceberg_cli.storage.azure.creation import BlockWriter
from iceberg_cli.storage.router import open_storage
from tests.emulators import Azurite, FakeGcs
from tests.gcs_uploads import with_resumable_uploads
from tests.s3_front import Request, Response, serving
from tests.storage.test_gcs_and_azure import Front, _Handler, answering, no_waits

__all__ = ["no_waits"]


def large() -> bytes:
    """Three parts."""
    return bytes(range(251)) * ((17 << 20) // 251)


def create(storage: Storage, path: str) -> None:
    with storage.create(path) as writer:
        writer.write(large())
        writer.commit()


@pytest.mark.few(4)
@pytest.mark.parametrize("fate", ["lost", "500 after", "503"])
@pytest.mark.parametrize("number", range(4))
def test_blocks_and_lists_of_blocks_whose_answers_got_lost_are_ours(
    azurite: Azurite, number: int, fate: str, no_waits: None
) -> None:
    front = Front(azurite.endpoint, [*[""] * number, fate])
    with serving(_Handler, front=front) as endpoint:
        storage, path = open_storage(azurite.options_at(endpoint)), f"{azurite.new_folder()}/object"
        create(storage, path)
        sent = [
            parse_qs(urlsplit(each.path).query)["comp"][0] for each in front.requests if each.method == "PUT"
        ]
        again = 2 if number < 3 else 1
        assert (sent.count("block"), sent.count("blocklist")) == (2 + again, 3 - again)
        assert all(
            each.headers["If-None-Match"] == "*" for each in front.requests if "blocklist" in each.path
        )
        assert azurite.storage.read(path) == large()
        front.fates = [*[""] * number, fate]
        with pytest.raises(FileExistsError):
            create(storage, path)
        assert azurite.storage.read(path) == large()


def test_ids_of_blocks_have_one_length_and_are_no_other_writers() -> None:
    """Source: https://learn.microsoft.com/rest/api/storageservices/put-block, "Remarks"."""
    block_ids: list[str] = []
    for _ in range(2):
        writer = BlockWriter(
            "abfss://c@h/k",
            lambda _: None,
            stage=lambda each, _: block_ids.append(each),
            create=lambda _: None,
        )
        for _ in range(12):
            writer.write(bytes(8 << 20))
        writer.commit()
    assert len(set(block_ids)) == 24
    assert {len(each) for each in block_ids} == {38}


@pytest.mark.parametrize("is_there", [False, True])
def test_where_blocks_are_gone_only_an_object_that_is_there_is_a_conflict(
    azurite: Azurite, is_there: bool
) -> None:
    gone = Response(400, [("x-ms-error-code", "InvalidBlockList")], b"")
    path = f"{azurite.new_folder()}/object"
    if is_there:
        azurite.storage.put_if_absent(path, b"another's")
    with (
        answering(azurite, lambda request: gone if "blocklist" in request.path else None) as (storage, _),
        pytest.raises(FileExistsError if is_there else BackendUnavailable),
    ):
        create(storage, path)


@pytest.mark.few(6)
@pytest.mark.parametrize("fate", ["lost", "500", "503", "half"])
@pytest.mark.parametrize("number", range(4))
def test_of_a_resumable_upload_no_byte_is_lost_with_an_answer(
    fake_gcs: FakeGcs, number: int, fate: str, no_waits: None
) -> None:
    with with_resumable_uploads(fake_gcs) as (store, uploads):
        path = f"{store.new_folder()}/object"
        uploads.fates = [*[""] * number, fate, *([fate] if number else [])]
        create(store.storage, path)
        assert store.storage.read(path) == large()
        asked = [part for part in uploads.ranges() if part.startswith("bytes */")]
        assert bool(asked) == (number > 0 and fate != "half")
        uploads.fates = [*[""] * number, fate]
        with pytest.raises(FileExistsError):
            create(store.storage, path)
        assert store.storage.read(path) == large()


def test_a_session_of_an_upload_is_asked_for_at_the_endpoint_and_cancelled(fake_gcs: FakeGcs) -> None:
    with with_resumable_uploads(fake_gcs) as (store, uploads):
        path, told = f"{store.new_folder()}/object", list[str]()
        with store.storage.create(path, told.append) as writer:
            writer.write(large())
            assert len(uploads.sessions) == 1
        assert (uploads.sessions, told) == ({}, [])
        first = uploads.requests[0]
        assert parse_qs(urlsplit(first.path).query)["ifGenerationMatch"] == ["0"]
        assert uploads.ranges() == [f"bytes 0-{(8 << 20) - 1}/*", f"bytes {8 << 20}-{(16 << 20) - 1}/*"]
        assert uploads.requests[-1].method == "DELETE"


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize("is_there", [False, True])
def test_where_a_session_is_gone_only_an_object_that_is_there_is_a_conflict(
    fake_gcs: FakeGcs, status: int, is_there: bool
) -> None:
    """The answer is a document, as of an object that is not found."""
    with with_resumable_uploads(fake_gcs) as (store, uploads):
        path = f"{store.new_folder()}/object"
        uploads.fates = ["", "", str(status)]
        with store.storage.create(path) as writer:
            writer.write(large()[: 9 << 20])
            if is_there:
                store.storage.put_if_absent(path, b"another's")
            with pytest.raises(FileExistsError if is_there else BackendUnavailable):
                writer.commit()


def test_the_id_of_a_session_is_in_no_message(fake_gcs: FakeGcs, no_waits: None) -> None:
    def answer(request: Request) -> Response | None:
        if "uploadType=resumable" not in request.path:
            return None
        if request.method == "POST":
            return Response(200, [("Location", "https://h/o?uploadType=resumable&upload_id=AbCsecret")], b"")
        return Response(308, [], b"") if len(requests) < 4 else Response(400, [], b"no upload_id=AbCsecret")

    path = f"{fake_gcs.new_folder()}/object"
    with answering(fake_gcs, answer) as (storage, requests):
        with pytest.raises(BackendUnavailable, match="400: no upload_id") as raised:
            create(storage, path)
        assert "AbCsecret" not in str(raised.value)
        assert len(requests) >= 5
    assert fake_gcs.storage.stat_many([path]) == [None]


def test_a_session_that_answers_nothing_but_that_it_has_nothing_ends_the_upload(
    fake_gcs: FakeGcs, no_waits: None
) -> None:
    def answer(request: Request) -> Response | None:
        if "uploadType=resumable" in request.path and request.method == "POST":
            return Response(200, [("Location", "https://h/upload/o?upload_id=x")], b"")
        return Response(308, [], b"") if request.path.startswith("/upload/o") else None

    with answering(fake_gcs, answer) as (storage, requests):
        with pytest.raises(BackendUnavailable, match="keeps nothing"):
            create(storage, f"{fake_gcs.new_folder()}/object")
        assert len(requests) < 20

"""Requests to S3 that are signed elsewhere: what the signer is asked, and what becomes of its answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, TableNotFound, UsageError
from iceberg_cli.storage import RequestToSign, SignedRequest, backoff
from iceberg_cli.storage.s3.objects import S3Storage

REMOTE = {"s3.remote-signing-enabled": "true", "s3.region": "us-east-1", "s3.endpoint": "https://127.0.0.1:1"}


@dataclass
class Signer:
    """Keeps what it is asked; it raises `error`, or answers with `url`."""

    error: Exception | None = None
    url: str = ""
    requests: list[RequestToSign] = field(default_factory=list)

    def __call__(self, request: RequestToSign) -> SignedRequest:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return SignedRequest(self.url, {"Authorization": "signed"})


def test_a_request_is_told_whole_and_its_body_is_not_in_chunks() -> None:
    signer = Signer(AccessDenied("no"))
    storage = S3Storage(REMOTE, signer=signer)
    with pytest.raises(AccessDenied, match="Cannot write s3://b/a %2F: no"):
        storage.put_if_absent("s3://b/a %2F", b"data")
    (put,) = signer.requests
    assert (put.method, put.url, put.region) == ("PUT", "https://127.0.0.1:1/b/a%20%252F", "us-east-1")
    assert put.headers["If-None-Match"] == "*"
    assert not {"x-amz-trailer", "content-encoding", "authorization"} & {name.lower() for name in put.headers}
    assert put.body is None


def test_of_a_bulk_deletion_the_body_is_told() -> None:
    signer = Signer(AccessDenied("no"))
    assert S3Storage(REMOTE, signer=signer).delete(["s3://b/x", "s3://b/y"]) == {
        "s3://b/x": "no",
        "s3://b/y": "no",
    }
    bulk, *single = signer.requests
    assert "<Key>x</Key>" in (bulk.body or "")
    assert {(each.method, each.url, each.body) for each in single} == {
        ("DELETE", f"https://127.0.0.1:1/b/{key}", None) for key in "xy"
    }


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1/b/other",
        "https://127.0.0.1:1/b/",
        "https://127.0.0.1:1/key",
        "https://127.0.0.1:1/b/a%20key/",
    ],
)
def test_a_signature_of_another_request_is_not_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    signer = Signer(url=url)
    reasons = S3Storage(REMOTE, signer=signer).delete(["s3://b/\x01"])
    assert reasons == {"s3://b/\x01": "the catalog signed another request than this one"}


@pytest.mark.parametrize(
    ("error", "kind", "times"),
    [
        (AccessDenied("no"), AccessDenied, 1),
        (TableNotFound("gone"), AccessDenied, 1),
        (BackendUnavailable("busy"), BackendUnavailable, 5),
    ],
)
def test_only_a_signer_without_an_answer_is_asked_again(
    error: Exception, kind: type[Exception], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    signer = Signer(error)
    with pytest.raises(kind) as raised:
        S3Storage(REMOTE, signer=signer).read("s3://b/key")
    assert type(raised.value) is kind
    assert len(signer.requests) == times


def test_without_a_catalog_nobody_signs() -> None:
    with pytest.raises(UsageError, match=r"s3\.remote-signing-enabled"):
        S3Storage(REMOTE)

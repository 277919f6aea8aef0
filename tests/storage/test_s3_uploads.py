"""What uploads in parts send to S3, and what becomes of answers that are lost or say no."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused
from iceberg_cli.storage import RequestToSign, SignedRequest, Storage, Writer, backoff
from iceberg_cli.storage.s3 import objects as s3
from iceberg_cli.storage.s3.objects import S3Storage
from tests.s3_front import PassingOn, Request, Response, serving
from tests.servers import MotoServer, S3Server, Versitygw

MIB = 1 << 20
DATA = bytes(range(251)) * (17 * MIB // 251)  # three parts of at most 8 MiB
CREATE, PART, COMPLETE, ABORT, HEAD, PUT = "create", "part", "complete", "abort", "HEAD", "PUT"


def kind_of(request: Request) -> str:
    query = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    if "uploads" in query:
        return CREATE
    if "uploadId" in query:
        return {"PUT": PART, "POST": COMPLETE, "DELETE": ABORT}[request.method]
    return request.method


def an_error(status: int, code: str) -> Response:
    return Response(status, [], f"<Error><Code>{code}</Code><Message>why</Message></Error>".encode())


@dataclass
class Front:
    """A server before the service; `fates` are those of the next requests of a kind.

    Args:
        behind: the service.
        fates: `lost`: carried out, without an answer; a response: not carried out, and answered so; None: passed on.
    """

    behind: S3Server
    fates: dict[str, list[Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    endpoint: str = ""

    @property
    def kinds(self) -> list[str]:
        return [kind_of(each) for each in self.requests]

    def sent(self, kind: str) -> list[Request]:
        return [each for each in self.requests if kind_of(each) == kind]

    def storage(self, **options: str) -> S3Storage:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return S3Storage({**self.behind.options, "endpoint_url": self.endpoint, **named})

    def uploads(self, path: str) -> list[str]:
        """The ids of the uploads of an object that the service keeps."""
        key = path.removeprefix(f"s3://{self.behind.bucket}/")
        found = self.behind.client().list_multipart_uploads(Bucket=self.behind.bucket)
        return [each["UploadId"] for each in found.get("Uploads", ()) if each["Key"] == key]


class _Handler(PassingOn):
    front: ClassVar[Front]

    def response(self, request: Request) -> Response | None:
        front = self.front
        front.requests.append(request)
        fates = front.fates.get(kind_of(request), [])
        fate = fates.pop(0) if fates else None
        if isinstance(fate, Response):
            return fate
        answer = request.forward(front.behind.endpoint)
        return None if fate == "lost" else answer


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(backoff, "_FIRST_THROTTLED_WAIT_S", 0.001)


@pytest.fixture
def front(versitygw: Versitygw, no_waits: None) -> Iterator[Front]:
    found = Front(versitygw)
    with serving(_Handler, front=found) as found.endpoint:
        yield found


@pytest.fixture
def path(versitygw: Versitygw) -> str:
    return f"s3://{versitygw.bucket}/{uuid.uuid4()}/object"


def write(storage: Storage, path: str) -> None:
    with storage.create(path) as writer:
        writer.write(DATA)
        writer.commit()


def amz(request: Request) -> dict[str, str]:
    """The headers that say what a request means, without those of signatures, checksums and the mark."""
    untold = "date|content-sha256|meta-|checksum|sdk|decoded|trailer"
    named = {name.lower(): value for name, value in request.headers.items()}
    return {name: value for name, value in named.items() if re.match(f"x-amz-(?!{untold})", name)}


def test_an_object_of_several_parts_is_completed_on_the_condition_that_there_is_none(
    front: Front, path: str
) -> None:
    uploads = list[str]()
    with front.storage().create(path, uploads.append) as writer:
        writer.write(DATA[: 8 * MIB])
        assert front.kinds == []
        writer.write(DATA[8 * MIB :])
        assert front.kinds == [CREATE, PART, PART]
        assert uploads == front.uploads(path)
        writer.commit()
    assert front.kinds == [CREATE, PART, PART, PART, COMPLETE]
    [complete] = front.sent(COMPLETE)
    assert complete.headers["If-None-Match"] == "*"
    assert re.findall(rb"<PartNumber>(\d+)</PartNumber>", complete.body) == [b"1", b"2", b"3"]
    assert len(re.findall(rb"<ETag>[^<]+</ETag>", complete.body)) == 3
    queries = [parse_qs(urlsplit(each.path).query) for each in front.sent(PART)]
    assert [each["partNumber"] for each in queries] == [["1"], ["2"], ["3"]]
    assert {each["uploadId"][0] for each in queries} == {*uploads}
    assert front.uploads(path) == []
    assert front.behind.storage.read(path) == DATA


@pytest.mark.parametrize("size_bytes", [0, 1, 8 * MIB])
def test_an_object_of_a_single_part_is_put_without_an_upload(
    front: Front, path: str, size_bytes: int
) -> None:
    uploads = list[str]()
    with front.storage().create(path, uploads.append) as writer:
        writer.write(DATA[:size_bytes])
        writer.commit()
    assert (front.kinds, uploads) == ([PUT], [])
    assert front.requests[0].headers["If-None-Match"] == "*"
    assert front.behind.storage.read(path) == DATA[:size_bytes]


def test_an_upload_has_the_encryption_the_tags_and_the_class_of_the_options(moto_server: MotoServer) -> None:
    front, path = Front(moto_server), f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    shared = {"x-amz-request-payer": "requester"}
    written = {
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-tagging": "owner=a+b",
        "x-amz-acl": "bucket-owner-full-control",
        "x-amz-storage-class": "STANDARD_IA",
    }
    with serving(_Handler, front=front) as front.endpoint:
        storage = front.storage(
            s3__sse__type="kms",
            s3__write__tags__owner="a b",
            s3__acl="bucket-owner-full-control",
            **{"s3__requester-pays": "true", "s3__write__storage-class": "standard_ia"},
        )
        write(storage, path)
        writer = storage.create(path)
        writer.write(DATA)
        writer.abort()
    assert [amz(each) for each in front.requests[:5]] == [{**shared, **written}, *[shared] * 4]
    assert (front.kinds[-1], amz(front.requests[-1])) == (ABORT, shared)
    assert front.behind.storage.read(path) == DATA


@pytest.mark.parametrize("kind", [CREATE, PART, COMPLETE])
@pytest.mark.parametrize("fate", ["lost", an_error(503, "SlowDown"), an_error(500, "InternalError")])
def test_a_request_without_an_answer_is_sent_again(front: Front, path: str, kind: str, fate: Any) -> None:
    front.fates[kind] = [fate, fate]
    write(front.storage(), path)
    assert front.behind.storage.read(path) == DATA
    assert front.kinds.count(kind) in ({3} if kind != PART else {5})


def test_an_error_within_an_answer_that_began_as_a_success_is_none(front: Front, path: str) -> None:
    late = an_error(200, "InternalError")
    front.fates[COMPLETE] = [late, late]
    write(front.storage(), path)
    assert front.kinds[-3:] == [COMPLETE] * 3
    assert front.behind.storage.read(path) == DATA


@pytest.mark.parametrize(
    "answer",
    [an_error(412, "PreconditionFailed"), an_error(200, "PreconditionFailed"), an_error(404, "NoSuchUpload")],
    ids=["412", "200", "404"],
)
@pytest.mark.parametrize("whose", ["ours", "another's"])
def test_an_upload_that_is_refused_after_a_lost_answer_is_read_back(
    front: Front, path: str, answer: Response, whose: str
) -> None:
    front.fates[COMPLETE] = ["lost", *[answer] * 5]
    with front.storage().create(path) as writer:
        writer.write(DATA)
        if whose == "another's":
            front.fates[COMPLETE] = [answer] * 5
            front.behind.storage.put_if_absent(path, b"another's")
            with pytest.raises(FileExistsError):
                writer.commit()
        else:
            writer.commit()
    assert front.behind.storage.read(path) == (DATA if whose == "ours" else b"another's")
    assert front.uploads(path) == []
    assert (front.kinds[-1] == ABORT) is (whose == "another's")


def test_an_upload_that_is_gone_where_no_object_is_made_nothing(front: Front, path: str) -> None:
    uploads = list[str]()
    with front.storage().create(path, uploads.append) as writer:
        writer.write(DATA)
        front.behind.storage.abort_upload(path, uploads[0])
        with pytest.raises(BackendUnavailable, match="NoSuchUpload"):
            writer.commit()
    assert front.behind.storage.stat_many([path]) == [None]


def test_a_409_is_read_back_and_the_completion_goes_again(front: Front, path: str) -> None:
    front.fates[COMPLETE] = [an_error(409, "ConditionalRequestConflict")]
    write(front.storage(), path)
    assert front.kinds[-3:] == [COMPLETE, HEAD, COMPLETE]
    assert front.behind.storage.read(path) == DATA


def test_a_409_by_which_the_upload_went_is_no_conflict_with_an_object(front: Front, path: str) -> None:
    front.fates[COMPLETE] = [an_error(409, "ConditionalRequestConflict"), an_error(404, "NoSuchUpload")]
    with pytest.raises(BackendUnavailable, match="NoSuchUpload"):
        write(front.storage(), path)
    assert front.kinds[-5:] == [COMPLETE, HEAD, COMPLETE, HEAD, ABORT]
    assert front.behind.storage.stat_many([path]) == [None]


def test_a_service_without_conditional_completions_is_refused(front: Front, path: str) -> None:
    front.fates[COMPLETE] = [an_error(501, "NotImplemented")]
    with pytest.raises(Refused, match="no conditional creates: NotImplemented"):
        write(front.storage(), path)
    assert front.uploads(path) == []


@pytest.mark.parametrize("kind", [CREATE, PART, COMPLETE])
def test_an_answer_that_is_none_of_the_service_is_no_success(front: Front, path: str, kind: str) -> None:
    front.fates[kind] = [Response(200, [], b"")] * 5
    words = "answer of the service has no|answer is none to the completion"
    with pytest.raises(BackendUnavailable, match=words):
        write(front.storage(), path)
    assert front.behind.storage.stat_many([path]) == [None]
    assert front.uploads(path) == []


def test_after_a_part_that_failed_nothing_is_committed(front: Front, path: str) -> None:
    writer: Writer = front.storage().create(path)
    front.fates[PART] = [None, an_error(403, "AccessDenied")]
    with pytest.raises(AccessDenied):
        writer.write(DATA)
    for again in (lambda: writer.write(b"x"), writer.commit):
        with pytest.raises(AccessDenied):
            again()
    assert COMPLETE not in front.kinds
    writer.abort()
    assert front.uploads(path) == []


def test_an_abort_that_fails_is_told_unless_something_else_is_and_can_be_tried_again(
    front: Front, path: str
) -> None:
    storage, denied = front.storage(), an_error(403, "AccessDenied")
    writer = storage.create(path)
    writer.write(DATA)
    front.fates[ABORT] = [denied] * 3
    with pytest.raises(AccessDenied, match="Cannot remove what was uploaded of"):
        writer.abort()
    with pytest.raises(AccessDenied), writer:
        pass
    assert not writer.closed
    with pytest.raises(LookupError), writer:
        raise LookupError
    assert len(front.uploads(path)) == 1
    writer.abort()
    assert front.uploads(path) == []
    writer.abort()
    assert front.kinds.count(ABORT) == 4


def test_credentials_that_end_within_an_upload_are_renewed(front: Front, path: str) -> None:
    by = [{**front.behind.options, "endpoint_url": front.endpoint, "key": key} for key in ("AK", "AK")]
    renewed = list[str]()

    def renewal() -> dict[str, str]:
        renewed.append("renewed")
        return by[1]

    front.fates = {PART: [None, an_error(400, "ExpiredToken")], COMPLETE: [an_error(403, "AccessDenied")]}
    storage = S3Storage(by[0], renewal=renewal)
    with storage.create(path) as writer:
        writer.write(DATA)
        with pytest.raises(AccessDenied):  # they are renewed once in a while
            writer.commit()
    assert renewed == ["renewed"]
    front.fates = {PART: [None, an_error(400, "ExpiredToken")]}
    write(S3Storage(by[0], renewal=renewal), path)
    assert front.behind.storage.read(path) == DATA


def test_requests_of_uploads_are_signed_elsewhere(moto_server: MotoServer) -> None:
    told: list[RequestToSign] = []

    def signer(request: RequestToSign) -> SignedRequest:
        told.append(request)
        scope = "Credential=AK/20260101/us-east-1/s3/aws4_request"
        signature = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=s"
        return SignedRequest(request.url, {"Authorization": signature})

    options = {
        "s3.remote-signing-enabled": "true",
        "s3.region": "us-east-1",
        "s3.endpoint": moto_server.endpoint,
    }
    path = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    storage = S3Storage(options, signer=signer)
    write(storage, path)
    assert moto_server.storage.read(path) == DATA
    with storage.create(path) as writer:
        writer.write(DATA)
    assert [each.method for each in told] == ["POST", *["PUT"] * 3, "POST", "POST", *["PUT"] * 2, "DELETE"]
    complete = told[4]
    assert complete.headers["If-None-Match"] == "*"
    assert all(each.body is None for each in told)
    assert not any("trailer" in name.lower() for each in told for name in each.headers)


@pytest.mark.parametrize("kind", [CREATE, PART, COMPLETE, ABORT])
def test_a_service_that_falls_silent_is_not_waited_for(
    versitygw: Versitygw, path: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_ANSWER_S", 0.3)
    monkeypatch.setattr(s3, "_COMPLETION_S", 0.3)
    monkeypatch.setattr(s3, "_SLOWEST", 80_000_000)
    monkeypatch.setattr(backoff, "_TRIES", 1)
    front = Front(versitygw)
    silent = threading.Event()

    class Silent(_Handler):
        def response(self, request: Request) -> Response | None:
            if kind_of(request) == kind:
                silent.wait(5)
                return None
            return super().response(request)

    with serving(Silent, front=front) as front.endpoint:
        writer = front.storage().create(path)

        def use() -> None:
            writer.write(DATA)
            (writer.abort if kind == ABORT else writer.commit)()

        with pytest.raises(BackendUnavailable, match="Read timeout on endpoint URL"):
            use()
        silent.set()
    assert versitygw.storage.stat_many([path]) == [None]

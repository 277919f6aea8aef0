"""What requests to S3 carry, and when they are sent again, by a server that records them; versions on a real one."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest
from botocore.exceptions import ClientError

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, UsageError
from iceberg_cli.storage.backoff import backoff_s
from iceberg_cli.storage.s3.objects import S3Storage
from iceberg_cli.storage.s3.retries import next_wait_s
from iceberg_cli.storage.s3.session import new_session
from tests.servers import MotoServer, Versitygw

KEY = bytes(range(32))
KEY_TEXT = base64.b64encode(KEY).decode()
KEY_MD5 = base64.b64encode(hashlib.md5(KEY).digest()).decode()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float

    def amz(self) -> dict[str, str]:
        """The headers that say what the request means, without those of the signature and of checksums."""
        return {
            name: value
            for name, value in self.headers.items()
            if name.startswith("x-amz-") and name not in UNTOLD and not name.startswith("x-amz-checksum")
        }


LEFT_TO_BOTOCORE = "s3://bucket/a key"  # obstore is not asked for a key with a space

UNTOLD = {"x-amz-date", "x-amz-content-sha256", "x-amz-meta-iceberg-cli-put", "x-amz-sdk-checksum-algorithm",
          "x-amz-decoded-content-length", "x-amz-trailer"}  # fmt: skip

Answer = tuple[int, Mapping[str, str], bytes]
OK: Answer = (200, {"ETag": '"e"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, b"")
EMPTY_PAGE: Answer = (200, {}, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")


def an_error(status: int, code: str, **headers: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>why</Message></Error>"
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body.encode()


def a_delete_result(*errors: tuple[str, str]) -> Answer:
    told = "".join(f"<Error><Key>{escape(key)}</Key><Code>{code}</Code></Error>" for key, code in errors)
    return 200, {}, f"<DeleteResult>{told}</DeleteResult>".encode()


@dataclass
class Recorder:
    """A server that keeps every request, and answers with the next of `answers`, then as if all was well."""

    requests: list[Request] = field(default_factory=list)
    answers: list[Answer | Callable[[Request], Answer]] = field(default_factory=list)
    endpoint: str = ""

    def storage(self, **options: str) -> S3Storage:
        known = {"endpoint_url": self.endpoint, "key": "AK", "secret": "a-secret-key", "region": "us-east-1"}
        return S3Storage({**known, **{name.replace("__", "."): value for name, value in options.items()}})

    def keys(self, number: int) -> list[str]:
        """The keys in the body of a request to delete a batch."""
        return re.findall("<Key>(.*?)</Key>", self.requests[number].body.decode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: ClassVar[Recorder]

    def answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length") or 0))
        request = Request(self.command, self.path, headers, body, time.monotonic())
        self.recorder.requests.append(request)
        what = self.recorder.answers.pop(0) if self.recorder.answers else usual(request)
        status, headers, content = what(request) if callable(what) else what
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_CONNECT = answer  # noqa: N815  (the base's names)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name in the base class)
        pass


def usual(request: Request) -> Answer:
    query = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    if "list-type" in query:
        return EMPTY_PAGE
    return a_delete_result() if "delete" in query else OK


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"recorder": found}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def every_request(storage: S3Storage) -> None:
    storage.put_if_absent("s3://bucket/key", b"x")
    storage.replace("s3://bucket/key", b"x")
    storage.read(LEFT_TO_BOTOCORE, (0, 1))
    storage.stat("s3://bucket/key")
    storage.delete(["s3://bucket/key"])
    storage.delete(["s3://bucket/\x01"])
    list(storage.list("s3://bucket/folder"))


PUT, GET, HEAD, POST, DELETE = "PUT", "GET", "HEAD", "POST", "DELETE"
SSE = "x-amz-server-side-encryption"
CUSTOMERS_KEY = {
    f"{SSE}-customer-algorithm": "AES256",
    f"{SSE}-customer-key": KEY_TEXT,
    f"{SSE}-customer-key-md5": KEY_MD5,
}


@pytest.mark.parametrize(
    ("options", "puts", "gets"),
    [
        ({}, {}, {}),
        ({"s3__sse__type": "none"}, {}, {}),
        ({"s3__sse__type": "s3"}, {SSE: "AES256"}, {}),
        ({"s3__sse__type": "kms"}, {SSE: "aws:kms"}, {}),
        (
            {"s3__sse__type": "KMS", "s3__sse__key": "alias/lake"},
            {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": "alias/lake"},
            {},
        ),
        (
            {"s3__sse__type": "dsse-kms", "s3__sse__key": "alias/lake"},
            {SSE: "aws:kms:dsse", f"{SSE}-aws-kms-key-id": "alias/lake"},
            {},
        ),
        (
            {"s3__server-side-encryption": "aws:kms", "s3__sse-kms-key-id": "alias/lake"},
            {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": "alias/lake"},
            {},
        ),
        (
            {"s3__sse__type": "custom", "s3__sse__key": KEY_TEXT, "s3__sse__md5": KEY_MD5},
            CUSTOMERS_KEY,
            CUSTOMERS_KEY,
        ),
    ],
)  # fmt: skip
def test_encryption_is_asked_for_by_what_writes_and_a_customers_key_is_sent_with_what_reads_too(
    recorder: Recorder, options: dict[str, str], puts: dict[str, str], gets: dict[str, str]
) -> None:
    every_request(recorder.storage(**options))
    told = [(request.method, request.amz()) for request in recorder.requests]
    assert told == [
        (PUT, puts), (PUT, puts), (GET, gets), (HEAD, gets), (POST, {}), (DELETE, {}), (GET, {})
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["s3__requester-pays", "requester_pays"])
def test_every_request_says_that_the_requester_pays_and_whose_bucket_it_is_meant_for(
    recorder: Recorder, name: str
) -> None:
    every_request(recorder.storage(**{name: "true", "s3__expected-bucket-owner": "111122223333"}))
    told = [request.amz() for request in recorder.requests]
    assert told == [{"x-amz-request-payer": "requester", "x-amz-expected-bucket-owner": "111122223333"}] * 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"s3__sse__type": "aes"}, "s3.sse.type=aes"),
        ({"s3__sse__type": "custom"}, "32 bytes in Base64"),
        ({"s3__sse__type": "custom", "s3__sse__key": "AAAA"}, "32 bytes in Base64"),
        ({"s3__sse__type": "custom", "s3__sse__key": "no Base64!"}, "32 bytes in Base64"),
        ({"s3__sse__type": "custom", "s3__sse__key": KEY_TEXT, "s3__sse__md5": "AAAA"}, "s3.sse.md5"),
        ({"s3__requester-pays": "requester"}, "s3.requester-pays=requester"),
        ({"s3__path-style-access": "true", "s3__force-virtual-addressing": "true"}, "together"),
    ],
)
def test_an_option_with_a_value_that_it_cannot_have_is_refused_and_no_key_is_said(
    recorder: Recorder, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        recorder.storage(**options)
    assert options.get("s3__sse__key", KEY_TEXT) not in caught.value.message


def test_a_customers_key_in_an_answer_is_not_said(recorder: Recorder) -> None:
    recorder.answers.append(
        (400, {}, f"<Error><Code>Bad</Code><Message>{KEY_TEXT}</Message></Error>".encode())
    )
    with pytest.raises(BackendUnavailable, match=r"Bad: \*\*\*"):
        recorder.storage(s3__sse__type="custom", s3__sse__key=KEY_TEXT).read(LEFT_TO_BOTOCORE)


@pytest.mark.parametrize(
    ("size_bytes", "expects"), [(1, None), (1 << 20, None), ((1 << 20) + 1, "100-continue")]
)
def test_only_a_large_object_waits_for_leave_before_it_is_sent(
    recorder: Recorder, size_bytes: int, expects: str | None
) -> None:
    storage = recorder.storage()
    storage.put_if_absent("s3://bucket/key", bytes(size_bytes))
    storage.replace("s3://bucket/key", bytes(size_bytes))
    assert [request.headers.get("expect") for request in recorder.requests] == [expects] * 2


@pytest.mark.parametrize(
    "written",
    [
        "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678+00:00", "2026-01-02T04:04:05.678+01:00",
        "2026-01-02 03:04:05.678 GMT", "Fri, 02 Jan 2026 03:04:05.678 GMT", "1767323045.678",
    ],
)  # fmt: skip
def test_times_in_listings_are_read_in_every_form_that_botocore_reads(
    recorder: Recorder, written: str
) -> None:
    entry = f"<Contents><Key>t/a</Key><LastModified>{written}</LastModified><Size>3</Size></Contents>"
    page = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>"
    recorder.answers.append((200, {}, page.encode()))
    [info] = recorder.storage().list("s3://bucket/t")
    assert (info.path, info.size_bytes, info.modified_ms) == ("s3://bucket/t/a", 3, 1_767_323_045_678)


# Where requests go


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, "/bucket/key"),
        ({"s3__path-style-access": "true"}, "/bucket/key"),
        ({"s3__force-virtual-addressing": "true"}, "/key"),
    ],
    ids=["default", "path style", "virtual hosts"],
)
def test_a_bucket_is_named_in_the_path_or_in_the_host(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], path: str
) -> None:
    # The recorder is the proxy on the way to a service whose name is not looked up.
    monkeypatch.setenv("http_proxy", recorder.endpoint)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    recorder.storage(**{"endpoint_url": "http://s3.example.test", **options}).replace("s3://bucket/key", b"x")
    host = "bucket.s3.example.test" if path == "/key" else "s3.example.test"
    assert [request.path for request in recorder.requests] == [f"http://{host}{path}"]


ARN = "arn:aws:s3:us-west-2:111122223333:accesspoint:lake"


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (f"s3://{ARN}/key", {}),
        ("s3://bucket/key", {"s3__access-points__bucket": ARN}),
        ("s3://bucket/key", {"s3__access-points__bucket": ARN.replace(":lake", "/lake")}),
    ],
    ids=["in the path", "instead of a bucket", "instead of a bucket, with a slash"],
)
def test_requests_for_an_access_point_go_to_its_host(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, path: str, options: dict[str, str]
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, recorder.endpoint)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    recorder.answers.append((403, {}, b""))
    storage = S3Storage(
        {"key": "AK", "secret": "a-secret-key", "region": "us-east-1"}
        | {name.replace("__", "."): value for name, value in options.items()}
    )
    assert storage.canonical(path) == path
    with pytest.raises(BackendUnavailable):
        storage.put_if_absent(path, b"x")
    hosts = {request.path for request in recorder.requests}
    assert hosts == {"lake-111122223333.s3-accesspoint.us-west-2.amazonaws.com:443"}


def test_the_arn_of_an_access_point_with_a_slash_is_no_bucket(recorder: Recorder) -> None:
    with pytest.raises(UsageError, match="has no slash"):
        recorder.storage().canonical(f"s3://{ARN.replace(':lake', '/lake')}/key")


# Listings


def test_keys_come_from_a_listing_as_they_are_though_xml_cannot_carry_them(recorder: Recorder) -> None:
    keys = ["t/\x01", "t/\r", "t/a b+c%2F&", "t/\u00e9//\U0001f9ca"]
    encoded = ["t/%01", "t/%0D", "t/a+b%2Bc%252F%26", "t/%C3%A9//%F0%9F%A7%8A"]
    rows = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        for key in encoded
    )
    head = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
    page = f"<ListBucketResult>{head}{rows}</ListBucketResult>"
    recorder.answers.append((200, {}, page.encode()))
    assert list(recorder.storage().paths("s3://bucket/t")) == [f"s3://bucket/{key}" for key in keys]
    assert "encoding-type=url" in recorder.requests[0].path


# Batches of deletions


def test_keys_that_a_service_had_no_time_for_go_again_and_alone(recorder: Recorder) -> None:
    paths = [f"s3://bucket/{key}" for key in "abcd"]
    recorder.answers += [a_delete_result(("b", "SlowDown"), ("c", "AccessDenied"), ("d", "InternalError"))]
    assert recorder.storage().delete(paths) == {"s3://bucket/c": "AccessDenied"}
    assert [recorder.keys(0), recorder.keys(1)] == [["a", "b", "c", "d"], ["b", "d"]]


@pytest.mark.parametrize(("status", "code"), [(400, "MalformedXML"), (501, "NotImplemented")])
def test_where_a_batch_is_refused_as_such_each_object_is_deleted_by_itself(
    recorder: Recorder, status: int, code: str
) -> None:
    def each(request: Request) -> Answer:
        return an_error(403, "AccessDenied") if request.path == "/bucket/b" else OK

    recorder.answers += [an_error(status, code), each, each, each]
    kept = recorder.storage().delete([f"s3://bucket/{key}" for key in "abc"])
    assert kept == {"s3://bucket/b": "AccessDenied: why"}
    asked = [(request.method, urlsplit(request.path).path) for request in recorder.requests]
    assert [asked[0], *sorted(asked[1:])] == [
        (POST, "/bucket"), (DELETE, "/bucket/a"), (DELETE, "/bucket/b"), (DELETE, "/bucket/c")
    ]  # fmt: skip


def test_credentials_that_have_ended_are_not_tried_on_each_object_of_a_batch(recorder: Recorder) -> None:
    paths = ["s3://bucket/a", "s3://bucket/b"]
    recorder.answers.append(an_error(400, "ExpiredToken"))
    # What follows the word token might be one.
    assert recorder.storage().delete(paths) == dict.fromkeys(paths, "ExpiredToken: ***")
    assert [request.method for request in recorder.requests] == [POST]


def test_a_failure_of_a_key_that_was_not_sent_leaves_none_of_its_batch_for_deleted(
    recorder: Recorder,
) -> None:
    recorder.answers.append(a_delete_result(("another", "AccessDenied")))
    kept = recorder.storage().delete(["s3://bucket/a", "s3://bucket/b"])
    assert kept == dict.fromkeys(["s3://bucket/a", "s3://bucket/b"], "AccessDenied")


def test_a_refused_batch_is_reported_and_the_next_one_is_sent(recorder: Recorder) -> None:
    paths = [f"s3://bucket/{number:04}" for number in range(1500)]

    def refused_if_full(request: Request) -> Answer:
        full = request.body.count(b"<Key>") == 1000
        return an_error(403, "AccessDenied") if full else a_delete_result()

    recorder.answers += [refused_if_full] * 2
    assert recorder.storage().delete(paths) == dict.fromkeys(paths[:1000], "AccessDenied: why")
    assert sorted(len(recorder.keys(number)) for number in (0, 1)) == [500, 1000]


# Sending again


@pytest.mark.few(1)
@pytest.mark.parametrize("status", [429, 503])
def test_a_service_with_too_many_requests_is_given_the_time_that_it_asks_for(
    recorder: Recorder, status: int
) -> None:
    recorder.answers += [an_error(status, "SlowDown", Retry_After="1"), (200, {}, b"bytes")]
    assert recorder.storage().read(LEFT_TO_BOTOCORE) == b"bytes"
    first, second = recorder.requests
    assert second.at_s - first.at_s >= 1


def test_who_asks_for_hours_is_not_waited_for(recorder: Recorder) -> None:
    recorder.answers += [an_error(503, "SlowDown", Retry_After="7200")] * 2
    with pytest.raises(BackendUnavailable, match="SlowDown: why"):
        recorder.storage().read(LEFT_TO_BOTOCORE)
    assert len(recorder.requests) == 1


def test_what_a_service_cannot_do_is_not_sent_again(recorder: Recorder) -> None:
    recorder.answers += [an_error(501, "NotImplemented")]
    with pytest.raises(Refused, match="NotImplemented"):
        recorder.storage().put_if_absent("s3://bucket/key", b"x")
    assert len(recorder.requests) == 1


@pytest.mark.usefixtures("waits_of_users")
def test_waits_double_up_to_a_bound_and_differ_by_chance() -> None:
    throttled = [backoff_s(tries, throttled=True, share=0) for tries in range(1, 10)]
    assert throttled == [0.5, 1, 2, 4, 8, 16, 20, 20, None]
    assert [backoff_s(tries, throttled=False, share=0) for tries in range(1, 6)] == [0.1, 0.2, 0.4, 0.8, None]
    assert backoff_s(1, throttled=True, share=1) == 0.25
    assert backoff_s(3, throttled=True, share=0.5) == 1.5


@pytest.mark.usefixtures("waits_of_users")
@pytest.mark.parametrize(
    ("status", "retry_after", "expected"),
    [
        (503, None, 0.5),
        (429, None, 0.5),
        (503, "3", 3.5),
        (500, "3", 3.1),
        (503, "61", None),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 0.5),
        (500, None, 0.1),
        (409, None, 0.1),
        (403, None, None),
        (404, None, None),
        (412, None, None),
    ],
)
def test_an_error_says_how_long_to_wait(status: int, retry_after: str | None, expected: float | None) -> None:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    answer = {
        "Error": {"Code": "Any"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    assert next_wait_s(ClientError(answer, "PutObject"), 1, share=0) == expected


def test_a_put_that_met_another_one_under_way_is_ours_if_that_was_its_own(recorder: Recorder) -> None:
    def with_our_mark(request: Request) -> Answer:
        mark = recorder.requests[0].headers["x-amz-meta-iceberg-cli-put"]
        return 200, {**OK[1], "x-amz-meta-iceberg-cli-put": mark}, b""

    recorder.answers += [an_error(409, "ConditionalRequestConflict"), with_our_mark]
    recorder.storage().put_if_absent("s3://bucket/key", b"x")
    assert [request.method for request in recorder.requests] == [PUT, HEAD]


def test_a_put_that_met_anothers_under_way_is_uploaded_again(recorder: Recorder) -> None:
    recorder.answers += [an_error(409, "ConditionalRequestConflict"), an_error(404, "NoSuchKey")]
    recorder.storage().put_if_absent("s3://bucket/key", b"x")
    assert [request.method for request in recorder.requests] == [PUT, HEAD, PUT]
    assert [request.body for request in recorder.requests if request.method == PUT] == [b"x", b"x"]


# A real service


def test_a_deletion_in_a_bucket_with_versions_marks_the_object_and_removes_no_version(
    versitygw: Versitygw,
) -> None:
    bucket, prefix, client = versitygw.versioned_bucket, f"{uuid.uuid4()}/", versitygw.client()
    root = f"s3://{bucket}/{prefix}"
    keys = ["batch", "other batch"]
    for key in keys:
        versitygw.storage.replace(f"{root}{key}", b"first")
        versitygw.storage.replace(f"{root}{key}", b"second")
    assert versitygw.storage.delete([f"{root}{key}" for key in keys]) == {}
    assert list(versitygw.storage.paths(root)) == []
    listed = client.list_object_versions(Bucket=bucket, Prefix=prefix)
    kept = {(entry["Key"], entry["VersionId"]) for entry in listed["Versions"]}
    bodies = [
        client.get_object(Bucket=bucket, Key=key, VersionId=of)["Body"].read() for key, of in sorted(kept)
    ]
    assert sorted(bodies) == [b"first", b"first", b"second", b"second"]
    assert sorted(entry["Key"] for entry in listed["DeleteMarkers"]) == [f"{prefix}{key}" for key in keys]


def test_a_key_may_have_1024_bytes(versitygw: Versitygw) -> None:
    name = "/".join(["\u00e9" * 100] * 4)
    path = f"s3://{versitygw.bucket}/{uuid.uuid4()}/"
    path += (name + "/" + "k" * 255)[: 1024 - len(path) - len(name.encode()) + len(name)]
    key = path.removeprefix(f"s3://{versitygw.bucket}/")
    path += "k" * (1024 - len(key.encode()))
    assert len(path.removeprefix(f"s3://{versitygw.bucket}/").encode()) == 1024
    versitygw.storage.put_if_absent(path, b"x")
    assert list(versitygw.storage.paths(path.rpartition("/")[0])) == [path]
    assert versitygw.storage.read(path) == b"x"
    assert versitygw.storage.delete([path]) == {}
    assert list(versitygw.storage.paths(path.rpartition("/")[0])) == []


def test_an_object_under_a_customers_key_is_read_with_the_key(moto_server: MotoServer) -> None:
    path = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    storage = S3Storage({**moto_server.options, "s3.sse.type": "custom", "s3.sse.key": KEY_TEXT})
    storage.put_if_absent(path, b"x")
    with pytest.raises(FileExistsError):
        storage.put_if_absent(path, b"y")
    assert storage.read(path) == b"x"
    assert storage.stat(path).size_bytes == 1


# Credentials that end


def access_keys(recorder: Recorder) -> list[str]:
    """By which each request is signed."""
    return [
        re.findall("Credential=(.*?)/", request.headers["authorization"])[0] for request in recorder.requests
    ]


def renewable(recorder: Recorder, renewals: list[str], *, left_s: float | None = None) -> S3Storage:
    """A storage with credentials that end; each renewal gives the next of the keys that are named."""

    def options(key: str, left_s: float | None = None) -> dict[str, str]:
        now_s = time.time()  # noqa: TID251  (a test is a shell)
        ends = {} if left_s is None else {"s3.session-token-expires-at-ms": str(int((now_s + left_s) * 1000))}
        known = {
            "s3.endpoint": recorder.endpoint,
            "s3.access-key-id": key,
            "s3.secret-access-key": "s",
            **ends,
        }
        return {**known, "s3.session-token": f"token-of-{key}", "s3.region": "us-east-1"}

    return S3Storage(options("FIRST", left_s), renewal=lambda: options(renewals.pop(0)))


@pytest.mark.parametrize(
    "answer", [an_error(400, "ExpiredToken"), an_error(403, "AccessDenied"), an_error(401, "x")]
)
def test_credentials_that_the_service_refuses_are_renewed_once(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    storage = renewable(recorder, ["SECOND"])
    recorder.answers += [OK, answer]
    for _ in range(3):
        storage.read(LEFT_TO_BOTOCORE)
    assert access_keys(recorder) == ["FIRST", "FIRST", "SECOND", "SECOND"]


def test_what_is_refused_for_good_is_asked_once_more_and_young_credentials_are_not_renewed(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = ["SECOND", "THIRD"]
    storage = renewable(recorder, renewals)
    recorder.answers += [an_error(403, "AccessDenied")] * 5
    for _ in range(2):
        with pytest.raises(AccessDenied):
            storage.read(LEFT_TO_BOTOCORE)
    assert access_keys(recorder) == ["FIRST", "SECOND", "SECOND"]
    monkeypatch.setattr("iceberg_cli.storage.renewals._YOUNG_S", 0)
    with pytest.raises(AccessDenied):
        storage.read(LEFT_TO_BOTOCORE)
    assert access_keys(recorder)[3:] == ["SECOND", "THIRD"]


@pytest.mark.parametrize(("left_s", "keys"), [(1000, ["FIRST"]), (0, ["FIRST"]), (None, ["FIRST"])])
def test_credentials_are_renewed_before_their_end(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, left_s: float | None, keys: list[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr("iceberg_cli.storage.renewals.time.monotonic", lambda: clock[0])
    storage = renewable(recorder, ["SECOND"], left_s=left_s)
    storage.read(LEFT_TO_BOTOCORE)
    # Five minutes before the end; credentials of which that is already past are used for a second.
    for seconds in {1000: (699, 2), 0: (0.5, 1), None: (10_000, 10_000)}[left_s]:
        clock[0] += seconds
        storage.read(LEFT_TO_BOTOCORE)
    assert access_keys(recorder) == [*keys, "FIRST", "FIRST" if left_s is None else "SECOND"]


@pytest.mark.parametrize("key", ["key", "a key that XML does not carry\x01"])
def test_deletions_fail_with_a_reason_where_no_new_credentials_can_be_had(
    recorder: Recorder, key: str
) -> None:
    def renewal() -> dict[str, str]:
        raise AccessDenied("Cannot ask for credentials of prod.db.t: the catalog answered 403: gone")

    known = {"s3.endpoint": recorder.endpoint, "s3.region": "us-east-1"}
    storage = S3Storage({**known, "s3.access-key-id": "FIRST", "s3.secret-access-key": "s"}, renewal=renewal)
    recorder.answers += [an_error(403, "InvalidAccessKeyId")]
    path = f"s3://bucket/{key}"
    assert "the catalog answered 403: gone" in storage.delete([path])[path]


def test_credentials_that_are_not_the_catalogs_stay(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"s3.endpoint": recorder.endpoint, "s3.region": "us-east-1"}
    own = {**known, "s3.access-key-id": "OWN", "s3.secret-access-key": "s"}
    storage = S3Storage(own, renewal=lambda: known)
    recorder.answers += [an_error(403, "AccessDenied"), OK]
    with pytest.raises(AccessDenied):
        storage.read(LEFT_TO_BOTOCORE)
    storage.read(LEFT_TO_BOTOCORE)
    assert access_keys(recorder) == ["OWN", "OWN"]


# Tags, access control lists and storage classes; tags in place of deletions

OFF = {"s3__delete-enabled": "false"}
A_TAG = {"s3__delete__tags__Lifecycle": "Purge"}
PUT_TAGS = b"<Tagging><TagSet>%s</TagSet></Tagging>"


def a_tag(name: str, value: str) -> bytes:
    return f"<Tag><Key>{name}</Key><Value>{value}</Value></Tag>".encode()


def tagging(present: bytes, put: Answer = OK) -> Callable[[Request], Answer]:
    """Answers of a service whose objects have these tags."""

    def answer(request: Request) -> Answer:
        if "tagging" not in request.path:
            return usual(request)
        return put if request.method == PUT else (200, {}, PUT_TAGS % present)

    return answer


def methods(recorder: Recorder) -> list[str]:
    return [request.method for request in recorder.requests]


def test_what_is_written_gets_the_tags_the_list_and_the_class_of_the_options(recorder: Recorder) -> None:
    every_request(
        recorder.storage(
            s3__write__tags__owner="a b",
            s3__write__tags__Kind="x&y",
            s3__acl="bucket-owner-full-control",
            **{"s3__write__storage-class": "intelligent_tiering"},
        )
    )
    told = [request.amz() for request in recorder.requests]
    written = {
        "x-amz-tagging": "owner=a+b&Kind=x%26y",
        "x-amz-acl": "bucket-owner-full-control",
        "x-amz-storage-class": "INTELLIGENT_TIERING",
    }
    assert told[:2] == [written] * 2
    assert all(not each for each in told[2:])


def test_without_deletions_an_object_gets_the_tags_beside_its_own(recorder: Recorder) -> None:
    recorder.answers = [tagging(a_tag("owner", "a"))] * 9
    assert recorder.storage(**OFF, **A_TAG).delete(["s3://bucket/a"]) == {}
    assert methods(recorder) == [GET, PUT]
    assert a_tag("owner", "a") + a_tag("Lifecycle", "Purge") in recorder.requests[1].body


def test_an_object_that_has_the_tags_is_not_tagged_again(recorder: Recorder) -> None:
    recorder.answers = [tagging(a_tag("Lifecycle", "Purge") + a_tag("owner", "a"))] * 9
    assert recorder.storage(**OFF, **A_TAG).delete(["s3://bucket/a", "s3://bucket/b"]) == {}
    assert methods(recorder) == [GET, GET]


def test_a_tag_of_another_value_takes_that_of_deletion(recorder: Recorder) -> None:
    recorder.answers = [tagging(a_tag("Lifecycle", "Keep"))] * 9
    recorder.storage(**OFF, **A_TAG).delete(["s3://bucket/a"])
    assert b"Keep" not in recorder.requests[1].body


def test_with_deletions_an_object_is_tagged_before_and_kept_where_it_cannot_be(recorder: Recorder) -> None:
    recorder.answers = [tagging(b"", put=an_error(403, "AccessDenied"))] * 9
    failures = recorder.storage(**A_TAG).delete(["s3://bucket/a"])
    assert "cannot be tagged: AccessDenied" in failures["s3://bucket/a"]
    assert methods(recorder) == [GET, PUT]
    recorder.requests.clear()
    recorder.answers = [tagging(b"")] * 9
    assert recorder.storage(**A_TAG).delete(["s3://bucket/a"]) == {}
    assert methods(recorder) == [GET, PUT, POST]


def test_an_object_that_is_gone_is_done_with_and_the_right_to_tag_is_asked_for_all_the_same(
    recorder: Recorder,
) -> None:
    def gone(request: Request) -> Answer:
        return an_error(404, "NoSuchKey")

    def gone_and_denied(request: Request) -> Answer:
        return an_error(403, "AccessDenied") if request.method == PUT else gone(request)

    storage = recorder.storage(**OFF, **A_TAG)
    recorder.answers = [gone] * 9
    assert storage.delete(["s3://bucket/a"]) == {}
    recorder.answers = [gone_and_denied] * 9
    assert "AccessDenied" in storage.delete(["s3://bucket/a"])["s3://bucket/a"]


def test_without_tags_nothing_is_sent_and_every_object_stays(recorder: Recorder) -> None:
    failures = recorder.storage(**OFF).delete(["s3://bucket/a"])
    assert failures == {"s3://bucket/a": "s3.delete-enabled=false, without tags"}
    assert recorder.requests == []


def test_what_is_this_programs_own_is_deleted_whatever_the_options(recorder: Recorder) -> None:
    assert recorder.storage(**OFF, **A_TAG).erase(["s3://bucket/a"]) == {}
    assert methods(recorder) == [POST]


def test_a_batch_has_as_many_objects_as_the_option_says(recorder: Recorder) -> None:
    storage = recorder.storage(**{"s3__delete__batch-size": "2"})
    assert storage.delete([f"s3://bucket/{number}" for number in range(5)]) == {}
    assert sorted(request.body.count(b"<Key>") for request in recorder.requests) == [1, 2, 2]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("s3__delete-enabled", "off", "it is true or false"),
        ("s3__delete__batch-size", "0", "a number from 1 to 1,000"),
        ("s3__delete__batch-size", "1001", "a number from 1 to 1,000"),
        ("s3__delete__num-threads", "many", "a number from 1 on"),
        ("s3__delete__tags__", "x", "nothing is named"),
        ("s3__acl", "everybody", "it is one of private"),
    ],
)
def test_a_value_of_these_that_cannot_be_is_refused_in_one_line(
    recorder: Recorder, option: str, value: str, words: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        recorder.storage(**{option: value})
    assert "\n" not in caught.value.message


def test_sessions_share_what_botocore_knows_of_services_unless_other_descriptions_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = [new_session().get_component("data_loader") for _ in range(2)]
    assert loaders[0] is loaders[1]
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    other = new_session().get_component("data_loader")
    assert str(tmp_path) in other.search_paths
    assert str(tmp_path) not in loaders[0].search_paths

"""Which requests obstore sends, and that what it cannot read is read by botocore; ranges on a real service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iceberg_cli.errors import AccessDenied
from iceberg_cli.storage import backoff
from iceberg_cli.storage.s3 import reads as s3_reads
from iceberg_cli.storage.s3.objects import S3Storage
from tests.servers import Versitygw
from tests.storage.test_s3_requests import KEY_TEXT, OK, Answer, Recorder, an_error, recorder

__all__ = ["recorder"]

BYTES: Answer = (200, OK[1], b"bytes")


def senders(recorder: Recorder) -> list[str]:
    """Who sent each request."""
    agents = [request.headers["user-agent"] for request in recorder.requests]
    return ["obstore" if agent.startswith("object_store/") else "botocore" for agent in agents]


@pytest.mark.parametrize("key", ["a", "db/t/metadata/00001-x_y.metadata.json", "day=2026-01-01/a.parquet"])
def test_obstore_reads_plain_keys_as_they_are(recorder: Recorder, key: str) -> None:
    recorder.answers.append(BYTES)
    assert recorder.storage().read(f"s3://bucket/{key}") == b"bytes"
    assert senders(recorder) == ["obstore"]
    assert recorder.requests[0].path.replace("%3D", "=") == f"/bucket/{key}"


@pytest.mark.parametrize(
    "key", ["a//b", "a b", "a%2Fb", "a?b", "ä", "a/../b", "./a", "a/.", "a+b", "a/", "a\n"]
)
def test_a_key_that_clients_write_differently_is_left_to_botocore(recorder: Recorder, key: str) -> None:
    recorder.answers.append(BYTES)
    assert recorder.storage().read(f"s3://bucket/{key}") == b"bytes"
    assert senders(recorder) == ["botocore"]


@pytest.mark.parametrize(
    "options",
    [
        {"s3__sse__type": "custom", "s3__sse__key": KEY_TEXT},
        {"s3__requester-pays": "true"},
        {"s3__expected-bucket-owner": "111122223333"},
        {"s3__access-points__bucket": "an-alias-s3alias"},
    ],
)
def test_so_are_reads_with_options_that_add_to_them(recorder: Recorder, options: dict[str, str]) -> None:
    recorder.answers.append(BYTES)
    try:
        recorder.storage(**options).read("s3://bucket/key")
    finally:
        assert "obstore" not in senders(recorder)


def test_without_obstore_botocore_reads(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setattr(s3_reads, "find_spec", lambda _: None)
    recorder.answers.append(BYTES)
    assert recorder.storage().read("s3://bucket/key") == b"bytes"
    assert senders(recorder) == ["botocore"]


@pytest.mark.parametrize("answer", [an_error(500, "InternalError"), an_error(503, "SlowDown")])
def test_what_obstore_cannot_read_is_read_by_botocore(recorder: Recorder, answer: Answer) -> None:
    recorder.answers += [answer, BYTES]
    assert recorder.storage().read("s3://bucket/key") == b"bytes"
    assert senders(recorder) == ["obstore", "botocore"]


def test_botocore_says_why_there_is_nothing_to_read(recorder: Recorder) -> None:
    storage = recorder.storage()
    recorder.answers += [an_error(404, "NoSuchKey")] * 2
    with pytest.raises(FileNotFoundError):
        storage.read("s3://bucket/key")
    recorder.answers += [an_error(403, "AccessDenied")] * 2
    with pytest.raises(AccessDenied, match="Cannot read s3://bucket/key: AccessDenied: why"):
        storage.read("s3://bucket/key")
    assert senders(recorder) == ["obstore", "botocore"] * 2


def test_obstore_is_not_asked_any_more_where_it_fails_each_time(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_THROTTLED_WAIT_S", 0.001)
    storage = recorder.storage()
    recorder.answers += [an_error(500, "InternalError"), BYTES] * 7 + [BYTES]
    for _ in range(8):
        assert storage.read("s3://bucket/key") == b"bytes"
    recorder.answers += [an_error(500, "InternalError"), BYTES] * 8 + [BYTES]
    for _ in range(9):
        assert storage.read("s3://bucket/key") == b"bytes"
    assert senders(recorder)[-3:] == ["obstore", "botocore", "botocore"]


# Credentials


def keys_of(recorder: Recorder) -> list[str]:
    """The access key that each request is signed by."""
    signed = [request.headers["authorization"] for request in recorder.requests]
    return [text.partition("Credential=")[2].partition("/")[0] for text in signed]


def test_the_credentials_are_those_of_the_options_whatever_the_environment_has(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "another", "AWS_SECRET_ACCESS_KEY": "another", "AWS_SESSION_TOKEN": "another",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_SKIP_SIGNATURE": "true", "AWS_S3_EXPRESS": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    recorder.answers.append(BYTES)
    recorder.storage().read("s3://bucket/key")
    assert (keys_of(recorder), senders(recorder)) == (["AK"], ["obstore"])
    assert "x-amz-security-token" not in recorder.requests[0].headers


def test_else_they_are_those_that_botocore_finds(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles = tmp_path / "credentials"
    profiles.write_text(
        "[lake]\naws_access_key_id = OF-PROFILE\naws_secret_access_key = s\naws_session_token = t\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    recorder.answers.append(BYTES)
    S3Storage({"endpoint_url": recorder.endpoint, "region": "us-east-1"}).read("s3://bucket/key")
    assert (keys_of(recorder), senders(recorder)) == (["OF-PROFILE"], ["obstore"])
    assert recorder.requests[0].headers["x-amz-security-token"] == "t"


def test_who_is_anonymous_signs_nothing(recorder: Recorder) -> None:
    recorder.answers.append(BYTES)
    S3Storage({"endpoint_url": recorder.endpoint, "region": "us-east-1", "anon": "true"}).read(
        "s3://bucket/key"
    )
    assert senders(recorder) == ["obstore"]
    assert "authorization" not in recorder.requests[0].headers


def test_after_a_renewal_the_new_ones_are_used(recorder: Recorder) -> None:
    options = {"endpoint_url": recorder.endpoint, "region": "us-east-1", "secret": "s"}
    storage = S3Storage(
        {**options, "key": "OLD", "s3.session-token-expires-at-ms": "0"},
        renewal=lambda: {**options, "key": "NEW"},
    )
    recorder.answers += [an_error(403, "AccessDenied"), BYTES, BYTES]
    storage._connections._connected_s -= 60  # a minute later
    assert storage.read("s3://bucket/key") == b"bytes"
    assert keys_of(recorder)[-1] == "NEW"


# Ranges


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (None, b"0123456789"),
        ((0, 10), b"0123456789"),
        ((2, 3), b"234"),
        ((8, 5), b"89"),
        ((10, 1), b""),
        ((99, 1), b""),
    ],
)
def test_a_range_is_what_there_is_of_it(
    versitygw: Versitygw, span: tuple[int, int] | None, expected: bytes
) -> None:
    versitygw.fill({"ranges/ten": b"0123456789"})
    assert versitygw.storage.read("s3://warehouse/ranges/ten", span) == expected

"""Remote signing: requests to a real S3 service that only a signer's keys can sign, by a table's catalog."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from iceberg_cli.errors import AccessDenied, BackendUnavailable
from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.storage import Storage, backoff
from iceberg_cli.storage.router import open_storage
from tests.iceberg.catalogs.test_rest_credentials import VendedTable, VendingFront, vended
from tests.s3_users import GuardedS3

__all__ = ["vended"]
TOKEN = "the-tables-own-token"


@dataclass
class Signer:
    """Signs requests about the objects of one folder by the keys of a user.

    Args:
        users: of the service.
        bucket: of the folder.
        folder: ends with a slash.
        bulk: what becomes of bulk deletions: signed by their body, or refused.
        answers: a status, or an answer, in place of the next ones.
    """

    users: GuardedS3
    bucket: str
    folder: str
    bulk: bool = True
    answers: list[int | bytes] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """To a request for a signature."""
        document = json.loads(body)
        self.asked.append((path, headers, document))
        if self.answers:
            given = self.answers.pop(0)
            error = json.dumps({"error": {"message": f"no, {TOKEN}"}}).encode()
            return (given, error) if isinstance(given, int) else (200, given)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, b"{}"
        if not self._may(document):
            return 403, b'{"error": {"message": "not of this table"}}'
        return 200, self._signed(document)

    def _may(self, document: dict[str, Any]) -> bool:
        url = urlsplit(document["uri"])
        query = parse_qs(url.query, keep_blank_values=True)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if "delete" in query:
            return self.bulk and f"<Key>{self.folder}" in document["body"]
        if "list-type" in query:
            key = query["prefix"][0]
        return bucket == self.bucket and key.startswith(self.folder)

    def _signed(self, document: dict[str, Any]) -> bytes:
        headers = {name: ", ".join(values) for name, values in document["headers"].items()}
        body = document.get("body")
        request = AWSRequest(document["method"], document["uri"], headers, body and body.encode())
        # The body is not seen, but for that of a bulk deletion.
        request.context["client_config"] = Config(s3={"payload_signing_enabled": body is not None})
        options = self.users.options_of("two")
        keys = Credentials(options["s3.access-key-id"], options["s3.secret-access-key"])
        S3SigV4Auth(keys, "s3", document["region"]).add_auth(request)
        signed = {name: [value] for name, value in request.headers.items()}
        return json.dumps({"uri": request.url, "headers": signed}).encode()

    def methods(self) -> list[str]:
        """Of the requests that were to be signed."""
        return [document["method"] for _, _, document in self.asked]


@dataclass
class SigningFront(VendingFront):
    """A catalog that signs."""

    signer: Signer | None = None

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        if method == "POST" and path.endswith("/sign") and self.signer is not None:
            return *self.signer.answer(path, headers, body), "application/json"
        return super().forward(method, path, headers, body)


@dataclass
class SignedTable:
    """A table whose data files are read and deleted by signed requests alone."""

    table: VendedTable
    front: SigningFront
    signer: Signer
    config: dict[str, str]
    signing_config: dict[str, Any] | None = None

    def committer(self, **properties: str) -> RestCommitter:
        namespace, name = self.table.name
        return RestCommitter("prod", (namespace,), name, {"uri": self.front.uri, **properties}, {})

    def storage(self, **properties: str) -> Storage:
        committer = self.committer(**properties)
        return open_storage(committer.storage_options, credentials=committer.credentials)

    def path(self, name: str) -> str:
        return f"{self.table.data}/{name}"


@pytest.fixture
def signed(vended: VendedTable) -> Iterator[SignedTable]:
    bucket, _, folder = vended.data.removeprefix("s3://").partition("/")
    signer = Signer(vended.users, bucket, f"{folder}/")
    with SigningFront(vended.front.behind, signer=signer) as front:
        config = {
            "s3.endpoint": vended.users.endpoint,
            "client.region": "us-east-1",
            "s3.remote-signing-enabled": "true",
            "token": TOKEN,
        }
        table = SignedTable(vended, front, signer, config)
        vended.front = front

        def vend(answer: dict[str, Any]) -> None:
            answer["config"] = table.config
            if table.signing_config is not None:
                answer["remote-signing-config"] = table.signing_config

        front.vend = vend
        yield table


def on_a_worker(storage: Storage) -> Storage:
    copy: Storage = pickle.loads(pickle.dumps(storage))
    return copy


def test_every_request_is_signed_by_the_catalog(signed: SignedTable) -> None:
    for name, storage in (("here", signed.storage()), ("on-a-worker", on_a_worker(signed.storage()))):
        path, other = signed.path(f"x/{name} +%?"), signed.path(f"x/{name}-other")
        signed.signer.asked.clear()
        storage.put_if_absent(path, b"first bytes")
        with pytest.raises(FileExistsError):
            storage.put_if_absent(path, b"second bytes")
        storage.replace(other, b"replaced")
        assert storage.read(path) == b"first bytes"
        assert storage.read(path, (6, 5)) == b"bytes"
        assert [info and info.size_bytes for info in storage.stat_many([path, other])] == [11, 8]
        assert {info.path for info in storage.list(signed.path("x"))} >= {path, other}
        assert storage.delete([path, other]) == {}
        assert storage.stat_many([path, other]) == [None, None]
        bodies = [document["body"] for _, _, document in signed.signer.asked if "body" in document]
        assert len(bodies) == 1
        assert "other</Key>" in bodies[0]
        # No signature is used twice, though Cache-Control might allow it.
        assert signed.signer.methods().count("GET") == 3
        for _, headers, document in signed.signer.asked:
            assert headers["Authorization"] == f"Bearer {TOKEN}"
            assert (document["region"], document["provider"]) == ("us-east-1", "s3")


@pytest.mark.deep
def test_what_a_request_means_is_signed_with_it(signed: SignedTable) -> None:
    signed.storage().put_if_absent(signed.path("a"), b"a")
    (_, _, put) = signed.signer.asked[-1]
    assert put["headers"]["If-None-Match"] == ["*"]
    assert put["method"] == "PUT"
    signed.storage().read(signed.path("a"), (0, 1))
    (_, _, get) = signed.signer.asked[-1]
    assert get["headers"]["Range"] == ["bytes=0-0"]


def test_where_the_signer_takes_no_bulk_deletion_objects_are_deleted_one_by_one(signed: SignedTable) -> None:
    storage = signed.storage()
    paths = [signed.path(f"x/{number}") for number in range(3)]
    for path in paths:
        storage.put_if_absent(path, b"x")
    signed.signer.bulk = False
    signed.signer.asked.clear()
    foreign = f"s3://{signed.signer.bucket}/t/elsewhere"
    failures = storage.delete([*paths, foreign])
    assert list(failures) == [foreign]
    assert failures[foreign] == "the catalog did not sign the request, 403: not of this table"
    assert signed.signer.methods() == ["POST", *["DELETE"] * 4]
    assert storage.stat_many(paths) == [None] * 3


@pytest.mark.deep
def test_what_the_signer_refuses_is_denied_at_once(signed: SignedTable) -> None:
    storage = signed.storage()
    with pytest.raises(AccessDenied, match=r"Cannot read s3://.*/elsewhere: the catalog did not sign .* 403"):
        storage.read(f"s3://{signed.signer.bucket}/t/elsewhere")
    with pytest.raises(AccessDenied, match="Cannot list"):
        [*storage.list(f"s3://{signed.signer.bucket}/t")]
    assert len(signed.signer.asked) == 2


@pytest.mark.deep
def test_a_signer_that_gives_no_answer_is_asked_again(
    signed: SignedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    storage = signed.storage()
    storage.put_if_absent(signed.path("a"), b"a")
    signed.signer.asked.clear()
    signed.signer.answers += [503, b"no JSON", b'{"headers": 7, "uri": "x"}', 429]
    assert storage.read(signed.path("a")) == b"a"
    assert len(signed.signer.asked) == 5
    signed.signer.answers += [500] * 5
    with pytest.raises(BackendUnavailable) as error:
        storage.read(signed.path("a"))
    assert not isinstance(error.value, AccessDenied)
    assert "500: no, ***" in error.value.message
    assert TOKEN not in str(error.value)


@pytest.mark.deep
def test_the_tables_token_is_asked_for_anew_where_it_has_ended(signed: SignedTable) -> None:
    signed.config["token"] = "one-that-has-ended"
    storage = signed.storage()
    signed.config["token"] = TOKEN
    storage.put_if_absent(signed.path("a"), b"a")
    assert [headers["Authorization"] for _, headers, _ in signed.signer.asked] == [
        "Bearer one-that-has-ended",
        f"Bearer {TOKEN}",
    ]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("config", "signing_config", "expected"),
    [
        ({}, None, "/v1/aws/s3/sign"),
        ({"s3.signer.endpoint": "v1/other/sign"}, None, "/v1/other/sign"),
        ({"signer.endpoint": "/v1/other/sign"}, None, "/v1/other/sign"),
        ({"s3.signer.uri": "{uri}/base/"}, None, "/base/v1/aws/s3/sign"),
        ({"signer.uri": "{uri}/base", "signer.endpoint": "x/sign"}, None, "/base/x/sign"),
        ({"signer.endpoint": "{uri}/whole/sign"}, None, "/whole/sign"),
        ({}, {"properties": {"p": "1"}, "headers": {"X-Sign": ["a", "b"]}}, "/v1/namespaces/{ns}/tables/t/sign"),
        ({}, {}, "/v1/namespaces/{ns}/tables/t/sign"),
    ],
)  # fmt: skip
def test_the_signer_is_where_the_catalog_says(
    signed: SignedTable, config: dict[str, str], signing_config: dict[str, Any] | None, expected: str
) -> None:
    signed.config |= {name: text.format(uri=signed.front.uri) for name, text in config.items()}
    signed.signing_config = signing_config
    signed.storage().put_if_absent(signed.path("a"), b"a")
    ((path, headers, document),) = signed.signer.asked
    assert path == expected.format(ns=signed.table.name[0])
    assert document.get("properties", {}) == (signing_config or {}).get("properties", {})
    assert headers.get("X-Sign") == ("a, b" if signing_config else None)


def test_only_the_tables_token_goes_to_another_address(signed: SignedTable) -> None:
    own = {"token": "the-catalogs", "header.X-Secret": "ours"}
    with SigningFront(signed.front.behind, signer=signed.signer) as elsewhere:
        signed.config["s3.signer.uri"] = elsewhere.uri
        signed.storage(**own).put_if_absent(signed.path("a"), b"a")
        del signed.config["token"]
        with pytest.raises(AccessDenied):
            signed.storage(**own).put_if_absent(signed.path("b"), b"b")
        sent = [headers for _, headers, _ in signed.signer.asked]
        assert [headers.get("Authorization") for headers in sent] == [f"Bearer {TOKEN}", None, None]
        assert not any("X-Secret" in headers for headers in sent)
        # Where the operator names it himself, it is the catalog's.
        with pytest.raises(AccessDenied):
            signed.storage(**own, **{"s3.signer.uri": elsewhere.uri}).put_if_absent(signed.path("b"), b"b")
        assert signed.signer.asked[-1][1]["Authorization"] == "Bearer the-catalogs"


@pytest.mark.deep
def test_keys_that_are_given_too_come_first_where_they_are_the_operators(signed: SignedTable) -> None:
    namespace, name = signed.table.name
    keys = signed.table.users.options_of("two")
    committer = RestCommitter("prod", (namespace,), name, {"uri": signed.front.uri}, keys)
    storage = open_storage(committer.storage_options, credentials=committer.credentials)
    storage.put_if_absent(signed.path("a"), b"a")
    assert signed.signer.asked == []


@pytest.mark.parametrize("bulk", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_an_expiry_deletes_by_signed_requests(signed: SignedTable, bulk: bool) -> None:
    signed.signer.bulk = bulk
    table = signed.table
    result = table.expire("--unsafe-allow-root", table.data)
    assert result.code == 0, result.out
    live = {task.file.file_path for task in table.theirs.load_table(table.name).scan().plan_files()}
    assert set(table.data_files()) == live
    assert TOKEN not in result.out + result.err
    assert not any(
        TOKEN.encode() in path.read_bytes() for path in Path(table.folder).rglob("*") if path.is_file()
    )


def test_keys_of_ones_own_can_be_used_in_place_of_signatures(signed: SignedTable) -> None:
    """A signer may refuse what an expiry needs, such as listings."""
    signed.signer.answers += [403] * 100
    table, own = signed.table, signed.table.users.options_of("two")
    refused = table.expire("--unsafe-allow-root", table.data)
    assert (refused.code, refused.json["state"]) == (16, "Nothing was changed."), refused.out
    assert signed.signer.asked
    signed.signer.asked.clear()
    names = ("s3.access-key-id", "s3.secret-access-key")
    options = [f"{name}={own[name]}" for name in names] + ["s3.remote-signing-enabled=false"]
    done = table.expire(
        "--unsafe-allow-root", table.data, *(word for each in options for word in ("--storage-option", each))
    )
    assert (done.code, signed.signer.asked) == (0, []), done.out
    live = {task.file.file_path for task in table.theirs.load_table(table.name).scan().plan_files()}
    assert set(table.data_files()) == live

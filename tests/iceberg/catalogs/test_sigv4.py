"""REST catalogs that want requests signed by AWS Signature Version 4: a front before the server checks each one."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pyiceberg.catalog.rest import RestCatalog

from tests.cli.running import Ran, iceberg_cli
from tests.rest_servers import Fate, Front, table_of_integers

KEY, SECRET = "AKIAEXAMPLE", "the-secret-of-the-example"
REGION, SERVICE = "eu-central-1", "glue"
ROWS = [0, 1, 2]
VERBS = [("expire-snapshots", "--older-than", "0s", "--retain-last", "1"), ("rewrite-manifests",)]


@dataclass
class Verifier:
    """Signs each request again by botocore and compares.

    Args:
        secrets: by access key.
    """

    secrets: dict[str, str] = field(default_factory=lambda: {KEY: SECRET})
    accepted: list[tuple[str, str]] = field(default_factory=list)  # method and path

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, str] | None:
        """Status and message of the refusal, or None: the signature is of this request and of a key that is known."""
        kind, _, rest = headers.get("Authorization", "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return 401, "Missing Authentication Token"
        parts = dict(each.strip().split("=", 1) for each in rest.split(","))
        key, _, region, service, _ = parts["Credential"].split("/")
        if key not in self.secrets or (region, service) != (REGION, SERVICE):
            return 403, "The security token included in the request is invalid."
        names = parts["SignedHeaders"].split(";")
        given = {name.lower(): value for name, value in headers.items()}
        if not {"host", "x-amz-date"} <= {*names}:
            return 403, "The signature leaves out what it must sign."
        if (
            given.get("x-amz-content-sha256", hashlib.sha256(body).hexdigest())
            != hashlib.sha256(body).hexdigest()
        ):
            return 403, "The content has another hash."
        bare, _, query = path.partition("?")
        request = AWSRequest(
            method=method,
            url=f"http://{given['host']}{bare}",
            params=dict(parse_qsl(query)),
            data=body,
            headers={name: given[name] for name in names},
        )
        request.context["timestamp"] = given["x-amz-date"]
        signer = SigV4Auth(Credentials(key, self.secrets[key]), service, region)
        expected = signer.signature(
            signer.string_to_sign(request, signer.canonical_request(request)), request
        )
        if not hmac.compare_digest(expected, parts["Signature"]):
            return 403, "The request signature we calculated does not match the signature you provided."
        self.accepted.append((method, bare))
        return None


@dataclass
class Signed:
    """A table behind a front that lets signed requests through, and PyIceberg's client before which there is none."""

    front: Front
    verifier: Verifier
    theirs: RestCatalog
    namespace: tuple[str, ...]
    config: Path

    def run(self, verb: str, *options: object, key: str = KEY, secret: str = SECRET) -> Ran:
        settings = {
            "type": "rest",
            "uri": self.front.uri,
            "rest.sigv4-enabled": '"true"',
            "rest.signing-region": REGION,
            "rest.signing-name": SERVICE,
            "client.region": REGION,
            "client.access-key-id": key,
            "client.secret-access-key": secret,
        }
        lines = "".join(f"    {name}: {value}\n" for name, value in settings.items())
        self.config.write_text(f"catalog:\n  prod:\n{lines}")
        more = ("--catalog-config", self.config, "--no-cache", "--format", "json", "--no-progress")
        return iceberg_cli(verb, f"prod.{'.'.join(self.namespace)}.t", *options, *more)

    def rows(self) -> list[int]:
        found = self.theirs.load_table((*self.namespace, "t")).scan().to_arrow()["i"]
        return sorted(found.to_pylist())

    def location(self) -> str:
        return str(self.theirs.load_table((*self.namespace, "t")).metadata_location)


@pytest.fixture
def signed(rest_server: str, tmp_path: Path) -> Iterator[Signed]:
    namespace, verifier = (f"n{uuid.uuid4().hex}", "inner"), Verifier()
    theirs = table_of_integers(rest_server, namespace, f"file://{tmp_path}/t", ROWS, {})
    with Front(rest_server, refusal=verifier) as front:
        yield Signed(front, verifier, theirs, namespace, tmp_path / "pyiceberg.yaml")


@pytest.mark.parametrize("command", VERBS, ids=lambda command: command[0])
def test_loads_and_commits_are_signed_as_botocore_signs_them(
    signed: Signed, command: tuple[str, ...]
) -> None:
    before = signed.location()
    done = signed.run(*command, "--yes")
    assert (done.code, done.json["status"]) == (0, "done"), done.err
    assert signed.location() == done.json["metadata_location"] != before
    assert signed.rows() == ROWS
    requests = [(method, path.partition("?")[0]) for method, path in signed.front.requests]
    assert signed.verifier.accepted == requests
    assert [method for method, _ in requests].count("POST") == 1


@pytest.mark.parametrize(
    ("key", "secret", "reason"),
    [
        (KEY, "another-secret", "the signature you provided"),
        ("AKIAOTHER", SECRET, "The security token included in the request is invalid"),
    ],
)
def test_a_wrong_key_is_one_error_that_names_the_catalog_and_changes_nothing(
    signed: Signed, key: str, secret: str, reason: str
) -> None:
    before = signed.location()
    refused = signed.run("rewrite-manifests", "--yes", key=key, secret=secret)
    assert refused.code == 16
    assert reason in refused.json["message"]
    assert refused.json["state"] == "Nothing was changed."
    assert secret not in refused.out + refused.err
    assert "Traceback" not in refused.err
    assert (signed.location(), signed.verifier.accepted) == (before, [])


@pytest.mark.parametrize("command", VERBS, ids=lambda command: command[0])
def test_a_key_that_is_withdrawn_before_the_commit_leaves_the_table_as_it_was(
    signed: Signed, command: tuple[str, ...], tmp_path: Path
) -> None:
    before, files = signed.location(), {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    verifier = signed.verifier

    def refusal(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str] | None:
        if method == "POST":
            verifier.secrets.clear()
        return verifier(method, path, headers, body)

    signed.front.refusal = refusal
    refused = signed.run(*command, "--yes")
    assert refused.code == 16, refused.out
    assert "Cannot commit to prod." in refused.json["message"]
    assert "403" in refused.json["message"]
    assert signed.location() == before
    assert files <= {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    assert [method for method, _ in signed.front.requests].count("POST") == 1
    verifier.secrets[KEY] = SECRET
    signed.front.refusal = verifier
    assert signed.run("resume").code == 0
    assert signed.run(*command, "--yes").code == 0
    assert signed.rows() == ROWS


@pytest.mark.parametrize("fate", ["lost after", "500 after", "reset before"])
def test_a_signed_commit_whose_answer_is_lost_is_sent_once(signed: Signed, fate: Fate) -> None:
    signed.front.fates.append(fate)
    ran = signed.run("rewrite-manifests", "--yes")
    assert ran.code == (0 if fate.endswith("after") else 13), ran.out
    assert [method for method, _ in signed.front.requests].count("POST") == 1
    assert signed.rows() == ROWS

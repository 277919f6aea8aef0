"""No secret shows in what a command prints, logs or writes, whatever it is given and whatever goes wrong.

Each secret is a marker: a text of its own, with no word in it that tells it for one. Where something goes wrong,
servers answer with all that they were sent and all that they gave.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest

from iceberg_cli.api import open_table
from iceberg_cli.errors import IcebergCliError
from iceberg_cli.storage import backoff, renewals
from tests.cli.running import iceberg_cli
from tests.markers import (
    EXPIRE,
    ICEBERG_COMMANDS,
    Markers,
    Watch,
    give_secrets,
    secret_properties,
    set_up_a_case,
    trace,
)
from tests.rest_servers import Fate, Front, empty_table_of_integers
from tests.storage.test_s3_requests import Answer, Recorder, Request, recorder
from tests.telling_storage import (
    STORAGE_FAILURES,
    StorageFailure,
    fail,
    in_xml,
    is_deletion,
    is_later_deletion,
    is_listing,
)

__all__ = ["recorder"]
Failure = Callable[[str], tuple[int, bytes]]
"""An answer that tells a text."""


def an_error(status: int) -> Failure:
    def failure(told: str) -> tuple[int, bytes]:
        error = {"message": f"why: {told}", "type": "Why", "code": status, "stack": [told]}
        return status, json.dumps({"error": error, "error_description": told}).encode()

    return failure


def an_oauth_error(told: str) -> tuple[int, bytes]:
    return 400, json.dumps({"error": "invalid_client", "error_description": told}).encode()


def a_page(told: str) -> tuple[int, bytes]:
    return 502, f"<html>{told}</html>".encode()


def no_json(told: str) -> tuple[int, bytes]:
    return 200, told.encode()


def cut_off(told: str) -> tuple[int, bytes]:
    return 200, f'{{"metadata-location": "{told}'.encode()


def other_types(told: str) -> tuple[int, bytes]:
    names = ("access_token", "token_type", "endpoints", "defaults", "metadata-location", "config")
    return 200, json.dumps({name: {"of": told} for name in names} | {"storage-credentials": told}).encode()


@dataclass
class TellingFront(Front):
    """A catalog that vends credentials, and whose failures tell what it was sent and gave.

    Args:
        markers: gets what it gives.
        endpoint: of the storage.
        failing: a pattern of method and path of what fails; empty: nothing.
        failure: how.
    """

    markers: Markers = field(default_factory=Markers)
    endpoint: str = ""
    failing: str = ""
    failure: Failure = a_page
    given: set[str] = field(default_factory=set)
    signs: bool = False

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        status, content = self._answer(method, path, headers, body)
        if self.failing and re.search(self.failing, f"{method} {urlsplit(path).path}"):
            # What is given for the first time has its names.
            first = content.decode() if status == 200 and path.endswith("/tokens") else ""
            status, content = self.failure(" ".join([*headers.values(), body.decode(), *self.given, first]))
        else:
            # A refresh token is kept nowhere, so that nobody could know it again.
            self.given |= set(re.findall("zq[0-9a-f]{20}", content.decode())) - {
                self.markers.at("refresh token")
            }
        return status, content, "application/json"

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        at = self.markers.at
        if path.endswith("/tokens"):
            tokens = {"access_token": at("access token"), "refresh_token": at("refresh token")}
            return 200, json.dumps({**tokens, "token_type": "bearer", "expires_in": 3600}).encode()
        if path.endswith("/credentials"):
            return 200, json.dumps({"storage-credentials": self._credentials("anew")}).encode()
        status, content, _ = super().forward(method, path, headers, body)
        if method == "GET" and status == 200 and urlsplit(path).path.endswith("/t"):
            answer = json.loads(content)
            answer["config"] = {
                "token": at("the table's token"),
                "s3.endpoint": self.endpoint,
                "client.region": "us-east-1",
                "s3.access-key-id": "of-config",
                "s3.secret-access-key": at("key of config"),
                "s3.session-token": at("session of config"),
                "adls.sas-token.account": at("SAS of config"),
                "gcs.oauth2.token": at("token for another storage"),
            }
            answer["storage-credentials"] = self._credentials("first")
            if self.signs:
                del answer["storage-credentials"]
                answer["config"]["s3.remote-signing-enabled"] = "true"
            headers = {"X-Sign": [at("a signer's header")]}
            answer["remote-signing-config"] = {"headers": headers}
            content = json.dumps(answer).encode()
        return status, content

    def _credentials(self, when: str) -> list[dict[str, object]]:
        return [
            {
                "prefix": prefix,
                "config": {
                    "s3.access-key-id": "vended",
                    "s3.secret-access-key": self.markers.at(f"key of {prefix}, {when}"),
                    "s3.session-token": self.markers.at(f"session of {prefix}, {when}"),
                    "gcs.oauth2.token": self.markers.at(f"token of {prefix}, {when}"),
                    "adls.sas-token.account": self.markers.at(f"SAS of {prefix}, {when}"),
                },
            }
            for prefix in ("s3://b", "s3://elsewhere/")
        ]


@dataclass(kw_only=True)
class Case(Watch):
    """A table of which data lies on S3, in a REST catalog with secrets everywhere."""

    front: TellingFront
    storage: Recorder

    def given(self) -> list[str]:
        self.front.given.clear()
        return super().given()

    def open(self) -> str:
        """Open the table by the Python API; the traceback where that fails."""
        return self.trace_of(lambda config: open_table(self.table, catalog_config=config))

    def fail(self, failing: Callable[[Request], bool], failure: StorageFailure) -> None:
        """Let the storage answer with the credentials that its requests are made with, and their headers."""
        vended = [marker for place, marker in self.markers.by_place.items() if "s3://b" in place]
        fail(self.storage, failing, failure, also=lambda: vended)


@pytest.fixture
def case(
    rest_server: str,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Case]:
    set_up_a_case(tmp_path, monkeypatch, caplog)
    options = {
        "s3.endpoint": recorder.endpoint,
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "theirs",
        "s3.region": "us-east-1",
    }
    properties = {"write.data.path": "s3://b/t/data", "format-version": "1"}
    namespace = f"n{uuid.uuid4().hex}"
    _, table = empty_table_of_integers(rest_server, (namespace,), f"file://{tmp_path}/t", options, properties)
    for number in range(3):
        table.overwrite(pa.table({"i": [number]}))
    markers = Markers()
    caplog.clear()
    with TellingFront(rest_server, markers=markers, endpoint=recorder.endpoint) as front:
        found = Case(
            front=front,
            storage=recorder,
            markers=markers,
            folder=tmp_path,
            caplog=caplog,
            table=f"prod.{namespace}.t",
        )
        found.properties = {
            "type": "rest",
            "uri": front.uri,
            **secret_properties(markers),
        }
        give_secrets(found, monkeypatch)
        yield found


def with_token(case: Case) -> None:
    case.properties["token"] = case.markers.at("token")


def with_credential(case: Case) -> None:
    case.properties["credential"] = f"id:{case.markers.at('credential')}"
    case.properties["oauth2-server-uri"] = f"{case.front.uri}/v1/oauth/tokens"


def with_basic(case: Case) -> None:
    password = case.markers.at("password")
    case.markers.by_place["the password's header"] = base64.b64encode(f"user:{password}".encode()).decode()
    case.properties["auth"] = {"type": "basic", "basic": {"username": "user", "password": password}}


def with_oauth2(case: Case) -> None:
    about = {
        "client_id": "id",
        "client_secret": case.markers.at("client_secret"),
        "token_url": f"{case.front.uri}/v1/oauth/tokens",
    }
    case.properties["auth"] = {"type": "oauth2", "oauth2": about}


def with_header(case: Case) -> None:
    case.properties["header.Authorization"] = f"Bearer {case.markers.at('header.Authorization')}"


def with_user_in_uri(case: Case) -> None:
    password = case.markers.at("password in the URI")
    case.markers.by_place["its header"] = base64.b64encode(f"user:{password}".encode()).decode()
    case.properties["uri"] = case.front.uri.replace("://", f"://user:{password}@")


AUTHENTICATIONS: Final = (with_token, with_credential, with_basic, with_oauth2, with_header, with_user_in_uri)
FAILURES: Final = (
    an_error(400), an_error(401), an_error(403), an_error(404), an_error(419), an_error(500), an_error(503), a_page,
    no_json, cut_off, other_types, an_oauth_error,
)  # fmt: skip
CONFIG, TOKENS, LOAD, COMMIT = r"GET .*/config$", r"POST .*/tokens$", r"GET .*/t$", r"POST .*/t$"


def run_all(case: Case) -> list[int]:
    return [case.run(*command) for command in ICEBERG_COMMANDS]


@pytest.mark.deep
def test_nothing_shows_where_all_goes_well(case: Case) -> None:
    with_credential(case)
    assert [
        (command, code) for command, code in zip(ICEBERG_COMMANDS, run_all(case), strict=True) if code
    ] == []
    assert len(case.markers.by_place) >= 40


@pytest.mark.deep
@pytest.mark.parametrize("authentication", AUTHENTICATIONS)
def test_nothing_shows_where_the_catalog_fails_to_answer(
    case: Case, authentication: Callable[[Case], None]
) -> None:
    authentication(case)
    for failing in (CONFIG, TOKENS, LOAD):
        for failure in FAILURES:
            # A table that was open once: the catalog knows what it gave.
            case.front.failing = ""
            case.open()
            case.front.failing, case.front.failure = failing, failure
            case.open()
            case.run("inspect", "TABLE")


@pytest.mark.deep
def test_nothing_shows_where_every_command_meets_a_catalog_that_fails(case: Case) -> None:
    with_credential(case)
    case.run("plan", "TABLE", "expire-snapshots", *EXPIRE[2:], "--output=PLAN")
    for failure in FAILURES:
        case.front.failing, case.front.failure = LOAD, failure
        for command in ICEBERG_COMMANDS:
            assert case.run(*command)


@pytest.mark.parametrize(
    "failure", [an_error(500), *(pytest.param(each, marks=pytest.mark.deep) for each in FAILURES)]
)
def test_nothing_shows_where_a_commit_fails(case: Case, failure: Failure) -> None:
    with_basic(case)
    case.front.failing, case.front.failure = COMMIT, failure
    # Done: the server carried it out, and answered something else.
    for kind in ("text", "json"):
        assert case.run(*EXPIRE, "--yes", f"--format={kind}") in (0, 10, 11, 12, 13, 14, 16)
    case.run("resume", "TABLE", "--list")
    case.run("resume", "TABLE")
    case.front.failing = ""
    case.run("resume", "TABLE")


@pytest.mark.deep
@pytest.mark.parametrize("fate", ["lost before", "lost after", "reset before", "reset after", "500 after"])
def test_nothing_shows_where_the_answer_to_a_commit_is_lost(case: Case, fate: Fate) -> None:
    with_header(case)
    case.front.fates = [fate]
    assert case.run(*EXPIRE, "--yes") in (0, 13)
    case.run("resume", "TABLE", "--list")
    case.run("resume", "TABLE")


@pytest.mark.deep
@pytest.mark.parametrize("failing", [is_listing, is_deletion, is_later_deletion])
@pytest.mark.parametrize("failure", STORAGE_FAILURES)
def test_nothing_shows_where_the_storage_fails(
    case: Case,
    failing: Callable[[Request], bool],
    failure: StorageFailure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewals, "_YOUNG_S", 0)  # so that credentials are asked for anew
    with_oauth2(case)
    case.fail(failing, failure)
    # Not found: the listing before the commit says that there is no such bucket.
    assert case.run(*EXPIRE, "--yes") in (10, 14, 16)
    # What the journal has of it is in the table's folder now.
    case.run("resume", "TABLE", "--list")
    case.run("resume", "TABLE")
    case.run("inspect", "TABLE", "--check", "--verbose")
    case.run("rewrite-manifests", "TABLE", "--yes", "--format=json")


def test_nothing_shows_where_single_files_cannot_be_deleted(case: Case) -> None:
    with_token(case)

    def a_result(told: str) -> Answer:
        keys = re.findall("<Key>(.*?)</Key>", case.storage.requests[-1].body.decode())
        errors = "".join(
            f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>{escape(told)}</Message></Error>"
            for key in keys
        )
        return 200, {}, f"<DeleteResult>{errors}</DeleteResult>".encode()

    case.fail(is_later_deletion, a_result)
    assert case.run(*EXPIRE, "--yes", "--format=json") == 14
    assert case.run("resume", "TABLE", "--format=json") == 14
    case.run("resume", "TABLE", "--list", "--format=json")


@pytest.mark.deep
@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_shows_where_credentials_cannot_be_had_anew(
    case: Case, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "_YOUNG_S", 0)
    with_credential(case)
    case.fail(is_listing, in_xml(403, "AccessDenied"))
    case.front.failing, case.front.failure = r"GET .*/credentials$", failure
    assert case.run(*EXPIRE, "--yes") == 16


@pytest.mark.deep
@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_shows_where_requests_are_not_signed(case: Case, failure: Failure) -> None:
    with_credential(case)
    case.front.signs = True
    case.front.failing, case.front.failure = r"POST .*/sign$", failure
    assert case.run(*EXPIRE, "--yes") == 16


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "text",
    [
        "catalog:\n  prod:\n    token: {0}\n   uri: {1}\n",
        "catalog:\n  prod: [{0}, {1}\n",
        "catalog:\n  prod:\n    token: &{0} {1}\n",
        "catalog:\n  prod:\n    token: {0}\n    token: {1}\n",
        "catalog:\n  prod:\n    password: {0}: {1}\n",
        "catalog: {0} {1}\n",
        "catalog:\n  prod:\n    type: rest\n    token: {0}\n    auth:\n      type: {1}\n",
        "catalog:\n  prod:\n    type: rest\n    uri: nowhere://user:{0}@127.0.0.1:1/?password={1}\n",
        "catalog:\n  prod:\n    type: sql\n    uri: postgresql://user:{0}@127.0.0.1:1/x?password={1}\n",
        "catalog:\n  prod:\n    type: sql\n    uri: mysql+pymysql://user:{0}@127.0.0.1:1/x?passwd={1}\n",
        "catalog:\n  prod:\n    type: sql\n    uri: 'sqlite:////no/file?password={0}{1}'\n",
        "catalog:\n  prod:\n    type: sql\n    uri: '://user:{0}@x/{1}'\n",
        "catalog:\n  prod:\n    type: glue\n    glue.region: x\n    glue.endpoint: http://user:{0}@127.0.0.1:1/{1}\n",
        "catalog:\n  prod:\n    py-catalog-impl: no.Such\n    token: {0}\n    password: {1}\n",
    ],
)
def test_nothing_shows_of_a_configuration_that_cannot_be_used(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers, file = Markers(), tmp_path / "pyiceberg.yaml"
    file.write_text(text.format(markers.at("first"), markers.at("second")))
    for arguments in (("--catalog-config", file), ("--catalog-config", file, "--format=json")):
        ran = iceberg_cli("inspect", "prod.a.t", *arguments)
        assert ran.code not in (0, 1)
        assert markers.found_in(ran.out + ran.err) == []
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    file.rename(tmp_path / ".pyiceberg.yaml")
    ran = iceberg_cli("inspect", "prod.a.t")
    assert markers.found_in(ran.out + ran.err) == []
    with pytest.raises(IcebergCliError) as error:
        open_table("prod.a.t")
    assert markers.found_in(trace(error.value)) == []


AT_NO_SERVICE: Final = ("--storage-option=key=a", "--storage-option", "secret={}", "--storage-option")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--storage-option", "secret:{}"),
        ("--storage-option", "s3.secret-access-key {}"),
        ("--storage-option", "s3.sse.type=custom", "--storage-option", "s3.sse.key={}"),
        (*AT_NO_SERVICE, "s3.endpoint=http://user:{}@127.0.0.1:1"),
        (*AT_NO_SERVICE, "endpoint_url=http://127.0.0.1:1"),
        ("--storage-option", "token=@/no/file"),
        ("--spark-conf", "spark.password {}"),
        ("--spark-conf", "spark.password={}", "--engine", "nothing"),
        ("--storage-option", "s3.anonymous=maybe", "--storage-option", "token={}"),
    ],
)  # fmt: skip
def test_nothing_shows_of_an_option_that_cannot_be_used(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    markers = Markers()
    given = [each.format(markers.at(str(place))) for place, each in enumerate(arguments)]
    for form in ("text", "json"):
        ran = iceberg_cli("inspect", "s3://bucket/t", *given, "--format", form)
        assert ran.code not in (0, 1), ran.out + ran.err
        assert markers.found_in(ran.out + ran.err) == []

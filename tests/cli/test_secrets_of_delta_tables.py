"""No secret of a Delta table on S3 shows in what a command prints, logs or writes: see `test_secrets`.

Where the storage fails it tells the headers and the address of the request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from iceberg_cli.api import open_table
from iceberg_cli.cli.clock import now_ms
from iceberg_cli.testing.delta_writer import (
    a_metadata,
    a_protocol_with,
    a_remove,
    an_add,
    write_log,
    write_vectors,
)
from tests.markers import Markers, Watch, give_secrets, set_up_a_case
from tests.storage.test_s3_requests import Recorder, Request, recorder
from tests.telling_storage import (
    STORAGE_FAILURES,
    Objects,
    StorageFailure,
    fail,
    in_xml,
    is_deletion,
    is_later_deletion,
)

__all__ = ["recorder"]
WORD: Final = "--unsafe-conditional-writes"
EXPIRE: Final = ("expire-snapshots", "TABLE", "--retention=0s", "--unsafe-allow-short-retention", WORD)
UPGRADE: Final = ("--feature=rowTracking", "--feature=v2Checkpoint", WORD)
COMMANDS: Final = (
    ("inspect", "TABLE"),
    ("inspect", "TABLE", "--check", "--verbose"),
    ("inspect", "TABLE", "--format=json"),
    ("plan", "TABLE"),
    (*EXPIRE, "--dry-run", "--verbose"),
    ("plan", "TABLE", *EXPIRE[:1], *EXPIRE[2:], "--output=PLAN"),
    ("apply", "PLAN", "--yes", WORD),
    ("upgrade-v3", "TABLE", *UPGRADE, "--yes", "--verbose"),
    ("assign-row-ids", "TABLE", "--yes", WORD),
    ("merge-dvs", "TABLE", "--min-files=2", "--yes", "--format=json", WORD),
    ("rewrite-manifests", "TABLE", "--yes", "--format=json", WORD),
    (*EXPIRE, "--yes", "--format=json"),
    ("resume", "TABLE", "--list"),
    ("resume", "TABLE", WORD),
)


@dataclass(kw_only=True)
class Case(Watch):
    """A Delta table on S3."""

    storage: Recorder
    objects: Objects

    def left(self) -> Iterator[tuple[str, str]]:
        yield from super().left()
        yield from ((name, data.decode("latin-1")) for name, data in self.objects.kept.items())

    def run_all(self) -> list[int]:
        return [self.run(*command) for command in COMMANDS]

    def open(self) -> str:
        """Open the table by the Python API; the traceback where that fails."""
        options = dict(each.removeprefix("--storage-option=").split("=", 1) for each in self.options)
        return self.trace_of(lambda _: open_table(self.table, storage_options=options))

    def give(self, **options: str) -> None:
        """Options of the storage, in whose names `_` stands for a dot and `__` for a hyphen."""
        self.options += [
            f"--storage-option={name.replace('__', '-').replace('_', '.')}={text}"
            for name, text in options.items()
        ]

    def fail(self, failing: Callable[[Request], bool], failure: StorageFailure) -> None:
        fail(self.storage, failing, failure, otherwise=self.objects.answer)


@pytest.fixture
def case(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Case:
    """The table has deletion vectors in two files, and two files that were removed a minute ago."""
    set_up_a_case(tmp_path, monkeypatch, caplog)
    table, objects = tmp_path / "given" / "t", Objects()
    founding = [
        a_protocol_with("deletionVectors"),
        a_metadata(configuration={"delta.enableDeletionVectors": "true"}),
    ]
    vectors = [*write_vectors(table, 1, [0]), *write_vectors(table, 2, [1])]
    adds = [an_add(path=path) for path in ("c", "d")] + [
        an_add(path=path, dv=dv) for path, dv in zip("ab", vectors, strict=True)
    ]
    removes = [a_remove(path=path, deletionTimestamp=now_ms() - 60_000) for path in ("c", "d")]
    write_log(table, [*founding, *adds], removes)
    for path in ("a", "b", "c", "d"):
        (table / path).write_bytes(bytes(100))
    for file in table.rglob("*"):
        if file.is_file():
            objects.put(f"/b/t/{file.relative_to(table)}", file.read_bytes(), {})
    found = Case(
        markers=Markers(), folder=tmp_path, caplog=caplog, table="s3://b/t", storage=recorder, objects=objects
    )
    give_secrets(found, monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", recorder.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    found.fail(lambda _: False, in_xml(500, "InternalError"))
    return found


Secrets = Callable[[Case, pytest.MonkeyPatch], object]


def by_the_environment(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every case has them."""


def by_options(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    at = case.markers.at
    case.give(
        s3_access__key__id="own",
        s3_secret__access__key=at("s3.secret-access-key"),
        s3_session__token=at("s3.session-token"),
    )


def by_names_of_s3fs(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.give(key="own", secret=case.markers.at("secret"), token=case.markers.at("token"))


def in_a_credentials_file(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    at = case.markers.at
    file = case.folder / "given" / "credentials"
    file.write_text(
        f"[prod]\naws_access_key_id = own\naws_secret_access_key = {at('aws_secret_access_key')}\n"
        f"aws_session_token = {at('aws_session_token')}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "prod")


def by_a_customers_key(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    key = case.markers.at("bytes of the key").ljust(32, "=")
    case.markers.by_place["the key in Base64"] = base64.b64encode(key.encode()).decode()
    case.give(s3_sse_type="custom", s3_sse_key=case.markers.by_place["the key in Base64"])


def in_the_endpoint(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.give(s3_endpoint=_with_user(case, case.storage.endpoint, "password in the endpoint"))


def in_a_variable_of_the_endpoint(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL", _with_user(case, case.storage.endpoint, "password in the endpoint")
    )


def of_a_proxy(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", _with_user(case, case.storage.endpoint, "password of the proxy"))
    monkeypatch.setenv("http_proxy", _with_user(case, case.storage.endpoint, "password of the proxy"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example")


def _with_user(case: Case, url: str, place: str) -> str:
    password = case.markers.at(place)
    case.markers.by_place[f"{place}, in Base64"] = base64.b64encode(f"user:{password}".encode()).decode()
    return url.replace("://", f"://user:{password}@")


ALWAYS: Final = (by_the_environment, of_a_proxy)
RARELY: Final = (by_options, by_names_of_s3fs, in_a_credentials_file, by_a_customers_key)
SECRETS: Final = (*ALWAYS, *(pytest.param(each, marks=pytest.mark.deep) for each in RARELY))


@pytest.mark.deep
@pytest.mark.parametrize("secrets", [by_options, of_a_proxy])
def test_nothing_shows_where_all_goes_well(
    case: Case, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets(case, monkeypatch)
    assert {each for each, code in zip(COMMANDS, case.run_all(), strict=True) if code} == set()
    assert case.open() == ""


@pytest.mark.parametrize("secrets", SECRETS)
def test_nothing_shows_where_nothing_can_be_read(
    case: Case, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets(case, monkeypatch)
    case.fail(lambda _: True, in_xml(403, "AccessDenied"))
    assert case.run("inspect", "TABLE", "--format=json") == 16
    assert "why" in case.open()


@pytest.mark.deep
@pytest.mark.parametrize("secrets", [in_the_endpoint, in_a_variable_of_the_endpoint])
def test_nothing_shows_of_an_endpoint_that_no_request_can_be_signed_for(
    case: Case, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets(case, monkeypatch)
    assert case.run("inspect", "TABLE", "--format=json") == 16
    assert case.run(*EXPIRE, "--yes") == 16
    assert case.open()


@pytest.mark.deep
def test_nothing_shows_where_files_cannot_be_deleted(case: Case) -> None:
    case.fail(is_later_deletion, in_xml(403, "AccessDenied"))
    assert case.run(*EXPIRE, "--yes", "--format=json") == 14
    assert case.run("resume", "TABLE", WORD) == 14
    case.run("resume", "TABLE", "--list")


@pytest.mark.deep
@pytest.mark.parametrize("failing", [is_deletion, is_later_deletion])
@pytest.mark.parametrize("failure", STORAGE_FAILURES)
def test_nothing_shows_where_the_storage_fails(
    case: Case, failing: Callable[[Request], bool], failure: StorageFailure
) -> None:
    case.fail(failing, failure)
    assert case.run(*EXPIRE, "--yes") in (14, 16)
    case.run("resume", "TABLE", WORD)


def is_commit(request: Request) -> bool:
    return request.method == "PUT" and "/_delta_log/0" in request.path


@pytest.mark.deep
def test_nothing_shows_where_the_log_cannot_be_written(case: Case) -> None:
    case.fail(is_commit, in_xml(500, "InternalError"))
    codes = dict(zip(COMMANDS, case.run_all(), strict=True))
    assert {code for command, code in codes.items() if command[0] == "upgrade-v3"} <= {13, 16}

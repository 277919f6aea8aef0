"""No secret of Google Cloud Storage or Azure shows, whatever the service answers and wherever it repeats them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from iceberg_cli.storage import backoff
from tests.budget import deep_unless
from tests.builders import DAY_MS, TableWriter
from tests.cli.lakes import AS_OF, LONG_AGO_MS
from tests.cli.running import iceberg_cli
from tests.emulators import ACCOUNT, KEY, Azurite, FakeGcs
from tests.markers import Markers
from tests.s3_front import PassingOn, Request, Response, serving

GCS_PATH = "gs://bucket/t"
AZURE_PATH = f"abfss://container@{ACCOUNT}.dfs.core.windows.net/t"


def in_both(request: Request, status: int) -> Response:
    """An answer that repeats the whole request, in the language of the service that it was meant for."""
    repeated = f"{unquote(request.path)} {dict(request.headers)}"
    if "/storage/v1" in request.path:
        body = json.dumps({"error": {"code": status, "message": f"why: {repeated}"}})
        return Response(status, [("Content-Type", "application/json")], body.encode())
    words = repeated.replace("&", "&amp;").replace("<", "&lt;")
    body = f"<?xml version='1.0'?><Error><Code>Why</Code><Message>{words}</Message></Error>"
    return Response(status, [("Content-Type", "application/xml"), ("x-ms-error-code", "Why")], body.encode())


class _Repeating(PassingOn):
    status: ClassVar[int]

    def response(self, request: Request) -> Response:
        return in_both(request, self.status)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(backoff, "_FIRST_THROTTLED_WAIT_S", 0.001)
    azure = pytest.importorskip("iceberg_cli.storage.azure.blobs")
    monkeypatch.setattr(azure, "_WAITS", dict.fromkeys(azure._WAITS, 0))


_BY_PATH = ("adls.blob-storage-scheme=http", "adls.blob-storage-authority=HOST")
# The paths and options of each kind of secret; URL and HOST are the service's, and MARK is the secret.
GIVEN: dict[str, tuple[str, ...]] = {
    "token": (GCS_PATH, "gcs.service.host=URL", "gcs.oauth2.token=MARK"),
    "key in JSON": (
        GCS_PATH,
        "gcs.service.host=URL",
        'gcs.oauth2.token={"type": "service_account", "private_key": "MARK"}',
    ),
    "no JSON": (GCS_PATH, "gcs.oauth2.token={MARK"),
    "user in the endpoint": (GCS_PATH, "gcs.service.host=http://me:MARK@HOST", "gcs.no-auth=true"),
    "account key": (AZURE_PATH, "adls.account-key=BASE64", *_BY_PATH),
    "no account key": (AZURE_PATH, "adls.auth.shared-key.account.key=MARK!", *_BY_PATH),
    "signature": (AZURE_PATH, f"adls.sas-token.{ACCOUNT}=sv=2024&sr=c&sig=MARK%2B%3D", *_BY_PATH),
    "connection string": (
        AZURE_PATH,
        f"adls.connection-string=AccountName={ACCOUNT};BlobEndpoint=URL/{ACCOUNT};SharedAccessSignature=sv=1&sig=MARK",
    ),
    "no connection string": (AZURE_PATH, "adls.connection-string=MARK"),
    "token without TLS": (AZURE_PATH, "adls.token=MARK", *_BY_PATH),
}


@pytest.mark.parametrize("status", deep_unless([403], [400, 403, 500]))
@pytest.mark.parametrize("given", GIVEN)
def test_nothing_shows_where_the_service_repeats_what_it_was_sent(given: str, status: int) -> None:
    markers = Markers()
    path, *options = GIVEN[given]
    marker = markers.at(given)
    encoded = b64encode(marker.encode()).decode()
    with serving(_Repeating, status=status) as url:
        places = {"URL": url, "HOST": urlsplit(url).netloc, "MARK": marker, "BASE64": encoded}
        for name, text in places.items():
            options = [each.replace(name, text) for each in options]
        words = [word for each in options for word in ("--storage-option", each)]
        for form in ("text", "json"):
            ran = iceberg_cli("inspect", path, *words, "--format", form)
            assert ran.code in (2, 16), (ran.out, ran.err)
            shown = ran.out + ran.err
            assert markers.found_in(shown) == [], shown
            assert encoded not in shown
            assert b64encode(f"me:{marker}".encode()).decode() not in shown


class _Failing(PassingOn):
    """Passes on all requests but some, which it answers with what they have."""

    behind: ClassVar[str]
    fails: ClassVar[Callable[[Request], bool]]
    failed: ClassVar[list[str]]

    def response(self, request: Request) -> Response:
        if type(self).fails(request):
            self.failed.append(request.path)
            return in_both(request, 403)
        return request.forward(self.behind)


def is_deletion(request: Request) -> bool:
    return request.method == "DELETE" or "/batch/" in request.path or "comp=batch" in request.path


def is_upload(request: Request) -> bool:
    return request.method == "PUT" or "/upload/" in request.path


@pytest.mark.parametrize("fails", [is_deletion, pytest.param(is_upload, marks=pytest.mark.deep)])
def test_nothing_shows_where_an_expiry_on_gcs_fails(
    fake_gcs: FakeGcs, fails: Callable[[Request], bool]
) -> None:
    markers, failed = Markers(), list[str]()
    location = a_table(fake_gcs.storage, fake_gcs.new_folder())
    with serving(_Failing, behind=fake_gcs.endpoint, fails=staticmethod(fails), failed=failed) as url:
        options = (f"gcs.service.host={url}", f"gcs.oauth2.token={markers.at('token')}")
        assert markers.found_in(expire(location, *options)) == []
    assert failed


@pytest.mark.parametrize("fails", [is_deletion, pytest.param(is_upload, marks=pytest.mark.deep)])
def test_nothing_shows_where_an_expiry_on_azure_fails(
    azurite: Azurite, fails: Callable[[Request], bool]
) -> None:
    failed = list[str]()
    location = a_table(azurite.storage, azurite.new_folder())
    with serving(_Failing, behind=azurite.endpoint, fails=staticmethod(fails), failed=failed) as url:
        shown = expire(location, *("=".join(item) for item in azurite.options_at(url).items()))
    assert failed
    assert KEY not in shown
    assert "SharedKey" not in shown


def a_table(storage: object, folder: str) -> str:
    writer = TableWriter(storage=storage, location=f"{folder}/t")  # type: ignore[arg-type]
    writer.commit(1, age_ms=LONG_AGO_MS + 9 * DAY_MS, add=["one"])
    writer.commit(2, age_ms=LONG_AGO_MS + 8 * DAY_MS, add=["two"], remove=["one"])
    writer.publish("v1.metadata.json")
    return writer.location


def expire(location: str, *options: str) -> str:
    """All that a failed expiry shows."""
    words = [word for each in options for word in ("--storage-option", each)]
    own = (
        "--unsafe-single-writer",
        "--unsafe-conditional-writes",
        "--yes",
        "--no-cache",
        "--verbose",
        *AS_OF,
    )
    ran = iceberg_cli("expire-snapshots", location, "--older-than", "1s", "--retain-last", "1", *own, *words)
    assert ran.code == 16, (ran.out, ran.err)
    return ran.out + ran.err

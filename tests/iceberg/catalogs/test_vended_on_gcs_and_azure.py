"""Tables of a REST catalog on Google Cloud Storage and Azure, by the credentials that the catalog gives for each.

The catalog is one of a few lines, in which PyIceberg holds a commit against its requirements and carries it out:
Iceberg's own server would need another endpoint of Azure, which Azurite has not. PyIceberg moves no table to version 3.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import update_table_metadata

from tests.builders import DAY_MS, TableWriter
from tests.cli.lakes import AS_OF, LONG_AGO_MS
from tests.cli.running import iceberg_cli
from tests.emulators import ACCOUNT, KEY, Azurite, FakeGcs, ObjectStore
from tests.s3_front import PassingOn, Request, Response, serving

VERBS: Mapping[str, tuple[str, ...]] = {
    "expire-snapshots": ("--older-than", "1s", "--retain-last", "1", *AS_OF),
    "rewrite-manifests": (),
}


@dataclass
class Catalog:
    """The only table of a catalog.

    Args:
        store: of the table.
        location: of its metadata.
        credentials: new ones at each question, as options.
    """

    store: ObjectStore
    location: str
    credentials: Callable[[], Mapping[str, str]]
    given: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self) -> dict[str, Any]:
        self.given += 1
        return {
            "metadata-location": self.location,
            "metadata": json.loads(self.store.storage.read(self.location)),
            "storage-credentials": [{"prefix": self.store.root, "config": self.credentials()}],
        }

    def commit(self, body: bytes) -> dict[str, Any]:
        """Carry out a commit.

        Raises:
            CommitFailedException: a requirement does not hold.
        """
        sent = CommitTableRequest.model_validate_json(body)
        with self.lock:
            base = TableMetadataUtil.parse_raw(self.store.storage.read(self.location).decode())
            for requirement in sent.requirements:
                requirement.validate(base)
            changed = update_table_metadata(base, sent.updates, metadata_location=self.location)
            folder = self.location.rpartition("/")[0]
            self.location = f"{folder}/{len(changed.metadata_log):05d}-{uuid.uuid4()}.metadata.json"
            self.store.storage.put_if_absent(self.location, changed.model_dump_json().encode())
            return self.answer()


class _Handler(PassingOn):
    catalog: ClassVar[Catalog]

    def response(self, request: Request) -> Response:
        if urlsplit(request.path).path.endswith("/config"):
            return _json(200, {"defaults": {}, "overrides": {}})
        if request.method == "GET":
            return _json(200, self.catalog.answer())
        try:
            return _json(200, self.catalog.commit(request.body))
        except CommitFailedException as error:
            what = {"message": str(error), "type": "CommitFailedException", "code": 409}
            return _json(409, {"error": what})


def _json(status: int, document: Mapping[str, Any]) -> Response:
    return Response(status, [("Content-Type", "application/json")], json.dumps(document).encode())


class _Guard(PassingOn):
    """Google Cloud Storage that takes a token for a number of requests, as if it had ended then."""

    behind: ClassVar[str]
    left: ClassVar[dict[str, int]]

    def response(self, request: Request) -> Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.left.get(token, 0) <= 0:
            return _json(401, {"error": {"code": 401, "message": "Invalid Credentials"}})
        self.left[token] -= 1
        return request.forward(self.behind)


@contextmanager
def credentials_for(
    store: ObjectStore, requests: int
) -> Iterator[tuple[Callable[[], Mapping[str, str]], Mapping[str, int]]]:
    """What a catalog gives for a store; on Google Cloud Storage the first token is good for so many requests.

    Also how many requests each token is good for.
    """
    ends_s = time.time() + 3600  # noqa: TID251 - credentials end by the clock
    if isinstance(store, FakeGcs):
        left: dict[str, int] = {}
        with serving(_Guard, behind=store.endpoint, left=left) as url:

            def tokens() -> Mapping[str, str]:
                token = f"ya29.{uuid.uuid4().hex}"
                left[token] = 1_000_000 if left else requests
                ends_ms = str(round(ends_s * 1000))
                return {
                    "gcs.service.host": url,
                    "gcs.oauth2.token": token,
                    "gcs.oauth2.token-expires-at": ends_ms,
                }

            yield tokens, left
        return
    from azure.storage.blob import generate_container_sas

    def signatures() -> Mapping[str, str]:
        signature = generate_container_sas(
            ACCOUNT,
            "warehouse",
            account_key=KEY,
            permission="rwdl",
            expiry=datetime.fromtimestamp(ends_s, UTC),
        )
        host = f"{ACCOUNT}.dfs.core.windows.net"
        return {
            f"adls.sas-token.{host}": signature,
            f"adls.sas-token-expires-at-ms.{host}": str(round(ends_s * 1000)),
            f"adls.connection-string.{ACCOUNT}": f"{store.endpoint}/{ACCOUNT}",
        }

    yield signatures, {}


@pytest.mark.deep
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["fake_gcs", "azurite"])
def test_a_verb_goes_by_the_credentials_that_the_catalog_gives(
    name: str, verb: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: FakeGcs | Azurite = request.getfixturevalue(name)
    writer = TableWriter(storage=store.storage, location=f"{store.new_folder()}/t")
    for number in range(1, 7):
        add, remove = [f"a{number}", f"b{number}"], [f"a{number - 1}"] if number > 1 else []
        writer.commit(number, age_ms=LONG_AGO_MS + (20 - number) * DAY_MS, add=add, remove=remove)
    live = {f"data/b{number}.parquet" for number in range(1, 7)} | {"data/a6.parquet"}
    every = live | {f"data/a{number}.parquet" for number in range(1, 6)}
    with credentials_for(store, requests=20) as (credentials, left):
        catalog = Catalog(store, writer.publish(), credentials)
        with serving(_Handler, catalog=catalog) as uri:
            config = tmp_path / "pyiceberg.yaml"
            config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {uri}\n")
            words = (*VERBS[verb], "--catalog-config", config, "--yes", "--format", "json", "--no-cache")
            ran = iceberg_cli(verb, "prod.a.t", *words)
            assert (ran.code, ran.json.get("status")) == (0, "done"), (ran.out, ran.err)
            again = iceberg_cli(verb, "prod.a.t", *words)
            assert again.json["status"] == "nothing_to_do"
            checked = iceberg_cli("inspect", "prod.a.t", "--catalog-config", config, "--format", "json")
    assert checked.code == 0
    kept = {path.removeprefix(f"{writer.location}/") for path in store.storage.paths(writer.location)}
    assert {each for each in kept if each.startswith("data/")} == (
        live if verb == "expire-snapshots" else every
    )
    metadata = json.loads(store.storage.read(catalog.location))
    assert len(metadata["snapshots"]) == {"expire-snapshots": 1, "rewrite-manifests": 7}[verb]
    if name == "fake_gcs":
        assert 0 in left.values()  # the first token ended on the way

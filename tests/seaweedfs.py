"""SeaweedFS: a REST catalog that is built on iceberg-go, and the S3 service on which its tables are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.go_servers import SEAWEEDFS
from tests.servers import S3Server, free_port, go_binary, running

_PORTS: Final = (
    *("master.port", "filer.port", "volume.port", "s3.port", "admin.port"),
    *("master.port.grpc", "filer.port.grpc", "volume.port.grpc", "s3.port.grpc", "admin.port.grpc"),
    "s3.port.iceberg",
)
_RIGHTS: Final = ("Admin", "Read", "List", "Tagging", "Write")


@dataclass(frozen=True)
class SeaweedFS(S3Server):
    """A server whose bucket is a table bucket: objects there are tables' files by their names, or records in `_...`."""

    uri: str

    @property
    def catalog_options(self) -> Mapping[str, str]:
        """The properties by which a catalog is configured, beside its `uri` and the storage's."""
        return {
            "warehouse": f"s3://{self.bucket}",
            "credential": f"{self.options['key']}:{self.options['secret']}",
            "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
        }


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    """Without a user interface, telemetry, and what else it would start."""
    boto3 = pytest.importorskip("boto3")
    binary, ports = go_binary(SEAWEEDFS), {name: free_port() for name in _PORTS}
    port = ports["s3.port.iceberg"]
    found = SeaweedFS(
        endpoint=f"http://127.0.0.1:{ports['s3.port']}", bucket="warehouse", uri=f"http://127.0.0.1:{port}"
    )
    who = {"accessKey": found.options["key"], "secretKey": found.options["secret"]}
    identity = {"name": "tests", "credentials": [who], "actions": _RIGHTS}
    with tempfile.TemporaryDirectory(prefix="ice-weed-") as folder:
        identities = Path(folder, "identities.json")
        identities.write_text(json.dumps({"identities": [identity]}))
        settings = {
            **ports,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "dir": folder,
            "s3.config": str(identities),
            "master.telemetry": "false",
            "admin.ui": "false",
            "admin.port.legacy": 0,
            "webdav": "false",
            "s3.port.lance": 0,
            "volume.preStopSeconds": 0,
        }
        with running([str(binary), "mini", *(f"-{name}={value}" for name, value in settings.items())], port):
            boto3.client(
                "s3tables",
                endpoint_url=found.endpoint,
                aws_access_key_id=found.options["key"],
                aws_secret_access_key=found.options["secret"],
                region_name=found.options["region"],
            ).create_table_bucket(name=found.bucket)
            yield found

"""Tables of a REST catalog whose files may be touched by the credentials that it vends, and by no others."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

from iceberg_cli.cli.app import make_app
from tests.rest_servers import Front
from tests.s3_users import GuardedS3


@dataclass
class VendingFront(Front):
    """A server that vends credentials: each answer about a table goes through `vend`."""

    vend: Callable[[dict[str, Any]], None] = lambda _: None

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        status, content, kind = super().forward(method, path, headers, body)
        if method == "GET" and status == 200 and "/tables/" in path:
            answer = json.loads(content)
            self.vend(answer)
            content = json.dumps(answer).encode()
        return status, content, kind


@dataclass
class VendedTable:
    """A table with metadata on a local disk and data in a bucket of user `two`, of whose files some are overwritten."""

    front: VendingFront
    theirs: RestCatalog
    name: tuple[str, str]
    data: str
    users: GuardedS3
    folder: Path

    def run(self, *arguments: str) -> Any:
        """Run a command with no S3 credentials of our own; its result."""
        config = self.folder / "pyiceberg.yaml"
        config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {self.front.uri}\n")
        command, *others = arguments
        name = ".".join(("prod", *self.name))
        line = [command, name, *others, "--catalog-config", str(config), "--no-cache"]
        return CliRunner().invoke(make_app(), line)

    def expire(self, *arguments: str) -> Any:
        return self.run(
            "expire-snapshots",
            "--older-than",
            "0s",
            "--retain-last",
            "1",
            "--yes",
            "--format",
            "json",
            *arguments,
        )

    def data_files(self) -> list[str]:
        """The locations of those that are there."""
        bucket, _, folder = self.data.removeprefix("s3://").partition("/")
        page = self.users.client().list_objects_v2(Bucket=bucket, Prefix=f"{folder}/")
        return [f"s3://{bucket}/{each['Key']}" for each in page.get("Contents", ())]

    @property
    def bucket(self) -> str:
        return self.data.split("/")[2]


@pytest.fixture
def vended(rest_server: str, guarded_s3: GuardedS3, tmp_path: Path) -> Iterator[VendedTable]:
    bucket = guarded_s3.new_bucket("two")
    data = f"s3://{bucket}/t/data"
    theirs = RestCatalog("theirs", uri=rest_server, **guarded_s3.options_of("two"))
    namespace = f"n{uuid.uuid4().hex}"
    theirs.create_namespace((namespace,))
    table = theirs.create_table(
        (namespace, "t"),
        pa.schema([("i", pa.int64())]),
        location=f"file://{tmp_path}/t",
        properties={"write.data.path": data},
    )
    for number in range(3):
        table.overwrite(pa.table({"i": [number]}))
    with VendingFront(rest_server) as front:
        vended = VendedTable(front, theirs, (namespace, "t"), data, guarded_s3, tmp_path)

        def vend(answer: dict[str, Any]) -> None:
            answer["config"] = guarded_s3.options_of("one")
            answer["storage-credentials"] = [
                {"prefix": "s3", "config": guarded_s3.options_of("one")},
                {"prefix": f"{data}/", "config": guarded_s3.options_of("two")},
            ]

        front.vend = vend
        yield vended


def test_data_elsewhere_is_deleted_by_the_credentials_of_its_prefix(vended: VendedTable) -> None:
    before = vended.data_files()
    result = vended.expire("--unsafe-allow-root", vended.data)
    assert result.exit_code == 0, result.output
    live = {task.file.file_path for task in vended.theirs.load_table(vended.name).scan().plan_files()}
    assert len(before) == 3
    assert set(vended.data_files()) == live

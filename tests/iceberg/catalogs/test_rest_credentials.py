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

from tests.cli.running import Ran, iceberg_cli
from tests.rest_servers import Front, empty_table_of_integers
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

    def run(self, *arguments: str) -> Ran:
        """Run a command with no S3 credentials of our own."""
        config = self.folder / "pyiceberg.yaml"
        config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {self.front.uri}\n")
        command, *others = arguments
        name = ".".join(("prod", *self.name))
        return iceberg_cli(command, name, *others, "--catalog-config", config, "--format", "json")

    def expire(self, *arguments: str) -> Ran:
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
    namespace, options = f"n{uuid.uuid4().hex}", guarded_s3.options_of("two")
    properties = {"write.data.path": data}
    theirs, table = empty_table_of_integers(
        rest_server, (namespace,), f"file://{tmp_path}/t", options, properties
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
    assert result.code == 0, result.out
    live = {task.file.file_path for task in vended.theirs.load_table(vended.name).scan().plan_files()}
    assert len(before) == 3
    assert set(vended.data_files()) == live


def test_a_storage_that_refuses_deletions_is_found_out_before_the_commit(vended: VendedTable) -> None:
    vended.users.deny(vended.bucket, "two", ["DeleteObject"])
    location, before = vended.theirs.load_table(vended.name).metadata_location, vended.data_files()
    result = vended.expire("--unsafe-allow-root", vended.data)
    assert result.code == 16, result.out
    error = result.json
    assert f"the storage did not delete in {vended.data}, where files would go" in error["message"]
    assert "s3:DeleteObject" in error["message"]
    assert error["state"] == "Nothing was changed."
    assert vended.theirs.load_table(vended.name).metadata_location == location
    assert vended.data_files() == before
    assert [*(vended.folder / "t").iterdir()] == [vended.folder / "t" / "metadata"]
    # Where no files are to go, nobody needs that right.
    assert vended.expire("--cleanup", "none").code == 0


def test_a_storage_that_refuses_listings_is_found_out_before_the_commit(vended: VendedTable) -> None:
    vended.users.deny(vended.bucket, "two", ["ListBucket"])
    location = vended.theirs.load_table(vended.name).metadata_location
    result = vended.expire("--unsafe-allow-root", vended.data)
    assert result.code == 16, result.out
    assert f"Cannot list {vended.data}: AccessDenied" in result.json["message"]
    assert result.json["state"] == "Nothing was changed."
    assert vended.theirs.load_table(vended.name).metadata_location == location


def test_a_file_that_may_not_be_deleted_is_a_failed_deletion_with_its_reason(vended: VendedTable) -> None:
    live = {task.file.file_path for task in vended.theirs.load_table(vended.name).scan().plan_files()}
    held, _ = sorted(set(vended.data_files()) - live)
    vended.users.deny(
        vended.bucket, "two", ["DeleteObject"], keys=held.removeprefix(f"s3://{vended.bucket}/")
    )
    result = vended.expire("--unsafe-allow-root", vended.data)
    assert result.code == 14, result.out
    assert set(vended.data_files()) == {*live, held}
    (failed,) = result.json["failed_deletes"]
    assert failed["path"] == held
    assert failed["reason"].startswith("AccessDenied: ")
    # Once the reason is gone, the rest goes.
    vended.users.deny(vended.bucket, "two")
    again = vended.run("resume")
    assert again.code == 0, again.out
    assert set(vended.data_files()) == live

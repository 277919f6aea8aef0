"""The properties of Iceberg that docs/pages/properties.md lists: each row of its table is what the program does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import Refused
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.catalogs.glue.committer import GlueCommitter
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.plan.plan import Task
from iceberg_cli.storage.gcs.options import GcsOptions
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.storage.s3.options import S3Options, with_table_tags
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, commit_path, write_log
from tests.builders import DAY_MS, TableWriter
from tests.cli.lakes import AS_OF, LONG_AGO_MS
from tests.cli.running import Ran, iceberg_cli
from tests.docs.pages import PAGES
from tests.docs.test_pages import rows, text_of
from tests.servers import MotoServer

HONOURED, REFUSED, STAY = "honoured", "refused (11)", "files stay"
ROWS = {name.strip("`"): (of, what) for name, of, what, _ in rows(text_of(PAGES / "properties.md"))}
CODEC = "write.metadata.compression-codec"
DELETES = "write.metadata.delete-after-commit.enabled"


@dataclass
class Place:
    """A folder for tables, and a service for objects."""

    folder: Path
    s3: MotoServer

    def table(self, properties: Mapping[str, str]) -> Path:
        """A table of two snapshots of one branch, the first of which can expire."""
        writer = TableWriter(
            storage=LocalStorage(), location=str(self.folder / "t"), properties=dict(properties)
        )
        writer.commit(1, age_ms=LONG_AGO_MS + 9 * DAY_MS, add=["one"])
        writer.commit(2, age_ms=LONG_AGO_MS + 8 * DAY_MS, add=["two"], remove=["one"])
        writer.publish("v1.metadata.json")
        return self.folder / "t"

    def opened(self, properties: Mapping[str, str]) -> IcebergTable:
        table = open_table(str(self.table(properties)), storage_options={}, on_event=lambda _: None)
        assert isinstance(table, IcebergTable)
        return table

    def expired(self, properties: Mapping[str, str], *options: object) -> Ran:
        """The expiry of the first snapshot."""
        folder = self.table(properties)
        keep = ("--older-than", "5d", "--retain-last", 1, "--yes", "--format", "json")
        return iceberg_cli("expire-snapshots", folder, *AS_OF, *keep, *options)

    def blocked(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """What blocks a plan for a Delta table on the service that is opened by these options."""
        name = f"{self.folder.name}/delta"
        write_log(self.folder / "delta", [a_protocol(), a_metadata()])
        commit = commit_path(self.folder / "delta", 0)
        key = f"{name}/_delta_log/{commit.name}"
        self.s3.client().put_object(Bucket=self.s3.bucket, Key=key, Body=commit.read_bytes())
        options = {**self.s3.options, **options}
        place = f"s3://{self.s3.bucket}/{name}"
        found = ic.open_table(place, storage_options=options, conditional_writes=True)
        return tuple(found.plan(ic.delta.UpgradeV3()).blocked_by)

    def written(self, options: Mapping[str, str]) -> dict[str, Any]:
        """What the service has of an object that was written by these options."""
        key = f"{self.folder.name}/written"
        storage = open_storage({**self.s3.options, **options})
        storage.put_if_absent(f"s3://{self.s3.bucket}/{key}", b"x")
        client, where = self.s3.client(), {"Bucket": self.s3.bucket, "Key": key}
        tags = client.get_object_tagging(**where)["TagSet"]
        grants = client.get_object_acl(**where)["Grants"]
        return {
            **client.head_object(**where),
            "tags": {each["Key"]: each["Value"] for each in tags},
            "readers": [each["Grantee"].get("URI", "") for each in grants],
        }

    def deleted(self, options: Mapping[str, str]) -> dict[str, str] | None:
        """The tags of an object after it was deleted by these options; None: it is gone."""
        key = f"{self.folder.name}/deleted"
        open_storage(self.s3.options).put_if_absent(f"s3://{self.s3.bucket}/{key}", b"x")
        assert open_storage({**self.s3.options, **options}).delete([f"s3://{self.s3.bucket}/{key}"]) == {}
        client, where = self.s3.client(), {"Bucket": self.s3.bucket, "Key": key}
        if client.list_objects_v2(Bucket=self.s3.bucket, Prefix=key)["KeyCount"] == 0:
            return None
        return {each["Key"]: each["Value"] for each in client.get_object_tagging(**where)["TagSet"]}


def metadata_files(place: Place) -> set[str]:
    return {path.name for path in (place.folder / "t" / "metadata").glob("*.json*")}


def deletes_enabled(place: Place) -> None:
    tags = {"s3.delete.tags.Old": "yes"}
    assert place.deleted({"s3.delete-enabled": "false", **tags}) == {"Old": "yes"}


def delete_tags(place: Place) -> None:
    assert place.deleted({"s3.delete.tags.Old": "yes"}) is None  # as deletions are on


def table_tag(_: Place) -> None:
    found = with_table_tags({"s3.write.table-tag-enabled": "true"}, namespace="n", table="t")
    assert S3Options.of(found).written == {"Tagging": "iceberg.table=t"}


def namespace_tag(_: Place) -> None:
    found = with_table_tags({"s3.write.namespace-tag-enabled": "true"}, namespace="n", table="t")
    assert S3Options.of(found).written == {"Tagging": "iceberg.namespace=n"}


def write_tags(place: Place) -> None:
    assert place.written({"s3.write.tags.Owner": "a b"})["tags"] == {"Owner": "a b"}


def storage_class(place: Place) -> None:
    assert place.written({"s3.write.storage-class": "STANDARD_IA"})["StorageClass"] == "STANDARD_IA"
    for name in ("GLACIER", "deep_archive"):
        storage = open_storage({**place.s3.options, "s3.write.storage-class": name})
        reason = storage.unwritable_reason(f"s3://{place.s3.bucket}/t")  # type: ignore[attr-defined]
        assert reason.startswith(f"s3.write.storage-class={name.upper()}: ")
        assert reason in place.blocked({"s3.write.storage-class": name})


def acl(place: Place) -> None:
    assert any("AllUsers" in each for each in place.written({"s3.acl": "public-read"})["readers"])


def encrypted(place: Place) -> None:
    assert place.written({"s3.sse.type": "s3"})["ServerSideEncryption"] == "AES256"


def access_point(place: Place) -> None:
    options = {**place.s3.options, f"s3.access-points.other-{place.folder.name}": place.s3.bucket}
    open_storage(options).put_if_absent(f"s3://other-{place.folder.name}/{place.folder.name}/x", b"x")
    assert open_storage(place.s3.options).read(f"s3://{place.s3.bucket}/{place.folder.name}/x") == b"x"


def requester_pays(_: Place) -> None:
    assert S3Options.of({"s3.requester-pays": "true"}).parameters == {"RequestPayer": "requester"}


def user_project(_: Place) -> None:
    assert GcsOptions.of({"gcs.user-project": "p"}).user_project == "p"


def own_key(option: str) -> Callable[[Place], None]:
    def check(_: Place) -> None:
        with pytest.raises(Refused, match=re.escape(option)):
            open_storage({option: "k"}).read("gs://b/k")

    return check


def batch_size(_: Place) -> None:
    assert S3Options.of({"s3.delete.batch-size": "7"}).delete_batch == 7


def threads(_: Place) -> None:
    assert S3Options.of({"s3.delete.num-threads": "3"}).tag_threads == 3


def file_io(option: str, known: str) -> Callable[[Place], None]:
    def check(place: Place) -> None:
        refused = place.expired({}, "--storage-option", f"{option}=com.example.EncryptingFileIO")
        assert refused.code == 11
        assert f"{option}=com.example.EncryptingFileIO" in refused.json["message"]
        assert (place.folder / "t/data/one.parquet").exists()
        assert (
            iceberg_cli("inspect", place.folder / "t", "--storage-option", f"{option}=com.example.X").code
            == 0
        )
        again = (
            "expire-snapshots",
            place.folder / "t",
            *AS_OF,
            "--yes",
            "--storage-option",
            f"{option}={known}",
        )
        assert iceberg_cli(*again).code == 0

    return check


def lock(_: Place) -> None:
    connection: Any = SimpleNamespace(name="g", properties={"lock-impl": "com.example.Lock"})
    committer = GlueCommitter(connection, namespace="n", table="t", storage=LocalStorage())
    assert "lock-impl=com.example.Lock" in str(committer.read_only_reason())


def encryption_key(place: Place) -> None:
    place.table({"encryption.key-id": "k"})
    # Its manifests are not encrypted: the property alone says that those of others are.
    refused = iceberg_cli(
        "rewrite-manifests", place.folder / "t", "--all-manifests", "--yes", "--format", "json", *AS_OF
    )
    assert refused.code == 11
    assert "encryption.key-id" in refused.json["message"]


def gc(place: Place) -> None:
    refused = place.expired({"gc.enabled": "false"})
    assert refused.code == 11
    assert "gc.enabled=false" in refused.json["message"]
    assert (place.folder / "t/data/one.parquet").exists()


def drops_metadata(place: Place) -> None:
    place.expired({DELETES: "true", "write.metadata.previous-versions-max": "1"})
    assert {"v1.metadata.json", "v2.metadata.json"} <= metadata_files(place)
    assert iceberg_cli("rewrite-manifests", place.folder / "t", "--all-manifests", "--yes", *AS_OF).code == 0
    assert "v1.metadata.json" not in metadata_files(place)
    assert "v2.metadata.json" in metadata_files(place)


def codec(place: Place) -> None:
    assert place.expired({CODEC: "gzip"}).code == 0
    assert any(name.endswith((".gz.metadata.json", ".metadata.json.gz")) for name in metadata_files(place))


def metadata_path(place: Place) -> None:
    elsewhere = f"{place.folder}/elsewhere"
    table = place.opened({"write.metadata.path": elsewhere})
    task = Task(name="m0.avro", kind="manifest")
    assert table.workspace.staging_path("op", task) == f"{elsewhere}/op-m0.avro"
    assert elsewhere in table.roots().folders


def data_path(place: Place) -> None:
    elsewhere = f"{place.folder}/elsewhere"
    table = place.opened({"write.data.path": elsewhere})
    task = Task(name="v0.puffin", kind="puffin")
    assert table.workspace.staging_path("op", task) == f"{elsewhere}/op-v0.puffin"
    assert elsewhere in table.roots().folders


def old_path(option: str) -> Callable[[Place], None]:
    def check(place: Place) -> None:
        elsewhere = f"{place.folder}/elsewhere"
        assert elsewhere not in place.opened({option: elsewhere}).roots().folders

    return check


CHECKS: dict[str, tuple[str, Callable[[Place], None]]] = {
    "s3.delete-enabled": (HONOURED, deletes_enabled),
    "s3.delete.tags.NAME": (HONOURED, delete_tags),
    "s3.delete.batch-size": (HONOURED, batch_size),
    "s3.delete.num-threads": (HONOURED, threads),
    "s3.write.tags.NAME": (HONOURED, write_tags),
    "s3.write.table-tag-enabled": (HONOURED, table_tag),
    "s3.write.namespace-tag-enabled": (HONOURED, namespace_tag),
    "s3.write.storage-class": (HONOURED, storage_class),
    "s3.acl": (HONOURED, acl),
    "s3.sse.type": (HONOURED, encrypted),
    "s3.access-points.BUCKET": (HONOURED, access_point),
    "s3.requester-pays": (HONOURED, requester_pays),
    "gcs.user-project": (HONOURED, user_project),
    "gcs.encryption-key": (REFUSED, own_key("gcs.encryption-key")),
    "gcs.decryption-key": (REFUSED, own_key("gcs.decryption-key")),
    "io-impl": (REFUSED, file_io("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")),
    "py-io-impl": (REFUSED, file_io("py-io-impl", "")),
    "lock-impl": (REFUSED, lock),
    "encryption.key-id": (REFUSED, encryption_key),
    "gc.enabled": (REFUSED, gc),
    DELETES: (HONOURED, drops_metadata),
    "write.metadata.previous-versions-max": (HONOURED, drops_metadata),
    CODEC: (HONOURED, codec),
    "write.metadata.path": (HONOURED, metadata_path),
    "write.data.path": (HONOURED, data_path),
    "write.object-storage.path": (STAY, old_path("write.object-storage.path")),
    "write.folder-storage.path": (STAY, old_path("write.folder-storage.path")),
}


def test_each_row_has_a_test_and_each_test_has_a_row() -> None:
    assert list(ROWS) == list(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_property_means_what_its_row_says(name: str, tmp_path: Path, moto_server: MotoServer) -> None:
    said, check = CHECKS[name]
    assert ROWS[name][1] == said
    check(Place(tmp_path, moto_server))

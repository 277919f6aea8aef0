"""An expiry by Iceberg Java's S3FileIO whose deletions are off and tag, and ours of a table that is like it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.paths import besides_history
from tests.servers import Versitygw
from tests.spark_tables import Lake, Shape, insert, later_ms, write
from tests.spark_tables.s3_lake import S3Lake, configured

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

OPTIONS = {"s3.delete-enabled": "false", "s3.delete.tags.gone": "yes"}
SHAPE = Shape(version=2, by="k").then(
    insert(0, 3), insert(4, 7), "DELETE FROM {t} WHERE k = 'k0'", "INSERT OVERWRITE {t} VALUES (9, 'k1')"
)


def kinds(lake: S3Lake, table: str) -> dict[str, Counter[str]]:
    """How many objects of a table have which tags, by folder and ending; those of its history are left out."""
    client, prefix = lake.s3.client(), f"{lake.catalog}/db/{table}/"
    found: dict[str, Counter[str]] = {"tagged": Counter(), "untagged": Counter()}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=lake.s3.bucket, Prefix=prefix):
        for key in besides_history(each["Key"] for each in page.get("Contents", ())):
            folder, _, name = key.removeprefix(prefix).partition("/")
            tags = client.get_object_tagging(Bucket=lake.s3.bucket, Key=key)["TagSet"]
            assert tags in ([], [{"Key": "gone", "Value": "yes"}])
            begin = "snap " if name.startswith("snap-") else ""
            found["tagged" if tags else "untagged"][f"{folder} {begin}{name.rpartition('.')[2]}"] += 1
    return found


def test_the_same_files_are_tagged_and_none_is_deleted(
    live_lakes: dict[str, Lake], versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("softsql")
    java = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "jdbc.schema-version": "V1", **OPTIONS}
    pyiceberg = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", **OPTIONS}
    known = configured(live_lakes, "softsql", versitygw, folder, java=java, pyiceberg=pyiceberg)
    lake = S3Lake(warehouse=versitygw.folder / "softsql", **known)
    for table in ("by_java", "by_us"):
        write(lake, table, SHAPE)
    before = kinds(lake, "by_java")
    assert kinds(lake, "by_us") == before
    assert not before["tagged"]
    now_ms = later_ms()
    lake.expire_with_spark("by_java", older_than_ms=now_ms, retain_last=1)
    lake.verb("expire-snapshots", "by_us", "--older-than", now_ms, "--retain-last", 1)
    ours, theirs = kinds(lake, "by_us"), kinds(lake, "by_java")
    assert ours["tagged"] == theirs["tagged"]
    assert ours["tagged"].total() > 4
    assert ours["tagged"] + ours["untagged"] - before["untagged"] == Counter({"metadata json": 1})
    assert lake.rows("by_us") == lake.rows("by_java") == [(9, "k1")]

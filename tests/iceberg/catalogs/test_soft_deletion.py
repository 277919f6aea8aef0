"""Catalogs whose owner turned deletions off: files are tagged in place of being deleted, as S3FileIO of Iceberg does.

Source: Iceberg, "AWS Integrations", "S3 Tags"; `S3FileIO.deleteFiles`.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_cli.formats.open import open_table
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import RoutedStorage
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, an_add, write_file, write_log
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.cli.running import Ran, iceberg_cli
from tests.journals import BEGIN, append
from tests.rest_servers import Front, pyiceberg_options_of, table_of_integers, warehouse_on
from tests.servers import Versitygw

OFF = {"s3.delete-enabled": "false"}
TAGS = {"s3.delete.tags.Lifecycle": "Purge"}
EXPIRE = ("--older-than", "0s", "--retain-last", 1)
ROWS = range(3)


@dataclass
class SoftTable:
    """A table of a SQL catalog on S3, of which each snapshot but the last can expire; made by PyIceberg."""

    s3: Versitygw
    name: str
    location: str
    config: Path
    theirs: Any

    def objects(self) -> set[str]:
        """What the service has of the table."""
        bucket, _, prefix = self.location.removeprefix("s3://").partition("/")
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        return {each["Key"].removeprefix(f"{prefix}/") for page in pages for each in page.get("Contents", ())}

    def tags(self, key: str) -> dict[str, str]:
        """The tags of an object of the table."""
        bucket, _, prefix = self.location.removeprefix("s3://").partition("/")
        found = self.s3.client().get_object_tagging(Bucket=bucket, Key=f"{prefix}/{key}")["TagSet"]
        return {each["Key"]: each["Value"] for each in found}

    def tagged(self) -> set[str]:
        """The objects that have tags."""
        return {key for key in self.objects() if self.tags(key)}

    def set_options(self, options: Mapping[str, str]) -> None:
        """From now on the catalog is configured with these besides."""
        lines = {
            "type": "sql",
            "uri": self.theirs.properties["uri"],
            **pyiceberg_options_of(self.s3),
            **options,
        }
        text = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in lines.items())
        self.config.write_text(f"catalog:\n  soft:\n{text}")

    def run(self, verb: str, *options: object) -> Ran:
        """Run a verb on the table, with JSON."""
        return self.text(verb, *options, "--format", "json")

    def text(self, verb: str, *options: object) -> Ran:
        """Run a verb on the table."""
        where = ("--catalog-config", self.config, "--no-cache", "--no-progress")
        return iceberg_cli(verb, self.name, *options, *where)

    def rows(self) -> list[int]:
        """The table's rows, as PyIceberg reads them."""
        found: list[int] = (
            self.theirs.load_table(self.name.partition(".")[2]).scan().to_arrow()["i"].sort().to_pylist()
        )
        return found


@pytest.fixture
def soft(tmp_path: Path, versitygw: Versitygw) -> SoftTable:
    """A table whose data file was replaced by each later snapshot; the catalog is configured to delete nothing."""
    location = f"s3://{versitygw.bucket}/{uuid.uuid4()}/t"
    theirs = SqlCatalog(
        "soft", uri=f"sqlite:///{tmp_path}/c.db", **pyiceberg_options_of(versitygw),
        **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
    )  # fmt: skip
    theirs.create_namespace("n")
    table = theirs.create_table("n.t", pa.schema([("i", pa.int64())]), location=location)
    for row in ROWS:
        table.overwrite(pa.table({"i": [row]}))
    made = SoftTable(versitygw, "soft.n.t", location, tmp_path / "pyiceberg.yaml", theirs)
    made.set_options({**OFF, **TAGS})
    return made


def test_an_expiry_tags_what_it_would_have_deleted_and_deletes_nothing(soft: SoftTable) -> None:
    before = soft.objects()
    planned = soft.run("expire-snapshots", *EXPIRE, "--dry-run").json
    assert planned["tagged"] == {
        "count": planned["removals"]["count"],
        "bytes": planned["removals"]["bytes"],
        "tags": {"Lifecycle": "Purge"},
        "option": "s3.delete-enabled=false",
    }
    done = soft.run("expire-snapshots", *EXPIRE, "--yes").json
    assert done["tagged_files_count"] == planned["removals"]["count"] > 5
    assert (done["reclaimed_bytes"], done["deleted_data_files_count"], done["failed_deletes"]) == (0, 0, [])
    assert before < soft.objects()
    assert len(soft.tagged()) == done["tagged_files_count"]
    assert all(soft.tags(key) == {"Lifecycle": "Purge"} for key in soft.tagged())
    assert not any("_iceberg_cli/ops" in key for key in soft.objects())
    assert soft.rows() == [ROWS[-1]]


@pytest.mark.deep
def test_the_question_and_the_report_say_so_before_and_after(soft: SoftTable) -> None:
    words = "tagged Lifecycle=Purge and not deleted: s3.delete-enabled=false"
    planned = soft.text("expire-snapshots", *EXPIRE, "--dry-run")
    assert words in planned.out.splitlines()[0]
    assert "freed" not in planned.out.splitlines()[0]
    done = soft.text("expire-snapshots", *EXPIRE, "--yes")
    assert "files tagged, not deleted" in done.out
    assert "freed" not in done.out


@pytest.mark.deep
def test_what_was_tagged_is_not_tagged_again(soft: SoftTable) -> None:
    soft.run("expire-snapshots", *EXPIRE, "--yes")
    again = soft.run("expire-snapshots", *EXPIRE, "--yes").json
    assert (again["status"], again.get("tagged_files_count", 0)) == ("nothing_to_do", 0)


@pytest.mark.deep
def test_tags_that_a_file_has_stay_beside_those_of_deletion(soft: SoftTable) -> None:
    data = next(key for key in soft.objects() if key.startswith("data/"))
    where = {"Bucket": soft.s3.bucket, "Key": f"{soft.location.split('/', 3)[3]}/{data}"}
    soft.s3.client().put_object_tagging(**where, Tagging={"TagSet": [{"Key": "owner", "Value": "a"}]})
    soft.run("expire-snapshots", *EXPIRE, "--yes")
    tags = soft.tags(data)
    assert tags["owner"] == "a"
    assert set(tags) <= {"owner", "Lifecycle"}


def test_without_tags_files_stay_as_they_are_and_the_plan_says_that_for_how_long(soft: SoftTable) -> None:
    soft.set_options(OFF)
    before = soft.objects()
    planned = soft.run("expire-snapshots", *EXPIRE, "--dry-run").json
    assert planned["removals"]["count"] == 0
    [warning] = planned["lasting"]
    assert "stay for ever: s3.delete-enabled=false, and no s3.delete.tags are set" in warning
    done = soft.run("expire-snapshots", *EXPIRE, "--yes").json
    assert (done["status"], done["reclaimed_bytes"]) == ("done", 0)
    assert before < soft.objects()
    assert soft.tagged() == set()


@pytest.mark.deep
def test_with_deletions_on_files_go_whatever_tags_they_get_before(soft: SoftTable) -> None:
    soft.set_options(TAGS)
    done = soft.run("expire-snapshots", *EXPIRE, "--yes").json
    assert "tagged_files_count" not in done
    assert done["deleted_data_files_count"] > 0
    assert done["reclaimed_bytes"] > 0
    assert soft.tagged() == set()


@pytest.mark.deep
def test_metadata_files_that_the_table_drops_are_tagged_too(soft: SoftTable) -> None:
    table = soft.theirs.load_table("n.t")
    with table.transaction() as changed:
        changed.set_properties(
            {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "1",
            }
        )
    before = {key for key in soft.objects() if key.endswith(".metadata.json")}
    soft.run("expire-snapshots", *EXPIRE, "--yes")
    assert before < soft.objects()
    assert len(before & soft.tagged()) == 1  # PyIceberg itself had dropped all but two


def test_staged_files_that_are_discarded_are_tagged_and_a_journal_is_deleted(soft: SoftTable) -> None:
    table = open_table(
        soft.name, storage_options={}, catalog_config=str(soft.config), on_event=lambda _: None
    )
    staged = f"{soft.location}/metadata/an-operation-m0.avro"
    table.workspace.put({staged: b"x"})
    table.workspace.discard([staged], marks=["an-operation"])
    assert soft.tagged() == {"metadata/an-operation-m0.avro"}
    journal = table.workspace.journal("an-operation")
    append(journal, "begin", BEGIN)
    journal.clean_up()
    assert not any("_iceberg_cli/ops" in key for key in soft.objects())


def test_files_that_were_shown_as_tagged_are_not_deleted_once_deletions_are_on(soft: SoftTable) -> None:
    part = soft.run("expire-snapshots", *EXPIRE, "--yes", "--limit-deletes", 1).json
    assert part["status"] == "partial"
    before = soft.objects()
    soft.set_options({})
    refused = soft.run("resume")
    assert refused.code == 11
    assert "were shown to be tagged by s3.delete-enabled=false" in refused.json["reports"][0]["notes"][0]
    assert before <= soft.objects()
    soft.set_options({**OFF, **TAGS})
    [done] = soft.run("resume").json["reports"]
    assert done["tagged_files_count"] == len(soft.tagged())


@pytest.mark.deep
def test_a_saved_plan_that_tags_is_not_carried_out_once_it_would_delete(
    soft: SoftTable, tmp_path: Path
) -> None:
    soft.text("plan", "expire-snapshots", *EXPIRE, "-o", tmp_path / "plan.json")
    before = soft.objects()
    soft.set_options({})
    refused = iceberg_cli(
        "apply", tmp_path / "plan.json", "--yes", "--catalog-config", soft.config, "--format", "json"
    )
    assert refused.code == 11
    assert "which were to be tagged by s3.delete-enabled=false" in refused.json["message"]
    assert before <= soft.objects()


@pytest.mark.deep
@pytest.mark.parametrize("place", ["defaults", "overrides", "table"])
def test_what_a_rest_catalog_says_of_deletions_counts_wherever_it_says_it(
    rest_on_s3: str, versitygw: Versitygw, tmp_path: Path, place: str
) -> None:
    name = f"n{uuid.uuid4().hex}"
    location = f"{warehouse_on(versitygw)}/{name}/t"
    table_of_integers(rest_on_s3, (name,), location, ROWS, pyiceberg_options_of(versitygw))
    with Front(rest_on_s3) as catalog:
        catalog.config[place] = {**OFF, **TAGS}
        config = tmp_path / "pyiceberg.yaml"
        own = {"uri": catalog.uri, **pyiceberg_options_of(versitygw)}
        lines = "".join(f"    {key}: {value}\n" for key, value in own.items())
        config.write_text(f"catalog:\n  soft:\n    type: rest\n{lines}")
        made = SoftTable(versitygw, f"soft.{name}.t", location, config, None)
        before = made.objects()
        done = made.run("expire-snapshots", *EXPIRE, "--yes").json
    assert done["tagged_files_count"] == len(made.tagged()) > 0
    assert before < made.objects()


def test_a_delta_table_is_not_vacuumed_where_deletions_are_off(versitygw: Versitygw, tmp_path: Path) -> None:
    write_log(tmp_path / "d", [a_protocol(), a_metadata(), an_add()])
    write_file(tmp_path / "d", "part-0.parquet", b"x" * 100)
    write_file(tmp_path / "d", "left-by-a-writer.parquet", b"x")
    key = uuid.uuid4().hex
    files = [path for path in (tmp_path / "d").rglob("*") if path.is_file()]
    versitygw.fill({f"{key}/{path.relative_to(tmp_path / 'd')}": path.read_bytes() for path in files})
    location = f"s3://{versitygw.bucket}/{key}"
    os.utime(versitygw.folder / key / "left-by-a-writer.parquet", (0, 0))
    options: Sequence[object] = [
        part
        for name, value in {**versitygw.options, **OFF, **TAGS}.items()
        for part in ("--storage-option", f"{name}={value}")
    ]
    words = ("--unsafe-conditional-writes", "--no-progress", "--format", "json")
    refused = iceberg_cli("expire-snapshots", location, "--yes", *words, *options)
    assert refused.code == 11
    assert "s3.delete-enabled=false turns deletions off" in refused.json["message"]


class ByAPackage(RoutedStorage):
    """A storage of S3 as packages bring them, which knows nothing of options."""

    def adapter(self, _: str) -> Storage:
        return MemoryStorage()


def test_a_storage_of_a_package_that_would_delete_is_not_written_to() -> None:
    reason = ByAPackage({**OFF, **TAGS}).unwritable_reason("s3://b/t")
    assert "the storage of a package that is installed for S3 does not know that" in str(reason)
    assert ByAPackage(TAGS).unwritable_reason("s3://b/t") is None
    assert RoutedStorage({**OFF, **TAGS}).unwritable_reason("s3://b/t") is None

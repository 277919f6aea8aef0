"""Iceberg tables by file names on S3: read-only, unless the operator vouches that nobody else commits."""

from __future__ import annotations

import dataclasses
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.errors import BackendUnavailable, Refused
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import UnsafeOverrides, open_storage
from iceberg_cli.testing.conformance.catalogs import CatalogConformance, CatalogUnderTest
from iceberg_cli.testing.conformance.commits import an_attempt, first_metadata, set_property
from iceberg_cli.testing.conformance.rewriting import RewritingConformance
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.builders import DAY_MS, TableWriter
from tests.cli.lakes import AS_OF_MS, LONG_AGO_MS
from tests.cli.running import Ran, iceberg_cli
from tests.paths import besides_history
from tests.s3_words import WORD, options_of, storage_of
from tests.servers import BY_FSSPEC, S3Server

ALONE = "--unsafe-single-writer"
VOUCHED = UnsafeOverrides(single_writer=True, conditional_writes=True)
EXPIRE = ("--as-of", AS_OF_MS, "--older-than", "5d", "--retain-last", 1)


@dataclass(frozen=True)
class OnVersitygw(CatalogUnderTest):
    """Where a table by file names is."""

    folder: str
    options: dict[str, str]
    commits_by_file: bool = True
    commits_at_once: bool = True
    may_arrive: bool = True

    @property
    def storage(self) -> Storage:
        return open_storage(self.options)

    def open(self, storage: Storage | None = None) -> ObjectStoreCommitter:
        return ObjectStoreCommitter(self.folder, storage or self.storage, VOUCHED)


@pytest.fixture
def catalog(versitygw: S3Server) -> OnVersitygw:
    """A table of one version."""
    found = OnVersitygw(f"s3://{versitygw.bucket}/{uuid.uuid4()}", versitygw.options)
    found.storage.put_if_absent(f"{found.folder}/metadata/v1.metadata.json", first_metadata(found.folder))
    return found


@pytest.mark.deep
class TestFilesystemOnVersitygw(CatalogConformance):
    """The committer on a service that keeps conditional creates under races."""


@pytest.mark.deep
class TestRewriting(RewritingConformance):
    """Rows that are rewritten there."""


class OnAmazonS3(MemoryStorage):
    """A storage that says it is Amazon's own service, whose next put has no answer if it is `lost`."""

    lost = False

    def endpoint(self, path: str) -> str:
        assert path.startswith("s3://")
        return "https://s3.eu-central-1.amazonaws.com"

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.lost:
            raise BackendUnavailable("Cannot write: no answer")
        super().put_if_absent(path, data)


@pytest.fixture
def amazon() -> OnAmazonS3:
    """With a table of two versions at s3://bucket/t."""
    storage = OnAmazonS3()
    for version in (1, 2):
        storage.put_if_absent(
            f"s3://bucket/t/metadata/v{version}.metadata.json", first_metadata("s3://bucket/t")
        )
    return storage


def committer_of(storage: Storage, **overrides: bool) -> ObjectStoreCommitter:
    return ObjectStoreCommitter("s3://bucket/t", storage, UnsafeOverrides(**overrides))


@pytest.mark.parametrize(
    ("overrides", "is_known", "reason"),
    [
        ({}, True, ALONE),
        ({"conditional_writes": True}, True, ALONE),
        ({"conditional_writes": True}, False, ALONE),
        ({"single_writer": True}, False, WORD),
        ({"single_writer": True}, True, None),
        ({"single_writer": True, "conditional_writes": True}, False, None),
    ],
)
def test_which_words_are_needed(
    amazon: OnAmazonS3, overrides: dict[str, bool], is_known: bool, reason: str | None
) -> None:
    if not is_known:
        amazon.endpoint = lambda _: "http://minio.example.com:9000"  # type: ignore[method-assign]
    committer = committer_of(amazon, **overrides)
    found = committer.read_only_reason()
    assert (found is None) == (reason is None)
    if reason is not None:
        assert reason in str(found)
        with pytest.raises(Refused, match=reason):
            an_attempt(committer, amazon, {"colour": "red"})
        with pytest.raises(Refused, match=reason):
            committer.prove("s3://bucket/t/probe", {})
    else:
        set_property(committer, amazon, "colour")
        assert committer.current() == "s3://bucket/t/metadata/v3.metadata.json"


def test_in_other_object_stores_the_adapter_answers_for_conditional_creates() -> None:
    storage = MemoryStorage()
    storage.put_if_absent("gs://bucket/t/metadata/v1.metadata.json", first_metadata("gs://bucket/t"))
    committer = ObjectStoreCommitter("gs://bucket/t", storage, UnsafeOverrides(single_writer=True))
    set_property(committer, storage, "colour")
    assert committer.current() == "gs://bucket/t/metadata/v2.metadata.json"
    assert ALONE in str(ObjectStoreCommitter("gs://bucket/t", storage).read_only_reason())


def test_a_commit_writes_the_version_and_the_hint_and_nothing_else(amazon: OnAmazonS3) -> None:
    before = set(amazon.paths("s3://bucket"))
    committer = committer_of(amazon, single_writer=True)
    assert an_attempt(committer, amazon, {"colour": "red"}).temporary_files == ()
    set_property(committer, amazon, "colour")
    metadata = "s3://bucket/t/metadata"
    after = set(amazon.paths("s3://bucket"))
    assert after - before == {f"{metadata}/v3.metadata.json", f"{metadata}/version-hint.text"}
    assert amazon.read(f"{metadata}/version-hint.text") == b"3"


def test_a_catalogs_files_are_no_matter_of_a_word(amazon: OnAmazonS3) -> None:
    amazon.put_if_absent("s3://bucket/t/metadata/00003-x.metadata.json", first_metadata("s3://bucket/t"))
    assert "only that catalog can tell" in str(committer_of(amazon, single_writer=True).read_only_reason())


def test_a_request_without_an_answer_may_still_come_in_beside_another_spelling(amazon: OnAmazonS3) -> None:
    """Java reads v3.metadata.json before v3.gz.metadata.json: what ours names must not be discarded."""
    committer = committer_of(amazon, single_writer=True)
    attempt = an_attempt(committer, amazon, {"ours": "yes"})
    amazon.lost = True
    assert isinstance(committer.commit(attempt), Unknown)
    amazon.lost = False
    amazon.put_if_absent("s3://bucket/t/metadata/v3.gz.metadata.json", b"")
    assert isinstance(committer.settle(attempt), Unknown)
    amazon.put_if_absent(attempt.file, attempt.data)
    assert isinstance(committer.settle(attempt), Committed)


def test_what_was_never_sent_is_a_conflict_where_another_writer_came_first(amazon: OnAmazonS3) -> None:
    committer = committer_of(amazon, single_writer=True)
    attempt = an_attempt(committer, amazon, {"ours": "yes"})
    amazon.put_if_absent("s3://bucket/t/metadata/v3.gz.metadata.json", b"")
    assert isinstance(committer.commit(attempt), Conflict)
    resumed = dataclasses.replace(attempt, fresh=False)
    assert isinstance(committer_of(amazon, single_writer=True).commit(resumed), Unknown)


# Through the command line


def a_table(server: S3Server) -> str:
    """Four snapshots by file names, nine to six days old; its location."""
    location = f"s3://{server.bucket}/{uuid.uuid4()}/t"
    table = TableWriter(storage=storage_of(server), location=location)
    table.commit(1, age_ms=LONG_AGO_MS + 9 * DAY_MS, add=["keep", "one"])
    table.commit(2, age_ms=LONG_AGO_MS + 8 * DAY_MS, add=["two"], remove=["one"])
    table.commit(3, age_ms=LONG_AGO_MS + 7 * DAY_MS, add=["three"])
    table.commit(4, age_ms=LONG_AGO_MS + 6 * DAY_MS, add=["four"], remove=["three"])
    table.publish("v1.metadata.json")
    return location


def keys(server: S3Server, location: str) -> set[str]:
    paths = (path.removeprefix(f"{location}/") for path in storage_of(server).paths(location))
    return besides_history(paths)


def ran(server: S3Server, verb: str, location: str, *arguments: object) -> Ran:
    return iceberg_cli(verb, location, "--format", "json", *options_of(server), *arguments)


@pytest.mark.deep
def test_the_first_word_is_asked_for_before_the_second(versitygw: S3Server) -> None:
    location = a_table(versitygw)
    before = keys(versitygw, location)
    assert ALONE in ran(versitygw, "inspect", location).json["read_only"]
    for given, missing in (((), ALONE), ((WORD,), ALONE), ((ALONE,), WORD)):
        planned = ran(versitygw, "expire-snapshots", location, *EXPIRE, "--dry-run", *given)
        assert any(missing in reason for reason in planned.json["blocked_by"])
        refused = ran(versitygw, "expire-snapshots", location, *EXPIRE, "--yes", *given)
        assert refused.code == 11
        assert missing in refused.json["message"]
    assert keys(versitygw, location) == before


def test_with_both_words_it_is_carried_out_and_recorded(versitygw: S3Server) -> None:
    location = a_table(versitygw)
    words = (ALONE, WORD)
    planned = ran(versitygw, "expire-snapshots", location, *EXPIRE, "--dry-run", *words)
    assert planned.json["blocked_by"] == []
    options = planned.json["options"]
    assert options["unsafe_single_writer"] == {"value": location, "source": ALONE}
    assert options["unsafe_conditional_writes"] == {"value": versitygw.endpoint, "source": WORD}
    before = keys(versitygw, location)
    done = ran(versitygw, "expire-snapshots", location, *EXPIRE, "--yes", *words)
    assert (done.code, done.json["status"]) == (0, "done")
    assert done.json["metadata_location"] == f"{location}/metadata/v2.metadata.json"
    alone, service = done.json["notes"][-2:]
    assert alone == f"{ALONE}: the operator vouches that nobody else commits to {location}."
    assert service.startswith(f"{WORD}: the operator vouches that {versitygw.endpoint} keeps ")
    after = keys(versitygw, location)
    assert after - before == {"metadata/v2.metadata.json", "metadata/version-hint.text"}
    assert {"data/one.parquet", "data/three.parquet"} <= before - after


@pytest.mark.deep
def test_a_service_that_is_seen_to_replace_objects_is_refused_whatever_was_vouched(
    unconditional: S3Server,
) -> None:
    location = a_table(unconditional)
    before = keys(unconditional, location)
    refused = ran(unconditional, "expire-snapshots", location, *EXPIRE, "--yes", ALONE, WORD)
    assert refused.code == 11
    assert f"Cannot commit in {unconditional.endpoint}" in refused.json["message"]
    assert keys(unconditional, location) == before


@pytest.mark.deep
def test_an_open_operation_needs_the_words_to_go_on_and_none_to_be_abandoned(versitygw: S3Server) -> None:
    location = a_table(versitygw)
    waits = ran(versitygw, "expire-snapshots", location, *EXPIRE, "--yes", ALONE, WORD, "--limit-deletes", 1)
    assert waits.json["status"] == "partial"
    before = keys(versitygw, location)
    [refused] = ran(versitygw, "resume", location).json["reports"]
    assert refused["status"] == "refused"
    assert ALONE in " ".join(refused["notes"])
    assert keys(versitygw, location) == before
    [abandoned] = ran(versitygw, "resume", location, "--abandon").json["reports"]
    assert abandoned["abandoned"]["orphan_files_count"] > 1
    assert not any(name.startswith("_iceberg_cli/ops") for name in keys(versitygw, location))


def test_the_words_mean_nothing_for_a_table_on_a_local_disk(tmp_path: Path) -> None:
    table = TableWriter(storage=open_storage(), location=f"{tmp_path}/t")
    table.commit(1, age_ms=LONG_AGO_MS + 9 * DAY_MS, add=["one"])
    table.commit(2, age_ms=LONG_AGO_MS + 8 * DAY_MS, add=["two"], remove=["one"])
    table.publish("v1.metadata.json")
    done = iceberg_cli("expire-snapshots", f"{tmp_path}/t", *EXPIRE, "--yes", "--format", "json", ALONE, WORD)
    assert done.code == 0
    assert not any("unsafe" in note for note in done.json["notes"])


@pytest.mark.deep
def test_pyiceberg_reads_what_was_expired_and_regrouped(versitygw: S3Server, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    tables = pytest.importorskip("pyiceberg.table")
    properties = {
        **BY_FSSPEC,
        "s3.endpoint": versitygw.endpoint,
        "s3.access-key-id": versitygw.options["key"],
        "s3.secret-access-key": versitygw.options["secret"],
        "s3.region": versitygw.options["region"],
    }
    location = f"s3://{versitygw.bucket}/{uuid.uuid4()}/t"
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", **properties)
    catalog.create_namespace("n")
    schema = pa.schema([("n", pa.int64())])
    made = catalog.create_table("n.t", schema, location=location)
    for number in range(4):
        made.append(pa.table({"n": [number]}, schema=schema))
    by_file_names(versitygw, location, made.metadata_location)
    words = (ALONE, WORD)
    expire = ("--older-than", "0s", "--retain-last", 1)
    expired = ran(versitygw, "expire-snapshots", location, *expire, "--yes", *words)
    assert (expired.code, expired.json["status"]) == (0, "done")
    regrouped = ran(versitygw, "rewrite-manifests", location, "--yes", *words)
    assert regrouped.json["rewritten_manifests_count"] == 4
    read = tables.StaticTable.from_metadata(regrouped.json["metadata_location"], properties)
    assert sorted(read.scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    assert len(read.metadata.snapshots) == 2
    assert ic.open_table(location, storage_options=versitygw.options).check(deep=True).errors == 0


def by_file_names(server: S3Server, location: str, newest: str) -> None:
    """Make a catalog's table one by file names: its newest metadata becomes version 1, the other metadata files go."""
    storage = storage_of(server)
    document: dict[str, Any] = {**json.loads(storage.read(newest)), "metadata-log": []}
    storage.delete(
        [path for path in storage.paths(f"{location}/metadata") if path.endswith(".metadata.json")]
    )
    storage.put_if_absent(f"{location}/metadata/v1.metadata.json", json.dumps(document).encode())

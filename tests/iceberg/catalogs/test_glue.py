"""Tables of AWS Glue: what of an entry survives a commit, what is refused, and what an answer proves.

Real Glue was not run: entries are moto's, and a front refuses versions as AWS documents it.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog

from iceberg_cli.errors import AccessDenied, BackendUnavailable
from iceberg_cli.iceberg.catalogs.glue.connection import is_refused
from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import an_attempt, first_metadata, properties_of, set_property
from tests.cli.running import JSON, Ran, iceberg_cli
from tests.conformance.catalogs import Catalog, make_table
from tests.conformance.racing import race
from tests.fleet.builder import build_fleet
from tests.fleet.maintaining import EXPIRE, policy_file
from tests.glue_front import KEYS, GlueFront, refusal
from tests.rest_servers import configuration_of

STORAGE = open_storage()
EXPIRY = ("--older-than", "1s", "--retain-last", "1")


@dataclasses.dataclass(frozen=True)
class GlueTable:
    """An Iceberg table in a database of its own."""

    glue: GlueFront
    database: str
    config: Path
    folder: Path

    @property
    def name(self) -> str:
        return f"glue.{self.database}.t"

    def open(self) -> Any:
        committer, _ = open_catalog_table(self.name, catalogs=Catalogs(str(self.config)))
        return committer

    def entry(self) -> dict[str, Any]:
        found: dict[str, Any] = self.glue.client().get_table(DatabaseName=self.database, Name="t")["Table"]
        return found

    def cli(self, command: str, *arguments: str) -> Ran:
        return iceberg_cli(command, self.name, "--catalog-config", self.config, *arguments, *JSON)


def configured(glue: GlueFront, folder: Path, **more: str) -> Path:
    config = folder / "catalogs.yaml"
    config.write_text(configuration_of("glue", {**glue.properties(), **more}))
    return config


def in_glue(glue: GlueFront, location: str, **entry: Any) -> str:
    """Name a table's metadata in a database of its own, which is returned."""
    database = f"db_{uuid.uuid4().hex}"
    client = glue.client()
    client.create_database(DatabaseInput={"Name": database})
    parameters = {"table_type": "ICEBERG", "metadata_location": location, **entry.pop("Parameters", {})}
    named = {"Name": "t", "TableType": "EXTERNAL_TABLE", "Parameters": parameters, **entry}
    client.create_table(DatabaseName=database, TableInput=named)
    return database


@pytest.fixture
def table(glue: GlueFront, tmp_path: Path) -> GlueTable:
    """A table without snapshots."""
    folder = tmp_path / "t"
    location = f"{folder}/metadata/00000-first.metadata.json"
    STORAGE.put_if_absent(location, first_metadata(str(folder)))
    return GlueTable(glue, in_glue(glue, location), configured(glue, tmp_path), folder)


def with_snapshots(glue: GlueFront, root: Path, **entry: Any) -> tuple[GlueTable, frozenset[int]]:
    """A table with something to expire, and the values of its column `n`."""
    fleet = build_fleet(root, {("sqlite", "iceberg"): 1})
    (of_fleet,) = fleet.tables
    database = in_glue(glue, fleet.pointer(of_fleet), **entry)
    return GlueTable(glue, database, configured(glue, root), of_fleet.folder), of_fleet.rows


def test_all_of_an_entry_survives_a_commit_but_the_two_locations(glue: GlueFront, tmp_path: Path) -> None:
    columns = [
        {
            "Name": "n",
            "Type": "bigint",
            "Comment": "a number",
            "Parameters": {"iceberg.field.id": "1", "own": "x"},
        },
        {"Name": "gone", "Type": "string", "Parameters": {"iceberg.field.current": "false"}},
    ]
    storage = {
        "Columns": columns, "Location": "s3://bucket/somewhere", "AdditionalLocations": ["s3://bucket/else"],
        "Parameters": {"of": "storage"}, "BucketColumns": ["n"], "NumberOfBuckets": 4,
        "SerdeInfo": {"Name": "serde", "SerializationLibrary": "lib", "Parameters": {"a": "b"}},
    }  # fmt: skip
    table, rows = with_snapshots(
        glue,
        tmp_path,
        Description="what it is",
        Owner="somebody",
        Retention=7,
        StorageDescriptor=storage,
        PartitionKeys=[{"Name": "p", "Type": "int", "Comment": "by day"}],
        ViewOriginalText="text",
        Parameters={"classification": "x", "EXTERNAL": "TRUE", "made.by": "a crawler"},
    )
    before = table.entry()
    ran = table.cli("expire-snapshots", *EXPIRY, "--yes")
    assert ran.code == 0, ran.err
    after = table.entry()
    assert ran.json["status"] == "done"
    own = ("Parameters", "VersionId", "UpdateTime")
    assert {name: value for name, value in after.items() if name not in own} == {
        name: value for name, value in before.items() if name not in own
    }
    base = before["Parameters"]["metadata_location"]
    assert after["Parameters"] == before["Parameters"] | {
        "metadata_location": after["Parameters"]["metadata_location"],
        "previous_metadata_location": base,
    }
    assert after["Parameters"]["metadata_location"] != base
    (update,) = [arguments for operation, arguments in glue.calls if operation == "UpdateTable"]
    assert (update["VersionId"], update["SkipArchive"]) == (before["VersionId"], True)
    theirs = load_catalog("glue", **glue.properties()).load_table(f"{table.database}.t")
    assert {*theirs.scan().to_arrow()["n"].to_pylist()} == rows
    assert len(theirs.metadata.snapshots) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda entry: entry.update(New="x"), "botocore does not know and a commit would lose (New)"),
        (
            lambda entry: entry.setdefault("StorageDescriptor", {}).update(Columns=[{"Name": "a", "Rank": 1}]),
            "would lose (StorageDescriptor.Columns.Rank)",
        ),
        (
            lambda entry: entry.update(
                FederatedTable={"Identifier": "arn:x", "ConnectionName": "aws:s3tables", "DatabaseIdentifier": "d"}
            ),
            "is federated from aws:s3tables (arn:x)",
        ),
        (lambda entry: entry.update(ViewDefinition={"IsProtected": False}), "has the definition of a view"),
        (lambda entry: entry.pop("VersionId"), "tells no version of the entry"),
    ],
)  # fmt: skip
def test_an_entry_that_a_commit_would_harm_is_shown_and_not_written_to(
    table: GlueTable, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    table.glue.changed["GetTable"] = lambda answer: change(answer["Table"])
    assert table.cli("inspect").code == 0
    committer = table.open()
    assert words in committer.read_only_reason()
    ran = table.cli("upgrade-v3", "--yes")
    assert ran.code == 11
    assert words in ran.json["message"] or words in str(ran.json)
    assert table.glue.updates() == 0


def test_files_of_a_table_are_tagged_by_its_name_where_the_catalog_says_so(
    table: GlueTable, tmp_path: Path
) -> None:
    asked = {"s3.write.table-tag-enabled": "true", "s3.write.namespace-tag-enabled": "true"}
    config = configured(table.glue, tmp_path, **asked)
    _, options = open_catalog_table(table.name, catalogs=Catalogs(str(config)))
    tags = {name: value for name, value in options.items() if name.startswith("s3.write.tags.")}
    assert tags == {"s3.write.tags.iceberg.table": "t", "s3.write.tags.iceberg.namespace": table.database}


def test_a_catalog_whose_writers_lock_is_read_alone(table: GlueTable, tmp_path: Path) -> None:
    lock = "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager"
    locking = dataclasses.replace(table, config=configured(table.glue, tmp_path, **{"lock-impl": lock}))
    assert locking.cli("inspect").code == 0
    ran = locking.cli("upgrade-v3", "--yes")
    assert ran.code == 11
    assert f"lock-impl={lock}" in str(ran.json)
    assert table.glue.updates() == 0


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"TargetTable": {"CatalogId": "123", "DatabaseName": "far", "Name": "away"}}, "resource link to 123.far.away"),
        ({"TableType": "VIRTUAL_VIEW"}, "no Iceberg table, but VIRTUAL_VIEW"),
        ({"Parameters": {"table_type": "DELTA"}}, "no Iceberg table, but DELTA"),
        ({"Parameters": {"table_type": "ICEBERG"}}, "its entry has no metadata_location"),
    ],
)  # fmt: skip
def test_what_is_no_iceberg_table_of_this_catalog_is_named(
    table: GlueTable, entry: dict[str, Any], words: str
) -> None:
    client = table.glue.client()
    client.delete_table(DatabaseName=table.database, Name="t")
    client.create_table(DatabaseName=table.database, TableInput={"Name": "t", **entry})
    ran = table.cli("inspect")
    assert ran.code == 10
    assert words in ran.json["message"]


def test_a_name_written_nearly_like_it_is_suggested(table: GlueTable) -> None:
    table.glue.client().create_table(DatabaseName=table.database, TableInput={"Name": "orders"})
    ran = iceberg_cli("inspect", f"glue.{table.database}.order", "--catalog-config", table.config, *JSON)
    assert ran.code == 10
    assert "'orders'" in ran.json["message"]
    ran = iceberg_cli("inspect", f"glue.a.{table.database}.t", "--catalog-config", table.config, *JSON)
    assert ran.code == 10
    assert "one level" in ran.json["message"]


def test_lake_formation_denies_in_its_own_words_and_nothing_is_changed(table: GlueTable) -> None:
    denied = "Insufficient Lake Formation permission(s): Required Alter on t"
    table.glue.answers["UpdateTable"] = refusal("AccessDeniedException", denied)
    ran = table.cli("upgrade-v3", "--yes")
    assert ran.code == 16
    assert denied in ran.json["message"]
    assert "Lake Formation grant" in ran.json["next"]
    assert table.glue.updates() == 1
    del table.glue.answers["UpdateTable"]
    assert table.cli("upgrade-v3", "--yes").code == 0


# -- what an answer proves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["500 after", "cut after", "twice"])
def test_a_commit_that_had_its_effect_is_found_by_one_request(table: GlueTable, fate: str) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.fates.append(fate)
    assert committer.commit(attempt) == Committed(metadata_location=attempt.file)
    assert table.glue.updates() == 1
    assert table.entry()["Parameters"]["metadata_location"] == attempt.file


def test_a_refused_version_proves_nothing_where_the_log_does_not_reach_back(
    glue: GlueFront, tmp_path: Path
) -> None:
    short = {"write.metadata.previous-versions-max": "1"}
    catalog = make_table(Catalog(kind="glue", folder=f"{tmp_path}/t", uri=glue.endpoint), short)
    committer = catalog.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})

    def others() -> None:
        for name in ("one", "two"):
            set_property(catalog.open(), STORAGE, name)

    glue.fates.append("twice")
    glue.meanwhile = others
    assert isinstance(committer.commit(attempt), Unknown)
    assert properties_of(STORAGE, catalog.open()) == {**short, "ours": "yes", "one": "yes", "two": "yes"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [("ThrottlingException", 400), ("InvalidInputException", 400), ("EntityNotFoundException", 400)],
)
def test_a_refusal_is_an_error_and_is_not_sent_again(table: GlueTable, kind: str, status: int) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.answers["UpdateTable"] = refusal(kind, "no", status)
    with pytest.raises(BackendUnavailable, match=kind):
        committer.commit(attempt)
    assert table.glue.updates() == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [("InternalServiceException", 500), ("OperationTimeoutException", 400), ("Unheard", 400), ("", 503)],
)
def test_any_other_answer_says_nothing(table: GlueTable, kind: str, status: int) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.answers["UpdateTable"] = refusal(kind, "no", status)
    assert isinstance(committer.commit(attempt), Unknown)
    assert table.glue.updates() == 1


def test_keys_that_cannot_be_had_anew_are_an_error_before_anything_is_sent(
    table: GlueTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program gives keys that end at once, and then none any more."""
    keys = tmp_path / "keys.json"
    ends = datetime.now(UTC) + timedelta(seconds=30)  # noqa: TID251 - the SDK asks the clock
    given = {
        "Version": 1,
        "AccessKeyId": "AKIAEXAMPLE",
        "SecretAccessKey": "x",
        "Expiration": ends.isoformat(),
    }
    keys.write_text(json.dumps(given))
    (tmp_path / "aws.ini").write_text(f"[profile short]\ncredential_process = cat {keys}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws.ini"))
    own = {"glue.profile-name": "short", "glue.access-key-id": "", "glue.secret-access-key": ""}
    short = dataclasses.replace(table, config=configured(table.glue, tmp_path, **own))
    committer = short.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    attempt = dataclasses.replace(attempt, why_stale=lambda _: keys.unlink())
    with pytest.raises(AccessDenied, match="credentials from custom-process"):
        committer.commit(attempt)
    assert table.glue.updates() == 0
    assert short.cli("inspect").code == 16


@pytest.mark.parametrize(("operation", "refused"), [("AssumeRole", True), ("UpdateTable", False)])
def test_an_error_of_another_service_says_that_nothing_was_sent(operation: str, *, refused: bool) -> None:
    answer = {"Error": {"Code": "InternalFailure"}, "ResponseMetadata": {"HTTPStatusCode": 500}}
    assert is_refused(ClientError(answer, operation)) is refused


def test_a_change_of_the_entry_beside_its_location_is_a_conflict_after_which_the_next_attempt_commits(
    table: GlueTable,
) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})

    def crawl(_: object) -> None:
        entry = table.entry()
        named = {"Name": "t", "Parameters": entry["Parameters"], "Description": "crawled"}
        table.glue.client().update_table(DatabaseName=table.database, TableInput=named)

    attempt = dataclasses.replace(attempt, why_stale=crawl)
    assert isinstance(committer.commit(attempt), Conflict)
    set_property(committer, STORAGE, "again")
    assert table.entry()["Description"] == "crawled"
    assert properties_of(STORAGE, table.open()) == {"again": "yes"}


def test_a_late_request_is_refused_once_another_writer_was_faster(table: GlueTable) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.fates.append("late")
    assert isinstance(committer.commit(attempt), Unknown)
    set_property(table.open(), STORAGE, "theirs")
    table.glue.release()
    assert properties_of(STORAGE, table.open()) == {"theirs": "yes"}
    assert isinstance(table.open().settle(dataclasses.replace(attempt, fresh=False)), Conflict)


def test_the_front_refuses_a_version_that_is_not_the_entrys(table: GlueTable) -> None:
    client, entry = table.glue.client(), table.entry()
    named = {"Name": "t", "Parameters": entry["Parameters"]}
    update = {"DatabaseName": table.database, "TableInput": named, "VersionId": entry["VersionId"]}
    client.update_table(**update)
    with pytest.raises(ClientError, match="ConcurrentModificationException"):
        client.update_table(**update)


def test_an_entry_that_a_commit_would_harm_by_now_is_refused_for_good_and_nothing_is_sent(
    table: GlueTable,
) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.changed["GetTable"] = lambda answer: answer["Table"].update(New="x")
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert outcome.for_good
    assert "would lose (New)" in outcome.reason
    # Of an earlier try nothing is known.
    assert isinstance(table.open().commit(dataclasses.replace(attempt, fresh=False)), Unknown)
    assert table.glue.updates() == 0


@pytest.mark.deep
def test_in_a_race_with_pyiceberg_no_commit_is_lost(glue: GlueFront, tmp_path: Path) -> None:
    catalog = make_table(Catalog(kind="glue", folder=f"{tmp_path}/t", uri=glue.endpoint))
    assert race(catalog, writers=6, commits=8, by=("us", "pyiceberg")) > 0


# -- many tables -----------------------------------------------------------------------------------------------------


def test_tables_are_listed_with_their_locations_and_an_unchanged_one_costs_a_survey_no_request(
    glue: GlueFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    table, _ = with_snapshots(glue, tmp_path)
    client = glue.client()
    for name, kind in (("v", {"TableType": "VIRTUAL_VIEW"}), ("d", {"Parameters": {"table_type": "DELTA"}})):
        client.create_table(DatabaseName=table.database, TableInput={"Name": name, **kind})
    options = (f"glue.{table.database}", "--catalog-config", table.config, *JSON)
    (listed,) = iceberg_cli("list", *options).json["tables"]
    assert (listed["name"], listed["namespace"], listed["format"]) == (table.name, table.database, "iceberg")
    assert listed["metadata_location"] == table.entry()["Parameters"]["metadata_location"]
    first = iceberg_cli("survey", *options)
    glue.calls.clear()
    again = iceberg_cli("survey", *options)
    assert {operation for operation, _ in glue.calls} == {"GetDatabases", "GetTables"}
    assert again.json["tables"][0]["from_cache"]
    assert again.json["tables"][0]["due"] == first.json["tables"][0]["due"] != []


@pytest.mark.parametrize(("more", "code"), [({}, 0), ({"glue.id": "123456789012"}, 11)])
def test_a_catalog_that_is_configured_twice_is_maintained_and_another_entry_of_a_table_keeps_its_files(
    glue: GlueFront, tmp_path: Path, more: dict[str, str], code: int
) -> None:
    table, _ = with_snapshots(glue, tmp_path)
    lines = table.config.read_text().splitlines(keepends=True)
    again = [line for line in lines[2:] if line.strip()]
    again += [f"    {name}: '{value}'\n" for name, value in more.items()]
    table.config.write_text("".join([*lines, "  other:\n", *again]))
    patterns = [f"{name}.{table.database}" for name in ("glue", "other")]
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, patterns)
    ran = iceberg_cli(
        "maintain", *patterns, "--policy", policy, "--catalog-config", table.config, "--yes", *JSON
    )
    (run,) = ran.json["runs"]
    assert (ran.code, run["status"]) == (code, "done" if code == 0 else "blocked"), ran.out
    assert run["table"]["also"] == [f"other.{table.database}.t"]


@pytest.mark.parametrize("operation", ["GetTable", "UpdateTable", "GetDatabases"])
def test_keys_are_in_no_message(table: GlueTable, operation: str) -> None:
    secrets = [KEYS["glue.secret-access-key"], KEYS["glue.access-key-id"]]
    table.glue.answers[operation] = refusal("AccessDeniedException", f"of {' and '.join(secrets)}")
    commands = {"GetTable": "inspect", "UpdateTable": "upgrade-v3", "GetDatabases": "list"}
    yes = ["--yes"] if operation == "UpdateTable" else []
    names = [] if operation == "GetDatabases" else [table.name]
    ran = iceberg_cli(commands[operation], *names, "--catalog-config", table.config, *yes, *JSON)
    assert ran.code == 16
    assert "AccessDeniedException" in ran.out + ran.err
    assert not [secret for secret in secrets if secret in ran.out + ran.err]


def test_an_attempt_reads_the_entry_once_and_sends_one_update(table: GlueTable) -> None:
    committer = table.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    table.glue.calls.clear()
    assert isinstance(committer.commit(attempt), Committed)
    assert [operation for operation, _ in table.glue.calls] == ["GetTable", "UpdateTable"]


def test_a_catalog_without_a_region_is_told_so(
    table: GlueTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    table.config.write_text(configuration_of("glue", {"type": "glue"}))
    ran = table.cli("inspect")
    assert ran.code == 2
    assert "glue.region" in ran.json["next"]

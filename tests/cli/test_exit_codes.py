"""One exit code for each kind of outcome, in text and in the `error/2` document."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from iceberg_cli import errors
from tests.builders import DAY_MS
from tests.cli.lakes import (
    AS_OF,
    CatalogTable,
    FolderTable,
    catalog_table,
    four_snapshots,
    in_the_way,
    listing,
    unchanged,
)
from tests.cli.running import Ran, iceberg_cli
from tests.installed import install

EVERYTHING_OLD = ("--older-than", "0s", "--retain-last", "1")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    properties = {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"}
    return catalog_table(tmp_path, monkeypatch, appends=3, **properties)


def run(name: object, *arguments: object) -> Ran:
    """Expire for real, JSON out."""
    return iceberg_cli("expire-snapshots", name, *arguments, "--yes", "--format", "json")


def check_error(ran: Ran, code: int, error: str) -> None:
    assert ran.code == code, ran.out + ran.err
    document = ran.json
    assert (document["schema"], document["exit_code"]) == ("iceberg-cli/error/2", code)
    assert document["error"] == error
    assert document["message"]
    assert document["state"]


def test_0_is_done_or_nothing_to_do(table: FolderTable) -> None:
    assert run(table.folder, *AS_OF).code == 0
    assert run(table.folder, *AS_OF).code == 0


def test_2_is_a_command_line_that_cannot_be_carried_out(table: FolderTable) -> None:
    check_error(run(table.folder, "--retain-last", "0"), 2, "UsageError")
    check_error(run(table.folder, "--no-such-option"), 2, "UsageError")
    check_error(run("two.parts"), 10, "TableNotFound")


def test_3_is_something_due_and_only_where_it_was_asked_for(table: FolderTable) -> None:
    arguments = ("expire-snapshots", table.folder, *AS_OF, "--dry-run")
    assert iceberg_cli(*arguments, "--exit-code").code == 3
    assert iceberg_cli(*arguments).code == 0


def test_10_is_a_table_that_is_not_there(tmp_path: Path, lake: CatalogTable) -> None:
    check_error(run(tmp_path / "nowhere"), 10, "TableNotFound")
    check_error(run("lake.shop.absent"), 10, "TableNotFound")
    (tmp_path / "empty" / "metadata").mkdir(parents=True)
    check_error(run(tmp_path / "empty"), 10, "TableNotFound")


def test_11_is_refused_by_an_interlock_with_nothing_changed(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", properties={"gc.enabled": "false"})
    name, before = table.publish(), listing(tmp_path)
    check_error(run(name, *AS_OF), 11, "Refused")
    assert listing(tmp_path) == before


def trigger(lake: CatalogTable, body: str) -> None:
    """Let the catalog's database answer each change of the table's row in this way."""
    with closing(sqlite3.connect(lake.database)) as connection, connection:
        connection.execute(f"CREATE TRIGGER t BEFORE UPDATE ON iceberg_tables BEGIN {body} END")


def test_12_is_every_attempt_refused_with_nothing_changed(lake: CatalogTable) -> None:
    trigger(lake, "SELECT RAISE(IGNORE);")
    with unchanged(lake.folder):
        check_error(run(lake.name, *EVERYTHING_OLD), 12, "CommitConflict")


PLUG_IN = """
from iceberg_cli.operation.outcomes import Unknown
from iceberg_cli.iceberg.catalogs.sql.catalog import SqlCatalog
from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter
from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
from iceberg_cli.storage.router import open_storage


class LostAnswers(SqlCommitter):
    def commit(self, attempt):
        super().commit(attempt)
        return Unknown(cause="the answer was lost")

    def settle(self, attempt):
        return Unknown(cause="the catalog does not answer")


class LostCatalog(SqlCatalog):
    def open(self, levels, table, storage_options):
        options = {**self.properties, **storage_options}
        committer = LostAnswers(
            SqlDatabase(self.uri()),
            catalog_name=self.name,
            namespace=".".join(levels),
            table=table,
            storage=open_storage(options),
        )
        return committer, options
"""


def install_plug_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a catalog type `lost` whose answers never arrive."""
    entry = "lost = lost_answers:LostCatalog"
    install(folder, monkeypatch, "lost_answers", group="iceberg_cli.committers", entry=entry, source=PLUG_IN)


def test_13_is_a_commit_without_a_known_outcome_and_deletes_nothing(
    lake: CatalogTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plug_in(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "lost")
    before = listing(lake.folder)
    ran = run(lake.name, *EVERYTHING_OLD)
    check_error(ran, 13, "CommitStateUnknown")
    assert "resume" in ran.json["next"]
    assert before.items() <= listing(lake.folder).items()
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    assert iceberg_cli("resume", lake.name).code == 0
    assert len(lake.snapshot_ids()) == 1
    assert lake.ids() == [0, 1, 2]
    assert not [name for name in listing(lake.folder) if name.startswith("_iceberg_cli/ops")]


def test_14_is_committed_with_files_left_and_resume_finishes(table: FolderTable) -> None:
    # A folder stands where a file should be: it is no file and is never deleted.
    stuck = in_the_way(table.folder, "one")
    (stuck / "inside").mkdir()
    ran = run(table.folder, *AS_OF)
    assert (ran.code, ran.json["status"]) == (14, "partial")
    assert [failure["path"] for failure in ran.json["failed_deletes"]] == [str(stuck)]
    assert (stuck / "inside").is_dir()
    assert iceberg_cli("resume", table.folder).code == 14
    (stuck / "inside").rmdir()
    stuck.rmdir()
    assert iceberg_cli("resume", table.folder).code == 0
    assert iceberg_cli("resume", table.folder, "--list").out == "No open operation.\n"


def test_14_again_for_the_same_reason_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "t")
    table.commit(1, age_ms=9 * DAY_MS, add=["keep", "one", "two"])
    table.commit(2, age_ms=8 * DAY_MS, remove=["one", "two"])
    table.publish()
    stuck = [in_the_way(table.folder, name) for name in ("one", "two")]
    expected = [{"path": str(path), "reason": "it is a folder"} for path in stuck]
    quiet = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", "--quiet")
    assert (quiet.code, quiet.out) == (14, "")
    assert [line for line in quiet.err.splitlines() if line.startswith("  still there")] == [
        f"  still there: {path}: it is a folder" for path in stuck
    ]
    [journal] = (table.folder / "_iceberg_cli" / "ops").iterdir()
    before = listing(journal)
    for command in (("resume", table.folder), ("expire-snapshots", table.folder, *AS_OF, "--yes")):
        for _ in range(2):
            ran = iceberg_cli(*command)
            assert ran.code == 14
            assert f"still there: {stuck[0]}: it is a folder" in ran.err
            assert listing(journal) == before
    ran = iceberg_cli("resume", table.folder, "--format", "json")
    assert (ran.code, ran.json["reports"][0]["failed_deletes"]) == (14, expected)
    stuck[0].rmdir()
    ran = iceberg_cli("resume", table.folder, "--format", "json")
    assert (ran.code, ran.json["reports"][0]["failed_deletes"]) == (14, expected[1:])
    assert len(listing(journal)) > len(before)
    stuck[1].rmdir()
    assert iceberg_cli("resume", table.folder).code == 0
    assert not journal.exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("damage", [_cut, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["snap-4.avro", "4-m0.avro"])
def test_15_is_a_file_of_a_kept_snapshot_that_cannot_be_read_whole(
    table: FolderTable, name: str, damage: Callable[[Path], None]
) -> None:
    damage(table.folder / "metadata" / name)
    with unchanged(table.folder):
        ran = run(table.folder, *AS_OF)
        check_error(ran, 15, "CorruptFile")
        assert name in ran.json["message"]


@pytest.mark.parametrize("text", ["", "{", '{"format-version": 2}', '{"format-version": 0}'])
def test_15_is_metadata_that_breaks_the_specification(table: FolderTable, text: str) -> None:
    (table.folder / "metadata" / "v1.metadata.json").write_text(text)
    ran = run(table.folder, *AS_OF)
    assert ran.code == 15, ran.out
    assert "v1.metadata.json" in ran.json["message"]


def test_16_is_a_catalog_that_refuses_before_anything_happened(lake: CatalogTable) -> None:
    trigger(lake, "SELECT RAISE(ABORT, 'the disk is on fire');")
    before = listing(lake.folder)
    ran = run(lake.name, *EVERYTHING_OLD)
    check_error(ran, 16, "BackendUnavailable")
    assert "the disk is on fire" in ran.json["message"]
    assert before.items() <= listing(lake.folder).items()
    assert len(lake.snapshot_ids()) == 3


def test_16_is_a_backend_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", f"sqlite:///{tmp_path}/absent.db")
    check_error(run("gone.shop.events"), 16, "BackendUnavailable")
    options = ("endpoint_url=http://127.0.0.1:9", "key=k", "secret=s", "region=us-east-1")
    arguments = [part for option in options for part in ("--storage-option", option)]
    check_error(run("s3://bucket/t", *arguments), 16, "BackendUnavailable")


def test_every_error_has_an_exit_code_that_help_explains() -> None:
    classes = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.IcebergCliError) and cls is not errors.IcebergCliError
    ]
    codes = {cls.exit_code for cls in classes}
    assert codes == {2, 10, 11, 12, 13, 14, 15, 16, 130}
    out = iceberg_cli("--help").out
    assert all(f"  {code}  " in out for code in [0, 1, 2, 3, *codes])

"""`expire-snapshots` as an operator or a script uses it, on small real tables."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from tests.builders import DAY_MS, a_tag
from tests.cli.lakes import AS_OF_MS, GONE, FolderTable, catalog_table, four_snapshots, listing
from tests.cli.running import dry, expire, going, iceberg_cli
from tests.paths import FIXTURES, needs_fixtures

AS_OF = ("--as-of", AS_OF_MS)


# -- what goes -------------------------------------------------------------------------------------------------


def test_expiry_deletes_what_only_expired_snapshots_reach_and_leaves_nothing_of_its_own(
    table: FolderTable,
) -> None:
    before = table.files()
    report = expire(str(table.folder), *AS_OF).json
    assert report["status"] == "done"
    assert before - table.files() == GONE
    assert table.files() - before == {"metadata/v2.metadata.json", "metadata/version-hint.text"}
    assert not (table.folder / "_iceberg_cli" / "ops").exists()


def test_the_report_counts_files_by_kind_in_the_peers_columns(table: FolderTable) -> None:
    report = expire(str(table.folder), *AS_OF).json
    counts = {name: report[name] for name in report if name.startswith("deleted_")}
    assert {name: number for name, number in counts.items() if number} == {
        "deleted_data_files_count": 2,
        "deleted_manifest_files_count": 2,
        "deleted_manifest_lists_count": 3,
        "deleted_statistics_files_count": 1,
    }
    assert counts["deleted_position_delete_files_count"] == 0
    assert report["failed_deletes"] == []


def test_pyiceberg_reads_every_kept_snapshot_after_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch)
    ids = [table.append(number) for number in range(5)]
    table.open().delete("id < 2")
    expire(table.name, "--older-than", "0s", "--retain-last", "2")
    assert table.snapshot_ids()[0] == ids[-1]
    assert table.ids(ids[-1]) == [0, 1, 2, 3, 4]
    assert table.ids() == [2, 3, 4]


def test_running_again_finds_nothing_to_do_and_commits_nothing(table: FolderTable) -> None:
    expire(str(table.folder), *AS_OF)
    before = listing(table.folder)
    report = expire(str(table.folder), *AS_OF).json
    assert (report["status"], report["operation_id"]) == ("nothing_to_do", None)
    assert listing(table.folder) == before


def test_a_v3_table_expires_as_a_v2_table_does(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", format_version=3)
    name, before = table.publish(), table.files()
    expire(name, *AS_OF)
    assert before - table.files() == GONE


# -- looking without touching ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_dry_run_writes_nothing(table: FolderTable, format_: str) -> None:
    before = listing(table.folder)
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--dry-run", "--format", format_)
    assert ran.code == 0
    assert listing(table.folder) == before


def test_the_dry_run_and_the_report_tell_the_same_numbers(table: FolderTable) -> None:
    plan = dry(str(table.folder), *AS_OF)
    report = expire(str(table.folder), *AS_OF).json
    assert going(plan) == {"1", "2", "3"}
    shown = {f"deleted_{kind}s_count": row["count"] for kind, row in plan["removals"]["by_kind"].items()}
    assert shown == {name: report[name] for name in shown}
    assert plan["removals"]["bytes"] == report["reclaimed_bytes"]


def test_text_is_the_verdict_and_then_candidates_that_are_alike_as_one(table: FolderTable) -> None:
    lines = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--dry-run").out.splitlines()
    assert lines[0].startswith("3 of 4 snapshots go, 1 stays; 8 files, ")
    assert lines[0].endswith(" freed; cut-off 2022-12-02 08:00 UTC, 5 d by default")
    rows = [line.split(maxsplit=2) for line in lines[3:6]]
    assert [row[:2] for row in rows] == [["-", "go"], ["=", "keep"], ["=", "keep"]]
    assert [" ".join(row[2].split()) for row in rows] == [
        "3 snapshots 2022-11-28 to 2022-11-30 older than the cut-off",
        "branch main 2022-12-01T08:00:00Z main is never removed",
        "snapshot 4 2022-12-01T08:00:00Z head of branch main",
    ]
    verbose = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--dry-run", "--verbose").out
    assert "9 d old, older than the cut-off (default)" in verbose


def test_exit_code_3_says_that_something_is_due_and_0_that_nothing_is(table: FolderTable) -> None:
    arguments = ("expire-snapshots", str(table.folder), *AS_OF, "--dry-run", "--exit-code")
    assert iceberg_cli(*arguments).code == 3
    assert iceberg_cli(*arguments, "--format", "json").code == 3
    assert iceberg_cli(*arguments, "--older-than", "30d").code == 0
    assert iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--dry-run").code == 0


def test_without_a_terminal_and_without_yes_nothing_is_asked_and_nothing_happens(
    table: FolderTable,
) -> None:
    before = listing(table.folder)
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF)
    assert ran.code == 2
    assert "Nobody can be asked" in ran.err
    assert listing(table.folder) == before


def test_where_nothing_is_due_nobody_needs_to_be_asked(table: FolderTable) -> None:
    assert iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--older-than", "30d").code == 0


def test_json_is_one_document_on_standard_output_and_nothing_else(table: FolderTable) -> None:
    ran = expire(str(table.folder), *AS_OF)
    assert ran.json["schema"] == "iceberg-cli/report/1"
    assert ran.err == ""


def test_where_output_is_no_terminal_no_line_is_wrapped(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    table = four_snapshots(deep / "events")
    name = table.publish()
    lines = iceberg_cli("expire-snapshots", name, *AS_OF, "--dry-run").out.splitlines()
    assert f"table       {name}, Iceberg v2" in lines
    assert f"planned on  {name}/metadata/v1.metadata.json" in lines


def test_quiet_prints_nothing_where_all_is_well(table: FolderTable) -> None:
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


# -- interlocks ------------------------------------------------------------------------------------------------


def test_gc_enabled_false_refuses_the_effect_and_not_the_view(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "events", properties={"gc.enabled": "false"})
    name, before = table.publish(), listing(tmp_path)
    plan = dry(name, *AS_OF)
    assert going(plan) == {"1", "2", "3"}
    assert plan["blocked_by"] == ["table property gc.enabled=false: another table may use these files"]
    ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--yes", "--format", "json")
    assert (ran.code, ran.json["exit_code"], ran.json["error"]) == (11, 11, "Refused")
    assert "gc.enabled=false" in ran.json["message"]
    assert listing(tmp_path) == before


def test_a_metadata_file_can_be_looked_at_and_not_expired(table: FolderTable) -> None:
    name = str(table.folder / "metadata" / "v1.metadata.json")
    before = listing(table.folder)
    plan = dry(name, *AS_OF)
    assert going(plan) == {"1", "2", "3"}
    assert len(plan["blocked_by"]) == 1
    assert iceberg_cli("expire-snapshots", name, *AS_OF, "--yes").code == 11
    assert listing(table.folder) == before


# -- which files -----------------------------------------------------------------------------------------------


def test_cleanup_metadata_leaves_data_and_delete_files(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--cleanup", "metadata")
    assert before - table.files() == {name for name in GONE if not name.startswith("data/")}


@pytest.mark.parametrize(("cleanup", "what"), [("none", "files"), ("metadata", "data and delete files")])
def test_files_that_a_cleanup_leaves_for_ever_are_told_even_with_quiet(
    table: FolderTable, cleanup: str, what: str
) -> None:
    plan = dry(str(table.folder), *AS_OF, "--cleanup", cleanup)
    assert plan["lasting"] == plan["warnings"]
    [warning] = plan["lasting"]
    assert warning.startswith(
        f"the {what} that only these snapshots reach stay for ever: --cleanup {cleanup}"
    )
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--cleanup", cleanup, "--yes", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", f"warning: {warning}\n")
    again = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--cleanup", cleanup, "--yes", "--quiet")
    assert (again.code, again.out, again.err) == (0, "", "")


def test_cleanup_none_deletes_no_file(table: FolderTable) -> None:
    before = table.files()
    report = expire(str(table.folder), *AS_OF, "--cleanup", "none").json
    assert report["status"] == "done"
    assert before <= table.files()
    assert (
        json.loads((table.folder / "metadata/v2.metadata.json").read_text())["snapshots"][0]["snapshot-id"]
        == 4
    )


def test_another_cleanup_is_a_usage_error(table: FolderTable) -> None:
    ran = iceberg_cli("expire-snapshots", table.folder, "--cleanup", "everything")
    assert ran.code == 2
    assert "'everything'" in ran.err


# -- grace, limits, resume -------------------------------------------------------------------------------------


def test_grace_commits_now_and_resume_deletes_after_it(table: FolderTable) -> None:
    before = table.files()
    assert expire(str(table.folder), *AS_OF, "--grace", "500ms").json["status"] == "waiting"
    assert before <= table.files()
    waiting = iceberg_cli("resume", table.folder, "--format", "json").json
    assert [report["status"] for report in waiting["reports"]] == ["waiting"]
    time.sleep(0.6)
    done = iceberg_cli("resume", table.folder, "--format", "json").json
    assert [report["status"] for report in done["reports"]] == ["done"]
    assert before - table.files() == GONE
    assert not (table.folder / "_iceberg_cli" / "ops").exists()


def test_the_next_run_settles_what_waited_and_needs_no_second_cron_line(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--grace", "300ms")
    time.sleep(0.4)
    ran = expire(str(table.folder), *AS_OF)
    assert ran.json["status"] == "nothing_to_do"
    assert "Settled the open operation" in ran.err
    assert before - table.files() == GONE


def test_no_resume_leaves_open_operations_alone(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--grace", "300ms")
    time.sleep(0.4)
    expire(str(table.folder), *AS_OF, "--no-resume")
    assert before <= table.files()
    listed = iceberg_cli("resume", table.folder, "--list", "--format", "json").json
    assert [operation["operation"] for operation in listed["operations"]] == ["expire-snapshots"]


def test_abandon_closes_an_operation_and_leaves_its_files(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--grace", "1h")
    assert iceberg_cli("resume", table.folder, "--abandon").code == 0
    assert "No open operation" in iceberg_cli("resume", table.folder).out
    assert before <= table.files()
    assert not (table.folder / "_iceberg_cli" / "ops").exists()


def test_limit_deletes_stops_cleanly_and_each_run_goes_on(table: FolderTable) -> None:
    before = table.files()
    report = expire(str(table.folder), *AS_OF, "--limit-deletes", "3").json
    assert report["status"] == "partial"
    gone = before - table.files()
    assert len(gone) == 3
    assert gone < GONE
    iceberg_cli("resume", table.folder, "--limit-deletes", "3")
    assert len(before - table.files()) == 6
    assert iceberg_cli("resume", table.folder).code == 0
    assert before - table.files() == GONE


def test_a_deadline_that_has_passed_leaves_the_deletions_for_later(table: FolderTable) -> None:
    before = table.files()
    assert expire(str(table.folder), *AS_OF, "--deadline", "0s").json["status"] == "partial"
    assert before <= table.files()
    iceberg_cli("resume", table.folder)
    assert before - table.files() == GONE


def test_open_operations_stay_as_they_are_once_a_catalog_has_the_table(table: FolderTable) -> None:
    expire(str(table.folder), *AS_OF, "--limit-deletes", "3")
    [newest] = (table.folder / "metadata").glob("v2.metadata.json")
    of_catalog = f"00002-{'0' * 8}-1111-4222-8333-{'4' * 12}.metadata.json"
    shutil.copy(newest, newest.with_name(of_catalog))
    before = table.files()
    expire(str(table.folder), *AS_OF)
    assert table.files() == before
    newest.with_name(of_catalog).unlink()
    assert iceberg_cli("resume", table.folder).code == 0
    assert len(before - table.files()) > 3


def test_resume_of_an_operation_that_is_not_there_says_so(table: FolderTable) -> None:
    ran = iceberg_cli("resume", table.folder, "11111111-2222-3333-4444-555555555555")
    assert ran.code == 2
    assert "11111111-2222-3333-4444-555555555555" in ran.err


def test_a_file_that_is_gone_already_is_no_failure(table: FolderTable) -> None:
    (table.folder / "data" / "one.parquet").unlink()
    report = expire(str(table.folder), *AS_OF).json
    assert (report["status"], report["failed_deletes"]) == ("done", [])


# -- snapshots by id -------------------------------------------------------------------------------------------


def test_an_id_alone_expires_that_snapshot_and_no_other(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--snapshot-id", "3")
    assert before - table.files() == {
        "data/three.parquet",
        "metadata/3.stats",
        "metadata/snap-3.avro",
        "metadata/3-m0.avro",
    }


def test_ids_and_an_age_are_added(table: FolderTable) -> None:
    plan = dry(str(table.folder), *AS_OF, "--snapshot-id", "3", "--older-than", "200h")
    assert going(plan) == {"1", "3"}


def test_the_current_snapshot_cannot_be_named(table: FolderTable) -> None:
    before = listing(table.folder)
    plan = dry(str(table.folder), *AS_OF, "--snapshot-id", "4")
    assert plan["blocked_by"] == ["snapshot 4 was named, but branch main points to it"]
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--snapshot-id", "4", "--yes")
    assert ran.code == 11
    assert listing(table.folder) == before


def test_the_snapshot_of_a_tag_cannot_be_named(table: FolderTable) -> None:
    table.writer.set_ref("eod", a_tag(2))
    name = table.publish()
    ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--snapshot-id", "2", "--yes")
    assert ran.code == 11
    assert "tag eod points to it" in ran.err


def test_an_unknown_id_beside_another_is_a_warning(table: FolderTable) -> None:
    arguments = ("--snapshot-id", "404", "--snapshot-id", "1", "--yes")
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, *arguments)
    assert ran.code == 0
    assert "snapshot 404 is not in the table" in ran.out


def test_an_id_that_is_no_number_is_a_usage_error(table: FolderTable) -> None:
    ran = iceberg_cli("expire-snapshots", table.folder, "--snapshot-id", "4a")
    assert ran.code == 2
    assert "4a" in ran.err


# -- schemas and specs -----------------------------------------------------------------------------------------


def test_clean_metadata_drops_schemas_and_specs_that_nothing_kept_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch)
    table.append(1)
    with table.open().update_schema() as schema:
        schema.add_column("extra", LongType())
    with table.open().update_spec() as spec:
        spec.add_identity("id")
    with table.open().update_schema() as schema:
        schema.rename_column("extra", "more")
    table.append(2)
    assert (len(table.open().schemas()), len(table.open().specs())) == (3, 2)
    expire(table.name, "--older-than", "0s", "--retain-last", "1", "--clean-metadata")
    left = table.open()
    # The first append's manifest is still listed, and it has the first spec.
    assert (sorted(left.schemas()), sorted(left.specs())) == ([left.schema().schema_id], [0, 1])
    left.delete("id = 1")
    table.append(3)  # the manifest in which 1 is marked as deleted is listed no more
    expire(table.name, "--older-than", "0s", "--retain-last", "1", "--clean-metadata")
    assert sorted(table.open().specs()) == [1]
    assert table.ids() == [2, 3]


@needs_fixtures
def test_clean_metadata_keeps_a_schema_whose_field_a_live_equality_delete_names(tmp_path: Path) -> None:
    copy = tmp_path / "flink"
    shutil.copytree(FIXTURES / "05-iceberg-v2-equality-deletes", copy)
    for path in copy.rglob("*.metadata.json"):
        document = json.loads(path.read_text())
        document["schemas"] += [
            {"type": "struct", "schema-id": 70, "fields": [an_int(3, "d")]},
            {"type": "struct", "schema-id": 71, "fields": [an_int(900, "forgotten")]},
        ]
        path.write_text(json.dumps(document))
    [folder] = {path.parent.parent for path in copy.rglob("*.metadata.json")}
    document = dry(str(folder), "--clean-metadata", "--older-than", "0s")
    assert going(document, "schema") == {"71"}


def an_int(field_id: int, name: str) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": "int"}


# -- what reaches the terminal ---------------------------------------------------------------------------------

EVIL = "a\x1b[2J\x1b]0;owned\x07\r\u202e\u2028b"
CONTROL = {"\x1b", "\x07", "\r", "\u202e", "\u2028", "\x9b"}


def test_control_characters_of_a_table_never_reach_the_terminal(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties={"owner": EVIL, "gc.enabled": "false"})
    table.writer.set_ref(EVIL, a_tag(1))
    table.writer.set_ref("x\x9b2J", a_tag(2, max_ref_age_ms=1))
    name = table.publish()
    for format_ in ("text", "json"):
        for verb in (("--dry-run",), ("--yes",), ("--yes", "--snapshot-id", "1")):
            ran = iceberg_cli("expire-snapshots", name, *AS_OF, *verb, "--format", format_)
            assert not CONTROL & set(ran.out + ran.err), (format_, verb)
    plan = dry(name, *AS_OF)
    assert EVIL in {verdict["id"] for verdict in plan["verdicts"]}


def test_a_path_with_control_characters_is_a_file_s_name_and_is_shown_without_them(tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "t")
    table.commit(1, age_ms=9 * DAY_MS, add=["keep", "one\x1b[2J"])
    table.commit(2, age_ms=8 * DAY_MS, remove=["one\x1b[2J"])
    name = table.publish()
    ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--yes")
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert [path.name for path in (tmp_path / "t/data").iterdir()] == ["keep.parquet"]


def test_secrets_of_storage_options_are_in_no_output_no_plan_and_no_journal(
    table: FolderTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-s3cr3t"
    monkeypatch.setenv("THE_SECRET", secret)
    (tmp_path / "token").write_text(secret)
    options = (
        "--storage-option",
        f"secret={secret}",
        "--storage-option",
        "s3.secret-access-key=env:THE_SECRET",
    )
    options += ("--storage-option", f"token=@{tmp_path / 'token'}")
    plan = str(tmp_path / "plans.json")
    runs = [
        iceberg_cli("plan", table.folder, "expire-snapshots", *AS_OF, *options, "-o", plan, "-v"),
        iceberg_cli("expire-snapshots", table.folder, *AS_OF, *options, "--yes", "--grace", "1h", "-v"),
        iceberg_cli("resume", table.folder, *options, "--format", "json"),
        iceberg_cli(
            "expire-snapshots",
            "s3://nowhere/t",
            *options,
            "--storage-option",
            "endpoint_url=http://127.0.0.1:9",
        ),
    ]
    assert [ran.code for ran in runs] == [0, 0, 0, 2]
    assert "part of the credentials is missing" in runs[-1].err
    assert all(secret not in ran.out + ran.err for ran in runs)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "token"]
    assert any("_iceberg_cli" in str(path) for path in written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_the_password_of_a_catalog_is_in_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PG__URI", "postgresql+psycopg://me:hunter2-s3cr3t@127.0.0.1:9/db")
    ran = iceberg_cli("expire-snapshots", "pg.shop.events")
    assert ran.code == 16
    assert "hunter2-s3cr3t" not in ran.out + ran.err


# -- the catalog -----------------------------------------------------------------------------------------------


def test_a_catalog_s_row_moves_once_and_names_its_former_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch)
    for number in range(3):
        table.append(number)
    before = table.open().metadata_location
    report = expire(table.name, "--older-than", "0s", "--retain-last", "1").json
    with closing(sqlite3.connect(table.database)) as connection:
        found = connection.execute(
            "SELECT metadata_location, previous_metadata_location FROM iceberg_tables"
        ).fetchall()
    assert found == [(report["metadata_location"], before)]
    assert table.ids() == [0, 1, 2]


def test_a_catalog_s_table_cannot_be_expired_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch)
    for number in range(3):
        table.append(number)
    arguments = ("--older-than", "0s", "--retain-last", "1")
    assert len(going(dry(str(table.folder), *arguments))) == 2
    ran = iceberg_cli("expire-snapshots", table.folder, *arguments, "--yes")
    assert ran.code == 11
    assert len(table.snapshot_ids()) == 3

"""`inspect --check` of a Delta table: each rule is broken by a table that breaks nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as DeltaRsTable

from iceberg_cli.delta.check.rules import RULES
from iceberg_cli.plan.findings import ERROR, EXAMPLES
from iceberg_cli.testing.delta_vectors import an_inline_vector
from iceberg_cli.testing.delta_writer import Action, a_commit, a_metadata, a_protocol, an_add
from tests.cli.running import iceberg_cli
from tests.delta_check_tables import (
    BREAKABLE,
    DEEP,
    LOG_CHANGES,
    VECTOR_FILE,
    Table,
    a_checksum,
    a_sound_table,
    a_table_that_breaks,
    name,
)
from tests.delta_opened import a_log, the_log
from tests.paths import ROOT


def check(root: Path, *arguments: object) -> dict[str, Any]:
    """The document of `inspect --check`; its exit code is 15 if there is an error, 16 if a storage did not answer."""
    ran = iceberg_cli("inspect", root, "--check", "--format", "json", *arguments)
    document = ran.json
    code = 15 if document["counts"][ERROR] else 0
    assert ran.code == (16 if "file-not-looked-at" in found(document) else code), ran.out
    return document


def found(document: dict[str, Any]) -> list[str]:
    return [row["id"] for row in document["findings"]]


def whole(root: Path) -> Table:
    table = a_sound_table(root)
    table.publish()
    table.checkpoint()
    table.put("crc", a_checksum(table), version=3)
    (table.log / "_last_checkpoint").write_text('{"version":2,"size":8}')
    return table


def test_there_is_a_table_for_every_rule() -> None:
    assert sorted(BREAKABLE) == sorted(RULES)


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_a_sound_table_breaks_no_rule(tmp_path: Path, deep: tuple[str, ...]) -> None:
    document = check(whole(tmp_path / "t").root, *deep)
    assert document["findings"] == []
    assert document["checked"] == {"commits": 4, "checkpoints": 1, "checksums": 1, "files": 4}
    assert document["deep"] is bool(deep)


@pytest.mark.parametrize("rule", BREAKABLE)
def test_a_broken_rule_is_found_and_no_other(tmp_path: Path, rule: str) -> None:
    root = a_table_that_breaks(rule, tmp_path / "t").root
    document = check(root, *(("--deep",) if rule in DEEP else ()))
    assert set(found(document)) == {rule}, document["findings"]
    for row in document["findings"]:
        assert (row["severity"], row["section"]) == (RULES[rule].severity, RULES[rule].section)
        assert row["where"]
        assert row["message"]
        assert row["remedy"]


@pytest.mark.parametrize("rule", sorted(DEEP))
def test_what_only_the_content_of_data_files_tells_needs_deep(tmp_path: Path, rule: str) -> None:
    assert found(check(a_table_that_breaks(rule, tmp_path / "t").root)) == []


def test_the_sections_are_headings_of_the_protocol() -> None:
    protocol = ROOT.parent / "shared" / "specs" / "delta-transaction-log-protocol.md"
    if not protocol.is_file():
        pytest.skip("the folder ../shared/specs beside the repository is absent")
    lines = protocol.read_text(encoding="utf-8").splitlines()
    headings = {line.lstrip("#").strip() for line in lines if line.startswith("#")}
    assert {rule.section for rule in RULES.values()} <= headings


@pytest.mark.parametrize(
    ("broken", "action"),
    [
        (True, a_protocol(1, 7, writer_features=["columnMapping"])),
        (
            True,
            a_protocol(
                3, 7, reader_features=["columnMapping"], writer_features=["columnMapping", "v2Checkpoint"]
            ),
        ),
        (False, a_protocol(2, 7, writer_features=["columnMapping", "identityColumns"])),
        (False, a_protocol(2, 5)),
        (False, a_protocol(1, 6)),
        (False, a_protocol(2, 4)),
    ],
)
def test_features_that_readers_are_not_told_of_are_those_that_delta_rs_refuses(
    tmp_path: Path, broken: bool, action: Action
) -> None:
    """Spec: "Supported Features"; (2, 7) is the example of "Protocol Evolution"."""
    a_log(tmp_path, [action, a_metadata()])
    assert found(check(tmp_path)) == ["feature-for-writers-only"] * broken
    if not broken:
        DeltaRsTable(str(tmp_path))
        return
    with pytest.raises(Exception, match="listed in writerFeatures"):
        DeltaRsTable(str(tmp_path))


def test_a_version_is_checked_with_the_files_that_it_had(tmp_path: Path) -> None:
    table = whole(tmp_path / "t")
    (table.root / "c.parquet").unlink()
    assert found(check(table.root)) == ["file-missing"]
    assert found(check(table.root, "--version", 2)) == []


def test_a_vector_says_the_file_and_the_data_file_that_it_belongs_to(tmp_path: Path) -> None:
    root = a_table_that_breaks("deletion-vector-unsound", tmp_path / "t").root
    (row,) = check(root)["findings"]
    assert row["where"].endswith(VECTOR_FILE)
    assert "a.parquet" in row["message"]
    assert "CRC-32" in row["message"]


def test_a_vector_of_another_cardinality_is_unsound(tmp_path: Path) -> None:
    table = a_sound_table(tmp_path / "t")
    table.action("add", 2)["deletionVector"]["cardinality"] = 3
    table.publish()
    (row,) = check(table.root)["findings"]
    assert row["id"] == "deletion-vector-unsound"
    assert "has 2 positions, metadata says 3" in row["message"]


def test_a_stated_count_of_rows_below_zero_differs_as_any_other(tmp_path: Path) -> None:
    table = a_sound_table(tmp_path / "t")
    table.action("add", 2)["stats"] = '{"numRecords":-5}'
    table.publish()
    (row,) = [row for row in check(table.root, "--deep")["findings"] if row["id"] == "record-count-differs"]
    assert row["message"].endswith(" rows, numRecords is -5")


def test_every_old_checkpoint_is_held_against_the_commits_only_with_deep(tmp_path: Path) -> None:
    table = a_table_that_breaks("last-checkpoint-stale", tmp_path / "t")
    (table.log / "_last_checkpoint").write_text('{"version":2,"size":8}')
    old = table.log / name(1, "checkpoint.parquet")
    old.write_bytes((table.log / name(2, "checkpoint.parquet")).read_bytes())
    assert found(check(table.root)) == []
    rows = check(table.root, "--deep")["findings"]
    assert {row["id"] for row in rows} == {"checkpoint-differs"}
    assert any("active files that it lacks: a.parquet" in row["message"] for row in rows)


@pytest.mark.parametrize(
    ("field", "value", "stated"),
    [
        ("size", 5, "another size"),
        ("baseRowId", 50, "another baseRowId"),
        ("defaultRowCommitVersion", 2, "another defaultRowCommitVersion"),
        ("modificationTime", 5, "another modificationTime"),
        ("partitionValues", {"p": "1"}, "other partitionValues"),
    ],
)
def test_a_checkpoint_that_says_otherwise_of_a_file_differs(
    tmp_path: Path, field: str, value: object, stated: str
) -> None:
    table = a_sound_table(tmp_path / "t")
    table.publish()
    add = table.action("add", 1, 1)
    assert add["path"] == "b.parquet"
    add[field] = value
    table.checkpoint()
    messages = [row["message"] for row in check(table.root)["findings"] if row["id"] == "checkpoint-differs"]
    assert messages == [f"{stated} {'is' if stated.startswith('another') else 'are'} given for b.parquet"]


@pytest.mark.parametrize(
    ("kind", "fields", "stated"),
    [
        ("txn", {"appId": "loader", "version": 5}, "its txn differs: loader is 5 and not 1"),
        (
            "domainMetadata",
            {"domain": "more", "configuration": "{}", "removed": False},
            "its domainMetadata differs",
        ),
    ],
)
def test_a_checkpoint_that_says_otherwise_of_the_table_differs(
    tmp_path: Path, kind: str, fields: dict[str, Any], stated: str
) -> None:
    table = a_sound_table(tmp_path / "t")
    table.publish()
    table.commits[0].append({kind: fields})
    table.checkpoint()
    (row,) = (row for row in check(table.root)["findings"] if row["id"] == "checkpoint-differs")
    assert stated in row["message"]


def test_a_log_compaction_that_cannot_be_read_ends_no_answer(tmp_path: Path) -> None:
    table = a_sound_table(tmp_path / "t")
    table.publish()
    table.put(f"{3:020}.compacted.json", b"{", version=0)
    assert found(check(table.root)) == ["compaction-unreadable"]
    for arguments in (("inspect",), ("rewrite-manifests", "--dry-run"), ("expire-snapshots", "--dry-run")):
        ran = iceberg_cli(arguments[0], table.root, *arguments[1:])
        assert ran.code == 0
        stated = " ".join((ran.out + ran.err).split())
        assert "log compaction files are passed over, and commits read" in stated
    assert iceberg_cli("rewrite-manifests", table.root, "--yes").code == 0


def test_white_space_and_the_order_of_keys_in_a_schema_are_no_difference(tmp_path: Path) -> None:
    table = a_sound_table(tmp_path / "t")
    table.publish()
    metadata = table.action("metaData", 0)
    schema = json.loads(metadata["schemaString"])
    for other in (json.dumps(schema, indent=2), json.dumps(dict(reversed(schema.items())))):
        assert other != metadata["schemaString"]
        metadata["schemaString"] = other
        table.checkpoint()
        table.put("crc", a_checksum(table), version=3)
        table.put(f"{2:020}.compacted.json", a_commit(*table.state()), version=0)
        assert found(check(table.root, "--deep")) == ["last-checkpoint-stale"]
    schema["fields"][0]["type"] = "integer"
    metadata["schemaString"] = json.dumps(schema)
    table.checkpoint()
    rules = {"checkpoint-differs", "compaction-differs", "checksum-differs", "last-checkpoint-stale"}
    table.put(f"{2:020}.compacted.json", a_commit(*table.state()), version=0)
    assert set(found(check(table.root))) == rules


def test_a_checkpoint_over_two_readings_of_a_commit_is_one_of_them(tmp_path: Path) -> None:
    table = a_sound_table(tmp_path / "t")
    table.publish()
    table.checkpoint()
    table.commits[1] += [a_metadata(name="first"), a_metadata(name="second")]
    table.publish()
    assert "checkpoint-differs" not in found(check(table.root, "--deep"))


def test_a_vector_in_a_storage_that_is_not_known_is_out_of_reach_and_the_check_goes_on(
    tmp_path: Path,
) -> None:
    table = a_sound_table(tmp_path / "t")
    vector = table.action("add", 2)["deletionVector"]
    vector |= {"storageType": "p", "pathOrInlineDv": "gopher://host/v.bin"}
    table.publish()
    rows = {row["id"]: row["where"] for row in check(table.root)["findings"]}
    assert rows["file-out-of-reach"] == "gopher://host/v.bin"
    assert rows.keys() == {"file-out-of-reach", "deletion-vector-file-dangling"}
    totals = iceberg_cli("inspect", table.root, "--format", "json").json["totals"]
    assert (totals["deletion_vector_files"], totals["deletion_vector_file_bytes"]) == (1, None)


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_files_of_a_clone_that_are_out_of_reach_are_named_and_all_others_are_checked(
    tmp_path: Path, deep: tuple[str, ...]
) -> None:
    source, root = tmp_path / "source", tmp_path / "t"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    table = a_sound_table(source)
    table.root = root
    table.action("add", 3)["path"] = f"file://{tmp_path}/loop/c.parquet"
    table.action("add", 1, 1)["path"] = f"file://{source}/gone.parquet"
    for version in (1, 2):
        table.action("add", version)["path"] = f"file://{source}/a.parquet"
    table.action("remove", 2)["path"] = f"file://{source}/a.parquet"
    vector = table.action("add", 2)["deletionVector"]
    vector |= {"storageType": "p", "pathOrInlineDv": f"file://{tmp_path}/loop/{VECTOR_FILE}"}
    table.publish()
    document = check(root, *deep)
    stated = {row["where"]: row for row in document["findings"]}
    assert {where: row["id"] for where, row in stated.items()} == {
        f"{tmp_path}/loop/c.parquet": "file-not-looked-at",
        f"{tmp_path}/loop/{VECTOR_FILE}": "file-not-looked-at",
        f"{source}/gone.parquet": "file-missing",
    }
    assert "it was not looked at: Cannot" in stated[f"{tmp_path}/loop/c.parquet"]["message"]
    ran = iceberg_cli("inspect", root, "--check", *deep)
    assert ran.code == 16
    assert "error: file-missing (1)" in ran.out
    assert "did not answer: 2 files; all others were" in ran.err


def test_a_vector_in_the_log_is_read_too(tmp_path: Path) -> None:
    for cardinality, rules in ((3, set[str]()), (2, {"deletion-vector-unsound"})):
        table = a_sound_table(tmp_path / str(cardinality))
        vector = an_inline_vector([3, 4, 9]) | {"cardinality": cardinality}
        table.action("add", 2)["deletionVector"] = vector
        table.publish()
        (table.root / VECTOR_FILE).unlink()
        assert set(found(check(table.root))) == rules


def test_of_many_findings_some_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "t"
    total = EXAMPLES + 5
    a_log(root, [an_add(path=f"{number}.parquet") for number in range(total)])
    document = check(root)
    assert found(document) == ["file-missing"] * EXAMPLES
    assert document["left_out"] == {"file-missing": 5}
    assert document["counts"][ERROR] == total


def test_text_says_what_breaks_which_section_and_what_to_do(tmp_path: Path) -> None:
    ran = iceberg_cli("inspect", a_table_that_breaks("row-ids-overlap", tmp_path / "t").root, "--check")
    assert ran.code == 15
    assert "error: row-ids-overlap (1)" in ran.out
    assert "c.parquet: its row ids 19 to 28" in ran.out
    assert "specification: Writer Requirements for Row Tracking" in ran.out
    assert "checked 4 commits, 1 checkpoint, 0 checksums, 4 files; --deep" in ran.out


def test_nothing_is_written_to_the_table(tmp_path: Path) -> None:
    table = whole(tmp_path / "t")
    before = {path: path.stat().st_mtime_ns for path in table.root.rglob("*")}
    check(table.root, "--deep")
    assert {path: path.stat().st_mtime_ns for path in table.root.rglob("*")} == before


def test_the_changes_leave_a_table_that_can_be_opened(tmp_path: Path) -> None:
    for rule in LOG_CHANGES:
        assert the_log(a_table_that_breaks(rule, tmp_path / rule).root).snapshot().version == 3

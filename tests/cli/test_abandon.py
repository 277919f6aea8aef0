"""`resume --abandon`: what was given up, and which files are orphaned; and what is still open is not "settled"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.lakes import AS_OF, GONE, FolderTable, delta_with_removed_files, edited, four_snapshots
from tests.cli.running import expire, iceberg_cli


def abandoned(table: object) -> dict[str, Any]:
    """What the document of `resume --abandon` says of the one operation that is open."""
    ran = iceberg_cli("resume", table, "--abandon", "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    [report] = ran.json["reports"]
    found: dict[str, Any] = report["abandoned"]
    return found


def test_the_document_lists_the_files_that_are_orphaned_with_their_bytes(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--grace", "1h").json["operation_id"]
    ran = iceberg_cli("resume", table.folder, "--abandon", "--format", "json")
    [report] = ran.json["reports"]
    assert (report["operation"], report["operation_id"]) == ("expire-snapshots", operation)
    found = report["abandoned"]
    # Of data files the manifests say 100 bytes.
    sizes = {
        f"{table.folder}/{name}": 100 if name.startswith("data/") else (table.folder / name).stat().st_size
        for name in GONE
    }
    assert {file["path"]: file["size_bytes"] for file in found["orphan_files"]} == sizes
    assert (found["orphan_files_count"], found["orphan_bytes"]) == (len(GONE), sum(sizes.values()))
    assert found["orphan_files_checked"] is True
    assert (found["state"], found["message"]) == ("waiting", "committed; its files wait for their grace")


def test_the_text_says_what_was_abandoned_and_lists_the_files(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--grace", "1h").json["operation_id"]
    ran = iceberg_cli("resume", table.folder, "--abandon")
    assert ran.code == 0
    first, second, *rest = ran.out.splitlines()
    assert first.startswith(f"Abandoned expire-snapshots {table.folder}, operation {operation}, begun at 20")
    assert first.endswith(": committed; its files wait for their grace.")
    assert second.startswith("8 files")
    assert second.endswith(
        "are orphaned: the table does not need them, and no operation deletes them any more:"
    )
    assert {line.strip() for line in rest} == {f"{table.folder}/{name}" for name in GONE}
    assert "Done" not in ran.out
    assert "ettled" not in ran.out


def test_a_file_that_the_table_needs_again_is_not_orphaned(table: FolderTable) -> None:
    """Somebody brought snapshot 3 back: whoever cleans up by the list must not lose its files."""
    expire(str(table.folder), *AS_OF, "--grace", "1h")
    before = json.loads((table.folder / "metadata" / "v1.metadata.json").read_text())
    now = json.loads((table.folder / "metadata" / "v2.metadata.json").read_text())
    now["snapshots"] += [each for each in before["snapshots"] if each["snapshot-id"] == 3]
    (table.folder / "metadata" / "v3.metadata.json").write_text(json.dumps(now))
    found = abandoned(table.folder)
    needed = {"data/three.parquet", "metadata/snap-3.avro", "metadata/3-m0.avro"}
    assert {file["path"] for file in found["orphan_files"]} == {
        f"{table.folder}/{name}" for name in GONE - needed
    }
    assert found["orphan_files_count"] == len(GONE) - 3


def test_files_that_are_deleted_already_are_not_listed(table: FolderTable) -> None:
    before = table.files()
    expire(str(table.folder), *AS_OF, "--limit-deletes", "3")
    left = {f"{table.folder}/{name}" for name in GONE & table.files()}
    assert len(left) == len(GONE) - len(before - table.files()) == 5
    assert {file["path"] for file in abandoned(table.folder)["orphan_files"]} == left


def test_a_delta_table_says_the_same_of_its_files(tmp_path: Path) -> None:
    root = delta_with_removed_files(tmp_path / "visits", "b", "c", "d")
    expire(root, *AS_OF, "--limit-deletes", "1")
    left = {str(path) for path in Path(root).glob("*.parquet")} - {f"{root}/a.parquet"}
    found = abandoned(root)
    assert len(left) == 2
    assert {file["path"] for file in found["orphan_files"]} == left
    assert (found["orphan_files_count"], found["orphan_files_checked"]) == (2, True)


def test_an_operation_that_leaves_nothing_says_so(tmp_path: Path) -> None:
    """Its journal began, and no plan was written yet."""
    folder = tmp_path / "t"
    four_snapshots(folder).publish()
    expire(str(folder), *AS_OF, "--grace", "1h")
    [journal] = (folder / "_iceberg_cli" / "ops").iterdir()
    for path in journal.iterdir():
        if path.name != "000000.json":
            path.unlink()
    ran = iceberg_cli("resume", folder, "--abandon")
    assert ran.code == 0
    assert ran.out.splitlines()[0].endswith(": stopped before its commit; nothing was changed.")
    assert ran.out.splitlines()[1] == "It leaves no file behind."


def test_a_journal_that_cannot_be_read_leaves_files_that_nobody_can_name(table: FolderTable) -> None:
    expire(str(table.folder), *AS_OF, "--grace", "1h")
    [journal] = (table.folder / "_iceberg_cli" / "ops").iterdir()
    (journal / "000001.json").write_bytes(b"{}")
    ran = iceberg_cli("resume", table.folder, "--abandon")
    assert ran.code == 0
    assert "Which files it leaves cannot be told" in ran.out
    assert iceberg_cli("resume", table.folder).out == "No open operation.\n"


def test_where_the_table_cannot_be_asked_the_list_says_that_it_was_not(table: FolderTable) -> None:
    expire(str(table.folder), *AS_OF, "--grace", "1h")
    with edited(table.folder / "metadata" / "v2.metadata.json") as document:
        document["properties"] = {**document.get("properties", {}), "gc.enabled": "false"}
    found = abandoned(table.folder)
    assert (found["orphan_files_count"], found["orphan_files_checked"]) == (len(GONE), False)
    assert "gc.enabled" in found["note"]


def test_quiet_lists_what_stays_on_standard_error(table: FolderTable) -> None:
    expire(str(table.folder), *AS_OF, "--grace", "1h")
    ran = iceberg_cli("resume", table.folder, "--abandon", "--quiet")
    assert (ran.code, ran.out) == (0, "")
    assert sum(f"{table.folder}/{name}" in ran.err for name in GONE) == len(GONE)


# -- what is still open --------------------------------------------------------------------------------------------


def test_what_is_still_open_is_not_called_settled(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--limit-deletes", "1").json["operation_id"]
    ran = iceberg_cli("resume", table.folder, "--limit-deletes", "1")
    assert ran.code == 0
    assert "ettled" not in ran.out
    assert f"Operation {operation} is still open." in ran.out
    again = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", "--limit-deletes", "1")
    assert "ettled" not in again.out
    done = iceberg_cli("resume", table.folder)
    assert f"Settled the open operation {operation}." in done.out


def test_what_waits_for_its_grace_is_not_called_settled(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--grace", "1h").json["operation_id"]
    ran = iceberg_cli("resume", table.folder)
    assert "ettled" not in ran.out
    assert f"Operation {operation} is still open." in ran.out

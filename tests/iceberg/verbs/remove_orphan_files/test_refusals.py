"""What the verb is refused for as a whole, before any file is looked at twice."""

from __future__ import annotations

from pathlib import Path

from tests.iceberg.verbs.remove_orphan_files.tables import DiskTable, StoreTable, name_of


def test_more_than_half_of_what_is_listed_goes_only_if_that_is_accepted(tmp_path: Path) -> None:
    table = DiskTable(location=str(tmp_path / "t")).with_live()
    orphans = {f"data/{name_of(number)}" for number in range(1_000)}
    table.put(*orphans)
    assert "would be deleted, more than half. --unsafe-accept-alarm carries it out" in table.refused()
    assert table.removed("--unsafe-accept-alarm") >= orphans


def test_a_bucket_of_s3_tables_removes_its_files_itself() -> None:
    table = StoreTable(location="s3://0f8fad5b-d9cb-469f-a165-70867728950e--table-s3/t").with_live()
    (reason,) = table.process().plan().plan.blocked_by
    assert reason.startswith("the bucket is one of S3 Tables, which removes unreferenced files itself")

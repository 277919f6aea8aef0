"""merge-dvs before version 3: position delete files go that no data file needs, and nothing else.

Readers are `tests.scan_planning`, and DuckDB and PyIceberg where the rows are real.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.testing.iceberg_files import DATA, position_deletes
from tests import delete_tables
from tests.cli.lakes import head_of, listed_of, metadata_of, newest_metadata
from tests.cli.running import iceberg_cli
from tests.delete_tables import STORAGE, DeleteTable, merge, refusal
from tests.duckdb_reading import duckdb_with_iceberg
from tests.manifest_tables import a_lot
from tests.scan_planning import entries_of

FILE_PATH = 2147483546  # field id of `file_path` in position delete files
NUMBERS = ("snapshot_id", "sequence_number", "file_sequence_number")


def a_table(folder: Path, *data: str) -> DeleteTable:
    """A table of version 2 with a commit of data files of ten rows."""
    return delete_tables.a_table(folder, dict.fromkeys(data, 10), format_version=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


def staying(folder: Path) -> set[str]:
    """Short names of the delete files that the table lists."""
    entries = entries_of(STORAGE.read, metadata_of(folder))
    return {Path(e["file_path"]).name.replace("-deletes.parquet", "") for e in entries if e["content"]}


def reasons(folder: Path) -> dict[str, str]:
    """What the plan says of each delete file, by short name."""
    ran = iceberg_cli("plan", folder, "merge-dvs", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return {
        Path(verdict["id"]).name.replace("-deletes.parquet", ""): verdict["reason"]
        for verdict in ran.json["verdicts"]
    }


def named(table: DeleteTable, name: str, *paths: str, **others: Any) -> None:
    """A position delete file that names data files in these spellings."""
    rows = sorted((path, 1) for path in paths)
    table.position_bytes(name, position_deletes(rows), len(rows), **others)


def test_a_position_delete_file_goes_once_every_data_file_that_it_names_is_gone_or_newer(
    folder: Path,
) -> None:
    table = a_table(folder, "a", "b", "c")
    table.positions("gone", {"b": [1], "c": [2]})
    table.positions("mixed", {"a": [1], "b": [2], "c": [3]})
    table.positions("early", {"d": [4]})
    table.positions("equal", {"e": [5]})
    table.data("e", 10)
    table.equality("e")
    table.commit(2)
    table.remove("b", "c")
    table.data("d", 10)
    table.commit_and_publish(3)

    report = merge(folder)

    assert staying(folder) == {"mixed", "equal", "e-eq"}
    assert (report["rewritten_delete_files_count"], report["added_delete_files_count"]) == (2, 0)
    assert all(Path(table.path(name)).exists() for name in "abcde")
    assert (folder / "data/gone-deletes.parquet").exists()  # an older snapshot has it
    assert merge(folder)["status"] == "nothing_to_do"


def test_the_commit_replaces_manifests_of_version_2_and_counts_what_went(folder: Path) -> None:
    table = a_table(folder, "a", "b")
    table.positions("gone", {"b": [1, 2]})
    table.positions("kept", {"a": [1]})
    table.commit(2)
    table.remove("b")
    table.commit_and_publish(3)
    sizes = {e["file_path"]: e["file_size_in_bytes"] for e in entries_of(STORAGE.read, metadata_of(folder))}
    merge(folder)
    snapshot = head_of(folder)
    gone = f"{folder}/data/gone-deletes.parquet"
    expected = {
        "operation": "replace", "removed-delete-files": "1", "removed-position-delete-files": "1",
        "removed-position-deletes": "2", "removed-files-size": str(sizes[gone]), "changed-partition-count": "1",
        "manifests-created": "1", "manifests-replaced": "1", "total-delete-files": "1", "total-position-deletes": "1",
    }  # fmt: skip
    assert {name: snapshot["summary"].get(name) for name in expected} == expected
    assert not {name for name in snapshot["summary"] if name.startswith("added-")}
    assert "first-row-id" not in snapshot
    (row,) = [row for row in listed_of(folder) if row["content"] == 1]
    assert "first_row_id" not in row
    assert [row[f"{kind}_files_count"] for kind in ("added", "existing", "deleted")] == [0, 1, 1]
    assert (row["sequence_number"], row["min_sequence_number"]) == (4, 2)
    with open(row["manifest_path"], "rb") as file:
        reader = fastavro.reader(file)
        entries = {Path(entry["data_file"]["file_path"]).name: entry for entry in reader}
        assert reader.metadata["format-version"] == "2"
    kept = entries["kept-deletes.parquet"]
    assert [kept[n] for n in ("status", *NUMBERS)] == [0, 2, 2, 2]
    went = entries["gone-deletes.parquet"]
    assert [went[n] for n in ("status", "sequence_number", "file_sequence_number")] == [2, 2, 2]
    assert (went["snapshot_id"] or row["added_snapshot_id"]) == snapshot["snapshot-id"]


@pytest.mark.pairs
@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "s3a://bucket{}", "/{}", "{}"])
@pytest.mark.parametrize("listed", ["{}", "s3://other{}"], ids=["plain", "s3"])
def test_a_live_data_file_is_live_in_every_spelling(folder: Path, spelling: str, listed: str) -> None:
    table = a_table(folder)
    path = listed.format(table.path("a").replace("/data/", "/data/./"))
    table.listed(path, 10)
    table.commit(2)
    named(table, "spelled", spelling.format(table.path("a").replace("/data/", "//data/")))
    named(table, "gone", table.path("x"))
    table.commit_and_publish(3)
    merge(folder)
    assert staying(folder) == {"spelled"}


def test_a_file_that_is_listed_in_two_spellings_is_as_old_as_the_older_listing(folder: Path) -> None:
    table = a_table(folder, "a")
    named(table, "p", f"file:{table.path('a')}")
    table.commit(2)
    table.listed(f"file:{table.path('a')}", 10)
    table.commit_and_publish(3)
    assert merge(folder)["status"] == "nothing_to_do"
    assert staying(folder) == {"p"}


@pytest.mark.parametrize("linked", ["data", "deletes"])
@pytest.mark.parametrize("other", ["link", "link/../data", "data/../link"])
def test_a_live_data_file_is_live_by_the_name_that_a_link_to_its_folder_gives_it(
    folder: Path, linked: str, other: str
) -> None:
    table = a_table(folder)
    (folder / "data").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "data")
    names = [f"{folder}/data/a.parquet", f"{folder}/{other}/a.parquet"]
    listed, spelled = names if linked == "deletes" else reversed(names)
    table.listed(listed, 10)
    table.commit(2)
    named(table, "spelled", spelled)
    named(table, "gone", f"{folder}/link/b.parquet")
    table.commit_and_publish(3)
    merge(folder)
    assert staying(folder) == {"spelled"}


@pytest.mark.parametrize("bounds", ["of another file", "cut short", "the wrong way round"])
def test_bounds_decide_nothing(folder: Path, bounds: str) -> None:
    table = a_table(folder, "a")
    live, gone = table.path("a").encode(), table.path("x").encode()
    short = live[:5]

    def stated(other: bytes) -> dict[str, Any]:
        low, high = {
            "of another file": (other, other), "cut short": (short, short), "the wrong way round": (b"z", b"a"),
        }[bounds]  # fmt: skip
        return {"lower_bounds": {FILE_PATH: low}, "upper_bounds": {FILE_PATH: high}}

    named(table, "needed", table.path("a"), **stated(gone))
    named(table, "dangling", table.path("x"), **stated(live))
    table.commit_and_publish(2)
    merge(folder)
    assert staying(folder) == {"needed"}


def test_a_file_whose_entry_names_another_data_file_than_its_rows_stays(folder: Path) -> None:
    table = a_table(folder, "a")
    named(table, "odd", table.path("x"), referenced_data_file=table.path("a"))
    named(table, "even", table.path("x"), referenced_data_file=table.path("x"))
    table.commit_and_publish(2)
    assert "of another data file than its entry says" in reasons(folder)["odd"]
    merge(folder)
    assert staying(folder) == {"odd"}


def test_neither_partition_nor_spec_makes_a_delete_dangle(folder: Path) -> None:
    table = a_table(folder)
    table.data("a", 10, k="x")
    table.positions("elsewhere", {"a": [1]}, k="y")
    table.positions("unpartitioned", {"a": [2]})
    table.positions("gone", {"b": [2]}, k="y")
    table.commit_and_publish(2)
    merge(folder)
    assert staying(folder) == {"elsewhere", "unpartitioned"}


@pytest.mark.parametrize("how", [{"file_format": "AVRO"}, {"file_format": "ORC"}, {"key_metadata": b"k"}])
def test_a_file_that_is_not_read_here_stays_and_the_plan_says_so(folder: Path, how: dict[str, Any]) -> None:
    table = a_table(folder)
    named(table, "unread", table.path("x"), **how)
    table.commit_and_publish(2)
    assert reasons(folder)["unread"].startswith("left alone: no Parquet file, encrypted")
    assert merge(folder)["status"] == "nothing_to_do"


def with_a_null(paths: list[str | None]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"file_path": pa.array(paths), "pos": range(len(paths))}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "rows", "reason"),
    [
        (with_a_null(["/x", None]), 2, "file_path"),
        (with_a_null(["/x", "/y"]), 3, "2 rows"),
        (with_a_null(["/x", "/y"])[:-100], 2, "no readable Parquet"),
    ],
    ids=["a null", "other rows", "cut short"],
)
def test_a_file_that_cannot_be_read_whole_is_named_and_nothing_is_planned(
    folder: Path, data: bytes, rows: int, reason: str
) -> None:
    table = a_table(folder, "a")
    named(table, "gone", table.path("x"))
    table.position_bytes("bad", data, rows)
    table.commit_and_publish(2)
    message = refusal(folder)
    assert "bad-deletes.parquet" in message
    assert reason in message


def test_a_delete_file_that_is_older_than_every_data_file_goes_whatever_it_holds(folder: Path) -> None:
    """Its data sequence number alone says that it applies to none, so it need not be read."""
    table = a_table(folder, "a")
    table.position_bytes("older", b"no Parquet", 2)
    table.commit(2)
    table.remove("a")
    table.data("b", 10)
    table.positions("same", {"b": [1]})
    table.commit_and_publish(3)
    assert merge(folder)["rewritten_delete_files_count"] == 1
    assert staying(folder) == {"same"}


def say_newer(folder: Path) -> None:
    """Make the manifest list say that every data manifest is newer than it is."""
    path = Path(metadata_of(folder)["snapshots"][-1]["manifest-list"])
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        rows = [row if row["content"] else row | {"min_sequence_number": 99} for row in reader]
    with path.open("wb") as file:
        fastavro.writer(file, reader.writer_schema, rows, metadata=reader.metadata)


@pytest.mark.parametrize("wrong", [False, True], ids=["true list", "wrong list"])
def test_a_delete_file_that_is_as_old_as_a_data_file_is_read(folder: Path, wrong: bool) -> None:
    table = a_table(folder, "a")
    table.position_bytes("old", b"no Parquet", 2)
    table.data("b", 10)
    table.commit(2)
    table.remove("a")
    table.data("c", 10)
    table.commit_and_publish(3)
    if wrong:
        say_newer(folder)
    assert "old-deletes.parquet" in refusal(folder)


def test_where_and_keep_dangling_hold_here_as_well(folder: Path) -> None:
    table = a_table(folder)
    table.positions("x", {"gone": [1]}, k="x")
    table.positions("y", {"gone": [2]}, k="y")
    table.commit_and_publish(2)
    assert merge(folder, "--keep-dangling")["status"] == "nothing_to_do"
    merge(folder, "--where", "k = 'x'")
    assert staying(folder) == {"y"}


def test_deletes_that_are_needed_leave_nothing_to_do_and_the_plan_says_what_needs_them(folder: Path) -> None:
    table = a_table(folder, "a", "b")
    table.positions("p", {"a": [1], "b": [2], "gone": [3]})
    table.commit_and_publish(2)
    reason = "names 3 data files: 2 live and not newer, 1 gone or newer; before version 3 there are no deletion vectors"
    assert reasons(folder) == {"p": reason}
    assert merge(folder)["status"] == "nothing_to_do"


def test_a_table_of_version_1_has_nothing_to_do(folder: Path) -> None:
    a_lot(1, files=4, manifests=2, storage=STORAGE, location=str(folder)).table()
    assert merge(folder, compare=False)["status"] == "nothing_to_do"


def test_a_plan_of_dangling_deletes_merges_none_into_a_vector_though_the_table_was_upgraded_meanwhile(
    folder: Path, tmp_path: Path
) -> None:
    table = a_table(folder, "a")
    table.positions("gone", {"b": [1]})
    table.positions("never", {"c": [2]})
    table.positions("needed", {"a": [3]})
    table.commit_and_publish(2)
    saved = tmp_path / "plan.json"
    assert iceberg_cli("plan", folder, "merge-dvs", "-o", saved).code == 0
    assert iceberg_cli("upgrade-v3", folder, "--yes").code == 0
    table.reload(metadata_of(folder), 2)
    table.data("b", 10, sequence_number=2)
    table.commit_and_publish(9)
    ran = iceberg_cli("apply", saved, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert staying(folder) == {"gone", "needed"}


def real_data(table: DeleteTable, name: str, first: int) -> None:
    """A data file of ten rows that other readers can read."""
    fields = [
        pa.field(column, type_, metadata={"PARQUET:field_id": str(number)})
        for number, (column, type_) in enumerate({"n": pa.int64(), "k": pa.string()}.items(), start=1)
    ]
    rows = {"n": range(first, first + 10), "k": [name] * 10}
    out = io.BytesIO()
    pq.write_table(pa.table(rows, schema=pa.schema(fields)), out)
    table.add(table.file(f"{name}.parquet", out.getvalue(), DATA, 10))


def rows_of_others(folder: Path) -> tuple[list[int], list[int]]:
    """The table's rows as DuckDB and as PyIceberg read them."""
    newest = newest_metadata(folder)
    found = duckdb_with_iceberg().execute(f"SELECT n FROM iceberg_scan('{newest}') ORDER BY n").fetchall()
    arrow = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    return [n for (n,) in found], sorted(arrow["n"].to_pylist())


def test_duckdb_and_pyiceberg_read_the_same_rows_before_and_after(folder: Path) -> None:
    table = a_table(folder)
    for number, name in enumerate("abc"):
        real_data(table, name, 10 * number)
    table.commit(2)
    table.positions("needed", {"a": [1, 2], "b": [3]})
    table.positions("gone", {"b": [4], "c": [5]})
    table.commit(3)
    table.remove("b", "c")
    real_data(table, "d", 100)
    table.commit_and_publish(4)
    before = rows_of_others(folder)
    assert before == ([0, *range(3, 10), *range(100, 110)],) * 2
    assert merge(folder)["rewritten_delete_files_count"] == 1
    assert rows_of_others(folder) == before

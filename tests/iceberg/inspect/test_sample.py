"""`inspect TABLE sample`: rows that other engines say are there, what is shown of them, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.iceberg_files import DATA
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import a_table as a_delete_table
from tests.fixtures.iceberg_tables import JAVA, expected, folder
from tests.iceberg.inspect.test_sample_laws import STORAGE, Row, RowTable, parquet
from tests.paths import needs_fixtures

ALL = ("--limit", 1_000_000)


def shown(table: object, *arguments: object) -> list[dict[str, Any]]:
    ran = run("inspect", table, "sample", "--jsonl", *arguments)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@needs_fixtures
def test_deletion_vectors_that_impala_wrote_hide_their_rows() -> None:
    case = "03-iceberg-v3-deletion-vectors"
    assert sorted(row["i"] for row in shown(folder(case), *ALL)) == expected(case)["live_rows"]


@needs_fixtures
def test_a_column_that_a_file_does_not_have_has_its_initial_default() -> None:
    case = "04-iceberg-v3-default-values"
    assert sorted([row["i"], row["j"]] for row in shown(folder(case), *ALL)) == expected(case)["rows"]


@needs_fixtures
def test_equality_deletes_that_flink_wrote_hide_their_rows() -> None:
    case = "05-iceberg-v2-equality-deletes"
    assert len(shown(folder(case), *ALL)) == expected(case)["live_row_count"]


@pytest.mark.few(3)
@needs_fixtures
@pytest.mark.parametrize("case", JAVA)
def test_every_snapshot_has_as_many_rows_as_java_counted(case: str) -> None:
    for snapshot_id, known in expected(case)["snapshots"].items():
        assert len(shown(folder(case), "--snapshot", snapshot_id, *ALL)) == known["rows"]


# -- tables of our own ---------------------------------------------------------------------------------------------

ROWS: list[Row] = [(n, f"k{n}") for n in range(30)]


@pytest.fixture
def table(tmp_path: Path) -> RowTable:
    """Thirty rows in two data files, of which the first three are deleted."""
    made = RowTable(storage=STORAGE, location=str(tmp_path / "t"), format_version=2)
    made.data_rows("a", ROWS[:20])
    made.data_rows("b", ROWS[20:])
    made.commit(1)
    made.positions("p", {"a": [0, 1, 2]})
    made.commit(2)
    made.publish()
    return made


def test_twenty_rows_are_shown_unless_another_number_is_asked_for(table: RowTable) -> None:
    assert len(shown(table.location)) == 20
    assert len(shown(table.location, "--limit", 3)) == 3
    assert sorted((row["n"], row["k"]) for row in shown(table.location, *ALL)) == ROWS[3:]
    assert len(shown(table.location, "--snapshot", 1, *ALL)) == 30


def test_columns_are_shown_in_the_order_of_the_command_line(table: RowTable) -> None:
    document = run(
        "inspect", table.location, "sample", "--columns", "k", "--columns", "n", "--format", "json"
    ).json
    assert document["columns"] == [{"name": "k", "type": "string"}, {"name": "n", "type": "long"}]
    assert list(document["rows"][0]) == ["k", "n"]
    assert document["row_count"] == 20
    ran = run("inspect", table.location, "sample", "--columns", "kk")
    assert ran.code == 2
    assert "Did you mean 'k'?" in ran.err


def test_rows_go_into_files(table: RowTable, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.jsonl"):
        ran = run("inspect", table.location, "sample", *ALL, "-o", tmp_path / name)
        assert ran.out == f"27 rows of sample written to {tmp_path / name}\n"
    in_parquet = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert in_parquet == [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sorted(row["n"] for row in in_parquet) == list(range(3, 30))


def test_text_is_one_table(table: RowTable) -> None:
    out = run("inspect", table.location, "sample", "--limit", 2).out.splitlines()
    assert out[0].split() == ["n", "k"]
    assert out[-1] == "(2 rows)"


@pytest.mark.parametrize("damage", ["gone", "cut short", "deletes gone"])
def test_what_cannot_be_read_is_an_error_and_no_fewer_rows(
    table: RowTable, tmp_path: Path, damage: str
) -> None:
    data = Path(table.path("a"))
    match damage:
        case "gone":
            data.unlink()
        case "cut short":
            data.write_bytes(data.read_bytes()[:-20])
        case _:
            (data,) = Path(table.location).glob("**/p-deletes.parquet")
            data.unlink()
    ran = run("inspect", table.location, "sample", *ALL, "-o", tmp_path / "rows.parquet")
    assert ran.code == 15, ran.err
    assert data.name in ran.err
    assert [each.name for each in tmp_path.iterdir()] == ["t"]
    with pytest.raises(CorruptFile):
        ic.open_table(table.location).sample(None).to_arrow()


@pytest.mark.parametrize("key", [b"key", None])
def test_an_encrypted_data_file_is_refused(table: RowTable, key: bytes | None) -> None:
    content = table.rows[table.path("a")]
    entry = table.file("c.parquet", b"PAR1 nobody can read this PARE", 0, len(content))
    table.add(entry | {"key_metadata": key})
    table.commit(3)
    table.publish()
    ran = run("inspect", table.location, "sample", *ALL)
    assert ran.code == 11
    assert "c.parquet" in ran.err


def test_a_table_without_data_has_no_rows(tmp_path: Path) -> None:
    empty = RowTable(storage=STORAGE, location=str(tmp_path / "t"))
    empty.publish()
    assert shown(empty.location) == []
    assert run("inspect", empty.location, "sample", "--format", "json").json["rows"] == []


def test_nobody_reads_the_lines_any_more(table: RowTable) -> None:
    """As `| head -1`, which closes the pipe: 141, and no traceback."""
    command = [sys.executable, "-m", "iceberg_cli", "inspect", table.location, "sample", "--jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        message = process.stderr.read()
        assert process.wait() == 141
    assert message == b""


def test_a_copy_elsewhere_is_read_where_it_lies(table: RowTable, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(table.location, moved)
    assert len(shown(moved, *ALL)) == 27


def as_written_by_arrow(data: bytes, string: pa.DataType) -> bytes:
    """The same rows, with the Arrow types of another writer recorded beside Parquet's own."""
    rows = pq.read_table(pa.BufferReader(data))
    fields = [each.with_type(string) if pa.types.is_string(each.type) else each for each in rows.schema]
    sink = pa.BufferOutputStream()
    pq.write_table(rows.cast(pa.schema(fields)), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("string", [pa.string_view(), pa.large_string()])
def test_arrow_types_of_other_writers_hide_no_row_and_no_delete(tmp_path: Path, string: pa.DataType) -> None:
    class Written(RowTable):
        def file(self, name: str, content: bytes, *others: Any, **fields: Any) -> dict[str, Any]:
            content = as_written_by_arrow(content, string)
            return super().file(name, content, *others, **fields | {"file_size_in_bytes": len(content)})

    made = Written(storage=STORAGE, location=str(tmp_path / "t"), format_version=2)
    made.data_rows("a", ROWS)
    made.commit(1)
    made.positions("p", {"a": [0, 1]})
    made.equality_rows("e", (2,), [("k5",), ("k6",)])
    made.commit(2)
    made.publish()
    left = [row for row in ROWS if row[0] not in (0, 1, 5, 6)]
    assert sorted((row["n"], row["k"]) for row in shown(made.location, *ALL)) == left


@pytest.mark.parametrize("difference", [-8, 8, 5_000])
def test_a_data_file_of_another_size_than_its_manifest_says_is_read_to_its_true_end(
    tmp_path: Path, difference: int
) -> None:
    table = RowTable(storage=STORAGE, location=str(tmp_path / "t"), format_version=2)
    content = parquet(ROWS, (1, 2))
    table.add(table.file("a.parquet", content, DATA, len(ROWS), file_size_in_bytes=len(content) + difference))
    table.commit(1)
    table.publish()
    ran = run("inspect", table.location, "sample", *ALL, "--format", "json")
    assert ran.code == 0
    assert sorted((row["n"], row["k"]) for row in ran.json["rows"]) == ROWS
    stated = f"{len(content) + difference:,}"
    assert f"a.parquet has {len(content):,} bytes, and the table says {stated}: it is read to" in ran.err


@pytest.mark.parametrize("difference", [-8, 8, 5_000])
@pytest.mark.parametrize("kind", ["positions", "equality", "vectors"])
def test_deletes_of_another_size_than_their_manifest_says_are_read_to_their_true_end(
    tmp_path: Path, kind: str, difference: int
) -> None:
    version = 3 if kind == "vectors" else 2
    table = RowTable(storage=STORAGE, location=str(tmp_path / "t"), format_version=version)
    table.data_rows("a", ROWS)
    table.commit(1)
    if kind == "equality":
        table.equality_rows("d", (1,), [(ROWS[1][0],), (ROWS[2][0],)])
    else:
        getattr(table, kind)("d", {"a": {1, 2}})
    entry = table.added[-1]
    size = len(Path(entry["file_path"]).read_bytes())
    entry["file_size_in_bytes"] = size + difference
    table.commit(2)
    table.publish()
    ran = run("inspect", table.location, "sample", *ALL, "--format", "json")
    assert ran.code == 0, ran.err
    assert sorted((row["n"], row["k"]) for row in ran.json["rows"]) == sorted([ROWS[0], *ROWS[3:]])
    if kind != "vectors":  # nothing looks for the end of these
        assert f"has {size:,} bytes, and the table says {size + difference:,}: it is read to" in ran.err


UNFIT: dict[str, tuple[int, str, dict[str, Any], str]] = {
    "a vector of no data file": (3, "vector", {"referenced_data_file": None}, "field referenced_data_file"),
    "a vector at no place": (3, "vector", {"content_offset": None}, "field content_offset"),
    "a vector of no length": (3, "vector", {"content_size_in_bytes": None}, "field content_size_in_bytes"),
    "a vector before version 3": (2, "vector", {}, "table of version 2"),
    "deletes in no known format": (
        3,
        "equality deletes",
        {"file_format": "PUFFIN"},
        "format 'puffin' of content 2",
    ),
    "equality deletes by nothing": (3, "equality deletes", {"equality_ids": []}, "equality_ids are none"),
    "equality deletes by no column": (
        3,
        "equality deletes",
        {"equality_ids": [1, 99]},
        "equality_ids are [1, 99]",
    ),
}


@pytest.mark.parametrize("newer_data", [False, True], ids=["of the data file", "of nothing that is live"])
@pytest.mark.parametrize("case", UNFIT)
def test_a_delete_that_cannot_be_applied_stops_the_sample(
    tmp_path: Path, case: str, *, newer_data: bool
) -> None:
    version, kind, fields, reason = UNFIT[case]
    made = a_delete_table(tmp_path, {"a": 10}, format_version=version)
    if kind == "vector":
        made.vectors("p", {"a": {1, 2}})
    else:
        made.equality("p")
    made.added[-1] |= fields
    made.commit_and_publish(2)
    if newer_data:
        made.remove("a", vectors=False)
        made.data("b", 10)
        made.commit_and_publish(3)
    ran = run("inspect", made.location, "sample")
    assert ran.code == 15, ran.out + ran.err
    assert reason in ran.err
    assert run("inspect", made.location, "--check").code == 15

"""`inspect TABLE sample` of Delta tables that other engines wrote: the rows that these say are there."""

from __future__ import annotations

import functools
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_writer import commit_path
from tests.cli.running import iceberg_cli as run
from tests.delta_check_tables import a_table_that_breaks
from tests.fixtures.delta_tables import ACCEPTANCE, EXPECTED, a_copy, sound_tables, spark_tables
from tests.paths import FIXTURES, needs_fixtures

pytestmark = needs_fixtures


def plain(value: Any) -> Any:
    """A value of one reader's as the others have it, too, and one that can be counted."""
    if isinstance(value, dict):
        return tuple((key, plain(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return value


def counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple((name, plain(row[name])) for name in sorted(row)) for row in rows)


def sampled(folder: Path, **state: Any) -> Counter[Any]:
    return counted(ic.open_table(str(folder)).sample(None, **state).to_arrow().to_pylist())


@functools.cache
def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    (file,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@pytest.mark.parametrize("name", EXPECTED.get(ACCEPTANCE, {}))
def test_rows_are_those_of_the_acceptance_tests(name: str) -> None:
    folder = FIXTURES / ACCEPTANCE / name
    expected: Counter[Any] = Counter()
    for file in (folder / "expected/latest/table_content").glob("*.parquet"):
        # Partition columns are no columns of the folder's files: these hold all columns.
        table = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
        expected += counted(table.to_pylist())
    found = sampled(folder / "delta")
    if name == "timestamp_ntz":  # INT96 says nothing of zones
        assert found.total() == expected.total()
    assert found == expected


# DuckDB 1.5.5 shows null for every value of a partition column that was renamed; Delta Spark does not.
RENAMED_PARTITION = "34-delta-spark-column-mapping-special-paths/mapped"


@pytest.mark.few(9)
@pytest.mark.parametrize("folder", [each for each in sound_tables() if each != RENAMED_PARTITION])
def test_rows_are_those_that_delta_kernel_reads(folder: str) -> None:
    try:
        relation = duckdb_with_delta().execute(f"SELECT * FROM delta_scan('{FIXTURES / folder}')")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB says: {str(error)[:100]}")
    rows = relation.to_arrow_table().to_pylist()
    assert sampled(FIXTURES / folder) == counted(rows)


@pytest.mark.few(3)
@pytest.mark.parametrize(("case", "name"), spark_tables())
def test_every_version_has_as_many_rows_as_delta_counted(case: str, name: str) -> None:
    table = FIXTURES / case / name
    for version, stated in EXPECTED[case][name]["versions"].items():
        ran = run("inspect", table, "sample", "--version", version, "--limit", 1_000_000, "--jsonl")
        assert ran.code == 0, ran.err
        assert len(ran.out.splitlines()) == stated["rows"]


def test_a_data_file_that_is_gone_is_an_error_and_no_fewer_rows(tmp_path: Path) -> None:
    table = a_copy("31-delta-spark-many-dvs/table", tmp_path / "t")
    rows = ic.open_table(str(table)).sample(None)
    live = {Path(row["path"]).name for row in ic.open_table(str(table)).inspect("files").to_json()["rows"]}
    file = next(each for each in table.glob("**/part-*.parquet") if each.name in live)
    file.unlink()
    with pytest.raises(CorruptFile, match=file.name):
        rows.to_arrow()
    ran = run("inspect", table, "sample", "--limit", 1_000_000, "-o", tmp_path / "rows.parquet")
    assert ran.code == 15
    assert not list(tmp_path.glob("rows.parquet*"))


@pytest.mark.parametrize(
    "rule", ["deletion-vector-unsound", "deletion-vector-file-missing", "deletion-vector-path-unreadable"]
)
def test_a_vector_that_cannot_be_applied_stops_the_sample_as_it_does_the_check(
    rule: str, tmp_path: Path
) -> None:
    table = a_table_that_breaks(rule, tmp_path / "t")
    checked = run("inspect", table.root, "--check", "--format", "json")
    assert (checked.code, [each["id"] for each in checked.json["findings"]]) == (15, [rule])
    ran = run("inspect", table.root, "sample", "--format", "json")
    assert ran.code == 15
    assert "rows" not in ran.json


def test_a_damaged_deletion_vector_is_an_error(tmp_path: Path) -> None:
    table = a_copy(f"{ACCEPTANCE}/deletion_vectors/delta", tmp_path / "t")
    (file,) = table.glob("*.bin")
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    ran = run("inspect", table, "sample")
    assert ran.code == 15
    assert file.name in ran.err


def test_of_several_columns_of_one_name_none_is_taken_for_another(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"n": [1], "m": [2]}))
    (file,) = (tmp_path / "t").glob("*.parquet")
    columns = pq.read_table(file).columns
    pq.write_table(pa.Table.from_arrays([*columns, columns[1]], ["n", "m", "n"]), file)
    ran = run("inspect", tmp_path / "t", "sample")
    assert ran.code == 15
    assert "column n: the file has several columns of this name" in " ".join(ran.err.split())


@pytest.mark.parametrize("difference", [-8, 8])
def test_a_data_file_of_another_size_than_its_add_says_is_read_to_its_true_end(
    tmp_path: Path, difference: int
) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"n": [1, 2, 3]}))
    commit = commit_path(tmp_path / "t", 0)
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in lines:
        if "add" in action:
            action["add"]["size"] += difference
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in lines))
    ran = run("inspect", tmp_path / "t", "sample", "--format", "json")
    assert ran.code == 0, ran.err
    assert [row["n"] for row in ran.json["rows"]] == [1, 2, 3]
    assert "it is read to its true end" in ran.err

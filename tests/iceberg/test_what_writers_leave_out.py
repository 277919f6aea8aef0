"""What writers leave out of manifests and lists: we read each, a rewrite mends it; and what other readers do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.budget import deep_unless
from tests.cli.lakes import CatalogTable, catalog_table
from tests.cli.running import iceberg_cli
from tests.files_without_ids import change_folder, without_ids, written_again
from tests.go_servers import ICEBERG_GO
from tests.servers import go_binary
from tests.spark_tables import Lake

READS = ""
IDS = [0, 1, 2]


class LeftOut(NamedTuple):
    """What is left out.

    Args:
        name: in words.
        where: "manifest" or "list".
        change: of the Avro schema.
        header: of its other keys.
        pyiceberg: the error of PyIceberg 0.12 as it reads the table; "" where it reads all rows.
        iceberg_go: the same of iceberg-go 0.7, as it lists the table's files.
        java: the same of Iceberg Java 1.12, as Spark reads the table.
    """

    name: str
    where: Literal["manifest", "list"]
    change: Callable[[Any], Any] = lambda schema: schema
    header: Callable[[dict[str, Any]], Any] = dict
    pyiceberg: str = READS
    iceberg_go: str = READS
    java: str = READS


def fields(*names: str) -> Callable[[Any], Any]:
    """A schema without some fields."""

    def change(schema: Any) -> Any:
        kept = [field for field in schema["fields"] if field["name"] not in names]
        return {**json.loads(json.dumps(schema)), "fields": kept}

    return change


def keys(*names: str) -> Callable[[dict[str, Any]], Any]:
    """A header without some keys."""
    return lambda header: {key: value for key, value in header.items() if key not in names}


HEADER = ("schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content")
CASES = [
    LeftOut("ids of a list", "list", without_ids, pyiceberg="ValueError"),
    LeftOut("ids of manifests", "manifest", without_ids, pyiceberg="ValueError"),
    *(LeftOut(f"{key} of headers", "manifest", header=keys(key)) for key in HEADER[:-1]),
    LeftOut(
        "content of headers", "manifest", header=keys("content"), iceberg_go="'content' metadata is missing"
    ),
    LeftOut("headers of manifests", "manifest", header=keys(*HEADER)),
    LeftOut("headers of lists", "list", header=lambda _: {}),
    *(
        LeftOut(
            name,
            "list",
            fields(name),
            pyiceberg="ResolveError",
            iceberg_go=f"incompatible at {name}",
            java=java,
        )
        for name, java in (
            ("added_files_count", READS),
            ("added_rows_count", READS),
            ("added_snapshot_id", "Missing required field: added_snapshot_id"),
        )
    ),
    *(
        LeftOut(name, "list", fields(name), iceberg_go=f"incompatible at {name}")
        for name in ("sequence_number", "min_sequence_number", "content")
    ),
    *(LeftOut(name, "list", fields(name)) for name in ("partitions", "key_metadata")),
    LeftOut("numbers of entries", "manifest", fields("sequence_number", "file_sequence_number")),
    LeftOut("snapshot_id of entries", "manifest", fields("snapshot_id")),
]
ALWAYS = (CASES[0], CASES[1], CASES[8], CASES[10])


def written_without(case: LeftOut, table: CatalogTable) -> CatalogTable:
    """A table whose manifests and lists are written again, so that they lack what a case leaves out."""

    def change(data: bytes, lengths: dict[str, int], is_list: bool) -> bytes:
        if is_list == (case.where == "list"):
            return written_again(data, case.change, case.header, lengths)
        return written_again(data, lambda schema: schema, lengths=lengths)

    change_folder(table.folder, change)
    return table


@pytest.mark.parametrize("case", deep_unless(ALWAYS, CASES))
def test_it_is_read_and_a_rewrite_mends_it(
    case: LeftOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written_without(case, catalog_table(tmp_path, monkeypatch, appends=3))
    if case.pyiceberg:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any module of PyIceberg
            table.ids()
        assert type(caught.value).__name__ == case.pyiceberg
    else:
        assert table.ids() == IDS
    shown = iceberg_cli("inspect", table.name, "sample", "--limit", "100", "--format", "json")
    assert sorted(row["id"] for row in shown.json["rows"]) == IDS
    ran = iceberg_cli("rewrite-manifests", table.name, "--all-manifests", "--yes")
    assert ran.code == 0, ran.err
    assert table.ids() == IDS


@pytest.mark.deep
def test_iceberg_go_lists_the_files_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(go_binary(ICEBERG_GO))
    for number, case in enumerate(CASES):
        (tmp_path / str(number)).mkdir()
        table = written_without(case, catalog_table(tmp_path / str(number), monkeypatch, appends=3))
        catalog = ["--catalog", "sql", "--catalog-name", "lake", "--uri", str(table.database)]
        driver = ["--sql-driver", "sqliteshim", "--sql-dialect", "sqlite"]
        command = [program, *catalog, *driver, "files", "shop.events"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode == 0) is (case.iceberg_go == READS), (case.name, ran.stderr)
        assert case.iceberg_go in ran.stdout + ran.stderr, case.name
        assert case.iceberg_go or ran.stdout.count(".parquet") == len(IDS), case.name


@pytest.mark.deep
@pytest.mark.jvm
def test_iceberg_java_reads_the_rows_or_says_why_not(
    hadoop: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in enumerate(CASES):
        (tmp_path / str(number)).mkdir()
        table = written_without(case, catalog_table(tmp_path / str(number), monkeypatch, appends=3))
        location = table.catalog.load_table("shop.events").metadata_location
        read = hadoop.spark.read.format("iceberg").load(location)
        if case.java:
            with pytest.raises(Exception, match=case.java):
                read.collect()
        else:
            assert sorted(row["id"] for row in read.collect()) == IDS, case.name

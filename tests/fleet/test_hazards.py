"""Ways in which two young fleet tools lose data, one test of `maintain` each. Rows are read by other readers."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EQUALITY_DELETES, EXISTING
from iceberg_cli.testing.iceberg_writer import IcebergWriter, parquet_metrics
from tests.builders import DAY_MS, a_statistics_file
from tests.cli.lakes import (
    AS_OF,
    AS_OF_MS,
    CatalogTable,
    catalog_table,
    delta_with_removed_files,
    listing,
    metadata_of,
    old_files,
    unchanged,
)
from tests.delete_tables import BY_K, SCHEMA
from tests.duckdb_reading import duckdb_with_iceberg
from tests.fleet.maintaining import EXPIRE, maintain, policy_file, runs_of
from tests.hazard_tables import OWN_GONE, Hazard, entry
from tests.paths import ROOT


@pytest.fixture
def table(tmp_path: Path) -> Hazard:
    return Hazard(location=str(tmp_path / "lake" / "events"))


def expired(table: Hazard) -> set[str]:
    """What a maintain that expires removes, by path below the table's folder; it succeeds."""
    folder = Path(table.location)
    before = set(listing(folder))
    ran = maintain(folder.parents[1], EXPIRE, table.location, options=AS_OF)
    assert ran.code == 0, ran.out + ran.err
    assert runs_of(ran)[table.location, "expire-snapshots"]["status"] == "done"
    return before - set(listing(folder))


def test_a_young_staged_snapshot_stays_with_its_files(table: Hazard) -> None:
    keep, dead, staged = table.data("keep", "dead", "staged")
    both = table.manifest("m9", entry(ADDED, keep), entry(ADDED, dead))
    table.snapshot(9, both)
    left = table.manifest("m8", entry(EXISTING, keep), entry(DELETED, dead))
    table.snapshot(8, left, parent=9)
    table.snapshot(2, left, table.manifest("m2", entry(ADDED, staged)), parent=8)
    table.snapshots[-1]["summary"]["wap.id"] = "nightly"
    table.publish(main=8)
    assert expired(table) == {"data/dead", *OWN_GONE}
    assert [each["snapshot-id"] for each in metadata_of(Path(table.location))["snapshots"]] == [8, 2]


def test_nothing_goes_where_a_kept_list_was_cut_at_a_block(table: Hazard) -> None:
    live, dead = table.data("live", "dead")
    names = [table.manifest("m0", entry(ADDED, live)), table.manifest("m1", entry(ADDED, dead))]
    table.snapshot(9, *names)
    table.snapshot(1, *names, parent=9, block_bytes=1)
    table.publish(main=1)
    path = table.file("snap-1")
    whole = path.read_bytes()
    starts = [block.offset for block in fastavro.block_reader(io.BytesIO(whole))]
    path.write_bytes(whole[: starts[-1]])
    with unchanged(Path(table.location)):
        ran = maintain(Path(table.location).parents[1], EXPIRE, table.location, options=AS_OF)
    assert ran.code == 15
    run = runs_of(ran)[table.location, "expire-snapshots"]
    assert (run["status"], run["exit_code"]) == ("failed", 15)
    assert path.name in run["error"]["message"]


def test_nothing_goes_where_garbage_collection_is_disabled(table: Hazard) -> None:
    table.properties = {"gc.enabled": "false"}
    table.two_snapshots(expired=table.data("dead"), kept=table.data("keep"))
    with unchanged(Path(table.location)):
        ran = maintain(Path(table.location).parents[1], EXPIRE, table.location, options=AS_OF)
    assert ran.code == 11
    run = runs_of(ran)[table.location, "expire-snapshots"]
    assert (run["status"], run["exit_code"]) == ("blocked", 11)
    assert "gc.enabled" in run["reason"]


def test_a_file_is_live_in_whatever_way_its_path_is_spelled(table: Hazard) -> None:
    paths = table.data("a", "b", "c", "d", "dead")
    root = table.location
    spelled = [f"{root}//data/a", f"{root}/data/../data/b", f"file://{root}/data/c", f"{root}/./data/d"]
    table.two_snapshots(expired=paths, kept=spelled)
    assert expired(table) == {"data/dead", *OWN_GONE}


@pytest.mark.parametrize("record", ["metadata/v1.metadata.json", "_delta_log/00000000000000000000.json"])
def test_the_files_of_a_table_in_a_folder_below_stay(table: Hazard, record: str) -> None:
    paths = table.data("keep", "gone", "sub/data/a", "sub/README.md")
    table.two_snapshots(expired=paths, kept=paths[:1])
    table.storage.put_if_absent(f"{table.location}/data/sub/{record}", b"another's")
    assert expired(table) == {"data/gone", *OWN_GONE}


def test_a_table_below_a_delta_table_stays_whole(tmp_path: Path) -> None:
    folder = tmp_path / "visits"
    name = delta_with_removed_files(folder, "b")
    below = {
        "sub/a.parquet",
        "sub/_delta_log/00000000000000000000.json",
        "ice/data/a",
        "ice/metadata/v1.metadata.json",
    }
    old_files(folder, *below, "stray.parquet")
    before = set(listing(folder))
    ran = maintain(tmp_path, {"expire-snapshots": "{}"}, name, options=AS_OF)
    assert ran.code == 0, ran.out + ran.err
    gone = before - set(listing(folder))
    assert "b.parquet" in gone
    assert not below & gone


def test_the_version_hint_stays(table: Hazard) -> None:
    paths = table.data("keep", "gone")
    table.two_snapshots(expired=paths, kept=paths[:1])
    hint = Path(table.location, "metadata", "version-hint.text")
    hint.write_text("1")
    assert expired(table) == {"data/gone", *OWN_GONE}
    assert hint.read_text() == "2"


def test_statistics_files_go_with_their_snapshot_and_no_others(table: Hazard) -> None:
    files = ("9.stats", "9.partition-stats", "1.stats", "1.partition-stats")
    for name in files:
        table.storage.put_if_absent(f"{table.location}/metadata/{name}", b"statistics")
    table.fields = {
        "statistics": [
            a_statistics_file(number, f"{table.location}/metadata/{number}.stats") for number in (9, 1)
        ],
        "partition-statistics": [
            {"snapshot-id": number, "statistics-path": f"{table.location}/metadata/{number}.partition-stats",
             "file-size-in-bytes": 10}
            for number in (9, 1)
        ],
    }  # fmt: skip
    paths = table.data("keep", "gone")
    table.two_snapshots(expired=paths, kept=paths[:1])
    assert expired(table) == {"data/gone", *OWN_GONE, *(f"metadata/{name}" for name in files[:2])}


# -- a global equality delete ----------------------------------------------------------------------------------


def test_a_global_equality_delete_reaches_the_partitions_of_before(tmp_path: Path) -> None:
    """The table was partitioned by `k`; then partitioning was dropped, and three rows were deleted by equality."""
    folder = tmp_path / "wh" / "events"
    writer = IcebergWriter(
        storage=LocalStorage(), location=str(folder), format_version=2, schema=SCHEMA,
        time_ms=AS_OF_MS - 9 * DAY_MS,
    )  # fmt: skip
    writer.document |= {"partition-specs": [writer.spec, BY_K], "last-partition-id": 1000}
    of_k = [{"partition": {"k": k}, "spec_id": 1} for k in "xy"]
    files = [
        writer.data_file(pa.table({"n": range(20 * part, 20 * part + 20), "k": ["xy"[part]] * 20}))
        | of_k[part]
        for part in (0, 1)
    ]
    writer.commit_files("append", files)
    positions = writer.position_deletes({files[0]["file_path"]: [19]}, {}) | of_k[0]
    writer.commit_files("delete", [positions])
    out = io.BytesIO()
    ids = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"n": [0, 1, 25]}, pa.schema([ids])), out)
    metrics = parquet_metrics(out.getvalue()) | {"equality_ids": [1]}
    everywhere = writer.file("eq-deletes.parquet", out.getvalue(), EQUALITY_DELETES, 3, **metrics)
    writer.commit_files("delete", [everywhere])
    # Replacing file 0 leaves its position deletes dangling, which is what merge-dvs looks for.
    again = writer.data_file(pa.table({"n": range(2, 19), "k": ["x"] * 17})) | of_k[0]
    writer.commit_files("overwrite", [again], [(files[0]["file_path"], None)])
    writer.publish()
    expected = sorted({*range(2, 19), *range(20, 40)} - {25})
    assert numbers(folder) == expected
    merging = {"merge-dvs": '{ when = "always" }'}
    ran = maintain(tmp_path, merging, folder, options=AS_OF)
    assert ran.code == 0, ran.out + ran.err
    assert runs_of(ran)[str(folder), "merge-dvs"]["status"] == "done"
    assert numbers(folder) == expected


def numbers(folder: Path) -> list[int]:
    """The values of `n` as DuckDB reads them."""
    newest = max(
        (folder / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0])
    )
    found = duckdb_with_iceberg().execute(f"SELECT n FROM iceberg_scan('{newest}') ORDER BY n")
    return [n for (n,) in found.fetchall()]


# -- another writer between plan and commit --------------------------------------------------------------------


def delete_three(table: CatalogTable) -> None:
    table.open().delete("id == 3")


def append_a_hundred(table: CatalogTable) -> None:
    table.append(100)


REWRITE = {"rewrite-manifests": "{ min-manifests = 2 }"}


_BY_SNAPSHOT = {"write.delete.isolation-level": "snapshot"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("other", "left", "properties"),
    [
        pytest.param(delete_three, [0, 1, 2, 4, 5], {}, id="a DELETE"),
        pytest.param(
            append_a_hundred, [0, 1, 2, 3, 4, 5, 100], _BY_SNAPSHOT, id="an append, snapshot isolation"
        ),
        pytest.param(
            delete_three,
            [0, 1, 2, 4, 5],
            _BY_SNAPSHOT,
            id="a DELETE, snapshot isolation",
            marks=pytest.mark.deep,
        ),
        pytest.param(append_a_hundred, [0, 1, 2, 3, 4, 5, 100], {}, id="an append", marks=pytest.mark.deep),
    ],
)
def test_manifests_are_rewritten_beside_another_writer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: Callable[[CatalogTable], None],
    left: list[int],
    properties: dict[str, str],
) -> None:
    """The program is stopped between its plan and its commit, and goes on when the other writer has committed."""
    table = catalog_table(tmp_path, monkeypatch, appends=6, **properties)
    policy = policy_file(tmp_path / "policy.toml", REWRITE, [table.name])
    for _ in range(10):
        before = table.open().metadata_location
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "iceberg_cli",
                "maintain",
                table.name,
                "--policy",
                str(policy),
                "--yes",
                "-q",
            ],
            cwd=ROOT,
        )
        # Not pathlib's glob, which fails where a folder is pruned while it looks.
        while process.poll() is None and not glob(f"{table.folder}/_iceberg_cli/ops/*/*.json"):
            time.sleep(0.0002)
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None and table.open().metadata_location == before:
            break
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0
        table.append(*range(6), 0)  # and more manifests again
        table.open().delete("id < 100")
        for number in range(6):
            table.append(number)
    else:
        pytest.fail("it committed before it was stopped, every time")
    other(table)
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    assert table.ids() == left
    assert [each.summary.operation.value for each in table.open().metadata.snapshots if each.summary][
        -1
    ] == "replace"

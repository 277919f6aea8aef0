"""After an expiry, engines that nobody here wrote read every kept snapshot with the same rows as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from iceberg_cli.demo import create_demo
from tests.cli.lakes import catalog_table
from tests.cli.running import iceberg_cli
from tests.duckdb_reading import duckdb_with_iceberg

NOW_MS = 1_760_000_000_000

Rows = list[tuple[object, ...]]


def by_pyiceberg(metadata: str, snapshot_id: int) -> Rows:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata).scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


def by_polars(metadata: str, snapshot_id: int) -> Rows:
    import polars as pl

    frame = pl.scan_iceberg(metadata, snapshot_id=snapshot_id, reader_override="pyiceberg").collect()
    return sorted(tuple(map(str, row)) for row in frame.rows())


def by_duckdb(metadata: str, snapshot_id: int) -> Rows:
    rows = (
        duckdb_with_iceberg()
        .execute(
            f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM iceberg_scan('{metadata}', snapshot_from_id={snapshot_id})"
        )
        .fetchall()
    )
    return sorted(tuple(map(str, row)) for row in rows)


@pytest.mark.pairs
@pytest.mark.parametrize("read", [by_pyiceberg, by_polars, by_duckdb])
@pytest.mark.parametrize("name", ["events", "orders"])
def test_kept_snapshots_have_the_same_rows_after_an_expiry(
    tmp_path: Path, name: str, read: Callable[[str, int], Rows]
) -> None:
    location = getattr(create_demo(str(tmp_path), now_ms=NOW_MS), name)
    before = iceberg_cli("inspect", location, "snapshots", "--format", "json").json
    metadata = iceberg_cli("inspect", location, "--format", "json").json["metadata_location"]
    rows = {row["snapshot_id"]: read(metadata, int(row["snapshot_id"])) for row in before["rows"]}

    options = ("--as-of", NOW_MS, "--older-than", "12d", "--retain-last", 3, "--yes", "--format", "json")
    report = iceberg_cli("expire-snapshots", location, *options).json
    assert report["status"] == "done"
    assert report["deleted_manifest_lists_count"] > 5

    after = iceberg_cli("inspect", location, "snapshots", "--format", "json").json
    kept = [row["snapshot_id"] for row in after["rows"]]
    assert 3 <= len(kept) < len(rows)
    for snapshot_id in kept:
        assert read(report["metadata_location"], int(snapshot_id)) == rows[snapshot_id]


def test_duckdb_reads_an_upgraded_table_of_version_1_once_its_rows_have_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the preflight says of DuckDB 1.5. Where this fails because DuckDB reads it, the finding can go."""
    lake = catalog_table(tmp_path, monkeypatch, **{"format-version": "1"})
    lake.append(1, 2)

    def by_duckdb() -> list[int]:
        metadata = lake.open().metadata_location
        rows = duckdb_with_iceberg().execute(f"SELECT id FROM iceberg_scan('{metadata}') ORDER BY id")
        return [row[0] for row in rows.fetchall()]

    def warns(*recipe: str) -> bool:
        ran = iceberg_cli("upgrade-v3", lake.name, *recipe, "--dry-run", "--format", "json")
        return any("DuckDB 1.5 cannot read 1 branch (main)" in warning for warning in ran.json["warnings"])

    assert by_duckdb() == [1, 2]
    assert warns()
    assert not warns("--with", "assign-row-ids")
    assert iceberg_cli("upgrade-v3", lake.name, "--yes").code == 0
    with pytest.raises(duckdb.Error, match="sequence_number"):
        by_duckdb()
    checked = iceberg_cli("upgrade-v3", lake.name, "--check", "--format", "json").json["findings"]
    (remedy,) = [each["remedy"] for each in checked if each["id"] == "v1-manifest-lists"]
    assert remedy == f"iceberg-cli assign-row-ids {lake.name}"
    assert iceberg_cli("assign-row-ids", lake.name, "--yes").code == 0
    assert by_duckdb() == [1, 2]

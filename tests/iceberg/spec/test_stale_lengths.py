"""Manifest lists that say another length of a manifest than its file has, as other writers leave them behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.iceberg.avro.container import read_container, write_container
from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import newest_metadata, unchanged
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import Hazard, entry
from tests.manifest_tables import avro


def a_table(
    folder: Path, *, by: int = 0, manifest: str = "m2", version: int = 2, **listed: int | None
) -> Hazard:
    """Snapshots 3, 2 and 1 (main): lists of 2 and 1 say `listed` of manifest `m2`, and `by` more bytes than it has."""
    table = Hazard(location=str(folder / "t"), format_version=version)
    a, b, c = table.data("a", "b", "c")
    table.manifest("m1", entry(ADDED, a))
    table.manifest("m2", entry(ADDED, b), entry(ADDED, c), block_bytes=1)
    table.rows[manifest]["manifest_length"] += by
    table.rows[manifest] |= listed
    table.snapshot(3, "m1")
    table.snapshot(2, "m1", "m2", parent=3)
    table.snapshot(1, "m2", parent=2)
    table.publish(main=1)
    return table


def lengths(table: Hazard) -> dict[str, int]:
    """What main's list says of each manifest, by PyIceberg."""
    read = StaticTable.from_metadata(str(newest_metadata(Path(table.location))))
    snapshot = read.current_snapshot()
    assert snapshot is not None
    return {each.manifest_path: each.manifest_length for each in snapshot.manifests(read.io)}


def check(table: Hazard) -> dict[str, str]:
    """What the check finds of manifests, and how bad it is."""
    ran = iceberg_cli("inspect", table.location, "--check", "--format", "json")
    return {found["id"]: found["severity"] for found in ran.json["findings"] if found["id"][0] == "m"}


@pytest.mark.parametrize("by", [-30, 1, 1 << 40])
def test_a_whole_manifest_of_another_length_is_read_with_a_warning(tmp_path: Path, by: int) -> None:
    table = a_table(tmp_path, by=by)
    shown = iceberg_cli("inspect", table.location, "files", "--format", "json")
    assert shown.code == 0, shown.err
    assert [file["file_path"][-6:] for file in shown.json["rows"]] == ["data/b", "data/c"]
    size = file_of(table, "m2").stat().st_size
    assert f"warning: {table.location}/metadata/m2.avro has {size:,} bytes" in shown.err
    assert iceberg_cli("inspect", table.location).code == 0
    assert check(table) == {"manifest-length-stale": "warning"}
    expired = iceberg_cli("expire-snapshots", table.location, "--snapshot-id", "3", "--yes")
    assert expired.code == 0
    assert "its manifest list says" in expired.out
    assert iceberg_cli("upgrade-v3", table.location, "--with", "assign-row-ids", "--yes").code == 0
    assert lengths(table)[f"{table.location}/metadata/m2.avro"] == size + by


def file_of(table: Hazard, name: str) -> Path:
    return Path(table.location) / "metadata" / f"{name}.avro"


@pytest.mark.parametrize(
    "command",
    [["rewrite-manifests"], ["upgrade-v3", "--with", "repair-manifests"]],
    ids=["rewrite", "repair"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_true_length_is_written(tmp_path: Path, command: list[str], version: int) -> None:
    table = a_table(tmp_path, by=7, version=version)
    verb, *options = command
    shown = iceberg_cli(verb, table.location, *options, "--dry-run")
    assert shown.code == 0, shown.err
    assert "the list says" in shown.out
    done = iceberg_cli(verb, table.location, *options, "--yes")
    assert done.code == 0, done.out + done.err
    assert "other readers may fail" not in done.out + done.err
    sizes = {path: Path(path).stat().st_size for path in lengths(table)}
    assert lengths(table) == sizes
    assert check(table) == {}
    again = iceberg_cli(verb, table.location, *options, "--yes")
    assert again.code == 0
    assert "othing to do" in again.out


def refused(table: Hazard) -> list[int]:
    """The exit codes of what reads or keeps main's manifests, which must leave all as it is."""
    commands = (
        ["inspect", table.location, "files"],
        ["expire-snapshots", table.location, "--snapshot-id", "3", "--yes"],
        ["rewrite-manifests", table.location, "--min-manifests", "2", "--yes"],
    )
    with unchanged(Path(table.location)):
        return [iceberg_cli(*command).code for command in commands]


def test_a_manifest_of_another_length_that_no_count_proves_whole_is_refused(tmp_path: Path) -> None:
    for name in ("added_files_count", "existing_files_count", "deleted_files_count"):
        table = a_table(tmp_path / name, by=7, version=1, **{name: None})
        assert refused(table) == [15, 15, 15]
        assert check(table)["manifest-length-differs"] == "error"


@pytest.mark.parametrize("kept", [-1, -20], ids=["inside a block", "after a block"])
def test_a_manifest_that_was_cut_is_refused_whatever_its_list_says_of_its_length(
    tmp_path: Path, kept: int
) -> None:
    for by in (0, 1):
        table = a_table(tmp_path / str(by), by=by)
        path = file_of(table, "m2")
        data = path.read_bytes()
        end = data.rindex(bytes(16), 0, len(data) - 16) + 16 if kept == -20 else len(data) - 1
        path.write_bytes(data[:end])
        assert refused(table) == [15, 15, 15]


def test_a_manifest_that_was_written_again_with_another_codec_is_the_same(tmp_path: Path) -> None:
    """As a copy of a table is made: other bytes under the name that the list has."""
    table = a_table(tmp_path)
    path = file_of(table, "m2")
    container = read_container(path.read_bytes(), str(path))
    blocks = [(block.records, bytes(block.payload)) for block in container.blocks]
    path.write_bytes(
        write_container(
            container.schema_text.decode(), container.metadata, blocks, codec="null", sync=bytes(range(16))
        )
    )
    assert check(table) == {"manifest-length-stale": "warning"}
    assert iceberg_cli("rewrite-manifests", table.location, "--yes").code == 0
    assert lengths(table)[str(path)] == path.stat().st_size
    assert sorted(file["data_file"]["file_path"] for file in avro(path.read_bytes())) == [
        f"{table.location}/data/{name}" for name in "bc"
    ]


def test_a_stale_length_is_never_kept_as_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    table = a_table(tmp_path, by=7)
    for _ in range(2):
        assert "its manifest list says" in plan(table).out


def plan(table: Hazard) -> Ran:
    return iceberg_cli("expire-snapshots", table.location, "--snapshot-id", "3", "--dry-run")

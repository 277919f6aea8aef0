"""Folders of views beside those of tables, and folders that look like a table's and are none.

Spec: Iceberg view specification, "View Metadata", "Metadata Files".
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.lakes import AS_OF
from tests.cli.running import iceberg_cli
from tests.fleet.builder import Fleet, build_fleet

VIEW = {
    "view-uuid": str(UUID(int=1)),
    "format-version": 1,
    "current-version-id": 1,
    "properties": {},
    "schemas": [{"schema-id": 0, "type": "struct", "fields": []}],
    "versions": [],
    "version-log": [],
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A table in a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return build_fleet(tmp_path / "wh", {("folder", "iceberg"): 1})


def add_view(lake: Fleet, name: str = "v", *, compressed: bool = False) -> Path:
    """A view of two versions beside the table."""
    folder = Path(lake.tables[0].folder).with_name(name)
    (folder / "metadata").mkdir(parents=True)
    content = json.dumps({**VIEW, "location": str(folder)}).encode()
    ending = ".gz.metadata.json" if compressed else ".metadata.json"
    for version in range(2):
        path = folder / "metadata" / f"{version:05}-{UUID(int=version)}{ending}"
        path.write_bytes(gzip.compress(content) if compressed else content)
    return folder


@pytest.mark.parametrize("compressed", [False, True])
def test_a_views_folder_is_left_out_of_every_list_and_counted(
    lake: Fleet, tmp_path: Path, compressed: bool
) -> None:
    add_view(lake, compressed=compressed)
    policy = tmp_path / "policy.toml"
    policy.write_text('version = 1\n[[tables]]\nmatch = ["/**"]\nexpire-snapshots = {}\n')
    for command in (("list",), ("survey", *AS_OF), ("maintain", "--policy", policy, "--dry-run", *AS_OF)):
        ran = iceberg_cli(*command, *lake.patterns)
        assert ran.code == 0, ran.err
        assert ran.out.splitlines()[-1] == "1 view left out"
        assert "/v" not in ran.out
    listed = iceberg_cli("list", *lake.patterns, "--format", "json").json
    assert [each["name"] for each in listed["tables"]] == [str(lake.tables[0].folder)]


def test_a_view_that_is_named_is_no_table_and_no_error_of_a_pattern(lake: Fleet) -> None:
    view = add_view(lake)
    ran = iceberg_cli("list", view)
    assert (ran.code, ran.out.split("\n")[-2:]) == (0, ["1 view left out", ""])
    opened = iceberg_cli("inspect", view)
    assert opened.code == 10
    assert "the metadata of a view" in opened.err


def test_a_table_without_data_is_no_view(lake: Fleet) -> None:
    folder = Path(lake.tables[0].folder)
    for path in folder.glob("metadata/*"):
        if not path.name.endswith(".metadata.json"):
            path.unlink()
    listed = iceberg_cli("list", *lake.patterns, "--format", "json").json
    assert [each["name"] for each in listed["tables"]] == [str(folder)]


def test_an_empty_folder_is_there_and_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = iceberg_cli("inspect", tmp_path / "empty")
    assert ran.code == 10
    assert "the folder has no files" in ran.err
    assert "no such folder" not in ran.err


def test_metadata_files_whose_names_no_reader_looks_for_are_named(tmp_path: Path) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    for name in ("a", "b", "c", "d"):
        (tmp_path / "t" / "metadata" / f"{name}.metadata.json").write_text("{}")
    ran = iceberg_cli("inspect", tmp_path / "t")
    assert ran.code == 10
    assert "metadata/ has a.metadata.json, b.metadata.json, c.metadata.json and 1 more" in ran.err
    assert "metadata/d.metadata.json" in ran.err

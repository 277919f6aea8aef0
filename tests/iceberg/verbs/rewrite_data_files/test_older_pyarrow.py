"""A pyarrow that cannot write files as tables ask for it: the verb says which is needed, and all else works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli.layout.files.parquet_writer import obstacle_of
from tests.cli.lakes import listing
from tests.conformance.both_engines import of_small_files
from tests.paths import ROOT


@pytest.mark.parametrize("version", ["26.0.0", "26.0.1", "27.1.0", "100.0.0", "26.0.0.dev3"])
def test_newer_ones_will_do(version: str) -> None:
    assert obstacle_of(version, "here") is None


@pytest.mark.parametrize("version", ["19.0.1", "25.0.0", "9.0.0"])
def test_an_older_one_is_named_with_what_brings_a_newer_one(version: str) -> None:
    assert obstacle_of(version, "on Spark's workers") == (
        f"Parquet files are written by pyarrow 26 or later, and on Spark's workers is {version} "
        "(pip install 'iceberg-table-maintenance[rewrite]')"
    )


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_with_an_older_one_nothing_is_written_and_all_else_works(tmp_path: Path) -> None:
    packages, folder = tmp_path / "packages", tmp_path / "t"
    install = ["install", "-q", "--no-deps", "--target", packages, "pyarrow==24.0.0"]
    subprocess.run([sys.executable, "-m", "pip", *map(str, install)], check=True)
    of_small_files(folder)
    before = listing(folder)

    def ran(*words: object) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [sys.executable, "-m", "iceberg_cli", *map(str, words), "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])},
        )
        return done.returncode, json.loads(done.stdout)

    code, error = ran("rewrite-data-files", folder, "--min-input-files", "2", "--yes")
    assert code == 11
    assert "written by pyarrow 26 or later, and here is 24.0.0" in str(error["message"])
    assert listing(folder) == before
    assert ran("inspect", folder, "--check")[0] == 0
    assert ran("merge-dvs", folder, "--yes")[0] == 0

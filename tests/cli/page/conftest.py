"""A table whose names try to break out of a page."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_cli.demo import create_demo
from iceberg_cli.testing.iceberg_writer import IcebergWriter
from tests.cli.page.pages import AS_OF_MS, HOSTILE

DAY_MS = 86_400_000
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": HOSTILE[0], "required": False, "type": "string"},
    ],
}
SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": HOSTILE[1], "transform": "identity"}],
}


class _Folder:
    def put_if_absent(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the demo's tables: 40 days of history until `AS_OF_MS`."""
    folder = tmp_path_factory.mktemp("demo")
    create_demo(str(folder), now_ms=AS_OF_MS)
    return folder / "db"


@pytest.fixture(scope="session")
def hostile_table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with such names for folder, columns, partitions and their values, branches and tags."""
    location = str(tmp_path_factory.mktemp("lake") / HOSTILE[1])
    writer = IcebergWriter(
        storage=_Folder(), location=location, format_version=3, schema=SCHEMA, spec=SPEC, seed="hostile"
    )
    for place, value in enumerate([None, *HOSTILE[:-1]]):
        writer.time_ms = AS_OF_MS - (20 - place) * DAY_MS
        rows = pa.table({"id": pa.array(range(10), pa.int64()), HOSTILE[0]: [value] * 10})
        added = writer.data_file(rows, {HOSTILE[1]: value})
        snapshot_id = writer.commit_files("append", [added])
        kind = ("tag", "branch")[place % 2]
        if value is not None:
            writer.set_ref(value, {"snapshot-id": snapshot_id, "type": kind})
        vectors, _ = writer.deletion_vectors({added["file_path"]: [1, 2]})
        writer.commit_files("delete", vectors)
    published = writer.publish()
    Path(location, "metadata", "version-hint.text").write_text(published.rsplit("/v")[-1].split(".")[0])
    return location

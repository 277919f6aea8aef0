"""Encrypted tables, and tables newer than this tool: refused, not called corrupt; what has a key is never opened."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest

from iceberg_cli.testing.delta_writer import (
    a_commit,
    a_metadata,
    a_protocol,
    a_protocol_with,
    an_add,
    write_log,
)
from tests.cli.lakes import AS_OF, edited, four_snapshots, unchanged
from tests.cli.running import Ran, expire, iceberg_cli

OPAQUE = b"AGS1\x00\x10\x00\x00" + bytes(range(256))  # AES GCM Stream: magic, block length, then ciphertext


FIRST = "metadata/v1.metadata.json"


def encrypted_lists(folder: Path, snapshot_ids: set[int], *, content: bytes | None = OPAQUE) -> Path:
    """A table of version 3, the manifest lists of some of whose snapshots are encrypted."""
    four_snapshots(folder, format_version=3).publish()
    with edited(folder / FIRST) as document:
        document["encryption-keys"] = [
            {"key-id": "k1", "encrypted-key-metadata": "eA==", "encrypted-by-id": "kms"}
        ]
        for snapshot in document["snapshots"]:
            if snapshot["snapshot-id"] in snapshot_ids:
                snapshot["key-id"] = "k1"
                if content is not None:
                    Path(snapshot["manifest-list"]).write_bytes(content)
    return folder


def check_refused(ran: Ran, *words: str) -> None:
    assert ran.code == 11, ran.out + ran.err
    for word in words:
        assert word in ran.out + ran.err
    assert "Traceback" not in ran.err


READING = [("inspect",), ("inspect", "files"), ("inspect", "--check"), ("plan",)]
WRITING = [("expire-snapshots",), ("rewrite-manifests",), ("merge-dvs",), ("assign-row-ids",)]


@pytest.mark.parametrize("arguments", [*READING, *(("plan", *verb) for verb in WRITING)], ids=" ".join)
def test_a_table_with_encrypted_manifest_lists_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    table = encrypted_lists(tmp_path / "t", {1, 2, 3, 4})
    verb, *others = arguments
    check_refused(iceberg_cli(verb, table, *others), "encrypted")


def test_one_encrypted_list_of_a_snapshot_that_expires_stops_the_expiry_and_nothing_else(
    tmp_path: Path,
) -> None:
    table = encrypted_lists(tmp_path / "t", {1})
    with unchanged(table):
        ran = iceberg_cli("expire-snapshots", table, *AS_OF, "--yes")
        check_refused(ran, f"{table}/metadata/snap-1.avro", "encrypted", "key-id k1 of snapshot 1")
    assert iceberg_cli("inspect", table).code == 0
    assert iceberg_cli("inspect", table, "files").code == 0


def test_a_list_with_a_key_is_not_opened_whatever_is_in_it(tmp_path: Path) -> None:
    table = encrypted_lists(tmp_path / "t", {4}, content=None)
    (table / "metadata" / "snap-4.avro").unlink()
    check_refused(iceberg_cli("expire-snapshots", table, *AS_OF, "--yes"), "encrypted")
    check_refused(iceberg_cli("inspect", table, "files"), "encrypted")


def test_a_table_that_is_encrypted_by_now_loses_no_more_files_and_the_state_is_told(tmp_path: Path) -> None:
    table = tmp_path / "t"
    four_snapshots(table).publish()
    expire(str(table), *AS_OF, "--limit-deletes", "1")
    with edited(table / "metadata" / "v2.metadata.json") as document:
        document["snapshots"][-1]["key-id"] = "k1"
    with unchanged(table / "data"):
        ran = iceberg_cli("resume", table)
        check_refused(ran, "encrypted", "The commit is done. Some unreferenced files are still there.")
        assert "Nothing was changed" not in ran.err
    assert iceberg_cli("resume", table, "--abandon").code == 0


def with_key_metadata(table: Path, *names: str) -> None:
    """Give manifests a key in the current list, and take them away."""
    path = table / "metadata" / "snap-4.avro"
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    schema: Any = reader.writer_schema
    rows: list[Any] = [*reader]
    for row in rows:
        if row["manifest_path"].endswith(names):
            row["key_metadata"] = b"key"
            Path(row["manifest_path"]).unlink()
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "key_metadata"]
    schema["fields"].append(
        {"name": "key_metadata", "type": ["null", "bytes"], "default": None, "field-id": 519}
    )
    out = io.BytesIO()
    fastavro.writer(out, schema, rows)
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    "arguments",
    [("inspect", "files"), ("plan", "expire-snapshots"), ("rewrite-data-files", "--rewrite-all")],
    ids=" ".join,
)
def test_a_manifest_with_key_metadata_is_not_opened(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    four_snapshots(tmp_path / "t").publish()
    with_key_metadata(tmp_path / "t", "4-m0.avro")
    verb, *others = arguments
    check_refused(iceberg_cli(verb, tmp_path / "t", *others), "4-m0.avro", "encrypted")


@pytest.mark.parametrize("version", [4, 99])
@pytest.mark.parametrize(
    "arguments", [*READING, ("plan", "expire-snapshots"), ("plan", "upgrade-v3")], ids=" ".join
)
def test_a_newer_format_version_is_refused(tmp_path: Path, arguments: tuple[str, ...], version: int) -> None:
    table = tmp_path / "t"
    four_snapshots(table).publish()
    with edited(table / FIRST) as document:
        document["format-version"] = version
    verb, *others = arguments
    check_refused(
        iceberg_cli(verb, table, *others), f"format version {version} is newer than this iceberg-cli"
    )


@pytest.mark.parametrize("version", [0, -1])
def test_a_format_version_that_never_was_is_an_error_of_the_table(tmp_path: Path, version: int) -> None:
    table = tmp_path / "t"
    four_snapshots(table).publish()
    with edited(table / FIRST) as document:
        document["format-version"] = version
    assert iceberg_cli("inspect", table).code == 15


FEATURE = "adaptiveMetadata-preview"
FEATURES = ["columnMapping", FEATURE]
PROTOCOL = a_protocol(3, 7, reader_features=FEATURES, writer_features=FEATURES)
# As Delta's own manifest commits have it: an array of actions, in which protocol and metadata are too.
MANIFEST_COMMIT = {
    "checkpoint": [
        {"checkpointMetadata": {"version": 1}},
        {"contentRoot": {"path": "_delta_log/x.parquet", "sizeInBytes": 1}},
        PROTOCOL,
        a_metadata(),
    ]
}


@pytest.mark.parametrize("verb", ["inspect", "expire-snapshots", "rewrite-manifests"])
@pytest.mark.parametrize(
    "commits",
    [
        [[PROTOCOL, a_metadata(), an_add(path="a")]],
        [[{"commitInfo": {}}, MANIFEST_COMMIT]],
        [[a_protocol_with(), a_metadata(), an_add(path="a")], [MANIFEST_COMMIT]],
    ],
    ids=["in the protocol", "from the start", "later"],
)
def test_a_delta_table_with_an_adaptive_metadata_tree_is_refused(
    tmp_path: Path, commits: list[list[dict[str, Any]]], verb: str
) -> None:
    write_log(tmp_path / "t", *(a_commit(*actions) for actions in commits))
    with unchanged(tmp_path):
        ran = iceberg_cli(verb, tmp_path / "t", *(() if verb == "inspect" else ("--yes",)))
        check_refused(ran, FEATURE, "newer than this iceberg-cli")

"""Refusals of Iceberg tables that no verb's own tests come to: each is seen, and nothing is changed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.api import new_runtime
from iceberg_cli.errors import Refused
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.branch.new_manifests import schema_for
from iceberg_cli.iceberg.commit.draft import SnapshotDraft, assign_first_row_ids, bind_snapshot
from iceberg_cli.iceberg.rows.table_columns import columns_of
from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import Schema
from iceberg_cli.operation.apply import resume
from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import LOCATION, a_snapshot, a_table
from tests.cli.lakes import four_snapshots, listing, unchanged
from tests.cli.running import iceberg_cli
from tests.hazard_tables import Hazard, entry

OLD = ("--older-than", "0s", "--retain-last", "1")


def refused(folder: Path, name: str, *words: object, why: str) -> None:
    """A command is refused for a reason, and leaves a folder as it was."""
    with unchanged(folder):
        ran = iceberg_cli(words[0], name, *words[1:])
    assert ran.code == 11, ran.out + ran.err
    assert why in " ".join(ran.err.split())


# -- which table ---------------------------------------------------------------------------------------------------


def test_versions_by_file_names_beside_those_of_a_catalog(tmp_path: Path) -> None:
    name = four_snapshots(tmp_path / "t").publish()
    of_catalog = tmp_path / "t" / "metadata" / f"00007-{uuid.uuid4()}.metadata.json"
    of_catalog.write_bytes((next((tmp_path / "t" / "metadata").glob("v*.metadata.json"))).read_bytes())
    why = f"file system versions and a catalog's {of_catalog.name}"
    refused(tmp_path, name, "expire-snapshots", *OLD, "--yes", why=why)


def test_a_delta_log_that_comes_between_plan_and_commit(tmp_path: Path) -> None:
    table = ic.open_table(four_snapshots(tmp_path / "t").publish())
    plan = table.plan(ic.iceberg.ExpireSnapshots(older_than="0s", retain_last=1))
    (tmp_path / "t" / "_delta_log").mkdir()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{}")
    data = {path for path in listing(tmp_path / "t") if "_iceberg_cli" not in path}
    with pytest.raises(Refused, match="its folder is also that of a Delta table"):
        table.apply(plan)
    assert data <= set(listing(tmp_path / "t"))


def test_an_operation_of_a_verb_that_is_not_known(tmp_path: Path) -> None:
    name = four_snapshots(tmp_path / "t").publish()
    assert iceberg_cli("expire-snapshots", name, *OLD, "--grace", "9d", "--yes").code == 0
    [first] = (tmp_path / "t").glob("_iceberg_cli/ops/*/000000.json")
    table = open_table(name, storage_options={}, on_event=lambda _: None)
    table.load()
    with (
        unchanged(tmp_path / "t"),
        pytest.raises(Refused, match="the verb 'expire-snapshots' is not known here"),
    ):
        resume(table, first.parent.name, new_runtime(), verbs={})


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("inspect", ()),
        ("plan", ()),
        ("expire-snapshots", (*OLD, "--dry-run")),
        ("expire-snapshots", (*OLD, "--yes")),
        ("rewrite-manifests", ("--yes",)),
        ("resume", ("--list",)),
    ],
)
def test_a_table_that_lies_on_another_host_by_its_metadata(
    tmp_path: Path, verb: str, options: tuple[str, ...]
) -> None:
    name = four_snapshots(tmp_path / "t").publish()
    [newest] = (tmp_path / "t" / "metadata").glob("v*.metadata.json")
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "location": f"file://host{name}"}))
    why = f"files of another host are out of reach. That is the location of the table by {newest}"
    refused(tmp_path, name, verb, *options, why=why)
    policy = tmp_path / "policy.toml"
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{tmp_path}/**"]\nexpire-snapshots = {{}}\n')
    assert iceberg_cli("maintain", "--policy", policy, "--dry-run").code == 11


# -- what is read --------------------------------------------------------------------------------------------------


def test_data_files_of_a_format_that_nobody_reads(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    [path] = table.data("a.lance")
    table.snapshot(1, table.manifest("m", entry(ADDED, path, file_format="LANCE")))
    table.publish(main=1)
    refused(
        tmp_path, str(tmp_path / "t"), "inspect", "sample", why="files of the format 'lance' are not read"
    )


def test_manifests_of_deletes_that_are_encrypted(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    [data, deletes] = table.data("a", "d")
    table.manifest("m", entry(ADDED, data))
    table.manifest("p", entry(ADDED, deletes, content=1), content=1)
    for row in table.rows.values():
        row["key_metadata"] = b"key"
    table.snapshot(1, "m", "p")
    table.publish(main=1)
    refused(tmp_path, str(tmp_path / "t"), "merge-dvs", "--yes", why="encrypted")


# -- what would be written -----------------------------------------------------------------------------------------


def a_list(**counts: Any) -> pa.Table:
    row: dict[str, Any] = {"manifest_path": f"{LOCATION}/metadata/m.avro", "content": 0, **counts}
    return pa.Table.from_pylist([row], schema=MANIFEST_LIST_SCHEMA)


def bound(metadata: TableMetadata, kept: pa.Table, *, parent: int) -> object:
    draft = SnapshotDraft(ref="main", parent_snapshot_id=parent, operation="replace", kept=kept)
    return bind_snapshot(
        draft,
        metadata,
        staged={},
        timestamp_ms=1,
        commit_uuid=str(uuid.uuid4()),
        operation_id="o",
        list_path=f"{LOCATION}/metadata/snap-3.avro",
    )


def test_a_branch_that_has_moved_gets_no_snapshot() -> None:
    with pytest.raises(Refused, match="Cannot commit to branch main: it has moved from 1"):
        bound(a_table(a_snapshot(1), a_snapshot(2)), a_list(), parent=1)


def test_manifests_without_counts_are_not_listed_from_version_2_on() -> None:
    with pytest.raises(Refused, match=r"Cannot list manifest .*/m.avro: its .* are not known"):
        bound(a_table(a_snapshot(1)), a_list(), parent=1)


@pytest.mark.parametrize(("rows", "fits"), [(1, True), (2, False)])
def test_row_ids_end_long_before_a_long_does(rows: int, fits: bool) -> None:
    """Two manifests whose counts are wrong."""
    listed = [
        {"content": 0, "first_row_id": None, "added_rows_count": count, "existing_rows_count": 0}
        for count in (2**62 - 1, rows)
    ]
    if fits:
        assert assign_first_row_ids(listed, 0) == 2**62
    else:
        with pytest.raises(Refused, match=r"the counts of 2 manifests add up to \d+ rows"):
            assign_first_row_ids(listed, 0)


def test_no_manifest_is_written_of_a_spec_whose_columns_no_schema_has() -> None:
    specs = [{"spec-id": 0, "fields": []}, {"spec-id": 7, "fields": [FIELD]}]
    metadata = a_table(a_snapshot(1), fields={"partition-specs": specs})
    [spec] = [each for each in metadata.partition_specs if each.spec_id == 7]
    with pytest.raises(Refused, match="partition spec 7: no schema of the table has all its source columns"):
        schema_for(metadata, spec)


FIELD = {"name": "gone", "transform": "identity", "source-id": 99, "field-id": 1000}


def test_a_default_of_a_list_is_not_made_up() -> None:
    of_list = {"type": "list", "element-id": 3, "element": "int", "element-required": False}
    column = {"id": 2, "name": "tags", "required": False, "type": of_list, "initial-default": [7]}
    schema = Schema.from_json({"type": "struct", "schema-id": 0, "fields": [column]}, path="m.json")
    with pytest.raises(Refused, match=r"tags has an initial-default, and defaults of list<int> are not read"):
        columns_of(schema, {}, path="m.json")

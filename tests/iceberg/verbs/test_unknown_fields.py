"""Manifests and lists with fields that nobody here knows: whoever would lose them says so and changes nothing.

The files get their fields by fastavro, and are read by it.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import a_branch
from tests.cli.lakes import listing
from tests.cli.running import iceberg_cli
from tests.cli.tables_without_row_ids import Table as NoRowIds
from tests.delete_tables import a_table, two_generations
from tests.hazard_tables import Hazard, entry, obstruct_an_upgrade

Record = dict[str, Any]

OWNER: Record = {"name": "owner", "type": ["null", "string"], "default": None, "field-id": 9001}


def branch_of(type_: Any, kind: str) -> Record:
    """The record or array in a type that may be optional."""
    options = type_ if isinstance(type_, list) else [type_]
    found: Record = next(each for each in options if isinstance(each, dict) and each["type"] == kind)
    return found


def inner(record: Record, name: str) -> Any:
    return next(field for field in record["fields"] if field["name"] == name)["type"]


def of_entry(schema: Record) -> Record:
    return schema


def of_data_file(schema: Record) -> Record:
    return branch_of(inner(schema, "data_file"), "record")


def of_lower_bounds(schema: Record) -> Record:
    pairs = branch_of(inner(of_data_file(schema), "lower_bounds"), "array")
    return branch_of(pairs["items"], "record")


def of_partition(schema: Record) -> Record:
    return branch_of(inner(of_data_file(schema), "partition"), "record")


def of_summary(schema: Record) -> Record:
    return branch_of(branch_of(inner(schema, "partitions"), "array")["items"], "record")


def rewritten(
    path: str, within: Callable[[Record], Record] | None, *, attribute: str = "", **metadata: str
) -> int:
    """Give the records of an Avro file, at some place inside, the field `owner`; the file's new length.

    The record of data files may get an attribute, and the header more keys.
    """
    with open(path, "rb") as file:
        reader = fastavro.reader(file)
        schema: Record = copy.deepcopy(json.loads(reader.metadata["avro.schema"]))
        records, header = list(reader), {k: v for k, v in reader.metadata.items() if k != "avro.schema"}
    if within is not None:
        within(schema)["fields"].append(OWNER)
    if attribute:
        of_data_file(schema)[attribute] = {"of": "ann"}
    for record in records:
        if within is of_entry:
            record["owner"] = "ann"  # type: ignore[index, call-overload]
        elif within is of_data_file:
            record["data_file"]["owner"] = "ann"  # type: ignore[index, call-overload]
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate", metadata={**header, **metadata})
    Path(path).write_bytes(out.getvalue())
    return len(out.getvalue())


def change_manifest(
    table: Hazard, name: str, within: Callable[[Record], Record] | None, **metadata: Any
) -> str:
    """Do that to a manifest, before a list has it; its path."""
    row = table.rows[name]
    row["manifest_length"] = rewritten(row["manifest_path"], within, **metadata)
    path: str = row["manifest_path"]
    return path


def two_manifests(folder: Path, **values: Any) -> Hazard:
    """Two small manifests, which a rewrite would merge."""
    table = Hazard(location=str(folder), **values)
    a, b = table.data("a", "b")
    table.manifest("m1", entry(ADDED, a))
    table.manifest("m2", entry(ADDED, b))
    return table


def published(table: Hazard) -> str:
    """With both manifests in a list; where that is."""
    table.snapshot(7, "m1", "m2")
    table.publish(main=7)
    return f"{table.location}/metadata/snap-7.avro"


def is_refused(folder: Path, verb: str, *options: str, names: str) -> None:
    """A verb leaves with 11, names the file and the field, and changes nothing; its plan is blocked by the same."""
    before = listing(folder)
    ran = iceberg_cli(verb, folder, *options, "--yes")
    assert ran.code == 11, ran.out + ran.err
    assert "owner (id 9001)" in ran.err.replace("\n", " ")
    assert listing(folder) == before
    plan = iceberg_cli(verb, folder, *options, "--dry-run", "--format", "json").json
    assert any(names in reason and "owner (id 9001)" in reason for reason in plan["blocked_by"])


@pytest.mark.parametrize(
    ("within", "stated"),
    [
        (of_entry, "owner (id 9001)"),
        (of_data_file, "data_file.owner (id 9001)"),
        (of_lower_bounds, "data_file.lower_bounds.owner (id 9001)"),
        (of_partition, "data_file.partition.owner (id 9001)"),
    ],
)
def test_manifests_whose_entries_have_unknown_fields_are_not_merged(
    within: Callable[[Record], Record], stated: str, tmp_path: Path
) -> None:
    table = two_manifests(tmp_path / "t")
    path = change_manifest(table, "m2", within)
    published(table)
    is_refused(tmp_path / "t", "rewrite-manifests", names=f"{path} has fields")
    assert stated in iceberg_cli("rewrite-manifests", table.location, "--dry-run").out.replace("\n", " ")
    is_refused(tmp_path / "t", "rewrite-data-files", "--rewrite-all", names=f"{path} has fields")


@pytest.mark.parametrize(
    ("verb", "options"), [("rewrite-manifests", ()), ("rewrite-data-files", ("--rewrite-all",))]
)
@pytest.mark.parametrize("within", [of_entry, of_summary])
def test_a_list_whose_rows_have_unknown_fields_is_not_replaced(
    within: Callable[[Record], Record], verb: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    table = two_manifests(tmp_path / "t")
    path = published(table)
    rewritten(path, within)
    is_refused(tmp_path / "t", verb, *options, names=path)


def test_what_is_not_written_anew_may_have_any_fields(tmp_path: Path) -> None:
    table = two_manifests(tmp_path / "t")
    change_manifest(table, "m1", of_data_file)
    path = published(table)
    rewritten(path, of_entry)
    ran = iceberg_cli("rewrite-manifests", table.location, "--min-manifests", 3, "--yes")
    assert ran.code == 0, ran.err
    assert iceberg_cli("upgrade-v3", table.location, "--yes").code == 0
    with open(path, "rb") as file:
        assert [record["owner"] for record in fastavro.reader(file)] == ["ann"] * 2  # type: ignore[index, call-overload]


def test_keys_in_the_avro_header_go_with_their_file_and_the_plan_says_so(tmp_path: Path) -> None:
    table = two_manifests(tmp_path / "t")
    path = change_manifest(table, "m1", None, attribute="team", **{"made-by": "ann", "iceberg.schema": "{}"})
    published(table)
    plan = iceberg_cli("rewrite-manifests", table.location, "--dry-run", "--format", "json").json
    (warning,) = plan["warnings"]
    assert warning.startswith(f"{path} has in the Avro header")
    assert warning.endswith(": made-by, attribute team")
    assert iceberg_cli("rewrite-manifests", table.location, "--yes").code == 0


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    table = two_manifests(tmp_path / "t")
    path = change_manifest(table, "m1", of_entry, aaa="x" * 100_000)
    published(table)
    is_refused(tmp_path / "t", "rewrite-manifests", names=path)


@pytest.mark.parametrize("where", ["manifest", "list"])
def test_merge_dvs_does_not_drop_unknown_fields(where: str, tmp_path: Path) -> None:
    made = two_generations(tmp_path / "t")
    made.publish()
    metadata = tmp_path / "t/metadata"
    if where == "manifest":
        path = str(metadata / "2-m3.avro")
        length = rewritten(path, of_data_file)
        _say_length(str(metadata / "snap-3.avro"), path, length)
    else:
        path = str(metadata / "snap-3.avro")
        rewritten(path, of_entry)
    is_refused(tmp_path / "t", "merge-dvs", names=path)


def test_dangling_position_deletes_before_version_3_are_not_removed_over_unknown_fields(
    tmp_path: Path,
) -> None:
    made = a_table(tmp_path / "t", {"a": 5, "b": 5}, format_version=2)
    made.positions("d", {"a": [1]})
    made.positions("e", {"b": [1]})
    made.commit(2)
    made.remove("a")
    made.commit_and_publish(3)
    metadata = tmp_path / "t/metadata"
    path = str(metadata / "2-m2.avro")
    _say_length(str(metadata / "snap-3.avro"), path, rewritten(path, of_data_file))
    is_refused(tmp_path / "t", "merge-dvs", names=path)


def _say_length(list_path: str, manifest_path: str, length: int) -> None:
    with open(list_path, "rb") as file:
        reader = fastavro.reader(file)
        records: list[Any] = list(reader)
    for record in records:
        if record["manifest_path"] == manifest_path:
            record["manifest_length"] = length
    out = io.BytesIO()
    header = {key: value for key, value in reader.metadata.items() if key != "avro.schema"}
    fastavro.writer(out, json.loads(reader.metadata["avro.schema"]), records, metadata=header)
    Path(list_path).write_bytes(out.getvalue())


@pytest.fixture
def branched(tmp_path: Path) -> NoRowIds:
    """main has a, and branch b has a and c in one manifest."""
    table = NoRowIds(location=str(tmp_path / "t"), format_version=3)
    a, c = table.data("a", "c")
    table.holding("m1", (ADDED, a, 3))
    table.holding("m2", (ADDED, a, 3), (ADDED, c, 5))
    return table


def test_assign_row_ids_does_not_drop_unknown_fields_of_a_list(branched: NoRowIds) -> None:
    branched.snapshot(9, "m1")
    branched.publish(main=9)
    path = f"{branched.location}/metadata/snap-9.avro"
    rewritten(path, of_entry)
    is_refused(branched.folder, "assign-row-ids", names=path)


def test_shared_row_ids_are_not_written_over_unknown_fields(branched: NoRowIds) -> None:
    path = change_manifest(branched, "m2", of_data_file)
    branched.snapshot(9, "m1")
    branched.snapshot(8, "m2", parent=9)
    branched.publish(main=9, b=a_branch(8))
    is_refused(branched.folder, "assign-row-ids", "--share-ids", names=path)
    assert iceberg_cli("assign-row-ids", branched.location, "--yes").code == 0


def test_repair_manifests_does_not_drop_unknown_fields_of_a_list(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"), format_version=1, fields={"snapshot-log": []})
    obstruct_an_upgrade(table)
    table.publish(main=7, b=a_branch(6))
    path = f"{table.location}/metadata/snap-7.avro"
    rewritten(path, of_entry)
    is_refused(tmp_path / "t", "upgrade-v3", "--with", "repair-manifests", names=path)


def test_a_task_that_meets_unknown_fields_stops(tmp_path: Path) -> None:
    """The same for whoever writes entries anew without a plan that looked."""
    from iceberg_cli.errors import Refused
    from iceberg_cli.iceberg.branch.opened_manifests import by_schema
    from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, open_manifest

    table = two_manifests(tmp_path / "t")
    path = change_manifest(table, "m1", of_lower_bounds)
    opened = open_manifest(ManifestSource(path=path), Path(path).read_bytes())
    with pytest.raises(Refused, match=r"data_file\.lower_bounds\.owner \(id 9001\)"):
        list(by_schema([(0, opened)]))

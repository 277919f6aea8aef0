"""rewrite-manifests: what is read before and after is the same, and a good layout is left alone.

The reader of these tests (`tests/manifest_tables.py`) is fastavro and the specification's rules of inheritance, one by
one; expected summaries come from lists that Java wrote and from the specification's Appendix D.
"""

from __future__ import annotations

import io
import json
import random
import struct
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.iceberg.avro.container import write_container
from iceberg_cli.iceberg.avro.projection import Projection
from iceberg_cli.iceberg.avro.schema import parse_schema
from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary, sort_key, summary_of
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ENTRY_COLUMNS,
    ManifestSource,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.schemas import manifest_schema, partition_struct
from iceberg_cli.iceberg.spec.manifests.splice import encoded, recipe, spliced
from iceberg_cli.iceberg.spec.manifests.writer import manifest_header, write_manifest
from iceberg_cli.iceberg.verbs.rewrite_manifests.build import ManifestBuild
from iceberg_cli.iceberg.verbs.rewrite_manifests.layout import (
    Candidate,
    Layout,
    chosen,
    name_of,
    overlaps,
    rewrite_of,
    rules_of,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.builders import NOW_MS
from tests.fixtures.iceberg_tables import ALL
from tests.manifest_tables import (
    BY_ONE,
    KIB,
    SCHEMA,
    VERB,
    Manifests,
    Opened,
    a_file,
    a_lot,
    avro,
    by_id,
    columns,
    entry,
    live_entries,
    of_fixture,
    opened,
    policy,
    spec,
)
from tests.paths import FIXTURES, needs_fixtures

COUNTS = [f"{kind}_{unit}_count" for unit in ("files", "rows") for kind in ("added", "existing", "deleted")]


def rewritten(table: Opened, **values: Any) -> dict[str, int]:
    """The result columns of a rewrite, which changes nothing that a reader sees and leaves nothing to do."""
    before = live_entries(table)
    made = table.prepare(VERB, policy(**values))
    plan = made.plan
    assert plan.due
    assert plan.to_json() == table.plan(VERB, policy(**values)).to_json()
    report = table.apply(made)
    assert live_entries(table) == before
    again = table.plan(VERB, policy(**values))
    assert not again.due, [verdict for verdict in again.verdicts if not verdict.keep]
    return dict(report.counts)


def stays(table: Opened, **values: Any) -> list[str]:
    """The reasons of a plan that does nothing."""
    plan = table.plan(VERB, policy(**values))
    assert not plan.due
    return [verdict.reason for verdict in plan.verdicts]


def only_manifest(table: Opened) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of the only manifest, and its records."""
    (row,) = table.manifests()
    return row, avro(table.storage.read(row["manifest_path"]))


def partitions_of(table: Opened, row: dict[str, Any]) -> list[Any]:
    """The values of the first partition field in a manifest, in file order."""
    reader = fastavro.reader(io.BytesIO(table.storage.read(row["manifest_path"])))
    return [next(iter(record["data_file"]["partition"].values())) for record in reader]  # type: ignore[index, union-attr, call-overload]


def nulls_first(values: list[Any]) -> list[tuple[bool, Any]]:
    return [(value is not None, value or 0) for value in values]


# -- tables of other engines -------------------------------------------------------------------------------------


@pytest.mark.few(5)
@needs_fixtures
@pytest.mark.parametrize("case", ALL)
def test_live_entries_of_other_engines_tables_stay_the_same_and_a_second_run_finds_nothing(case: str) -> None:
    table = of_fixture(FIXTURES / case)
    before = live_entries(table)
    next_row_id = table.metadata().get("next-row-id")
    counts = [row.get("content", 0) for row in table.manifests()]
    made = table.prepare(VERB, policy())
    plan = made.plan
    if plan.due:
        report = table.apply(made)
        assert report.counts["rewritten_manifests_count"] == len([v for v in plan.verdicts if not v.keep])
    assert live_entries(table) == before
    assert table.metadata().get("next-row-id") == next_row_id
    assert len(table.manifests()) <= len(counts)
    assert not table.plan(VERB, policy()).due


@needs_fixtures
def test_row_ids_that_a_v2_manifest_inherits_in_an_upgraded_table_are_written_into_its_entries() -> None:
    table = of_fixture(FIXTURES / "18-iceberg-v2-upgraded-v3-posdeletes" / "parcels")
    next_row_id = table.metadata()["next-row-id"]
    assert rewritten(table) == {"rewritten_manifests_count": 8, "added_manifests_count": 2}
    data, deletes = sorted(table.manifests(), key=lambda row: row["content"])
    ids = [record["data_file"]["first_row_id"] for record in avro(table.storage.read(data["manifest_path"]))]
    assert None not in ids
    assert data["first_row_id"] == table.head()["first-row-id"] == next_row_id
    assert deletes["first_row_id"] is None
    written = avro(table.storage.read(deletes["manifest_path"]))
    assert {record["data_file"]["first_row_id"] for record in written} == {None}
    assert table.head()["added-rows"] == 0


@needs_fixtures
@pytest.mark.parametrize("case", ALL)
def test_partition_summaries_are_those_that_the_engines_wrote(case: str) -> None:
    table = of_fixture(FIXTURES / case)
    metadata = table.table.metadata
    checked = 0
    for row in table.manifests():
        reader = fastavro.reader(
            io.BytesIO(table.storage.read(row["manifest_path"])), return_record_name=False
        )
        entries = [by_id(reader.writer_schema, record) for record in reader]
        fields = metadata.partition_spec(row["partition_spec_id"]).fields  # type: ignore[union-attr]
        if not row.get("partitions"):
            continue
        for number, (field, summary) in enumerate(zip(fields, row["partitions"], strict=True)):
            type_name = {"identity": None, "bucket": "int", "month": "int"}.get(field.transform.split("[")[0])
            type_name = type_name or str(metadata.current_schema().types_by_id().get(field.source_id, ""))
            if type_name not in {"string", "int", "long", "double"}:
                continue
            values = [list(each[2][102].values())[number] for each in entries]
            found = summary_of(sort_key(pa.array(values), type_name), type_name).to_row(type_name)
            assert found == {key: summary[key] for key in found} | {"contains_nan": False}
            checked += 1
    assert checked or case.split("/", maxsplit=1)[0][:2] in {"03", "04", "05", "07", "08", "20"}


# -- tables of our own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("size", [None, 16 * KIB])
def test_entries_are_sorted_by_partition_into_manifests_of_the_target_size(
    version: int, size: int | None
) -> None:
    table = a_lot(version).table(next_row_id=1 << 40)
    counts = rewritten(table, target_size=size)
    rows = table.manifests()
    assert counts == {"rewritten_manifests_count": 8, "added_manifests_count": len(rows)}
    assert (len(rows) == 1) == (size is None)
    values = [nulls_first(partitions_of(table, row)) for row in rows]
    assert [value for part in values for value in part] == sorted(value for part in values for value in part)
    for row, part in zip(rows, values, strict=True):
        assert row["manifest_length"] == len(table.storage.read(row["manifest_path"]))
        assert size is None or row["manifest_length"] <= 1.2 * size
        (summary,) = row["partitions"]
        known = [value for there, value in part if there]
        assert summary["contains_null"] == (len(known) < len(part))
        assert summary["lower_bound"] == struct.pack("<i", min(known))
        assert summary["upper_bound"] == struct.pack("<i", max(known))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_version_stays_and_the_header_says_what_the_specification_asks_for(version: int) -> None:
    table = a_lot(version).table(next_row_id=1 << 40)
    rewritten(table)
    (row,) = table.manifests()
    reader = fastavro.reader(io.BytesIO(table.storage.read(row["manifest_path"])))
    header = reader.metadata
    assert header["format-version"] == str(version)
    assert json.loads(header["schema"]) == SCHEMA
    assert json.loads(header["partition-spec"]) == BY_ONE["fields"]
    assert (header["schema-id"], header["partition-spec-id"]) == ("0", "0")
    assert header.get("content") == (None if version == 1 else "data")
    assert header["avro.codec"] == "deflate"
    names = [field["name"] for field in reader.writer_schema["fields"]]  # type: ignore[call-overload, index]
    assert ("sequence_number" in names) == (version > 1)
    assert all(record["snapshot_id"] is not None for record in reader)  # type: ignore[index, call-overload]


def test_the_replace_snapshot_has_the_keys_that_java_writes_and_the_totals() -> None:
    table = a_lot().table()
    rewritten(table)
    summary = table.head()["summary"]
    assert summary.pop("iceberg-cli.operation-id")
    assert summary == {
        "operation": "replace",
        "manifests-created": "1",
        "manifests-kept": "0",
        "manifests-replaced": "8",
        "entries-processed": "400",
        "changed-partition-count": "0",
        "total-data-files": "0",
        "total-records": "70",
    }


def test_the_replace_snapshot_is_no_older_than_the_last_change_of_a_table_whose_clock_was_ahead() -> None:
    table = a_lot().table()
    ((_, location),), storage = table.catalog.locations.items(), table.storage
    ahead = json.loads(storage.read(location)) | {"last-updated-ms": NOW_MS + 7}
    storage.replace(location, json.dumps(ahead).encode())
    table = opened(storage, location)
    rewritten(table)
    assert table.head()["timestamp-ms"] == table.metadata()["last-updated-ms"] == NOW_MS + 7


def test_deleted_entries_are_dropped_and_added_ones_become_existing_with_their_inherited_numbers() -> None:
    lot = Manifests()
    lot.add(entry(DELETED, "/gone"), entry(EXISTING, "/old", partition={"p1": 1}))
    lot.add(entry(ADDED, "/new", partition={"p1": 0}))
    table = lot.table()
    rewritten(table)
    row, written = only_manifest(table)
    numbers = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
    found = [(e["data_file"]["file_path"], *(e[name] for name in numbers)) for e in written]
    assert found == [("/new", EXISTING, 2, 2, 2), ("/old", EXISTING, 1, 1, 1)]
    assert [row[name] for name in COUNTS] == [0, 2, 0, 0, 20, 0]
    assert (row["min_sequence_number"], row["sequence_number"]) == (1, 3)


def test_a_manifest_of_deleted_entries_only_is_dropped_and_nothing_is_written_for_it() -> None:
    lot = Manifests()
    lot.add(entry(DELETED, "/gone"))
    kept = lot.add(entry(ADDED, "/new", partition={"p1": 0}))
    table = lot.table()
    assert rewritten(table) == {"rewritten_manifests_count": 1, "added_manifests_count": 0}
    assert [row["manifest_path"] for row in table.manifests()] == [kept]


def test_data_and_deletes_and_specs_are_never_mixed() -> None:
    other = spec(1, 2, spec_id=1)
    lot = Manifests(format_version=3, more_specs=[other])
    for number in range(3):
        lot.add(entry(ADDED, f"/a{number}", partition={"p1": number}), first_row_id=number * 10)
        lot.add(
            entry(ADDED, f"/b{number}", partition={"p1": number, "p2": "x"}),
            spec=other,
            first_row_id=100 + number * 10,
        )
        dv = entry(
            ADDED, "/puffin", partition={"p1": number}, file_format="PUFFIN", referenced_data_file=f"/a{number}",
            content_offset=4 + number, content_size_in_bytes=40,
        ) | {"content": 1}  # fmt: skip
        lot.add(dv, content=1)
    table = lot.table(next_row_id=200)
    assert rewritten(table) == {"rewritten_manifests_count": 9, "added_manifests_count": 3}
    kinds = [(row["content"], row["partition_spec_id"]) for row in table.manifests()]
    assert sorted(kinds) == [(0, 0), (0, 1), (1, 0)]
    assert table.metadata()["next-row-id"] == 200
    assert [row["first_row_id"] for row in table.manifests()] == [200, 200, None]


def test_only_what_the_options_name_is_written_anew() -> None:
    other = spec(1, spec_id=4)
    lot = Manifests(more_specs=[other])
    for number in range(3):
        lot.add(entry(ADDED, f"/a{number}"))
        lot.add(entry(ADDED, f"/b{number}"), spec=other)
        lot.add(entry(ADDED, f"/d{number}") | {"content": 1}, content=1)
    table = lot.table()
    going = [
        {v.id for v in table.plan(VERB, policy(**given)).verdicts if not v.keep}
        for given in (
            {},
            {"content": "data"},
            {"content": "deletes"},
            {"spec_ids": (4,)},
            {"min_manifests": 4},
        )
    ]
    paths = [row["manifest_path"] for row in lot.rows]
    assert going == [{*paths}, {*paths[0::3], *paths[1::3]}, {*paths[2::3]}, {*paths[1::3]}, set()]
    for given in ({"spec_ids": (9,)}, {"sort_by": ("nothing",)}):
        with pytest.raises(UsageError):
            table.plan(VERB, policy(**given))


def test_entries_can_be_sorted_by_a_later_field_first() -> None:
    both = spec(1, 2)
    lot = Manifests(spec=both)
    for first, second in ((1, "b"), (2, "a"), (0, "c")):
        lot.add(entry(ADDED, f"/{second}", partition={"p1": first, "p2": second}))
    table = lot.table()
    rewritten(table, sort_by=("p2",))
    (row,) = table.manifests()
    assert partitions_of(table, row) == [2, 1, 0]


def test_encrypted_manifests_stay() -> None:
    lot = Manifests()
    for number in range(3):
        lot.add(entry(ADDED, f"/a{number}"), key_metadata=b"secret")
    assert stays(lot.table()) == ["it is encrypted"] * 3


def test_a_table_without_snapshots_has_nothing_to_do() -> None:
    lot = Manifests()
    table = lot.table()
    table.publish(
        {**table.metadata(), "snapshots": [], "refs": {}, "current-snapshot-id": -1, "snapshot-log": []}
    )
    assert stays(table) == []


def test_a_snapshot_that_names_its_manifests_itself_is_left_alone_with_the_way_forward() -> None:
    lot = Manifests(format_version=1)
    paths = [lot.add(entry(EXISTING, f"/a{number}")) for number in range(2)]
    table = lot.table()
    snapshot = {key: value for key, value in table.head().items() if key != "manifest-list"}
    table.publish({**table.metadata(), "snapshots": [{**snapshot, "manifests": paths}]})
    plan = table.plan(VERB, policy())
    assert (plan.due, plan.blocked_by) == (False, ())
    assert "repair-manifests" in str(plan.not_applicable)


def test_missing_counts_of_version_1_are_counted_from_the_manifests() -> None:
    lot = Manifests(format_version=1)
    unknown = dict.fromkeys(COUNTS)
    for number in range(3):
        lot.add(entry(EXISTING, f"/a{number}"), entry(DELETED, f"/d{number}"), **unknown)
    table = lot.table()
    assert rewritten(table) == {"rewritten_manifests_count": 3, "added_manifests_count": 1}
    assert table.manifests()[0]["existing_files_count"] == 3


def test_rows_without_ids_get_them_once_and_rows_with_ids_keep_them() -> None:
    lot = Manifests(format_version=3)
    lot.add(entry(ADDED, "/with", record_count=5), first_row_id=0)
    lot.add(entry(ADDED, "/without", record_count=7), version=2)
    table = lot.table(next_row_id=5)
    table.apply(table.prepare(VERB, policy()))
    ids = {dict(each[-1])[100]: dict(each[-1]).get(142) for each in live_entries(table)}
    assert ids == {"'/with'": "0", "'/without'": "5"}
    assert (
        table.head()["added-rows"] == 12
    )  # all rows of the manifest are reserved, as the specification allows
    assert table.metadata()["next-row-id"] == 17


def test_a_manifest_far_above_the_target_is_split() -> None:
    lot = Manifests()
    numbers = random.Random(3)
    lot.add(*(a_file(numbers) for _ in range(2_000)))
    table = lot.table()
    counts = rewritten(table, target_size=24 * KIB)
    assert counts["rewritten_manifests_count"] == 1
    assert counts["added_manifests_count"] > 1


def test_small_batches_give_the_same_entries() -> None:
    table = a_lot(3, files=2_000, manifests=20).table(next_row_id=1 << 40)
    before = live_entries(table)
    made = table.prepare(VERB, policy(target_size=20 * KIB))
    (step,), (rewrite,) = made.plan.steps, made.build.rewrites
    paths = {number: f"/lake/new{number}.avro" for number in range(len(step.tasks))}
    assert len(paths) > 4
    staged = ManifestBuild(table=table.table, rewrite=rewrite, paths=paths, batch_bytes=30_000).run()
    rows = [staged[task].row for task in step.tasks]
    bounds = [(row["partitions"][0]["lower_bound"], row["partitions"][0]["upper_bound"]) for row in rows]
    numbers = [tuple(struct.unpack("<i", bound)[0] for bound in pair) for pair in bounds]
    assert all(this[1] <= following[0] for this, following in pairwise(numbers))
    written = [
        record["data_file"] for row in rows for record in avro(table.storage.read(row["manifest_path"]))
    ]
    found = sorted((repr(file["file_path"]), str(file["first_row_id"])) for file in written)
    assert found == sorted((dict(each[-1])[100], dict(each[-1])[142]) for each in before)


@pytest.mark.parametrize(
    ("type_", "values", "lower", "upper"),
    [
        ("boolean", [True, False], b"\x00", b"\x01"),
        ("int", [5, -5], struct.pack("<i", -5), struct.pack("<i", 5)),
        ("long", [1 << 40, -1], struct.pack("<q", -1), struct.pack("<q", 1 << 40)),
        ("float", [0.5, -1.5, float("nan")], struct.pack("<f", -1.5), struct.pack("<f", 0.5)),
        ("double", [0.0, -0.0, float("nan")], struct.pack("<d", -0.0), struct.pack("<d", 0.0)),
        ("date", [1, -1], struct.pack("<i", -1), struct.pack("<i", 1)),
        ("timestamptz", [1 << 50, 0], struct.pack("<q", 0), struct.pack("<q", 1 << 50)),
        ("string", ["b", "ä", "a"], b"a", "ä".encode()),
        ("binary", [b"\x80", b"\x7f"], b"\x7f", b"\x80"),
        ("fixed[2]", [b"\x80\x00", b"\x7f\x00"], b"\x7f\x00", b"\x80\x00"),
        ("decimal(9, 2)", [b"\xff\xff\xff\xfe", b"\x00\x00\x01\x00"], b"\xfe", b"\x01\x00"),
        (
            "uuid",
            [uuid.UUID(int=1 << 127).bytes, uuid.UUID(int=1).bytes],
            uuid.UUID(int=1).bytes,
            uuid.UUID(int=1 << 127).bytes,
        ),
    ],
)
def test_bounds_of_every_partition_type_are_as_appendix_d_has_them(
    type_: str, values: list[Any], lower: bytes, upper: bytes
) -> None:
    lot = Manifests(schema=columns(type_))
    for number, value in enumerate([*values, None]):
        lot.add(entry(ADDED, f"/a{number}", partition={"p1": value}))
    table = lot.table()
    rewritten(table)
    (row,) = table.manifests()
    assert row["partitions"] == [
        {
            "contains_null": True,
            "contains_nan": type_ in {"float", "double"},
            "lower_bound": lower,
            "upper_bound": upper,
        }
    ]
    found = FieldSummary.from_row(row["partitions"][0], type_, path="")
    assert found.to_row(type_) == row["partitions"][0]


def test_a_field_without_values_has_no_bounds() -> None:
    lot = Manifests(schema=columns("double"))
    lot.add(entry(ADDED, "/a", partition={"p1": float("nan")}))
    lot.add(entry(ADDED, "/b", partition={"p1": None}))
    table = lot.table()
    rewritten(table)
    (summary,) = table.manifests()[0]["partitions"]
    assert summary == {"contains_null": True, "contains_nan": True, "lower_bound": None, "upper_bound": None}


def test_partition_fields_whose_names_avro_does_not_allow_are_written_as_java_spells_them() -> None:
    odd = spec(1)
    odd["fields"][0]["name"] = "1 odd-name"
    lot = Manifests(spec=odd)
    for number in range(3):
        lot.add(entry(ADDED, f"/a{number}", partition={"1 odd-name": number}))
    table = lot.table()
    rewritten(table)
    _, records = only_manifest(table)
    assert [record["data_file"]["partition"] for record in records] == [
        {"_1_x20odd_x2Dname": n} for n in range(3)
    ]


def test_a_wider_decimal_and_a_longer_int_are_written_as_the_table_has_them_now() -> None:
    old = Manifests(schema=columns("decimal(3, 1)", "float"), spec=spec(1, 2))
    values = [(b"\xff\x9c", 1.5), (b"\x00\x64", -0.25)]
    for number, (one, two) in enumerate(values):
        old.add(entry(ADDED, f"/a{number}", partition={"p1": one, "p2": two}))
    old.schema = columns("decimal(18, 1)", "double")
    table = old.table()
    assert table.apply(table.prepare(VERB, policy())).counts["added_manifests_count"] == 1
    row, records = only_manifest(table)
    found = [tuple(record["data_file"]["partition"].values()) for record in records]
    assert [(str(one), two) for one, two in found] == [("-10.0", 1.5), ("10.0", -0.25)]
    bounds = [(part["lower_bound"], part["upper_bound"]) for part in row["partitions"]]
    assert bounds == [(b"\x9c", b"\x64"), (struct.pack("<d", -0.25), struct.pack("<d", 1.5))]


# -- other writers' encodings ------------------------------------------------------------------------------------


def flipped(schema: Any) -> Any:
    """The schema with null last in every union, as a writer may have it."""
    if isinstance(schema, list):
        return [flipped(branch) for branch in schema if branch != "null"] + ["null"] * ("null" in schema)
    if isinstance(schema, dict):
        return {key: flipped(value) for key, value in schema.items() if key != "default"}
    return schema


def with_deprecated_fields(schema: dict[str, Any]) -> dict[str, Any]:
    data_file = schema["fields"][-1]["type"]
    data_file["fields"].insert(3, {"name": "file_ordinal", "type": ["null", "int"], "field-id": 106})
    data_file["fields"].append({"name": "block_size_in_bytes", "type": "long", "field-id": 105})
    return schema


def without_late_fields(schema: dict[str, Any]) -> dict[str, Any]:
    data_file = schema["fields"][-1]["type"]
    data_file["fields"] = [f for f in data_file["fields"] if f["field-id"] not in {137, 143, 142, 144, 145}]
    return schema


def in_reverse(schema: dict[str, Any]) -> dict[str, Any]:
    schema["fields"][-1]["type"]["fields"].reverse()
    return schema


def shorter_partition(schema: dict[str, Any]) -> dict[str, Any]:
    partition = next(f for f in schema["fields"][-1]["type"]["fields"] if f["field-id"] == 102)
    partition["type"]["fields"][0]["type"] = ["null", "long"]
    return schema


@pytest.mark.pairs
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("change", "fast"),
    [
        (flipped, False),
        (with_deprecated_fields, True),
        (without_late_fields, True),
        (in_reverse, True),
        (shorter_partition, False),
        (lambda schema: schema, True),
    ],
)
def test_odd_writers_entries_come_through_by_the_one_path_or_the_other(
    version: int, change: Callable[[Any], Any], fast: bool
) -> None:
    lot = a_lot(version, manifests=2)
    odd = change(json.loads(manifest_schema(version, partition_struct(SCHEMA, BY_ONE["fields"]))))
    numbers = random.Random(5)
    entries = [a_file(numbers) for _ in range(40)]
    for number, block in enumerate((entries[:25], entries[25:])):
        out = io.BytesIO()
        for each in block:
            fastavro.schemaless_writer(out, odd, _nested(each))
        data = write_container(
            json.dumps(odd), {}, [(len(block), out.getvalue())], codec="null", sync=bytes(16)
        )
        row = {"first_row_id": (number + 1) << 50} if version == 3 else {}
        lot.put(f"/lake/odd{number}.avro", data, block, content=0, spec_id=0, **row)
    text = manifest_schema(version, partition_struct(SCHEMA, BY_ONE["fields"]))
    assert (
        recipe(parse_schema(json.dumps(odd).encode())[1], parse_schema(text.encode())[1]) is not None
    ) == fast
    table = lot.table(next_row_id=1 << 60)
    before = live_entries(table)
    table.apply(table.prepare(VERB, policy()))
    known = [(*each[:-1], tuple(pair for pair in each[-1] if pair[0] != 106)) for each in before]
    assert live_entries(table) == known


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """An entry as a record of any of the schemas above."""
    file = {key: value for key, value in flat.items() if key != "status"}
    for name in ("column_sizes", "lower_bounds"):
        file[name] = [{"key": key, "value": value} for key, value in file[name].items()]
    return {
        "status": flat["status"],
        "snapshot_id": None,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {**file, "file_ordinal": 7, "block_size_in_bytes": 9},
    }


def test_arrays_that_say_how_long_their_blocks_are_come_through() -> None:
    lot = a_lot(manifests=2)
    schema = json.loads(manifest_schema(2, partition_struct(SCHEMA, BY_ONE["fields"])))
    each = a_file(random.Random(9))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, _nested(each))
    items = b"\x02\xa0\x06\x04\xe8\x07"  # 1: 400, 2: 500
    plain = b"\x02\x04" + items + b"\x00"  # not null, two items, no more
    assert out.getvalue().count(plain) == 1
    sized = out.getvalue().replace(plain, b"\x02\x03\x0c" + items + b"\x00")  # minus two items, in 6 bytes
    data = write_container(json.dumps(schema), {}, [(1, sized)], codec="null", sync=bytes(16))
    lot.put("/lake/sized.avro", data, [each], content=0, spec_id=0)
    rewritten(lot.table())


@pytest.mark.parametrize("executor", ["lockstep", "narrow"])
def test_both_decoders_tell_where_a_field_starts_and_ends(executor: Any) -> None:
    numbers = random.Random(4)
    entries = [a_file(numbers) for _ in range(70)]
    paths = [each["file_path"] for each in entries]
    sources = [
        ManifestSource(
            path=f"/m{number}",
            data=write_manifest(
                entries[first : first + 35],
                schema=SCHEMA,
                partition_spec=BY_ONE,
                format_version=3,
                content=0,
                sync=bytes(16),
                block_bytes=1_000,
            ),
        )
        for number, first in enumerate((0, 35))
    ]
    edges = [Projection(f"{edge} {i}", (2, i), edge=edge) for i in (100, 145) for edge in ("start", "end")]  # type: ignore[arg-type]
    (batch,) = read_entries(sources, columns=("file_path",), edges=edges, executor=executor)
    assert batch.table["file_path"].to_pylist() == paths
    for number, source in enumerate(sources):
        container = open_manifest(source, source.data).container
        assert container is not None
        payload = b"".join(block.payload for block in container.blocks)
        mine = batch.table.filter(pa.array(batch.table["manifest"].to_numpy() == number)).to_pylist()
        for row in mine:
            path = row["file_path"].encode()
            length = (
                bytes([2 * len(path)])
                if len(path) < 64
                else bytes([2 * len(path) & 0x7F | 0x80, 2 * len(path) >> 7])
            )
            assert payload[row["start 100"] : row["end 100"]] == length + path
            assert payload[row["start 145"] : row["end 145"]] == b"\x00"
        ends = [row["end 145"] for row in mine]
        assert ends == sorted(ends)
        assert ends[-1] == len(payload)


@needs_fixtures
def test_the_slow_path_and_the_splice_give_equal_entries() -> None:
    folder = FIXTURES / "18-iceberg-v2-upgraded-v3-posdeletes" / "parcels"
    table = of_fixture(folder)
    metadata = table.table.metadata
    checked = 0
    for row in table.manifests():
        data = table.storage.read(row["manifest_path"])
        source = ManifestSource(
            path=row["manifest_path"], content=row["content"], sequence_number=row["sequence_number"],
            added_snapshot_id=row["added_snapshot_id"], first_row_id=row["first_row_id"],
        )  # fmt: skip
        opened = open_manifest(source, data)
        assert opened.container is not None
        text, _ = manifest_header(
            schema=metadata.current_schema().to_json(),
            partition_spec=metadata.default_spec().to_json(),
            format_version=3,
            content=row["content"],
        )
        avro_type = opened.container.type
        found = recipe(avro_type, parse_schema(text.encode())[1])
        assert found is not None
        (batch,) = read_entries([opened], columns=ENTRY_COLUMNS, edges=found.edges)
        rows = np.arange(batch.table.num_rows)[::-1].copy()
        payload = np.frombuffer(b"".join(block.payload for block in opened.container.blocks), np.uint8)
        partition = next(f.type for f in avro_type.fields[-1].type.fields if f.field_id == 102)
        fast = spliced(found, batch.table, payload, rows).to_pylist()
        slow = encoded(text, partition, batch.table, rows).to_pylist()
        schema = fastavro.parse_schema(json.loads(text))
        decoded = [
            [fastavro.schemaless_reader(io.BytesIO(each), schema) for each in entries]  # type: ignore[call-arg]
            for entries in (fast, slow)
        ]
        assert decoded[0] == decoded[1]
        checked += len(rows)
    assert checked > 20


# -- conflicts and checks ----------------------------------------------------------------------------------------


def appended(table: Opened, lot: Manifests, *, without: str | None = None) -> None:
    """Another writer commits one more manifest on top, and may replace one."""
    document = table.metadata()
    lot.rows = [row for row in table.manifests() if row["manifest_path"] != without]
    number = document["last-sequence-number"] + 1
    late = entry(ADDED, f"/lake/late-{number}.parquet", partition={"p1": 3})
    lot.add(late, sequence_number=number, min_sequence_number=number, added_snapshot_id=77)
    list_path = lot.write_list(snapshot_id=77, sequence_number=number)
    head = document["snapshots"][-1]
    snapshot = {
        **head, "snapshot-id": 77, "parent-snapshot-id": head["snapshot-id"], "sequence-number": number,
        "manifest-list": list_path, "summary": {"operation": "append"},
    }  # fmt: skip
    log = [*document["snapshot-log"], {"snapshot-id": 77, "timestamp-ms": snapshot["timestamp-ms"]}]
    document |= {
        "snapshots": [*document["snapshots"], snapshot], "current-snapshot-id": 77, "snapshot-log": log,
        "last-sequence-number": number, "refs": {"main": {"snapshot-id": 77, "type": "branch"}},
    }  # fmt: skip
    table.publish(document)


@pytest.mark.parametrize(
    ("gone", "rewritten_count", "live"),
    [pytest.param(False, 8, 401, id="append"), pytest.param(True, 7, 351, id="append and removal")],
)
def test_a_concurrent_commit_s_manifest_stays_what_it_dropped_stays_away_and_staged_ones_are_used(
    gone: bool, rewritten_count: int, live: int
) -> None:
    lot = a_lot()
    table = lot.table()
    without = lot.rows[0]["manifest_path"] if gone else None
    table.committer.meanwhile = lambda: appended(table, lot, without=without)
    report = table.apply(table.prepare(VERB, policy()))
    assert report.counts == {"rewritten_manifests_count": rewritten_count, "added_manifests_count": 1}
    first, *others = [row["manifest_path"] for row in table.manifests()]
    assert others == [lot.rows[-1]["manifest_path"]]
    assert len(live_entries(table)) == live
    assert [path for path in table.storage.files if "-spec0-" in path] == [first]


def test_a_rewrite_that_only_sorts_is_carried_out_on_a_table_that_moved_too() -> None:
    lot = Manifests()
    numbers = random.Random(11)
    bounds = {
        "contains_null": True,
        "lower_bound": struct.pack("<i", -9),
        "upper_bound": struct.pack("<i", 9),
    }
    for _ in range(6):
        lot.add(*(a_file(numbers) for _ in range(400)), partitions=[bounds])
    table = lot.table()
    size = max(row["manifest_length"] for row in lot.rows)
    made = table.prepare(VERB, policy(target_size=size))
    plan = made.plan
    assert {verdict.reason for verdict in plan.verdicts} == {
        "its partitions overlap with those of too many others"
    }
    table.committer.meanwhile = lambda: appended(table, lot)
    assert table.apply(made).counts["rewritten_manifests_count"] == 6
    assert len(live_entries(table)) == 2_401


def other_path(data: bytes) -> bytes:
    """A manifest with a file of another name."""
    return data.replace(b"/lake/data/", b"/lake/dat4/", 1)


def first_added(data: bytes) -> bytes:
    """A manifest whose first entry is ADDED and not EXISTING: after the header's sync marker, count and size."""
    at = data.index(data[-16:]) + 16
    for _ in range(2):
        while data[at] & 0x80:
            at += 1
        at += 1
    assert data[at] == 2 * EXISTING
    return data[:at] + bytes([2 * ADDED]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "right_reads", "match"),
    [
        (other_path, 0, "read back: other bytes than were written"),
        (other_path, 1, "other entries"),
        (first_added, 1, "399 existing entries"),
    ],
)
def test_what_does_not_read_back_as_it_was_read_is_not_committed(
    change: Callable[[bytes], bytes], right_reads: int, match: str
) -> None:
    table = a_lot(properties={"write.manifest.compression-codec": "uncompressed"}).table()
    made = table.prepare(VERB, policy())
    location = table.catalog.locations["visits"]
    reads: Counter[str] = Counter()

    def tamper(path: str, data: bytes) -> bytes:
        reads[path] += 1
        return change(data) if "-spec0-" in path and reads[path] > right_reads else data

    table.storage.tamper = tamper
    with pytest.raises(CorruptFile, match=match):
        table.apply(made)
    assert table.catalog.locations["visits"] == location


# -- the layout --------------------------------------------------------------------------------------------------

T = 1_000
LAYOUT = Layout(target_bytes=T + 10, header_bytes=10, min_manifests=2, fields=1)


def a_candidate(
    number: int, size: int, low: int = 0, high: int = 0, *, live: int = 5, rewrite: str = ""
) -> Candidate:
    return Candidate(
        number=number,
        body_bytes=size,
        live_files=live,
        lower=((1, low),),
        upper=((1, high),),
        rewrite=rewrite,
    )


def test_many_small_manifests_are_merged_and_those_of_a_good_size_stay() -> None:
    good = [a_candidate(number, 900, number, number + 1) for number in range(5)]
    small = [a_candidate(5 + number, 10, number, number) for number in range(6)]
    assert set(chosen([*good, *small], LAYOUT)) == set(range(5, 11))


def test_one_small_manifest_is_no_reason_to_write_anything() -> None:
    assert chosen([a_candidate(0, 900), a_candidate(1, 900), a_candidate(2, 10)], LAYOUT) == {}


def test_manifests_of_a_good_size_whose_partitions_overlap_are_sorted_anew() -> None:
    assert len(chosen([a_candidate(number, 900, 0, 99) for number in range(10)], LAYOUT)) == 10


def test_manifests_that_share_only_their_first_and_last_partition_do_not_overlap() -> None:
    assert overlaps([a_candidate(number, 900, number, number + 1) for number in range(10)]) == 1
    assert overlaps([a_candidate(number, 900, 3, 3) for number in range(10)]) == 0


def test_a_single_manifest_of_one_file_is_never_split() -> None:
    assert chosen([a_candidate(0, 10 * T, live=1)], LAYOUT) == {}
    assert set(chosen([a_candidate(0, 10 * T, live=2)], LAYOUT)) == {0}


def test_what_one_rewrite_wrote_is_not_written_again_however_it_turned_out() -> None:
    uneven = [a_candidate(number, 10, rewrite="one") for number in range(6)]
    uneven += [a_candidate(6, 9 * T, rewrite="one")]
    assert chosen(uneven, LAYOUT) == {}
    overlapping = [a_candidate(number, 900, 0, 99, rewrite="one") for number in range(10)]
    assert chosen(overlapping, LAYOUT) == {}
    assert len(chosen([*overlapping, a_candidate(10, 900, 0, 99)], LAYOUT)) == 11


def test_small_manifests_of_a_rewrite_are_merged_with_those_of_others() -> None:
    small = [a_candidate(number, 10, rewrite="one") for number in range(6)]
    assert set(chosen([*small, a_candidate(6, 10)], LAYOUT)) == set(range(7))
    assert set(chosen([*small, a_candidate(6, 10, rewrite="other")], LAYOUT)) == set(range(7))


def test_what_is_small_or_dead_is_written_with_what_is_split() -> None:
    candidates = [a_candidate(0, 9 * T), a_candidate(1, 10), a_candidate(2, 900), a_candidate(3, 10, live=0)]
    assert set(chosen(candidates, LAYOUT)) == {0, 1, 3}
    assert set(chosen(candidates, replace(LAYOUT, min_manifests=9))) == {0, 1, 3}


def test_a_name_says_which_rewrite_wrote_a_manifest_to_those_of_the_same_rules_only() -> None:
    here, there = replace(LAYOUT, rules=rules_of(1, "a")), replace(LAYOUT, rules=rules_of(2, "a"))
    path = f"/lake/metadata/7f3e-{name_of('data-spec0', here, '0123456789abcdef', 12_345)}"
    assert rewrite_of(path, here) == "0123456789abcdef"
    assert rewrite_of(path, there) == rewrite_of(path, LAYOUT) == ""
    assert rewrite_of("/lake/metadata/7f3e-m0.avro", here) == ""


def test_another_target_size_has_what_a_rewrite_wrote_written_again() -> None:
    table = a_lot(files=900).table()
    rewritten(table, target_size=12 * KIB)
    assert rewritten(table, target_size=40 * KIB)["added_manifests_count"] < 4


def test_a_list_without_counts_is_written_anew_with_them_and_its_manifests_stay() -> None:
    lot = a_lot(files=6, manifests=1)
    known = {name: lot.rows[0][name] for name in COUNTS}
    lot.rows[0] |= dict.fromkeys(COUNTS)
    lot.format_version = 1  # as a list of version 1 is written
    table = lot.table()
    document = {**table.metadata(), "format-version": 2, "last-sequence-number": 1}
    document["snapshots"][0]["sequence-number"] = 1
    table.publish(document)
    made = table.prepare(VERB, policy())
    plan = made.plan
    assert [(v.keep, v.reason) for v in plan.verdicts] == [
        (True, "kept, and listed again: the list has no counts of it")
    ]
    table.apply(made)
    (row,) = table.manifests()
    assert row["manifest_path"] == lot.rows[0]["manifest_path"]
    assert {name: row[name] for name in known} == known
    stays(table)


def test_every_manifest_is_written_anew_where_that_is_asked_for() -> None:
    table = a_lot(files=900).table()
    rewritten(table, target_size=12 * KIB)
    before = {row["manifest_path"] for row in table.manifests()}
    entries = live_entries(table)
    stays(table, target_size=12 * KIB)
    made = table.prepare(VERB, policy(target_size=12 * KIB, all_manifests=True))
    plan = made.plan
    assert {verdict.id for verdict in plan.verdicts if not verdict.keep} == before
    table.apply(made)
    assert before.isdisjoint(row["manifest_path"] for row in table.manifests())
    assert live_entries(table) == entries
    stays(table, target_size=12 * KIB)


def test_a_policy_survives_its_json_and_an_unreadable_one_is_refused() -> None:
    asked = RewriteManifests(target_size=5, spec_ids=(1,), sort_by=("a",), content="data", min_manifests=3)
    every = RewriteManifests(all_manifests=True)
    for each in (asked, every):
        assert RewriteManifests.from_json(json.loads(json.dumps(each.to_json()))) == each
    assert "all_manifests" not in asked.to_json()  # as version 0.1.0 has it
    for change in (
        {"content": "both"},
        {"target_size_bytes": 0},
        {"spec_ids": ["1"]},
        {"more": 1},
        {"sort_by": "a"},
    ):
        with pytest.raises(UsageError):
            RewriteManifests.from_json({**asked.to_json(), **change})

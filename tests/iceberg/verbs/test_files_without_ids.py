"""Manifests and manifest lists in whose Avro schemas no field has an id, as ClickHouse wrote them: names count.

The expected entries are those that `tests/manifest_tables.py` reads of the same files before their ids were taken away.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.testing.iceberg_files import ADDED
from tests.files_without_ids import without_ids, written_again
from tests.manifest_tables import Manifests, Opened, a_lot, avro, columns, entry, live_entries, spec

REWRITE_ALL = RewriteManifests(all_manifests=True).to_json()


def strip(table: Opened, change: Callable[[Any], Any] = without_ids, **others: Any) -> None:
    """Write every manifest and list of a table again."""
    for path, data in dict(table.storage.files).items():
        if path.endswith(".avro"):
            table.storage.files[path] = written_again(data, change, **others)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_rewrite_keeps_every_entry_and_writes_ids(version: int) -> None:
    table = a_lot(version).table(next_row_id=1 << 40)
    expected = live_entries(table)
    strip(table)
    planned = table.prepare("rewrite-manifests", REWRITE_ALL)
    assert not planned.plan.blocked_by
    table.apply(planned)
    assert live_entries(table) == expected
    for row in table.manifests():
        reader = fastavro.reader(io.BytesIO(table.storage.read(row["manifest_path"])))
        assert [each["field-id"] for each in reader.writer_schema["fields"]][:2] == [0, 1]  # type: ignore[index, call-overload]


def test_partition_values_are_found_by_the_names_of_the_headers_spec() -> None:
    by_two = spec(1, 2)
    lot = Manifests(schema=columns("int", "int"), spec=by_two, format_version=2)
    names = [each["name"] for each in by_two["fields"]]
    for number in range(2):
        tuple_ = dict(zip(names, (number, 10 + number), strict=True))
        lot.add(entry(ADDED, f"/lake/data/{number}.parquet", partition=tuple_))
    table = lot.table()
    expected = live_entries(table)

    def the_other_way_round(schema: Any) -> Any:
        schema = without_ids(schema)
        for field in schema["fields"]:
            if field["name"] == "data_file":
                for part in field["type"]["fields"]:
                    if part["name"] == "partition":
                        part["type"]["fields"].reverse()
        return schema

    strip(table, the_other_way_round)
    table.apply(table.prepare("rewrite-manifests", REWRITE_ALL))
    assert len(table.manifests()) == 1
    assert live_entries(table) == expected
    found = avro(table.storage.read(table.manifests()[0]["manifest_path"]))
    assert [each["data_file"]["partition"] for each in found] == [
        {names[0]: 0, names[1]: 10},
        {names[0]: 1, names[1]: 11},
    ]


def test_without_a_spec_in_the_header_the_places_of_partition_values_count() -> None:
    table = a_lot(2).table()
    expected = live_entries(table)
    strip(table, header=lambda header: {k: v for k, v in header.items() if k != "partition-spec"})
    table.apply(table.prepare("rewrite-manifests", REWRITE_ALL))
    assert live_entries(table) == expected


@pytest.mark.parametrize("kept", [("status", 0), ("record_count", 103)])
def test_one_field_with_an_id_makes_ids_count_alone(kept: tuple[str, int]) -> None:
    def all_but_one(schema: Any) -> Any:
        schema = without_ids(schema)
        data_file = next(each["type"] for each in schema["fields"] if each["name"] == "data_file")
        for field in (*schema["fields"], *data_file["fields"]):
            if field["name"] == kept[0]:
                field["field-id"] = kept[1]
        return schema

    table = a_lot(2).table()
    for row in table.manifests():
        path = row["manifest_path"]
        table.storage.files[path] = written_again(table.storage.files[path], all_but_one)
    (reason,) = table.prepare("rewrite-manifests", REWRITE_ALL).plan.blocked_by
    assert "sequence_number (without an id)" in reason or "file_path (without an id)" in reason


def test_deletes_are_found_by_names() -> None:
    lot = Manifests(schema=columns("int"), spec=spec(1), format_version=3)
    lot.add(entry(ADDED, "/lake/data/a.parquet", partition={"p1": 1}), first_row_id=0)
    lot.add(entry(ADDED, "/lake/data/e.parquet", content=2, equality_ids=[1], partition={"p1": 2}), content=1)
    table = lot.table(next_row_id=1_000)
    before = table.prepare("merge-dvs", MergeDvs().to_json()).plan
    strip(table)
    after = table.prepare("merge-dvs", MergeDvs().to_json()).plan
    assert after.steps[0].change.counts == before.steps[0].change.counts

"""The delete manifests of a merge, by columns: fastavro reads what was meant, and reading back finds what was not."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import container_header
from iceberg_cli.iceberg.avro.encoder import encoded as encoded_column
from iceberg_cli.iceberg.avro.schema import AvroType, parse_schema
from iceberg_cli.iceberg.branch.carried_entries import EntryBuilder
from iceberg_cli.iceberg.branch.opened_manifests import partition_type, record_type
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ENTRY_COLUMNS,
    ManifestSource,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.splice import encoded
from iceberg_cli.iceberg.spec.manifests.writer import entry_blocks, manifest_header, write_manifest
from iceberg_cli.iceberg.verbs.merge_dvs.build import (
    IDENTITY_SCHEMA,
    added_entries,
    check_manifest,
)
from tests.fixtures.iceberg_tables import ALL
from tests.manifest_tables import avro, by_id, of_fixture
from tests.paths import FIXTURES, needs_fixtures

EXISTING, ADDED, DELETED = 0, 1, 2
SYNC = bytes(range(16))
TYPES = (
    "int",
    "string",
    "decimal(9,2)",
    "double",
    "boolean",
    "binary",
    "timestamp",
    "fixed[3]",
    "float",
    "date",
)
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": f"c{n}", "required": False, "type": t} for n, t in enumerate(TYPES, start=1)
    ],
}
PLAIN: dict[str, Any] = {"spec-id": 0, "fields": []}
BY_ALL: dict[str, Any] = {
    "spec-id": 1,
    "fields": [
        {"source-id": n, "field-id": 1000 + n, "name": f"p{n}", "transform": "identity"}
        for n in range(1, len(TYPES) + 1)
    ],
}
TUPLES: dict[bytes, tuple[Any, ...]] = {
    b"full": (-7, "é", b"\xff\xff\xff\x6a", -0.5, True, b"\x00\xff", -(1 << 62), b"abc", 1.5, 19_000),
    b"null": (None,) * len(TYPES),
    b"zero": (0, "", bytes(4), 0.0, False, b"", 0, bytes(3), 0.0, -1),
}  # fmt: skip
NUMBERS = [0, 1, 63, 64, 8191, 8192, 2**31, 2**40, 2**62]


def header(spec: Mapping[str, Any]) -> tuple[str, dict[str, bytes]]:
    return manifest_header(schema=SCHEMA, partition_spec=spec, format_version=3, content=1)


def container(values: pa.Array, spec: Mapping[str, Any] = PLAIN) -> bytes:
    text, metadata = header(spec)
    start = container_header(text, metadata, codec="deflate", sync=SYNC)
    return b"".join([start, *entry_blocks(values, codec="deflate", sync=SYNC)])


def vectors(count: int, *, keys: Sequence[bytes], seed: int = 0) -> pa.Table:
    rng = random.Random(seed)
    names = ("sequence_number", "cardinality", "file_size", "offset", "size")
    numbers = {name: pa.array([rng.choice(NUMBERS) for _ in range(count)], pa.int64()) for name in names}
    return pa.table(
        {
            **numbers,
            "path": [f"s3://b/é {n}.puffin" for n in range(count)],
            "ref": ["s3://b/" + "x" * rng.choice([0, 1, 60, 64, 9000]) + str(n) for n in range(count)],
            "key": pa.array([rng.choice(keys) for _ in range(count)], pa.binary()),
        }
    )


def meant(row: Mapping[str, Any], partition: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of a new deletion vector must say, and how. Spec: "Manifest Entry Fields"."""
    nothing = (
        "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
        "key_metadata", "split_offsets", "equality_ids", "sort_order_id", "first_row_id",
    )  # fmt: skip
    data_file = {
        **dict.fromkeys(nothing), "content": 1, "file_path": row["path"], "file_format": "PUFFIN",
        "partition": partition, "record_count": row["cardinality"], "file_size_in_bytes": row["file_size"],
        "referenced_data_file": row["ref"], "content_offset": row["offset"], "content_size_in_bytes": row["size"],
    }  # fmt: skip
    return {
        "status": ADDED, "snapshot_id": None, "sequence_number": row["sequence_number"],
        "file_sequence_number": None, "data_file": data_file,
    }  # fmt: skip


def raw(data: bytes) -> list[dict[str, Any]]:
    """The records of a container, logical types as Avro stores them."""
    reader: Any = fastavro.block_reader(io.BytesIO(data))
    schema = strip(reader.writer_schema)
    body = b"".join(block.bytes_.getvalue() for block in reader)
    stream, found = io.BytesIO(body), []
    while stream.tell() < len(body):
        found.append(dict(fastavro.schemaless_reader(stream, schema, None)))  # type: ignore[arg-type]
    return found


def strip(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: strip(v) for k, v in schema.items() if k not in {"logicalType", "__named_schemas"}}
    return [strip(each) for each in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(("spec", "keys"), [(PLAIN, [b""]), (BY_ALL, [*TUPLES])])
def test_fastavro_reads_of_added_entries_what_the_specification_asks_for(
    spec: dict[str, Any], keys: list[bytes]
) -> None:
    rows = vectors(700, keys=keys)
    tuples = TUPLES if spec is BY_ALL else {b"": ()}
    names = [field["name"] for field in spec["fields"]]

    data = container(added_entries(rows, tuples, header(spec)[0]), spec)

    expected = [meant(row, dict(zip(names, tuples[row["key"]], strict=True))) for row in rows.to_pylist()]
    assert raw(data) == expected


def test_a_decimal_of_few_digits_is_written_into_a_field_that_has_grown() -> None:
    short = (*TUPLES[b"full"][:2], b"\xff\x6a", *TUPLES[b"full"][3:])
    data = container(added_entries(vectors(1, keys=[b"k"]), {b"k": short}, header(BY_ALL)[0]), BY_ALL)
    assert raw(data)[0]["data_file"]["partition"]["p3"] == b"\xff\xff\xff\x6a"


@pytest.mark.parametrize(
    ("schema", "values", "kind"),
    [
        ("long", [*NUMBERS, *(-n for n in NUMBERS), -(2**63), 2**63 - 1], pa.int64()),
        (["null", "long"], [None, 0, -1, 2**63 - 1, None], pa.int64()),
        ("int", [0, -1, 2**31 - 1, -(2**31)], pa.int32()),
        (["null", "int"], [None, 5], pa.int32()),
        ("string", ["", "é", "x" * 64, "y" * 9000], pa.string()),
        (["null", "string"], [None, "", "z"], pa.string()),
        (["null", "bytes"], [None, b"", b"\xff"], pa.binary()),
    ],
)
def test_a_column_has_the_bytes_that_fastavro_writes(
    schema: Any, values: list[Any], kind: pa.DataType
) -> None:
    expected = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        expected.append(out.getvalue())
    kinds = [AvroType(kind=name) for name in ([schema] if isinstance(schema, str) else schema)]
    avro_type = kinds[0] if len(kinds) == 1 else AvroType(kind="union", children=tuple(kinds))
    assert encoded_column(avro_type, pa.array(values, kind)).to_pylist() == expected


def test_a_null_is_no_value_of_a_required_field() -> None:
    with pytest.raises(ValueError, match="null is no long"):
        encoded_column(AvroType(kind="long"), pa.array([1, None], pa.int64()))


# -- entries that are carried over -------------------------------------------------------------------------------


def carried(
    sources: Sequence[ManifestSource], gone: Sequence[Sequence[int]], spec: Any, schema: Any
) -> pa.Array:
    text, _ = manifest_header(schema=schema, partition_spec=spec, format_version=3, content=1)
    removed = {7 * n: np.array(places, np.int64) for n, places in enumerate(gone)}
    made = EntryBuilder(schema_text=text, removed=removed)(
        [(7 * n, source) for n, source in enumerate(sources)]
    )
    by_number = dict(made)
    return pa.concat_arrays([pa.array([], pa.binary()), *(by_number[7 * n] for n in range(len(sources)))])


def decoded(values: pa.Array, text: str) -> list[dict[int, Any]]:
    schema = fastavro.parse_schema(parse_schema(text.encode())[0])
    rows = [fastavro.schemaless_reader(io.BytesIO(value), schema, None) for value in values.to_pylist()]  # type: ignore[arg-type]
    return [by_id(parse_schema(text.encode())[0], row) for row in rows]


def expected_of(row: Mapping[str, Any], data: bytes, gone: Sequence[int]) -> list[dict[int, Any]]:
    """Live entries with what they inherit, as EXISTING or, those of `gone`, DELETED: fastavro and the specification."""
    reader = fastavro.reader(io.BytesIO(data))
    found = []
    for place, record in enumerate(avro(data)):
        entry = by_id(reader.writer_schema, record)
        if entry[0] == DELETED:
            continue
        inherits = entry[0] == ADDED
        for field_id, name in ((1, "added_snapshot_id"), (3, "sequence_number"), (4, "sequence_number")):
            if entry.get(field_id) is None and (inherits or field_id == 1):
                entry[field_id] = row[name]
        entry |= {0: DELETED, 1: None} if place in gone else {0: EXISTING}
        found.append(entry)
    return found


def stated(entry: Mapping[int, Any]) -> dict[int, Any]:
    """An entry without what is null."""
    flat = {**{k: v for k, v in entry.items() if k != 2}, **entry[2]}
    return {key: value for key, value in flat.items() if value is not None}


def test_partition_values_of_a_manifest_without_field_ids_are_taken_by_their_place() -> None:
    text, metadata = header(BY_ALL)
    schema = json.loads(text)
    data_file = next(f for f in schema["fields"] if f["field-id"] == 2)["type"]
    struct = next(f for f in data_file["fields"] if f["field-id"] == 102)["type"]
    for field in struct["fields"]:
        del field["field-id"]
    values = added_entries(vectors(2, keys=[b"full"]), TUPLES, text)
    start = container_header(json.dumps(schema), metadata, codec="deflate", sync=SYNC)
    data = b"".join([start, *entry_blocks(values, codec="deflate", sync=SYNC)])
    source = open_manifest(ManifestSource(path="m", content=1, sequence_number=1, added_snapshot_id=1), data)
    found = raw(container(carried([source], [[0]], BY_ALL, SCHEMA), BY_ALL))
    assert [entry["status"] for entry in found] == [DELETED, EXISTING]
    names = [field["name"] for field in BY_ALL["fields"]]
    full = dict(zip(names, TUPLES[b"full"], strict=True))
    assert [entry["data_file"]["partition"] for entry in found] == [full, full]


@needs_fixtures
def test_entries_of_other_engines_are_carried_over_value_by_value() -> None:
    rng = random.Random(5)
    checked = 0
    for case in ALL:
        table = of_fixture(FIXTURES / case)
        metadata = table.metadata()
        schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
        for row in table.manifests():
            if row.get("content") != 1:
                continue
            data = table.storage.read(row["manifest_path"])
            spec = next(s for s in metadata["partition-specs"] if s["spec-id"] == row["partition_spec_id"])
            source = open_manifest(
                ManifestSource(
                    path=row["manifest_path"], content=1, sequence_number=row["sequence_number"],
                    added_snapshot_id=row["added_snapshot_id"],
                ),
                data,
            )  # fmt: skip
            alive = [place for place, record in enumerate(avro(data)) if record["status"] != DELETED]
            gone = [place for place in alive if rng.random() < 0.5]
            values = carried([source, source], [gone, []], spec, schema)
            text, _ = manifest_header(schema=schema, partition_spec=spec, format_version=3, content=1)
            expected = [*expected_of(row, data, gone), *expected_of(row, data, [])]
            assert [stated(each) for each in decoded(values, text)] == [stated(each) for each in expected]
            checked += len(expected)
    assert checked > 20


def an_entry(rng: random.Random, number: int) -> dict[str, Any]:
    status = rng.choice([EXISTING, ADDED, DELETED])
    given = status != ADDED
    puffin = rng.random() < 0.5
    return {
        "status": status, "snapshot_id": rng.choice(NUMBERS) if given else None,
        "sequence_number": rng.choice(NUMBERS) if given else None,
        "file_sequence_number": rng.choice(NUMBERS) if given else None, "content": 1 if puffin else rng.choice([1, 2]),
        "file_path": f"/d/{number}", "file_format": "PUFFIN" if puffin else "PARQUET",
        "partition": dict(zip([f"p{n + 1}" for n in range(len(TYPES))], rng.choice([*TUPLES.values()]), strict=True)),
        "record_count": rng.choice(NUMBERS), "file_size_in_bytes": rng.choice(NUMBERS),
        "referenced_data_file": f"/d/{'r' * rng.choice([0, 70])}{number}" if puffin else None,
        "content_offset": rng.choice(NUMBERS) if puffin else None,
        "content_size_in_bytes": rng.choice(NUMBERS) if puffin else None,
        "lower_bounds": None if puffin else {2147483546: b"a"}, "equality_ids": None if puffin else [1, 2],
    }  # fmt: skip


def opened(entries: Sequence[dict[str, Any]], version: int, name: str) -> ManifestSource:
    data = write_manifest(
        entries, schema=SCHEMA, partition_spec=BY_ALL, format_version=version, content=1, sync=SYNC
    )
    source = ManifestSource(path=name, content=1, sequence_number=9, added_snapshot_id=99)
    return open_manifest(source, data)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_splicing_and_encoding_give_equal_entries(version: int, seed: int) -> None:
    rng = random.Random(seed)
    sources = [
        opened([an_entry(rng, 100 * n + m) for m in range(rng.choice([0, 1, 40]))], version, f"m{n}")
        for n in range(6)
    ]
    text, _ = header(BY_ALL)
    slow, gone = [], []
    for source in sources:
        (batch,) = read_entries([source], columns=ENTRY_COLUMNS)
        alive = np.flatnonzero(batch.table["status"].to_numpy() != DELETED)
        statuses = np.array([rng.choice([EXISTING, DELETED]) for _ in alive], np.uint8)
        gone.append(alive[statuses == DELETED].tolist())
        ids = batch.table["snapshot_id"].to_pylist()
        for place in gone[-1]:
            ids[place] = None
        entries = batch.table.set_column(
            batch.table.column_names.index("snapshot_id"), "snapshot_id", pa.array(ids, pa.int64())
        )
        slow += encoded(
            text, partition_type(record_type(source)), entries, alive, statuses=statuses
        ).to_pylist()

    fast = carried(sources, gone, BY_ALL, SCHEMA).to_pylist()

    assert fast == slow


# -- reading back ------------------------------------------------------------------------------------------------


def a_manifest(count: int = 300) -> tuple[pa.Array, pa.Table, dict[str, int]]:
    """Encodings of added entries, what they say, and their counts."""
    rows = vectors(count, keys=[b""])
    columns = {
        "status": np.full(count, ADDED, np.int32), "file_path": rows["path"], "content_offset": rows["offset"],
        "sequence_number": rows["sequence_number"], "record_count": rows["cardinality"],
        "referenced_data_file": rows["ref"],
    }  # fmt: skip
    counts = {"content": 1, "added_files_count": count, "existing_files_count": 0, "deleted_files_count": 0}
    return added_entries(rows, {b"": ()}, header(PLAIN)[0]), pa.table(columns, schema=IDENTITY_SCHEMA), counts


def test_a_manifest_that_holds_what_was_meant_passes() -> None:
    values, entries, counts = a_manifest()
    check_manifest(container(values), container(values), "m", counts, values, entries)


@pytest.mark.parametrize("name", IDENTITY_SCHEMA.names)
def test_a_manifest_that_says_anything_else_is_refused(name: str) -> None:
    values, entries, counts = a_manifest()
    changed = entries[name].to_pylist()
    changed[211] = f"{changed[211]}x" if isinstance(changed[211], str) else changed[211] + 1
    place = entries.column_names.index(name)
    other = entries.set_column(place, name, pa.array(changed, IDENTITY_SCHEMA.field(name).type))
    with pytest.raises(CorruptFile, match=f"field {name}"):
        check_manifest(container(values), container(values), "m", counts, values, other)


def test_a_manifest_with_other_bytes_than_were_written_is_refused() -> None:
    values, entries, counts = a_manifest(40)
    data = container(values)
    for place in range(0, len(data), 7):
        bad = bytearray(data)
        bad[place] ^= 1
        with pytest.raises(CorruptFile):
            check_manifest(bytes(bad), data, "m", counts, values, entries)


def test_a_manifest_of_more_or_fewer_entries_is_refused() -> None:
    values, entries, counts = a_manifest(40)
    data = container(values)
    for wrong in (values.slice(1), values.slice(0, 39), pa.concat_arrays([values, values.slice(0, 1)])):
        with pytest.raises(CorruptFile, match="entries"):
            check_manifest(data, data, "m", counts, wrong, entries)


def test_two_deletion_vectors_for_one_data_file_are_refused() -> None:
    rows = vectors(2, keys=[b""])
    rows = rows.set_column(rows.column_names.index("ref"), "ref", pa.array(["same", "same"]))
    values = added_entries(rows, {b"": ()}, header(PLAIN)[0])
    names = ("path", "offset", "sequence_number", "cardinality", "ref")
    columns = [pa.array([ADDED, ADDED], pa.int32()), *(rows[name] for name in names)]
    entries = pa.table(columns, schema=IDENTITY_SCHEMA)
    counts = {"content": 1, "added_files_count": 2, "existing_files_count": 0, "deleted_files_count": 0}
    with pytest.raises(CorruptFile, match="two deletion vectors"):
        check_manifest(container(values), container(values), "m", counts, values, entries)

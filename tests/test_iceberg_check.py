"""`inspect --check`: for every rule a table that breaks it, and nothing else; sound tables break none."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.iceberg.check.rules import RULES
from iceberg_cli.plan.findings import EXAMPLES, CheckResult, Findings
from iceberg_cli.storage import open_storage
from tests.check_tables import CASES, SCHEMA, SNAPSHOT_ID, TIME_MS, Break, Case, Sound, a_snapshot_document
from tests.cli.running import Ran
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import DeleteTable, puffin
from tests.paths import FIXTURES, needs_fixtures

MINUTE_MS = 60_000
BY_K = {
    "spec-id": 1,
    "fields": [{"name": "k", "transform": "identity", "source-id": 2, "field-id": 1000}],
}
BY_BUCKET = {
    "spec-id": 1,
    "fields": [{"name": "k_bucket", "transform": "bucket[4]", "source-id": 2, "field-id": 1000}],
}


def breaks(rule: str, *, version: int = 3, deep: bool = False) -> Callable[[Break], Break]:
    """The table that breaks a rule: `change` gets a sound one of a format version, before it is written."""

    def register(change: Break) -> Break:
        assert rule not in CASES
        CASES[rule] = Case(change, version, deep)
        return change

    return register


def in_metadata(rule: str, change: Callable[[dict[str, Any]], object], *, version: int = 3) -> None:
    """A rule that a change of the metadata breaks."""
    breaks(rule, version=version)(lambda table: table.documents.append(change))  # type: ignore[arg-type]


def in_row(rule: str, row: int, **values: Any) -> None:
    """A rule that other values in a row of the manifest list break; row 0 is of data, 1 of deletes."""
    breaks(rule)(lambda table: table.rows.append(lambda rows: rows[row].update(values)))


def in_file(rule: str, name: str, change: Callable[[Path], object], *, deep: bool = False) -> None:
    """A rule that a change of a written file breaks."""
    breaks(rule, deep=deep)(lambda table: table.files.append(lambda folder: change(folder / name)))


def scrambled(path: Path) -> None:
    """The same number of bytes, and none of the content."""
    path.write_bytes(b"\xff" * path.stat().st_size)


def older(document: dict[str, Any], snapshot_id: int = 1, sequence_number: int = 1, **values: Any) -> None:
    """One more snapshot, that no ref names, with the manifest list of the other."""
    snapshot = a_snapshot_document(snapshot_id, sequence_number, document["snapshots"][0]["manifest-list"])
    if document["format-version"] == 3:
        snapshot |= {"first-row-id": 0, "added-rows": 0}
    snapshot |= {name.replace("_", "-"): value for name, value in values.items()}
    document["snapshots"].append({key: value for key, value in snapshot.items() if value is not None})


def current(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Other values in the current snapshot; None takes a field away."""

    def change(document: dict[str, Any]) -> None:
        for name, value in values.items():
            document["snapshots"][0][name.replace("_", "-")] = value
        document["snapshots"][0] = {k: v for k, v in document["snapshots"][0].items() if v is not None}

    return change


def log_of(*entries: tuple[int, int]) -> list[dict[str, int]]:
    return [{"timestamp-ms": TIME_MS + after_ms, "snapshot-id": snapshot} for after_ms, snapshot in entries]


def metadata_files(*after_ms: int) -> list[dict[str, Any]]:
    return [{"timestamp-ms": TIME_MS + each, "metadata-file": f"/gone/{each}.json"} for each in after_ms]


def specs(*fields: dict[str, Any], default: int = 0) -> Callable[[dict[str, Any]], None]:
    """Further partition specs, of one field each."""

    def change(document: dict[str, Any]) -> None:
        more = [{"spec-id": number, "fields": [each]} for number, each in enumerate(fields, start=1)]
        document.update(
            {
                "partition-specs": [*document["partition-specs"], *more],
                "default-spec-id": default,
                "last-partition-id": 1000,
            }
        )

    return change


def partition_field(transform: str = "identity", source: int = 2, name: str = "k") -> dict[str, Any]:
    return {"name": name, "transform": transform, "source-id": source, "field-id": 1000}


def columns(*more: dict[str, Any], last: int = 9, **others: Any) -> Callable[[dict[str, Any]], None]:
    """Further columns."""

    def change(document: dict[str, Any]) -> None:
        schema = {**SCHEMA, "fields": [*SCHEMA["fields"], *more], **others}
        document.update({"schemas": [schema], "last-column-id": last})

    return change


def column(field_id: int, type_: str = "long", name: str = "c") -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": type_}


# -- metadata ----------------------------------------------------------------------------------------------------

in_metadata("main-is-no-branch", lambda d: d["refs"]["main"].update(type="tag"))
in_metadata("ref-snapshot-missing", lambda d: d["refs"].update(lost={"snapshot-id": 77, "type": "tag"}))
in_metadata(
    "ref-retention-without-effect",
    lambda d: d["refs"].update(eod={"snapshot-id": SNAPSHOT_ID, "type": "tag", "min-snapshots-to-keep": 3}),
)
in_metadata("column-id-above-last", columns(last=1))
in_metadata("column-id-repeated", columns(column(2)))
in_metadata("identifier-field-unfit", columns(**{"identifier-field-ids": [1]}))
in_metadata("type-of-newer-format", columns(column(3, "timestamp_ns")), version=2)
in_metadata("type-unknown", columns(column(3, "hologram")))
in_metadata("partition-field-id-reused", specs(partition_field(), partition_field("bucket[4]")))
in_metadata("partition-source-missing", specs(partition_field(source=9, name="gone"), default=1))


@breaks("partition-field-id-above-last")
def _(table: Sound) -> None:
    table.documents.append(specs(partition_field()))
    table.documents.append(lambda d: d.update({"last-partition-id": 999}))


@breaks("partition-field-repeated")
def _(table: Sound) -> None:
    table.documents.append(specs(partition_field()))
    table.documents.append(
        lambda d: d["partition-specs"][1]["fields"].append(partition_field(name="k again"))
    )


@breaks("sort-source-missing")
def _(table: Sound) -> None:
    by = {"transform": "identity", "source-id": 9, "direction": "asc", "null-order": "nulls-first"}
    table.documents.append(lambda d: d["sort-orders"].append({"order-id": 1, "fields": [by]}))
    table.documents.append(lambda d: d.update({"default-sort-order-id": 1}))


@breaks("sort-order-zero-with-fields")
def _(table: Sound) -> None:
    by = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    table.documents.append(lambda d: d.update({"sort-orders": [{"order-id": 0, "fields": [by]}]}))


in_metadata("partition-name-clashes", specs(partition_field(name="n")))
in_metadata("snapshot-schema-missing", current(schema_id=7))
in_metadata("snapshot-sequence-number-repeated", lambda d: older(d, sequence_number=2))
in_metadata("snapshot-operation-missing", lambda d: d["snapshots"][0]["summary"].pop("operation"))
in_metadata("snapshot-manifests-twice", current(manifests=["/elsewhere/m.avro"]))
in_metadata("snapshot-key-missing", current(key_id="k1"))
in_metadata(
    "snapshot-manifests-inline",
    lambda d: older(d, manifest_list=None, manifests=["/elsewhere/m.avro"]),
    version=2,
)
in_metadata("snapshot-row-ids-above-next", lambda d: older(d, first_row_id=100, added_rows=5))
in_metadata("snapshot-row-ids-overlap", lambda d: older(d, first_row_id=2, added_rows=1))


@breaks("snapshot-not-newer-than-parent")
def _(table: Sound) -> None:
    table.documents.append(lambda d: older(d, sequence_number=3))
    table.documents.append(lambda d: d.update({"last-sequence-number": 3}))
    table.documents.append(current(parent_snapshot_id=1))


@breaks("snapshot-earlier-than-parent")
def _(table: Sound) -> None:
    table.documents.append(lambda d: older(d, timestamp_ms=TIME_MS + 2 * MINUTE_MS))
    table.documents.append(current(parent_snapshot_id=1))


@breaks("parent-cycle", version=1)
def _(table: Sound) -> None:
    table.documents.append(lambda d: older(d, parent_snapshot_id=SNAPSHOT_ID))
    table.documents.append(current(parent_snapshot_id=1))
    table.documents.append(lambda d: [snapshot.pop("sequence-number", None) for snapshot in d["snapshots"]])


@breaks("snapshot-row-ids-missing")
def _(table: Sound) -> None:
    table.documents.append(older)
    table.documents.append(current(first_row_id=None, added_rows=None))


in_metadata(
    "snapshot-log-unordered",
    lambda d: d.update(
        {
            "snapshot-log": log_of((3 * MINUTE_MS, SNAPSHOT_ID), (0, SNAPSHOT_ID)),
            "last-updated-ms": TIME_MS + 3 * MINUTE_MS,
        }
    ),
)
in_metadata("snapshot-log-gap", lambda d: d.update({"snapshot-log": log_of((0, 77), (1, SNAPSHOT_ID))}))
in_metadata(
    "metadata-log-unordered",
    lambda d: d.update(
        {"metadata-log": metadata_files(3 * MINUTE_MS, 0), "last-updated-ms": TIME_MS + 3 * MINUTE_MS}
    ),
)
in_metadata("last-updated-too-early", lambda d: d.update({"metadata-log": metadata_files(0, 3 * MINUTE_MS)}))


@breaks("snapshot-log-end")
def _(table: Sound) -> None:
    table.documents.append(older)
    table.documents.append(lambda d: d.update({"snapshot-log": log_of((0, SNAPSHOT_ID), (1, 1))}))


@breaks("statistics-without-snapshot")
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[table.statistics(77)]))


@breaks("statistics-repeated")
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[table.statistics()] * 2))


# -- manifest lists ----------------------------------------------------------------------------------------------

in_file("manifest-list-missing", "metadata/snap-2.avro", Path.unlink)
in_file("manifest-list-unreadable", "metadata/snap-2.avro", scrambled)
in_metadata(
    "manifest-list-cut-short", lambda d: d["snapshots"][0]["summary"].update({"total-data-files": "9"})
)
in_row("manifest-min-sequence-number-too-high", 0, min_sequence_number=3)
in_row("delete-manifest-has-first-row-id", 1, first_row_id=0)
breaks("manifest-listed-twice")(lambda table: table.rows.append(lambda rows: rows.append(rows[0])))


@breaks("manifest-list-incomplete", version=2)
def _(table: Sound) -> None:
    table.deletes, table.list_version = [], 1
    table.files.append(as_version_2)


def as_version_2(folder: Path) -> None:
    """Let the manifest list say that it is of version 2, whose fields it lacks."""
    path = folder / "metadata/snap-2.avro"
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, rows = reader.writer_schema, list(reader)
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, metadata={"format-version": "2"})


@breaks("manifest-counts-unknown", version=2)
def _(table: Sound) -> None:
    table.deletes, table.list_version = [], 1
    table.rows.append(lambda rows: rows[0].update(added_files_count=None))


@breaks("manifest-spec-missing")
def _(table: Sound) -> None:
    table.spec = {"spec-id": 7, "fields": []}
    table.deletes = []
    table.documents.append(lambda d: d.update({"partition-specs": [{"spec-id": 0, "fields": []}]}))


@breaks("manifest-sequence-number-too-high")
def _(table: Sound) -> None:
    table.deletes = []
    table.rows.append(lambda rows: rows[0].update(sequence_number=9))


@breaks("manifest-first-row-id-missing")
def _(table: Sound) -> None:
    table.rows.append(lambda rows: rows[0].pop("first_row_id"))


@breaks("manifest-first-row-id-too-low")
def _(table: Sound) -> None:
    table.documents.append(current(first_row_id=5))
    table.documents.append(lambda d: d.update({"next-row-id": 10}))


@breaks("partition-summary-unfit")
def _(table: Sound) -> None:
    table.rows.append(lambda rows: rows[0].update(partitions=[summary(b"a", b"z")]))


def summary(lower: bytes, upper: bytes) -> dict[str, Any]:
    return {"contains_null": False, "contains_nan": None, "lower_bound": lower, "upper_bound": upper}


@breaks("partition-summary-too-narrow")
def _(table: Sound) -> None:
    by_k(table)
    table.rows[0] = lambda rows: rows[0].update(partitions=[summary(b"y", b"z")])


def by_k(table: Sound, spec: dict[str, Any] = BY_K, value: Any = "x") -> None:
    """Make the table's files of a partition spec, all of one partition."""
    table.spec = spec
    for entry in [*table.data, *table.deletes]:
        entry["partition"] = {spec["fields"][0]["name"]: value}
    if value == "x":
        table.rows.append(lambda rows: [row.update(partitions=[summary(b"x", b"x")]) for row in rows])


# -- manifests ---------------------------------------------------------------------------------------------------

in_file("manifest-missing", "metadata/data.avro", Path.unlink)
in_file("manifest-unreadable", "metadata/data.avro", scrambled)
in_row("manifest-file-counts-differ", 0, added_files_count=3)
in_row("manifest-row-counts-differ", 0, existing_rows_count=1)
in_row("manifest-length-stale", 1, manifest_length=12)


@breaks("manifest-length-differs", version=1)
def _(table: Sound) -> None:
    table.rows.append(lambda rows: rows[0].update(manifest_length=12, deleted_files_count=None))


@breaks("manifest-header-differs")
def _(table: Sound) -> None:
    table.rows.append(lambda rows: [row.update(partition_spec_id=1) for row in rows])
    table.documents.append(lambda d: d["partition-specs"].append({"spec-id": 1, "fields": []}))


@breaks("entry-sequence-number-wrong")
def _(table: Sound) -> None:
    table.data[1] |= {"sequence_number": 2, "file_sequence_number": 1}


@breaks("file-format-unfit")
def _(table: Sound) -> None:
    table.data[1]["file_format"] = "CSV"


@breaks("partition-tuple-unfit")
def _(table: Sound) -> None:
    by_k(table, BY_BUCKET, 3)
    table.deletes = []
    table.documents.append(lambda d: d["partition-specs"].__setitem__(1, BY_K))


@breaks("partition-value-unfit")
def _(table: Sound) -> None:
    by_k(table, BY_BUCKET, 3)
    table.data[1]["partition"] = {"k_bucket": 4}


@breaks("equality-ids-unfit")
def _(table: Sound) -> None:
    table.equality("eq", equality_ids=[99])
    table.data[1] |= {"sequence_number": 1, "file_sequence_number": 1}


@breaks("deletes-before-v2", version=1)
def _(table: Sound) -> None:
    table.manifest_version = table.list_version = 2
    table.positions("pos", {"a": [0]})


@breaks("deletion-vector-before-v3", version=2)
def _(table: Sound) -> None:
    table.manifest_version = 3
    table.vectors("dv", {"a": {0}})


@breaks("deletion-vector-incomplete")
def _(table: Sound) -> None:
    table.deletes[0]["content_size_in_bytes"] = None


@breaks("position-deletes-added-in-v3")
def _(table: Sound) -> None:
    table.positions("pos", {"a": [0]})


# -- files -------------------------------------------------------------------------------------------------------


@breaks("file-listed-twice")
def _(table: Sound) -> None:
    table.data.append(dict(table.data[1]))


@breaks("deletion-vectors-of-one-file")
def _(table: Sound) -> None:
    data, places = puffin({table.path("a"): {0}, table.path("b"): {1}})
    table.puffin("two", data, [(table.path("a"), *rest) for _, *rest in places])


@breaks("deletion-vector-out-of-scope")
def _(table: Sound) -> None:
    table.deletes[0] |= {"sequence_number": 1, "file_sequence_number": 2}


@breaks("deletion-vector-too-large")
def _(table: Sound) -> None:
    table.deletes[0]["record_count"] = 4


@breaks("deletion-vector-spelling")
def _(table: Sound) -> None:
    table.deletes[0]["referenced_data_file"] = f"file://{table.path('a')}"


@breaks("deletion-vector-dangling")
def _(table: Sound) -> None:
    table.vectors("dv", {"gone": {0}})


@breaks("deletes-dangling", version=2)
def _(table: Sound) -> None:
    table.deletes[0] |= {"sequence_number": 1, "file_sequence_number": 2}


@breaks("every-row-deleted")
def _(table: Sound) -> None:
    table.vectors("all", {"b": {0, 1}})


@breaks("row-ids-overlap")
def _(table: Sound) -> None:
    table.data[1]["first_row_id"] = 2


@breaks("row-id-negative")
def _(table: Sound) -> None:
    table.data[1]["first_row_id"] = -2


@breaks("row-ids-above-next")
def _(table: Sound) -> None:
    table.data[1]["first_row_id"] = 4


in_metadata("total-differs", lambda d: d["snapshots"][0]["summary"].update({"total-records": "6"}))
in_file("file-missing", "data/b.parquet", Path.unlink)
in_file("file-size-differs", "data/b.parquet", lambda path: path.write_bytes(path.read_bytes() + b"!"))


@breaks("file-out-of-reach")
def _(table: Sound) -> None:
    table.data[1]["file_path"] = "gs://bucket/b.parquet"


@breaks("file-not-looked-at")
def _(table: Sound) -> None:
    table.data[1]["file_path"] = f"/{'x' * 300}/b.parquet"  # no system takes such a name


def a_leftover(folder: Path) -> None:
    """What a run left that was killed two days ago."""
    path = folder / "metadata" / f".iceberg-cli-{UUID(int=7)}.tmp"
    path.write_bytes(b"half of")
    two_days_ago_s = folder.stat().st_mtime - 2 * 86_400
    os.utime(path, (two_days_ago_s,) * 2)


breaks("leftover-temporary-file")(lambda table: table.files.append(a_leftover))


@breaks("statistics-file-missing")
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[table.statistics()]))
    table.files.append(lambda folder: (folder / "metadata/2.stats").unlink())


@breaks("statistics-file-size-differs")
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[{**table.statistics(), "file-size-in-bytes": 7}]))


# -- content -----------------------------------------------------------------------------------------------------

in_file("puffin-unreadable", "data/dv.puffin", scrambled, deep=True)
in_file("parquet-unreadable", "data/b.parquet", scrambled, deep=True)


@breaks("deletion-vector-place-differs", deep=True)
def _(table: Sound) -> None:
    data, places = puffin({table.path("b"): {0}})
    table.puffin("other", data, [(table.path("a"), *rest) for _, *rest in places])


def unopenable(path: Path) -> None:
    """A footer that begins and ends as it must, and says what no reader here knows."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + b"\x7f" * length + data[-8:])


in_file("parquet-cannot-be-read-here", "data/b.parquet", unopenable, deep=True)


@breaks("position-deletes-unfit", version=2, deep=True)
def _(table: Sound) -> None:
    rows = pa.table({"file_path": [table.path("a"), None], "pos": pa.array([0, 1], pa.int64())})
    pq.write_table(rows, table.folder / "data/null-deletes.parquet")
    path = table.folder / "data/null-deletes.parquet"
    table.deletes = [table.entry(1, str(path), 2, path.stat().st_size)]


def theta(*fields: int, snapshot_id: int = SNAPSHOT_ID) -> dict[str, Any]:
    """The sketch of a column, as metadata repeats it."""
    return {
        "type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 2,
        "fields": list(fields), "properties": {"ndv": "3"},
    }  # fmt: skip


@breaks("puffin-blob-unfit")
def _(table: Sound) -> None:
    table.documents.append(
        lambda d: d.update(statistics=[{**table.statistics(), "blob-metadata": [theta(1), theta(99)]}])
    )


@breaks("deletion-vector-unreadable", deep=True)
def _(table: Sound) -> None:
    def flip(folder: Path) -> None:
        path = folder / "data/dv.puffin"
        data = bytearray(path.read_bytes())
        data[table.deletes[0]["content_offset"] + 20] ^= 1
        path.write_bytes(data)

    table.files.append(flip)


@breaks("deletion-vector-cardinality-differs", deep=True)
def _(table: Sound) -> None:
    data, places = puffin({table.path("a"): {0}})
    data = data.replace(b'"cardinality": "1"', b'"cardinality": "2"')
    table.puffin("lies", data, [(*place, 2) for *place, _ in places])


@breaks("deletion-vector-position-too-high", deep=True)
def _(table: Sound) -> None:
    table.vectors("far", {"a": {3}})


@breaks("record-count-differs", deep=True)
def _(table: Sound) -> None:
    table.data[1]["record_count"] = 3


@breaks("statistics-file-unreadable", deep=True)
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[table.statistics()]))
    table.files.append(lambda folder: scrambled(folder / "metadata/2.stats"))


# -- the tests ---------------------------------------------------------------------------------------------------


def check(table: str | Path, *arguments: object) -> Ran:
    """`inspect TABLE --check ... --format json`, whose exit code fits what it found."""
    ran = run("inspect", table, "--check", *arguments, "--format", "json")
    unseen = any(row["id"] == "file-not-looked-at" for row in ran.json["findings"])
    assert ran.code == (16 if unseen else 15 if ran.json["counts"]["error"] else 0), ran.out + ran.err
    return ran


def found(ran: Ran) -> list[str]:
    return [finding["id"] for finding in ran.json["findings"]]


@pytest.mark.parametrize("rule", RULES)
def test_a_table_that_breaks_one_rule_breaks_no_other(rule: str, tmp_path: Path) -> None:
    case = CASES[rule]
    table = Sound(folder=tmp_path / "t", version=case.version)
    case.change(table)
    ran = check(table.write(), *(["--deep"] if case.deep else []))
    assert set(found(ran)) == {rule}
    assert {finding["severity"] for finding in ran.json["findings"]} == {RULES[rule].severity}
    assert ran.code == (16 if rule == "file-not-looked-at" else 15 if RULES[rule].severity == "error" else 0)


def test_there_is_a_table_for_every_rule_and_a_rule_for_every_table() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_sound_table_breaks_no_rule(version: int, tmp_path: Path) -> None:
    ran = check(Sound(folder=tmp_path / "t", version=version).write(), "--deep")
    assert ran.json["findings"] == []
    assert ran.json["checked"] == {
        "snapshots": 1,
        "manifests": 1 if version == 1 else 2,
        "files": 2 if version == 1 else 3,
    }


@pytest.mark.parametrize(
    ("spec", "value"), [(BY_K, "x"), (BY_BUCKET, 3), (BY_BUCKET, None)], ids=["k", "bucket", "null"]
)
def test_a_sound_partitioned_table_breaks_no_rule(spec: dict[str, Any], value: Any, tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    by_k(table, spec, value)
    assert check(table.write(), "--deep").json["findings"] == []


def a_puffin(*blobs: dict[str, Any]) -> bytes:
    """A Puffin file whose blobs are four bytes each; written by hand from the specification."""
    rows = [{"offset": 4 + 4 * place, "length": 4, **blob} for place, blob in enumerate(blobs)]
    payload = json.dumps({"blobs": rows}).encode()
    parts = [
        b"PFA1",
        b"blob" * len(rows),
        b"PFA1",
        payload,
        struct.pack("<i", len(payload)),
        bytes(4),
        b"PFA1",
    ]
    return b"".join(parts)


def messages(ran: Ran, rule: str) -> list[str]:
    return [finding["message"] for finding in ran.json["findings"] if finding["id"] == rule]


@pytest.mark.parametrize(
    ("blobs", "stated"),
    [
        ((theta(1), theta(2)), []),
        ((theta(1), theta(1)), ["blob 1 (apache-datasketches-theta-v1 of 1) is there twice"]),
        ((theta(1), theta(1, snapshot_id=9)), []),
        ((theta(1), theta(1, 99)), ["blob 1 is of field 99, which no schema of the table has"]),
        ((theta(2147483645),), []),
    ],
)
def test_blobs_of_statistics_are_once_and_of_columns(
    blobs: tuple[dict[str, Any], ...], stated: list[str], tmp_path: Path
) -> None:
    """In metadata it shows without --deep, in the file itself with it."""
    table = Sound(folder=tmp_path / "in metadata")
    table.documents.append(
        lambda d: d.update(statistics=[{**table.statistics(), "blob-metadata": list(blobs)}])
    )
    assert messages(check(table.write()), "puffin-blob-unfit") == stated
    other = Sound(folder=tmp_path / "in the file")
    path = other.put("metadata/2.stats", a_puffin(*blobs))
    entry = {
        "snapshot-id": SNAPSHOT_ID, "statistics-path": path, "blob-metadata": [],
        "file-size-in-bytes": Path(path).stat().st_size,
        "file-footer-size-in-bytes": Path(path).stat().st_size - 4 - 4 * len(blobs),
    }  # fmt: skip
    other.documents.append(lambda d: d.update(statistics=[entry]))
    location = other.write()
    assert found(check(location)) == []
    assert messages(check(location, "--deep"), "puffin-blob-unfit") == stated


def test_blobs_of_deletion_vectors_are_once_and_of_columns(tmp_path: Path) -> None:
    changes = {
        "of a column": (b"[2147483645]", b"[77]        ", "blob 0 is of field 77, which no schema of the table has"),
        "once": (b"b.parquet", b"a.parquet", "blob 1 (deletion-vector-v1 of {a}) is there twice"),
    }  # fmt: skip
    for name, (old, new, stated) in changes.items():
        table = Sound(folder=tmp_path / name)
        data, places = puffin({table.path("a"): {0}, table.path("b"): {1}})
        table.puffin("odd", data.replace(old, new, 1), places[:1])
        ran = check(table.write(), "--deep")
        assert messages(ran, "puffin-blob-unfit") == [stated.format(a=table.path("a"))]


@pytest.mark.parametrize(
    ("transform", "name", "source", "clashes"),
    [
        ("identity", "k", 2, False),
        ("bucket[4]", "k", 2, False),
        ("identity", "n", 2, True),
        ("void", "n", 2, True),
        ("identity", "elsewhere", 2, False),
    ],
)
def test_a_partition_field_may_be_named_as_its_own_column_only(
    transform: str, name: str, source: int, clashes: bool, tmp_path: Path
) -> None:
    """The Java library refuses to load the others: "sourced from different field in schema"."""
    table = Sound(folder=tmp_path / "t")
    table.documents.append(specs(partition_field(transform, source, name)))
    assert found(check(table.write())) == ["partition-name-clashes"] * clashes


def test_partition_statistics_of_a_snapshot_that_is_gone_are_found(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    path = table.put("metadata/p.parquet", b"ten bytes.")
    gone = {"snapshot-id": 77, "statistics-path": path, "file-size-in-bytes": 10}
    table.documents.append(lambda d: d.update({"partition-statistics": [gone]}))
    location = table.write()
    assert found(check(location)) == found(check(location, "--deep")) == ["statistics-without-snapshot"]


def test_what_pyarrow_cannot_open_is_not_called_broken(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    CASES["parquet-cannot-be-read-here"].change(table)
    (finding,) = check(table.write(), "--deep").json["findings"]
    assert finding["severity"] == "warning"
    assert finding["message"].startswith("it cannot be read here, pyarrow says: ")
    assert "thrift" in finding["message"].lower()


@pytest.mark.parametrize(
    ("columns", "stated"),
    [
        ({"file_path": ["x", None, None], "pos": [1, 2, 3]}, "2 of 3 rows have no file_path"),
        ({"file_path": ["x", "x", "x"], "pos": [None, 2, 3]}, "1 of 3 rows have no pos"),
        ({"path": ["x", "x", "x"], "pos": [1, 2, 3]}, "field file_path: no column has field id 2147483546"),
    ],
)
def test_position_deletes_that_say_not_what_they_delete_are_found(
    columns: dict[str, list[Any]], stated: str, tmp_path: Path
) -> None:
    table = Sound(folder=tmp_path / "t", version=2)
    path = tmp_path / "t/data/odd-deletes.parquet"
    pq.write_table(pa.table(columns), path)
    table.deletes = [table.entry(1, str(path), 3, path.stat().st_size)]
    location = table.write()
    assert found(check(location)) == []
    assert messages(check(location, "--deep"), "position-deletes-unfit") == [stated]


@needs_fixtures
def test_every_section_is_a_heading_of_the_specification() -> None:
    text = (FIXTURES.parent / "specs/iceberg-table-spec-v3.md").read_text(encoding="utf-8")
    headings = {title.lower() for title in re.findall(r"^#+ (?:Appendix .: )?(.+)$", text, re.MULTILINE)}
    assert {rule.section.lower() for rule in RULES.values()} <= headings


@pytest.mark.parametrize("name", ["added_files_count", "added_rows_count"])
def test_a_count_of_nothing_where_entries_are_is_wrong_too(name: str, tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    table.rows.append(lambda rows: rows[0].update({name: 0}))
    assert found(check(table.write())) == [f"manifest-{name.split('_')[1][:-1]}-counts-differ"]


def test_equality_deletes_without_partition_apply_to_every_partition(tmp_path: Path) -> None:
    table = DeleteTable(storage=open_storage(), location=str(tmp_path / "t"), format_version=2)
    table.data("x", 3, k="x")
    table.commit(1)
    table.equality("everywhere")
    table.equality("here", k="x")
    table.equality("elsewhere", k="y")
    table.commit(2)
    table.publish()
    dangling = [row for row in check(table.location).json["findings"] if row["id"] == "deletes-dangling"]
    assert [Path(row["where"]).name for row in dangling] == ["elsewhere-eq-deletes.parquet"]


def test_equality_deletes_do_not_apply_to_files_of_their_own_commit(tmp_path: Path) -> None:
    # Spec, "Scan Planning": strictly older for equality deletes, as old for position deletes.
    table = DeleteTable(storage=open_storage(), location=str(tmp_path / "t"), format_version=2)
    table.data("x", 3)
    table.equality("same")
    table.positions("same", {"x": [1]})
    table.commit(1)
    table.publish()
    dangling = [row for row in check(table.location).json["findings"] if row["id"] == "deletes-dangling"]
    assert [Path(row["where"]).name for row in dangling] == ["same-eq-deletes.parquet"]


def test_findings_of_several_processes_keep_the_first_examples_and_count_them_all() -> None:
    parts = [Findings(), Findings(), Findings()]
    for part, findings in enumerate(parts):
        for number in range(EXAMPLES - 5):
            findings.add("file-missing", f"{part}/{number}", "gone")
    whole = Findings()
    for findings in parts:
        whole.merge(findings)
    names = [f"{part}/{number}" for part in range(3) for number in range(EXAMPLES - 5)]
    result = CheckResult(rules=RULES, found=whole, deep=False, checked={})
    assert [finding.where for finding in result.findings()] == names[:EXAMPLES]
    assert result.left_out() == {"file-missing": len(names) - EXAMPLES}
    whole.add("file-missing", "one more", "gone")
    assert len(result.findings()) == EXAMPLES
    assert result.counts() == {"error": len(names) + 1, "warning": 0, "info": 0}


TOO_LONG = f"/{'x' * 300}/file"  # no system takes such a name, nor says whether it is there


def far_statistics(table: Sound) -> None:
    table.documents.append(
        lambda d: d.update(statistics=[{**table.statistics(), "statistics-path": TOO_LONG}])
    )


def far_vectors(table: Sound) -> None:
    table.deletes[0]["file_path"] = TOO_LONG


def far_manifest(table: Sound) -> None:
    table.rows.append(lambda rows: rows[1].update(manifest_path=TOO_LONG))


@pytest.mark.parametrize("far", [far_statistics, far_vectors, far_manifest])
@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_one_file_out_of_reach_is_named_and_all_others_are_checked(
    far: Break, deep: list[str], tmp_path: Path
) -> None:
    table = Sound(folder=tmp_path / "t")
    far(table)
    table.files.append(lambda folder: (folder / "data/b.parquet").unlink())
    ran = check(table.write(), *deep)
    assert {(finding["id"], finding["where"]) for finding in ran.json["findings"]} == {
        ("file-not-looked-at", TOO_LONG),
        ("file-missing", f"{tmp_path}/t/data/b.parquet"),
    }
    assert ran.code == 16
    assert "did not answer: 1 file; all others were" in ran.err


def test_a_list_out_of_reach_leaves_the_metadata_to_be_checked(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    table.documents.append(current(manifest_list=TOO_LONG))
    far_statistics(table)
    ran = check(table.write())
    assert found(ran) == ["file-not-looked-at"] * 2
    assert ran.code == 16

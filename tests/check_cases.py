"""For every rule of `inspect --check` a change of a sound Iceberg table that breaks it, and no other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.storage.local import LocalStorage
from tests.check_tables import CASES, SNAPSHOT_ID, TIME_MS, Break, Case, Sound, a_snapshot_document
from tests.cli.running import Ran
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import BY_K, SCHEMA, puffin
from tests.iceberg.check.compaction_tables import CompactedTable

MINUTE_MS = 60_000
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


def in_metadata(rule: str, *changes: Callable[[dict[str, Any]], object], version: int = 3) -> None:
    """A rule that changes of the metadata break."""
    breaks(rule, version=version)(lambda table: table.documents.extend(changes))


def in_statistics(rule: str, *snapshot_ids: int, **values: Any) -> None:
    """A rule that statistics files of these snapshots break, of which the metadata says other values."""
    stated = {name.replace("_", "-"): value for name, value in values.items()}

    def change(table: Sound) -> None:
        entries = [{**table.statistics(each), **stated} for each in snapshot_ids]
        table.documents.append(lambda document: document.update(statistics=entries))

    breaks(rule)(change)


def in_data(rule: str, *, deep: bool = False, **values: Any) -> None:
    """A rule that other values in the entry of data file `b` break."""
    breaks(rule, deep=deep)(lambda table: table.data[1].update(values))


def in_deletes(rule: str, *, version: int = 3, **values: Any) -> None:
    """A rule that other values in the only entry of deletes break."""
    breaks(rule, version=version)(lambda table: table.deletes[0].update(values))


def in_vectors(rule: str, vectors: dict[str, set[int]], *, deep: bool = False) -> None:
    """A rule that these deletion vectors break, in place of the one of `a`."""
    breaks(rule, deep=deep)(lambda table: table.vectors("other", vectors))


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


def sort_order(order_id: int, *, source: int) -> dict[str, Any]:
    by = {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-first"}
    return {"order-id": order_id, "fields": [by]}


def columns(*more: dict[str, Any], last: int = 9, **others: Any) -> Callable[[dict[str, Any]], None]:
    """A new schema with further columns."""

    def change(document: dict[str, Any]) -> None:
        schema = {**SCHEMA, "schema-id": 1, "fields": [*SCHEMA["fields"], *more], **others}
        document.update({"schemas": [SCHEMA, schema], "current-schema-id": 1, "last-column-id": last})

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


in_metadata(
    "partition-field-id-above-last", specs(partition_field()), lambda d: d.update({"last-partition-id": 999})
)
in_metadata(
    "partition-field-repeated",
    specs(partition_field()),
    lambda d: d["partition-specs"][1]["fields"].append(partition_field(name="k again")),
)
in_metadata(
    "sort-source-missing",
    lambda d: d["sort-orders"].append(sort_order(1, source=9)),
    lambda d: d.update({"default-sort-order-id": 1}),
)
in_metadata("sort-order-zero-with-fields", lambda d: d.update({"sort-orders": [sort_order(0, source=1)]}))
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


in_metadata(
    "snapshot-not-newer-than-parent",
    lambda d: older(d, sequence_number=3),
    lambda d: d.update({"last-sequence-number": 3}),
    current(parent_snapshot_id=1),
)
in_metadata(
    "snapshot-earlier-than-parent",
    lambda d: older(d, timestamp_ms=TIME_MS + 2 * MINUTE_MS),
    current(parent_snapshot_id=1),
)
in_metadata(
    "parent-cycle",
    lambda d: older(d, parent_snapshot_id=SNAPSHOT_ID),
    current(parent_snapshot_id=1),
    lambda d: [snapshot.pop("sequence-number", None) for snapshot in d["snapshots"]],
    version=1,
)
in_metadata("snapshot-row-ids-missing", older, current(first_row_id=None, added_rows=None))
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
in_metadata("snapshot-log-end", older, lambda d: d.update({"snapshot-log": log_of((0, SNAPSHOT_ID), (1, 1))}))
in_statistics("statistics-without-snapshot", 77)
in_statistics("statistics-repeated", SNAPSHOT_ID, SNAPSHOT_ID)


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


in_row("manifest-first-row-id-missing", 0, first_row_id=None)
in_metadata("manifest-first-row-id-too-low", current(first_row_id=5), lambda d: d.update({"next-row-id": 10}))


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


@breaks("manifest-schema-contradicts")
def _(table: Sound) -> None:
    more = {"id": 3, "name": "z", "required": False, "type": "long"}
    table.documents.append(lambda d: d["schemas"][0].update(fields=[*d["schemas"][0]["fields"], more]))
    table.documents.append(lambda d: d.update({"last-column-id": 3}))


@breaks("manifest-spec-contradicts")
def _(table: Sound) -> None:
    by_k(table, BY_BUCKET, 3)
    wider = {**BY_BUCKET["fields"][0], "transform": "bucket[8]"}
    table.documents.append(lambda d: d["partition-specs"].__setitem__(1, {**BY_BUCKET, "fields": [wider]}))


in_data("entry-sequence-number-wrong", sequence_number=2, file_sequence_number=1)
in_data("file-format-unfit", file_format="CSV")


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


in_deletes("deletion-vector-incomplete", content_size_in_bytes=None)


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


in_deletes("deletion-vector-out-of-scope", sequence_number=1, file_sequence_number=2)
in_deletes("deletion-vector-too-large", record_count=4)
breaks("deletion-vector-spelling")(
    lambda table: table.deletes[0].update(referenced_data_file=f"file://{table.path('a')}")
)
in_vectors("deletion-vector-dangling", {"gone": {0}})
in_deletes("deletes-dangling", version=2, sequence_number=1, file_sequence_number=2)
in_vectors("every-row-deleted", {"b": {0, 1}})
in_data("row-ids-overlap", first_row_id=2)
in_data("row-id-negative", first_row_id=-2)
in_data("row-ids-above-next", first_row_id=4)
in_metadata("total-differs", lambda d: d["snapshots"][0]["summary"].update({"total-records": "6"}))
in_file("file-missing", "data/b.parquet", Path.unlink)
in_file("file-size-differs", "data/b.parquet", lambda path: path.write_bytes(path.read_bytes() + b"!"))


in_data("file-out-of-reach", file_path="gopher://host/b.parquet")
in_data("file-not-looked-at", file_path=f"/{'x' * 300}/b.parquet")  # no system takes such a name


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


in_statistics("statistics-file-size-differs", SNAPSHOT_ID, file_size_in_bytes=7)


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


in_statistics("puffin-blob-unfit", SNAPSHOT_ID, blob_metadata=[theta(1), theta(99)])


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


in_vectors("deletion-vector-position-too-high", {"a": {3}}, deep=True)
in_data("record-count-differs", deep=True, record_count=3)


@breaks("statistics-file-unreadable", deep=True)
def _(table: Sound) -> None:
    table.documents.append(lambda d: d.update(statistics=[table.statistics()]))
    table.files.append(lambda folder: scrambled(folder / "metadata/2.stats"))


# -- compactions -------------------------------------------------------------------------------------------------


def in_compaction(rule: str, rows: list[int], *, version: int = 3, **values: Any) -> None:
    """A rule that a compaction of 1, 2 and 3, with ids 0 to 2, breaks, which writes these rows instead."""

    def change(table: Sound) -> None:
        table.files.append(lambda folder: another_table(folder, rows, version, values))

    breaks(rule, version=version)(change)


def another_table(folder: Path, rows: list[int], version: int, values: dict[str, Any]) -> None:
    """A table in the place of one that is there; `late` is a delete that its writer commits too late."""
    shutil.rmtree(folder)
    columns = {**values}
    late, says = columns.pop("late", False), columns.pop("says", {})
    table = CompactedTable(storage=LocalStorage(), location=str(folder), format_version=version)
    table.numbers("a", [1, 2, 3])
    table.commit(1)
    table.remove("a")
    table.numbers("o", rows, sequence_number=1, **columns)
    table.compact(2, **says)
    if late:
        table.vectors("late", {"a": {0}})
        table.commit(3)
    table.publish()


in_compaction("compaction-rows-came-back", [1, 2, 3, 3], version=2)
in_compaction("compaction-rows-missing", [1, 3], version=2)
in_compaction("compaction-row-ids-lost", [1, 2, 3])
in_compaction("delete-lost", [1, 2, 3], ids=[0, 1, 2], late=True)
in_compaction("compaction-summary-differs", [1, 2, 3], version=2, says={"deleted-records": "4"})


# -- the tests ---------------------------------------------------------------------------------------------------


def check(table: str | Path, *arguments: object) -> Ran:
    """`inspect TABLE --check ... --format json`, whose exit code fits what it found."""
    ran = run("inspect", table, "--check", *arguments, "--format", "json")
    unseen = any(row["id"] == "file-not-looked-at" for row in ran.json["findings"])
    assert ran.code == (16 if unseen else 15 if ran.json["counts"]["error"] else 0), ran.out + ran.err
    return ran


def found(ran: Ran) -> list[str]:
    return [finding["id"] for finding in ran.json["findings"]]

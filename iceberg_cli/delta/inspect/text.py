"""Inspections of Delta tables as text: the columns of rows, and the parts of a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from iceberg_cli.plan.inspection import (
    FINDING,
    ID,
    NAME,
    NUMBER,
    PATH,
    SIZE,
    TEXT,
    TIME,
    TOTAL_COLUMNS,
    Column,
    Facts,
    Grid,
    Lines,
    Part,
    Row,
    due_parts,
    other_than,
    partition_text,
    total,
    verdict,
)
from iceberg_cli.plan.text import age, ago, count, moment, size


def text_of(what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
    """The columns of a kind of rows, and the rows that are shown: of a schema one for each field."""
    if what == "schemas":
        rows = [
            field | {"partition": field["name"] in row["partitionColumns"]}
            for row in rows
            for field in row["fields"]
        ]
    if not rows:
        return (Column("nothing", ""),), ()
    # The actions without columns here are shown as they are, and may have fields that the protocol does not name.
    return _COLUMNS.get(what) or [Column(name, partial(_joined, name)) for name in rows[0]], rows


def _joined(name: str, row: Row) -> object:
    value = row[name]
    return ", ".join(value) if isinstance(value, list) else value


def _vector(name: str) -> Callable[[Row], object]:
    return lambda row: None if row["deletionVector"] is None else row["deletionVector"][name]


def _flag(key: str, yes: str = "yes", no: str = "") -> Callable[[Row], str]:
    return lambda row: yes if row[key] else no


def _known(key: str) -> Callable[[Row], object]:
    return lambda row: "?" if row[key] is None else row[key]


def _brief(key: str) -> Callable[[Row], str]:
    return lambda row: json.dumps(row[key]) if row.get(key) else ""


def _partition(key: str) -> Callable[[Row], str]:
    return lambda row: partition_text(row[key])


def _type(field: Row) -> str:
    return field["type"] if isinstance(field.get("type"), str) else _brief("type")(field)


_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "history": (
        Column("version", "version", ID),
        Column("time", "timestamp_ms", TIME),
        Column("operation", "operation", ID),
        Column("added", "add_count", NUMBER),
        Column("removed", "remove_count", NUMBER),
        Column("by", lambda row: row["engineInfo"] or row["userName"], leaves=1),
        Column("parameters", _brief("operationParameters"), seldom=True),
        Column("metrics", _brief("operationMetrics"), seldom=True),
    ),
    "schemas": (
        Column("field", "name"),
        Column("type", _type),
        Column("", lambda field: "" if field.get("nullable", True) else "required"),
        Column("partition", _flag("partition")),
        Column("metadata", _brief("metadata")),
    ),
    "features": (
        Column("feature", "name", ID),
        Column("readers", _flag("reader")),
        Column("writers", _flag("writer")),
        Column("enabled", lambda row: "" if row["enabled"] is None else "yes" if row["enabled"] else "no"),
        Column(
            "from",
            lambda row: "the protocol's list" if row["source"] == "listed" else "the protocol's version",
        ),
        Column("", _flag("known", "", "not known here")),
    ),
    "files": (
        Column("partition", _partition("partitionValues"), NAME),
        Column("size", "size", SIZE),
        Column("modified", "modificationTime", TIME),
        Column("deleted", _vector("cardinality"), NUMBER),
        Column("base row id", "baseRowId", ID),
        Column("stats", "stats", seldom=True),
        Column("path", "path", PATH, leaves=1),
    ),
    "deletes": (
        Column("kind", _vector("storageType")),
        Column("offset", _vector("offset"), NUMBER),
        Column("size", _vector("sizeInBytes"), SIZE),
        Column("deleted", _vector("cardinality"), NUMBER),
        Column("of rows", "numRecords", NUMBER),
        Column("data file", "path", PATH, leaves=1),
        Column("file", lambda row: row["absolutePath"] or "in the log", PATH, leaves=2),
    ),
    "partitions": (
        Column("partition", _partition("partition"), NAME),
        Column("files", "file_count", NUMBER),
        Column("size", "size", SIZE),
        Column("records", _known("numRecords"), NUMBER),
        Column("DVs", "dv_count", NUMBER),
        Column("deleted", "deleted_record_count", NUMBER),
    ),
    "row-ids": (
        Column("base row id", "baseRowId", ID),
        Column("records", _known("numRecords"), NUMBER),
        Column("default row commit version", "defaultRowCommitVersion", ID),
        Column("path", "path", PATH, leaves=1),
    ),
}


# -- summary ---------------------------------------------------------------------------------------------------


def summary_text(document: Row) -> Iterator[Part]:
    """The parts of a version's summary, on one screen: what is due, its shape, its log, its names."""
    findings = _findings(document)
    yield verdict(document, findings, read="the log")
    yield Lines(findings, FINDING)
    yield from due_parts(document, plan_shows="looks at files too, and at the other verbs")
    yield _totals(document["totals"])
    yield Lines(_shape(document))
    yield Lines(_history(document))
    yield _names(document)


def _totals(totals: Row) -> Grid:
    unknown = totals["files_without_record_count"]
    stated = f"{count(unknown, 'files')} without a record count" if unknown else ""
    average = totals["average_size_bytes"]
    note = stated or ("" if average is None else f"{size(average)} on average")
    records = "?" if totals["records"] is None else totals["records"]
    rows = [total("data files", totals["data_files"], totals["data_bytes"], records, note)]
    if totals["deletion_vectors"]:
        inline = totals["inline_deletion_vectors"]
        inside = f", {inline:,} in the log" if inline else ""
        dead = totals["dead_deletion_vector_bytes"]
        lost = "" if not dead else f", {size(dead)} of them in no use"
        files = f"in {count(totals['deletion_vector_files'], 'files')} of "
        files += f"{size(totals['deletion_vector_file_bytes'])}{lost}{inside}"
        rows.append(
            total(
                "deletion vectors", totals["deletion_vectors"], totals["deletion_vector_bytes"], None, files
            )
        )
        rows.append(total("deleted rows", None, None, totals["deleted_records"], ""))
    rows.append(total("tombstones", totals["tombstones"], "", None, ""))
    return Grid(TOTAL_COLUMNS, rows)


def _shape(document: Row) -> list[str]:
    lines = []
    if document["partition_columns"]:
        lines.append(f"Partitioned by {', '.join(document['partition_columns'])}.")
    tracking = document["row_tracking"]
    if tracking["supported"]:
        without = tracking["files_without_base_row_id"]
        state = "enabled" if tracking["enabled"] else "supported, not enabled"
        mark = tracking["high_water_mark"]
        ids = f"{count(without, 'files')} without row ids" if without else "every file has row ids"
        lines.append(f"Row tracking: {state}, {ids}; the last is {'none' if mark is None else mark}.")
    return lines


def _history(document: Row) -> list[str]:
    log = document["log"]
    newest = "" if document["version"] == log["latest_version"] else ", not the newest"
    operation = document["operation"] or "operation not said"
    lines = [f"Version {document['version']}{newest}: {operation}, {ago(document['age_ms'])}."]
    oldest = "" if log["oldest_commit"] is None else f" from version {log['oldest_commit']} on"
    lines.append(f"Log: {count(log['commits'], 'commits')}{oldest}, {size(log['commit_bytes'])}.")
    checkpoint = log["newest_checkpoint"]
    if checkpoint is None:
        lines.append("No checkpoint.")
    else:
        since = log["commits_since_checkpoint"]
        lines.append(
            f"Checkpoint {checkpoint['version']}: {checkpoint['kind']}, {count(checkpoint['files'], 'files')}, "
            f"{size(checkpoint['bytes'])}; {count(since, 'commits')} since."
        )
    if log["compactions"]:
        lines.append(f"{count(log['compactions'], 'log compactions')}.")
    for name, stated in document["retention"].items():
        length = stated["problem"] if stated["value_ms"] is None else age(stated["value_ms"])
        lines.append(f"{name.replace('_', ' ').capitalize()}: {length}, by {stated['source']}.")
    return lines


def _names(document: Row) -> Facts:
    protocol = document["protocol"]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    versions = f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}"
    return Facts(
        [
            ("table", f"{document['table']['name']}, Delta", TEXT),
            ("location", other_than(document["location"], document["table"]["name"]), PATH),
            ("name", document["name"], TEXT),
            ("id", document["table_uuid"], ID),
            ("protocol", versions, TEXT),
            ("features", ", ".join(features), TEXT),
            ("committed", moment(document["timestamp_ms"]), ID),
        ],
        seldom=("id", "committed"),
    )


def _findings(document: Row) -> list[str]:
    lines = []
    log = document["log"]
    if log["last_checkpoint"]["problem"]:
        lines.append(f"_last_checkpoint: {log['last_checkpoint']['problem']}")
    if log["incomplete_checkpoint_files"]:
        lines.append(f"{count(log['incomplete_checkpoint_files'], 'files')} of incomplete checkpoints")
    return lines

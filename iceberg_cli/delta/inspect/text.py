"""Inspections of Delta tables as text: the columns of rows, and the parts of a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from iceberg_cli.plan.inspection import (
    FINDING,
    NUMBER,
    PATH,
    SIZE,
    TIME,
    Column,
    Grid,
    Lines,
    Row,
    due_lines,
    partition_text,
)
from iceberg_cli.plan.text import age, ago, count, moment, number, size


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
    return _COLUMNS.get(what) or [Column(name, partial(_listed, name)) for name in rows[0]], rows


def _listed(name: str, row: Row) -> object:
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
        Column("version", "version"),
        Column("time", "timestamp_ms", TIME),
        Column("operation", "operation"),
        Column("added", "add_count", NUMBER),
        Column("removed", "remove_count", NUMBER),
        Column("by", lambda row: row["engineInfo"] or row["userName"]),
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
        Column("feature", "name"),
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
        Column("partition", _partition("partitionValues")),
        Column("size", "size", SIZE),
        Column("modified", "modificationTime", TIME),
        Column("deleted", _vector("cardinality"), NUMBER),
        Column("base row id", "baseRowId"),
        Column("stats", "stats", seldom=True),
        Column("path", "path"),
    ),
    "deletes": (
        Column("kind", _vector("storageType")),
        Column("offset", _vector("offset"), NUMBER),
        Column("bytes", _vector("sizeInBytes"), NUMBER),
        Column("deleted", _vector("cardinality"), NUMBER),
        Column("of rows", "numRecords"),
        Column("data file", "path"),
        Column("file", lambda row: row["absolutePath"] or "in the log", PATH),
    ),
    "partitions": (
        Column("partition", _partition("partition")),
        Column("files", "file_count", NUMBER),
        Column("size", "size", SIZE),
        Column("records", _known("numRecords"), NUMBER),
        Column("DVs", "dv_count", NUMBER),
        Column("deleted", "deleted_record_count", NUMBER),
    ),
    "row-ids": (
        Column("base row id", "baseRowId"),
        Column("records", _known("numRecords"), NUMBER),
        Column("default row commit version", "defaultRowCommitVersion"),
        Column("path", "path"),
    ),
}


# -- summary ---------------------------------------------------------------------------------------------------


def summary_text(document: Row) -> Iterator[Lines | Grid]:
    """The parts of the summary of a version, on one screen."""
    yield Lines(_identity(document))
    yield _totals(document["totals"])
    yield Lines([*_log(document["log"]), *_kept(document)])
    yield Lines(_findings(document), FINDING)
    yield due_lines(
        document, lambda item: item["reason"], plan_shows="looks at files too, and shows the other verbs"
    )


def _identity(document: Row) -> list[str]:
    protocol = document["protocol"]
    versions = f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}"
    called = f", named {document['name']}" if document["name"] else ""
    of = "" if document["version"] == document["log"]["latest_version"] else ", not the newest"
    operation = document["operation"] or "operation not said"
    when = f"{moment(document['timestamp_ms'])} ({ago(document['age_ms'])})"
    lines = [
        f"{document['table']}: Delta, {versions}, at {document['location']}",
        f"  id {document['table_uuid']}{called}",
        f"  version {document['version']}{of}: {operation}, {when}",
    ]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    if features:
        lines.append(f"  table features: {', '.join(features)}")
    if document["partition_columns"]:
        lines.append(f"  partitioned by {', '.join(document['partition_columns'])}")
    return lines


def _totals(totals: Row) -> Grid:
    unknown = totals["files_without_record_count"]
    stated = f"{count(unknown, 'files')} without a record count" if unknown else ""
    average = totals["average_size_bytes"]
    note = stated or ("" if average is None else f"{size(average)} on average")
    data = (f"{totals['data_files']:,}", size(totals["data_bytes"]), number(totals["records"]))
    rows: list[tuple[object, ...]] = [("data files", *data, note)]
    if totals["deletion_vectors"]:
        inline = totals["inline_deletion_vectors"]
        inside = f", {inline:,} in the log" if inline else ""
        dead = totals["dead_deletion_vector_bytes"]
        lost = "" if not dead else f", {size(dead)} of them in no use"
        files = f"in {count(totals['deletion_vector_files'], 'files')} of "
        files += f"{size(totals['deletion_vector_file_bytes'])}{lost}{inside}"
        bytes_, deleted = size(totals["deletion_vector_bytes"]), totals["deleted_records"]
        rows.append(("deletion vectors", f"{totals['deletion_vectors']:,}", bytes_, "", files))
        rows.append(("deleted rows", "", "", f"{deleted:,}", ""))
    rows.append(("tombstones", f"{totals['tombstones']:,}", "", "", ""))
    return Grid(("what", "count", "bytes", "rows", ""), rows, right=("count", "bytes", "rows"))


def _log(log: Row) -> list[str]:
    oldest = "" if log["oldest_commit"] is None else f" from version {log['oldest_commit']} on"
    lines = [f"  log: {count(log['commits'], 'commits')}{oldest}, {size(log['commit_bytes'])}"]
    newest = log["newest_checkpoint"]
    if newest is None:
        lines.append("  no checkpoint")
    else:
        since = log["commits_since_checkpoint"]
        lines.append(
            f"  checkpoint {newest['version']} ({newest['kind']}, {count(newest['files'], 'files')}, "
            f"{size(newest['bytes'])}), {count(since, 'commits')} since"
        )
    if log["compactions"]:
        lines.append(f"  {count(log['compactions'], 'log compactions')}")
    return lines


def _kept(document: Row) -> list[str]:
    lines = []
    for name, stated in document["retention"].items():
        length = stated["problem"] if stated["value_ms"] is None else age(stated["value_ms"])
        lines.append(f"  {name.replace('_', ' ')}: {length} ({stated['source']})")
    tracking = document["row_tracking"]
    if tracking["supported"]:
        without = tracking["files_without_base_row_id"]
        state = "enabled" if tracking["enabled"] else "supported, not enabled"
        mark = tracking["high_water_mark"]
        ids = f"{count(without, 'files')} without row ids" if without else "every file has row ids"
        lines.append(f"  row tracking: {state}, last row id {'none' if mark is None else mark}, {ids}")
    return lines


def _findings(document: Row) -> list[str]:
    lines = []
    if document["read_only"]:
        lines.append(f"  read-only, no verb writes or deletes: {document['read_only']}")
    log = document["log"]
    if log["last_checkpoint"]["problem"]:
        lines.append(f"  _last_checkpoint: {log['last_checkpoint']['problem']}")
    if log["incomplete_checkpoint_files"]:
        lines.append(f"  {count(log['incomplete_checkpoint_files'], 'files')} of incomplete checkpoints")
    return lines

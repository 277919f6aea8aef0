"""Inspections of Iceberg tables as text: the columns of rows, and the parts of a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
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

_CONTENTS: Final = {0: "data", 1: "position deletes", 2: "equality deletes"}
_SHOWN_LENGTH: Final = 60


def text_of(what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
    """The columns of a kind of rows, and the rows that are shown: of a schema one for each field."""
    return _COLUMNS[what], _fields(rows) if what == "schemas" else rows


def _fields(schemas: Sequence[Row]) -> list[Row]:
    """A row for each field; the schema is named on its first one."""
    lines: list[Row] = []
    for schema in schemas:
        named: Row = {"schema_id": schema["schema_id"], "is_current": schema["is_current"]}
        for field in schema["fields"]:
            lines.append({**named, **field})
            named = {"schema_id": "", "is_current": False}
    return lines


def _flag(key: str, text: str) -> Callable[[Row], str]:
    return lambda row: text if row[key] else ""


def _summary(key: str) -> Callable[[Row], object]:
    return lambda row: row["summary"].get(key, "")


def _assigned(row: Row) -> object:
    """The assigned rows of a manifest: unknown with existing files, for the list does not count those with own ids."""
    unknown = row["assigned_rows"] is None and row["first_row_id"] is not None
    return "unknown" if unknown else row["assigned_rows"]


def _type(field: Row) -> str:
    return str(field["type"] if isinstance(field["type"], str) else field["type"]["type"])


def _partition_fields(spec: Row) -> str:
    shown = []
    for field in spec["fields"]:
        pairs = zip(field["source_names"], field["source_ids"], strict=True)
        sources = ", ".join(str(name or field_id) for name, field_id in pairs)
        shown.append(f"{field['name']} = {field['transform']}({sources})")
    return ", ".join(shown) or "unpartitioned"


def _blobs(row: Row) -> str:
    return ", ".join(dict.fromkeys(blob["type"] for blob in row["blob_metadata"]))


def _files(status: str) -> Callable[[Row], object]:
    def text(row: Row) -> object:
        value = row[f"{status}_{'delete' if row['content'] else 'data'}_files_count"]
        return "?" if value is None else value

    return text


def _partition_summaries(row: Row) -> str:
    shown = []
    for item in row["partition_summaries"] or ():
        low, high = item["lower_bound"], item["upper_bound"]
        span = "null" if low is None else low if low == high else f"{low}..{high}"
        shown.append(f"{item['field'] or '?'} {span}")
    return ", ".join(shown)


def _kind(row: Row) -> str:
    if row["content"] == 1 and row["file_format"].lower() == "puffin":
        return "deletion vector"
    return _CONTENTS[row["content"]]


def _own_size(row: Row) -> object:
    own = row["content_size_in_bytes"]
    return row["file_size_in_bytes"] if own is None else own


def _partition(row: Row) -> str:
    return partition_text(row["partition"])


def _bounds(row: Row) -> str:
    low, high, names = row["lower_bounds"] or {}, row["upper_bounds"] or {}, row["columns"]
    return ", ".join(
        f"{names.get(key, key)} {_short(low.get(key))}..{_short(high.get(key))}" for key in {**low, **high}
    )


def _short(value: object) -> str:
    text = "?" if value is None else str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."


def retention(ref: Row) -> str:
    """The retention of a ref, as text: its own, and the table's where it has none."""
    if "retention" in ref:  # of several
        return str(ref["retention"])
    table = ref["table_defaults"] or {}

    def part(key: str, text: Callable[[int], str]) -> tuple[str, bool]:
        own, default = ref[key], table.get(key)
        value = default if own is None else own
        return ("" if value is None else text(value), own is None)

    parts = []
    if ref["type"] == "BRANCH":
        parts.append(part("max_snapshot_age_in_ms", age))
        parts.append(part("min_snapshots_to_keep", lambda number: f"at least {number:,}"))
    if ref["name"] != MAIN:
        parts.append(part("max_reference_age_in_ms", lambda age_ms: f"ref for {age(age_ms)}"))
    if ref["type"] == "TAG" and parts == [("", True)]:
        return "for ever (the table's default)" if table else ""
    stated = [each for each in parts if each[0]]
    if stated and all(is_default for _, is_default in stated):
        return ", ".join(text for text, _ in stated) + " (the table's default)"
    own = ", ".join(text for text, is_default in stated if not is_default)
    others = ", ".join(text for text, is_default in stated if is_default)
    return f"{own}; by default {others}" if others else own


_SHOWN_REFS: Final = 3  # of each type
_FILES: Final = (
    Column("content", _kind),
    Column("partition", _partition, NAME),
    Column("records", "record_count", NUMBER),
    Column("size", _own_size, SIZE),
)
_DELETES: Final = (
    Column("offset", "content_offset", NUMBER),
    Column("of data file", "referenced_data_file", PATH, leaves=2),
)
_FILE_ENDS: Final = (
    Column("spec", "spec_id", seldom=True),
    Column("first row id", "first_row_id", ID, seldom=True),
    Column("bounds", _bounds, seldom=True),
    Column("path", "file_path", PATH, leaves=3),
)
_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "snapshots": (
        Column("committed at", "committed_at_ms", TIME),
        Column("snapshot", "snapshot_id", ID),
        Column("parent", "parent_id", ID, leaves=2),
        Column("operation", "operation", ID),
        Column("added", _summary("added-data-files"), NUMBER),
        Column("deleted", _summary("deleted-data-files"), NUMBER),
        Column("files", _summary("total-data-files"), NUMBER),
        Column("records", _summary("total-records"), NUMBER),
        Column("manifest list", "manifest_list", PATH, leaves=1),
    ),
    "refs": (
        Column("ref", "name", NAME),
        Column("type", lambda row: row["type"].lower(), ID),
        Column("snapshot", "snapshot_id", ID),
        Column("retention", retention),
    ),
    "history": (
        Column("made current at", "made_current_at_ms", TIME),
        Column("snapshot", "snapshot_id", ID),
        Column("parent", "parent_id", ID, leaves=2),
        Column("ancestor of current", lambda row: "yes" if row["is_current_ancestor"] else "no"),
    ),
    "schemas": (
        Column("schema", "schema_id"),
        Column("", _flag("is_current", "current")),
        Column("id", "id"),
        Column("field", "name"),
        Column("type", _type),
        Column("", _flag("required", "required")),
        Column("comment", lambda row: row.get("doc") or ""),
    ),
    "specs": (
        Column("spec", "spec_id"),
        Column("", _flag("is_default", "default")),
        Column("fields", _partition_fields),
    ),
    "properties": (Column("key", "key", NAME), Column("value", "value")),
    "statistics": (
        Column("type", "type"),
        Column("snapshot", "snapshot_id", ID),
        Column("size", "file_size_in_bytes", SIZE),
        Column("blobs", _blobs),
        Column("path", "statistics_path", PATH, leaves=1),
    ),
    "metadata-log": (
        Column("time", "timestamp_ms", TIME),
        Column("snapshot", "latest_snapshot_id", ID),
        Column("schema", "latest_schema_id"),
        Column("file", "file", PATH, leaves=1),
    ),
    "row-ids": (
        Column("kind", "kind"),
        Column("snapshot", "snapshot_id", ID),
        Column("first row id", "first_row_id", ID),
        Column("assigned", _assigned, NUMBER),
        Column("path", "path", PATH, leaves=1),
    ),
    "manifests": (
        Column("content", lambda row: "deletes" if row["content"] else "data"),
        Column("added", _files("added"), NUMBER),
        Column("existing", _files("existing"), NUMBER),
        Column("deleted", _files("deleted"), NUMBER),
        Column("size", "length", SIZE),
        Column("spec", "partition_spec_id"),
        Column("partitions", _partition_summaries),
        Column("path", "path", PATH, leaves=1),
    ),
    "files": (*_FILES, *_FILE_ENDS),
    "deletes": (*_FILES, *_DELETES, *_FILE_ENDS),
    "partitions": (
        Column("partition", _partition, NAME),
        Column("spec", "spec_id", leaves=2),
        Column("files", "file_count", NUMBER),
        Column("records", "record_count", NUMBER),
        Column("size", "total_data_file_size_in_bytes", SIZE),
        Column("position deletes", "position_delete_record_count", leaves=1),
        Column("equality deletes", "equality_delete_record_count", leaves=1),
        Column("DVs", "dv_count", NUMBER, leaves=2),
        Column("last updated", "last_updated_at_ms", TIME, leaves=3),
    ),
}


# -- summary ---------------------------------------------------------------------------------------------------


def summary_text(document: Row) -> Iterator[Part]:
    """The parts of a table's summary, on one screen: what is due, its shape, its history, its names."""
    findings = _findings(document)

    yield verdict(document, findings, read="metadata")
    yield Lines(findings, FINDING)
    yield from due_parts(document, plan_shows="what goes, and the other verbs")
    yield _totals(document)
    yield Lines(_shape(document))
    yield Lines(_history(document))
    yield Grid(_COLUMNS["refs"], document["refs"], _brief_refs(document["refs"]))
    yield _names(document)


def _history(document: Row) -> list[str]:
    snapshot = document["snapshot"]
    if snapshot is None:
        return ["No snapshot: the table has no data."]
    is_current = snapshot["snapshot_id"] == document["current_snapshot_id"]
    operation = snapshot["operation"] or "operation not said"
    lines = [f"{'Current snapshot' if is_current else 'Snapshot'}: {operation}, {ago(snapshot['age_ms'])}."]
    oldest, newest = document["oldest_snapshot_ms"], document["newest_snapshot_ms"]
    snapshots = count(document["snapshot_count"], "snapshots")
    spread = f", {age(newest - oldest)} from the oldest to the newest" if newest > oldest else ""
    return [*lines, f"{snapshots}{spread}."]


def _names(document: Row) -> Facts:
    snapshot = document["snapshot"]
    return Facts(
        [
            ("table", f"{document['table']['name']}, Iceberg v{document['format_version']}", TEXT),
            ("location", other_than(document["location"], document["table"]["name"]), PATH),
            ("uuid", document["table_uuid"] or "none", ID),
            ("snapshot", None if snapshot is None else snapshot["snapshot_id"], ID),
            ("committed", None if snapshot is None else moment(snapshot["timestamp_ms"]), ID),
            ("metadata", document["metadata_location"], PATH),
        ],
        seldom=("uuid", "snapshot", "committed"),
    )


def _brief_refs(refs: Sequence[Row]) -> list[Row]:
    """Main, and where other branches or tags are many, a row with their number."""
    rows = [ref for ref in refs if ref["name"] == MAIN]
    for type_, noun in (("BRANCH", "branches"), ("TAG", "tags")):
        some = [ref for ref in refs if ref["type"] == type_ and ref["name"] != MAIN]
        if len(some) <= _SHOWN_REFS:
            rows += some
            continue
        retentions = {retention(ref) for ref in some}
        rows.append(
            {
                "name": count(len(some), noun),
                "type": type_,
                "snapshot_id": "",
                "retention": retentions.pop() if len(retentions) == 1 else "of several kinds",
            }
        )
    return rows


def _totals(document: Row) -> Grid:
    totals = document["totals"]
    position = totals["position_delete_files"]
    vectors, vector_bytes = totals["deletion_vectors"], totals["deletion_vector_bytes"]
    manifests = totals["data_manifests"] + totals["delete_manifests"]
    source = "" if document["recounted"] else ", ".join(sorted(set(document["sources"].values())))
    rows = [
        total(
            "data files",
            totals["data_files"],
            totals["data_bytes"],
            totals["records"],
            source and f"by the {source}",
        )
    ]
    if position or totals["equality_delete_files"]:
        equality, keys = totals["equality_delete_files"], totals["equality_delete_records"]
        kinds = f"{position:,} position, {equality:,} equality ({count(keys, 'keys')})"
        rows.append(
            total("delete files", position + equality, totals["delete_bytes"] - vector_bytes, None, kinds)
        )
    if vectors:
        puffins = f"in {count(totals['puffin_files'], 'Puffin files')}, {size(totals['puffin_bytes'])}"
        rows.append(total("deletion vectors", vectors, vector_bytes, None, puffins))
    if position or vectors:
        ratio = document["delete_ratio"]
        share = f"{ratio:.1%} of the rows" if ratio else ""
        rows.append(total("deleted positions", None, None, totals["deleted_records"], share))
    kinds = f"{totals['data_manifests']:,} of data files, {totals['delete_manifests']:,} of delete files"
    rows.append(total("manifests", manifests, totals["manifest_bytes"], None, kinds))
    return Grid(TOTAL_COLUMNS, rows)


def _shape(document: Row) -> list[str]:
    lines = []
    sizes, manifests, file = document["data_file_sizes"], document["manifests"], document["metadata_file"]
    if sizes["average_size_bytes"] is not None:
        small = sizes["small_files"]
        below = f"; {small:,} below {size(sizes['small_below_bytes'])}" if small is not None else ""
        average, target = size(sizes["average_size_bytes"]), size(sizes["target_size_bytes"])
        lines.append(f"Data files: {average} on average, of a target of {target}{below}.")
    if manifests["average_fill"] is not None:
        average, target = size(manifests["average_size_bytes"]), size(manifests["target_size_bytes"])
        lines.append(
            f"Manifests: {average} on average, {manifests['average_fill']:.1%} of a target of {target}."
        )
    statistics = document["statistics_files"] + document["partition_statistics_files"]
    counted = f", {count(statistics, 'statistics files')}" if statistics else ""
    lines.append(
        f"Metadata: {size(file['size_bytes'])}, {count(document['schema_count'], 'schemas')}, "
        f"{count(document['partition_spec_count'], 'partition specs')}{counted}; "
        f"{count(file['log_length'], 'earlier files')} of at most {file['previous_versions_max']:,}."
    )
    lineage = document["row_lineage"]
    if lineage is not None:
        without = lineage["data_manifests_without_first_row_id"]
        ids = (
            f"{count(without, 'data manifests')} without row ids"
            if without
            else "every data file has row ids"
        )
        lines.append(f"Row lineage: {ids}; the next is {lineage['next_row_id']}.")
    return lines


def _findings(document: Row) -> list[str]:
    lines = [
        f"{item['name'].replace('_', ' ')}: counted {item['counted']:,}, "
        f"the snapshot's summary says {item['summary']:,}"
        for item in document["disagreements"]
    ]
    lines += [f"ref {name} names a snapshot that is not in the table" for name in document["dangling_refs"]]
    return lines

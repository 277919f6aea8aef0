"""Inspections of Iceberg tables as text: the columns of rows, and the parts of a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The retention settings of a ref, as text."""
    stated = []
    if ref["min_snapshots_to_keep"] is not None:
        stated.append(f"at least {count(ref['min_snapshots_to_keep'], 'snapshots')}")
    if ref["max_snapshot_age_in_ms"] is not None:
        stated.append(f"snapshots for {age(ref['max_snapshot_age_in_ms'])}")
    if ref["max_reference_age_in_ms"] is not None:
        stated.append(f"ref for {age(ref['max_reference_age_in_ms'])}")
    return ", ".join(stated) or "as the table has it"


_FILES: Final = (
    Column("content", _kind),
    Column("partition", _partition),
    Column("records", "record_count", NUMBER),
    Column("size", _own_size, SIZE),
)
_DELETES: Final = (
    Column("offset", "content_offset", NUMBER),
    Column("of data file", "referenced_data_file", PATH),
)
_FILE_ENDS: Final = (
    Column("spec", "spec_id", seldom=True),
    Column("first row id", "first_row_id", seldom=True),
    Column("bounds", _bounds, seldom=True),
    Column("path", "file_path", PATH),
)
_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "snapshots": (
        Column("committed at", "committed_at_ms", TIME),
        Column("snapshot", "snapshot_id"),
        Column("parent", "parent_id"),
        Column("operation", "operation"),
        Column("added", _summary("added-data-files"), NUMBER),
        Column("deleted", _summary("deleted-data-files"), NUMBER),
        Column("files", _summary("total-data-files"), NUMBER),
        Column("records", _summary("total-records"), NUMBER),
        Column("manifest list", "manifest_list", PATH),
    ),
    "refs": (
        Column("ref", "name"),
        Column("type", lambda row: row["type"].lower()),
        Column("snapshot", "snapshot_id"),
        Column("retention", retention),
    ),
    "history": (
        Column("made current at", "made_current_at_ms", TIME),
        Column("snapshot", "snapshot_id"),
        Column("parent", "parent_id"),
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
    "properties": (Column("key", "key"), Column("value", "value")),
    "statistics": (
        Column("type", "type"),
        Column("snapshot", "snapshot_id"),
        Column("size", "file_size_in_bytes", SIZE),
        Column("blobs", _blobs),
        Column("path", "statistics_path", PATH),
    ),
    "metadata-log": (
        Column("time", "timestamp_ms", TIME),
        Column("snapshot", "latest_snapshot_id"),
        Column("schema", "latest_schema_id"),
        Column("file", "file", PATH),
    ),
    "row-ids": (
        Column("kind", "kind"),
        Column("snapshot", "snapshot_id"),
        Column("first row id", "first_row_id"),
        Column("assigned", _assigned, NUMBER),
        Column("path", "path", PATH),
    ),
    "manifests": (
        Column("content", lambda row: "deletes" if row["content"] else "data"),
        Column("added", _files("added"), NUMBER),
        Column("existing", _files("existing"), NUMBER),
        Column("deleted", _files("deleted"), NUMBER),
        Column("size", "length", SIZE),
        Column("spec", "partition_spec_id"),
        Column("partitions", _partition_summaries),
        Column("path", "path", PATH),
    ),
    "files": (*_FILES, *_FILE_ENDS),
    "deletes": (*_FILES, *_DELETES, *_FILE_ENDS),
    "partitions": (
        Column("partition", _partition),
        Column("spec", "spec_id"),
        Column("files", "file_count", NUMBER),
        Column("records", "record_count", NUMBER),
        Column("size", "total_data_file_size_in_bytes", SIZE),
        Column("position deletes", "position_delete_record_count"),
        Column("equality deletes", "equality_delete_record_count"),
        Column("DVs", "dv_count", NUMBER),
        Column("last updated", "last_updated_at_ms", TIME),
    ),
}


# -- summary ---------------------------------------------------------------------------------------------------


def summary_text(document: Row) -> Iterator[Lines | Grid]:
    """The parts of a table's summary, on one screen."""
    yield Lines(_identity(document))
    refs = document["refs"]
    if refs:
        rows = [(ref["name"], ref["type"].lower(), ref["snapshot_id"], retention(ref)) for ref in refs]
        yield Grid(("ref", "type", "snapshot", "retention"), rows)
    yield _totals(document)
    yield Lines(_details(document))
    yield Lines(_findings(document), FINDING)
    yield due_lines(
        document, _reason, none="no snapshot is due to expire", plan_shows="shows the other verbs"
    )


def _identity(document: Row) -> list[str]:
    uuid = "no uuid" if document["table_uuid"] is None else f"uuid {document['table_uuid']}"
    lines = [
        f"{document['table']['name']}: Iceberg v{document['format_version']} at {document['location']}",
        f"  {uuid}, metadata {document['metadata_location']}",
    ]
    snapshot = document["snapshot"]
    if snapshot is None:
        lines.append("  no snapshot: the table has no data")
    else:
        what = (
            "current snapshot" if snapshot["snapshot_id"] == document["current_snapshot_id"] else "snapshot"
        )
        when = f"{moment(snapshot['timestamp_ms'])} ({ago(snapshot['age_ms'])})"
        lines.append(
            f"  {what} {snapshot['snapshot_id']}: {snapshot['operation'] or 'operation not said'}, {when}"
        )
    oldest, newest = document["oldest_snapshot_ms"], document["newest_snapshot_ms"]
    if oldest is not None:
        span = f"{moment(oldest)} to {moment(newest)}, {age(newest - oldest)} apart"
        lines.append(f"  {count(document['snapshot_count'], 'snapshots')}: {span}")
    if document["read_only"]:
        lines.append(f"  read-only: {document['read_only']}")
    return lines


def _totals(document: Row) -> Grid:
    totals = document["totals"]
    position = totals["position_delete_files"]
    vectors, vector_bytes = totals["deletion_vectors"], totals["deletion_vector_bytes"]
    others = totals["delete_bytes"] - vector_bytes
    manifests = totals["data_manifests"] + totals["delete_manifests"]
    source = "" if document["recounted"] else ", ".join(sorted(set(document["sources"].values())))
    data = (number(totals["data_files"]), size(totals["data_bytes"]), number(totals["records"]))
    rows: list[tuple[object, ...]] = [("data files", *data, source)]
    if position or totals["equality_delete_files"]:
        files, records = position + totals["equality_delete_files"], totals["equality_delete_records"]
        kinds = f"{position:,} position, {totals['equality_delete_files']:,} equality ({records:,} keys)"
        rows.append(("delete files", number(files), size(others), "", kinds))
    if vectors:
        puffins = f"in {count(totals['puffin_files'], 'Puffin files')}, {size(totals['puffin_bytes'])}"
        rows.append(("deletion vectors", number(vectors), size(vector_bytes), "", puffins))
    if position or vectors:
        rows.append(("deleted positions", "", "", number(totals["deleted_records"]), ""))
    kinds = f"{totals['data_manifests']:,} data, {totals['delete_manifests']:,} deletes"
    rows.append(("manifests", number(manifests), size(totals["manifest_bytes"]), "", kinds))
    return Grid(("what", "count", "bytes", "rows", ""), rows, right=("count", "bytes", "rows"))


def _details(document: Row) -> list[str]:
    lines = []
    sizes, manifests, file = document["data_file_sizes"], document["manifests"], document["metadata_file"]
    if sizes["average_size_bytes"] is not None:
        small = sizes["small_files"]
        below = f"; {small:,} below {size(sizes['small_below_bytes'])}" if small is not None else ""
        average, target = size(sizes["average_size_bytes"]), size(sizes["target_size_bytes"])
        lines.append(f"  data files average {average} of a target of {target}{below}")
    if document["delete_ratio"]:
        lines.append(f"  deleted positions are {document['delete_ratio']:.1%} of the rows")
    if manifests["average_fill"] is not None:
        lines.append(
            f"  manifests average {size(manifests['average_size_bytes'])}, "
            f"{manifests['average_fill']:.1%} of a target of {size(manifests['target_size_bytes'])}"
        )
    lines.append(
        f"  metadata file {size(file['size_bytes'])}, {count(file['log_length'], 'earlier versions')} "
        f"in its log (at most {file['previous_versions_max']:,}); {count(document['schema_count'], 'schemas')}, "
        f"{count(document['partition_spec_count'], 'partition specs')}, "
        f"{count(document['statistics_files'] + document['partition_statistics_files'], 'statistics files')}"
    )
    lineage = document["row_lineage"]
    if lineage is not None:
        without = lineage["data_manifests_without_first_row_id"]
        ids = (
            f"{count(without, 'data manifests')} without row ids"
            if without
            else "every data file has row ids"
        )
        lines.append(f"  row lineage: next row id {lineage['next_row_id']}, {ids}")
    return lines


def _findings(document: Row) -> list[str]:
    lines = [
        f"  {item['name'].replace('_', ' ')}: counted {item['counted']:,}, "
        f"the snapshot's summary says {item['summary']:,}"
        for item in document["disagreements"]
    ]
    lines += [f"  ref {name} names a snapshot that is not in the table" for name in document["dangling_refs"]]
    return lines


def _reason(item: Row) -> str:
    refs = f" and {count(item['refs'], 'refs')}" if item["refs"] else ""
    return f"{count(item['snapshots'], 'snapshots')}{refs}"

"""Inspections of Iceberg tables as text. What comes from a table passes `printable`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import count, moment, printable, size, table_of
from iceberg_cli.plan.text import age

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
_Text = Callable[[Row, str], object]  # of a row, with the table's folder
_Columns = Sequence[tuple[str, _Text]]
_RIGHT = ("files", "rows", "records", "size", "added", "existing", "deleted", "offset", "assigned", "DVs")
_CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}
_SHOWN_LENGTH = 60
_RIGHT_IN_SUMMARY = ("count", "bytes", "rows")


def show_summary(target: Console, document: Row) -> None:
    """Print the summary of a table, on one screen."""
    for line in _identity(document):
        target.print(printable(line))
    _show_refs(target, document["refs"])
    _show_totals(target, document)
    for line in _details(document):
        target.print(printable(line))
    for line in _findings(document):
        target.print(printable(line), style="yellow")
    for line in _due(document):
        target.print(printable(line), style="bold")


def _identity(document: Row) -> list[str]:
    uuid = "no uuid" if document["table_uuid"] is None else f"uuid {document['table_uuid']}"
    lines = [
        f"{document['table']}: Iceberg v{document['format_version']} at {document['location']}",
        f"  {uuid}, metadata {document['metadata_location']}",
    ]
    snapshot = document["snapshot"]
    if snapshot is None:
        lines.append("  no snapshot: the table has no data")
    else:
        what = (
            "current snapshot" if snapshot["snapshot_id"] == document["current_snapshot_id"] else "snapshot"
        )
        when = f"{moment(snapshot['timestamp_ms'])} ({_ago(snapshot['age_ms'])})"
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


def _ago(age_ms: int) -> str:
    return f"{age(age_ms)} ago" if age_ms >= 0 else f"{age(-age_ms)} in the future"


def _show_refs(target: Console, refs: Sequence[Row]) -> None:
    rows = [(ref["name"], ref["type"].lower(), ref["snapshot_id"], retention(ref)) for ref in refs]
    if rows:
        table_of(target, ("ref", "type", "snapshot", "retention"), rows)


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


def _show_totals(target: Console, document: Row) -> None:
    totals = document["totals"]
    position = totals["position_delete_files"]
    vectors, vector_bytes = totals["deletion_vectors"], totals["deletion_vector_bytes"]
    others = totals["delete_bytes"] - vector_bytes
    manifests = totals["data_manifests"] + totals["delete_manifests"]
    source = "" if document["recounted"] else ", ".join(sorted(set(document["sources"].values())))
    rows: list[tuple[object, ...]] = [
        (
            "data files",
            _number(totals["data_files"]),
            size(totals["data_bytes"]),
            _number(totals["records"]),
            source,
        )
    ]
    if position or totals["equality_delete_files"]:
        files, records = position + totals["equality_delete_files"], totals["equality_delete_records"]
        kinds = f"{position:,} position, {totals['equality_delete_files']:,} equality ({records:,} keys)"
        rows.append(("delete files", _number(files), size(others), "", kinds))
    if vectors:
        puffins = f"in {count(totals['puffin_files'], 'Puffin files')}, {size(totals['puffin_bytes'])}"
        rows.append(("deletion vectors", _number(vectors), size(vector_bytes), "", puffins))
    if position or vectors:
        rows.append(("deleted positions", "", "", _number(totals["deleted_records"]), ""))
    kinds = f"{totals['data_manifests']:,} data, {totals['delete_manifests']:,} deletes"
    rows.append(("manifests", _number(manifests), size(totals["manifest_bytes"]), "", kinds))
    table_of(target, ("what", "count", "bytes", "rows", ""), rows, right=_RIGHT_IN_SUMMARY)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


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
        lines.append(
            f"  row lineage: next row id {lineage['next_row_id']}, "
            + (
                f"{count(without, 'data manifests')} without row ids"
                if without
                else "every data file has row ids"
            )
        )
    return lines


def _findings(document: Row) -> list[str]:
    lines = [
        f"  {item['name'].replace('_', ' ')}: counted {item['counted']:,}, "
        f"the snapshot's summary says {item['summary']:,}"
        for item in document["disagreements"]
    ]
    lines += [f"  ref {name} names a snapshot that is not in the table" for name in document["dangling_refs"]]
    return lines


def _due(document: Row) -> list[str]:
    name = document["table"]["name"]
    resume = shlex.join(["iceberg-cli", "resume", name])
    lines = [f"  open operation {operation}: `{resume}`" for operation in document["open_operations"]]
    for item in document["suggestions"]:
        refs = f" and {count(item['refs'], 'refs')}" if item["refs"] else ""
        blocked = f" (blocked by {'; '.join(item['blocked_by'])})" if item["blocked_by"] else ""
        lines.append(f"  due: {item['operation']}, {count(item['snapshots'], 'snapshots')}{refs}{blocked}")
    if not document["suggestions"]:
        lines.append("  no snapshot is due to expire")
    return [*lines, f"  `{shlex.join(['iceberg-cli', 'plan', name])}` shows the other verbs"]


def show_rows(
    target: Console, what: str, rows: Sequence[Row], *, location: str, more: bool, verbose: bool
) -> None:
    """Print rows as one table.

    Args:
        target: the console.
        what: the kind of rows.
        rows: as in the JSON document.
        location: of the table; paths below it are shown relative to it.
        more: whether rows were left out.
        verbose: also show columns of files that seldom matter.
    """
    folder = location.rstrip("/") + "/"
    if what == "files":
        columns = [*_FILES, *(_BOUNDS if verbose else ()), *_FILE_PATH]
    elif what == "deletes":
        columns = [*_FILES, *_DELETES, *(_BOUNDS if verbose else ()), *_FILE_PATH]
    else:
        columns = list(_COLUMNS[what])
    lines = _schema_lines(rows) if what == "schemas" else rows
    shown = [[text(row, folder) for _, text in columns] for row in lines]
    table_of(target, [title for title, _ in columns], shown, right=_RIGHT)
    hint = "; there are more: --limit N, --verbose or --output FILE" if more else ""
    target.print(f"({count(len(rows), 'rows')}{hint})")


def _of(key: str) -> _Text:
    return lambda row, _: "" if row[key] is None else row[key]


def _assigned(row: Row, _: str) -> object:
    """The assigned rows of a manifest: unknown with existing files, for the list does not count those with own ids."""
    unknown = row["assigned_rows"] is None and row["first_row_id"] is not None
    return "unknown" if unknown else _of("assigned_rows")(row, _)


def _at(key: str) -> _Text:
    return lambda row, _: moment(row[key])


def _path(key: str) -> _Text:
    return lambda row, folder: (row[key] or "").removeprefix(folder)


def _flag(key: str, text: str) -> _Text:
    return lambda row, _: text if row[key] else ""


def _size(key: str) -> _Text:
    return lambda row, _: size(row[key])


def _summary(key: str) -> _Text:
    return lambda row, _: row["summary"].get(key, "")


def _schema_lines(schemas: Sequence[Row]) -> list[Row]:
    """A line for each field; the schema is named on its first one."""
    lines: list[Row] = []
    for schema in schemas:
        named: Row = {"schema_id": schema["schema_id"], "is_current": schema["is_current"]}
        for field in schema["fields"]:
            lines.append({**named, **field})
            named = {"schema_id": "", "is_current": False}
    return lines


def _type(field: Row, _: str) -> str:
    return str(field["type"] if isinstance(field["type"], str) else field["type"]["type"])


def _partition_fields(spec: Row, _: str) -> str:
    shown = []
    for field in spec["fields"]:
        pairs = zip(field["source_names"], field["source_ids"], strict=True)
        sources = ", ".join(str(name or field_id) for name, field_id in pairs)
        shown.append(f"{field['name']} = {field['transform']}({sources})")
    return ", ".join(shown) or "unpartitioned"


def _blobs(row: Row, _: str) -> str:
    return ", ".join(dict.fromkeys(blob["type"] for blob in row["blob_metadata"]))


def _files(status: str) -> _Text:
    def text(row: Row, _: str) -> object:
        value = row[f"{status}_{'delete' if row['content'] else 'data'}_files_count"]
        return "?" if value is None else value

    return text


def _partition_summaries(row: Row, _: str) -> str:
    shown = []
    for item in row["partition_summaries"] or ():
        low, high = item["lower_bound"], item["upper_bound"]
        span = "null" if low is None else low if low == high else f"{low}..{high}"
        shown.append(f"{item['field'] or '?'} {span}")
    return ", ".join(shown)


def _kind(row: Row, _: str) -> str:
    if row["content"] == 1 and row["file_format"].lower() == "puffin":
        return "deletion vector"
    return _CONTENTS[row["content"]]


def _own_size(row: Row, _: str) -> str:
    own = row["content_size_in_bytes"]
    return size(row["file_size_in_bytes"] if own is None else own)


def _partition(row: Row, _: str) -> str:
    pairs = (row["partition"] or {}).items()
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in pairs)


def _bounds(row: Row, _: str) -> str:
    low, high, names = row["lower_bounds"] or {}, row["upper_bounds"] or {}, row["columns"]
    return ", ".join(
        f"{names.get(key, key)} {_short(low.get(key))}..{_short(high.get(key))}" for key in {**low, **high}
    )


def _short(value: object) -> str:
    text = "?" if value is None else str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."


_FILES: _Columns = (
    ("content", _kind),
    ("partition", _partition),
    ("records", _of("record_count")),
    ("size", _own_size),
)
_DELETES: _Columns = (("offset", _of("content_offset")), ("of data file", _path("referenced_data_file")))
_BOUNDS: _Columns = (("spec", _of("spec_id")), ("first row id", _of("first_row_id")), ("bounds", _bounds))
_FILE_PATH: _Columns = (("path", _path("file_path")),)
_COLUMNS: Mapping[str, _Columns] = {
    "snapshots": (
        ("committed at", _at("committed_at_ms")),
        ("snapshot", _of("snapshot_id")),
        ("parent", _of("parent_id")),
        ("operation", _of("operation")),
        ("added", _summary("added-data-files")),
        ("deleted", _summary("deleted-data-files")),
        ("files", _summary("total-data-files")),
        ("records", _summary("total-records")),
        ("manifest list", _path("manifest_list")),
    ),
    "refs": (
        ("ref", _of("name")),
        ("type", lambda row, _: row["type"].lower()),
        ("snapshot", _of("snapshot_id")),
        ("retention", lambda row, _: retention(row)),
    ),
    "history": (
        ("made current at", _at("made_current_at_ms")),
        ("snapshot", _of("snapshot_id")),
        ("parent", _of("parent_id")),
        ("ancestor of current", lambda row, _: "yes" if row["is_current_ancestor"] else "no"),
    ),
    "schemas": (
        ("schema", _of("schema_id")),
        ("", _flag("is_current", "current")),
        ("id", _of("id")),
        ("field", _of("name")),
        ("type", _type),
        ("", _flag("required", "required")),
        ("comment", lambda row, _: row.get("doc") or ""),
    ),
    "specs": (
        ("spec", _of("spec_id")),
        ("", _flag("is_default", "default")),
        ("fields", _partition_fields),
    ),
    "properties": (("key", _of("key")), ("value", _of("value"))),
    "statistics": (
        ("type", _of("type")),
        ("snapshot", _of("snapshot_id")),
        ("size", _size("file_size_in_bytes")),
        ("blobs", _blobs),
        ("path", _path("statistics_path")),
    ),
    "metadata-log": (
        ("time", _at("timestamp_ms")),
        ("snapshot", _of("latest_snapshot_id")),
        ("schema", _of("latest_schema_id")),
        ("file", _path("file")),
    ),
    "row-ids": (
        ("kind", _of("kind")),
        ("snapshot", _of("snapshot_id")),
        ("first row id", _of("first_row_id")),
        ("assigned", _assigned),
        ("path", _path("path")),
    ),
    "manifests": (
        ("content", lambda row, _: "deletes" if row["content"] else "data"),
        ("added", _files("added")),
        ("existing", _files("existing")),
        ("deleted", _files("deleted")),
        ("size", _size("length")),
        ("spec", _of("partition_spec_id")),
        ("partitions", _partition_summaries),
        ("path", _path("path")),
    ),
    "partitions": (
        ("partition", _partition),
        ("spec", _of("spec_id")),
        ("files", _of("file_count")),
        ("records", _of("record_count")),
        ("size", _size("total_data_file_size_in_bytes")),
        ("position deletes", _of("position_delete_record_count")),
        ("equality deletes", _of("equality_delete_record_count")),
        ("DVs", _of("dv_count")),
        ("last updated", _at("last_updated_at_ms")),
    ),
}

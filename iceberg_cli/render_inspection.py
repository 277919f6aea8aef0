"""Inspections as text: one screen for a summary, one table for rows. What comes from a table passes `printable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.iceberg.retention import age
from iceberg_cli.render import count, moment, printable, size, table_of

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
_Column = tuple[str, Callable[[Row], object]]
_RIGHT = ("files", "count", "bytes", "rows", "records", "size", "added", "existing", "deleted", "offset", "assigned")
_CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}
_SHOWN_LENGTH = 60


def show_summary(target: Console, document: Row) -> None:
    """One screen about a table."""
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
    lines = [
        f"{document['table']}: Iceberg v{document['format_version']} at {document['location']}",
        f"  uuid {document['table_uuid']}, metadata {document['metadata_location']}",
    ]
    snapshot = document["snapshot"]
    if snapshot is None:
        lines.append("  no snapshot: the table has no data")
    else:
        what = "current snapshot" if snapshot["snapshot_id"] == document["current_snapshot_id"] else "snapshot"
        when = f"{moment(snapshot['timestamp_ms'])} ({_ago(snapshot['age_ms'])})"
        lines.append(f"  {what} {snapshot['snapshot_id']}: {snapshot['operation'] or 'operation not said'}, {when}")
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
    rows = [(ref["name"], ref["type"].lower(), ref["snapshot_id"], _retention(ref)) for ref in refs]
    if rows:
        table_of(target, ("ref", "type", "snapshot", "retention"), rows)


def _retention(ref: Row) -> str:
    said = []
    if ref["min_snapshots_to_keep"] is not None:
        said.append(f"at least {count(ref['min_snapshots_to_keep'], 'snapshots')}")
    if ref["max_snapshot_age_in_ms"] is not None:
        said.append(f"snapshots for {age(ref['max_snapshot_age_in_ms'])}")
    if ref["max_reference_age_in_ms"] is not None:
        said.append(f"ref for {age(ref['max_reference_age_in_ms'])}")
    return ", ".join(said) or "of the table"


def _show_totals(target: Console, document: Row) -> None:
    totals = document["totals"]
    position = totals["position_delete_files"]
    vectors, vector_bytes = totals["deletion_vectors"], totals["deletion_vector_bytes"]
    others = totals["delete_bytes"] - vector_bytes
    manifests = totals["data_manifests"] + totals["delete_manifests"]
    source = "" if document["recounted"] else ", ".join(sorted(set(document["sources"].values())))
    rows: list[tuple[object, ...]] = [
        ("data files", _number(totals["data_files"]), size(totals["data_bytes"]), _number(totals["records"]), source)
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
    table_of(target, ("what", "count", "bytes", "rows", ""), rows, right=_RIGHT)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _details(document: Row) -> list[str]:
    lines = []
    sizes, manifests, file = document["data_file_sizes"], document["manifests"], document["metadata_file"]
    if sizes["average_size_bytes"] is not None:
        small = sizes["small_files"]
        below = f"; {small:,} below {size(sizes['small_below_bytes'])}" if small is not None else ""
        lines.append(
            f"  data files average {size(sizes['average_size_bytes'])} of a target of {size(sizes['target_size_bytes'])}{below}"
        )
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
            + (f"{count(without, 'data manifests')} without row ids" if without else "every data file has row ids")
        )
    return lines


def _findings(document: Row) -> list[str]:
    lines = [
        f"  {item['name'].replace('_', ' ')}: counted {item['counted']:,}, the snapshot's summary says {item['summary']:,}"
        for item in document["disagreements"]
    ]
    lines += [f"  ref {name} names a snapshot that is not in the table" for name in document["dangling_refs"]]
    return lines


def _due(document: Row) -> list[str]:
    lines = [f"  open operation {operation}: `iceberg-cli resume`" for operation in document["open_operations"]]
    for item in document["suggestions"]:
        refs = f" and {count(item['refs'], 'refs')}" if item["refs"] else ""
        blocked = f" (blocked by {'; '.join(item['blocked_by'])})" if item["blocked_by"] else ""
        lines.append(f"  due: {item['operation']}, {count(item['snapshots'], 'snapshots')}{refs}{blocked}")
    return lines or ["  nothing is due"]


def show_rows(target: Console, what: str, rows: Sequence[Row], *, location: str, more: bool, verbose: bool) -> None:
    """Rows as one table.

    Args:
        target: where to.
        what: which rows.
        rows: as in the JSON document.
        location: of the table; paths below it are shown relative to it.
        more: whether rows were left out.
        verbose: also show columns that seldom matter.
    """
    columns = _columns(what, location.rstrip("/") + "/", verbose=verbose)
    shown = [[text(row) for _, text in columns] for row in rows]
    table_of(target, [title for title, _ in columns], shown, right=_RIGHT)
    target.print(f"({count(len(rows), 'rows')}{'; there are more: --limit N, --verbose or --output FILE' if more else ''})")


def _columns(what: str, location: str, *, verbose: bool) -> list[_Column]:
    def path(key: str) -> Callable[[Row], object]:
        return lambda row: (row[key] or "").removeprefix(location)

    makers: dict[str, list[_Column]] = {
        "snapshots": [
            ("committed at", _at("committed_at_ms")),
            ("snapshot", _of("snapshot_id")),
            ("parent", _of("parent_id")),
            ("operation", _of("operation")),
            ("added", lambda row: row["summary"].get("added-data-files", "")),
            ("deleted", lambda row: row["summary"].get("deleted-data-files", "")),
            ("files", lambda row: row["summary"].get("total-data-files", "")),
            ("records", lambda row: row["summary"].get("total-records", "")),
            ("manifest list", path("manifest_list")),
        ],
        "refs": [
            ("ref", _of("name")),
            ("type", lambda row: row["type"].lower()),
            ("snapshot", _of("snapshot_id")),
            ("retention", _retention),
        ],
        "history": [
            ("made current at", _at("made_current_at_ms")),
            ("snapshot", _of("snapshot_id")),
            ("parent", _of("parent_id")),
            ("ancestor of current", lambda row: "yes" if row["is_current_ancestor"] else "no"),
        ],
        "schemas": [
            ("schema", _of("schema_id")),
            ("", lambda row: "current" if row["is_current"] else ""),
            ("fields", lambda row: "\n".join(_field(field) for field in row["fields"])),
        ],
        "specs": [
            ("spec", _of("spec_id")),
            ("", lambda row: "default" if row["is_default"] else ""),
            ("fields", lambda row: ", ".join(_partition_field(field) for field in row["fields"]) or "unpartitioned"),
        ],
        "properties": [("key", _of("key")), ("value", _of("value"))],
        "statistics": [
            ("type", _of("type")),
            ("snapshot", _of("snapshot_id")),
            ("size", lambda row: size(row["file_size_in_bytes"])),
            ("blobs", lambda row: ", ".join(dict.fromkeys(blob["type"] for blob in row["blob_metadata"]))),
            ("path", path("statistics_path")),
        ],
        "metadata-log": [
            ("time", _at("timestamp_ms")),
            ("snapshot", _of("latest_snapshot_id")),
            ("schema", _of("latest_schema_id")),
            ("file", path("file")),
        ],
        "row-ids": [
            ("kind", _of("kind")),
            ("snapshot", _of("snapshot_id")),
            ("first row id", _of("first_row_id")),
            ("assigned", _of("assigned_rows")),
            ("path", path("path")),
        ],
        "manifests": [
            ("content", lambda row: "deletes" if row["content"] else "data"),
            ("added", lambda row: _either(row, "added")),
            ("existing", lambda row: _either(row, "existing")),
            ("deleted", lambda row: _either(row, "deleted")),
            ("size", lambda row: size(row["length"])),
            ("spec", _of("partition_spec_id")),
            ("partitions", lambda row: ", ".join(_summary(item) for item in row["partition_summaries"] or ())),
            ("path", path("path")),
        ],
        "partitions": [
            ("partition", _partition),
            ("spec", _of("spec_id")),
            ("files", _of("file_count")),
            ("records", _of("record_count")),
            ("size", lambda row: size(row["total_data_file_size_in_bytes"])),
            ("position deletes", _of("position_delete_record_count")),
            ("equality deletes", _of("equality_delete_record_count")),
            ("DVs", _of("dv_count")),
            ("last updated", _at("last_updated_at_ms")),
        ],
    }
    if what in makers:
        return makers[what]
    files: list[_Column] = [
        ("content", lambda row: _kind(row)),
        ("partition", _partition),
        ("records", _of("record_count")),
        ("size", lambda row: size(_own_bytes(row))),
    ]
    if what == "deletes":
        files += [("offset", _of("content_offset")), ("of data file", path("referenced_data_file"))]
    if verbose:
        files += [("spec", _of("spec_id")), ("first row id", _of("first_row_id")), ("bounds", _bounds)]
    return [*files, ("path", path("file_path"))]


def _of(key: str) -> Callable[[Row], object]:
    return lambda row: "" if row[key] is None else row[key]


def _at(key: str) -> Callable[[Row], object]:
    return lambda row: moment(row[key])


def _field(field: Row) -> str:
    kind = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
    return f"{field['id']} {field['name']} {kind}{' required' if field['required'] else ''}"


def _partition_field(field: Row) -> str:
    sources = ", ".join(str(name or i) for name, i in zip(field["source_names"], field["source_ids"], strict=True))
    return f"{field['name']} = {field['transform']}({sources})"


def _either(row: Row, status: str) -> object:
    kind = "delete" if row["content"] else "data"
    value = row[f"{status}_{kind}_files_count"]
    return "?" if value is None else value


def _summary(item: Row) -> str:
    low, high = item["lower_bound"], item["upper_bound"]
    span = "null" if low is None else str(low) if low == high else f"{low}..{high}"
    return f"{item['field'] or '?'} {span}"


def _kind(row: Row) -> str:
    if row["content"] == 1 and row["file_format"].lower() == "puffin":
        return "deletion vector"
    return _CONTENTS[row["content"]]


def _own_bytes(row: Row) -> int:
    own: int | None = row["content_size_in_bytes"]
    total: int = row["file_size_in_bytes"]
    return total if own is None else own


def _partition(row: Row) -> str:
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in (row["partition"] or {}).items())


def _bounds(row: Row) -> str:
    low, high = row["lower_bounds"] or {}, row["upper_bounds"] or {}
    return ", ".join(
        f"{row['columns'].get(key, key)} {_short(low.get(key))}..{_short(high.get(key))}" for key in {**low, **high}
    )


def _short(value: object) -> str:
    text = "?" if value is None else str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."

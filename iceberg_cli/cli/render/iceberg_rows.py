"""Rows of inspections as text, one table for each kind. What comes from a table passes `printable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import count, moment, size, table_of
from iceberg_cli.cli.render.iceberg_summary import retention

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
_Text = Callable[[Row, str], object]  # of a row, with the table's folder
_Columns = Sequence[tuple[str, _Text]]
_RIGHT = ("files", "rows", "records", "size", "added", "existing", "deleted", "offset", "assigned", "DVs")
_CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}
_SHOWN_LENGTH = 60


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

"""Iceberg Java's metadata tables beside our `inspect`: the same files, deletes, entries and manifests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from tests.spark_tables import Lake

Row = dict[str, Any]
_FILE = (
    "content",
    "file_path",
    "file_format",
    "spec_id",
    "record_count",
    "file_size_in_bytes",
    "split_offsets",
    "sort_order_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
    "first_row_id",
)
_MAPS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
_LINEAGE = ("snapshot_id", "sequence_number", "file_sequence_number")
_MANIFEST = (
    "content",
    "path",
    "length",
    "partition_spec_id",
    "added_snapshot_id",
    *(
        f"{status}_{kind}_files_count"
        for kind in ("data", "delete")
        for status in ("added", "existing", "deleted")
    ),
)
_SUMMARY = ("contains_null", "contains_nan", "lower_bound", "upper_bound")
_IDS = ("first_row_id", "added_snapshot_id", *_LINEAGE)  # text in our documents
# Columns of the tables of `tests.live.model`, then the reserved ones. Spec: "Reserved Field IDs".
_STRINGS = {2, 2147483546}
_INTEGERS = {1: "<q", 3: "<i", 2147483545: "<q", 2147483540: "<q", 2147483539: "<q"}


def check_agreement(lake: Lake, table: str) -> None:
    """The current snapshot in both listings.

    Raises:
        AssertionError: with the rows that differ.
    """
    files = f"{', '.join((*_FILE, *_MAPS))}, partition"
    ours = {what: _inspected(lake, table, what) for what in ("files", "deletes", "manifests")}
    java = {
        name: [row.asDict(recursive=True) for row in lake.sql(table, f"SELECT {columns} FROM {{t}}.{name}")]
        for name, columns in (
            ("files", files),
            ("delete_files", files),
            ("manifests", "*"),
            ("entries", "status, data_file.file_path, data_file.content_offset, " + ", ".join(_LINEAGE)),
        )
    }
    entries = [row for row in java["entries"] if row["status"] != 2]
    _equal("files", [_java_file(row) for row in java["files"]], [_our_file(row) for row in ours["files"]])
    _equal(
        "delete_files",
        [_java_file(row) for row in java["delete_files"]],
        [_our_file(row) for row in ours["deletes"]],
    )
    place = ("file_path", "content_offset", *_LINEAGE)
    _equal("entries", [_only(place, row) for row in entries], [_only(place, row) for row in ours["files"]])
    _equal(
        "manifests",
        [_manifest(row) for row in java["manifests"]],
        [_manifest(row) for row in ours["manifests"]],
    )


def _inspected(lake: Lake, table: str, what: str) -> list[Row]:
    code, document = lake.cli("inspect", lake.argument(table), what)
    assert code == 0, document
    rows: list[Row] = document["rows"]
    return [
        {name: int(value) if name in _IDS and value is not None else value for name, value in row.items()}
        for row in rows
    ]


def _equal(what: str, java: list[Row], ours: list[Row]) -> None:
    """In any order; what differs is in the message."""
    theirs, mine = sorted(map(repr, java)), sorted(map(repr, ours))
    only_java = [row for row in theirs if row not in mine]
    only_ours = [row for row in mine if row not in theirs]
    assert theirs == mine, f"{what}: only in Java: {only_java}; only in ours: {only_ours}"


def _only(names: tuple[str, ...], row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in names}


def _java_file(row: Mapping[str, Any]) -> Row:
    found = _only(_FILE, row)
    for name in _MAPS:
        value: Callable[[int, Any], Any] = _bound if name.endswith("bounds") else lambda _, number: number
        found[name] = {key: value(key, row[name][key]) for key in sorted(row[name] or {})}
    # Java shows the fields of all specs in each row.
    return found | {"partition": _given(row["partition"])}


def _our_file(row: Mapping[str, Any]) -> Row:
    found = _only(_FILE, row)
    for name in _MAPS:
        found[name] = {int(key): row[name][key] for key in sorted(row[name] or {}, key=int)}
    return found | {"partition": _given(row["partition"])}


def _given(partition: Mapping[str, Any]) -> Row:
    return {name: partition[name] for name in sorted(partition) if partition[name] is not None}


def _bound(field_id: int, data: bytes) -> Any:
    """A bound's value. Spec: "Binary Single-Value Serialization"."""
    return bytes(data).decode() if field_id in _STRINGS else struct.unpack(_INTEGERS[field_id], data)[0]


def _manifest(row: Mapping[str, Any]) -> Row:
    summaries = [_only(_SUMMARY, each) for each in row["partition_summaries"]]
    # Java spells a bound that is not there "null"; no value of the tables is called that.
    bare = [{name: None if value == "null" else value for name, value in each.items()} for each in summaries]
    return _only(_MANIFEST, row) | {"partition_summaries": bare}

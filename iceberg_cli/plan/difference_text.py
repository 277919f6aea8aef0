"""A difference of two states of a table as text: the verdict, the states, counts by kind, and what else changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from iceberg_cli.plan.inspection import (
    HEADLINE,
    ID,
    NUMBER,
    SIZE,
    TEXT,
    Column,
    Facts,
    Grid,
    Lines,
    Part,
    Row,
    partition_text,
)
from iceberg_cli.plan.text import count, moment, size

SAME, ANCESTOR, DESCENDANT, UNRELATED = "same", "ancestor", "descendant", "unrelated"
"""What the first of two states is of the second."""

_KIND_WORDS: Final = {
    "position_delete_files": "position delete files",
    "equality_delete_files": "equality delete files",
    "deletion_vectors": "deletion vectors",
}
_SHOWN: Final = 10  # properties or columns of a kind, and partitions, in text
_RELATIONS: Final = {
    SAME: "Both are the same state",
    ANCESTOR: "The first is an ancestor of the second",
    DESCENDANT: "The second is an ancestor of the first: what was added since counts as removed",
    UNRELATED: "Neither is an ancestor of the other",
}


def difference_text(document: Row) -> Iterator[Part]:
    """A difference's document as text: the verdict, the states, what was added and removed by kind, and the rest."""
    yield Lines([_verdict(document)], HEADLINE)
    yield Facts([("from", _state(document["from"]), TEXT), ("to", _state(document["to"]), TEXT)])
    yield Lines([f"{_RELATIONS[document['relation']]}."])
    yield Grid(_KIND_COLUMNS, [dict(zip(_SIDES, row, strict=True)) for row in _kinds(document)])
    yield Lines([*_schema_lines(document), *_property_lines(document), *_partition_lines(document)])
    rows = document["partitions"]["rows"]
    if rows:
        yield Grid(PARTITION_COLUMNS, rows)
        left = sum(document["partitions"][name] for name in ("added", "gone", "changed")) - len(rows)
        if left:
            yield Lines([f"and {count(left, 'partitions')} more: --limit N or --output FILE"])


def _counted(key: str) -> Callable[[Row], object]:
    return lambda row: "?" if row[key] is None else row[key]


PARTITION_COLUMNS: Final = (
    Column("partition", lambda row: partition_text(row["partition"])),
    Column("change", "change", ID),
    Column("files +", _counted("added_files"), NUMBER),
    Column("files -", _counted("removed_files"), NUMBER),
    Column("rows +", _counted("added_rows"), NUMBER),
    Column("rows -", _counted("removed_rows"), NUMBER),
    Column("size +", "added_bytes", SIZE, leaves=3),
    Column("size -", "removed_bytes", SIZE, leaves=3),
    Column("deletes +", _counted("added_delete_files"), NUMBER, leaves=2),
    Column("deletes -", _counted("removed_delete_files"), NUMBER, leaves=1),
)
_SIDES: Final = ("", "added", "removed")
_KIND_COLUMNS: Final = (
    Column("", "", ID),
    Column("added", "added", NUMBER),
    Column("removed", "removed", NUMBER),
)


def _verdict(document: Row) -> str:
    files = document["files"]
    parts = [f"{count(files['added'], 'files')} added, {files['removed']:,} removed: {_net(document)}"]
    deletes = document["deletes"]
    for side in ("added", "removed"):
        found = [
            count(deletes[side][kind], words) for kind, words in _KIND_WORDS.items() if deletes[side][kind]
        ]
        if found:
            parts.append(f"{' and '.join(found)} {side}")
    changes = document["schema_changes"]
    named = [
        f"{count(len(items), 'columns')} {_words(how)}" for how, items in (changes or {}).items() if items
    ]
    if named:
        parts.append(f"schema: {', '.join(named)}")
    same = not any(files.values()) and len(parts) == 1 and not _property_lines(document)
    return "No difference" if same else "; ".join(parts)


def _net(document: Row) -> str:
    rows, bytes_ = document["rows"], document["bytes"]
    if rows["net"] is not None:
        shown = f"{rows['net']:+,} {'row' if abs(rows['net']) == 1 else 'rows'}"
    elif rows["added"] is not None and rows["removed"] is not None:
        shown = (
            f"{rows['added'] - rows['removed']:+,} records, of which deletes hide a number that is not known"
        )
    else:
        shown = "a number of rows that is not known"
    difference = bytes_["added"] - bytes_["removed"]
    return f"{shown}, {'-' if difference < 0 else '+'}{size(abs(difference))}"


def _state(state: Row) -> str:
    name = f"version {state['version']}" if "version" in state else f"snapshot {state['snapshot_id']}"
    if state.get("snapshot_id", "") is None:
        name = "no snapshot"
    ref = f" ({state['ref']})" if state.get("ref") else ""
    when = f", {moment(state['timestamp_ms'])}" if state["timestamp_ms"] is not None else ""
    return f"{name}{ref}{when}"


def _kinds(document: Row) -> Iterator[Sequence[object]]:
    sides = ("added", "removed")
    yield "data files", *(f"{document['files'][side]:,}" for side in sides)
    yield "  rows in them", *(_number(document["rows"][side]) for side in sides)
    yield "  size", *(size(document["bytes"][side]) for side in sides)
    deletes = document["deletes"]
    if not any(deletes[side][kind] for side in sides for kind in _KIND_WORDS):
        return
    for kind, words in _KIND_WORDS.items():
        if any(deletes[side][kind] for side in sides):
            yield words, *(f"{deletes[side][kind]:,}" for side in sides)
    yield "  rows that they name", *(_number(deletes[side]["deleted_rows"]) for side in sides)
    yield "  size", *(size(deletes[side]["bytes"]) for side in sides)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _schema_lines(document: Row) -> list[str]:
    changes = document["schema_changes"]
    if changes is None:
        return [f"schema: not compared, {document['schema_changes_reason']}"]
    lines = []
    for how, items in changes.items():
        shown = [_column_text(how, item) for item in items[:_SHOWN]]
        if len(items) > _SHOWN:
            shown.append(f"{len(items) - _SHOWN} more")
        if shown:
            lines.append(f"columns {_words(how)}: {', '.join(shown)}")
    return lines


def _column_text(how: str, item: Row) -> str:
    if how == "renamed":
        return f"{item['from']} to {item['to']}"
    if how == "retyped":
        return f"{item['name']} from {item['from']} to {item['to']}"
    return f"{item['name']} {item['type']}" if "type" in item else str(item["name"])


def _property_lines(document: Row) -> list[str]:
    changes = document["properties"]
    if changes is None:
        return [f"properties: not compared, {document['properties_reason']}"]
    lines = [f"property added: {key} = {value}" for key, value in changes["added"].items()]
    lines += [f"property removed: {key} = {value}" for key, value in changes["removed"].items()]
    lines += [
        f"property changed: {key} from {each['from']} to {each['to']}"
        for key, each in changes["changed"].items()
    ]
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], f"and {count(more, 'properties')} more"] if more > 0 else lines


def _partition_lines(document: Row) -> list[str]:
    partitions = document["partitions"]
    parts = [f"{partitions[name]:,} {name}" for name in ("added", "gone", "changed") if partitions[name]]
    hint = "" if partitions["rows"] is not None or not parts else " (--by-partition shows them)"
    return [f"partitions: {', '.join(parts)}{hint}"] if parts else []

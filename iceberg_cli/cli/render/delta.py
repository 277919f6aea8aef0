"""Inspections of Delta tables as text. What comes from a table passes `printable`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import count, moment, printable, size, table_of
from iceberg_cli.plan.text import age

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
_RIGHT = (
    "count",
    "bytes",
    "rows",
    "records",
    "files",
    "DVs",
    "deleted",
    "added",
    "removed",
    "size",
    "offset",
)


def show_summary(target: Console, document: Row) -> None:
    """Print the summary of a version of a table, on one screen."""
    for line in _identity(document):
        target.print(printable(line))
    _show_totals(target, document["totals"])
    for line in (*_log(document["log"]), *_kept(document)):
        target.print(printable(line))
    for line in _findings(document):
        target.print(printable(line), style="yellow")
    for line in _due(document):
        target.print(printable(line), style="bold")


def _identity(document: Row) -> list[str]:
    protocol = document["protocol"]
    versions = f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}"
    lines = [
        f"{document['table']}: Delta, {versions}, at {document['location']}",
        f"  id {document['table_uuid']}{_called(document['name'])}",
    ]
    age_ms = document["age_ms"]
    ago = f"{age(age_ms)} ago" if age_ms >= 0 else f"{age(-age_ms)} in the future"
    of = "" if document["version"] == document["log"]["latest_version"] else ", not the newest"
    operation = document["operation"] or "operation not said"
    lines.append(
        f"  version {document['version']}{of}: {operation}, {moment(document['timestamp_ms'])} ({ago})"
    )
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    if features:
        lines.append(f"  table features: {', '.join(features)}")
    if document["partition_columns"]:
        lines.append(f"  partitioned by {', '.join(document['partition_columns'])}")
    return lines


def _called(name: str | None) -> str:
    return f", named {name}" if name else ""


def _show_totals(target: Console, totals: Row) -> None:
    unknown = totals["files_without_record_count"]
    stated = f"{count(unknown, 'files')} without a record count" if unknown else ""
    average = totals["average_size_bytes"]
    note = stated or ("" if average is None else f"{size(average)} on average")
    rows: list[tuple[object, ...]] = [
        (
            "data files",
            f"{totals['data_files']:,}",
            size(totals["data_bytes"]),
            _number(totals["records"]),
            note,
        )
    ]
    if totals["deletion_vectors"]:
        inside = (
            f", {totals['inline_deletion_vectors']:,} in the log" if totals["inline_deletion_vectors"] else ""
        )
        dead = totals["dead_deletion_vector_bytes"]
        lost = "" if not dead else f", {size(dead)} of them in no use"
        files = f"in {count(totals['deletion_vector_files'], 'files')} of "
        files += f"{size(totals['deletion_vector_file_bytes'])}{lost}{inside}"
        bytes_, deleted = size(totals["deletion_vector_bytes"]), totals["deleted_records"]
        rows.append(("deletion vectors", f"{totals['deletion_vectors']:,}", bytes_, "", files))
        rows.append(("deleted rows", "", "", f"{deleted:,}", ""))
    rows.append(("tombstones", f"{totals['tombstones']:,}", "", "", ""))
    table_of(target, ("what", "count", "bytes", "rows", ""), rows, right=_RIGHT)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


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


def _due(document: Row) -> list[str]:
    name = document["table"]["name"]
    resume = shlex.join(["iceberg-cli", "resume", name])
    lines = [f"  open operation {operation}: `{resume}`" for operation in document["open_operations"]]
    for item in document["suggestions"]:
        blocked = f" (blocked by {'; '.join(item['blocked_by'])})" if item["blocked_by"] else ""
        lines.append(f"  due: {item['operation']}, {item['reason']}{blocked}")
    return [
        *lines,
        f"  `{shlex.join(['iceberg-cli', 'plan', name])}` looks at files too, and shows the other verbs",
    ]


# -- rows ------------------------------------------------------------------------------------------------------


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
        verbose: also show what seldom matters.
    """
    folder = location.rstrip("/") + "/"
    lines = (
        _field_lines(rows)
        if what == "schemas"
        else [_line(what, row, folder, verbose=verbose) for row in rows]
    )
    titles = list(lines[0]) if lines else ["nothing"]
    table_of(target, titles, [list(line.values()) for line in lines], right=_RIGHT)
    hint = "; there are more: --limit N, --verbose or --output FILE" if more else ""
    target.print(f"({count(len(rows), 'rows')}{hint})")


def _line(what: str, row: Row, folder: str, *, verbose: bool) -> dict[str, object]:
    """The cells of a row by title."""
    match what:
        case "history":
            return _commit(row, verbose=verbose)
        case "files":
            return _file(row, verbose=verbose)
        case "deletes":
            vector = row["deletionVector"]
            return {
                "kind": vector["storageType"],
                "offset": _text(vector["offset"]),
                "bytes": vector["sizeInBytes"],
                "deleted": vector["cardinality"],
                "of rows": _text(row["numRecords"]),
                "data file": row["path"],
                "file": (row["absolutePath"] or "in the log").removeprefix(folder),
            }
        case "partitions":
            return {
                "partition": _values(row["partition"]),
                "files": row["file_count"],
                "size": size(row["size"]),
                "records": _text(row["numRecords"], "?"),
                "DVs": row["dv_count"],
                "deleted": row["deleted_record_count"],
            }
        case "row-ids":
            return {
                "base row id": _text(row["baseRowId"]),
                "records": _text(row["numRecords"], "?"),
                "default row commit version": _text(row["defaultRowCommitVersion"]),
                "path": row["path"],
            }
        case "features":
            return {
                "feature": row["name"],
                "readers": _yes(row["reader"]),
                "writers": _yes(row["writer"]),
                "enabled": "" if row["enabled"] is None else "yes" if row["enabled"] else "no",
                "from": "the protocol's list" if row["source"] == "listed" else "the protocol's version",
                "": "" if row["known"] else "not known here",
            }
    return {key: _text(", ".join(value) if isinstance(value, list) else value) for key, value in row.items()}


def _commit(row: Row, *, verbose: bool) -> dict[str, object]:
    line: dict[str, object] = {
        "version": row["version"],
        "time": moment(row["timestamp_ms"]),
        "operation": _text(row["operation"]),
        "added": row["add_count"],
        "removed": row["remove_count"],
        "by": _text(row["engineInfo"] or row["userName"]),
    }
    if verbose:
        line |= {"parameters": _brief(row["operationParameters"]), "metrics": _brief(row["operationMetrics"])}
    return line


def _file(row: Row, *, verbose: bool) -> dict[str, object]:
    vector = row["deletionVector"]
    line: dict[str, object] = {
        "partition": _values(row["partitionValues"]),
        "size": size(row["size"]),
        "modified": moment(row["modificationTime"]),
        "deleted": "" if vector is None else vector["cardinality"],
        "base row id": _text(row["baseRowId"]),
    }
    if verbose:
        line["stats"] = _text(row["stats"])
    return line | {"path": row["path"]}


def _field_lines(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line for each field."""
    return [
        {
            "field": field["name"],
            "type": field["type"] if isinstance(field.get("type"), str) else _brief(field.get("type")),
            "": "" if field.get("nullable", True) else "required",
            "partition": "yes" if field["name"] in row["partitionColumns"] else "",
            "metadata": _brief(field.get("metadata")),
        }
        for row in rows
        for field in row["fields"]
    ]


def _text(value: object, none: str = "") -> object:
    return none if value is None else value


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _values(values: Mapping[str, str | None] | None) -> str:
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in (values or {}).items())


def _brief(value: object) -> str:
    return json.dumps(value) if value else ""

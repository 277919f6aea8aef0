"""A summary as text, on one screen. What comes from a table passes `printable`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import count, moment, printable, size, table_of
from iceberg_cli.plan.text import age

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
_RIGHT = ("count", "bytes", "rows")


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
    table_of(target, ("what", "count", "bytes", "rows", ""), rows, right=_RIGHT)


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

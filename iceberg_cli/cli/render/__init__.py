"""The parts of all text output, reports and errors as text. The only importer of rich.

Whatever comes from a table passes `printable`: no control character of it reaches the terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.plan.report import AbandonedOperation, Report
from iceberg_cli.plan.text import count, moment, size

if TYPE_CHECKING:
    from rich.console import Console

ERROR_SCHEMA = "iceberg-cli/error/2"
KIND_NAMES = {
    "data_file": "data files",
    "position_delete_file": "position delete files",
    "equality_delete_file": "equality delete files",
    "statistics_file": "statistics files",
    "manifest_file": "manifests",
    "manifest_list": "manifest lists",
    "metadata_file": "metadata files",
    "deletion_vector_file": "deletion vector files",
    "change_data_file": "change data files",
    "untracked_file": "untracked files",
    "compacted_file": "compacted log files",
    "checksum_file": "version checksums",
    "commit_file": "commits of the log",
    "checkpoint_file": "checkpoint files",
    "sidecar_file": "checkpoint sidecars",
}
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_SHOWN_ROWS = 60
_UNWRAPPED = 100_000


def printable(value: object) -> str:
    """Text with control and format characters, line separators and unassigned characters escaped."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )


def console(stream: TextIO | None = None, *, color: bool = True) -> Console:
    """A console that wraps nothing when its output is no terminal."""
    from rich.console import Console

    class Stream(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would leave with 1, which means a bug

    out = stream or sys.stdout
    width = None if out.isatty() else _UNWRAPPED
    return Stream(
        file=out, width=width, no_color=not color or None, highlight=False, markup=False, emoji=False
    )


def table_of(
    target: Console, columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Print a table of strings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(printable(value) for value in row))
    target.print(grid)


def print_json(document: Mapping[str, Any]) -> None:
    """Print the one document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def show_report(target: Console, report: Report, table: str) -> None:
    """Print the report of a run."""
    if report.abandoned is not None:
        _show_abandoned(target, report, report.abandoned, table)
        return
    for note in report.notes:
        target.print(printable(note))
    sentences = {
        "done": "Done.",
        "nothing_to_do": "Nothing to do.",
        "waiting": "Committed. The files wait for their grace; the next run or `resume` deletes them.",
        "partial": "Committed. Some files that may go are still there; the next run or `resume` deletes them.",
    }
    target.print(printable(f"{report.verb} {table}: {sentences.get(report.status, report.status)}"))
    for name, number in report.counts.items():
        if not number:
            continue
        kind = name.removeprefix("deleted_").removesuffix("s_count")
        what = (
            f"deleted {KIND_NAMES[kind]}"
            if kind in KIND_NAMES
            else name.removesuffix("_count").replace("_", " ").replace("puffin", "Puffin")
        )
        target.print(f"  {what}: {size(number) if name.endswith('_bytes_count') else f'{number:,}'}")
    if report.reclaimed_bytes:
        target.print(f"  reclaimed: {size(report.reclaimed_bytes)}")
    if report.kept_again:
        target.print(
            f"  kept, because this table or one below its folder needs them now: {report.kept_again:,}"
        )
    if report.committed_snapshot_id is not None:
        target.print(f"  snapshot {report.committed_snapshot_id}")
    if report.committed_version is not None:
        target.print(f"  version {report.committed_version}")
    if report.metadata_location:
        target.print(printable(f"  table is at {report.metadata_location}"))
    for failure in report.failed_deletes[:_SHOWN_ROWS]:
        target.print(printable(f"  still there: {failure['path']}: {failure['reason']}"), style="red")
    if report.operation_id:
        target.print(f"  operation {report.operation_id}, {report.duration_ms / 1_000:.1f} s")


def _show_abandoned(target: Console, report: Report, abandoned: AbandonedOperation, table: str) -> None:
    """Print an abandoned operation, and every file of it that nothing deletes any more: it is shown only once."""
    what = f"operation {report.operation_id}"
    if abandoned.started_ms is None:  # its journal cannot be read: not even the verb is known
        what += f" of {table}"
    else:
        what = f"{report.verb} {table}, {what}, begun at {moment(abandoned.started_ms)}"
    target.print(printable(f"Abandoned {what}: {abandoned.message}."))
    left = abandoned.orphans
    if left is None:
        target.print("Which files it leaves cannot be told: its journal or the list of its files is damaged.")
        return
    if not left.count:
        target.print("It leaves no file behind.")
        return
    files, bytes_ = count(left.count, "files"), size(left.size_bytes)
    be, stay, them = ("is", "stays", "it") if left.count == 1 else ("are", "stay", "them")
    sentence = (
        f"{files} ({bytes_}) {be} orphaned: the table does not need {them}, and no operation deletes {them} any more:"
        if left.checked
        else f"{files} that it was still to delete {stay} ({bytes_}), and no operation deletes {them} any more. "
        f"Whether the table needs {them} could not be told: {left.note}"
    )
    target.print(printable(sentence))
    for file in left.files:
        target.print(printable(f"  {file['path']}"))
    if left.count > len(left.files):
        target.print(f"  and {left.count - len(left.files):,} more, which are not listed")


def error_document(error: IcebergCliError) -> dict[str, Any]:
    """The `error/2` document, but for the fields about the table."""
    return {
        "schema": ERROR_SCHEMA,
        "exit_code": error.exit_code,
        "error": type(error).__name__,
        "message": error.message,
        "state": error.state,
        "next": error.next_step,
    }


def show_error(target: Console, error: IcebergCliError) -> None:
    """Print an error: a line for what cannot be done, one for the state of things, one for what to do."""
    target.print(printable(f"error: {error.message}"), style="bold red")
    for line in (error.state, error.next_step):
        if line:
            target.print(printable(line))

"""What `inspect` shows, whatever the format: the states of a table, and how rows and a summary are put as text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from iceberg_cli.plan.text import count, listed, moment, size

INSPECTION_SCHEMA: Final = "iceberg-cli/inspection/2"
Row = Mapping[str, Any]

SIZES: Final = "sizes"
"""Rows that no command prints, for distributions: `content` and `size_bytes` of each file, a DV's of its blob alone."""

# Kinds of values. All but texts and paths are never broken.
TEXT: Final = "text"
ID: Final = "id"  # a name or a number that is copied
NUMBER: Final = "number"  # to the right
TIME: Final = "time"  # in ms since the epoch
SPAN: Final = "span"  # several times in ms since the epoch, from the first to the last
SIZE: Final = "size"  # in bytes, to the right
GIST: Final = "gist"  # a sentence whose end may be left out where rows are many
NAME: Final = "name"  # of a table or a partition, which may be long
PATH: Final = "path"  # below the table's folder as seen from there
STATE: Final = "state"  # a word that says how good or bad things are
VERDICT: Final = "verdict"  # "go", "change" or "keep"

# What lines are about.
HEADLINE: Final = "headline"  # the verdict on all that follows
FINDING: Final = "finding"  # something is odd
DUE: Final = "due"  # what can be done
COMMAND: Final = "command"  # is copied into a shell, so it is one line whatever the width


class StateSelector(NamedTuple):
    """What selects a snapshot (Iceberg) or a version (Delta) of the table; nothing: the current one."""

    snapshot_id: int | None = None
    ref: str | None = None
    at_ms: int | None = None
    version: int | None = None

    def given(self) -> list[str]:
        """The options that are given, as they are spelled."""
        spelled = ("--snapshot", "--ref", "--at", "--version")
        return [option for option, value in zip(spelled, self, strict=True) if value is not None]


class Column(NamedTuple):
    """A column of rows as text.

    Args:
        title: what stands over it.
        value: the field of the row, or what makes the value of a row; None is shown as nothing.
        kind: `TEXT`, `GIST`, `ID`, `NAME`, `NUMBER`, `TIME`, `SPAN`, `SIZE`, `PATH`, `STATE` or `VERDICT`.
        seldom: whether it is shown with --verbose alone.
        leaves: where there is no room for all, the columns with the lowest numbers leave first; 0: it stays.
    """

    title: str
    value: str | Callable[[Row], object]
    kind: str = TEXT
    seldom: bool = False
    leaves: int = 0

    def of(self, row: Row) -> Any:
        """The value of a row."""
        return row[self.value] if isinstance(self.value, str) else self.value(row)


class Lines(NamedTuple):
    """A part of a summary: lines, which are the `HEADLINE`, a `FINDING`, `DUE`, a `COMMAND`, or none of these."""

    lines: Sequence[str]
    about: str = ""


class Grid(NamedTuple):
    """A part of a summary: rows under titles; `brief`: fewer that a terminal has in their place, unless --verbose."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    brief: Sequence[Row] | None = None


class Facts(NamedTuple):
    """A part of a summary: labels, each with a value and its kind; one without a value is left out.

    A terminal has those labelled as in `seldom` with --verbose alone.
    """

    pairs: Sequence[tuple[str, object, str]]
    seldom: Sequence[str] = ()


Part = Lines | Grid | Facts


TOTAL_COLUMNS: Final = (
    Column("", "what", ID),
    Column("count", "count", NUMBER),
    Column("bytes", lambda row: "" if row["bytes"] is None and row["count"] is None else row["bytes"], SIZE),
    Column("rows", "rows", NUMBER),
    Column("", "note"),
)


def total(
    what: str, number: int | None, size_bytes: int | str | None, rows: int | str | None, note: str
) -> Row:
    """A row of `TOTAL_COLUMNS`: how many there are of something, how large it is, and how many rows it has."""
    return {"what": what, "count": number, "bytes": size_bytes, "rows": rows, "note": note}


def other_than(location: str, name: str) -> str | None:
    """A table's location, unless that is how it is named."""
    return None if location.rstrip("/") == name.rstrip("/") else location


def partition_text(partition: Mapping[str, str | None] | None) -> str:
    """Partition values as a path would have them."""
    pairs = (partition or {}).items()
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in pairs)


def verdict(document: Row, findings: Sequence[str], *, read: str) -> Lines:
    """The first line of a summary: whether something is odd, and which verbs are due, as far as it was looked at.

    Args:
        document: of the summary.
        findings: what is odd.
        read: all that was read: of other verbs nothing is known.
    """
    due = [item for item in document["suggestions"] if item["certain"]]
    perhaps = [item for item in document["suggestions"] if not item["certain"]]
    parts = [count(len(findings), "findings")] if findings else []
    if due:
        parts.append(_named(due, "are due" if len(due) > 1 else "is due"))
    if perhaps:
        parts.append(_named(perhaps, "may be due"))
    if not document["suggestions"]:
        parts.append(f"Nothing is due by {read} alone")
    if document["open_operations"]:
        parts.append(count(len(document["open_operations"]), "open operations"))
    if document["read_only"]:
        parts.append("read-only")
    parts.append("not checked")
    return Lines(["; ".join(parts)], HEADLINE)


def _named(items: Sequence[Row], are: str) -> str:
    """Verbs that are due, or may be, with the reason where it is one."""
    because = f": {items[0]['reason']}" if len(items) == 1 else ""
    return f"{listed([item['operation'] for item in items])} {are}{because}"


def state_text(operation: Row) -> str:
    """The state of an element of `operations/2`, and until when it waits."""
    message, until_ms, files = (
        str(operation["message"]),
        operation["grace_until_ms"],
        operation["waiting_files_count"],
    )
    parts = [] if files is None else [count(files, "files"), size(operation["waiting_bytes"])]
    # One that waits for another operation says until when itself.
    if until_ms is not None and not operation["waits_for"]:
        parts.append(f"until {moment(until_ms)}")
    return f"{message} ({', '.join(parts)})" if parts else message


def operation_text(operation: Row) -> str:
    """An element of `operations/2` in a line."""
    verb = f" ({operation['operation']})" if operation["operation"] else ""
    return f"{operation['operation_id']}{verb}: {state_text(operation)}"


def due_parts(document: Row, *, plan_shows: str) -> Iterator[Part]:
    """What can be done, and by which commands: the second part of a summary.

    Args:
        document: of the summary.
        plan_shows: what `plan` does beyond.
    """
    name = document["table"]["name"]
    reason_read_only = document["read_only"]
    lines = [f"read-only, no verb writes or deletes: {reason_read_only}"] if reason_read_only else []
    alike = Counter(item["certain"] for item in document["suggestions"])
    for item in document["suggestions"]:
        blocked = f" (blocked by {'; '.join(item['blocked_by'])})" if item["blocked_by"] else ""
        if blocked or alike[item["certain"]] > 1:
            be = "due" if item["certain"] else "may be due"
            lines.append(f"{be}: {item['operation']}: {item['reason']}{blocked}")
    lines += [f"open operation {operation_text(operation)}" for operation in document["operations"]]
    yield Lines(lines)
    commands = [f"{shlex.join(['iceberg-cli', 'plan', name])}  # {plan_shows}"]
    if document["open_operations"]:
        commands.append(shlex.join(["iceberg-cli", "resume", name]))
    yield Lines(commands, COMMAND)

"""What `inspect` shows, whatever the format: the states of a table, and how rows and a summary are put as text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

INSPECTION_SCHEMA: Final = "iceberg-cli/inspection/2"
Row = Mapping[str, Any]

TEXT: Final = "text"
NUMBER: Final = "number"  # to the right
TIME: Final = "time"  # in ms since the epoch
SIZE: Final = "size"  # in bytes, to the right
PATH: Final = "path"  # below the table's folder as seen from there

FINDING: Final = "finding"  # something is odd
DUE: Final = "due"  # what can be done


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
        kind: one of `TEXT`, `NUMBER`, `TIME`, `SIZE` and `PATH`.
        seldom: whether it is shown with --verbose alone.
    """

    title: str
    value: str | Callable[[Row], object]
    kind: str = TEXT
    seldom: bool = False

    def of(self, row: Row) -> Any:
        """The value of a row."""
        return row[self.value] if isinstance(self.value, str) else self.value(row)


class Lines(NamedTuple):
    """A part of a summary: lines, which are a `FINDING`, `DUE`, or neither."""

    lines: Sequence[str]
    about: str = ""


class Grid(NamedTuple):
    """A part of a summary: rows of text under titles, some of which are to the right."""

    titles: Sequence[str]
    rows: Sequence[Sequence[object]]
    right: Sequence[str] = ()


def partition_text(partition: Mapping[str, str | None] | None) -> str:
    """Partition values as a path would have them."""
    pairs = (partition or {}).items()
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in pairs)


def due_lines(document: Row, reason: Callable[[Row], str], *, none: str = "", plan_shows: str) -> Lines:
    """What can be done, at the end of a summary.

    Args:
        document: of the summary.
        reason: why one of its suggestions is due.
        none: where none is due; empty: nothing.
        plan_shows: what `plan` does beyond.
    """
    name = document["table"]["name"]
    resume = shlex.join(["iceberg-cli", "resume", name])
    lines = [f"  open operation {operation}: `{resume}`" for operation in document["open_operations"]]
    for item in document["suggestions"]:
        blocked = f" (blocked by {'; '.join(item['blocked_by'])})" if item["blocked_by"] else ""
        lines.append(f"  due: {item['operation']}, {reason(item)}{blocked}")
    if none and not document["suggestions"]:
        lines.append(f"  {none}")
    return Lines([*lines, f"  `{shlex.join(['iceberg-cli', 'plan', name])}` {plan_shows}"], DUE)

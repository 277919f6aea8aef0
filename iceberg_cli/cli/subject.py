"""The command and the table of a command line, and the operations recovered so far, for errors and events.

Few modules are imported here, for the program imports this first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.plan.report import RecoveredOperation


# Nobody compares or prints it, and making the methods for that takes time at every start.
@dataclass(eq=False, repr=False)
class _Subject:
    command: str = ""
    table: Mapping[str, str | None] | None = None
    settled: list[RecoveredOperation] = field(default_factory=list)


_subject = _Subject()


def begin() -> None:
    """Record that a command line begins, which names no table yet."""
    _subject.command, _subject.table, _subject.settled = "", None, []


def called(command: str) -> None:
    """Record the name of the command."""
    _subject.command = command


def command() -> str:
    """The name of the command; empty where the command line has none."""
    return _subject.command


def name() -> str | None:
    """What the table is named by; None where the command line names none."""
    return None if _subject.table is None else _subject.table["name"]


def named(name: str) -> None:
    """Record the table that the command line names, which is not opened yet."""
    _subject.table = {"name": name, "location": None, "format": None}


def opened(identity: Mapping[str, str]) -> None:
    """Record that the table is opened.

    Args:
        identity: its `name`, `location` and `format`.
    """
    _subject.table = dict(identity)


def settled(done: RecoveredOperation) -> None:
    """Record that an operation that an earlier run had left open was recovered."""
    _subject.settled.append(done)


def document() -> dict[str, Any]:
    """The table and its recovered operations as fields of an error's document."""
    return {"table": _subject.table, "settled": [done.to_json() for done in _subject.settled]}

"""The table that a command line is about, and what was settled on it so far: an error's document tells of both.

Few modules are imported here, for this is what the program begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.plan.report import RecoveredOperation


@dataclass
class _Subject:
    table: Mapping[str, str | None] | None = None
    settled: list[RecoveredOperation] = field(default_factory=list)


_subject = _Subject()


def begin() -> None:
    """A command line begins, which names no table yet."""
    _subject.table, _subject.settled = None, []


def named(name: str) -> None:
    """The command line names this table, which is not opened yet."""
    _subject.table = {"name": name, "location": None, "format": None}


def opened(identity: Mapping[str, str]) -> None:
    """The table is opened.

    Args:
        identity: its `name`, `location` and `format`.
    """
    _subject.table = dict(identity)


def settled(done: RecoveredOperation) -> None:
    """An operation that an earlier run had left open was gone on with."""
    _subject.settled.append(done)


def document() -> dict[str, Any]:
    """The fields of an error's document that tell of it."""
    return {"table": _subject.table, "settled": [done.to_json() for done in _subject.settled]}

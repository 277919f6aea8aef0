"""How many files a read of one value of a column opens, as tables are and as rewrites leave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ColumnReads(NamedTuple):
    """How many files of its partition a read of one value of a column opens, on average over the rows of the table.

    Args:
        column: its name.
        opened: as bounds of the files tell.
        files: that the partition has.
    """

    column: str
    opened: float
    files: float

    def to_json(self) -> dict[str, Any]:
        """As an element of `reads` of an inspection."""
        return self._asdict()


def share_opened(reads: Mapping[str, Any]) -> float:
    """Of the files that there are those that a read opens, 0 to 1, by an element of `reads` of an inspection."""
    return min(1.0, reads["opened"] / reads["files"]) if reads["files"] else 0.0


class ReadsBeforeAndAfter(NamedTuple):
    """How many files of its partition a read of one value of a column opens, before a rewrite and after it.

    Args:
        column: its name.
        opened_before: as files are before it.
        opened_after: in a plan as they are expected to be, in a report as they are.
        files_before: that the partition has.
        files_after: likewise.
    """

    column: str
    opened_before: float
    opened_after: float
    files_before: float
    files_after: float

    def to_json(self) -> dict[str, Any]:
        """As an element of `reads` of a plan or a report."""
        return self._asdict()


class TableReads(NamedTuple):
    """What reads of one value of columns open of a table's data files.

    Args:
        columns: those of which files have bounds.
        note: what this does not tell, or why it tells nothing; empty: it is of all files.
    """

    columns: tuple[ColumnReads, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As fields of an inspection of files."""
        return {"reads": [each.to_json() for each in self.columns], "reads_note": self.note}

"""Files that a commit removes and that are not the table's to delete: how many there are, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import common_folders, folder_column

_EXAMPLES = 5
_FOLDERS = 3


@dataclass(kw_only=True)
class ForeignFiles:
    """A count of such files. `folders` are the deepest ones that contain them, one for each bucket or disk."""

    count: int = 0
    size_bytes: int = 0
    examples: list[str] = field(default_factory=list)
    folders: tuple[str, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """Count n rows of `removal_rows.SCHEMA`."""
        if not len(rows):
            return
        self.count += len(rows)
        self.size_bytes += pc.sum(rows["size_bytes"]).as_py() or 0
        spelled = rows["as_written"].slice(0, _EXAMPLES - len(self.examples))
        self.examples.extend(spelled.to_pylist())
        self.folders = common_folders([*self.folders, *pc.unique(folder_column(rows["path"])).to_pylist()])

    @property
    def quantity(self) -> str:
        """Number and size, such as "2 files, 1,024 bytes,"."""
        return f"{self.count:,} file{'s' if self.count > 1 else ''}, {self.size_bytes:,} bytes,"

    def stay(self, reason: str, *, of_one: str, remedy: str = "") -> str:
        """A warning that they stay for ever, for `Plan.lasting`.

        Args:
            reason: why they do.
            of_one: the reason for a single file.
            remedy: what deletes them.
        """
        verb, why = ("stay", reason) if self.count > 1 else ("stays", of_one)
        return f"{self.quantity} that would go {verb} for ever: {why}.{remedy} Such as: {', '.join(self.examples)}"


def some(names: Sequence[str], noun: str) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _FOLDERS
    return ", ".join(names[:_FOLDERS]) + (f" and {more:,} more {noun}" if more > 0 else "")

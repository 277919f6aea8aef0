"""A table of version 3 whose files have no row ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iceberg_cli.testing.iceberg_files import DELETED
from iceberg_cli.testing.iceberg_reader import entries_of
from tests.cli.lakes import edited, head_of, listed_of, metadata_of
from tests.hazard_tables import Hazard, entry


class Table(Hazard):
    """A version 3 table whose snapshots are from before its upgrade: nothing has a row id."""

    def publish(self, **values: Any) -> str:
        path = super().publish(**values)
        with edited(Path(path)) as document:
            for snapshot in document["snapshots"]:
                snapshot.pop("first-row-id", None)
                snapshot.pop("added-rows", None)
        return path

    def holding(self, name: str, *files: tuple[int, str, int]) -> str:
        """A data manifest with files: status, path, rows."""
        return self.manifest(name, *(entry(status, path, record_count=rows) for status, path, rows in files))

    @property
    def folder(self) -> Path:
        return Path(self.location)

    def metadata(self) -> dict[str, Any]:
        return metadata_of(self.folder)

    def head(self, ref: str = "main") -> dict[str, Any]:
        return head_of(self.folder, ref)

    def listed(self, ref: str = "main") -> list[dict[str, Any]]:
        return listed_of(self.folder, ref)

    def first_row_ids(self, ref: str = "main") -> dict[str, int | None]:
        """Of the live data files of a branch, as the specification has readers assign them."""
        return {
            Path(entry["file_path"]).name: entry["first_row_id"]
            for row in self.listed(ref)
            for entry in entries_of(self.storage, row)
            if not row["content"] and entry["status"] != DELETED
        }

"""A table of version 3 whose files have no row ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro

from iceberg_cli.testing.iceberg_files import ADDED, DELETED
from tests.cli.lakes import edited, newest_metadata
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
        self.manifest(name, *(entry(status, path, record_count=rows) for status, path, rows in files))
        kinds = {0: "existing", ADDED: "added", DELETED: "deleted"}
        for status, kind in kinds.items():
            self.rows[name][f"{kind}_rows_count"] = sum(rows for each, _, rows in files if each == status)
        return name

    @property
    def folder(self) -> Path:
        return Path(self.location)

    def metadata(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(newest_metadata(self.folder).read_bytes())
        return document

    def head(self, ref: str = "main") -> dict[str, Any]:
        document = self.metadata()
        targets = document["refs"][ref]["snapshot-id"]
        found: dict[str, Any] = next(s for s in document["snapshots"] if s["snapshot-id"] == targets)
        return found

    def listed(self, ref: str = "main") -> list[dict[str, Any]]:
        with open(self.head(ref)["manifest-list"], "rb") as file:
            rows: list[Any] = list(fastavro.reader(file))
        return rows

    def first_row_ids(self, ref: str = "main") -> dict[str, int | None]:
        """Of the live data files of a branch, as the specification has readers assign them."""
        found: dict[str, int | None] = {}
        for row in self.listed(ref):
            if row["content"]:
                continue
            next_id = row["first_row_id"]
            with open(row["manifest_path"], "rb") as file:
                for record in fastavro.reader(file):
                    data: Any = record["data_file"]  # type: ignore[index, call-overload]
                    if record["status"] == DELETED:  # type: ignore[index, call-overload]
                        continue
                    own = data["first_row_id"]
                    if own is None and next_id is not None:
                        own, next_id = next_id, next_id + data["record_count"]
                    found[Path(data["file_path"]).name] = own
        return found

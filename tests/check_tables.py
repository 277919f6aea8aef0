"""A small sound table on disk of any format version, whose parts a test may change before it is written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.testing.iceberg_files import (
    ADDED,
    manifest,
    manifest_list,
    manifest_row,
    position_deletes,
)
from tests.builders import NOW_MS, a_table_document
from tests.delete_tables import SCHEMA, puffin

SNAPSHOT_ID, SEQUENCE_NUMBER = 2, 2
TIME_MS = NOW_MS - 1_500 * 86_400_000
SYNC = bytes(16)
Entry = dict[str, Any]
Row = dict[str, Any]
Change = Callable[[Any], object]


@dataclass(kw_only=True)
class Sound:
    """One snapshot, the head of main, with a data manifest and, if there are deletes, a delete manifest.

    Data files `a` with three rows and `b` with two; a row of `a` is deleted in the way of the format version. A test
    changes entries at once; `rows` (of the manifest list), `documents` and `files` are changed as they are written.
    """

    folder: Path
    version: int = 3
    spec: dict[str, Any] = field(default_factory=lambda: {"spec-id": 0, "fields": []})  # of the manifests
    data: list[Entry] = field(default_factory=list)
    deletes: list[Entry] = field(default_factory=list)
    rows: list[Change] = field(default_factory=list)  # of the two rows, data first
    documents: list[Change] = field(default_factory=list)  # of the metadata
    files: list[Change] = field(default_factory=list)  # of the table's folder, in the end
    manifest_version: int = 0  # of the Avro schemas; 0: as the table's
    list_version: int = 0

    def __post_init__(self) -> None:
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "metadata").mkdir()
        self.data = [self.data_file("a", 3), self.data_file("b", 2)]
        if self.version == 3:
            self.vectors("dv", {"a": {0}})
        elif self.version == 2:
            self.positions("pos", {"a": [0]})

    # -- files -------------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Where the data file of this name is."""
        return f"{self.folder}/data/{name}.parquet"

    def put(self, name: str, data: bytes) -> str:
        """Write a file."""
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def data_file(self, name: str, records: int, **others: Any) -> Entry:
        """Write a Parquet file; its entry."""
        out = io.BytesIO()
        pq.write_table(pa.table({"n": list(range(records)), "k": ["x"] * records}), out)
        size = len(out.getvalue())
        return self.entry(0, self.put(f"data/{name}.parquet", out.getvalue()), records, size, **others)

    def entry(self, content: int, path: str, records: int, size: int, **others: Any) -> Entry:
        """An entry of a file that this snapshot adds."""
        values = {
            "status": ADDED, "snapshot_id": None, "sequence_number": None, "file_sequence_number": None,
            "content": content, "file_path": path, "file_format": "PARQUET", "partition": {},
            "record_count": records, "file_size_in_bytes": size,
        }  # fmt: skip
        return {**values, **others}

    def vectors(self, name: str, vectors: Mapping[str, Iterable[int]], **others: Any) -> None:
        """A Puffin file with deletion vectors, in place of the deletes so far."""
        data, places = puffin({self.path(file): positions for file, positions in vectors.items()})
        self.puffin(name, data, places, **others)

    def puffin(
        self, name: str, data: bytes, places: Iterable[tuple[str, int, int, int]], **others: Any
    ) -> None:
        """A Puffin file of these bytes, in place of the deletes so far."""
        path = self.put(f"data/{name}.puffin", data)
        self.deletes = [
            self.entry(
                1, path, cardinality, len(data), file_format="PUFFIN", referenced_data_file=ref, content_offset=offset,
                content_size_in_bytes=size, **others,
            )
            for ref, offset, size, cardinality in places
        ]  # fmt: skip

    def positions(self, name: str, positions: Mapping[str, Iterable[int]], **others: Any) -> None:
        """A position delete file, in place of the deletes so far."""
        rows = [(self.path(file), position) for file, each in positions.items() for position in each]
        data = position_deletes(rows)
        path = self.put(f"data/{name}-deletes.parquet", data)
        self.deletes = [self.entry(1, path, len(rows), len(data), **others)]

    def equality(self, name: str, **others: Any) -> None:
        """An equality delete file by column 1, in place of the deletes so far."""
        out = io.BytesIO()
        pq.write_table(pa.table({"n": [1]}), out)
        path = self.put(f"data/{name}-eq-deletes.parquet", out.getvalue())
        values = {"equality_ids": [1], **others}
        self.deletes = [self.entry(2, path, 1, len(out.getvalue()), **values)]

    def statistics(self, snapshot_id: int = SNAPSHOT_ID) -> dict[str, Any]:
        """Write a statistics file without blobs; its entry in the metadata."""
        data, _ = puffin({})
        path = self.put(f"metadata/{snapshot_id}.stats", data)
        return {
            "snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": len(data),
            "file-footer-size-in-bytes": len(data) - 4, "blob-metadata": [],
        }  # fmt: skip

    # -- the table ---------------------------------------------------------------------------------------------

    def write(self) -> str:
        """Write what was collected; the table's folder."""
        rows = [self._manifest("data", 0, self.data)]
        if self.deletes:
            rows.append(self._manifest("deletes", 1, self.deletes))
        for change in self.rows:
            change(rows)
        data = manifest_list(
            rows, version=self.list_version or self.version, snapshot_id=SNAPSHOT_ID, parent_snapshot_id=None,
            sequence_number=SEQUENCE_NUMBER, first_row_id=0 if self.version == 3 else None, sync=SYNC,
        )  # fmt: skip
        self.put("metadata/snap-2.avro", data)
        document = self._document()
        for change in self.documents:
            change(document)
        self.put("metadata/v1.metadata.json", json.dumps(document).encode())
        for change in self.files:
            change(self.folder)
        return str(self.folder)

    def _manifest(self, name: str, content: int, entries: list[Entry]) -> Row:
        data = manifest(
            entries, schema=SCHEMA, spec=self.spec, version=self.manifest_version or self.version,
            content=content, sync=SYNC,
        )  # fmt: skip
        # The header says the table's version, whatever the Avro schema is.
        stated = str(self.manifest_version or self.version).encode()
        data = data.replace(b"format-version\x02" + stated, b"format-version\x02%d" % self.version)
        number = SEQUENCE_NUMBER if self.version > 1 else 0
        live = [number if e["sequence_number"] is None else e["sequence_number"] for e in entries]
        path = self.put(f"metadata/{name}.avro", data)
        row = manifest_row(
            path, data, entries, content=content, spec_id=self.spec["spec-id"], snapshot_id=SNAPSHOT_ID,
            sequence_number=number, min_sequence_number=min(live),
        )  # fmt: skip
        if self.version == 3 and not content:
            row["first_row_id"] = 0
        return row

    def _document(self) -> dict[str, Any]:
        live = [*self.data, *self.deletes]
        sizes = [
            (entry.get("content_size_in_bytes") or 0)
            if entry["file_format"] == "PUFFIN"
            else entry["file_size_in_bytes"]
            for entry in live
        ]
        records = {
            content: sum(entry["record_count"] for entry in live if entry["content"] == content)
            for content in (0, 1, 2)
        }
        numbers = {
            "total-data-files": len(self.data), "total-delete-files": len(self.deletes), "total-records": records[0],
            "total-files-size": sum(sizes), "total-position-deletes": records[1], "total-equality-deletes": records[2],
        }  # fmt: skip
        snapshot = a_snapshot_document(
            SNAPSHOT_ID,
            SEQUENCE_NUMBER,
            f"{self.folder}/metadata/snap-2.avro",
            **{key: str(number) for key, number in numbers.items()},
        )
        document = a_table_document(snapshot, format_version=self.version)
        document |= {"location": str(self.folder), "schemas": [{**SCHEMA}], "last-column-id": 2}
        specs = {0: {"spec-id": 0, "fields": []}, self.spec["spec-id"]: self.spec}
        ids = [each["field-id"] for spec in specs.values() for each in spec["fields"]]
        document |= {"partition-specs": list(specs.values()), "last-partition-id": max([999, *ids])}
        if self.version == 3:
            document["next-row-id"] = records[0]
            document["snapshots"][0] |= {"first-row-id": 0, "added-rows": records[0]}
        return document


def a_snapshot_document(
    snapshot_id: int, sequence_number: int, manifest_list: str, **summary: str
) -> dict[str, Any]:
    """A snapshot without a parent."""
    return {
        "snapshot-id": snapshot_id, "sequence-number": sequence_number, "timestamp-ms": TIME_MS + sequence_number,
        "manifest-list": manifest_list, "summary": {"operation": "append", **summary}, "schema-id": 0,
        "parent-snapshot-id": None,
    }  # fmt: skip


Break = Callable[[Sound], object]


@dataclass(frozen=True)
class Case:
    """How a sound table is broken, in one way."""

    change: Break
    version: int
    deep: bool


CASES: dict[str, Case] = {}

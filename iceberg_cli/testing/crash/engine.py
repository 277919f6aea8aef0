"""Another engine at work on a simulated Iceberg table of version 2 or 3.

It appends, deletes rows (by position delete files in v2, by deletion vectors in v3), replaces data files and upgrades,
each on top of whatever is current.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.storage import Storage
from iceberg_cli.testing.crash.world import ICEBERG_TABLE, NOW_MS, Script, SimStorage, World
from iceberg_cli.testing.iceberg_files import DATA, DELETES, POSITION_DELETES, Entry, Json, puffin
from iceberg_cli.testing.iceberg_reader import (
    deleted_positions,
    entries_of,
    manifests_of,
    snapshot_of,
)
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Key, Manifest, ManifestDraft, is_vector, key_of

SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}
_SNAPSHOT_KEYS = ("snapshot-id", "sequence-number", "timestamp-ms", "summary", "manifest-list", "schema-id")


@dataclass(kw_only=True)
class _Commit(IcebergWriter):
    """Writes one commit of the engine on what is in the storage."""

    early: bool = False

    inherited: ClassVar[tuple[str, ...]] = ("snapshot_id", "sequence_number", "file_sequence_number")
    partition_summaries: ClassVar[bool] = False
    java_order: ClassVar[bool] = False
    json_separators: ClassVar[tuple[str, str]] = (", ", ": ")

    def manifests_of(self, snapshot_id: int | None) -> tuple[Manifest, ...]:
        if snapshot_id is None:
            return ()
        rows = manifests_of(self.storage, snapshot_of(self.document, snapshot_id))  # type: ignore[arg-type]
        return tuple(Manifest(row, tuple(entries_of(self.storage, row))) for row in rows)  # type: ignore[arg-type]

    def manifest_name(self, draft: ManifestDraft) -> str:
        return f"{self.snapshot_id}-{f'a{draft.content}' if draft.added else f'r{draft.listed}'}.avro"

    def list_name(self, snapshot_id: int) -> str:
        return f"snap-{snapshot_id}.avro"

    def summary(self, manifests: object) -> dict[str, str]:  # noqa: ARG002 - it counts nothing
        return {}

    def write_manifest(self, draft: ManifestDraft, sequence_number: int) -> Manifest:
        if self.early:
            entries = [{**each, "file_sequence_number": None} for each in draft.entries]
            draft = draft._replace(entries=entries)
        return super().write_manifest(draft, sequence_number)


@dataclass
class OtherEngine:
    """Commits to the table that a world's pointer names. Its snapshots are 1001, 1002 and so on."""

    world: World
    commits: int = 0
    early: bool = False  # does not know of file sequence numbers, as writers of v2 before Iceberg 1.1

    @property
    def storage(self) -> Storage:
        """Nothing befalls this process."""
        return SimStorage(self.world, Script())

    def create(self, *, format_version: int, properties: Mapping[str, str] | None = None) -> None:
        """Write the first metadata file."""
        writer = _Commit(
            storage=self.storage,
            location=ICEBERG_TABLE,
            format_version=format_version,
            schema=SCHEMA,
            properties=properties or {},
            time_ms=NOW_MS - 1_000_000,
        )
        writer.document |= {"table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "current-snapshot-id": -1}
        self._publish(writer, None)

    @property
    def current(self) -> str:
        """The current metadata location."""
        assert self.world.pointer is not None, "there is no table"
        return self.world.pointer

    @property
    def document(self) -> Json:
        """The current metadata."""
        found: Json = json.loads(self.storage.read(self.current))
        return found

    def append(self, *names: str, rows: int = 10, ref: str = "main") -> None:
        """Add data files of so many rows."""
        self._commit("append", ref, add=[self._data_file(name, rows) for name in names])

    def delete(self, positions: Mapping[str, Iterable[int]], *, ref: str = "main") -> None:
        """Delete rows: position deletes for all files in one file (v2), or one deletion vector a file (v3).

        A file that is not live by now is left out.
        """
        live = self._live(ref)
        data = {entry["file_path"]: entry for content, entry in live if content == DATA}
        targets = {f"{ICEBERG_TABLE}/data/{name}.parquet": {*chosen} for name, chosen in positions.items()}
        targets = {path: chosen for path, chosen in targets.items() if path in data}
        if not targets:
            return
        if self.document["format-version"] == 2:
            self._commit("delete", ref, add=[self._position_deletes(targets)])
            return
        deletes = [entry for content, entry in live if content == DELETES]
        replaced = [each for each in deletes if is_vector(each) and each["referenced_data_file"] in targets]
        merged = {
            path: targets[path] | deleted_positions(self.storage, data[path], deletes)
            for path in sorted(targets)
        }
        writer = self._writer()
        file, blobs = puffin(merged, separators=writer.json_separators)
        vectors = writer.puffin_file(f"deletes-{self.commits}.puffin", file, blobs)
        self._commit("delete", ref, add=vectors, remove=map(key_of, replaced))

    def replace(self, old: str, new: str, *, rows: int = 10, ref: str = "main") -> None:
        """Take a data file out and put another in its place, as a compaction does; its vector leaves with it."""
        path = f"{ICEBERG_TABLE}/data/{old}.parquet"
        live = self._live(ref)
        gone = [key_of(e) for content, e in live if content == DATA and e["file_path"] == path]
        if not gone:
            return
        gone += [
            key_of(e) for content, e in live if content == DELETES and e.get("referenced_data_file") == path
        ]
        self._commit("replace", ref, add=[self._data_file(new, rows)], remove=gone)

    def upgrade(self) -> None:
        """To version 3."""
        if self.document["format-version"] < 3:
            self.change({"format-version": 3, "next-row-id": 0})

    def change(self, fields: Mapping[str, object]) -> None:
        """Publish the metadata with other values at its top level."""
        writer = self._writer()
        writer.document |= fields
        self._publish(writer, self.current)

    def branch(self, name: str, *, of: str = "main", kind: str = "branch") -> None:
        """Create a branch or a tag at another ref's head."""
        refs = self.document["refs"]
        self.change({"refs": {**refs, name: {"snapshot-id": refs[of]["snapshot-id"], "type": kind}}})

    def _writer(self) -> _Commit:
        return _Commit(
            storage=self.storage,
            location=ICEBERG_TABLE,
            schema=SCHEMA,
            document=self.document,
            early=self.early,
        )

    def _live(self, ref: str) -> list[tuple[int, Entry]]:
        """The live entries of a branch, each with the content of its manifest."""
        document = self.document
        head = document["refs"].get(ref)
        found = self._writer().manifests_of(None if head is None else head["snapshot-id"])
        return [(manifest.row["content"], entry) for manifest in found for entry in manifest.live]

    def _data_file(self, name: str, rows: int) -> Entry:
        return self._writer().file(f"{name}.parquet", f"the rows of {name}".encode(), DATA, rows)

    def _position_deletes(self, positions: Mapping[str, set[int]]) -> Entry:
        rows = [(path, position) for path in sorted(positions) for position in sorted(positions[path])]
        columns = {
            "file_path": [path for path, _ in rows],
            "pos": pa.array([pos for _, pos in rows], pa.int64()),
        }
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        name = f"deletes-{self.commits}.parquet"
        return self._writer().file(name, sink.getvalue(), POSITION_DELETES, len(rows))

    def _commit(
        self, operation: str, ref: str, *, add: Iterable[Entry] = (), remove: Iterable[Key] = ()
    ) -> None:
        before, writer = self.current, self._writer()
        self.commits += 1
        writer.time_ms = writer.document["last-updated-ms"] + 1_000
        writer.commit_files(operation, add, remove, ref=ref, snapshot_id=1000 + self.commits)
        snapshot = writer.document["snapshots"][-1]
        writer.document["snapshots"][-1] = {name: snapshot[name] for name in _SNAPSHOT_KEYS} | snapshot
        writer.document["last-updated-ms"] = writer.time_ms
        self._publish(writer, before)

    def _publish(self, writer: _Commit, before: str | None) -> None:
        version = 0 if before is None else int(before.rpartition("/")[2].partition("-")[0]) + 1
        self.commits += 1
        writer.published = before
        self.world.pointer = writer.publish(f"{version:05d}-engine{self.commits}.metadata.json")

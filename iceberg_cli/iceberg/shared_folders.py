"""Tables that share a folder: a Delta table with its Iceberg half (UniForm), or two Iceberg tables.

Of one folder's files no table alone knows which are needed. So the Iceberg half of a Delta table is not written to, an
Iceberg table beside another one deletes nothing, and a Delta table keeps what the Iceberg metadata beside it reaches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from iceberg_cli.engines import Engine, OnEvent
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.catalogs.files.versions import number_of
from iceberg_cli.paths import METADATA_SUFFIXES, canonical, scheme_of
from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.table.nested_tables import DELTA_LOG, METADATA

if TYPE_CHECKING:
    from iceberg_cli.iceberg.reachability.keys import KnownKeys

_MARKS: Final = ("delta-version", "delta.universalFormat.enabledFormats")  # of Delta's own converter
_HEAD_BYTES: Final = 1 << 16
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"\\]*)"')
_UPDATED: Final = re.compile(rb'"last-updated-ms"\s*:\s*(\d{1,18})\b')
_THREADS: Final = 16


def delta_owner(storage: Storage, location: str, properties: Mapping[str, str]) -> str | None:
    """Why the files of an Iceberg table are a Delta table's to maintain, or None.

    Args:
        storage: of the table.
        location: canonical, without a slash at its end.
        properties: of the Iceberg table.
    """
    log = f"{location}/{DELTA_LOG}"
    if DELTA_LOG in storage.subfolders_many([location], [DELTA_LOG])[0]:
        return f"its folder is also that of a Delta table, which is the one to maintain: {log}"
    for name in _MARKS:
        if name in properties:
            return (
                f"table property {name}={properties[name]}: this is the Iceberg half of a Delta table, which is the "
                f"one to maintain: {log}"
            )
    return None


class _Head(NamedTuple):
    """What the beginning of a metadata file tells; the UUID is empty where it has none."""

    uuid: str
    updated_ms: int | None


@dataclass(kw_only=True)
class MetadataFiles:
    """The metadata files of Iceberg tables, each looked into once.

    Args:
        storage: that has them.
    """

    storage: Storage
    _heads: dict[str, _Head] = field(default_factory=dict)  # by path
    _locations: dict[str, str | None] = field(default_factory=dict)  # of their tables, canonical; by path

    def listed(self, folder: str) -> list[FileInfo]:
        """The metadata files directly in a folder, by number and time.

        Args:
            folder: canonical, such as `<table>/metadata`.
        """
        files = [info for info in self.storage.list(folder) if _is_metadata(info.path, folder)]
        return sorted(files, key=lambda info: (number_of(info.path), info.modified_ms))

    def by_uuid(self, files: Sequence[FileInfo]) -> dict[str, list[FileInfo]]:
        """Metadata files by the UUIDs of their tables, each in the order given.

        Returns:
            The UUID is empty for a file of a table that has none, or that cannot be read under a name that readers look
            for; one under another name, which a writer that died may leave, is left out.
        """
        unread = [info.path for info in files if info.path not in self._heads]
        with ThreadPoolExecutor(_THREADS) as pool:
            heads = dict(zip(unread, pool.map(self._head_of, unread), strict=True))
        # A file that cannot be read may be one that another writer has just begun: it is looked into again next time.
        self._heads |= {path: head for path, head in heads.items() if head is not None}
        found: dict[str, list[FileInfo]] = {}
        for info in files:
            head = self._heads.get(info.path)
            if head is not None or number_of(info.path) >= 0:
                found.setdefault("" if head is None else head.uuid, []).append(info)
        return found

    def updated_ms(self, info: FileInfo) -> int:
        """When the version of a metadata file was made: by itself, which copies keep, else by its storage."""
        head = self._heads.get(info.path)
        return info.modified_ms if head is None or head.updated_ms is None else head.updated_ms

    def is_of(self, info: FileInfo, folder: str) -> bool:
        """Whether the table of a metadata file shares a folder with another one; true where that cannot be told.

        Args:
            info: the file.
            folder: the other table's location, canonical and without a slash at its end.
        """
        if info.path not in self._locations:
            self._locations[info.path] = self._location_of(info.path)
        location = self._locations[info.path]
        return (
            location is None
            or f"{location}/".startswith(f"{folder}/")
            or f"{folder}/".startswith(f"{location}/")
        )

    def _location_of(self, path: str) -> str | None:
        from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file

        try:
            location = decode_metadata_file(self.storage.read(path), path).get("location")
        except (FileNotFoundError, CorruptFile):
            return None
        return canonical(location).rstrip("/") if isinstance(location, str) else None

    def _head_of(self, path: str) -> _Head | None:
        from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file

        try:
            head = self.storage.read(path, (0, _HEAD_BYTES))
            uuid, updated = _UUID.search(head), _UPDATED.search(head)
            if uuid is not None and updated is not None:
                return _Head(uuid[1].decode("utf-8", "replace"), int(updated[1]))
            document = decode_metadata_file(self.storage.read(path), path)
        except (FileNotFoundError, CorruptFile):
            return None
        found, updated_ms = document.get("table-uuid", ""), document.get("last-updated-ms")
        if not isinstance(found, str):
            return None
        return _Head(found, updated_ms if type(updated_ms) is int else None)


def _is_metadata(path: str, folder: str) -> bool:
    return path.endswith(METADATA_SUFFIXES) and path.rpartition("/")[0] == folder


@dataclass(kw_only=True)
class UniformFiles:
    """What Iceberg metadata in a Delta table's folder reaches.

    Args:
        storage: of the table.
        engine: reads manifests.
        root: the table's folder.
        on_event: progress.
    """

    storage: Storage
    engine: Engine
    root: str
    on_event: OnEvent
    _seen: Mapping[str, Sequence[FileInfo]] = field(default_factory=dict)
    _keys: KnownKeys | None = None

    def __post_init__(self) -> None:
        """Metadata files that were looked into stay known."""
        self._files = MetadataFiles(storage=self.storage)

    def tables(self) -> Mapping[str, str]:
        """The newest metadata file of each Iceberg table, by its UUID."""
        return {uuid: files[-1].path for uuid, files in self._by_uuid().items()}

    def _by_uuid(self) -> dict[str, list[FileInfo]]:
        """All metadata files, by the UUIDs of their tables."""
        if METADATA not in self.storage.subfolders_many([self.root], [METADATA])[0]:
            return {}
        return self._files.by_uuid(self._files.listed(f"{self.root}/{METADATA}"))

    def reachable(self, keys: pa.Array) -> pa.Array:
        """Which of n path keys are of files that one of these tables reaches.

        Raises:
            Refused: that cannot be told.
        """
        from iceberg_cli.iceberg.reachability.keys import keys_of

        by_uuid = self._by_uuid()
        if not by_uuid:
            return pa.repeat(value=False, size=len(keys))
        if self._keys is None or by_uuid != self._seen:
            self._keys, self._seen = self._reached(by_uuid), by_uuid
        return pa.array(self._keys.contains(keys_of(keys)))

    def _reached(self, by_uuid: Mapping[str, Sequence[FileInfo]]) -> KnownKeys:
        from iceberg_cli.iceberg.ownership import files_of_metadata
        from iceberg_cli.iceberg.reachability.keys import KnownKeys
        from iceberg_cli.iceberg.reachability.question import snapshot_files
        from iceberg_cli.iceberg.reachability.scan import Reachability
        from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
        from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
        from iceberg_cli.iceberg.unknown_metadata import read_unknown, unlogged
        from iceberg_cli.storage.aliases import OtherNames

        reachability = Reachability(engine=self.engine, on_event=self.on_event, trust_lists=False)
        if scheme_of(self.root) == "file":
            reachability.other_names = OtherNames([self.root])
        blocks = []
        for files in by_uuid.values():
            path = files[-1].path
            try:
                metadata = TableMetadata.from_json(
                    decode_metadata_file(self.storage.read(path), path), path=path
                )
                snapshots = [snapshot_files(snapshot) for snapshot in metadata.snapshots]
                named = files_of_metadata(metadata, path)
                blocks.append(reachability.everything_live(snapshots, named).whole())
                others = unlogged(files, metadata, path, updated_ms=self._files.updated_ms)
                roots = read_unknown(others, storage=self.storage, reached=reachability.still_reached)
                blocks += [root.keys.whole() for root in roots]
            except (CorruptFile, FileNotFoundError) as error:
                reason = error.message if isinstance(error, CorruptFile) else f"{path} is gone"
                raise Refused(
                    f"Cannot tell which files of {self.root} the Iceberg table needs whose metadata is in "
                    f"{METADATA}/: {reason}",
                    state="No file was deleted.",
                    next_step=f"Repair it, or, if nobody reads it any more, move {path} and its like away.",
                ) from error
        return KnownKeys(blocks)

"""Tables that share a folder: a Delta table with its Iceberg half (UniForm), or two Iceberg tables.

Of one folder's files no table alone knows which are needed. So the Iceberg half of a Delta table is not written to, an
Iceberg table beside another one deletes nothing, and a Delta table keeps what the Iceberg metadata beside it reaches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from iceberg_cli.engines import Engine, OnEvent
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.catalogs.folder_versions import number_of
from iceberg_cli.operation.nested_tables import DELTA_LOG, METADATA
from iceberg_cli.paths import METADATA_SUFFIXES, scheme_of
from iceberg_cli.storage import Storage

if TYPE_CHECKING:
    from iceberg_cli.iceberg.reachability.keys import KnownKeys

_MARKS: Final = ("delta-version", "delta.universalFormat.enabledFormats")  # of Delta's own converter
_HEAD_BYTES: Final = 1 << 16
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"\\]*)"')
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


@dataclass(kw_only=True)
class MetadataFiles:
    """The metadata files of Iceberg tables, each looked into once.

    Args:
        storage: that has them.
    """

    storage: Storage
    _uuids: dict[str, str | None] = field(default_factory=dict)  # by path; None: it cannot be read

    def newest(self, folder: str, *, besides: Collection[str] = ()) -> dict[str, str]:
        """The newest metadata file of each table that has some in a folder, by the table's UUID.

        Args:
            folder: canonical, such as `<table>/metadata`.
            besides: paths of files that are left out.

        Returns:
            Paths; the UUID is empty where a table has none.
        """
        files = [info for info in self.storage.list(folder) if _is_metadata(info.path, folder)]
        files = [info for info in files if info.path not in besides]
        unread = [info.path for info in files if info.path not in self._uuids]
        with ThreadPoolExecutor(_THREADS) as pool:
            self._uuids |= zip(unread, pool.map(self._uuid_of, unread), strict=True)
        newest_files: dict[str, str] = {}
        for info in sorted(files, key=lambda info: (number_of(info.path), info.modified_ms)):
            uuid = self._uuids[info.path]
            # Of a writer that died, a file that cannot be read may be left under a name that no reader looks for.
            if uuid is not None or number_of(info.path) >= 0:
                newest_files[uuid or ""] = info.path
        return newest_files

    def _uuid_of(self, path: str) -> str | None:
        from iceberg_cli.iceberg.spec.metadata_file import decode_metadata_file

        try:
            match = _UUID.search(self.storage.read(path, (0, _HEAD_BYTES)))
            if match is not None:
                return match[1].decode("utf-8", "replace")
            uuid = decode_metadata_file(self.storage.read(path), path).get("table-uuid", "")
        except (FileNotFoundError, CorruptFile):
            return None
        return uuid if isinstance(uuid, str) else None


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
    _tables: Mapping[str, str] = field(default_factory=dict)
    _keys: KnownKeys | None = None

    def __post_init__(self) -> None:
        """Metadata files that were looked into stay known."""
        self._files = MetadataFiles(storage=self.storage)

    def tables(self) -> Mapping[str, str]:
        """The newest metadata file of each Iceberg table, by its UUID."""
        if METADATA not in self.storage.subfolders_many([self.root], [METADATA])[0]:
            return {}
        return self._files.newest(f"{self.root}/{METADATA}")

    def reachable(self, keys: pa.Array) -> pa.Array:
        """Which of n path keys are of files that one of these tables reaches.

        Raises:
            Refused: that cannot be told.
        """
        from iceberg_cli.iceberg.reachability.keys import keys_of

        tables = self.tables()
        if not tables:
            return pa.repeat(value=False, size=len(keys))
        if self._keys is None or tables != self._tables:
            self._keys, self._tables = self._reached(tables), tables
        return pa.array(self._keys.contains(keys_of(keys)))

    def _reached(self, tables: Mapping[str, str]) -> KnownKeys:
        from iceberg_cli.iceberg.ownership import files_of_metadata
        from iceberg_cli.iceberg.reachability.keys import KnownKeys
        from iceberg_cli.iceberg.reachability.question import snapshot_files
        from iceberg_cli.iceberg.reachability.scan import Reachability
        from iceberg_cli.iceberg.spec.metadata import TableMetadata
        from iceberg_cli.iceberg.spec.metadata_file import decode_metadata_file
        from iceberg_cli.storage.aliases import OtherNames

        reachability = Reachability(engine=self.engine, on_event=self.on_event, trust_lists=False)
        if scheme_of(self.root) == "file":
            reachability.other_names = OtherNames([self.root])
        blocks = []
        for path in tables.values():
            try:
                metadata = TableMetadata.from_json(
                    decode_metadata_file(self.storage.read(path), path), path=path
                )
                snapshots = [snapshot_files(snapshot) for snapshot in metadata.snapshots]
                blocks.append(
                    reachability.everything_live(snapshots, files_of_metadata(metadata, path)).whole()
                )
            except (CorruptFile, FileNotFoundError) as error:
                reason = error.message if isinstance(error, CorruptFile) else f"{path} is gone"
                raise Refused(
                    f"Cannot tell which files of {self.root} the Iceberg table needs whose metadata is in "
                    f"{METADATA}/: {reason}",
                    state="No file was deleted.",
                    next_step=f"Repair it, or, if nobody reads it any more, move {path} and its like away.",
                ) from error
        return KnownKeys(blocks)

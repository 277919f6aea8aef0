"""The names of all files that a table reaches, and that metadata files beside its own do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_cli.iceberg.metadata_beside import MetadataBeside
from iceberg_cli.iceberg.ownership import files_of_metadata
from iceberg_cli.iceberg.reachability.keys import KnownKeys
from iceberg_cli.iceberg.reachability.names import ListedFolders, Names, NamesReader
from iceberg_cli.iceberg.reachability.question import SnapshotFiles, snapshot_files
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.unknown_metadata import read_unknown
from iceberg_cli.storage import FileInfo, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesNow:
    """Reachable files of one version of a table.

    Args:
        own: that the table reaches.
        beside: keys of the names of those that each metadata file beside its own reaches, by the name of that one.
    """

    own: Names
    beside: Mapping[str, KnownKeys]


@dataclass(kw_only=True)
class TableNames:
    """Reads the names of reachable files, again once the table, or what is beside its metadata, is another.

    Args:
        storage: of the table.
        reader: of manifests.
        beside: the metadata files beside the table's own.
        loaded: the table's metadata as it was loaded last, and where that is.
    """

    storage: Storage
    reader: NamesReader
    beside: MetadataBeside
    loaded: Callable[[], tuple[TableMetadata, str]]
    _own: tuple[str, Names] | None = None
    _beside: tuple[tuple[FileInfo, ...], Mapping[str, KnownKeys]] = field(default=((), {}))

    def now(
        self,
        listed: ListedFolders | None = None,
        *,
        checked_before_ms: int | None = None,
        forgotten: frozenset[str] = frozenset(),
    ) -> NamesNow:
        """Those of the table as it was loaded last.

        Args:
            listed: what all reachable files are held against; None: nothing.
            checked_before_ms: only what snapshots reach that are older is held against it; None: all.
            forgotten: names of metadata files beside the table's own that no table needs.

        Raises:
            CorruptFile: what must be read cannot be read whole.
            Refused: a manifest or list is encrypted, or a metadata file beside the table's own cannot be read here.
        """
        metadata, location = self.loaded()
        if listed is not None:  # what was read before was held against another listing
            self._own = None
            self.reader.forget()
        if self._own is None or self._own[0] != location:
            self.reader.look_again_for_links()
            snapshots = [snapshot_files(each) for each in metadata.snapshots]
            logged = [entry.metadata_file for entry in metadata.metadata_log]
            named = [each for each in files_of_metadata(metadata, location) if each not in {*logged}]
            if checked_before_ms is None or listed is None:
                own = self.reader.everything_live(snapshots, named, logged=logged, listed=listed)
            else:
                old = [each for each in snapshots if each.timestamp_ms < checked_before_ms]
                first = self.reader.everything_live(old, [], listed=listed)
                whole = self.reader.everything_live(snapshots, named, logged=logged)
                own = Names(
                    names=whole.names,
                    paths=whole.paths,
                    listed=first.listed,
                    folders=first.folders | whole.folders,
                )
            self._own = location, own
        files = self.beside.unknown_files(forgotten)
        if files != self._beside[0]:
            self.reader.look_again_for_links()
            roots = read_unknown(files, storage=self.storage, reached=self._reached)
            self._beside = files, {root.name: root.keys for root in roots}
        return NamesNow(own=self._own[1], beside=self._beside[1])

    def _reached(self, snapshots: Sequence[SnapshotFiles], named: Sequence[str]) -> KnownKeys:
        return self.reader.still_reached(snapshots, named).names

"""The metadata files in a table's folders that its metadata does not name: another table's, or of none known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.ownership import files_of_metadata, metadata_folders
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.shared_folders import MetadataFiles
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.unknown_metadata import FORGET_METADATA, UnknownMetadata, read_unknown, unlogged
from iceberg_cli.paths import canonical
from iceberg_cli.storage import FileInfo, Storage
from iceberg_cli.table.nested_tables import METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What there is beside one version of a table.

    Args:
        version: the table's metadata file then.
        other: UUID and newest metadata file of another table.
        shared: folders with metadata files of other tables.
        unknown: those of the table's own UUID, or of none, that are not of versions before its log.
        superseded: those of its own UUID that are of such versions.
    """

    version: str
    other: tuple[str, str] | None
    shared: frozenset[str]
    unknown: tuple[FileInfo, ...]
    superseded: tuple[FileInfo, ...]


@dataclass(kw_only=True)
class MetadataBeside:
    """The metadata files beside a table's own.

    Folders are listed once for each version of the table, for they may hold very many manifests.

    Args:
        storage: of the table.
        reachability: of the table.
        loaded: the table's metadata as it was loaded last, and where that is.
    """

    storage: Storage
    reachability: Reachability
    loaded: Callable[[], tuple[TableMetadata, str]]
    _neighbours: MetadataFiles = field(init=False)
    _found: _Found | None = None
    _unknown: tuple[tuple[FileInfo, ...], list[UnknownMetadata]] | None = None

    def __post_init__(self) -> None:
        """Each file is looked into once."""
        self._neighbours = MetadataFiles(storage=self.storage)

    def other_owner(self) -> str | None:
        """Why some of the table's files may be those of another Iceberg table in its folder, or None."""
        other = self._files().other
        if other is None:
            return None
        return (
            f"another table, {other[0]}, has its metadata in the same folder and may need the same files: {other[1]} "
            "(if that table is no more, move its metadata files away)"
        )

    def unknown(self, forgotten: frozenset[str]) -> list[UnknownMetadata]:
        """The metadata files whose files stay; read again where there are others.

        Args:
            forgotten: names of those that no table needs.

        Raises:
            CorruptFile: one cannot be read. Refused: one is of a newer version, or encrypted.
        """
        files = self.unknown_files(forgotten)
        if self._unknown is None or self._unknown[0] != files:
            roots = read_unknown(files, storage=self.storage, reached=self.reachability.still_reached)
            self._unknown = files, roots
        return self._unknown[1]

    def unknown_files(self, forgotten: frozenset[str]) -> tuple[FileInfo, ...]:
        """The same, not read."""
        return tuple(info for info in self._files().unknown if _name(info) not in forgotten)

    def superseded(self) -> tuple[FileInfo, ...]:
        """The metadata files of the table's own versions before those that its log names."""
        return self._files().superseded

    def shared_folders(self) -> frozenset[str]:
        """The canonical folders of the table's metadata in which other tables have theirs."""
        return self._files().shared

    def check_forgotten(self, names: frozenset[str]) -> None:
        """Refuse names of metadata files that are not beside the table's own.

        Raises:
            UsageError: naming the first.
        """
        if not names:
            return
        unknown = {_name(info) for info in self._files().unknown}
        own = {path.rpartition("/")[2] for path in files_of_metadata(*self.loaded())}
        for name in sorted(names - unknown):
            why = (
                "it is the table's own"
                if name in own
                else "no metadata file of that name keeps files of the table"
            )
            raise UsageError(f"{FORGET_METADATA}: {name}: {why}")

    def look_again(self) -> None:
        """List the folders anew when it is asked next: a clone may have come."""
        self._found = None

    def _files(self) -> _Found:
        metadata, location = self.loaded()
        if self._found is None or self._found.version != location:
            besides = {self.storage.canonical(path) for path in files_of_metadata(metadata, location)}
            other, shared, unknown, superseded = None, set[str](), [], []
            place = canonical(metadata.location).rstrip("/")
            for folder in sorted({f"{place}/{METADATA}", *metadata_folders(metadata, location)}):
                listed = self._neighbours.listed(folder)
                found = self._neighbours.by_uuid([info for info in listed if info.path not in besides])
                mine = ("", metadata.table_uuid or "")
                for uuid in sorted(found.keys() - {*mine}):
                    newest = found[uuid][-1]
                    shared.add(folder)
                    # Tables may share a folder of metadata elsewhere, as long as their own are apart.
                    if folder.startswith(f"{place}/") or self._neighbours.is_of(newest, place):
                        other = other or (uuid, newest.path)
                of_this = [info for uuid in {*mine} for info in found.get(uuid, ())]
                updated_ms = self._neighbours.updated_ms
                beside = unlogged(of_this, metadata, location, updated_ms=updated_ms)
                unknown += beside
                own_uuid = found.get(metadata.table_uuid, ()) if metadata.table_uuid else ()
                superseded += sorted({*own_uuid}.difference(beside))
            self._found = _Found(
                version=location,
                other=other,
                shared=frozenset(shared),
                unknown=tuple(unknown),
                superseded=tuple(superseded),
            )
        return self._found


def _name(info: FileInfo) -> str:
    return info.path.rpartition("/")[2]

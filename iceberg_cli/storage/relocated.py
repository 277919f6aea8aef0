"""A copy of a table in another place than its metadata states: paths of the original are read from the copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from iceberg_cli.paths import canonical
from iceberg_cli.storage import FileInfo, Storage, Writer


class RelocatedStorage(Storage):
    """A read-only storage that reads paths below `original` from `copy`, and all others from where they are.

    Args:
        storage: that has the copy.
        original: the table's location by its metadata.
        copy: the folder that was opened.
    """

    def __init__(self, storage: Storage, *, original: str, copy: str) -> None:
        self._storage = storage
        spelled = original.rstrip("/")
        # Some writers drop a leading "./" in manifests that they keep in the metadata.
        self._originals = tuple(dict.fromkeys((spelled, canonical(spelled), spelled.removeprefix("./"))))
        self._copy = copy.rstrip("/")

    def _moved(self, path: str) -> str:
        for original in self._originals:
            for spelling in (path, canonical(path)):
                if spelling == original or spelling.startswith(original + "/"):
                    return self._copy + spelling[len(original) :]
        return path

    def canonical(self, path: str) -> str:
        """The key of the copy's file."""
        return self._storage.canonical(self._moved(path))

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The copy's file, or a part of it."""
        return self._storage.read(self._moved(path), span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of the copy's files."""
        return self._storage.stat_many([self._moved(path) for path in paths], versions=versions)

    def list(self, folder: str) -> Iterator[FileInfo]:
        """The copy's files."""
        return self._storage.list(self._moved(folder))

    def paths(self, folder: str) -> Iterator[str]:
        """The copy's paths."""
        return self._storage.paths(self._moved(folder))

    def holds_any(self, folder: str) -> bool:
        """Whether the copy has files there."""
        return self._storage.holds_any(self._moved(folder))

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder."""
        return self._storage.subfolders(self._moved(folder))

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Folders of the copy."""
        return self._storage.subfolders_many([self._moved(folder) for folder in folders], names)

    def put_if_absent(self, path: str, data: bytes) -> None:  # noqa: ARG002 - the port's signature
        """Refused: a copy has no committer."""
        raise AssertionError(f"{path} belongs to a copy, which is read-only")

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:  # noqa: ARG002
        """Refused: a copy has no committer."""
        raise AssertionError(f"{path} belongs to a copy, which is read-only")

    def abort_upload(self, path: str, upload_id: str) -> None:  # noqa: ARG002
        """Refused: a copy has no committer."""
        raise AssertionError(f"{path} belongs to a copy, which is read-only")

    def replace(self, path: str, data: bytes) -> None:  # noqa: ARG002 - the port's signature
        """Refused: a copy has no committer."""
        raise AssertionError(f"{path} belongs to a copy, which is read-only")

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Refused: a copy has no committer."""
        return dict.fromkeys(paths, "it belongs to a copy, which is read-only")

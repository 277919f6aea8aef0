"""Aliases of local files: the further paths that symbolic links to folders and to files give them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import unavailable
from iceberg_cli.paths import folder_column, path_key_column
from iceberg_cli.storage.local.delete import reason_of

_MOST_HOPS = 40  # as the system follows


class OtherNames:
    """The paths under which a table could list the same files.

    Args:
        folders: canonical local folders in which the table may delete, as the table spells them.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._real_folders: dict[str, str] = {}
        self._links: dict[str, list[str]] = {}  # by folder
        pairs = [(self._real(folder), folder) for folder in folders]
        self._linked = [(real, spelled) for real, spelled in pairs if real != spelled]

    def of(self, keys: pa.Array) -> list[pa.Array]:
        """The other paths that n files may have.

        Args:
            keys: n path keys, such as `/a/b`.

        Returns:
            Arrays of n keys: first with every link to a folder resolved, then as each of the table's folders that is
            behind a link spells the file; where the file is not in that folder, the resolved one again.
            None at all where no link is on the way.
        """
        folders = folder_column(keys).dictionary_encode()
        spelled_folders = folders.dictionary.to_pylist()
        real_folders = [self._real(folder) for folder in spelled_folders]
        if real_folders == spelled_folders and not self._linked:
            return []
        real = pa.array(real_folders, keys.type)
        names = pc.replace_substring_regex(keys, r"(?s)^.*/", "")
        resolved = pc.binary_join_element_wise(real.take(folders.indices), names, "/")
        found = [resolved]
        for folder, spelled in self._linked:
            rest = pc.utf8_slice_codeunits(resolved, len(folder))
            renamed = pc.binary_join_element_wise(pa.scalar(spelled, keys.type), rest, "")
            found.append(pc.if_else(pc.starts_with(resolved, f"{folder}/"), renamed, resolved))
        return found

    def resolved(self, paths: pa.Array) -> pa.Array:
        """The path keys of n paths with every link to a folder resolved: one file has one key.

        Args:
            paths: n strings without nulls.
        """
        keys = path_key_column(paths)
        others = self.of(keys) if len(keys) else []
        return others[0] if others else keys

    def behind_links(self, keys: pa.Array) -> pa.Array:
        """The targets of those of n files that are symbolic links: each link on the way, and its end.

        Args:
            keys: n path keys. Their folders are listed, each once.

        Returns:
            Path keys by all names, empty where there is no such link.

        Raises:
            BackendUnavailable: a folder cannot be listed.
        """
        links = self.links_in(self.folders(keys))
        linked = pc.is_in(keys, value_set=pa.array(links, keys.type)) if links else None
        if linked is None or not linked.true_count:
            return keys.slice(0, 0)
        found = pa.array(self.targets_of(pc.unique(keys.filter(linked)).to_pylist()), keys.type)
        return pa.concat_arrays([found, *self.of(found)])

    def links_in(self, folders: Iterable[str]) -> list[str]:
        """The symbolic links directly in some folders, path keys without a slash at their end.

        Raises:
            BackendUnavailable: a folder cannot be listed.
        """
        return [link for folder in folders for link in self._links_in(folder)]

    def look_again(self) -> None:
        """Look through folders anew when links are asked for next: some may have come."""
        self._links.clear()

    def targets_of(self, links: Iterable[str]) -> list[str]:
        """What some symbolic links lead to: each link on the way, and its end."""
        return [hop for link in links for hop in self._hops(link)]

    def _links_in(self, folder: str) -> list[str]:
        """The symbolic links directly in a folder; none where there is no folder."""
        if folder not in self._links:
            try:
                with os.scandir(folder or "/") as entries:
                    links = [f"{folder}/{entry.name}" for entry in entries if entry.is_symlink()]
            except (FileNotFoundError, NotADirectoryError, ValueError):
                links = []
            except OSError as error:
                raise unavailable(f"Cannot look through {folder}: {reason_of(error)}.", error) from error
            self._links[folder] = [os.fsencode(link).decode("utf-8", "backslashreplace") for link in links]
        return self._links[folder]

    def _hops(self, link: str) -> list[str]:
        """The targets of a link, link by link."""
        found: list[str] = []
        at = link
        while os.path.islink(at) and len(found) < _MOST_HOPS:
            folder = at.rpartition("/")[0]
            target = os.path.join(folder, os.readlink(at))
            at = f"{self._real(target.rpartition('/')[0])}/{target.rpartition('/')[2]}"
            found.append(at)
        return found

    def folders(self, keys: pa.Array) -> list[str]:
        """The folders of n files, each once.

        Args:
            keys: n path keys.
        """
        found: list[str] = pc.unique(folder_column(keys)).to_pylist()
        return found

    def only_one(self, folders: Iterable[str]) -> bool:
        """Whether no link is on the way to any of these folders, nor to the table's own: `of` finds no names."""
        return not self._linked and all(self._real(folder) == folder for folder in folders)

    def _real(self, folder: str) -> str:
        if folder not in self._real_folders:
            resolvable = folder.startswith("/") and "\0" not in folder
            real = os.path.realpath(folder) if resolvable else folder
            # A folder's name may be no valid UTF-8; it only has to give the same text each time.
            self._real_folders[folder] = os.fsencode(real).decode("utf-8", "backslashreplace").rstrip("/")
        return self._real_folders[folder]

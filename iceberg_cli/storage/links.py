"""The other names of local files: symbolic links to folders give one file several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import folder_column


class OtherNames:
    """Tells under which other names a table could list the same files.

    Args:
        folders: canonical local folders in which the table may delete, as the table spells them.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._real_folders: dict[str, str] = {}
        pairs = [(self._real(folder), folder) for folder in folders]
        self._linked = [(real, spelled) for real, spelled in pairs if real != spelled]

    def of(self, keys: pa.Array) -> list[pa.Array]:
        """The names that n files may have too.

        Args:
            keys: n liveness keys, such as `/a/b`.

        Returns:
            Arrays of n keys: first with every link to a folder resolved, then as each of the table's folders that is
            reached through a link spells the file; where that folder does not hold it, the resolved one again.
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

    def folders(self, keys: pa.Array) -> list[str]:
        """The folders of n files, each once.

        Args:
            keys: n liveness keys.
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
            # A folder's name may be no text; it only has to be the same text each time.
            self._real_folders[folder] = os.fsencode(real).decode("utf-8", "backslashreplace").rstrip("/")
        return self._real_folders[folder]

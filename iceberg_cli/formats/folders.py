"""Tables below a folder, found by the folders and names that their formats ask for. None is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.paths import METADATA_SUFFIXES, OPERATIONS_FOLDER, scheme_of
from iceberg_cli.storage import Storage
from iceberg_cli.table.nested_tables import DELTA_LOG, METADATA, has_iceberg_metadata

VIEW: Final = "view"  # what stands for a format where a folder is no table's, but a view's
_VIEW_ID: Final = "view-uuid"
_NO_TABLES_BELOW: Final = (DELTA_LOG, METADATA, OPERATIONS_FOLDER.partition("/")[0])


class FoundTable(NamedTuple):
    """A table's canonical folder, its format, and how it is named where the folder has tables of two formats."""

    folder: str
    format: str
    name: str


def table_in(storage: Storage, folder: str, subfolders: Collection[str]) -> FoundTable | None:
    """The table whose folder this is, or None: a log makes it Delta, metadata files Iceberg.

    Where there are both, the Delta table is the one to maintain, and is named by its log. Metadata files alone, without
    a manifest or whatever else a table with data has, may be those of a view: the newest is read for that.

    Args:
        storage: of the folder.
        folder: canonical.
        subfolders: the names of the folders directly in it.

    Raises:
        BackendUnavailable: it cannot be listed.
    """
    is_delta = DELTA_LOG in subfolders
    if METADATA in subfolders and has_iceberg_metadata(storage, f"{folder}/{METADATA}"):
        name = f"{folder}/{DELTA_LOG}" if is_delta else folder
        if not is_delta and _is_view(storage, f"{folder}/{METADATA}"):
            return FoundTable(folder, VIEW, folder)
        return FoundTable(folder, "delta" if is_delta else "iceberg", name)
    return FoundTable(folder, "delta", folder) if is_delta else None


def _is_view(storage: Storage, folder: str) -> bool:
    """Whether a metadata folder is a view's.

    Spec: Iceberg view specification, "Metadata Files".
    """
    newest = ""
    for path in storage.paths(folder):
        if not path.endswith(METADATA_SUFFIXES) or "/" in path[len(folder) + 1 :]:
            return False
        newest = path
    from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file

    try:
        return _VIEW_ID in decode_metadata_file(storage.read(newest), newest)
    except (CorruptFile, FileNotFoundError):  # whoever opens it tells
        return False


def tables_below(
    storage: Storage,
    root: str,
    *,
    may_match: Callable[[str], bool],
    may_match_below: Callable[[str], bool],
    on_failure: Callable[[str, BackendUnavailable], None],
) -> Iterator[FoundTable]:
    """The tables in a folder and below it, by path; a table inside another one is a table of its own.

    Views are among them, by the format `VIEW`.

    Links to folders below it are tables where one is there, and what is below them is not looked at.

    Args:
        storage: of the folder.
        root: canonical, without a slash at its end.
        may_match: whether a table in this folder is meant.
        may_match_below: whether one in a folder below this one may be.
        on_failure: gets each folder that cannot be looked into, with the reason; the others are looked into.
    """
    waiting = [root]  # the folder to look at next comes last
    while waiting:
        folder = waiting.pop()
        # The folder that was named may be a link itself.
        is_link = folder != root and scheme_of(folder) == "file" and os.path.islink(folder)
        meant, below = may_match(folder), may_match_below(folder) and not is_link
        if not meant and not below:
            continue
        try:
            subfolders = list(storage.subfolders(folder or "/"))
            found = table_in(storage, folder, subfolders) if meant else None
        except BackendUnavailable as error:
            on_failure(folder, error)
            continue
        if found is not None:
            yield found
        if below:
            waiting += (f"{folder}/{name}" for name in reversed(subfolders) if name not in _NO_TABLES_BELOW)

"""Which metadata file of a table's folder is current, where no catalog says so.

Spec: Iceberg, "File System Tables"; the hint file and the probing are those of Java's HadoopTableOperations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from iceberg_cli.errors import TableNotFound
from iceberg_cli.paths import METADATA_SUFFIXES
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage import FileInfo, Storage

HINT = "version-hint.text"

_EXTENSIONS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_VERSIONED = re.compile(r"v(\d+)(?:\.metadata\.json|\.gz\.metadata\.json|\.metadata\.json\.gz)")
_NAMED = 3  # files in an error
_MOST_DIGITS = 19  # longer numbers are no versions
# A catalog's file has a number before its UUID; a UUID alone is a temporary file of Java's.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OF_CATALOG = re.compile(rf"(?!{_UUID}\.)(\d+)-[^/]+\.metadata\.json(?:\.gz)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderMetadata:
    """The metadata file that a folder shows as its newest."""

    location: str
    version: int | None  # of a file system table; None: the name is a catalog's


def find_current(folder: str, storage: Storage) -> FolderMetadata:
    """Start at the hint and go up while there is a next version; without a usable hint, start at the highest.

    Args:
        folder: the table's folder in canonical spelling, without a slash at its end.
        storage: that reads it.

    Raises:
        TableNotFound: there is no metadata file in it.
    """
    version = _hinted(folder, storage)
    if version is None or not (location := spelling_of(folder, version, storage)):
        files = metadata_files(folder, storage)
        versions = {int(match[1]): name for name in files if (match := _VERSIONED.fullmatch(name))}
        if not versions:
            return _newest_of_catalog(folder, files, storage)
        version = max(versions)
        location = f"{folder}/metadata/{versions[version]}"
    while following := spelling_of(folder, version + 1, storage):
        version, location = version + 1, following
    return FolderMetadata(location=location, version=version)


def metadata_files(folder: str, storage: Storage) -> dict[str, FileInfo]:
    """Files directly in the folder's `metadata`, by name."""
    inside = f"{folder}/metadata"
    files = {info.path.removeprefix(f"{inside}/"): info for info in storage.list(inside)}
    return {name: info for name, info in files.items() if "/" not in name}


def pointing_files(folder: str, storage: Storage) -> list[FileInfo]:
    """The files by which a reader finds the current metadata: metadata files and the hint, from one listing."""
    files = metadata_files(folder, storage)
    return [info for name, info in files.items() if name == HINT or name.endswith(METADATA_SUFFIXES)]


def spelling_of(folder: str, version: int, storage: Storage, *, besides: str = "") -> str | None:
    """Where the metadata file of this version is, under whichever of its possible names but `besides`."""
    for extension in _EXTENSIONS:
        location = f"{folder}/metadata/v{version}{extension}"
        if location == besides:
            continue
        try:
            storage.stat(location)
        except FileNotFoundError:
            continue
        return location
    return None


def version_of(location: str) -> int | None:
    """The version that a metadata file's name gives, or None where the name is not of a file system table."""
    match = _VERSIONED.fullmatch(location.rpartition("/")[2])
    return int(match[1]) if match else None


def number_of(location: str) -> int:
    """The number in the name of a metadata file, of a catalog or of none; -1 in a name that no reader looks for."""
    name = location.rpartition("/")[2]
    match = _VERSIONED.fullmatch(name) or _OF_CATALOG.fullmatch(name)
    return int(match[1]) if match and len(match[1]) < _MOST_DIGITS else -1


def of_catalog(folder: str, storage: Storage) -> str | None:
    """The newest metadata file with a catalog's kind of name, or None."""
    start = len(f"{folder}/metadata/")
    names = (path[start:] for path in storage.paths(f"{folder}/metadata"))
    return max((name for name in names if _OF_CATALOG.fullmatch(name)), default=None)


def _hinted(folder: str, storage: Storage) -> int | None:
    try:
        text = storage.read(f"{folder}/metadata/{HINT}").strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() and len(text) < _MOST_DIGITS else None


def _no_table(name: str, storage: Storage, files: Collection[str] = ()) -> TableNotFound:
    """The error for a path that is no table's folder.

    Args:
        name: the path.
        storage: of it.
        files: names of the files in its `metadata`.
    """
    above, _, last = name.rpartition("/")
    try:
        storage.stat(name)
    except FileNotFoundError:
        if not storage.holds_any(name):
            if name.startswith("/") and os.path.isdir(name):
                return TableNotFound(f"Cannot find a table at {name}: the folder has no files.")
            what = "no such folder" if name.startswith("/") and "." not in last else "no file is there"
            return TableNotFound(
                f"Cannot find a table at {name}: {what}.{did_you_mean(last, _beside(above))}"
            )
        if last == "metadata" and any(path.endswith(METADATA_SUFFIXES) for path in storage.paths(name)):
            next_step = f"Name the folder above it: {above}"
            return TableNotFound(
                f"Cannot open {name}: it is the metadata folder of a table.", next_step=next_step
            )
        if odd := sorted(each for each in files if each.endswith(METADATA_SUFFIXES)):
            more = f" and {len(odd) - _NAMED:,} more" if len(odd) > _NAMED else ""
            return TableNotFound(
                f"Cannot find an Iceberg table in {name}: metadata/ has {', '.join(odd[:_NAMED])}{more}, by whose names"
                " no reader finds a version: these are vN.metadata.json or NNNNN-UUID.metadata.json.",
                next_step=f"Where one of them is the table's, name it: {name}/metadata/{odd[-1]}",
            )
        return TableNotFound(f"Cannot find an Iceberg table in {name}: metadata/ has no metadata file.")
    return TableNotFound(
        f"Cannot open {name}: it is a file, no table's folder, and the name of no metadata file, which ends in "
        f"{' or '.join(METADATA_SUFFIXES)}.",
        next_step="Name the table's folder, one of its metadata files, or the table in a catalog.",
    )


def _beside(folder: str) -> list[str]:
    """The names in a local folder; an object store's may be too many to list for an error."""
    try:
        return os.listdir(folder) if folder.startswith("/") else []
    except OSError:
        return []


def _newest_of_catalog(folder: str, files: dict[str, FileInfo], storage: Storage) -> FolderMetadata:
    numbered = [
        (int(match[1]), info.modified_ms, info.path)
        for name, info in files.items()
        if (match := _OF_CATALOG.fullmatch(name))
    ]
    if not numbered:
        raise _no_table(folder, storage, files)
    return FolderMetadata(location=max(numbered)[2], version=None)

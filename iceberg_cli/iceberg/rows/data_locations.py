"""Where new data files of a table are, by its properties: in folders of partitions, or spread over hashes.

Their names and meaning are Iceberg Java's (`write.data.path`, `write.object-storage.*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import mmh3

DATA_PATH: Final = "write.data.path"
_FOLDER_PATH: Final = "write.folder-storage.path"
_OBJECT_STORAGE: Final = "write.object-storage."
_ENABLED: Final = f"{_OBJECT_STORAGE}enabled"
_PROVIDER: Final = "write.location-provider.impl"
_HASH_BITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLocations:
    """Where new data files are.

    Args:
        root: their folder, without a slash at its end.
        by_hash: whether folders of a hash come next.
        with_partitions: whether folders of the partition follow.
        context: what follows the hash outside of the table's own location.
        refused: properties that are not obeyed, with the reason.
    """

    root: str
    by_hash: bool = False
    with_partitions: bool = True
    context: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    def path(self, partition_path: str, name: str) -> str:
        """The path of a new file.

        Args:
            partition_path: see there; empty: the spec has no fields.
            name: of the file.
        """
        folders = [partition_path] if partition_path and self.with_partitions else []
        if not self.by_hash:
            return "/".join([self.root, *folders, name])
        bits = _hash_folders("/".join([*folders, name]))
        if not self.with_partitions and not self.context:
            return f"{self.root}/{bits}-{name}"
        return "/".join([self.root, bits, *([self.context] if self.context else []), *folders, name])


def data_locations(location: str, properties: Mapping[str, str]) -> DataLocations:
    """Where new data files of a table are.

    Args:
        location: of the table.
        properties: of the table.
    """
    refused = {}
    if _PROVIDER in properties:
        refused[_PROVIDER] = f"{properties[_PROVIDER]} is a class of Java"
    location = location.rstrip("/")
    by_hash = properties.get(_ENABLED, "").strip().lower() == "true"
    names = (DATA_PATH, f"{_OBJECT_STORAGE}path", _FOLDER_PATH) if by_hash else (DATA_PATH, _FOLDER_PATH)
    root = next((properties[name] for name in names if properties.get(name)), f"{location}/data").rstrip("/")
    if not by_hash:
        return DataLocations(root=root, refused=refused)
    partitioned = properties.get(f"{_OBJECT_STORAGE}partitioned-paths", "true").strip().lower() == "true"
    outside = not root.startswith(location)
    return DataLocations(
        root=root,
        by_hash=True,
        with_partitions=partitioned,
        context="/".join(location.split("/")[-2:]) if outside else "",
        refused=refused,
    )


def _hash_folders(text: str) -> str:
    """The last 20 bits of the hash of a path, as folders of 4, 4, 4 and 8."""
    bits = f"{mmh3.hash(text.encode(), signed=False) & ((1 << _HASH_BITS) - 1):0{_HASH_BITS}b}"
    return f"{bits[:4]}/{bits[4:8]}/{bits[8:12]}/{bits[12:]}"

"""What stands in the way of deleting local files, found out before a commit gives them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import folder_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why no file of a folder can be deleted; `target` is where a symbolic link on the way leads."""

    reason: str
    target: str | None = None


@runtime_checkable
class ObstructedStorage(Protocol):
    """A storage that knows of some obstacles without trying."""

    def obstacles(self, folders: Sequence[str]) -> Mapping[str, Obstacle]:
        """Those of some canonical local folders, `/a/b`, in which no file can be deleted, each with the reason."""
        ...


def local_folders(paths: pa.ChunkedArray) -> list[str]:
    """The folders of those of n canonical paths that are local, each once."""
    local = paths.filter(pc.starts_with(paths, "/"))
    found: list[str] = pc.unique(folder_column(local)).to_pylist() if len(local) else []
    return found

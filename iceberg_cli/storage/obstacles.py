"""Obstacles to the deletion of local files, found before a commit makes them unreachable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.paths import folder_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why no file of a folder can be deleted; `target` is that of a symbolic link on the way."""

    reason: str
    target: str | None = None


@runtime_checkable
class ObstructedStorage(Protocol):
    """A storage that knows some obstacles without trying to delete."""

    def obstacles(self, folders: Sequence[str]) -> Mapping[str, Obstacle]:
        """Those of n canonical local folders, `/a/b`, in which no file can be deleted, each with the reason."""
        ...


def local_folders(paths: pa.ChunkedArray) -> list[str]:
    """The folders of the local paths among n canonical ones, each once."""
    local = paths.filter(pc.starts_with(paths, "/"))
    found: list[str] = pc.unique(folder_column(local)).to_pylist() if len(local) else []
    return found

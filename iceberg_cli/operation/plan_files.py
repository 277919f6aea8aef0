"""The removals of a saved plan, beside its file: one Parquet file, or a folder of part files where they are many."""

from __future__ import annotations

import glob
import os

from iceberg_cli.operation.removal_parts import in_parts
from iceberg_cli.plan.removal_rows import from_parquet
from iceberg_cli.plan.removals import Removals, as_files, from_index

_INDEX = "_index.json"  # readers of Parquet datasets take no notice of such a name


def save_beside(removals: Removals, path: str) -> None:
    """Write removals; those of an earlier plan are replaced.

    Raises:
        OSError: it cannot be written.
    """
    made = as_files(in_parts(removals))
    if os.path.isdir(path):
        _remove_parts(path)
    if not made.several:
        ((_, data),) = made.files
        write_file(path, data)
        return
    if os.path.isfile(path):
        os.remove(path)
    os.makedirs(path, exist_ok=True)
    for name, data in made.files:
        write_file(f"{path}/{_INDEX if name == made.name else name}", data)


def load_beside(path: str) -> Removals:
    """Removals that `save_beside` wrote.

    Raises:
        OSError: they are not there. CorruptFile: they are not as they were written.
    """

    def read(name: str) -> bytes:
        with open(f"{path}/{name}" if name else path, "rb") as file:
            return file.read()

    if os.path.isdir(path):
        return from_index(read(_INDEX), read, path, path=f"{path}/{_INDEX}")
    return Removals.held(from_parquet(read(""), path))


def write_file(path: str, data: bytes) -> None:
    """Write a file, durably; an existing one is replaced.

    Raises:
        OSError: it cannot be written.
    """
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _remove_parts(folder: str) -> None:
    """Remove the files that `save_beside` wrote there for another plan, and nothing else."""
    for name in [_INDEX, *glob.glob("removals-*.parquet", root_dir=folder)]:
        if os.path.lexists(f"{folder}/{name}"):
            os.remove(f"{folder}/{name}")
    if not os.listdir(folder):
        os.rmdir(folder)

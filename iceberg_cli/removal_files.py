"""Removals as files: one Parquet file, or part files and an index of them that holds what can be added up.

Names say what the files hold. The index is `{"schema": "iceberg-cli/removals/1", "parts": [{"file": str, "count": int,
"by_step": {step: count}, "by_kind": {kind: [count, bytes]}, "digest": 64 hexadecimal digits, "paths": [least,
greatest]}, ...]}`, its parts in delete order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.errors import CorruptFile
from iceberg_cli.json_shape import check_shape
from iceberg_cli.removal_rows import from_parquet, to_parquet
from iceberg_cli.removals import Held, Removals, Stored
from iceberg_cli.strict_json import loads

_SCHEMA: Final = "iceberg-cli/removals/1"
_INDEX_SUFFIX: Final = ".json"
_SHAPE: Final[Mapping[str, Any]] = {
    "schema": frozenset({_SCHEMA}),
    "parts": [{"file": str, "count": int, "by_step": dict, "by_kind": dict, "digest": str, "paths": [str]}],
}


@dataclass(frozen=True, slots=True)
class RemovalFiles:
    """What is to be written.

    Args:
        name: of the file that stands for all of them.
        files: each with its name, the one of `name` last; made as they are asked for.
    """

    name: str
    files: Iterator[tuple[str, bytes]]

    @property
    def several(self) -> bool:
        """Whether the one of `name` is an index of the others."""
        return self.name.endswith(_INDEX_SUFFIX)


def as_files(removals: Removals) -> RemovalFiles:
    """The files of removals, whose parts are in memory where there is one, and in files where there are several."""
    stored = [part for part in removals.parts if isinstance(part, Stored)]
    if not stored:
        data = to_parquet(removals.table)
        return RemovalFiles(file_name(data), iter([(file_name(data), data)]))
    assert len(stored) == len(removals.parts)
    index = (
        json.dumps({"schema": _SCHEMA, "parts": [_entry(part) for part in stored]}, indent=1) + "\n"
    ).encode()
    name = file_name(index, _INDEX_SUFFIX)

    def files() -> Iterator[tuple[str, bytes]]:
        for part in stored:
            yield part.file, part.data()
        yield name, index

    return RemovalFiles(name, files())


def file_name(data: bytes, suffix: str = ".parquet") -> str:
    """The name that says what the file holds."""
    return f"removals-{hashlib.sha256(data).hexdigest()[:32]}{suffix}"


def stored_part(rows: Held, data: bytes, read: Callable[[], bytes]) -> Stored:
    """A part whose file is `data`, and is read by `read`."""
    return Stored(
        file=file_name(data),
        count=rows.count,
        by_step=rows.by_step,
        by_kind=rows.by_kind,
        digest=rows.digest,
        paths=rows.paths,
        data=read,
    )


def load(name: str, read: Callable[[str], bytes], folder: str) -> Removals:
    """Removals by the name of the file that stands for all of theirs.

    Args:
        name: see `RemovalFiles`.
        read: gives a file of the folder.
        folder: for errors.

    Raises:
        CorruptFile: it is not what it was named after.
    """
    data = _checked(name, read, folder)
    if name.endswith(_INDEX_SUFFIX):
        return from_index(data, read, folder, path=f"{folder}/{name}")
    return Removals.held(from_parquet(data, f"{folder}/{name}"))


def from_index(data: bytes, read: Callable[[str], bytes], folder: str, *, path: str) -> Removals:
    """Removals by their index. Every part is read once, so that nothing is begun where one is damaged; see `load`.

    Raises:
        CorruptFile: `path` is no such index, or a part is not as it was written.
    """
    value = loads(data, path)
    try:
        check_shape(value, _SHAPE, "the index")
        parts = [_part(each, read, folder) for each in value["parts"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(path, None, f"not an index of removals: {error!r}") from error
    for part in parts:
        part.data()
    return Removals(tuple(parts))


def _checked(name: str, read: Callable[[str], bytes], folder: str) -> bytes:
    """A file's bytes, which are what its name says."""
    path = f"{folder}/{name}"
    try:
        data = read(name)
    except FileNotFoundError:
        raise CorruptFile(path, None, "a plan names this file and it is not there") from None
    if name != file_name(data, name[name.rfind(".") :]):
        raise CorruptFile(path, None, "it is not the file that was written under this name")
    return data


def _entry(part: Stored) -> dict[str, Any]:
    return {
        "file": part.file,
        "count": part.count,
        "by_step": dict(part.by_step),
        "by_kind": {kind: list(numbers) for kind, numbers in part.by_kind.items()},
        "digest": f"{part.digest:064x}",
        "paths": list(part.paths),
    }


def _part(value: Mapping[str, Any], read: Callable[[str], bytes], folder: str) -> Stored:
    """KeyError, TypeError or ValueError where it is none."""
    name = value["file"]
    if "/" in name or not name.startswith("removals-"):
        raise ValueError(f"{name!r} is no name of a part")
    check_shape(list(value["by_step"].values()), [int], "by_step")
    check_shape(list(value["by_kind"].values()), [[int]], "by_kind")
    least, greatest = value["paths"]
    return Stored(
        file=name,
        count=value["count"],
        by_step=value["by_step"],
        by_kind={kind: (count, size) for kind, (count, size) in value["by_kind"].items()},
        digest=int(value["digest"], 16),
        paths=(least, greatest),
        data=lambda: _checked(name, read, folder),
    )

"""What a try of a group wrote, as the file beside the journal has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from iceberg_cli.encoding.strict_json import check_shape, loads
from iceberg_cli.errors import CorruptFile
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import FinishedGroup
from iceberg_cli.paths import GROUPS_FOLDER
from iceberg_cli.storage import Storage

_SHAPE: Final[Mapping[str, Any]] = {
    "number": int,
    "attempt": str,
    "paths": [str],
    "counts": dict,
    "content": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What a try of a group wrote.

    Args:
        number: of the group.
        attempt: the mark of the try.
        paths: of its new data files; none where all rows were deleted.
        counts: for the columns of the report.
        content: the format's own: what entries say of the files, as JSON.
        folder: of the operation's groups, where it was read.
    """

    number: int
    attempt: str
    paths: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    folder: str = field(default="", compare=False)

    def kept(self, name: str) -> str:
        """The path of what the try kept beside the result, see `Creator.keep`."""
        return f"{self.folder}/kept/{self.number}-{self.attempt}-{name}"

    def to_bytes(self) -> bytes:
        """The file."""
        value = {
            "number": self.number,
            "attempt": self.attempt,
            "paths": list(self.paths),
            "counts": dict(self.counts),
            "content": dict(self.content),
        }
        return f"{json.dumps(value)}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str, *, folder: str = "") -> Self:
        """Inverse of `to_bytes`.

        Raises:
            CorruptFile: it is none.
        """
        value = loads(data, path)
        try:
            check_shape(value, _SHAPE, "the result")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile(path, None, f"not the result of a group: {error}") from error
        return cls(
            number=value["number"],
            attempt=value["attempt"],
            paths=tuple(value["paths"]),
            counts=value["counts"],
            content=value["content"],
            folder=folder,
        )


def groups_folder_of(journal: Journal) -> str:
    """Where the results of an operation's groups are, and what else its tries keep."""
    table_location = journal.folder.rsplit("/", 3)[0]
    return f"{table_location}/{GROUPS_FOLDER}/{journal.operation_id}"


def result_path(folder: str, number: int, attempt: str) -> str:
    """The file of the result of a try."""
    return f"{folder}/done/{number}-{attempt}.json"


def digest_of(data: bytes) -> str:
    """By which a record names a result."""
    return hashlib.sha256(data).hexdigest()


def read_result(storage: Storage, folder: str, finished: FinishedGroup) -> GroupResult:
    """The result that a record names.

    Raises:
        CorruptFile: it is not there, or is another one.
    """
    path = result_path(folder, finished.number, finished.attempt)
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, None, "the journal names it, and it is not there") from None
    if digest_of(data) != finished.digest:
        raise CorruptFile(path, None, "it is not the result that the journal names")
    return GroupResult.from_bytes(data, path, folder=folder)

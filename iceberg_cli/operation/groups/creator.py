"""New files of a group, each recorded before its first byte, and what is left of tries that do not count.

The record has the path, and where the storage collects a file's parts the upload that they are of. So what a process
left that died is found without listing the table's data.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import AccessDenied, BackendUnavailable, TakenOver
from iceberg_cli.operation.groups.results import GroupResult, digest_of, groups_folder_of, result_path
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import FinishedGroup, GroupStates
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.storage import Storage, Writer

_BEGUN: Final = "begun"
_NAME: Final = re.compile(r"(?P<number>\d+)-(?P<attempt>\d+x[0-9a-f]+)[-.]")


@contextmanager
def _noted(path: str) -> Iterator[None]:
    """Where the storage gives no answer, note for which file: it may be there later."""
    try:
        yield
    except AccessDenied:
        raise
    except BackendUnavailable as error:
        error.unanswered = path
        raise


@dataclass(slots=True, kw_only=True)
class Creator:
    """Creates the new files of one try of a group, under names that no other try has.

    Args:
        storage: of the files.
        folder: of the operation's groups.
        operation_id: which the names have in them.
        number: of the group.
        attempt: the mark of the try.
        suffix: of the names.
    """

    storage: Storage
    folder: str
    operation_id: str
    number: int
    attempt: str
    suffix: str
    _files: int = 0

    def create(self, place: Callable[[str], str]) -> NewFile:
        """Begin a new data file, which is there once it is committed.

        Args:
            place: gives the path for a file's name.
        """
        path = place(f"{self._files:05d}-{self.operation_id}-{self.number}-{self.attempt}{self.suffix}")
        begun = f"{self.folder}/{_BEGUN}/{self.number}-{self.attempt}-{self._files}"
        self._files += 1
        self._put(f"{begun}.json", _encoded({"path": path}))

        def record(upload_id: str) -> None:
            self._put(f"{begun}-upload.json", _encoded({"path": path, "upload_id": upload_id}))

        writer = self.storage.create(path, on_upload=record)
        return NewFile(writer, self.storage, path, f"{begun}.json")

    def keep(self, name: str, data: bytes) -> None:
        """Keep something beside the result, such as where rows went."""
        result = GroupResult(number=self.number, attempt=self.attempt, paths=(), folder=self.folder)
        self._put(result.kept(name), data)

    def finish(self, written: Written) -> FinishedGroup:
        """Store the result of the try."""
        data = GroupResult(
            number=self.number,
            attempt=self.attempt,
            paths=written.paths,
            counts=written.counts,
            content=written.content,
        ).to_bytes()
        self._put(result_path(self.folder, self.number, self.attempt), data)
        return FinishedGroup(self.number, self.attempt, digest_of(data))

    def _put(self, path: str, data: bytes) -> None:
        with _noted(path):
            self.storage.put_if_absent(path, data)


class NewFile(Writer):
    """A file whose record others may delete, who take its process for dead: then the file goes, too."""

    def __init__(self, writer: Writer, storage: Storage, path: str, record: str) -> None:
        super().__init__(path)
        self._writer, self._storage, self._record = writer, storage, record

    @property
    def path(self) -> str:
        """Of the file."""
        return self._path

    def _write(self, data: memoryview) -> None:
        self._writer.write(data)

    def _abort(self) -> None:
        self._writer.abort()

    def _commit(self) -> None:
        with _noted(self._path):
            self._writer.commit()
        if self._storage.stat_many([self._record]) == [None]:
            self._storage.erase([self._path])
            raise TakenOver(
                f"Cannot go on: another process has ended the operation that {self._path} was for"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the rewriting of a group gives; see `GroupResult`."""

    paths: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWork:
    """Rewrites groups where an engine runs it, each under a mark of its own.

    Args:
        storage: of the files.
        folder: of the operation's groups.
        operation_id: its id.
        owner: the mark of the process that has it run, which begins that of each try.
        suffix: of the names of new files.
        rewrite: writes the new files of a group; gets what creates them, and the format's own description of the group.
    """

    storage: Storage
    folder: str
    operation_id: str
    owner: str
    suffix: str
    rewrite: Callable[[Creator, Any], Written]

    def __call__(self, item: tuple[int, Any]) -> FinishedGroup:
        """Rewrite a group, by its number and description; its result is stored when this returns."""
        number, task = item
        attempt = f"{self.owner}x{secrets.token_hex(4)}"
        creator = Creator(
            storage=self.storage,
            folder=self.folder,
            operation_id=self.operation_id,
            number=number,
            attempt=attempt,
            suffix=self.suffix,
        )
        return creator.finish(self.rewrite(creator, task))


def remove_leftovers(workspace: Workspace, journal: Journal, groups: GroupStates, *, owner: str = "") -> None:
    """Delete what tries of groups began and nothing needs, then what was kept of them beside the journal.

    Args:
        workspace: of the table.
        journal: of the operation.
        groups: as it has them.
        owner: the mark of the process whose tries alone go; empty: all, and nothing stays beside the journal.
    """
    storage, folder, needed = workspace.storage, groups_folder_of(journal), groups.needed()

    def discard(paths: Sequence[str]) -> None:
        workspace.discard(paths, marks=[journal.operation_id])

    paths: list[str] = []
    files = [*_records(storage, folder)]
    mark = f"{owner}x" if owner else ""
    going = {
        each for _, each in files if each is not None and each not in needed and each[1].startswith(mark)
    }
    begun = [path for path, each in files if each in going and f"/{_BEGUN}/" in path]
    for path in begun:
        try:
            record = loads(storage.read(path), path)
        except FileNotFoundError:
            continue  # whoever took it has deleted, or aborted, what it names
        if "upload_id" in record:
            storage.abort_upload(record["path"], record["upload_id"])
        else:
            paths.append(record["path"])
    discard(paths)
    storage.erase(begun)
    # One that stood still may have put a file meanwhile; it looks for its record after that.
    discard(paths)
    gone = {*begun}
    storage.erase([path for path, each in files if path not in gone and (each in going or not owner)])


def _records(storage: Storage, folder: str) -> Iterator[tuple[str, tuple[int, str] | None]]:
    """The files beside the journal, each with the number and attempt in its name; None where it is of no try."""
    for path in storage.paths(folder):
        found = _NAME.match(path.rpartition("/")[2])
        yield path, None if found is None else (int(found["number"]), found["attempt"])


def _encoded(value: Mapping[str, str]) -> bytes:
    return f"{json.dumps(value)}\n".encode()

"""Committers and storages that lose answers, refuse, or stop: ports like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.commit.update import Commit
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.operation.outcomes import Attempt, Conflict, Outcome, Unknown
from iceberg_cli.storage import FileInfo, Storage

Fault = Literal["none", "lost before", "lost after", "conflict"]
PutFault = Literal["killed before", "killed after", "failed before", "failed after"]


class FaultyCommitter(Committer):
    """Does with each commit what the script says, then what the committer inside does."""

    def __init__(self, inside: Committer, *script: Fault) -> None:
        self.inside = inside
        self.script = list(script)

    def read_only_reason(self) -> str | None:
        return self.inside.read_only_reason()

    def takes_late_requests(self) -> bool:
        return self.inside.takes_late_requests()

    def hidden_snapshots_reason(self) -> str | None:
        return self.inside.hidden_snapshots_reason()

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:
        return self.inside.lost_fields_reason(metadata, location)

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        self.inside.prove(path, properties)

    def current(self) -> str:
        return self.inside.current()

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        return self.inside.prepare(commit, base_location=base_location)

    def commit(self, attempt: Attempt) -> Outcome:
        match self.script.pop(0) if self.script else "none":
            case "lost before":
                return Unknown(cause="the request was lost")
            case "lost after":
                self.inside.commit(attempt)
                return Unknown(cause="the answer was lost")
            case "conflict":
                return Conflict(reason="another writer was first")
            case _:
                return self.inside.commit(attempt)

    def settle(self, attempt: Attempt) -> Outcome:
        return self.inside.settle(attempt)


class Killed(BaseException):
    """The process ends here."""


class FaultyStorage(Storage):
    """Stops, or fails, before or after the next put."""

    def __init__(
        self,
        inside: Storage,
        *,
        put: PutFault,
    ) -> None:
        self.inside = inside
        self.put = put

    def canonical(self, path: str) -> str:
        return self.inside.canonical(path)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        return self.inside.read(path, span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        return self.inside.stat_many(paths, versions=versions)

    def put_if_absent(self, path: str, data: bytes) -> None:
        error = (
            Killed() if self.put.startswith("killed") else BackendUnavailable("Cannot write: no space left")
        )
        if self.put.endswith("after"):
            self.inside.put_if_absent(path, data)
        raise error

    def replace(self, path: str, data: bytes) -> None:
        self.inside.replace(path, data)

    def list(self, folder: str) -> Iterator[FileInfo]:
        return self.inside.list(folder)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        return self.inside.delete(paths)

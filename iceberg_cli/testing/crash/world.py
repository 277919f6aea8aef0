"""A simulated store: every effect is counted, and the process can be stopped around any of them.

`World` is what survives a process: files, uploads, a catalog's pointer and the clock. Effects are puts, the requests of
uploads, single deletions and pointer swaps; reads change nothing, so stopping around them adds no case.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.paths import canonical
from iceberg_cli.plan.events import AnyEvent
from iceberg_cli.storage import FileInfo, Storage, Writer

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
ICEBERG_TABLE = "/lake/shop/visits"
DELTA_TABLE = "s3://lake/visits"

Act = Callable[[], object]


def allow(_path: str) -> str | None:
    """A storage that refuses nothing."""
    return None


def unseen(_event: AnyEvent) -> None:
    """Nobody watches the progress."""


class Crash(BaseException):
    """The process is gone: no handler of an error may see it as one."""


def crash() -> None:
    """An act: the process ends."""
    raise Crash


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The parts of a file that is not created yet, which nobody sees."""

    path: str
    parts: tuple[bytes, ...] = ()


@dataclass(kw_only=True)
class World:
    """What outlives a process.

    `uploads` are those that were neither completed nor aborted, by their ids. A file of more than `part_bytes` is
    created by one.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    pointer: str | None = None  # None: a table by file names
    now_ms: int = NOW_MS
    drawn: int = 0
    deleted: list[str] = field(default_factory=list)
    written_ms: dict[str, int] = field(default_factory=dict)  # of files that are not as old as can be
    dated: bool = False  # whether new files are as old as they are
    served: bool = False  # whether the catalog writes the metadata itself
    late: list[Callable[[World], object]] = field(default_factory=list)  # requests on their way to it
    uploads: dict[str, Upload] = field(default_factory=dict)
    begun_uploads: int = 0
    part_bytes: int = 512

    def copy(self) -> World:
        """The same, to change it alone."""
        return replace(
            self,
            files=dict(self.files),
            deleted=list(self.deleted),
            written_ms=dict(self.written_ms),
            late=list(self.late),
            uploads=dict(self.uploads),
        )

    def write(self, path: str, data: bytes) -> None:
        """Write a file, by whomever."""
        self.files[path] = data
        if self.dated:
            self.written_ms[path] = self.now_ms

    def begin_upload(self, path: str) -> str:
        """A new upload of a file; its id."""
        self.begun_uploads += 1
        upload_id = f"upload-{self.begun_uploads}"
        self.uploads[upload_id] = Upload(path=path)
        return upload_id

    @property
    def leaked_uploads(self) -> dict[str, Upload]:
        """The uploads whose parts cost something, of which none is left once every operation has ended.

        One that was begun by a request without an answer has no parts, and nobody knows its id.
        """
        return {upload_id: upload for upload_id, upload in self.uploads.items() if upload.parts}

    def arrive(self) -> None:
        """The requests that were late reach the catalog, which judges them by what is current now."""
        requests, self.late = self.late, []
        for request in requests:
            request(self)

    def remove_orphans(self, needed: Collection[str]) -> None:
        """Three days go by, and another tool removes what the table does not need; it knows nothing of journals."""
        self.now_ms += 3 * DAY_MS
        for path in self.files.keys() - {*needed}:
            if "/_iceberg_cli/" not in path:
                del self.files[path]

    def new_uuid(self) -> str:
        """The next one, the same in every run."""
        self.drawn += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(self.drawn)))


@dataclass(kw_only=True)
class Script:
    """What befalls one process: by number of the effect, counted from 0.

    `before` and `after` act around an effect: crash, let another writer commit, ask for a stop. `fail_put` and
    `fail_delete` say which paths storage refuses; `swaps` what becomes of the pointer swaps, first to last.
    """

    before: Mapping[int, Act] = field(default_factory=dict)
    after: Mapping[int, Act] = field(default_factory=dict)
    fail_put: Callable[[str], str | None] = allow
    fail_delete: Callable[[str], str | None] = allow
    swaps: Sequence[str] = ()  # "", "lost", "lost after", "refused", "down", or "late" where it is served


class SimWriter(Writer):
    """A new file of a world, as S3 has it: an upload in parts, or where it is small a put."""

    def __init__(self, storage: SimStorage, path: str, on_upload: Callable[[str], None] | None) -> None:
        super().__init__(path)
        self._storage = storage
        self._key = canonical(path)
        self._on_upload = on_upload
        self._held = b""
        self._upload_id: str | None = None

    def _write(self, data: memoryview) -> None:
        self._held += data
        size = self._storage.world.part_bytes
        while len(self._held) > size:
            part, self._held = self._held[:size], self._held[size:]
            self._send(part)

    def _send(self, part: bytes) -> None:
        if self._upload_id is None:
            begun: list[str] = []
            self._storage.effect(f"begin {self._key}", partial(self._begin, begun))
            [self._upload_id] = begun
            if self._on_upload is not None:
                self._on_upload(self._upload_id)
        self._storage.effect(f"part {self._key}", partial(self._add, self._upload_id, part))

    def _begin(self, begun: list[str]) -> None:
        self._refuse()
        begun.append(self._storage.world.begin_upload(self._key))

    def _add(self, upload_id: str, part: bytes) -> None:
        self._refuse()
        upload = self._begun(upload_id)
        self._storage.world.uploads[upload_id] = replace(upload, parts=(*upload.parts, part))

    def _refuse(self) -> None:
        if reason := self._storage.script.fail_put(self._key):
            raise BackendUnavailable(f"Cannot write {self._path}: {reason}")

    def _begun(self, upload_id: str) -> Upload:
        if (upload := self._storage.world.uploads.get(upload_id)) is None:
            raise BackendUnavailable(f"Cannot write {self._path}: its upload is gone")
        return upload

    def _commit(self) -> None:
        if self._upload_id is None:
            self._storage.put_if_absent(self._path, self._held)
            return
        self._send(self._held)
        self._storage.effect(f"complete {self._key}", partial(self._complete, self._upload_id))

    def _complete(self, upload_id: str) -> None:
        self._storage.write_once(self._path, b"".join(self._begun(upload_id).parts))
        del self._storage.world.uploads[upload_id]

    def _abort(self) -> None:
        if self._upload_id is not None:
            self._storage.abort_upload(self._path, self._upload_id)


class SimStorage(Storage):
    """The storage port over a world's files, as one process sees it."""

    def __init__(self, world: World, script: Script) -> None:
        self.world = world
        self.script = script
        self.trace: list[str] = []
        self.deletions: list[list[str]] = []  # what was asked for at once
        self.dead = False
        self.held_at = -1
        self.held: dict[str, bytes] = {}

    def hold(self, number: int) -> Mapping[str, bytes]:
        """Let a put, by number of the effect, get lost on its way; what will hold it then, for it may still arrive."""
        self.held_at = number
        return self.held

    def effect(self, name: str, act: Act) -> None:
        """Do one effect, with what the script has around it. A dead process has no effects."""
        if self.dead:
            raise Crash
        number = len(self.trace)
        self.trace.append(name)
        try:
            self.script.before.get(number, lambda: None)()
            act()
            self.script.after.get(number, lambda: None)()
        except Crash:
            self.dead = True
            raise

    def canonical(self, path: str) -> str:
        """As the real ones have it."""
        return canonical(path)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole file, or a part of it."""
        try:
            data = self.world.files[canonical(path)]
        except KeyError:
            raise FileNotFoundError(path) from None
        return data if span is None else data[span[0] : sum(span)]

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:  # noqa: ARG002
        """Sizes and times."""
        files, times = self.world.files, self.world.written_ms
        return [
            FileInfo(key, len(files[key]), times.get(key, 0)) if key in files else None
            for key in map(canonical, paths)
        ]

    def put_if_absent(self, path: str, data: bytes) -> None:
        """One effect."""
        self.effect(f"put {canonical(path)}", partial(self.write_once, path, data))

    def write_once(self, path: str, data: bytes) -> None:
        """Create a file where there is none, within an effect."""
        key = canonical(path)
        if len(self.trace) - 1 == self.held_at:
            self.held[key] = data
            raise BackendUnavailable(f"Cannot write {path}: no answer")
        if key in self.world.files:
            raise FileExistsError(path)
        if reason := self.script.fail_put(key):
            raise BackendUnavailable(f"Cannot write {path}: {reason}")
        self.world.write(key, data)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:
        """An effect for the begin of an upload, for each part and for its end; a small file is put."""
        return SimWriter(self, path, on_upload)

    def abort_upload(self, path: str, upload_id: str) -> None:
        """One effect."""
        self.effect(f"abort {canonical(path)}", partial(self.world.uploads.pop, upload_id, None))

    def replace(self, path: str, data: bytes) -> None:
        """One effect."""
        key = canonical(path)

        def put() -> None:
            if reason := self.script.fail_put(key):
                raise BackendUnavailable(f"Cannot write {path}: {reason}")
            self.world.write(key, data)

        self.effect(f"replace {key}", put)

    def list(self, folder: str) -> Iterator[FileInfo]:
        """By path; what goes meanwhile is left out."""
        inside = f"{canonical(folder).rstrip('/')}/"
        for key in sorted(self.world.files):
            if key.startswith(inside) and key in self.world.files:
                yield self.stat(key)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """One effect a file."""
        failed: dict[str, str] = {}

        def delete(path: str) -> None:
            if reason := self.script.fail_delete(canonical(path)):
                failed[path] = reason
            elif self.world.files.pop(canonical(path), None) is not None:
                self.world.deleted.append(canonical(path))

        self.deletions.append([*paths])
        for path in paths:
            self.effect(f"delete {canonical(path)}", partial(delete, path))
        return failed

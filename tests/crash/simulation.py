"""A simulated store and catalog: every effect is counted, and the process can be stopped around any of them.

`World` is what survives: files, the catalog's pointer and the clock. A `Process` is one run of the program over it. Its
effects are puts, single deletions and pointer swaps; reads change nothing, so stopping around them adds no case.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from iceberg_cli.engines import Event
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, TableNotFound
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.catalogs.filesystem import FilesystemCommitter
from iceberg_cli.iceberg.commit.update import Commit, check, effects_visible, with_updates
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs import VERBS
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.operation.apply import Runtime, apply, resume
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.operation.ports import Planned
from iceberg_cli.operation.recovery import recover_all
from iceberg_cli.paths import canonical
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.storage import FileInfo, Storage
from tests.builders import DAY_MS, NOW_MS

POLICY = ExpireSnapshots(older_than=NOW_MS - DAY_MS, retain_last=1)
Act = Callable[[], object]


def allow(_path: str) -> str | None:
    """A storage that refuses nothing."""
    return None


def unseen(_event: Event) -> None:
    """Nobody watches the progress."""


class Crash(BaseException):
    """The process is gone: no handler of an error may see it as one."""


@dataclass(kw_only=True)
class World:
    """What outlives a process."""

    files: dict[str, bytes] = field(default_factory=dict)
    pointer: str | None = None  # None: a table by file names
    now_ms: int = NOW_MS
    drawn: int = 0
    deleted: list[str] = field(default_factory=list)
    written_ms: dict[str, int] = field(default_factory=dict)  # of files that are not as old as can be
    dated: bool = False  # whether new files are as old as they are
    served: bool = False  # whether the catalog writes the metadata itself

    def copy(self) -> World:
        return World(
            files=dict(self.files),
            pointer=self.pointer,
            now_ms=self.now_ms,
            drawn=self.drawn,
            deleted=list(self.deleted),
            written_ms=dict(self.written_ms),
            dated=self.dated,
            served=self.served,
        )

    def write(self, path: str, data: bytes) -> None:
        """Write a file, by whomever."""
        self.files[path] = data
        if self.dated:
            self.written_ms[path] = self.now_ms

    def remove_orphans(self, needed: Collection[str]) -> None:
        """Three days go by, and another tool removes what the table does not need; it knows nothing of journals."""
        self.now_ms += 3 * DAY_MS
        for path in self.files.keys() - {*needed}:
            if "/_iceberg_cli/" not in path:
                del self.files[path]

    def new_uuid(self) -> str:
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
    swaps: Sequence[str] = ()  # "", "lost", "lost after", "refused" or "down"


def crash() -> None:
    """An act: the process ends."""
    raise Crash


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
        return canonical(path)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        try:
            data = self.world.files[canonical(path)]
        except KeyError:
            raise FileNotFoundError(path) from None
        return data if span is None else data[span[0] : sum(span)]

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:  # noqa: ARG002
        files, times = self.world.files, self.world.written_ms
        return [
            FileInfo(key, len(files[key]), times.get(key, 0)) if key in files else None
            for key in map(canonical, paths)
        ]

    def put_if_absent(self, path: str, data: bytes) -> None:
        key = canonical(path)

        def put() -> None:
            if len(self.trace) - 1 == self.held_at:
                self.held[key] = data
                raise BackendUnavailable(f"Cannot write {path}: no answer")
            if key in self.world.files:
                raise FileExistsError(path)
            if reason := self.script.fail_put(key):
                raise BackendUnavailable(f"Cannot write {path}: {reason}")
            self.world.write(key, data)

        self.effect(f"put {key}", put)

    def replace(self, path: str, data: bytes) -> None:
        key = canonical(path)

        def put() -> None:
            if reason := self.script.fail_put(key):
                raise BackendUnavailable(f"Cannot write {path}: {reason}")
            self.world.write(key, data)

        self.effect(f"replace {key}", put)

    def list(self, folder: str) -> Iterator[FileInfo]:
        inside = f"{canonical(folder).rstrip('/')}/"
        for key in sorted(self.world.files):
            if key.startswith(inside) and key in self.world.files:
                yield self.stat(key)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
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


class SimCommitter(SwapCommitter):
    """A catalog with compare and exchange, as a SQL one is, whose answers can get lost."""

    def __init__(self, storage: SimStorage) -> None:
        super().__init__(storage)
        self._world_storage = storage
        self._swaps = list(storage.script.swaps)

    def current(self) -> str:
        if self._world_storage.world.pointer is None:
            raise TableNotFound("Cannot find the table in the simulated catalog.")
        return self._world_storage.world.pointer

    def _swap(self, attempt: Attempt) -> bool | Unknown:
        world = self._world_storage.world
        fate = self._swaps.pop(0) if self._swaps else ""
        done: list[bool] = []

        def shuffle() -> None:
            done.append(fate != "lost" and world.pointer == attempt.base)
            if done[-1]:
                world.pointer = attempt.target

        if fate == "refused":
            return False
        if fate == "down":
            raise BackendUnavailable("Cannot reach the catalog: connection refused")
        self._world_storage.effect(f"swap {attempt.target}", shuffle)
        if fate in ("lost", "lost after"):
            return Unknown(cause="no answer")
        return done[-1]


class ServingCommitter:
    """A catalog that gets updates and requirements and writes the metadata itself, as a REST catalog does."""

    def __init__(self, storage: SimStorage) -> None:
        self._storage = storage
        self._sent = SentAttempts()
        self._fates = list(storage.script.swaps)

    def read_only_reason(self) -> str | None:
        return None

    def current(self) -> str:
        assert self._storage.world.pointer is not None
        return self._storage.world.pointer

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        request = json.dumps([update.to_json() for update in commit.updates]).encode()
        return Attempt(
            commit=commit,
            base=base_location,
            target=None,
            data=request,
            digest=digest_of(request),
            name_is_unique=False,
        )

    def commit(self, attempt: Attempt) -> Outcome:
        first = self._sent.first(attempt)
        if stale := attempt.why_stale([]):
            return Conflict(reason=stale) if first else Unknown(cause=stale)
        fate = self._fates.pop(0) if self._fates else ""
        if fate == "down":
            raise BackendUnavailable("Cannot reach the catalog: connection refused")
        answers: list[Outcome] = [Conflict(reason="refused")] if fate == "refused" else []
        if not answers:
            self._storage.effect("swap by the catalog", lambda: answers.append(self._serve(attempt, fate)))
        if fate in ("lost", "lost after"):
            return self.settle(attempt)
        (answer,) = answers
        # One that was sent before may be what has moved the table.
        return answer if first or isinstance(answer, Committed) else self.settle(attempt)

    def _serve(self, attempt: Attempt, fate: str) -> Outcome:
        """What happens at the catalog, which holds requirements against its current metadata."""
        commit, world = attempt.commit, self._storage.world
        assert isinstance(commit, Commit)
        now = self.current()
        metadata = TableMetadata.from_json(json.loads(world.files[canonical(now)]), path=now)
        if fate == "lost":
            return Unknown(cause="no answer")
        if reason := check(commit.requirements, metadata):
            return Conflict(reason=reason)
        after = with_updates(
            metadata, commit.updates, base_location=now, timestamp_ms=commit.timestamp_ms
        ).to_json()
        world.pointer = f"{metadata.location}/metadata/{len(world.files):05d}-served.metadata.json"
        world.write(canonical(world.pointer), json.dumps(after).encode())
        return Committed(metadata_location=world.pointer)

    def settle(self, attempt: Attempt) -> Outcome:
        """By the attempt's own marks: the snapshot that it adds, or, without one, what its updates do."""
        now = self.current()
        if now == attempt.base:
            return Unknown(cause=f"the table is still at {now}")
        metadata = TableMetadata.from_json(json.loads(self._storage.read(now)), path=now)
        assert isinstance(attempt.commit, Commit)
        if effects_visible(attempt.commit.updates, metadata):
            return Committed(metadata_location=now)
        return Conflict(reason=f"the table has moved to {now}, and no effect of this commit shows")


@dataclass(kw_only=True)
class Process:
    """One run of the program."""

    world: World
    script: Script = field(default_factory=Script)
    grace_ms: int = 0
    policy: ExpireSnapshots = POLICY
    limits: Mapping[str, object] = field(default_factory=dict)
    stop: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = SimStorage(self.world, self.script)
        self.committer = self.open_catalog()
        self.table = self.open()
        self.runtime = self.new_shell()
        self.shown: Plan | None = None

    def open_catalog(self) -> Committer:
        """The catalog, as a new process would reach it."""
        if self.world.served:
            return ServingCommitter(self.storage)
        if self.world.pointer is not None:
            return SimCommitter(self.storage)
        return FilesystemCommitter("/lake/shop/visits", self.storage)

    def open(self) -> IcebergTable:
        """The table, as a new process would open it."""
        return IcebergTable(
            name="visits",
            storage=self.storage,
            committer=self.committer,
            engine=LocalEngine(self.storage, threads=1),
            on_event=unseen,
        )

    def new_shell(self) -> Runtime:
        def sleep_ms(duration_ms: float) -> None:
            self.world.now_ms += int(duration_ms)

        return Runtime(
            now_ms=lambda: self.world.now_ms,
            new_uuid=self.world.new_uuid,
            sleep_ms=sleep_ms,
            on_event=unseen,
            host="a host that is not this one",
            process_id=1,
            stop_requested=lambda: bool(self.stop),
            **{"sweep_batch": 4, "quick_batch_ms": 0, **self.limits},  # type: ignore[arg-type]
        )

    @property
    def effects(self) -> list[str]:
        """What was done, or tried, so far."""
        return self.storage.trace

    def expire(self, *, settle: bool = True) -> Report:
        """`expire-snapshots --yes`."""
        if settle:
            list(recover_all(self.table, self.runtime, verbs=VERBS))
        planned = self.plan()
        self.shown = planned.plan
        return apply(planned, self.table, VERBS[self.shown.verb], self.runtime)

    def plan(self) -> Planned:
        return VERBS["expire-snapshots"].plan(self.table, self.policy, as_of_ms=NOW_MS)

    def resume(self) -> list[Report]:
        """`resume`, for all operations."""
        return [
            resume(self.table, operation_id, self.runtime, verbs=VERBS)
            for operation_id in self.table.workspace.open_operations()
        ]

    def dies(self, run: Act) -> bool:
        """Run until the end or the script's crash; whether it crashed."""
        try:
            run()
        except Crash:
            return True
        return False

"""Numbers in files: a format that has nothing but what an operation of many commits needs.

A table is a list of files, each with a number on every line. Its versions are JSON files, and a pointer names the
newest one. The verb writes files that hold the numbers of several anew.
"""

# ruff: noqa: ARG002 - the ports' signatures

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from iceberg_cli.engines import Engine
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.operation.apply import abandon, apply, resume
from iceberg_cli.operation.groups.creator import Creator, Written
from iceberg_cli.operation.groups.ports import Batch, CommitPace, GroupTasks, GroupVerb
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown, digest_of
from iceberg_cli.operation.ports import Build, Planned, Retries
from iceberg_cli.operation.records import CommitIntent
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import canonical
from iceberg_cli.plan.groups import GROUPS_SCHEMA, Groups
from iceberg_cli.plan.plan import Base, Change, Plan, StagedFile, Step, Task, Voucher
from iceberg_cli.plan.policy import Policy
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.report import Report
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.testing.crash.world import NOW_MS, Script, SimStorage, World, unseen
from tests.paths import besides_history

LOCATION = "/lake/numbers"
UUID = "7c7d2b6e-0e5d-4c3f-9b9b-5a52d1f7a001"
STEP = "rewrite"
_PER_FILE = 3
_COLUMNS = ("rewritten_files_count", "added_files_count")


def state_of(world: World, path: str | None = None) -> dict[str, Any]:
    """A version of the table, the newest one unless another is named."""
    found: dict[str, Any] = json.loads(world.files[path or world.pointer or ""])
    return found


def publish(world: World, files: Sequence[str], *, commits: Sequence[str] = ()) -> None:
    """A new version by another writer."""
    number = 0 if world.pointer is None else state_of(world)["number"] + 1
    path = f"{LOCATION}/versions/other-{number}.json"
    world.write(path, json.dumps({"number": number, "files": [*files], "commits": [*commits]}).encode())
    world.pointer = path


def make_table(world: World, files: Mapping[str, Iterable[int]]) -> None:
    """The first version: files by name."""
    paths = [write_file(world, name, numbers) for name, numbers in files.items()]
    publish(world, paths)


def write_file(world: World, name: str, numbers: Iterable[int]) -> str:
    """A file of the table's folder that no version has yet."""
    path = f"{LOCATION}/data/{name}"
    world.write(path, "".join(f"{number}\n" for number in numbers).encode())
    return path


def add_file(world: World, name: str, numbers: Iterable[int]) -> None:
    """Another writer adds a file."""
    state = state_of(world)
    publish(world, [*state["files"], write_file(world, name, numbers)], commits=state["commits"])


def take_file(world: World, name: str) -> None:
    """Another writer takes a file out, where it is still there; it stays on the disk."""
    state = state_of(world)
    rest = [path for path in state["files"] if not path.endswith(f"/{name}")]
    publish(world, rest, commits=state["commits"])


def numbers_of(world: World) -> Counter[int]:
    """The rows of the table, each file once."""
    files = state_of(world)["files"]
    assert len(set(files)) == len(files), "a file is listed twice"
    return Counter(int(line) for path in files for line in world.files[path].decode().split())


def unneeded(world: World) -> list[str]:
    """Files that no version of the table names, be it current, of the past, or one that may have been."""
    versions = [path for path in world.files if "/versions/" in path]
    named = {path for version in versions for path in state_of(world, version)["files"]}
    named |= {path for version in versions for path in state_of(world, version).get("lists", ())}
    return sorted(besides_history(world.files) - named - {*versions})


@dataclass(frozen=True, kw_only=True)
class Update:
    """What a commit does."""

    removed: tuple[str, ...]
    added: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"action": "rewrite", "removed": list(self.removed), "added": list(self.added)}


@dataclass(frozen=True, kw_only=True)
class NumbersCommit:
    """A commit, complete."""

    updates: tuple[Update, ...]
    timestamp_ms: int
    commit_uuid: str


@dataclass(kw_only=True)
class NumbersWorkspace(Workspace):
    """The files of operations."""

    @property
    def location(self) -> str:
        return LOCATION

    @property
    def table_uuid(self) -> str:
        return UUID

    def staging_path(self, prefix: str, task: Task) -> str:
        return f"{LOCATION}/lists/{prefix}-{task.name}"

    def written_folders(self) -> Sequence[str]:
        return [LOCATION]

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        assert isinstance(self.storage, SimStorage)
        current = self.storage.world.pointer
        own = [path for path in paths if any(mark in path.rsplit("/", 1)[-1] for mark in marks)]
        assert own == [*paths]
        self.storage.delete([path for path in own if canonical(path) != current])


class TickingEngine(LocalEngine):
    """Runs tasks one after the other, in an order of its own."""

    def run(self, task: Any, items: Sequence[Any], *, may_begin: Any, processes: int) -> Any:
        order = list(range(len(items)))
        random.Random(len(items)).shuffle(order)
        for index in order:
            yield None
            for end in super().run(task, [items[index]], may_begin=may_begin, processes=processes):
                assert end is not None
                yield end.__class__(index=index, result=end.result, error=end.error)


@dataclass(kw_only=True)
class NumbersTable:
    """The table port."""

    storage: SimStorage
    engine: Engine = field(init=False)
    swaps: list[str] = field(default_factory=list)  # what befalls them, first to last: "lost", "lost after"
    takes_late_requests: bool = False
    send_again_ms: int | None = None
    workers_write: bool = False
    attempts: int = 4
    before_swap: list[Any] = field(default_factory=list)
    refused: Conflict | None = None  # what comes of each swap
    uuid: str = UUID

    def __post_init__(self) -> None:
        self.engine = TickingEngine(self.storage)
        self.workspace = NumbersWorkspace(storage=self.storage)
        self._at = ""

    @property
    def state(self) -> dict[str, Any]:
        return state_of(self.storage.world, self._at)

    def use(self, engine: Engine) -> None:
        self.engine = engine

    def load(self, seen: str | None = None) -> Base:
        assert self.storage.world.pointer is not None
        self._at = seen or self.storage.world.pointer
        return self.base()

    def base(self) -> Base:
        return Base(table_uuid=self.uuid, version=self._at)

    def read_only_reason(self) -> str | None:
        return None

    def vouchers(self) -> Sequence[Voucher]:
        return ()

    def probe(self, path: str) -> None:
        pass

    def retries(self) -> Retries:
        return Retries(attempts=self.attempts, min_wait_ms=1, max_wait_ms=1, total_timeout_ms=1_000)

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        assert step.change is not None
        (update,) = step.change.updates
        lists = [file.path for file in staged.values()]
        return self._attempt({**update, "lists": lists}, self._at, timestamp_ms, commit_uuid)

    def _attempt(self, update: Mapping[str, Any], base: str, timestamp_ms: int, commit_uuid: str) -> Attempt:
        state = state_of(self.storage.world, base)
        removed, added = tuple(update["removed"]), tuple(update["added"])
        assert {*removed} <= {*state["files"]}
        new = {
            "number": state["number"] + 1,
            "files": [*(path for path in state["files"] if path not in removed), *added],
            "commits": [*state["commits"], commit_uuid],
            "lists": list(update["lists"]),
            "base": base,
        }
        data = json.dumps(new).encode()
        commit = NumbersCommit(
            updates=(_Recorded(update),),  # type: ignore[arg-type]
            timestamp_ms=timestamp_ms,
            commit_uuid=commit_uuid,
        )
        return Attempt(
            commit=commit,
            base=base,
            target=f"{LOCATION}/versions/{commit_uuid}.json",
            data=data,
            digest=digest_of(data),
            name_is_unique=True,
        )

    def rebind(self, step: Step, intent: CommitIntent) -> Attempt | None:
        (update,) = intent.updates
        attempt = self._attempt(update, intent.base_location, intent.timestamp_ms, intent.commit_uuid)
        assert attempt.digest == intent.digest
        return attempt

    def commit(self, attempt: Attempt) -> Outcome:
        world = self.storage.world
        try:
            self.storage.put_if_absent(attempt.file, attempt.data)
        except FileExistsError:
            assert world.files[attempt.file] == attempt.data
        if (reason := attempt.why_stale([attempt.file])) is not None:
            return Conflict(reason=reason) if attempt.fresh else Unknown(cause=reason)
        if self.refused is not None:
            return self.refused
        if self.before_swap:
            self.before_swap.pop(0)()
        fate = self.swaps.pop(0) if self.swaps else ""
        done: list[bool] = []

        def swap() -> None:
            done.append(fate != "lost" and world.pointer == attempt.base)
            if done[-1]:
                world.pointer = attempt.target

        if fate == "down":
            raise BackendUnavailable("Cannot reach the catalog")
        self.storage.effect(f"swap {attempt.target}", swap)
        if fate in ("lost", "lost after"):
            return Unknown(cause="no answer")
        if done[-1]:
            return Committed(metadata_location=attempt.file)
        return self.settle(attempt) if not attempt.fresh else Conflict(reason="the table has moved")

    def settle(self, attempt: Attempt) -> Outcome:
        world = self.storage.world
        if attempt.commit.commit_uuid in state_of(world)["commits"]:
            return Committed(metadata_location=attempt.file)
        return Unknown(cause="no trace of it")

    def effects_visible(self, step: Step) -> bool:
        return False

    def unreachable(self, removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        raise AssertionError("nothing is deleted")


@dataclass(frozen=True)
class _Recorded:
    value: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.value)


@dataclass(frozen=True, kw_only=True)
class Rewrite(Policy):
    """Write numbers anew."""

    place: ClassVar[VerbPlace] = VerbPlace(order=1)


@dataclass(kw_only=True)
class RewriteVerb(GroupVerb):
    """Files two by two, in the order of their paths."""

    every_bytes: int = 1
    most_commits: int = 100
    rewrite: Any = field(default_factory=lambda: rewrite)

    name = STEP
    policy = Rewrite
    result_columns = _COLUMNS

    def plan(
        self,
        table: NumbersTable,
        policy: Any,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        files = sorted(table.state["files"])
        groups = [files[start : start + 2] for start in range(0, len(files) - 1, 2)]
        sizes = [sum(len(table.storage.read(path)) for path in group) for group in groups]
        rows = [
            {
                "number": number, "partition": "", "files": len(group), "bytes": size, "rows": 0,
                "expected_files": 1, "expected_bytes": size, "leaves_rest": True, "reason": "small",
                "inputs_digest": "",
            }
            for number, (group, size) in enumerate(zip(groups, sizes, strict=True))
        ]  # fmt: skip
        inputs = [(number, path) for number, group in enumerate(groups) for path in group]
        plan = Plan(
            verb=STEP,
            table={"name": "numbers", "location": LOCATION, "format": "numbers", "format_version": 1},
            base=table.base(),
            as_of_ms=as_of_ms,
            options={},
            policy=Rewrite().to_json(),
            steps=(Step(name=STEP),) if groups else (),
            removals=Removals.of(SCHEMA.empty_table()),
            groups=Groups(
                base={},
                rows=pa.Table.from_pylist(rows, schema=GROUPS_SCHEMA),
                inputs=pa.table(
                    {
                        "group": pa.array([number for number, _ in inputs], pa.int64()),
                        "path": pa.array([path for _, path in inputs], pa.string()),
                    }
                ),
            ),
        )
        return Planned(plan=plan)

    def tasks(self, table: NumbersTable, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
        assert plan.groups is not None
        groups = {number: plan.groups.inputs_of([number])["path"].to_pylist() for number in numbers}
        return GroupTasks(rewrite=self.rewrite, groups=groups, suffix=".txt", processes=1)

    def pace(self, plan: Plan) -> CommitPace:
        return CommitPace(every_bytes=self.every_bytes, every_ms=1_000_000, most_commits=self.most_commits)

    def changed(self, table: NumbersTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
        assert plan.groups is not None
        live = {*table.state["files"]}
        found: dict[int, str] = {}
        for number in numbers:
            inputs = plan.groups.inputs_of([number])["path"].to_pylist()
            if gone := [path for path in inputs if path not in live]:
                found[number] = f"{gone[0]} is not in the table any more"
        return found

    def compares_rows(self, plan: Plan) -> bool:
        return True

    def batch(
        self,
        table: NumbersTable,
        plan: Plan,
        results: Sequence[GroupResult],
        *,
        committed: Collection[int],
        earlier: Batch | None = None,
    ) -> Batch:
        assert plan.groups is not None
        live = {*table.state["files"]}
        dropped, removed, added = {}, [], []
        for result in results:
            inputs = plan.groups.inputs_of([result.number])["path"].to_pylist()
            if gone := [path for path in inputs if path not in live]:
                dropped[result.number] = f"{gone[0]} is not in the table any more"
            else:
                removed += inputs
                added += result.paths
        if not removed:
            return Batch(step=None, dropped=dropped)
        task = Task(name="list", kind="list", inputs=tuple(added))

        def build(step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
            for path in paths.values():
                table.storage.put_if_absent(path, b"list")
            return {each: StagedFile(path=path) for each, path in paths.items()}

        update = {"action": "rewrite", "removed": removed, "added": added}
        counts = {"rewritten_files_count": len(removed), "added_files_count": len(added)}
        step = Step(name=STEP, tasks=(task,), change=Change(updates=(update,), counts=counts))
        return Batch(step=step, build=build, dropped=dropped)


def rewrite(creator: Creator, inputs: Sequence[str]) -> Written:
    """The numbers of some files in new ones."""
    numbers: list[bytes] = []
    for path in inputs:
        try:
            lines = creator.storage.read(path).splitlines(keepends=True)
        except FileNotFoundError:
            raise CorruptFile(path, None, "it is not there") from None
        if b"broken\n" in lines:
            raise CorruptFile(path, None, "it is broken")
        numbers += lines
    paths = []
    for start in range(0, len(numbers), _PER_FILE):
        writer = creator.create(lambda name: f"{LOCATION}/data/{name}")
        for line in numbers[start : start + _PER_FILE]:
            writer.write(line)
        writer.commit()
        paths.append(writer.path)
    creator.keep("map", b"where they went")
    return Written(paths=tuple(paths))


@dataclass(kw_only=True)
class Process:
    """One run of the program, on another host than that of every other one."""

    world: World
    script: Script = field(default_factory=Script)
    verb: RewriteVerb = field(default_factory=RewriteVerb)
    stop: list[bool] = field(default_factory=list)
    deadline_ms: int | None = None

    def __post_init__(self) -> None:
        self.storage = SimStorage(self.world, self.script)
        self.table = NumbersTable(storage=self.storage)
        self.table.load()
        self.runtime = Runtime(
            now_ms=lambda: self.world.now_ms,
            new_uuid=self.world.new_uuid,
            sleep_ms=lambda _: None,
            on_event=unseen,
            host=f"host {self.world.new_uuid()}",
            process_id=1,
            stop_requested=lambda: bool(self.stop),
            deadline_ms=self.deadline_ms,
        )

    def run(self) -> Report:
        planned = self.verb.plan(self.table, Rewrite(), as_of_ms=NOW_MS)
        return apply(planned, self.table, self.verb, self.runtime)

    def resume(self, *, rewrites: bool) -> list[Report]:
        return [
            resume(self.table, each, self.runtime, verbs={STEP: self.verb}, rewrites=rewrites)
            for each in self.table.workspace.open_operations()
        ]

    def abandon(self) -> None:
        """Close what is open without finishing it."""
        for operation_id in self.table.workspace.open_operations():
            abandon(self.table, operation_id, self.runtime)

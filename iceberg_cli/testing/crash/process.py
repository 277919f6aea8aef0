"""One run of the program over a simulated world: of any verb, on a table of either format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS as DELTA_VERBS
from iceberg_cli.formats.open import iceberg_files
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.files.committer import FilesystemCommitter
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS as ICEBERG_VERBS
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.operation.ports import Planned, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.policy import Policy
from iceberg_cli.plan.report import Report
from iceberg_cli.table.recovery import recover_all
from iceberg_cli.testing.crash.catalogs import ServingCommitter, SimCommitter
from iceberg_cli.testing.crash.parsed_once import ParsedOnce
from iceberg_cli.testing.crash.world import (
    DELTA_TABLE,
    ICEBERG_TABLE,
    NOW_MS,
    Act,
    Crash,
    Script,
    SimStorage,
    World,
    unseen,
)


@dataclass(kw_only=True)
class Process:
    """One run of the program on an Iceberg table, which the world's pointer or its file names make known."""

    world: World
    script: Script = field(default_factory=Script)
    verb: str = "expire-snapshots"
    policy: Policy | Mapping[str, Any] = field(default_factory=dict)  # or some of its fields in JSON form
    limits: Mapping[str, Any] = field(default_factory=dict)  # of the runtime
    stop: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = SimStorage(self.world, self.script)
        self.table = self.open()
        self.runtime = self.new_runtime()
        self.shown: Plan | None = None  # the newest one

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """Those of the table's format."""
        return ICEBERG_VERBS

    def open(self) -> Any:
        """The table, as a new process would open it."""
        self.committer = self.open_catalog()
        return IcebergTable(
            name="visits",
            storage=self.storage,
            committer=self.committer,
            engine=ParsedOnce(self.storage),
            on_event=unseen,
        )

    def open_catalog(self) -> Committer:
        """The catalog, as a new process would reach it."""
        if self.world.served:
            return ServingCommitter(self.storage)
        if self.world.pointer is not None:
            return SimCommitter(self.storage)
        return FilesystemCommitter(ICEBERG_TABLE, self.storage)

    def new_runtime(self) -> Runtime:
        """The world's clock and ids, on a host that is not this one, in small batches."""
        return Runtime(
            now_ms=lambda: self.world.now_ms,
            new_uuid=self.world.new_uuid,
            sleep_ms=self.sleep,
            on_event=unseen,
            host="a host that is not this one",
            process_id=1,
            stop_requested=lambda: bool(self.stop),
            **{"sweep_batch": 4, "quick_batch_ms": 0, **self.limits},
        )

    def sleep(self, duration_ms: float) -> None:
        """Let the time go by."""
        self.world.now_ms += int(duration_ms)

    @property
    def effects(self) -> list[str]:
        """What was done, or tried, so far."""
        return self.storage.trace

    def plan(self) -> Planned:
        """The verb's plan now."""
        verb, policy = self.verbs[self.verb], self.policy
        if not isinstance(policy, Policy):
            policy = verb.policy.from_json({**verb.policy().to_json(), **policy})
        return verb.plan(self.table, policy, as_of_ms=NOW_MS)

    def run(self, *, settle: bool = True) -> Report:
        """The verb with `--yes`: finish what others left, unless told otherwise, then plan and carry it out."""
        if settle:
            self.settle()
        planned = self.plan()
        self.shown = planned.plan
        return apply(planned, self.table, self.verbs[self.verb], self.runtime)

    def settle(self) -> None:
        """Finish what others left, as every run does first; what cannot be finished is left."""
        list(recover_all(self.table, self.runtime, verbs=self.verbs))

    def resume(self) -> list[Report]:
        """`resume`, for all operations; those that take others back come first, as on the command line."""
        workspace = self.table.workspace
        opened = workspace.open_operations()
        operations = {each: workspace.journal(each).operation() for each in opened}
        takes_back = {
            each for each, found in operations.items() if found is not None and found.undoes is not None
        }
        return [
            resume(self.table, operation_id, self.runtime, verbs=self.verbs)
            for operation_id in sorted(opened, key=lambda each: each not in takes_back)
        ]

    def dies(self, run: Act) -> bool:
        """Run until the end or the script's crash; whether it crashed."""
        try:
            run()
        except Crash:
            return True
        return False


class WorldLogCommitter(DeltaLogCommitter):
    """The committer of a log in a storage that is no S3 service, though its paths look like that."""

    @cached_property
    def _service(self) -> None:
        return None


@dataclass(kw_only=True)
class DeltaProcess(Process):
    """One run of the program on the world's Delta table."""

    limits: Mapping[str, Any] = field(default_factory=lambda: {"sweep_batch": 2})

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """Those of Delta tables."""
        return DELTA_VERBS

    def open(self) -> DeltaTable:
        """The table, as a new process would open it."""
        return DeltaTable(
            name="visits",
            root=DELTA_TABLE,
            storage=self.storage,
            committer=WorldLogCommitter(DELTA_TABLE, self.storage),
            iceberg_files=iceberg_files,
            engine=ParsedOnce(self.storage),
            on_event=unseen,
        )

    def sleep(self, duration_ms: float) -> None:
        """No time goes by: waits between attempts are drawn, and a world is the same in every run."""

    def settle(self) -> None:
        """Finish what others left; what cannot be finished stops the run."""
        self.resume()

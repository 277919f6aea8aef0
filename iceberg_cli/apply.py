"""stage -> bind -> commit -> sweep: the only place where things happen, and the only deleter.

1. Write order: data and delete files, manifests, manifest list, metadata, pointer. Each references only what is
   already durable. Delete order: after the pointer, bottom-up.
2. Outcomes are three. `Unknown` deletes nothing. Files are discarded only after a proved refusal.
3. Deleted is a subset of shown AND of unreachable now. Liveness is by path.
4. Marking fails closed: a retained manifest list or manifest that cannot be read whole stops the run.
5. One `as_of_ms` per run, stored in the plan, reused by every replan.
6. A replan that would remove more than was shown stops the run (`StalePlan`).
7. Unknown fields and properties survive every rewrite of somebody's metadata.
8. Interlocks are refusals, not warnings: of the effect, not of the view.
9. Intent is journalled before each effect, the outcome after it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from iceberg_cli.committers import Attempt, Committed, Conflict, Unknown
from iceberg_cli.committers.retries import Retries
from iceberg_cli.engines import Event, OnEvent
from iceberg_cli.errors import (
    BackendUnavailable,
    CommitConflict,
    CommitStateUnknown,
    CorruptFile,
    DeletesFailed,
    Interrupted,
    Refused,
    StalePlan,
    TakenOver,
)
from iceberg_cli.iceberg.strict_json import loads
from iceberg_cli.journal import PLAN_FILE, VERSION, Journal, Operation, StepState
from iceberg_cli.plan import Base, Change, Plan, Report, Step, Task, encode
from iceberg_cli.removals import KINDS, Removals


class Verb(Protocol):
    """What `apply` needs of a verb besides its plan."""

    @property
    def operation(self) -> str:
        """Its name on the command line."""
        ...

    def make(self, task: Task, inputs: Sequence[bytes]) -> bytes:
        """The content of a task's new file. Pure."""
        ...


class Table(Protocol):
    """What `apply` needs of a table, whatever its format."""

    @property
    def location(self) -> str:
        """The table's base location."""
        ...

    def load(self) -> Base:
        """Look at the pointer and read what it points to."""
        ...

    def replan(self, plan: Plan) -> Plan:
        """The same question asked of the table as loaded last, with its removals."""
        ...

    def retries(self) -> Retries:
        """`commit.retry.*` of the table as loaded last."""
        ...

    def bind(self, step: Step, *, timestamp_ms: int, commit_uuid: str) -> Attempt:
        """This attempt's commit on the table as loaded last."""
        ...

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """One swap."""
        ...

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """What came of an earlier swap."""
        ...

    def effects_visible(self, step: Step) -> bool:
        """Whether the table as loaded last already is as the step would leave it."""
        ...

    def rebind(self, step: Step, intent: Mapping[str, Any]) -> Attempt | None:
        """The attempt that an intent of the journal describes, byte for byte; None if its base is gone."""
        ...

    def not_live(self, removals: Removals, rows: Sequence[int]) -> list[int]:
        """Those of `rows` that the table does not reach now.

        Raises:
            Refused: deletions are forbidden by now.
        """
        ...

    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes; `prefix` names the operation and is used once."""
        ...

    def stage(self, jobs: Sequence[tuple[str, Task]], make: Callable[[Task, Sequence[bytes]], bytes]) -> None:
        """Build new files from old ones, put-if-absent."""
        ...

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files; the ones still there, with the reason."""
        ...

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files of this tool's own making: a mark in the name, inside the table, named by no metadata."""
        ...

    def journal(self, operation_id: str) -> Journal:
        """The journal of an operation: empty, or as it was left."""
        ...


@dataclass(kw_only=True)
class Shell:
    """Clock, ids and limits of one run. Tests give their own."""

    now_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    sleep_ms: Callable[[float], None]
    on_event: OnEvent
    host: str
    process_id: int
    process_started: str = ""  # tells the process from a later one with the same id
    limit_deletes: int | None = None
    deadline_ms: int | None = None  # a point in time
    sweep_batch: int = 5_000  # files whose deletion is journalled at once
    stop_requested: Callable[[], bool] = field(default=lambda: False)
    deletes_left: int = 0

    def __post_init__(self) -> None:
        """Start the count of deletions."""
        self.deletes_left = -1 if self.limit_deletes is None else self.limit_deletes

    def check_stop(self, state: str) -> None:
        """Stop at a safe point if a signal asked for it."""
        if self.stop_requested():
            raise Interrupted("Stopped by a signal", state=state, next_step="`resume` finishes it.")

    def process(self) -> dict[str, Any]:
        """Who works on an operation, for its journal."""
        return {"host": self.host, "process_id": self.process_id, "process_started": self.process_started}

    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_ms is not None and self.now_ms() >= self.deadline_ms


def apply(plan: Plan, table: Table, verb: Verb, shell: Shell) -> Report:
    """Carry out a plan that an operator has seen.

    Args:
        plan: with its removals.
        table: where it applies; loaded anew for every attempt.
        verb: makes the content of staged files.
        shell: clock, ids, limits.

    Returns:
        What happened: done, nothing_to_do, waiting for its grace, or partial.

    Raises:
        Refused: an interlock forbids it. StalePlan: the table moved and more would go.
        CommitConflict, CommitStateUnknown, CorruptFile, BackendUnavailable, Interrupted.
    """
    started_ms = shell.now_ms()
    if plan.blocked_by:
        raise Refused(
            f"Cannot {plan.operation} {plan.table['name']}: " + "; ".join(plan.blocked_by),
            next_step="--dry-run shows what would be done.",
        )
    if not plan.due:
        return Report(
            operation=plan.operation, operation_id=None, status="nothing_to_do", counts=_no_counts()
        )
    removals = plan.removals
    assert removals is not None
    operation_id = shell.new_uuid()
    base = table.load()
    if base.table_uuid != plan.base.table_uuid:
        raise Refused(
            f"Cannot apply this plan: it was made for table {plan.base.table_uuid}, "
            f"and {plan.table['name']} is {base.table_uuid}"
        )
    journal = table.journal(operation_id)
    shell.check_stop("Nothing was changed.")
    rows = removals.to_parquet()
    document = encode(plan.to_json(removals_file=_removals_name(rows)))
    journal.append(
        "begin",
        {
            "version": VERSION,
            "operation": plan.operation,
            "table_uuid": base.table_uuid,
            "at_ms": started_ms,
            "plan_digest": hashlib.sha256(document).hexdigest(),
            **shell.process(),
        },
    )
    name = _removals_name(rows)
    journal.put(name, rows)
    journal.put(PLAN_FILE, document)
    run = _Run(shown=plan, shown_file=name, table=table, verb=verb, shell=shell, journal=journal)
    return run.finish(started_ms)


def resume(table: Table, operation_id: str, shell: Shell, *, verbs: Mapping[str, Verb]) -> Report:
    """Finish, undo or explain an operation that was interrupted.

    Args:
        table: where its journal is.
        operation_id: which one.
        shell: clock, ids, limits.
        verbs: by operation name.

    Returns:
        The report of the operation; `notes` say what state it was found in.

    Raises:
        As `apply`; CorruptFile for a journal or plan that cannot be read whole: nothing is deleted then.
    """
    started_ms = shell.now_ms()
    journal = table.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        journal.clean_up()
        return Report(operation="resume", operation_id=operation_id, status="nothing_to_do")
    _check_table(table, operation)
    if operation.operation not in verbs:
        raise Refused(
            f"Cannot resume {operation_id}: the verb {operation.operation!r} is not known here",
            state="Its journal and its files stay as they are.",
        )
    loaded = load_plan(journal)
    _take_over(journal, shell)
    marks = [operation_id, *(body["commit_uuid"] for body in journal.bodies("commit-intent"))]
    table.discard([path for state in operation.steps.values() for path in state.litter], marks=marks)
    if loaded is None or operation.next_action() == "discard":
        table.discard([path for state in operation.steps.values() for path in state.staged], marks=marks)
        journal.close("nothing was done")
        note = "It had stopped before its commit: the table was not changed, and nothing is left to do."
        return Report(
            operation=operation.operation, operation_id=operation_id, status="nothing_to_do", notes=(note,)
        )
    run = _Run(
        shown=loaded[0],
        shown_file=loaded[1],
        table=table,
        verb=verbs[operation.operation],
        shell=shell,
        journal=journal,
        resumed=True,
    )
    return run.finish(started_ms)


def abandon(table: Table, operation_id: str, shell: Shell) -> None:
    """Close an operation without finishing it: its files stay as they are.

    Raises:
        Refused: its commit may still happen, so its outcome must be settled first.
    """
    journal = table.journal(operation_id)
    operation = journal.operation()
    if operation is None or operation.closed is not None:
        journal.clean_up()
        return
    base = table.load()
    states = operation.steps.values()
    open_intents = [state.intent for state in states if state.intent and state.outcome in (None, "unknown")]
    if any(intent["base_location"] == base.version for intent in open_intents):
        raise Refused(
            f"Cannot abandon {operation_id}: its commit has no known outcome yet and can still happen",
            next_step="`resume` settles it first.",
        )
    _take_over(journal, shell)
    if operation.table_uuid == base.table_uuid:
        marks = [operation_id, *(body["commit_uuid"] for body in journal.bodies("commit-intent"))]
        for state in states:
            unreferenced = state.intent is None or state.outcome == "conflict"
            table.discard([*state.litter, *(state.staged if unreferenced else ())], marks=marks)
    journal.close("abandoned")


def _check_table(table: Table, operation: Operation) -> Base:
    """The table as it is now, which must be the operation's own."""
    base = table.load()
    if operation.table_uuid != base.table_uuid:
        raise Refused(
            f"Cannot go on with operation {operation.operation_id}: its journal is of table {operation.table_uuid}, "
            f"and this is {base.table_uuid}"
        )
    return base


def _take_over(journal: Journal, shell: Shell) -> None:
    """From now on no other process can append to the journal, nor have an effect that an append precedes."""
    journal.append("resume", {"at_ms": shell.now_ms(), **shell.process()})


def load_plan(journal: Journal) -> tuple[Plan, str] | None:
    """The plan that an operation was started with and its removals' name; None if it died before they were written.

    Raises:
        CorruptFile: the plan or its removals cannot be read whole.
    """
    path = f"{journal.folder}/{PLAN_FILE}"
    operation = journal.operation()
    try:
        data = journal.get(PLAN_FILE)
    except FileNotFoundError:
        if operation is not None and operation.steps:
            raise CorruptFile(path, None, "the journal has steps of this plan and it is not there") from None
        return None
    if operation is None or operation.plan_digest != hashlib.sha256(data).hexdigest():
        raise CorruptFile(path, None, "it is not the plan that the journal began with")
    document = loads(data, path)
    name = document["removals"]["file"]
    return Plan.from_json(document, removals=load_removals(journal, name), path=path), name


def load_removals(journal: Journal, name: str) -> Removals:
    """Removals that an operation has kept.

    Raises:
        CorruptFile: they are not what they were named after.
    """
    path = f"{journal.folder}/{name}"
    try:
        rows = journal.get(name)
    except FileNotFoundError:
        raise CorruptFile(path, None, "the journal names this file and it is not there") from None
    if name != _removals_name(rows):
        raise CorruptFile(path, None, "it is not the file that was written under this name")
    return Removals.from_parquet(rows, path)


@dataclass(kw_only=True)
class _Run:
    """One operation under way. `journal` is the truth; nothing here outlives the process."""

    shown: Plan
    shown_file: str  # its removals in the journal
    table: Table
    verb: Verb
    shell: Shell
    journal: Journal
    resumed: bool = False
    notes: list[str] = field(default_factory=list)
    kept_again: int = 0
    removals: dict[str, Removals] = field(default_factory=dict)  # by file name in the journal

    def finish(self, started_ms: int) -> Report:
        """Every step from where the journal stands, then close."""
        for step in self.shown.steps:
            state = self._state(step)
            if state.done:
                continue
            if state.intent is not None and state.outcome in (None, "unknown"):
                self._settle(step, state)
            state = self._state(step)
            if state.outcome != "committed" and not self._commit(step):
                return self._report("nothing_to_do", started_ms)
            if not self._sweep(step):
                waiting = self._state(step).sweep_after_ms is not None
                return self._report("waiting" if waiting else "partial", started_ms)
            self.journal.append("step-done", {"step": step.name})
        report = self._report("done", started_ms)
        self.journal.close("done")
        return report

    def _state(self, step: Step) -> StepState:
        operation = self.journal.operation()
        return StepState() if operation is None else operation.steps.get(step.name, StepState())

    def _report(self, status: str, started_ms: int) -> Report:
        counts = _no_counts()
        reclaimed = 0
        failed: list[Mapping[str, str]] = []
        location = None
        for step in self.shown.steps:
            state = self._state(step)
            location = state.metadata_location or location
            reclaimed += state.deleted_bytes
            if state.removals_file is not None:
                removals = self._removals(state.removals_file)
                failed += [{"path": removals.table["path"][row].as_py()} for row in state.failed]
        for body in self.journal.bodies("sweep-outcome"):
            for kind, count in body["by_kind"].items():
                counts[f"deleted_{kind}s_count"] = counts[f"deleted_{kind}s_count"] + count
        return Report(
            operation=self.shown.operation,
            operation_id=self.journal.operation_id,
            status=status,
            metadata_location=location,
            counts=counts,
            reclaimed_bytes=reclaimed,
            failed_deletes=tuple(failed),
            kept_again=self.kept_again,
            notes=tuple(self.notes),
            duration_ms=self.shell.now_ms() - started_ms,
        )

    def _removals(self, name: str) -> Removals:
        if name == self.shown_file:
            assert self.shown.removals is not None
            return self.shown.removals
        if name not in self.removals:
            self.removals[name] = load_removals(self.journal, name)
        return self.removals[name]

    # -- commit ------------------------------------------------------------------------------------------------

    def _commit(self, step: Step) -> bool:
        """Commit one step, or find that it has nothing left to do.

        Returns:
            False if the operation ended because its first step is no longer due.
        """
        first = step is self.shown.steps[0]
        self.table.load()
        retries = self.table.retries()
        waits = retries.waits_ms()
        # What a run before this one staged goes: its names are its own, and it may still be writing them.
        self._discard(step, self._state(step).staged)
        staged: dict[Task, str] = {}
        while True:
            if first and self.shell.stop_requested():
                self._close_unsent()
            self.shell.check_stop("Nothing was changed." if first else "Earlier steps are done.")
            base = self.table.load()
            current, now_step = self._replanned(step, base, first=first)
            if now_step is None:
                self._discard(step, list(staged.values()))
                if first:
                    self.journal.close("nothing to do any more")
                    return False
                self.journal.append("sweep-only", self._no_sweep(step))
                return True
            removals_file = self._keep_removals(current)
            staged = self._stage(now_step, staged)
            if now_step.change is None:
                self.journal.append("sweep-only", {**self._no_sweep(step), "removals_file": removals_file})
                return True
            outcome = self._attempt(now_step, removals_file, current.grace_ms, [*staged.values()])
            match outcome:
                case Committed():
                    return True
                case Unknown(cause=cause):
                    raise CommitStateUnknown(
                        f"Cannot tell whether the commit of {self.shown.table['name']} happened: {cause}",
                        next_step=f"`resume` settles operation {self.journal.operation_id}.",
                    )
                case Conflict(reason=reason):
                    wait_ms = next(waits, None)
                    if wait_ms is None:
                        self._discard(step, list(staged.values()))
                        self.journal.close("conflict")
                        raise CommitConflict(
                            f"Cannot commit to {self.shown.table['name']}: {reason}, {retries.attempts} times"
                        )
                    self.shell.sleep_ms(wait_ms)

    def _no_sweep(self, step: Step) -> dict[str, Any]:
        return {"step": step.name, "removals_file": None, "sweep_after_ms": None}

    def _replanned(self, step: Step, base: Base, *, first: bool) -> tuple[Plan, Step | None]:
        """The plan for the base at hand and the step's place in it."""
        if first and base == self.shown.base and not self.resumed:
            return self.shown, step
        current = self.table.replan(self.shown)
        if current.blocked_by:
            self._close_unsent()
            raise Refused(
                f"Cannot {self.shown.operation} {self.shown.table['name']} any more: "
                + "; ".join(current.blocked_by)
            )
        more = current.beyond(self.shown)
        if more:
            self._close_unsent()
            raise StalePlan(
                f"Cannot go on: the table moved, and {len(more)} things that were not shown would go, "
                f"such as {more[0]}",
                next_step="Plan again and look at it.",
            )
        return current, next((found for found in current.steps if found.name == step.name), None)

    def _close_unsent(self) -> None:
        """Close the operation if none of its steps is under way: each is done, or was never committed."""
        operation = self.journal.operation()
        assert operation is not None
        states = operation.steps.values()
        if all(state.done or state.outcome == "conflict" or state.intent is None for state in states):
            for step in self.shown.steps:
                if not self._state(step).done:
                    self._discard(step, self._state(step).staged)
            self.journal.close("refused")

    def _keep_removals(self, current: Plan) -> str:
        assert current.removals is not None
        if current is self.shown:
            return self.shown_file
        rows = current.removals.to_parquet()
        name = _removals_name(rows)
        self.journal.put(name, rows)
        self.removals[name] = current.removals
        return name

    def _stage(self, step: Step, staged: Mapping[Task, str]) -> dict[Task, str]:
        """Build what this plan still lacks, discard what it no longer needs: the path of each of its tasks."""
        self._discard(step, [path for task, path in staged.items() if task not in step.tasks])
        paths = {task: path for task, path in staged.items() if task in step.tasks}
        missing = [task for task in step.tasks if task not in paths]
        if missing:
            prefix = f"{self.journal.operation_id}-{self.journal.next_number}"
            new = {task: self.table.staging_path(prefix, task) for task in missing}
            self.journal.append("stage", {"step": step.name, "paths": list(new.values())})
            self.table.stage([(path, task) for task, path in new.items()], self.verb.make)
            paths |= new
        return paths

    def _attempt(
        self, step: Step, removals_file: str, grace_ms: int, staged: Sequence[str]
    ) -> Committed | Conflict | Unknown:
        now_ms = self.shell.now_ms()
        attempt = self.table.bind(step, timestamp_ms=now_ms, commit_uuid=self.shell.new_uuid())
        attempt = replace(attempt, fresh=True)
        intent = {
            "step": step.name,
            "base_location": attempt.base_location,
            "metadata_location": attempt.metadata_location,
            "digest": attempt.digest,
            "timestamp_ms": attempt.commit.timestamp_ms,
            "commit_uuid": attempt.commit.commit_uuid,
            "updates": [update.to_json() for update in attempt.commit.updates],
            "removals_file": removals_file,
            "grace_ms": grace_ms,
            "scratch": list(attempt.scratch),
            "own_files": [attempt.metadata_location] if attempt.own_name else [],
        }
        try:
            self.journal.append("commit-intent", intent)
        except TakenOver:
            # No commit that names them was ever about to be sent.
            self.table.discard(staged, marks=[self.journal.operation_id])
            raise
        outcome = self.table.commit(attempt)
        self._record_outcome(step, intent, outcome)
        return outcome

    def _record_outcome(
        self, step: Step, intent: Mapping[str, Any], outcome: Committed | Conflict | Unknown
    ) -> None:
        """Record what came of a swap, then delete what it left behind and nobody can reference."""
        committed = isinstance(outcome, Committed)
        grace_ms = int(intent["grace_ms"])
        self.journal.append(
            "commit-outcome",
            {
                "step": step.name,
                "outcome": type(outcome).__name__.lower(),
                "metadata_location": outcome.metadata_location if isinstance(outcome, Committed) else None,
                "sweep_after_ms": self.shell.now_ms() + grace_ms if committed and grace_ms else None,
            },
        )
        match outcome:
            case Committed():
                self.table.discard(intent["scratch"], marks=[intent["commit_uuid"]])
            case Conflict():
                self.table.discard([*intent["scratch"], *intent["own_files"]], marks=[intent["commit_uuid"]])
            case Unknown():
                pass  # whatever it wrote may be the table's

    def _settle(self, step: Step, state: StepState) -> None:
        """Find out what came of a swap that was sent, or send the same one again."""
        assert state.intent is not None
        base = self.table.load()
        attempt = self.table.rebind(step, state.intent)
        location = state.intent["metadata_location"]
        outcome = (
            Unknown(cause="its base is not there any more") if attempt is None else self.table.settle(attempt)
        )
        if isinstance(outcome, Unknown) and base.version != state.intent["base_location"]:
            # The base has moved, so the swap cannot happen any more; had it happened, its effects would show. The
            # sweep recomputes what is live in any case.
            sent = replace(step, change=Change(updates=tuple(state.intent["updates"])))
            if self.table.effects_visible(sent):
                outcome = Committed(metadata_location=location)
            else:
                outcome = Conflict(reason="the table has moved, and no effect of this commit shows")
        elif isinstance(outcome, Unknown) and attempt is not None:
            # The base is still current, so the same swap, with the same content, can be sent again.
            outcome = self.table.commit(attempt)
        self._record_outcome(step, state.intent, outcome)
        match outcome:
            case Committed():
                self.notes.append("Its commit had happened." if self.resumed else "The commit happened.")
            case Conflict():
                self.notes.append("Its commit had been refused; it was planned again.")
            case Unknown(cause=cause):
                raise CommitStateUnknown(
                    f"Cannot tell yet whether the commit of {self.shown.table['name']} happened: {cause}",
                    next_step=f"`resume` asks again for operation {self.journal.operation_id}.",
                )

    def _discard(self, step: Step, paths: Sequence[str]) -> None:
        """Delete staged files that nothing references, once it is recorded that nothing ever will."""
        if paths:
            self.journal.append("discard", {"step": step.name, "paths": list(paths)})
            self.table.discard(paths, marks=[self.journal.operation_id])

    # -- sweep -------------------------------------------------------------------------------------------------

    def _sweep(self, step: Step) -> bool:
        """Delete what the step's removals list and the table does not reach now.

        Returns:
            False if something is left: the grace is not over, a limit was reached, or a deletion failed.
        """
        state = self._state(step)
        if state.removals_file is None:
            return True
        if state.sweep_after_ms is not None and self.shell.now_ms() < state.sweep_after_ms:
            return False
        removals = self._removals(state.removals_file)
        start, stop = removals.of_step(step.name)
        batches = [*_batches(list(state.failed), self.shell.sweep_batch)]
        for first, last in _gaps(start, stop, state.swept):
            batches += _batches(range(first, last), self.shell.sweep_batch)
        done = 0
        for batch in batches:
            allowed = batch if self.shell.deletes_left < 0 else batch[: self.shell.deletes_left]
            if not allowed or self.shell.out_of_time():
                return self._stopped_at_limit()
            self.shell.check_stop("The commit is done. Some unreferenced files are still there.")
            try:
                self._sweep_rows(step, removals, allowed)
            except (CorruptFile, BackendUnavailable) as error:
                raise DeletesFailed(
                    f"Cannot go on deleting: {error.message}",
                    next_step=f"`resume` goes on with operation {self.journal.operation_id}.",
                ) from error
            done += len(allowed)
            self.shell.on_event(Event(phase="deleting files", done=done, total=sum(map(len, batches))))
            if len(allowed) < len(batch):
                return self._stopped_at_limit()
        return not self._state(step).failed

    def _stopped_at_limit(self) -> bool:
        self.notes.append("Stopped at the limit that was asked for; `resume` goes on.")
        return False

    def _sweep_rows(self, step: Step, removals: Removals, batch: Sequence[int]) -> None:
        whole = isinstance(batch, range)
        asked = {"start": batch[0], "stop": batch[-1] + 1} if whole else {"rows": list(batch)}
        self.journal.append("sweep-intent", {"step": step.name, **asked})
        # After the record, so that as little as possible can happen between the look and the deletion.
        rows = self.table.not_live(removals, batch)
        self.kept_again += len(batch) - len(rows)
        table = removals.rows(rows)
        paths = table["path"].to_pylist()
        failures = self.table.delete(paths)
        gone = [path not in failures for path in paths]
        by_kind: dict[str, int] = {}
        size_bytes = 0
        for kind, size, is_gone in zip(
            table["kind"].to_pylist(), table["size_bytes"].to_pylist(), gone, strict=True
        ):
            if is_gone:
                by_kind[kind] = by_kind.get(kind, 0) + 1
                size_bytes += size or 0
        self.journal.append(
            "sweep-outcome",
            {
                "step": step.name,
                **asked,
                "by_kind": by_kind,
                "bytes": size_bytes,
                "failed": [row for row, is_gone in zip(rows, gone, strict=True) if not is_gone],
                "reasons": sorted(set(failures.values()))[:5],
            },
        )
        if self.shell.deletes_left >= 0:
            self.shell.deletes_left -= len(batch)


def _batches(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Slices of at most `size` rows."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _no_counts() -> dict[str, int]:
    return {f"deleted_{kind}s_count": 0 for kind in KINDS}


def _removals_name(rows: bytes) -> str:
    return f"removals-{hashlib.sha256(rows).hexdigest()[:32]}.parquet"


def _gaps(start: int, stop: int, done: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The row ranges of `[start, stop)` that are in none of `done`."""
    for first, last in sorted(done):
        if first > start:
            yield start, min(first, stop)
        start = max(start, last)
    if start < stop:
        yield start, stop


def system_shell(*, on_event: OnEvent, **values: Any) -> Shell:
    """The clock, ids and sleep of a real run; `values` are the other fields of `Shell`."""
    import uuid

    return Shell(
        now_ms=lambda: time.time_ns() // 1_000_000,  # noqa: TID251 - this is the shell
        new_uuid=lambda: str(uuid.uuid4()),
        sleep_ms=lambda ms: time.sleep(ms / 1_000),
        on_event=on_event,
        **values,
    )

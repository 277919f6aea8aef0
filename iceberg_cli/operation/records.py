"""What an operation's records say of it: folded into its state. Pure; the answer to "what is safe now?"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.errors import CorruptFile, Refused

VERSION = 1  # of the records; a newer program's journal is left to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of an operation's life."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What is known of one step.

    `swept` are row ranges `[start, stop)` of the step's removals whose deletion was tried and recorded;
    `failed` the rows among them that are still there. `leftovers` are files of ours that may be there and that nothing
    will ever reference: their names are not used again. `left` are files of ours that a version of the past may name:
    they stay. `by_workers` are files, staged or not any more, that processes
    other than the journal's write, which may outlive it.
    """

    staged: tuple[str, ...] = ()
    by_workers: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    intent: Mapping[str, Any] | None = None
    outcome: str | None = None  # committed, conflict, unknown; None while the intent has no answer
    metadata_location: str | None = None
    removals_file: str | None = None
    sweep_after_ms: int | None = None
    swept: tuple[tuple[int, int], ...] = ()
    failed: tuple[int, ...] = ()
    deleted_bytes: int = 0
    done: bool = False

    def orphaned(self) -> list[str]:
        """Files of workers that no commit names and, once another process has taken over, none ever will."""
        unnamed = self.outcome == "conflict" or (self.intent is None and self.outcome is None)
        by_workers = frozenset(self.by_workers)
        return [path for path in self.staged if path in by_workers] if unnamed else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as its journal tells it: the answer to "what is safe now?".

    `late` are files that workers may still write for a process from which another one took over, and that nothing will
    ever reference. `look_again` says that all is done but for these: `at_ms`, the time of the last look, and the
    `status` to close with.
    """

    operation_id: str
    operation: str
    table_uuid: str
    started_ms: int
    plan_digest: str
    host: str  # of the process that began it or took it over last, as are the next two
    process_id: int
    process_started: str  # tells a process from a later one with the same id; empty where it is not known
    step_names: tuple[str, ...] = ()  # all of the plan's, in order
    steps: Mapping[str, StepState] = field(default_factory=dict)  # those that have begun
    late: tuple[str, ...] = ()
    look_again: Mapping[str, Any] | None = None
    closed: str | None = None

    def uncommitted(self) -> tuple[str, ...]:
        """The steps whose commit is still to come."""
        return tuple(
            name for name in self.step_names if self.steps.get(name, StepState()).outcome != "committed"
        )

    def next_action(self) -> str:
        """What to do first: `clean-up`, `look-again`, `ask-the-catalog`, `wait`, `sweep`, `discard` or `go-on`."""
        if self.closed is not None:
            return "clean-up"
        if self.look_again is not None:
            return "look-again"
        if not self.steps:
            return "discard"
        last = list(self.steps.values())[-1]
        if last.done:
            return "go-on"
        if last.intent is not None and last.outcome in (None, "unknown"):
            return "ask-the-catalog"
        if last.outcome == "committed":
            return "wait" if last.sweep_after_ms is not None and not last.swept else "sweep"
        return "go-on" if len(self.steps) > 1 else "discard"


def fold(operation_id: str, records: Sequence[Record]) -> Operation:
    """An operation from its records. Pure.

    Raises:
        CorruptFile: the records do not start with `begin`, or one lacks a field.
        Refused: a newer version of this program wrote them.
    """
    if not records or records[0].kind != "begin":
        raise CorruptFile(operation_id, None, "the journal does not start with a begin record")
    if records[0].body.get("version") != VERSION:
        raise Refused(
            f"Cannot read the journal of operation {operation_id}: it has version "
            f"{records[0].body.get('version')!r}, and {VERSION} is known here",
            next_step="Resume it with the version of iceberg-cli that began it.",
        )
    try:
        return _fold(operation_id, records)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(operation_id, None, f"a record of the journal lacks a field: {error}") from error


def _fold(operation_id: str, records: Sequence[Record]) -> Operation:
    begin = owner = records[0].body
    steps: dict[str, StepState] = {}
    late: dict[str, None] = {}
    look_again = closed = None
    for record in records[1:]:
        body = record.body
        match record.kind:
            case "close":
                closed = body["status"]
            case "resume":
                owner = body
                late |= dict.fromkeys(path for state in steps.values() for path in state.orphaned())
            case "look-again":
                look_again = body
            case _:
                known = steps.get(body["step"], StepState())
                steps[body["step"]] = _fold_step(known, record.kind, body)
    return Operation(
        operation_id=operation_id,
        operation=begin["operation"],
        table_uuid=begin["table_uuid"],
        started_ms=begin["at_ms"],
        plan_digest=begin["plan_digest"],
        step_names=tuple(begin["steps"]),
        host=owner["host"],
        process_id=int(owner["process_id"]),
        process_started=str(owner["process_started"]),
        steps=steps,
        late=tuple(late),
        look_again=look_again,
        closed=closed,
    )


def _fold_step(state: StepState, kind: str, body: Mapping[str, Any]) -> StepState:
    values = {name: getattr(state, name) for name in StepState.__dataclass_fields__}
    match kind:
        case "stage":
            values["staged"] = (*state.staged, *body["paths"])
            if body.get("by_workers"):
                values["by_workers"] = (*state.by_workers, *body["paths"])
        case "discard":
            gone = set(body["paths"])
            values["staged"] = tuple(path for path in state.staged if path not in gone)
            values["leftovers"] = (*state.leftovers, *body["paths"])
        case "leave":
            values["left"] = (*state.left, *body["paths"])
            values["staged"] = tuple(path for path in state.staged if path not in set(body["paths"]))
        case "commit-intent":
            values.update(intent=body, outcome=None, removals_file=body["removals_file"])
        case "commit-outcome":
            values.update(
                outcome=body["outcome"],
                metadata_location=body["metadata_location"],
                sweep_after_ms=body["sweep_after_ms"],
                leftovers=(*state.leftovers, *_leftovers_of(state, body["outcome"])),
            )
        case "sweep-only":
            values.update(
                outcome="committed",
                removals_file=body["removals_file"],
                sweep_after_ms=body["sweep_after_ms"],
            )
        case "sweep-intent":
            values["sweep_after_ms"] = None
        case "sweep-outcome":
            if "rows" in body:
                retried = set(body["rows"])
            else:
                retried = set(range(body["start"], body["stop"]))
                values["swept"] = (*state.swept, (body["start"], body["stop"]))
            values["failed"] = (*(row for row in state.failed if row not in retried), *body["failed"])
            values["deleted_bytes"] = state.deleted_bytes + body["bytes"]
        case "step-done":
            values["done"] = True
        case other:
            raise CorruptFile(body["step"], None, f"the journal has a record of unknown kind {other!r}")
    return StepState(**values)


def _leftovers_of(state: StepState, outcome: str) -> Sequence[str]:
    """What a swap leaves behind: its scratch files, and its own new files once it is refused."""
    match outcome:
        case "conflict" if state.intent is not None:
            paths = [*state.intent["scratch"], *state.intent["own_files"]]
            return [path for path in paths if path not in state.left]
        case "committed" if state.intent is not None:
            return list(state.intent["scratch"])
        case _:
            return []

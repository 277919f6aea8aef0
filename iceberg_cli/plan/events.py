"""The events of a run: progress, the begin and end of its phases, commits, deletions. Listeners get each at once.

A listener is a function of one event, called in the thread that does the work. What emits knows none: the display of
progress, the log file, the metrics and the spans of traces are all made of these. A phase is a named part of a run that
may take long. Phases lie in each other: in `plan` files are read, and in `recover` there is a `commit`.

Events are named tuples: dataclasses would take three times as long to make, at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

OPEN, ENGINE, RECOVER, PLAN, RECORD = "open", "start engine", "recover", "plan", "record"
STAGE, COMMIT, WAIT, SWEEP = "stage", "commit", "wait", "sweep"
INSPECT, CHECK, SAVE = "inspect", "check", "save"


class Event(NamedTuple):
    """The progress of a phase, in `unit`. `total` is None where it is not known yet."""

    phase: str
    done: int
    total: int | None
    unit: str = "files"


class PhaseBegun(NamedTuple):
    """The begin of a phase, of the operation where one is under way."""

    phase: str
    table: str
    operation_id: str | None = None


class PhaseEnded(NamedTuple):
    """The end of the phase that was begun last; `error` is the class of the exception that ended it."""

    phase: str
    operation_id: str | None = None
    error: str | None = None


class PlanMade(NamedTuple):
    """A plan that was made: whether it is due, the files and bytes that would go, and what to know about it."""

    table: str
    verb: str
    due: bool
    files: int
    size_bytes: int
    warnings: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()


class CommitEnded(NamedTuple):
    """The outcome of one attempt to commit a step.

    Args:
        table: its name.
        verb: of the operation.
        operation_id: of the attempt.
        step: its name.
        outcome: `committed`, `conflict` or `unknown`.
        reason: why it was refused, or is not known.
        location: what a committed one made the current metadata, or version.
    """

    table: str
    verb: str
    operation_id: str
    step: str
    outcome: str
    reason: str = ""
    location: str | None = None


class FilesDeleted(NamedTuple):
    """The outcome of one batch of deletions.

    Args:
        table: its name.
        verb: of the operation.
        operation_id: which deletes.
        by_kind: files and bytes of each kind that are gone, by its name in plans and reports.
        paths: of the files that are gone, a column, of which only who writes them down makes texts.
        kept: files that are needed again, and stay.
        kept_bytes: their size.
        failures: the reason why a file is still there, by path.
        tagged: files that their storage tagged in place of deleting them.
        tagged_bytes: their size.
    """

    table: str
    verb: str
    operation_id: str
    by_kind: Mapping[str, tuple[int, int]]
    paths: pa.ChunkedArray
    kept: int = 0
    kept_bytes: int = 0
    failures: Mapping[str, str] = {}
    tagged: int = 0
    tagged_bytes: int = 0


class OperationEnded(NamedTuple):
    """The end of an operation in this run, which may be left open.

    Args:
        table: its name.
        verb: its name.
        operation_id: None where nothing was to be done.
        status: as in its report.
        earlier: it had been begun by an earlier run.
        exit_code: 0 unless something is left to worry about.
        counts: the result columns of its report.
        reclaimed_bytes: of all its deletions, also by runs before.
        notes: what its report says in words.
    """

    table: str
    verb: str
    operation_id: str | None
    status: str
    earlier: bool
    exit_code: int
    counts: Mapping[str, int]
    reclaimed_bytes: int
    notes: tuple[str, ...]


class TableMeasured(NamedTuple):
    """What a command about many tables found of one of them, or of one verb on it.

    There may be several of each; what the last one has holds. None: not known, or not looked for.

    Args:
        table: its name.
        format: of the table.
        verb: its name; None: of the table as a whole.
        exit_code: of that alone.
        is_success: the verb came to its end; of a table as a whole, all that were to run. None: none is to be expected.
        grade: of a survey, the worse the greater.
        due_bytes: of files that would go, or are to go, and are still there.
        oldest_snapshot_ms: the time of the oldest snapshot, or of the oldest version in a Delta log.
        open_operations: how many operations are not closed.
    """

    table: str
    format: str
    verb: str | None = None
    exit_code: int | None = None
    is_success: bool | None = None
    grade: int | None = None
    due_bytes: int | None = None
    oldest_snapshot_ms: int | None = None
    open_operations: int | None = None


class FleetCounted(NamedTuple):
    """The end of a command about many tables.

    Args:
        what: is counted: `tables` or `verb_runs`.
        label: by what.
        counts: by value of that.
        due: files and bytes that are to go and are still there.
        is_whole: every place could be listed whole: there are no tables but those that were measured.
    """

    what: str
    label: str
    counts: Mapping[str, int]
    due: tuple[int, int]
    is_whole: bool = True


AnyEvent = (
    TableMeasured
    | FleetCounted
    | Event
    | PhaseBegun
    | PhaseEnded
    | PlanMade
    | CommitEnded
    | FilesDeleted
    | OperationEnded
)
Listener = Callable[[AnyEvent], None]
OnProgress = Callable[[Event], None]  # a listener of progress alone; every other one is one too


def unheard(_: AnyEvent) -> None:
    """The listener where nobody listens."""


@contextmanager
def phase(name: str, on_event: Listener, *, table: str, operation_id: str | None = None) -> Iterator[None]:
    """Tell a listener the begin and the end of a phase, which is the block."""
    on_event(PhaseBegun(phase=name, table=table, operation_id=operation_id))
    error = None
    try:
        yield
    except BaseException as caught:
        error = type(caught).__name__
        raise
    finally:
        on_event(PhaseEnded(phase=name, operation_id=operation_id, error=error))

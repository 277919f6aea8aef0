"""The file of `--log-file`: JSON lines for the log shippers of operators. The journal stays the record.

Each line is one write to the end of the file, so that several runs can share it. A name that is moved away and SIGHUP,
as logrotate does, make a new file. Deleted files are named a hundred a line, for shippers cut long ones; one that could
not be deleted has a line of its own.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli import __version__
from iceberg_cli.cli import subject
from iceberg_cli.cli.clock import now_ms
from iceberg_cli.cli.listening import listeners
from iceberg_cli.errors import IcebergCliError, UsageError
from iceberg_cli.plan.events import (
    AnyEvent,
    CommitEnded,
    Event,
    FilesDeleted,
    OperationEnded,
    PhaseBegun,
    PhaseEnded,
    PlanMade,
)
from iceberg_cli.plan.open_phases import OpenPhases
from iceberg_cli.plan.text import iso
from iceberg_cli.storage.redaction import redact

INFO, WARNING, ERROR = "INFO", "WARNING", "ERROR"
_PATHS_IN_A_LINE: Final = 100
_WITH_VALUES: Final = ("--storage-option", "--spark-conf")


def listen(path: str, *, as_of_ms: int) -> None:
    """Append to a log file from now on, and open it anew at SIGHUP.

    Args:
        path: of the file.
        as_of_ms: the "now" of every age of the run.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        descriptor = _open(path)
    except OSError as error:
        raise UsageError(f"--log-file: cannot write {path}: {error.strerror}") from error
    log = LogFile(path, descriptor)
    listeners.add(log)
    log.before = signal.signal(signal.SIGHUP, lambda _number, _frame: log.reopen())
    signal.siginterrupt(signal.SIGHUP, False)  # what waits for a storage goes on waiting
    words = [redact(word, listeners.hidden()) for word in _without_values(listeners.words())]
    log.write(
        INFO,
        "start",
        " ".join(["iceberg-cli", *words]),
        version=__version__,
        command=words,
        as_of_ms=as_of_ms,
        as_of=iso(as_of_ms),
        process_id=os.getpid(),
    )


def _open(path: str) -> int:
    # A named pipe that nobody reads is an error: to wait for a reader would hold up a commit, where SIGHUP came in it.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _without_values(words: Sequence[str]) -> list[str]:
    """The words of a command line; options whose values may be secrets keep their keys."""
    shown: list[str] = []
    is_value = False
    for word in words:
        name, equals, value = word.partition("=")
        if is_value:
            shown.append(_key_alone(word))
        elif equals and name in _WITH_VALUES:
            shown.append(f"{name}={_key_alone(value)}")
        else:
            shown.append(word)
        is_value = not is_value and word in _WITH_VALUES
    return shown


def _key_alone(text: str) -> str:
    key, _, value = text.partition("=")
    return text if value.startswith(("@", "env:")) else f"{key}=***"


@dataclass(eq=False)
class LogFile:
    """A listener that writes lines of a log.

    Args:
        path: of the file.
        descriptor: of the file, opened to append.
    """

    path: str
    descriptor: int
    before: Any = None  # the handler of SIGHUP
    _began_s: float = field(default_factory=time.monotonic)
    _phases: OpenPhases[tuple[PhaseBegun, float]] = field(default_factory=OpenPhases)
    _lost: bool = False
    _torn: bool = False  # the last line has no end
    _not_opened: str = ""  # why the file could not be opened anew

    def __call__(self, event: AnyEvent) -> None:
        """Write the line of an event; progress has none."""
        match event:
            case Event():
                pass
            case PhaseBegun(phase=name):
                self._phases.begin(name, (event, time.monotonic()))
                self.write(INFO, "phase_begun", f"{name} begins")
            case PhaseEnded():
                self._end_phase(event)
            case PlanMade():
                self._plan(event)
            case CommitEnded(outcome=outcome, reason=reason):
                self.write(
                    INFO if outcome == "committed" else WARNING,
                    "commit",
                    f"{event.step}: {outcome}" + (f", {reason}" if reason else ""),
                    operation_id=event.operation_id,
                    table=event.table,
                    step=event.step,
                    outcome=outcome,
                    reason=reason or None,
                    location=event.location,
                )
            case FilesDeleted():
                self._deleted(event)
            case OperationEnded():
                self.write(
                    WARNING if event.exit_code else INFO,
                    "operation_ended",
                    " ".join([f"{event.verb}: {event.status}.", *event.notes]),
                    operation_id=event.operation_id,
                    table=event.table,
                    operation=event.verb,
                    status=event.status,
                    earlier=event.earlier,
                    exit_code=event.exit_code,
                    reclaimed_bytes=event.reclaimed_bytes,
                    counts={name: number for name, number in event.counts.items() if number},
                )

    def _end_phase(self, event: PhaseEnded) -> None:
        found = self._phases.end(event.phase)
        if found is None:
            return
        _, begun_s = found
        lasted_ms = round((time.monotonic() - begun_s) * 1_000)
        text = f"{event.phase} ends" if event.error is None else f"{event.phase} ends by {event.error}"
        # The line is one of the phase that it ends.
        self._phases.begin(event.phase, found)
        self.write(INFO, "phase_ended", text, duration_ms=lasted_ms, error=event.error)
        self._phases.end(event.phase)

    def _plan(self, event: PlanMade) -> None:
        for text in event.warnings:
            self.write(WARNING, "warning", text, table=event.table)
        for reason in event.blocked_by:
            self.write(WARNING, "blocked", f"blocked by: {reason}", table=event.table)
        self.write(
            INFO,
            "plan",
            f"{event.verb}: {event.files} files would go" if event.due else f"{event.verb}: nothing is due",
            table=event.table,
            operation=event.verb,
            due=event.due,
            files=event.files,
            bytes=event.size_bytes,
        )

    def _deleted(self, event: FilesDeleted) -> None:
        files = sum(count for count, _ in event.by_kind.values())
        for path, reason in event.failures.items():
            self.write(
                WARNING,
                "delete_failed",
                f"still there: {path}: {reason}",
                operation_id=event.operation_id,
                table=event.table,
                path=path,
                reason=reason,
            )
        for start in range(0, len(event.paths), _PATHS_IN_A_LINE):
            paths = event.paths.slice(start, _PATHS_IN_A_LINE).to_pylist()
            self.write(
                INFO,
                "deleted_paths",
                f"deleted: {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""),
                operation_id=event.operation_id,
                table=event.table,
                paths=paths,
            )
        self.write(
            INFO,
            "deleted",
            f"{files} files deleted" + (f", {event.tagged} tagged and not deleted" if event.tagged else ""),
            operation_id=event.operation_id,
            table=event.table,
            files=files,
            bytes=sum(size for _, size in event.by_kind.values()),
            by_kind={kind: count for kind, (count, _) in event.by_kind.items()},
            kept=event.kept,
            failed=len(event.failures),
            **({"tagged": event.tagged} if event.tagged else {}),
        )

    def warned(self, text: str) -> None:
        """Write a warning."""
        self.write(WARNING, "warning", text)

    def end(self, exit_code: int, error: BaseException | None) -> None:
        """Write the error, if there is one, and the last line."""
        if error is not None:
            known = error if isinstance(error, IcebergCliError) else None
            self.write(
                ERROR,
                "error",
                (known.message if known else str(error)) or type(error).__name__,
                error=type(error).__name__,
                exit_code=exit_code,
                state=known and known.state,
                next=known and known.next_step,
            )
        self._phases.clear()
        lasted_ms = round((time.monotonic() - self._began_s) * 1_000)
        level = INFO if exit_code in (0, 3) else ERROR
        self.write(
            level, "end", f"ends with exit code {exit_code}", exit_code=exit_code, duration_ms=lasted_ms
        )
        signal.signal(signal.SIGHUP, self.before)
        os.close(self.descriptor)

    def write(
        self,
        level: str,
        event: str,
        message: str,
        *,
        operation_id: str | None = None,
        table: str | None = None,
        **values: Any,
    ) -> None:
        """Write one line; the first one that cannot be written is a warning on standard error.

        Args:
            level: INFO, WARNING or ERROR.
            event: what kind of line it is, in a word.
            message: for people.
            operation_id: by default that of the phase.
            table: which it is about, where the command line names none; by default that of the phase.
            values: more fields.
        """
        if self._not_opened:
            self._warn_once(self._not_opened)
        phases = [begun for begun, _ in self._phases.values]
        of_phase = next((each.operation_id for each in reversed(phases) if each.operation_id), None)
        document = {
            "time": iso(now_ms()),
            "level": level,
            "event": event,
            "verb": subject.command(),
            "table": subject.name() or table or (phases[-1].table if phases else None),
            "operation_id": operation_id or of_phase,
            "phase": phases[-1].phase if phases else None,
            "message": message,
            **values,
        }
        line = json.dumps(_redacted(document)).encode() + b"\n"
        if self._torn:
            line = b"\n" + line
        try:
            written = os.write(self.descriptor, line)
            self._torn = written < len(line)
            if not self._torn:
                return
            reason = "there is no room left"
        except OSError as error:
            reason = error.strerror or str(error)
        self._warn_once(reason)

    def _warn_once(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            listeners.warn(f"--log-file: cannot write {self.path}, lines are lost: {reason}")

    def reopen(self) -> None:
        """Write to the file of that name from now on, which is made anew where it was moved away.

        The descriptor stays the same number: a write that is under way goes to one file or the other. A signal calls
        this anywhere, also amid a message on standard error: so what goes wrong is told with the next line.
        """
        try:
            descriptor = _open(self.path)
        except OSError as error:
            self._not_opened = f"it cannot be opened anew: {error.strerror}"
            return
        os.dup2(descriptor, self.descriptor, inheritable=False)
        os.close(descriptor)


def _redacted(value: Any) -> Any:
    """The same value, no text of which has a secret in it."""
    if isinstance(value, str):
        return redact(value, listeners.hidden())
    if isinstance(value, dict):
        return {key: _redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    return value

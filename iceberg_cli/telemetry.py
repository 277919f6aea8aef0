"""Spans and metrics of OpenTelemetry, where the program that this package runs in has set it up.

Only its API is used. Whether there may be an SDK is seen without importing anything: whoever set one up has imported
it, or names it in a variable that the API reads. Where there is none, nothing of this costs anything.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from iceberg_cli import __version__
from iceberg_cli.plan.events import (
    AnyEvent,
    CommitEnded,
    FilesDeleted,
    Listener,
    OperationEnded,
    PhaseBegun,
    PhaseEnded,
    PlanMade,
)
from iceberg_cli.storage.redaction import redact

_NAME: Final = "iceberg_cli"
_VARIABLES: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")
_FLUSH_S: Final = 10.0


def may_be_set_up() -> bool:
    """Whether there may be an SDK."""
    return "opentelemetry.trace" in sys.modules or any(name in os.environ for name in _VARIABLES)


def traced(on_event: Listener) -> Listener:
    """The same listener, and before it one that makes spans and metrics where there may be an SDK."""
    if not may_be_set_up():
        return on_event
    try:
        return _Traced(on_event)
    except ImportError:  # a variable names it, and it is not installed
        return on_event


class _Span:
    """A span that is the current one from its begin to its end."""

    def __init__(self, name: str, attributes: dict[str, str | None]) -> None:
        from opentelemetry import context, trace

        tracer = trace.get_tracer(_NAME, __version__)
        known = {key: redact(value) for key, value in attributes.items() if value is not None}
        self.span = tracer.start_span(name, attributes=known)
        self._token = context.attach(trace.set_span_in_context(self.span))

    def end(self, error: str | None) -> None:
        """End it, with what it ended by."""
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self.span.set_status(Status(StatusCode.ERROR, redact(error)))
        context.detach(self._token)
        self.span.end()


@dataclass(frozen=True)
class _Instruments:
    """The counters and gauges, by the names that they have in the file of `--metrics`."""

    reclaimed_bytes: Any
    deleted_files: Any
    failed_deletes: Any
    commit_attempts: Any
    due_bytes: Any
    due_files: Any


@lru_cache(maxsize=1)
def _instruments(provider: object) -> _Instruments:
    """The instruments of a meter provider, made once."""
    from opentelemetry import metrics

    meter = metrics.get_meter(_NAME, __version__, meter_provider=provider)  # type: ignore[arg-type]
    return _Instruments(
        reclaimed_bytes=meter.create_counter("iceberg_cli_reclaimed_bytes", "By", "Bytes of deleted files."),
        deleted_files=meter.create_counter("iceberg_cli_deleted_files", "{file}", "Deleted files, by kind."),
        failed_deletes=meter.create_counter(
            "iceberg_cli_failed_deletes", "{file}", "Files that could not be deleted."
        ),
        commit_attempts=meter.create_counter(
            "iceberg_cli_commit_attempts", "{commit}", "Commits, by outcome."
        ),
        due_bytes=meter.create_gauge("iceberg_cli_due_bytes", "By", "Bytes that the last plan would free."),
        due_files=meter.create_gauge(
            "iceberg_cli_due_files", "{file}", "Files that the last plan would delete."
        ),
    )


class _Traced:
    """A listener that makes a span of each phase, and counts.

    Args:
        on_event: the listener that it passes on to.
    """

    def __init__(self, on_event: Listener) -> None:
        from opentelemetry import metrics

        self._on_event = on_event
        self._spans: list[tuple[str, _Span]] = []
        self._instruments = _instruments(metrics.get_meter_provider())

    def __call__(self, event: AnyEvent) -> None:
        """Take note of an event, and pass it on.

        An SDK, or what is plugged into it, may raise anything: that ends no commit, as the API promises of itself.
        """
        try:
            self._note(event)
        except Exception:
            import logging

            logging.getLogger(_NAME).exception("a span or metric is lost")
        self._on_event(event)

    def _note(self, event: AnyEvent) -> None:
        match event:
            case PhaseBegun(phase=name, table=table, operation_id=operation_id):
                attributes: dict[str, str | None] = {
                    "iceberg_cli.table": table,
                    "iceberg_cli.operation_id": operation_id,
                }
                self._spans.append((name, _Span(name, attributes)))
            case PhaseEnded():
                self._end(event)
            case PlanMade() | CommitEnded() | FilesDeleted() | OperationEnded():
                self._count(event)

    def _end(self, event: PhaseEnded) -> None:
        # Where a signal struck, the end of an inner phase may be missing.
        while self._spans:
            name, span = self._spans.pop()
            span.end(event.error)
            if name == event.phase:
                return

    def _count(self, event: PlanMade | CommitEnded | FilesDeleted | OperationEnded) -> None:
        labels = {"table": redact(event.table), "verb": event.verb}
        to = self._instruments
        match event:
            case PlanMade(files=files, size_bytes=size_bytes):
                to.due_bytes.set(size_bytes, labels)
                to.due_files.set(files, labels)
            case CommitEnded(outcome=outcome):
                to.commit_attempts.add(1, {**labels, "outcome": outcome})
            case FilesDeleted(by_kind=by_kind, failures=failures):
                for kind, (files, size_bytes) in by_kind.items():
                    to.deleted_files.add(files, {**labels, "kind": kind})
                    to.reclaimed_bytes.add(size_bytes, labels)
                to.failed_deletes.add(len(failures), labels)
            case OperationEnded(status=status) if status in {"done", "nothing_to_do"} and not event.earlier:
                to.due_bytes.set(0, labels)
                to.due_files.set(0, labels)


class RunSpan:
    """The span of a command line, in which those of its phases lie.

    Args:
        command: its name.
        table: as it was named, or None.
    """

    def __init__(self, command: str, table: str | None) -> None:
        attributes: dict[str, str | None] = {"iceberg_cli.verb": command, "iceberg_cli.table": table}
        try:
            self._span: _Span | None = _Span(f"iceberg-cli {command}", attributes)
        except ImportError:  # a variable names it, and it is not installed
            self._span = None

    def __call__(self, event: AnyEvent) -> None:
        """Nothing: the phases have spans of their own."""

    def warned(self, text: str) -> None:
        """Nothing: warnings are for the log."""

    def end(self, exit_code: int, error: BaseException | None) -> None:
        """End the span, with the exit code."""
        if self._span is not None:
            self._span.span.set_attribute("iceberg_cli.exit_code", exit_code)
            failure = getattr(error, "message", str(error)) if error else f"exit code {exit_code}"
            self._span.end(None if exit_code in (0, 3) else failure)


def flush() -> None:
    """Have what was not sent yet sent, before the process ends at once; after some seconds it is lost."""
    if not may_be_set_up():
        return
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return
    import threading

    def flush_all() -> None:
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            if (force_flush := getattr(provider, "force_flush", None)) is not None:
                force_flush()

    flushing = threading.Thread(target=flush_all, daemon=True)
    flushing.start()
    flushing.join(_FLUSH_S)

"""Spans and metrics by the SDK of OpenTelemetry: in this process, and in one that is instrumented from outside."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import iceberg_cli as ic
from tests.cli.lakes import AS_OF, AS_OF_MS, GONE, four_snapshots, listing
from tests.cli.running import iceberg_cli, process
from tests.cli.terminals import PATIENCE_S, background
from tests.paths import ROOT

VERB = "expire-snapshots"
SPANS, READER = InMemorySpanExporter(), InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> Iterator[None]:
    """An SDK, set up as a program does: once."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([READER]))
    yield
    provider.shutdown()


@pytest.fixture(autouse=True)
def _no_spans_of_others() -> Iterator[None]:
    SPANS.clear()
    yield
    assert not trace.get_current_span().get_span_context().is_valid, "a span is still the current one"


def parents() -> list[tuple[str, str | None]]:
    """Every span that has ended, in the order of their begins: its name, and that of the one that it lies in."""
    spans = sorted(SPANS.get_finished_spans(), key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in spans}
    return [(span.name, None if span.parent is None else names[span.parent.span_id]) for span in spans]


def span(name: str) -> ReadableSpan:
    (found,) = [each for each in SPANS.get_finished_spans() if each.name == name]
    return found


def values(name: str, table: str) -> dict[str, float]:
    """What a counter or gauge has of a table, by its labels beside table and verb."""
    data = READER.get_metrics_data()
    assert data is not None
    points = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == f"iceberg_cli_{name}"
        for point in metric.data.data_points
    ]
    found: dict[str, float] = {}
    for point in points:
        labels: dict[str, Any] = dict(point.attributes or {})
        if labels.pop("table") == table:
            assert labels.pop("verb") == VERB
            found[",".join(labels.values())] = point.value
    return found


def test_a_command_is_one_span_with_its_phases_in_it(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    before = listing(Path(table)).keys()
    ran = iceberg_cli(VERB, table, *AS_OF, "--yes", "--format", "json")
    root = f"iceberg-cli {VERB}"
    assert parents() == [
        (root, None),
        *((name, root) for name in ("open", "recover", "plan", "record", "commit", "sweep")),
    ]
    assert dict(span(root).attributes or {}) == {
        "iceberg_cli.verb": VERB,
        "iceberg_cli.table": table,
        "iceberg_cli.exit_code": 0,
    }
    assert dict(span("sweep").attributes or {}) == {
        "iceberg_cli.table": table,
        "iceberg_cli.operation_id": ran.json["operation_id"],
    }
    gone = before - listing(Path(table)).keys()
    assert sum(values("deleted_files", table).values()) == len(gone) == len(GONE)
    assert values("reclaimed_bytes", table) == {"": ran.json["reclaimed_bytes"]}
    assert values("commit_attempts", table) == {"committed": 1}
    assert values("due_files", table) == {"": 0}


def test_an_error_is_that_of_its_phase_and_of_the_command(tmp_path: Path) -> None:
    assert iceberg_cli("inspect", tmp_path / "no").code == 10
    root, opening = span("iceberg-cli inspect"), span("open")
    assert not root.status.is_ok
    assert "Cannot find" in (root.status.description or "")
    assert (opening.status.is_ok, opening.status.description) == (False, "TableNotFound")
    assert dict(root.attributes or {})["iceberg_cli.exit_code"] == 10


def test_spans_of_the_python_api_lie_in_the_current_one(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    with trace.get_tracer("a program").start_as_current_span("nightly"):
        opened = ic.open_table(table)
        plan = opened.plan(ic.iceberg.ExpireSnapshots(), as_of=AS_OF_MS)
        assert values("due_files", table) == {"": len(GONE)}
        assert opened.apply(plan).status == "done"
    assert parents() == [
        ("nightly", None),
        *((name, "nightly") for name in ("open", "plan", "record", "commit", "sweep")),
    ]
    assert sum(values("deleted_files", table).values()) == len(GONE)


@pytest.mark.deep
def test_a_program_without_it_loads_nothing_of_it(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    script = (
        "import sys, iceberg_cli as ic\n"
        f"ic.open_table({table!r}).inspect()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    with background([sys.executable, "-c", script]) as program:
        assert program.wait(PATIENCE_S) == 0, program.stderr


@pytest.mark.deep
def test_a_variable_that_names_what_is_not_installed_harms_nothing(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    hidden = tmp_path / "hidden"
    (hidden / "opentelemetry").mkdir(parents=True)
    (hidden / "opentelemetry/__init__.py").write_text("raise ImportError('hidden')\n")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{hidden}:{ROOT}",
        "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider",
    }
    ran = process("inspect", table, "--quiet", env=environment)
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_a_process_that_is_instrumented_from_outside_sends_all_spans_before_it_ends(tmp_path: Path) -> None:
    """As `opentelemetry-instrument` does: Python's own start sets an SDK up that sends in batches."""
    table = four_snapshots(tmp_path / "t").publish()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter\n"
        f"out = open({str(tmp_path / 'spans')!r}, 'w')\n"
        "provider = TracerProvider()\n"
        "export = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + '\\n')\n"
        "provider.add_span_processor(BatchSpanProcessor(export))\n"
        "trace.set_tracer_provider(provider)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"}
    ran = process(VERB, table, *AS_OF, "--yes", env=environment)
    assert (ran.code, ran.err) == (0, "")
    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    assert {each["name"] for each in spans} == {
        f"iceberg-cli {VERB}", "open", "recover", "plan", "record", "commit", "sweep",
    }  # fmt: skip
    assert len({each["context"]["trace_id"] for each in spans}) == 1


class BrokenProcessor(SpanProcessor):
    """A plug-in of the SDK that raises an error at the begin of each span."""

    is_on = False

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002 - the SDK's signature
        if self.is_on:
            raise RuntimeError("no room in the processor")


def test_an_error_of_the_sdk_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    broken = BrokenProcessor()
    provider.add_span_processor(broken)
    broken.is_on = True
    try:
        with table.loses(GONE):
            opened = ic.open_table(table.name)
            report = opened.apply(opened.plan(ic.iceberg.ExpireSnapshots(), as_of=AS_OF_MS))
    finally:
        broken.is_on = False
    assert report.status == "done"
    assert "no room in the processor" in caplog.text

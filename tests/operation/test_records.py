"""Each record of a journal is a value of its own kind, and is on disk as it always was."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.operation.records import (
    Begin,
    Close,
    CommitIntent,
    CommitOutcome,
    Discard,
    Leave,
    Line,
    LookAgain,
    Record,
    Resume,
    Stage,
    StepDone,
    SweepIntent,
    SweepOnly,
    SweepOutcome,
    records_of,
)
from tests.golden.comparing import golden
from tests.golden.journal_cases import JOURNALLED, records_in
from tests.journals import BEGIN

KINDS: tuple[type[Record], ...] = (
    *(Begin, Resume, Stage, Discard, Leave, CommitIntent, CommitOutcome),
    *(SweepOnly, SweepIntent, SweepOutcome, StepDone, LookAgain, Close),
)


@cache
def written() -> list[Line]:
    """The records of the golden journals."""
    texts = (golden(f"journals/{name}.txt") for name in JOURNALLED)
    documents = [json.loads(data) for text in texts for _, data in records_in(text)]
    return [Line(kind=document["kind"], body=document["body"]) for document in documents]


def test_every_record_that_was_ever_written_reads_and_is_written_the_same() -> None:
    """The golden journals have records of every kind, of both formats and every verb."""
    for line in written():
        before = [] if line.kind == "begin" else [Line(kind="begin", body=BEGIN)]
        record = records_of("op", [*before, line])[-1]
        assert json.dumps(record.to_json()) == json.dumps(line.body)
        assert record.kind == line.kind
    assert {line.kind for line in written()} == {kind.kind for kind in KINDS}


@cache
def bodies() -> dict[str, dict[str, Any]]:
    """One body of each kind, from the golden journals: the one with the most fields."""
    return {line.kind: dict(line.body) for line in sorted(written(), key=lambda line: len(line.body))}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_record_that_lacks_a_field_is_refused_by_the_field(kind: type[Record]) -> None:
    body = bodies()[kind.kind]
    optional = (
        frozenset() if kind is SweepOutcome else kind.optional
    )  # this one has a range, and so both its ends
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        lines = [Line(kind="begin", body=BEGIN), Line(kind=kind.kind, body=rest)]
        if name in optional:
            assert len(records_of("op", lines)) == 2
            continue
        with pytest.raises(CorruptFile, match=f"a record of the journal lacks a field: '{name}'"):
            records_of("op", lines)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_field_of_another_type_is_refused_and_an_unknown_field_is_not(kind: type[Record]) -> None:
    body = bodies()[kind.kind]
    begin = Line(kind="begin", body=BEGIN)
    known = records_of("op", [begin, Line(kind=kind.kind, body=body)])
    assert records_of("op", [begin, Line(kind=kind.kind, body={**body, "new": 1})]) == known
    for name in body:
        with pytest.raises(CorruptFile, match=rf"lacks a field: {name} is 1\.5"):
            records_of("op", [begin, Line(kind=kind.kind, body={**body, name: 1.5})])
        if isinstance(body[name], list):
            with pytest.raises(CorruptFile, match=rf"lacks a field: {name} is \[\]"):
                records_of("op", [begin, Line(kind=kind.kind, body={**body, name: [*body[name], []]})])


def test_an_operation_begins_once() -> None:
    begin = Line(kind="begin", body=BEGIN)
    with pytest.raises(CorruptFile, match="two begin records"):
        records_of("op", [begin, begin])

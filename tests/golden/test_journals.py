"""Journals are written byte for byte as they were, and read as they were: an operation begun before is resumed now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import pytest

from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from tests.golden.comparing import Hold, golden
from tests.golden.journal_cases import JOURNALLED, JOURNALS, records_in, text_of

cases = pytest.mark.parametrize("name", JOURNALLED)


def stated(operation: Operation) -> dict[str, Any]:
    """What a journal says of an operation, field by field, as JSON has it."""
    steps = {
        name: {
            "staged": state.staged,
            "by_workers": state.by_workers,
            "litter": state.leftovers,
            "left": state.left,
            "intent": None if state.intent is None else state.intent.to_json(),
            "outcome": state.outcome,
            "metadata_location": state.metadata_location,
            "removals_file": state.removals_file,
            "sweep_after_ms": state.sweep_after_ms,
            "swept": state.swept,
            "failed": state.failed,
            "deleted_bytes": state.deleted_bytes,
            "done": state.done,
            "orphaned": state.orphaned(),
        }
        for name, state in operation.steps.items()
    }
    found: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "operation": operation.verb,
        "table_uuid": operation.table_uuid,
        "started_ms": operation.started_ms,
        "plan_digest": operation.plan_digest,
        "host": operation.host,
        "process_id": operation.process_id,
        "process_started": operation.process_started,
        "step_names": operation.step_names,
        "steps": steps,
        "late": operation.late,
        "look_again": None if operation.look_again is None else operation.look_again.to_json(),
        "closed": operation.closed,
        "uncommitted": operation.uncommitted(),
        "next_action": operation.next_action(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested objects as one, with paths for names."""
    found: dict[str, Any] = {}
    for name, each in value.items():
        path = f"{above}{name}"
        if isinstance(each, dict) and each:
            found |= flat(each, f"{path} / ")
        else:
            found[path] = each
    return found


def states(text: str) -> Iterator[str]:
    """Each journal of a golden text folded after each of its records: what the record changes in it."""
    by_folder = groupby(
        sorted(records_in(text), key=lambda pair: pair[0].rpartition("/")[0]),
        key=lambda pair: pair[0].rpartition("/")[0],
    )
    for folder, records in by_folder:
        world = World()
        before: dict[str, Any] = {}
        location, operation_id = folder.partition(JOURNALS)[0], folder.rpartition("/")[2]
        for path, data in records:
            world.files[path] = data
            operation = Journal.load(SimStorage(world, Script()), location, operation_id).operation()
            assert operation is not None
            now = flat(stated(operation))
            gone = [name for name in before if name not in now]
            changed = {
                name: value for name, value in now.items() if name not in before or before[name] != value
            }
            name = path.rpartition("/")[2]
            yield f"== {operation_id} {name}\n"
            yield from (f"{name}: gone\n" for name in gone)
            yield from (f"{name}: {json.dumps(value)}\n" for name, value in changed.items())
            before = now


@cases
def test_a_journal_is_written_as_it_was(name: str, hold: Hold) -> None:
    hold(f"journals/{name}.txt", text_of(name))


@cases
def test_every_beginning_of_a_journal_says_what_it_said(name: str, hold: Hold) -> None:
    """Of the golden bytes, not of today's: so they are read also once others are written."""
    hold(f"journals/{name}.states.txt", "".join(states(golden(f"journals/{name}.txt"))))


@cases
def test_the_records_of_a_journal_are_a_chain(name: str) -> None:
    """Each ends with the SHA-256 of what stands before, and names that of the whole record before it."""
    before: dict[str, tuple[int, str]] = {}
    for path, data in records_in(golden(f"journals/{name}.txt")):
        folder, _, file_name = path.rpartition("/")
        number, digest = before.get(folder, (-1, ""))
        body, found, own = data.decode().rpartition(', "digest": "')
        assert found
        assert own == hashlib.sha256(body.encode()).hexdigest() + '"}\n'
        assert (file_name, json.loads(data)["previous"]) == (f"{number + 1:06d}.json", digest)
        before[folder] = number + 1, hashlib.sha256(data).hexdigest()
    assert before

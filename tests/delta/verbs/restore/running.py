"""Runs of `restore`, from Python, on tables of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from iceberg_cli.delta.verbs.restore.plan import VERB
from iceberg_cli.delta.verbs.restore.policy import Restore
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.plan.events import COMMIT, AnyEvent, PhaseBegun
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_rows import commits_of
from iceberg_cli.testing.delta_writer import Json

NOW_MS = 1_900_000_000_000


def blocked_by(root: Path, to: object) -> tuple[str, ...]:
    """Why a version is not restored."""
    table = open_table(str(root), storage_options={}, on_event=lambda _: None)
    return tuple(VERB.plan(table, Restore(to=str(to)), as_of_ms=NOW_MS).plan.blocked_by)


def restored(root: Path, to: object, *, at_commit: Callable[[], None] = lambda: None) -> Report | None:
    """The report of a restore; None where nothing was to be done.

    Args:
        root: of the table.
        to: what is restored.
        at_commit: what another writer does before the commit.
    """

    def see(event: AnyEvent) -> None:
        if isinstance(event, PhaseBegun) and event.phase == COMMIT:
            at_commit()

    table = open_table(str(root), storage_options={}, catalog_config=None, on_event=see)
    found = VERB.plan(table, Restore(to=str(to)), as_of_ms=NOW_MS)
    assert found.plan.blocked_by == (), to
    if not found.plan.due:
        return None
    runtime = system_runtime(on_event=see, host="test", process_id=1)
    return apply(found, table, VERB, replace(runtime, sleep_ms=lambda _: None))


def actions_of(root: Path, version: int = -1) -> list[Json]:
    """The actions of a version, by default of the newest."""
    path = commits_of(root)[version]
    return [json.loads(line) for line in path.read_text().splitlines()]


def bodies(root: Path, kind: str, version: int = -1) -> list[dict[str, Any]]:
    """Those of one kind, without it."""
    return [action[kind] for action in actions_of(root, version) if kind in action]

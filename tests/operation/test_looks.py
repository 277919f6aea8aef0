"""Looks at a table that found nothing to do, and count as runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, IcebergCliError, Refused
from iceberg_cli.operation.history import PastOperation, last_run_ms, past_operations
from iceberg_cli.operation.looks import keep_look
from iceberg_cli.operation.ports import Table, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.events import unheard
from iceberg_cli.plan.plan import Base, Plan
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.storage.local import LocalStorage

NOW_MS = 1_790_000_000_000
VERB = "remove-orphan-files"


@dataclass
class FailingStorage(LocalStorage):
    """A local storage that takes no file, as long as it has an error."""

    error: IcebergCliError | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        super().put_if_absent(path, data)


@dataclass(kw_only=True)
class LookedAt:
    """The table port, as far as a look needs it, and its workspace."""

    location: str
    storage: LocalStorage = field(default_factory=LocalStorage)
    read_only: str | None = None

    @property
    def workspace(self) -> LookedAt:
        return self

    def base(self) -> Base:
        return Base(table_uuid="u", version="v1")

    def read_only_reason(self) -> str | None:
        return self.read_only


def look(table: LookedAt, *, looks_count: bool = True) -> None:
    verb = SimpleNamespace(policy=SimpleNamespace(place=VerbPlace(order=7, looks_count=looks_count)))
    runtime = Runtime(
        now_ms=lambda: NOW_MS,
        new_uuid=lambda: "op-1",
        sleep_ms=lambda _: None,
        on_event=unheard,
        host="here",
        process_id=1,
        actor="somebody@here",
    )
    keep_look(cast("Plan", SimpleNamespace(verb=VERB)), cast("Table", table), cast("Verb", verb), runtime)


def history(folder: Path) -> list[PastOperation]:
    damaged: list[Any] = []
    found = [*past_operations(LocalStorage(), str(folder), "u", on_damage=damaged.append)]
    assert damaged == []
    return found


def test_a_look_is_a_run_that_deleted_nothing(tmp_path: Path) -> None:
    look(LookedAt(location=str(tmp_path)))
    assert history(tmp_path) == [
        PastOperation(
            operation_id="op-1",
            operation=VERB,
            table_uuid="u",
            actor="somebody@here",
            started_ms=NOW_MS,
            finished_ms=NOW_MS,
            status="done",
            committed=(),
            deleted_files_count=0,
            reclaimed_bytes=0,
            counts={},
            resumed=False,
        )
    ]
    assert last_run_ms(LocalStorage(), str(tmp_path), "u", VERB) == NOW_MS


def test_looks_of_other_verbs_and_at_read_only_tables_are_not_kept(tmp_path: Path) -> None:
    look(LookedAt(location=str(tmp_path)), looks_count=False)
    look(LookedAt(location=str(tmp_path), read_only="it is shown by its file"))
    assert [*tmp_path.rglob("*")] == []


@pytest.mark.parametrize("error", [BackendUnavailable("503"), AccessDenied("403"), Refused("no create")])
def test_a_storage_that_takes_no_record_fails_no_run(error: IcebergCliError, tmp_path: Path) -> None:
    storage = FailingStorage(error)
    look(LookedAt(location=str(tmp_path), storage=storage))
    assert history(tmp_path) == []
    storage.error = None
    look(LookedAt(location=str(tmp_path), storage=storage))
    assert [each.status for each in history(tmp_path)] == ["done"]

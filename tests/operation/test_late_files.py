"""Files that workers write for a driver that is gone, after another process has deleted those of its operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.formats import format_of
from iceberg_cli.operation.apply import abandon, apply, resume
from iceberg_cli.operation.records import (
    Begin,
    CommitIntent,
    CommitOutcome,
    Discard,
    Leave,
    Record,
    Resume,
    Stage,
    SweepOnly,
    fold,
)
from iceberg_cli.operation.recovery import operations, recover_all
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.report import RecoveredOperation
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.delta_writer import NOW_MS
from tests.cli.lakes import listing, listing_of_table
from tests.delta_opened import a_shell
from tests.manifest_tables import a_lot, live_entries, of_folder
from tests.policies import policy_with
from tests.shuffling import AdversarialEngine
from tests.stale_commits import DAY_MS, REWRITE, Died, opened

VERB = "rewrite-manifests"


@dataclass(frozen=True)
class Dying(AdversarialEngine):
    """Workers whose driver dies when the first of them has written a file, which is remembered."""

    written: list[str] = field(default_factory=list)

    def shuffle(self, scan: Any, stages: Any, items: Sequence[Any], *, on_event: Any) -> Iterator[Any]:
        """See `Engine.shuffle`."""
        folder = Path(scan.source(items[0]).path).parent
        before = set(folder.iterdir())
        for _ in super().shuffle(scan, stages, items, on_event=on_event):
            self.written.extend(str(path) for path in set(folder.iterdir()) - before)
            raise Died
        yield


def shell_at(after_ms: int = 0) -> Runtime:
    return replace(a_shell(), now_ms=lambda: NOW_MS + after_ms)


def rewrite(root: Path, engine: Any = None) -> None:
    table: Any = opened(root)
    if engine is not None:
        table.use(engine)
    verb = format_of(table.format).verbs[VERB]
    apply(verb.plan(table, policy_with(verb.policy, REWRITE), as_of_ms=NOW_MS), table, verb, shell_at())


def resumed(root: Path, *, after_ms: int) -> str:
    table = opened(root)
    (operation_id,) = table.workspace.open_operations()
    return resume(table, operation_id, shell_at(after_ms), verbs=format_of(table.format).verbs).status


def settled_at(root: Path, after_ms: int) -> list[RecoveredOperation]:
    table = opened(root)
    return list(recover_all(table, shell_at(after_ms), verbs=format_of(table.format).verbs))


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, dict[str, str], str, bytes]:
    """A table on which a driver died, its files before, and a file that a worker had written with its bytes."""
    root = tmp_path / "t"
    a_lot(2, storage=LocalStorage(), location=str(root)).table()
    before = listing(root)
    engine = Dying(LocalStorage())
    with pytest.raises(Died):
        rewrite(root, engine)
    (path,) = engine.written
    return root, before, path, Path(path).read_bytes()


def test_what_a_worker_writes_within_a_day_the_next_resume_and_the_first_run_after_it_delete(
    killed: tuple[Path, dict[str, str], str, bytes],
) -> None:
    root, before, path, data = killed
    assert resumed(root, after_ms=0) == "nothing_to_do"
    assert listing_of_table(root) == before
    for after_ms in (5, DAY_MS - 1):
        Path(path).write_bytes(data)
        assert resumed(root, after_ms=after_ms) == "nothing_to_do"
        assert listing_of_table(root) == before
    assert "Spark's executors" in operations(opened(root), now_ms=NOW_MS)[0].message
    Path(path).write_bytes(data)
    assert settled_at(root, DAY_MS - 1) == []
    (settled,) = settled_at(root, DAY_MS)
    assert (settled.report.status, settled.exit_code) == ("nothing_to_do", 0)
    assert listing(root) == before


@pytest.mark.parametrize("after_resume", [False, True])
def test_whoever_abandons_the_operation_does_not_wait(
    killed: tuple[Path, dict[str, str], str, bytes], after_resume: bool
) -> None:
    root, before, _, _ = killed
    if after_resume:
        resumed(root, after_ms=0)
    table = opened(root)
    (operation_id,) = table.workspace.open_operations()
    abandon(table, operation_id, shell_at(5))
    assert listing(root) == before


def test_meanwhile_other_runs_commit_and_their_files_stay(
    killed: tuple[Path, dict[str, str], str, bytes],
) -> None:
    root, before, path, data = killed
    entries = live_entries(of_folder(root))
    resumed(root, after_ms=0)
    rewrite(root, AdversarialEngine(LocalStorage()))
    assert len(opened(root).workspace.open_operations()) == 1
    after = listing_of_table(root)
    assert before.keys() < after.keys()
    Path(path).write_bytes(data)
    assert len(settled_at(root, DAY_MS)) == 1
    assert listing(root) == after
    assert live_entries(of_folder(root)) == entries


STAGE = Stage(step="s", paths=("a", "b"), by_workers=True)
OWN = Stage(step="s", paths=("own",), by_workers=False)
INTENT = CommitIntent(
    step="s",
    base_location="",
    metadata_location="",
    digest="",
    timestamp_ms=0,
    commit_uuid="",
    updates=(),
    counts={},
    removals_file=None,
    grace_ms=0,
    scratch=(),
    own_files=(),
)
SWEEP_ONLY = SweepOnly(step="s", removals_file=None, sweep_after_ms=None, counts=())


def outcome(text: str) -> CommitOutcome:
    return CommitOutcome(step="s", outcome=text, metadata_location=None, sweep_after_ms=None)


@pytest.mark.parametrize(
    ("before", "late"),
    [
        ([STAGE, OWN], ("a", "b")),
        ([STAGE, Discard(step="s", paths=("a",))], ("b",)),
        ([STAGE, INTENT], ()),
        ([STAGE, INTENT, outcome("unknown")], ()),
        ([STAGE, INTENT, outcome("committed")], ()),
        ([STAGE, INTENT, outcome("conflict")], ("a", "b")),
        (
            [
                STAGE,
                INTENT,
                Leave(
                    step="s",
                    paths=(
                        "a",
                        "b",
                    ),
                ),
                outcome("conflict"),
            ],
            (),
        ),
        ([STAGE, INTENT, outcome("conflict"), INTENT], ()),
        ([STAGE, SWEEP_ONLY], ()),
    ],
)
def test_late_are_files_of_workers_that_no_commit_can_name_any_more(
    before: list[Record], late: tuple[str, ...]
) -> None:
    resume_record = Resume(at_ms=0, host="here", process_id=1, process_started="")
    begin = Begin(
        version=1,
        operation=VERB,
        table_uuid="",
        at_ms=0,
        plan_digest="",
        steps=("s",),
        host="here",
        process_id=1,
        process_started="",
    )
    records: list[Record] = [begin, *before]
    assert fold("1", records).late == ()
    assert fold("1", [*records, resume_record]).late == late
    assert fold("1", [*records, resume_record, resume_record]).late == late


def test_a_driver_that_writes_alone_leaves_nothing_to_wait_for(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_lot(2, storage=LocalStorage(), location=str(root)).table()
    rewrite(root)
    assert opened(root).workspace.open_operations() == []

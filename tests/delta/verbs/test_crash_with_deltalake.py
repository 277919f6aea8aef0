"""delta-rs writes, removes, checkpoints and cleans up before any effect of a verb: its rows and ours stay the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CommitConflict, Refused, StalePlan
from iceberg_cli.formats.open import iceberg_files
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.crash.world import unseen
from tests.budget import few_or_many, some
from tests.policies import policy_with

deltalake = pytest.importorskip("deltalake")

_SHORT = {"retention_ms": 0, "log_retention_ms": 0, "unsafe_short_retention": True}
VERBS_ASKED: Mapping[str, Mapping[str, Any]] = {
    "expire-snapshots": _SHORT,
    "rewrite-manifests": {"compact_log": [0, 2]},
    "upgrade-v3": {"features": ["timestampNtz"]},
    "assign-row-ids": {"batch_size": 2, "allow_writer_loss": [f"delta-rs:py-{deltalake.__version__}"]},
}


class Raced(LocalStorage):
    """The disk, and an act before one of the effects."""

    def __init__(self, number: int = -1, act: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.trace: list[str] = []
        self._number, self._act = number, act

    def _effect(self, name: str) -> None:
        self.trace.append(name)
        if len(self.trace) - 1 == self._number:
            self._act()

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._effect(f"put {path}")
        super().put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._effect(f"replace {path}")
        super().replace(path, data)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self._effect(f"delete {' '.join(paths)}")
        return super().delete(paths)


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def a_table(root: Path) -> set[int]:
    """Five versions, one file removed, one checkpoint."""
    for number in range(4):
        deltalake.write_deltalake(root, rows(number, number + 10), mode="append")
    table = deltalake.DeltaTable(root)
    table.delete("n in (3, 13)")
    table.create_checkpoint()
    return {0, 1, 2, 10, 11, 12}


def run(root: Path, operation: str, storage: Raced) -> None:
    table = DeltaTable(
        name="visits",
        root=str(root),
        storage=storage,
        committer=DeltaLogCommitter(str(root), storage),
        iceberg_files=iceberg_files,
        engine=LocalEngine(storage, threads=1),
        on_event=unseen,
    )
    runtime = system_runtime(on_event=unseen, host="here", process_id=1, sweep_batch=2)
    plan = VERBS[operation].plan(
        table, policy_with(VERBS[operation].policy, VERBS_ASKED[operation]), as_of_ms=runtime.now_ms()
    )
    apply(plan, table, VERBS[operation], runtime)


def append(root: Path, expected: set[int]) -> None:
    deltalake.write_deltalake(root, rows(100), mode="append")
    expected.add(100)


def delete(root: Path, expected: set[int]) -> None:
    deltalake.DeltaTable(root).delete("n = 11")
    expected.discard(11)


def checkpoint(root: Path, _: set[int]) -> None:
    deltalake.DeltaTable(root).create_checkpoint()


def optimize(root: Path, _: set[int]) -> None:
    deltalake.DeltaTable(root).optimize.compact()


def vacuum(root: Path, _: set[int]) -> None:
    deltalake.DeltaTable(root).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


RACES = {each.__name__: each for each in (append, delete, checkpoint, optimize, vacuum)}


@pytest.mark.few(1)
@pytest.mark.parametrize("operation", VERBS_ASKED)
@few_or_many(6)
def test_rows_stay_what_delta_rs_wrote(operation: str, budget: int, tmp_path: Path) -> None:
    a_table(tmp_path / "trial")
    trial = Raced()
    run(tmp_path / "trial", operation, trial)
    assert trial.trace
    cases = some([(race, number) for race in RACES for number in range(len(trial.trace))], budget)
    for place, (race, number) in enumerate(cases):
        root = tmp_path / str(place)
        expected = a_table(root)

        def act(root: Path = root, expected: set[int] = expected, race: str = race) -> None:
            # A writer of delta-rs refuses a table whose features it does not know.
            with suppress(deltalake.exceptions.CommitFailedError, deltalake.exceptions.DeltaError):
                RACES[race](root, expected)

        print(race, trial.trace[number])
        with suppress(CommitConflict, Refused, StalePlan):
            run(root, operation, Raced(number, act))
        table = deltalake.DeltaTable(root)
        assert set(table.to_pyarrow_table()["n"].to_pylist()) == expected
        if operation != "assign-row-ids":
            deltalake.write_deltalake(root, rows(7), mode="append")
            assert set(deltalake.DeltaTable(root).to_pyarrow_table()["n"].to_pylist()) == {*expected, 7}

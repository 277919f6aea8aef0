"""What a process that died leaves to `resume`: a commit that was decided long ago, files that a cleanup took or that
workers still write for a driver that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from iceberg_cli.delta.spec.paths import dv_path
from iceberg_cli.formats import format_of
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.operation.apply import abandon, apply, resume
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.report import RecoveredOperation, Report
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.table.recovery import operations, recover_all
from iceberg_cli.testing.delta_writer import NOW_MS, a_metadata, a_protocol_with, an_add, write_vectors
from tests.cli.lakes import listing, listing_of_table
from tests.delta_opened import a_log, a_shell, the_log, unseen
from tests.manifest_tables import a_lot, live_entries, of_folder
from tests.policies import policy_with
from tests.shuffling import AdversarialEngine

MINUTE_MS = 60_000
DAY_MS = 86_400_000
REWRITE = RewriteManifests(target_size=8 << 10).to_json()


class Died(BaseException):
    """The process ends."""


class DyingCommitter:
    """A committer under which the process dies before it sends the commit."""

    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def commit(self, _: object) -> None:
        raise Died


@dataclass(frozen=True)
class DyingEngine(AdversarialEngine):
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


def opened(root: Path) -> Any:
    return open_table(str(root), storage_options={}, on_event=unseen)


def shell_at(after_ms: int = 0) -> Runtime:
    return replace(a_shell(), now_ms=lambda: NOW_MS + after_ms, sleep_ms=unseen)


def carried_out(
    table: Any, verb: str, policy: Mapping[str, Any], *, runtime: Runtime | None = None
) -> Report:
    """Plan a verb on a table that is open, and apply that."""
    found = format_of(table.format).verbs[verb]
    planned = found.plan(table, policy_with(found.policy, policy), as_of_ms=NOW_MS)
    return apply(planned, table, found, runtime or shell_at())


def resumed(root: Path, *, after_ms: int) -> Report:
    """The report on the one operation that is open."""
    table = opened(root)
    (operation_id,) = table.workspace.open_operations()
    return resume(table, operation_id, shell_at(after_ms), verbs=format_of(table.format).verbs)


def finished(root: Path, *, after_ms: int) -> Report:
    """The same, after which none is open."""
    report = resumed(root, after_ms=after_ms)
    assert opened(root).workspace.open_operations() == []
    return report


# -- commits that were not sent --------------------------------------------------------------------------------


def dies_before_it_commits(root: Path, verb: str, **policy: Any) -> set[Path]:
    """The files that it leaves, but for those of its journal."""
    before = listing_of_table(root).keys()
    table = opened(root)
    table.committer = DyingCommitter(table.committer)
    with pytest.raises(Died):
        carried_out(table, verb, policy)
    return {root / name for name in listing_of_table(root).keys() - before}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """An Iceberg table whose manifests are due to be rewritten."""
    a_lot(2, storage=LocalStorage(), location=str(tmp_path / "t")).table()
    return tmp_path / "t"


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A Delta table of five files, each with a vector in a file of its own."""
    root = tmp_path / "t"
    adds = [an_add(path=f"{n}.parquet", rows=20, dv=write_vectors(root, n, [0, 2, 4])[0]) for n in range(5)]
    protocol = a_protocol_with("deletionVectors")
    a_log(root, [protocol, a_metadata(configuration={"delta.enableDeletionVectors": "true"}), *adds])
    return root


def vector_files(root: Path) -> set[Path]:
    """Those that the newest version names."""
    vectors = the_log(root).snapshot().adds["deletionVector"].to_pylist()
    found = (dv_path(each["storageType"], each["pathOrInlineDv"], str(root)) for each in vectors)
    return {Path(path) for path in found if path is not None}


def assert_not_sent_again(report: Report, gone: Path) -> None:
    why = f"Its commit was not sent again, for {gone}, which it names, is not there any more"
    assert why in "".join(report.notes)


def removal_times(root: Path) -> set[int]:
    return set(the_log(root).snapshot().removes["deletionTimestamp"].to_pylist())


def test_a_commit_of_the_last_hour_is_sent_again_as_it_was(vectors: Path) -> None:
    (staged,) = dies_before_it_commits(vectors, "merge-dvs")
    report = finished(vectors, after_ms=59 * MINUTE_MS)
    assert (report.status, report.notes) == ("done", ("Its commit was sent again, and happened.",))
    assert (vector_files(vectors), removal_times(vectors)) == ({staged}, {NOW_MS})


def test_an_older_commit_is_planned_again_so_that_what_it_removes_is_not_old_at_once(vectors: Path) -> None:
    (staged,) = dies_before_it_commits(vectors, "merge-dvs")
    report = finished(vectors, after_ms=10 * DAY_MS)
    assert report.status == "done"
    assert "Its commit was not sent again, for it was decided 10 d ago; it was planned again." in report.notes
    assert removal_times(vectors) == {NOW_MS + 10 * DAY_MS}
    assert staged.exists()  # the first commit may still arrive until another one has taken its version
    assert len(vector_files(vectors) - {staged}) == 1


def test_a_delta_commit_whose_vectors_were_cleaned_up_is_planned_again(vectors: Path) -> None:
    (staged,) = dies_before_it_commits(vectors, "merge-dvs")
    staged.unlink()
    report = finished(vectors, after_ms=MINUTE_MS)
    assert report.status == "done"
    assert_not_sent_again(report, staged)
    (now,) = vector_files(vectors)
    assert now.exists()


def test_an_iceberg_commit_whose_manifests_were_cleaned_up_is_planned_again(manifests: Path) -> None:
    entries = live_entries(of_folder(manifests))
    staged = dies_before_it_commits(manifests, "rewrite-manifests", **REWRITE)
    gone = min(path for path in staged if path.suffix == ".avro")
    gone.unlink()
    report = finished(manifests, after_ms=10 * DAY_MS)
    assert report.status == "done"
    assert_not_sent_again(report, gone)
    assert live_entries(of_folder(manifests)) == entries


def test_an_iceberg_commit_is_sent_again_at_any_time(manifests: Path) -> None:
    staged = dies_before_it_commits(manifests, "rewrite-manifests", **REWRITE)
    report = finished(manifests, after_ms=10 * DAY_MS)
    assert report.notes == ("Its commit was sent again, and happened.",)
    named = {row["manifest_path"] for row in of_folder(manifests).manifests()}
    assert named <= {str(path) for path in staged}


def test_a_delta_commit_that_stood_still_for_days_says_when_it_really_removed_files(vectors: Path) -> None:
    """Between the record of what it is about to commit and the commit; a vacuum took the vectors meanwhile."""
    before = set(vectors.rglob("*.bin"))
    gone: set[Path] = set()

    def now_ms() -> int:
        records = sorted(vectors.glob("_iceberg_cli/ops/*/??????.json"))
        if not gone and records and b'"commit-intent"' in records[-1].read_bytes():
            gone.update(set(vectors.rglob("*.bin")) - before)
            for path in gone:
                path.unlink()
        return NOW_MS + 10 * DAY_MS if gone else NOW_MS

    report = carried_out(opened(vectors), "merge-dvs", {}, runtime=replace(shell_at(), now_ms=now_ms))
    assert (report.status, len(gone)) == ("done", 1)
    assert removal_times(vectors) == {NOW_MS + 10 * DAY_MS}
    (now,) = vector_files(vectors)
    assert now.exists()
    assert opened(vectors).workspace.open_operations() == []


# -- files that workers write late -----------------------------------------------------------------------------


def rewrite(root: Path, engine: Any = None) -> None:
    table = opened(root)
    if engine is not None:
        table.use(engine)
    carried_out(table, "rewrite-manifests", REWRITE)


def settled_at(root: Path, after_ms: int) -> list[RecoveredOperation]:
    table = opened(root)
    return list(recover_all(table, shell_at(after_ms), verbs=format_of(table.format).verbs))


class Killed(NamedTuple):
    """A table on which a driver died."""

    root: Path
    before: dict[str, str]  # its files
    path: str  # of a file that a worker had written
    data: bytes


@pytest.fixture
def killed(manifests: Path) -> Killed:
    before = listing(manifests)
    engine = DyingEngine(LocalStorage())
    with pytest.raises(Died):
        rewrite(manifests, engine)
    (path,) = engine.written
    return Killed(manifests, before, path, Path(path).read_bytes())


def test_what_a_worker_writes_within_a_day_the_next_resume_and_the_first_run_after_it_delete(
    killed: Killed,
) -> None:
    root, before, path, data = killed
    assert resumed(root, after_ms=0).status == "nothing_to_do"
    assert listing_of_table(root) == before
    for after_ms in (5, DAY_MS - 1):
        Path(path).write_bytes(data)
        assert resumed(root, after_ms=after_ms).status == "nothing_to_do"
        assert listing_of_table(root) == before
    assert "files that may still arrive" in operations(opened(root), now_ms=NOW_MS)[0].message
    Path(path).write_bytes(data)
    assert settled_at(root, DAY_MS - 1) == []
    (settled,) = settled_at(root, DAY_MS)
    assert (settled.report.status, settled.exit_code) == ("nothing_to_do", 0)
    assert listing(root) == before


@pytest.mark.parametrize("after_resume", [False, True])
def test_whoever_abandons_the_operation_does_not_wait(killed: Killed, after_resume: bool) -> None:
    root, before, _, _ = killed
    if after_resume:
        resumed(root, after_ms=0)
    table = opened(root)
    (operation_id,) = table.workspace.open_operations()
    abandon(table, operation_id, shell_at(5))
    assert listing_of_table(root) == before
    assert opened(root).workspace.open_operations() == []


def test_meanwhile_other_runs_commit_and_their_files_stay(killed: Killed) -> None:
    root, before, path, data = killed
    entries = live_entries(of_folder(root))
    resumed(root, after_ms=0)
    rewrite(root, AdversarialEngine(LocalStorage()))
    assert len(opened(root).workspace.open_operations()) == 1
    after = listing_of_table(root)
    assert before.keys() < after.keys()
    Path(path).write_bytes(data)
    assert len(settled_at(root, DAY_MS)) == 1
    assert listing_of_table(root) == after
    assert opened(root).workspace.open_operations() == []
    assert live_entries(of_folder(root)) == entries


def test_a_driver_that_writes_alone_leaves_nothing_to_wait_for(manifests: Path) -> None:
    rewrite(manifests)
    assert opened(manifests).workspace.open_operations() == []

"""What `resume` does with a commit that was decided long ago, or whose files somebody's cleanup took meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.spec.paths import dv_path
from iceberg_cli.formats import format_of
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.plan.report import Report
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.delta_writer import NOW_MS, a_metadata, a_protocol_with, an_add, write_vectors
from tests.delta_opened import a_log, a_shell, the_log, unseen
from tests.manifest_tables import a_lot, live_entries, of_folder
from tests.policies import policy_with
from tests.stale_commits import DAY_MS, REWRITE, Died, opened

MINUTE_MS = 60_000


class Dying:
    """A committer under which the process dies before it sends the commit."""

    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def commit(self, _: object) -> None:
        raise Died


def dies_before_it_commits(root: Path, verb: str, **policy: Any) -> set[Path]:
    """The files that it leaves, but for those of its journal."""
    before = set(root.rglob("*"))
    table: Any = opened(root)
    table.committer = Dying(table.committer)
    verbs = format_of(table.format).verbs
    with pytest.raises(Died):
        apply(
            verbs[verb].plan(table, policy_with(verbs[verb].policy, policy), as_of_ms=NOW_MS),
            table,
            verbs[verb],
            replace(a_shell(), now_ms=lambda: NOW_MS),
        )
    return {
        path for path in set(root.rglob("*")) - before if path.is_file() and "_iceberg_cli" not in path.parts
    }


def resumed(root: Path, *, after_ms: int) -> Report:
    table = opened(root)
    (operation_id,) = table.workspace.open_operations()
    runtime = replace(a_shell(), now_ms=lambda: NOW_MS + after_ms)
    report = resume(table, operation_id, runtime, verbs=format_of(table.format).verbs)
    assert opened(root).workspace.open_operations() == []
    return report


def of_five_vectors(root: Path) -> Path:
    """A Delta table of five files, each with a vector in a file of its own."""
    adds = [an_add(path=f"{n}.parquet", rows=20, dv=write_vectors(root, n, [0, 2, 4])[0]) for n in range(5)]
    protocol = a_protocol_with("deletionVectors")
    a_log(root, [protocol, a_metadata(configuration={"delta.enableDeletionVectors": "true"}), *adds])
    return root


def vector_files(root: Path) -> set[Path]:
    """Those that the newest version names."""
    vectors = the_log(root).snapshot().adds["deletionVector"].to_pylist()
    found = (dv_path(each["storageType"], each["pathOrInlineDv"], str(root)) for each in vectors)
    return {Path(path) for path in found if path is not None}


def removal_times(root: Path) -> set[int]:
    return set(the_log(root).snapshot().removes["deletionTimestamp"].to_pylist())


def test_a_commit_of_the_last_hour_is_sent_again_as_it_was(tmp_path: Path) -> None:
    root = of_five_vectors(tmp_path / "t")
    (staged,) = dies_before_it_commits(root, "merge-dvs")
    report = resumed(root, after_ms=59 * MINUTE_MS)
    assert (report.status, report.notes) == ("done", ("Its commit was sent again, and happened.",))
    assert (vector_files(root), removal_times(root)) == ({staged}, {NOW_MS})


def test_an_older_commit_is_planned_again_so_that_what_it_removes_is_not_old_at_once(tmp_path: Path) -> None:
    root = of_five_vectors(tmp_path / "t")
    (staged,) = dies_before_it_commits(root, "merge-dvs")
    report = resumed(root, after_ms=10 * DAY_MS)
    assert report.status == "done"
    assert "Its commit was not sent again, for it was decided 10 d ago; it was planned again." in report.notes
    assert removal_times(root) == {NOW_MS + 10 * DAY_MS}
    assert staged.exists()  # the first commit may still arrive until another one has taken its version
    assert len(vector_files(root) - {staged}) == 1


def test_a_delta_commit_whose_vectors_were_cleaned_up_is_planned_again(tmp_path: Path) -> None:
    root = of_five_vectors(tmp_path / "t")
    (staged,) = dies_before_it_commits(root, "merge-dvs")
    staged.unlink()
    report = resumed(root, after_ms=MINUTE_MS)
    assert report.status == "done"
    assert f"Its commit was not sent again, for {staged}, which it names, is not there any more" in "".join(
        report.notes
    )
    (now,) = vector_files(root)
    assert now.exists()


def test_an_iceberg_commit_whose_manifests_were_cleaned_up_is_planned_again(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_lot(2, storage=LocalStorage(), location=str(root)).table()
    entries = live_entries(of_folder(root))
    staged = dies_before_it_commits(root, "rewrite-manifests", **REWRITE)
    gone = min(path for path in staged if path.suffix == ".avro")
    gone.unlink()
    report = resumed(root, after_ms=10 * DAY_MS)
    assert report.status == "done"
    assert f"Its commit was not sent again, for {gone}, which it names, is not there any more" in "".join(
        report.notes
    )
    assert live_entries(of_folder(root)) == entries


def test_an_iceberg_commit_is_sent_again_at_any_time(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_lot(2, storage=LocalStorage(), location=str(root)).table()
    staged = dies_before_it_commits(root, "rewrite-manifests", **REWRITE)
    report = resumed(root, after_ms=10 * DAY_MS)
    assert report.notes == ("Its commit was sent again, and happened.",)
    named = {row["manifest_path"] for row in of_folder(root).manifests()}
    assert named <= {str(path) for path in staged}


def test_a_delta_commit_that_stood_still_for_days_says_when_it_really_removed_files(tmp_path: Path) -> None:
    """Between the record of what it is about to commit and the commit; a vacuum took the vectors meanwhile."""
    root = of_five_vectors(tmp_path / "t")
    before = set(root.rglob("*.bin"))
    gone: set[Path] = set()

    def now_ms() -> int:
        records = sorted(root.glob("_iceberg_cli/ops/*/??????.json"))
        if not gone and records and b'"commit-intent"' in records[-1].read_bytes():
            gone.update(set(root.rglob("*.bin")) - before)
            for path in gone:
                path.unlink()
        return NOW_MS + 10 * DAY_MS if gone else NOW_MS

    table, verb = opened(root), format_of(opened(root).format).verbs["merge-dvs"]
    runtime = replace(a_shell(), now_ms=now_ms, sleep_ms=unseen)
    report = apply(verb.plan(table, verb.policy(), as_of_ms=NOW_MS), table, verb, runtime)
    assert (report.status, len(gone)) == ("done", 1)
    assert removal_times(root) == {NOW_MS + 10 * DAY_MS}
    (now,) = vector_files(root)
    assert now.exists()
    assert opened(root).workspace.open_operations() == []

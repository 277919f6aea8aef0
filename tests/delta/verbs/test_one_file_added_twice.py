"""A file that is active twice, with two vectors: as Trino's MERGE leaves it after a DELETE of another engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.commit_parsing import CommitBytes, unreadable_reason
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import Refused
from iceberg_cli.testing.delta_writer import (
    a_commit,
    a_dv,
    a_metadata,
    a_protocol_with,
    a_remove,
    an_add,
    commit_path,
    write_commit,
    write_vectors,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, a_log, opened

FEATURES = ("deletionVectors", "v2Checkpoint")
# Each verb that would add active files again, or say the state of commits once more.
REPEATS = {
    "assign-row-ids": (),
    "merge-dvs": ("--min-files", "2"),
    "rewrite-manifests": ("--compact-log", "1..2"),
}


def a_table(root: Path) -> None:
    """Commit 2 removes the file as it was before commit 1, so that both vectors are active."""
    root.mkdir()
    pq.write_table(pa.table({"n": list(range(10))}), root / "a.parquet")
    size = (root / "a.parquet").stat().st_size
    (first,), (second,) = write_vectors(root, 1, [1]), write_vectors(root, 2, [2])
    configuration = {"delta.enableDeletionVectors": "true"}
    founding = [a_protocol_with(*FEATURES), a_metadata(configuration=configuration)]
    a_log(
        root,
        [*founding, an_add(path="a.parquet", size=size)],
        [a_remove(path="a.parquet"), an_add(path="a.parquet", size=size, dv=first)],
        [a_remove(path="a.parquet"), an_add(path="a.parquet", size=size, dv=second)],
    )


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", REPEATS)
def test_it_is_refused_before_the_first_commit_and_shown_by_a_dry_run(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "t"
    a_table(root)
    before = files_below(root)
    shown = iceberg_cli(verb, root, *REPEATS[verb], "--dry-run", "--format", "json")
    assert shown.code == 0, shown.err
    (reason,) = shown.json["blocked_by"]
    assert reason.startswith("the table has a.parquet more than once, with different deletion vectors")
    done = iceberg_cli(verb, root, *REPEATS[verb], "--yes")
    assert (done.code, "RESTORE a version that has it once" in done.err) == (11, True)
    assert files_below(root) == before


@pytest.mark.parametrize("verb", ["upgrade-v3", "rewrite-manifests", "expire-snapshots"])
def test_what_repeats_no_add_goes_on(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "t"
    a_table(root)
    assert iceberg_cli(verb, root, "--yes").code == 0
    assert iceberg_cli("inspect", root).code == 0


def test_it_is_seen_where_another_writer_makes_it_so_between_plan_and_commit(tmp_path: Path) -> None:
    root, plan = tmp_path / "t", tmp_path / "plan"
    a_table(root)
    last = root / "_delta_log" / f"{2:020}.json"
    data = last.read_bytes()
    last.unlink()
    assert iceberg_cli("plan", root, "assign-row-ids", "-o", plan).code == 0
    last.write_bytes(data)
    done = iceberg_cli("apply", plan, "--yes")
    assert done.code == 11
    assert len([*(root / "_delta_log").glob("*.json")]) == 3


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([an_add(path="a")], None),
        ([a_remove(path="a"), an_add(path="a", dv=a_dv())], None),
        ([an_add(path="a", dv=a_dv(offset=1)), an_add(path="a", dv=a_dv(offset=9))], "adds this path twice"),
        ([an_add(path="a"), a_remove(path="a")], "line 2"),
        ([an_add(path="a", size=-1)], "line 1, add.size"),
    ],
)
def test_a_commit_that_could_not_be_read_is_not_written(
    actions: list[dict[str, object]], reason: str | None
) -> None:
    found = unreadable_reason(CommitBytes("3.json", 3, a_commit(*actions)))
    assert found == reason if reason is None else reason in str(found)


def test_commits_that_say_that_by_now_are_not_compacted(tmp_path: Path) -> None:
    """Commits are for ever, but a folder may be restored under a program that runs."""
    root = tmp_path / "t"
    a_table(root)
    second = commit_path(root, 2).read_bytes()
    write_commit(root, 2, a_commit(an_add(path="b.parquet")))
    operator = Operator(VERBS["rewrite-manifests"])
    table, made = operator.prepare(root, compact_log=[1, 2])
    [step] = made.plan.steps
    write_commit(root, 2, second)
    again = opened(root)
    again.load()
    table.log = again.log
    with pytest.raises(Refused, match=r"Cannot compact versions 1 to 2 .* more than once"):
        made.build(step, dict.fromkeys(step.tasks, f"{root}/_delta_log/x"))

"""What a branch's head lists is carried over whole or not at all, and what became of a commit is told right."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iceberg_cli.errors import CommitConflict, CorruptFile, StalePlan
from iceberg_cli.iceberg.spec.manifests.writer import write_manifest_list
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.testing.crash.engine import OtherEngine
from iceberg_cli.testing.crash.world import crash
from iceberg_cli.testing.iceberg_files import Json
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from tests.budget import few_or_many, some
from tests.builders import NOW_MS
from tests.crash.lakes import ACTS, CASES, Lake, upgraded

VERB_CASES = [case for case in CASES if case.verb != "upgrade-v3"]
(ASSIGN,) = (case for case in CASES if case.verb == "assign-row-ids" and not case.policy["share_ids"])
(RECIPE,) = (case for case in CASES if case.verb == "upgrade-v3" and case.policy["with"])


def relist(engine: OtherEngine, change: Callable[[list[Json]], list[Json]]) -> str:
    """Write main's manifest list anew under its name, with other rows; its path."""
    document = engine.document
    snapshot = snapshot_of(document, document["refs"]["main"]["snapshot-id"])
    rows = change(manifests_of(engine.storage, snapshot))
    path: str = snapshot["manifest-list"]
    engine.world.files[path] = write_manifest_list(
        rows,
        format_version=document["format-version"],
        snapshot_id=snapshot["snapshot-id"],
        parent_snapshot_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot["sequence-number"],
        first_row_id=snapshot.get("first-row-id"),
        sync=bytes(16),
    )
    return path


def alter(engine: OtherEngine, change: Callable[[Json], None]) -> None:
    """Change the current metadata file in its place."""
    document = engine.document
    change(document)
    engine.world.files[engine.current] = json.dumps(document).encode()


@pytest.mark.parametrize("case", VERB_CASES, ids=str)
def test_manifests_whose_paths_differ_only_in_their_bucket_both_stay(case: Any) -> None:
    lake = Lake.of(case)

    def rename(rows: list[Json]) -> list[Json]:
        for row, bucket in zip((row for row in rows if row["content"] == 0), ("hot", "cold"), strict=False):
            data = lake.world.files[row["manifest_path"]]
            row["manifest_path"] = f"s3://{bucket}/visits/metadata/m.avro"
            lake.world.files[row["manifest_path"]] = data
        return rows

    relist(lake.engine, rename)
    lake.process().run()
    found = lake.read()
    assert {ref: {*rows} for ref, rows in found.items()} == lake.rows


@pytest.mark.parametrize("case", VERB_CASES, ids=str)
def test_a_list_that_has_a_manifest_twice_is_refused(case: Any) -> None:
    lake = Lake.of(case)
    path = relist(lake.engine, lambda rows: [rows[0], *rows])
    with pytest.raises(CorruptFile, match=r"field manifest_path: it lists .* twice") as refused:
        lake.process().run()
    assert path in str(refused.value)


def early(engine: OtherEngine) -> None:
    """Files that were listed again by a writer that knows no file sequence numbers."""
    engine.early = True
    upgraded(engine)
    engine.replace("d", "d2")


@pytest.mark.parametrize("case", VERB_CASES[1::2], ids=str)
def test_file_sequence_numbers_that_nobody_knows_are_no_obstacle(case: Any) -> None:
    lake = Lake.of(replace(case, build=early))
    known = [
        entry["file_sequence_number"]
        for manifest in manifests_of(
            lake.engine.storage,
            snapshot_of(lake.engine.document, lake.engine.document["refs"]["main"]["snapshot-id"]),
        )
        for entry in entries_of(lake.engine.storage, manifest)
    ]
    assert None in known
    lake.process().run()
    lake.finish()


def set_rows(count: int) -> Callable[[list[Json]], list[Json]]:
    def change(rows: list[Json]) -> list[Json]:
        for row in rows:
            row["added_rows_count"] = count if row["content"] == 0 else row["added_rows_count"]
        return rows

    return change


def test_row_counts_that_the_manifests_do_not_have_reserve_no_ids() -> None:
    lake = Lake.of(ASSIGN)
    relist(lake.engine, set_rows(1))
    before = lake.world.pointer
    with pytest.raises(CorruptFile, match=r"it has .* rows, and its manifest list says 1"):
        lake.process().run()
    assert lake.world.pointer == before


def test_row_counts_beyond_all_row_ids_are_refused_even_where_the_summary_confirms_them() -> None:
    lake = Lake.of(ASSIGN)
    relist(lake.engine, set_rows((1 << 61) + 1))
    counted = sum(
        row["added_rows_count"] + row["existing_rows_count"]
        for row in manifests_of(
            lake.engine.storage,
            snapshot_of(lake.engine.document, lake.engine.document["refs"]["main"]["snapshot-id"]),
        )
        if row["content"] == 0
    )
    alter(
        lake.engine,
        lambda document: [
            s["summary"].update({"total-records": str(counted)}) for s in document["snapshots"]
        ],
    )
    before = lake.world.pointer
    with pytest.raises(
        CorruptFile, match=r"it has 10 rows, and its manifest list says 2,305,843,009,213,693,953"
    ):
        lake.process().run()
    assert lake.world.pointer == before


def test_gc_disabled_forbids_no_metadata_file_that_the_log_drops() -> None:
    lake = Lake.of(ASSIGN)
    dropping = {
        "gc.enabled": "false",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    alter(lake.engine, lambda document: document["properties"].update(dropping))
    report = lake.process().run()
    assert report.status == "done"
    assert report.counts["deleted_metadata_files_count"] > 0
    assert lake.process().table.workspace.open_operations() == []


@few_or_many(5)
@pytest.mark.parametrize("case", VERB_CASES[::2], ids=str)
def test_a_second_commit_of_others_around_a_refused_one_is_tried_again(case: Any, budget: int) -> None:
    lake = Lake.of(case)
    effects = lake.undisturbed()
    swap = next(number for number, effect in enumerate(effects) if effect.startswith("swap"))
    for second in some(range(swap + 1, swap + 14), budget):
        here = lake.copy()
        acts = {swap: here.disturb(ACTS["delete"]), second: here.disturb(ACTS["append"])}
        with contextlib.suppress(StalePlan, CommitConflict):
            here.process(before=acts).run()
        here.finish()


@pytest.mark.parametrize("case", VERB_CASES[::2], ids=str)
def test_a_commit_that_others_built_upon_is_told_as_done_although_the_log_forgot_it(case: Any) -> None:
    lake = Lake.of(case)
    swap = next(n for n, effect in enumerate(lake.undisturbed()) if effect.startswith("swap"))
    process = lake.process(after={swap: crash})
    assert process.dies(process.run)
    for name in ("x1", "x2"):
        lake.engine.append(name)
        alter(lake.engine, lambda document: document.update({"metadata-log": document["metadata-log"][-1:]}))
    lake.note_rows()
    (report,) = lake.process().resume()
    assert report.status == "done"
    assert "Its commit had happened." in report.notes
    lake.check()


def test_a_deadline_stops_between_two_steps_and_the_report_says_what_is_still_to_come() -> None:
    lake = Lake.of(RECIPE)
    process = lake.process()
    process.limits = {"deadline_ms": NOW_MS - 1}
    process.runtime = process.new_runtime()
    report = process.run()
    assert report.status == "partial"
    assert lake.engine.document["format-version"] == 3
    assert any(note.startswith("Still to be committed: merge-dvs main") for note in report.notes)
    lake.finish()


def test_ids_that_another_step_s_commit_reserves_are_counted_too() -> None:
    lake = Lake.of(RECIPE)
    report = lake.process().run()
    assert report.counts["assigned_rows_count"] == lake.engine.document["next-row-id"]


def test_every_verb_is_known_to_the_suite() -> None:
    # What some of these remove has suites of its own, and groups of files have histories of their own.
    apart = {"expire-snapshots", "rewrite-data-files", "remove-orphan-files", "restore", "tag", "undo"}
    assert {case.verb for case in CASES} | apart == {*VERBS}

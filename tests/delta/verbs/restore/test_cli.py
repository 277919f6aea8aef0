"""`restore` of Delta tables as an operator or a script uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CommitConflict
from iceberg_cli.plan.text import iso
from iceberg_cli.testing.delta_rows import state_of
from iceberg_cli.testing.delta_vectors import vector_file_name
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_commit,
    a_commit_info,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    write_checkpoint,
    write_commit,
    write_file,
    write_vectors,
)
from tests.cli.lakes import AS_OF, AS_OF_MS, listing
from tests.cli.running import JSON, Ran, iceberg_cli
from tests.delta.verbs.restore.test_commit import FIRST, a_table
from tests.delta_opened import actions_in

THEN_MS = AS_OF_MS - 60_000  # when the last commit of a table was made
AGE_MS = NOW_MS - THEN_MS
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def restore(*words: object, code: int = 0) -> Ran:
    """`restore ... --yes --format json`, which ends with a code."""
    ran = iceberg_cli("restore", *words, *AS_OF, "--yes", *JSON)
    assert ran.code == code, ran.out + ran.err
    return ran


def dry(*words: object) -> dict[str, Any]:
    """The plan of `restore ... --dry-run --format json`."""
    ran = iceberg_cli("restore", *words, *AS_OF, "--dry-run", *JSON)
    assert ran.code == 0, ran.out + ran.err
    return ran.json


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A table of five versions, an hour apart: a, b, c and d come one by one, and a goes with the last."""
    root = tmp_path / "visits"
    commits: list[list[Action]] = [
        [a_commit_info(engineInfo="Engine/1"), an_add(path=f"{name}.parquet")] for name in "abcd"
    ]
    commits.append(
        [
            a_commit_info(operation="DELETE", engineInfo="Engine/2"),
            a_remove(path="a.parquet"),
            a_txn(version=7),
        ]
    )
    a_table(root, *commits, age_ms=[AGE_MS + hours * HOUR_MS for hours in (4, 3, 2, 1, 0)])
    return root


def paths(root: Path) -> list[str]:
    return sorted(path for path, _ in state_of(root).adds)


def test_the_table_goes_back_and_nothing_is_deleted(visits: Path) -> None:
    before = listing(visits)
    report = restore(visits, "--to", 1).json
    assert (report["status"], report["committed_version"]) == ("done", 5)
    names = ("taken_back_versions_count", "restored_files_count", "removed_files_count")
    assert [report[name] for name in names] == [3, 1, 2]
    assert paths(visits) == ["a.parquet", "b.parquet"]
    after = listing(visits)
    assert before.items() <= after.items()
    assert {path for path in after.keys() - before.keys() if not path.startswith("_iceberg_cli/")} == {
        "_delta_log/00000000000000000005.json"
    }
    (record,) = iceberg_cli("history", visits, *JSON).json["operations"]
    assert (record["operation"], record["status"]) == ("restore", "done")


def test_a_restore_is_taken_back_by_the_command_that_its_plan_names(visits: Path) -> None:
    (old,) = [each for each in dry(visits, "--to", 0)["verdicts"] if each["subject"] == "old-version"]
    assert (old["id"], old["keep"]) == ("4", True)
    assert "`restore TABLE --to 4` takes this back" in old["reason"]
    assert "delta.deletedFileRetentionDuration" in old["reason"]
    assert "delta.logRetentionDuration" in old["reason"]
    assert f"surely until {iso(AS_OF_MS + 7 * DAY_MS)}" in old["reason"]  # seven days after --as-of
    restore(visits, "--to", 0)
    restore(visits, "--to", 4)
    assert paths(visits) == ["b.parquet", "c.parquet", "d.parquet"]


@pytest.mark.parametrize(
    ("age_ms", "words"),
    [
        (0, "surely until {week}"),
        (25 * DAY_MS, "surely until {soon}"),
        (31 * DAY_MS, "may go with the next checkpoint"),
    ],
)
def test_how_long_the_old_version_can_be_read_is_told(age_ms: int, words: str, tmp_path: Path) -> None:
    a_table(tmp_path, [an_add()], [a_remove()], age_ms=[AGE_MS + age_ms + HOUR_MS, AGE_MS + age_ms])
    (old,) = [each for each in dry(tmp_path, "--to", 0)["verdicts"] if each["subject"] == "old-version"]
    week, soon = iso(AS_OF_MS + 7 * DAY_MS), iso(THEN_MS + 5 * DAY_MS)
    assert words.format(week=week, soon=soon) in old["reason"]


def test_a_plan_shows_the_difference_and_what_is_taken_back(visits: Path) -> None:
    plan = dry(visits, "--to", 2)
    found = plan["difference"]
    assert (found["from"]["version"], found["to"]["version"]) == (4, 2)
    assert (found["files"], found["rows"]["net"]) == ({"added": 1, "removed": 1}, 0)
    assert [
        (each["id"], each["gist"] if "gist" in each else each["reason"])
        for each in plan["verdicts"]
        if each["subject"] == "later-version"
    ] == [("4", "taken back: DELETE by Engine/2"), ("3", "taken back: WRITE by Engine/1")]
    (warning,) = plan["warnings"]
    assert warning.startswith("streaming writer loader is at its version 7, and was at nothing then")
    text = iceberg_cli("restore", visits, "--to", 2, *AS_OF, "--dry-run").out
    assert text.startswith("The table goes back; 2 later versions are taken back; no file is deleted\n")


@pytest.mark.parametrize(
    ("word", "version"),
    [
        ("0", 0),
        (str(THEN_MS - 2 * HOUR_MS), 2),
        (str(THEN_MS - 2 * HOUR_MS - 1), 1),
        ("90m", 2),
        ("1s", 4),
        ("4", 4),
    ],
)
def test_a_version_or_a_time_names_the_state(word: str, version: int, visits: Path) -> None:
    then = state_of(visits, version).adds.keys()
    status = restore(visits, "--to", word).json["status"]
    assert status == ("nothing_to_do" if version == 4 else "done")
    assert state_of(visits).adds.keys() == then


def test_a_time_is_in_the_commit_beside_the_version_that_it_named(visits: Path) -> None:
    restore(visits, "--to", THEN_MS - 2 * HOUR_MS)
    (info,) = actions_in(visits, 5, "commitInfo")
    assert info["operationParameters"] == {"version": 2, "timestamp": iso(THEN_MS - 2 * HOUR_MS)}


def test_with_in_commit_timestamps_a_time_is_theirs(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    first = [a_commit_info(inCommitTimestamp=THEN_MS - 3 * HOUR_MS), a_protocol_with("inCommitTimestamp")]
    a_table(
        tmp_path,
        [*first, a_metadata(configuration=on), an_add(path="a.parquet")],
        [a_commit_info(inCommitTimestamp=THEN_MS - 2 * HOUR_MS), an_add(path="b.parquet")],
        [a_commit_info(inCommitTimestamp=THEN_MS - HOUR_MS), a_remove(path="a.parquet")],
    )  # files of seconds ago
    restore(tmp_path, "--to", "130m")
    assert paths(tmp_path) == ["a.parquet"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--to", "9"], "--to: the table has no version 9: its newest one is 4"),
        (
            ["--to", "yesterday"],
            "--to: 'yesterday' is no version or time of this table: its newest version is 4",
        ),
        (["--to", "90d"], "--to: the log has no version of "),
        (["--to", "2099-01-01"], "--to: '2099-01-01' is in the future"),
        (["--to", ""], "--to is empty"),
        ([], "Cannot restore without --to"),
        (["--to", "1", "--branch", "main"], "--branch is an option of Iceberg tables"),
        (["--to", "1", "--keep-as", "old"], "--keep-as is an option of Iceberg tables"),
        (["--to", "1", "--not-an-ancestor"], "--not-an-ancestor is an option of Iceberg tables"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], what: str, visits: Path) -> None:
    before = listing(visits)
    assert what in restore(visits, *words, code=2).json["message"]
    assert listing(visits) == before


def test_a_version_that_the_log_has_no_more_is_a_usage_error(tmp_path: Path) -> None:
    a_table(tmp_path, [an_add()], [an_add(path="b.parquet")], [an_add(path="c.parquet")])
    names = ("part-0.parquet", "b.parquet")
    write_checkpoint(tmp_path, 1, a_protocol(), a_metadata(), *(an_add(path=name) for name in names))
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert "the log was cleaned up to version 1" in restore(tmp_path, "--to", 0, code=2).json["message"]
    restore(tmp_path, "--to", 1)
    assert [each["path"] for each in actions_in(tmp_path, 3, "remove")] == ["c.parquet"]
    assert actions_in(tmp_path, 3, "add") == []


# -- files that are gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "target", "says"),
    [
        (
            "a",
            1,
            "1 file of version 1 is not there, the first is {root}/a.parquet; no version between it and the newest one",
        ),
        ("a", 3, "; no version between it and the newest one can be restored"),
    ],
)
def test_a_file_that_is_gone_stops_it(gone: str, target: int, says: str, visits: Path) -> None:
    (visits / f"{gone}.parquet").unlink()
    before = listing(visits)
    refused = restore(visits, "--to", target, code=11).json
    assert says.format(root=visits) in refused["message"]
    assert refused["state"] == "Nothing was changed."
    plan = dry(visits, "--to", target)
    assert (len(plan["blocked_by"]), plan["due"]) == (1, True)
    assert listing(visits) == before


def test_the_versions_that_can_be_restored_are_named(tmp_path: Path) -> None:
    vector, other = write_vectors(tmp_path, 1, [0]), write_vectors(tmp_path, 2, [0, 1])
    a_table(
        tmp_path,
        [
            a_protocol_with("deletionVectors"),
            a_metadata(),
            an_add(path="a.parquet"),
            an_add(path="b.parquet"),
        ],
        [a_remove(path="b.parquet"), an_add(path="c.parquet", dv=vector[0])],
        [a_remove(path="c.parquet", dv=vector[0]), an_add(path="d.parquet")],
        [an_add(path="b.parquet")],  # which is gone for a second time then
        [a_remove(path="b.parquet"), an_add(path="e.parquet", dv=other[0])],
        [an_add(path="f.parquet")],
        [an_add(path="g.parquet")],
        [an_add(path="h.parquet")],
    )
    (tmp_path / "b.parquet").unlink()
    first = tmp_path / vector_file_name(1)
    first.unlink()  # of c
    says = "the newest version that can be restored is 6, and the oldest after 0 is 2"
    assert says in restore(tmp_path, "--to", 0, code=11).json["message"]
    message = restore(tmp_path, "--to", 1, code=11).json["message"]
    assert f"1 file of version 1 is not there, the first is {first}" in message
    for version in (2, 4, 5, 6):
        assert dry(tmp_path, "--to", version)["blocked_by"] == []
    (tmp_path / "f.parquet").write_bytes(b"cut short")
    message = restore(tmp_path, "--to", 5, code=11).json["message"]
    assert f"1 file of version 5 has another size, the first is {tmp_path}/f.parquet" in message
    assert message.endswith("no version between it and the newest one can be restored")
    assert (
        "the newest version that can be restored is 4"
        in restore(tmp_path, "--to", 0, code=11).json["message"]
    )


def test_a_file_of_vectors_that_is_too_short_stops_it(tmp_path: Path) -> None:
    (vector,) = write_vectors(tmp_path, 1, [0, 3])
    a_table(
        tmp_path, [a_protocol_with("deletionVectors"), a_metadata(), an_add(dv=vector)], [a_remove(dv=vector)]
    )
    (file,) = tmp_path.glob("*.bin")
    file.write_bytes(file.read_bytes()[:-1])
    assert (
        f"1 file of version 0 has another size, the first is {file}"
        in restore(tmp_path, "--to", 0, code=11).json["message"]
    )


def test_a_version_that_was_left_long_ago_is_restored_with_a_warning(tmp_path: Path) -> None:
    a_table(tmp_path, [an_add()], [a_remove()], age_ms=[AGE_MS + 30 * DAY_MS, AGE_MS + 8 * DAY_MS])
    (warning,) = dry(tmp_path, "--to", 0)["warnings"]
    assert warning.startswith("the table left version 0 8 d ago, and files are kept for 7 d")
    restore(tmp_path, "--to", 0)


# -- what cannot be kept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        (
            [a_metadata(configuration={"delta.columnMapping.mode": "name"})],
            [a_metadata(configuration={"delta.columnMapping.mode": "id"})],
            "delta.columnMapping.mode is id, and was name",
        ),
        (
            [a_metadata()],
            [a_metadata(configuration={"delta.appendOnly": "true"})],
            "delta.appendOnly is true: no file may be removed",
        ),
        (
            [a_protocol_with("catalogManaged"), a_metadata()],
            [a_metadata()],
            "the table feature catalogManaged lets a catalog decide",
        ),
        (
            [a_metadata(configuration={"delta.coordinatedCommits.commitCoordinator-preview": "dynamo"})],
            [a_metadata()],
            "delta.coordinatedCommits.commitCoordinator-preview is dynamo",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(
    then: list[Action], now: list[Action], says: str, tmp_path: Path
) -> None:
    protocol = (
        [] if any("protocol" in each for each in then) else [a_protocol_with("columnMapping", "appendOnly")]
    )
    plain = a_protocol_with("columnMapping", "appendOnly")
    a_table(tmp_path, [*protocol, *then, an_add()], [plain, *now, an_add(path="b.parquet")])
    before = listing(tmp_path)
    assert says in restore(tmp_path, "--to", 0, code=11).json["message"]
    assert listing(tmp_path) == before


def test_a_file_that_needs_row_ids_and_has_no_count_is_refused(tmp_path: Path) -> None:
    a_table(tmp_path, [an_add(rows=None)], [*FIRST, a_remove()])
    message = restore(tmp_path, "--to", 0, code=11).json["message"]
    assert (
        "part-0.parquet gets row ids with this commit, and its statistics do not tell how many rows it has"
        in message
    )


def test_row_ids_that_two_files_would_have_are_refused(tmp_path: Path) -> None:
    numbered = [an_add(path=f"{name}.parquet", baseRowId=0, defaultRowCommitVersion=0) for name in "ab"]
    a_table(tmp_path, [*FIRST, *numbered], [a_remove(path="a.parquet"), a_remove(path="b.parquet")])
    message = restore(tmp_path, "--to", 0, code=11).json["message"]
    assert re.search(r"[ab]\.parquet would have row ids that are another file's too", message)


def test_a_feature_that_comes_back_and_shuts_out_who_wrote_last_must_be_accepted(tmp_path: Path) -> None:
    theirs = a_commit_info(engineInfo="Apache-Spark/3.2.0 Delta-Lake/2.0.0")
    a_table(
        tmp_path,
        [a_protocol_with("deletionVectors"), a_metadata(), an_add()],
        [theirs, a_protocol_with("appendOnly"), a_remove()],
    )
    name = theirs["commitInfo"]["engineInfo"]
    assert f"{name} wrote last" in restore(tmp_path, "--to", 0, code=11).json["message"]
    restore(tmp_path, "--to", 0, "--allow-writer-loss", name)


# -- others who commit -----------------------------------------------------------------------------------------------


def append(root: Path, version: int = 5) -> None:
    write_file(root, "theirs.parquet", bytes(100))
    write_commit(root, version, a_commit(a_commit_info(), an_add(path="theirs.parquet")))


def test_a_saved_plan_is_a_conflict_where_others_have_committed(visits: Path, tmp_path: Path) -> None:
    saved = tmp_path / "restore.plan"
    assert iceberg_cli("plan", visits, "restore", "--to", 1, *AS_OF, "-o", saved).code == 0
    append(visits)
    before = listing(visits)
    ran = iceberg_cli("apply", saved, "--yes", *JSON)
    assert (ran.code, ran.json["state"]) == (12, "The table was not changed.")
    assert "it was at version 4 when this was planned, and is at version 5 now" in ran.json["message"]
    assert listing(visits) == before


def test_a_saved_plan_is_carried_out_and_a_time_means_what_it_meant(visits: Path, tmp_path: Path) -> None:
    saved = tmp_path / "restore.plan"
    assert iceberg_cli("plan", visits, "restore", "--to", "130m", *AS_OF, "-o", saved).code == 0
    assert iceberg_cli("apply", saved, "--yes").code == 0
    assert paths(visits) == ["a.parquet", "b.parquet"]
    assert iceberg_cli("apply", saved, "--yes", *JSON).json["status"] == "nothing_to_do"


def test_a_commit_between_the_plan_and_its_commit_is_a_conflict_and_stands(visits: Path) -> None:
    opened = ic.open_table(str(visits))
    plan = opened.plan(ic.delta.Restore(to="1"), as_of=AS_OF_MS)
    append(visits)
    with pytest.raises(CommitConflict, match="it was at version 4 when this was planned") as caught:
        opened.apply(plan)
    assert (caught.value.exit_code, caught.value.state) == (12, "The table was not changed.")
    assert "theirs.parquet" in paths(visits)
    assert opened.operations() == []
    (record,) = iceberg_cli("history", visits, *JSON).json["operations"]
    assert (record["operation"], record["status"]) == ("restore", "conflict")


def test_it_is_no_part_of_maintenance(visits: Path) -> None:
    assert "restore" not in {each["operation"] for each in iceberg_cli("plan", visits, *JSON).json["plans"]}


def test_a_tag_is_a_usage_error_that_says_what_there_is(visits: Path) -> None:
    ran = iceberg_cli("tag", visits, "eom", "--yes", *JSON)
    assert (ran.code, ran.json["message"]) == (2, "tag is no verb of Delta tables")
    assert "Delta has no tags" in ran.json["next"]

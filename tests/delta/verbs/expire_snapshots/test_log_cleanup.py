"""Log cleanup: which commits and checkpoints go. Expected values from the protocol's text, "Metadata Cleanup"."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as PeerTable
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.delta.reachability import expired_sidecars_of
from iceberg_cli.delta.spec.checkpoints.state import checkpoint_state
from iceberg_cli.delta.spec.checkpoints.writing import (
    CheckpointFile,
    checkpoint_writer,
    classic_name,
    sidecar_name,
    top_level_name,
)
from iceberg_cli.delta.spec.in_commit_timestamps import newest_version_at
from iceberg_cli.delta.spec.log_cleanup import cut_off_ms
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.errors import CorruptFile, IcebergCliError, Refused
from iceberg_cli.plan.plan import Plan
from iceberg_cli.testing.delta_writer import (
    Action,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    commit_path,
    write_log_file,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, a_log, opened, the_log

DAY_MS = 86_400_000
NOW_MS = round(datetime(2026, 3, 15, 12, tzinfo=UTC).timestamp() * 1000)
MIDNIGHT_MS = NOW_MS - DAY_MS // 2
LOG = "_delta_log"
CLEANUP = ("log cleanup", "sidecar cleanup")


def a_table(
    root: Path,
    ages_days: Sequence[float],
    *,
    checkpoints: Sequence[int] = (),
    configuration: dict[str, str] | None = None,
    protocol: Action | None = None,
    commits: dict[int, list[Action]] | None = None,
) -> Path:
    """One commit for each age, each adding one file; classic checkpoints at some versions, as old as their commits."""
    # So high that no test gets a checkpoint that it does not ask for.
    properties = {"delta.checkpointInterval": "1000", **(configuration or {})}
    made = [[an_add(path=f"{version}.parquet")] for version in range(len(ages_days))]
    made[0] = [protocol or a_protocol(), a_metadata(configuration=properties), *made[0]]
    for version, actions in (commits or {}).items():
        made[version] = [*actions, *made[version]]
    for version, (days, actions) in enumerate(zip(ages_days, made, strict=True)):
        write_aged(root, f"{version:020}.json", a_commit(*actions), days=days)
        write_aged(root, f"{version:020}.crc", b"{}", days=days)
    for version in checkpoints:
        a_classic_checkpoint(root, version, days=ages_days[version])
    return root


def write_aged(root: Path, name: str, data: bytes, *, days: float = 0) -> None:
    """A file of the log that was written so long ago."""
    write_log_file(root, name, data, modified_ms=NOW_MS - round(days * DAY_MS))


def a_classic_checkpoint(root: Path, version: int, *, days: float = 0) -> None:
    data, _ = checkpoint_writer(checkpoint_state(the_log(root).snapshot(version), as_of_ms=NOW_MS)).classic()
    write_aged(root, classic_name(version), data, days=days)


def a_v2_checkpoint(root: Path, version: int, *, days: float, unique: str) -> None:
    """Two sidecars, then the top level."""
    state = checkpoint_state(the_log(root).snapshot(version), as_of_ms=NOW_MS)
    written = checkpoint_writer(state, part_size=-(-state.file_actions // 2))
    parts = []
    for part in range(2):
        name, data = sidecar_name(version, part, 2, unique), written.sidecar(part)
        write_aged(root, f"_sidecars/{name}", data, days=days)
        parts.append(CheckpointFile(name=name, size_bytes=len(data), modified_ms=0))
    write_aged(root, top_level_name(version, unique), written.top_level(parts), days=days)


OPERATOR = Operator(VERB, as_of_ms=NOW_MS)
planned, run = OPERATOR.plan, OPERATOR.run


def removed(root: Path, **policy: Any) -> list[dict[str, Any]]:
    """The rows of what would be deleted, in the order in which it is."""
    removals = planned(root, **policy).removals
    assert removals is not None
    rows: list[dict[str, Any]] = removals.rows.to_pylist()
    return rows


def going(root: Path, **policy: Any) -> list[str]:
    """The names of the log's files that would be deleted, in the order in which they are."""
    rows = removed(root, **policy)
    return [row["path"].removeprefix(f"{root}/{LOG}/") for row in rows if row["step"] in CLEANUP]


def unreachable(
    root: Path, plan: Plan, step: str | None = None, *, table: DeltaTable | None = None
) -> list[int]:
    """The rows of a plan, or of a step of it, that a second look would let go."""
    removals = plan.removals
    assert removals is not None
    start, stop = (0, removals.count) if step is None else removals.of_step(step)
    assert stop > start
    return (table or opened(root)).unreachable(removals, range(start, stop), plan=plan)


def compact(root: Path, first: int, last: int) -> str:
    """Write the compaction of some commits; its name."""
    name = f"{first:020}.{last:020}.compacted.json"
    commits = (commit_path(root, version).read_bytes() for version in range(first, last + 1))
    write_log_file(root, name, b"".join(commits))
    return name


def versions(names: Sequence[str]) -> set[int]:
    """The versions whose commits are among some files."""
    return {int(name[:20]) for name in names if name.endswith(".json") and len(name) == 25}


def in_log(root: Path) -> set[str]:
    return {str(path.relative_to(root / LOG)) for path in (root / LOG).rglob("*") if path.is_file()}


def files_at(root: Path, version: int) -> list[str]:
    return sorted(the_log(root).snapshot(version).adds["path"].to_pylist())


# -- the rule --------------------------------------------------------------------------------------------------


def test_the_cut_off_is_the_midnight_before(tmp_path: Path) -> None:
    assert cut_off_ms(NOW_MS, 0) == MIDNIGHT_MS
    assert cut_off_ms(MIDNIGHT_MS, 0) == MIDNIGHT_MS
    assert cut_off_ms(MIDNIGHT_MS - 1, DAY_MS) == MIDNIGHT_MS - 2 * DAY_MS


def test_the_newest_checkpoint_at_or_before_the_newest_commit_at_the_cut_off_stays(tmp_path: Path) -> None:
    ages = [60, 55, 50, 45, 40, 35, 31, 20, 10, 5]
    root = a_table(tmp_path, ages, checkpoints=[2, 5, 8])
    names = going(root)
    assert versions(names) == {0, 1, 2, 3, 4}
    assert set(names) - {f"{version:020}.json" for version in range(5)} == {
        classic_name(2),
        *(f"{version:020}.crc" for version in range(5)),
    }


def test_delta_spark_would_delete_more_where_a_younger_checkpoint_follows_an_expired_commit(
    tmp_path: Path,
) -> None:
    # Version 3 is what the table was at the cut-off. Delta Spark deletes it, because checkpoint 4 is there.
    root = a_table(tmp_path, [50, 45, 40, 35, 20, 10], checkpoints=[2, 4])
    assert versions(going(root)) == {0, 1}


def test_a_commit_exactly_at_the_midnight_is_old_enough(tmp_path: Path) -> None:
    midnight_age = 0.5 + 30
    on_time = a_table(tmp_path / "a", [40, midnight_age, 1], checkpoints=[1])
    too_late = a_table(tmp_path / "b", [40, midnight_age - 1 / DAY_MS, 1], checkpoints=[1])
    assert versions(going(on_time)) == {0}
    assert going(too_late) == []


def test_the_newest_version_is_the_one_that_stays_where_nobody_wrote_of_late(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50], checkpoints=[1, 2])
    assert versions(going(root)) == {0, 1}
    verdict = planned(root).verdicts[-1]
    assert (verdict.subject, verdict.id, verdict.keep) == ("versions", "from 2", True)
    assert verdict.reason == (
        "kept: checkpoint 2 is the newest at or before version 2, that of 2026-02-13T00:00:00.000Z"
    )


def test_without_a_checkpoint_nothing_goes(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 50, 40, 1])
    assert going(root) == []
    assert "no complete, readable checkpoint" in planned(root).verdicts[-1].reason


def test_times_of_commits_that_go_back_are_raised_to_the_one_before(tmp_path: Path) -> None:
    # The second commit's file looks older than the first one's, which is younger than the cut-off.
    root = a_table(tmp_path, [20, 60, 5], checkpoints=[1])
    assert going(root) == []


def test_a_checkpoint_that_cannot_be_read_is_not_what_the_log_is_cut_down_to(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 1], checkpoints=[1, 3, 4])
    path = root / LOG / classic_name(3)
    path.write_bytes(path.read_bytes()[:-20])
    assert versions(going(root)) == {0}
    assert any("checkpoint of version 3 cannot be read" in warning for warning in planned(root).warnings)


def test_parts_of_a_checkpoint_that_is_not_whole_go_below_the_one_that_stays_and_do_not_count(
    tmp_path: Path,
) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 1], checkpoints=[1])
    for version in (0, 3):
        write_log_file(root, f"{version:020}.checkpoint.{1:010}.{2:010}.parquet", b"part")
    names = going(root)
    assert versions(names) == {0}
    assert [name for name in names if "checkpoint" in name] == [f"{0:020}.checkpoint.{1:010}.{2:010}.parquet"]


def test_log_compactions_that_begin_at_or_before_the_checkpoint_go(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 40, 1], checkpoints=[2])
    *expected, _ = [compact(root, first, last) for first, last in ((0, 1), (1, 4), (2, 3), (3, 4))]
    assert [name for name in going(root) if "compacted" in name] == expected


def test_a_log_compaction_goes_where_all_commits_after_the_checkpoint_are_there_up_to_the_newest(
    tmp_path: Path,
) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 1], checkpoints=[2])
    for version in (0, 1):
        commit_path(root, version).unlink()
        (root / LOG / f"{version:020}.crc").unlink()
    to_the_newest = compact(root, 2, 4)
    commit_path(root, 2).unlink()  # checkpoint 2 has it
    assert going(root) == [to_the_newest]


def test_a_log_compaction_stays_that_holds_a_commit_which_is_gone(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 40, 1], checkpoints=[2, 4])
    a_compaction = f"{1:020}.{3:020}.compacted.json"
    write_log_file(root, a_compaction, commit_path(root, 3).read_bytes())
    commit_path(root, 3).unlink()
    (root / LOG / classic_name(4)).unlink()
    shutil.copy(root / LOG / classic_name(2), root / LOG / classic_name(5))  # so that the table can be opened
    assert a_compaction not in going(root)


def test_hadoops_hidden_checksums_go_with_their_files_and_alone_where_these_are_gone(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 1], checkpoints=[1])
    for name in (f"{0:020}.json", f"{0:020}.crc", f"{1:020}.json", classic_name(0), "_last_checkpoint"):
        write_log_file(root, f".{name}.crc", b"crc")
    hidden = {name for name in going(root) if name.startswith(".")}
    assert hidden == {f".{0:020}.json.crc", f".{0:020}.crc.crc", f".{classic_name(0)}.crc"}
    run(root)
    assert {name for name in in_log(root) if name.startswith(".")} == {
        f".{1:020}.json.crc",
        "._last_checkpoint.crc",
    }


def test_a_hidden_checksum_beside_what_stays_or_after_it_stays(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 1], checkpoints=[1])
    stays = {
        f".{1:020}.crc.crc",  # its file is gone, and is no older than the checkpoint
        f".{2:020}.json.crc",
        f".{0:020}.json.tmp",
        f"x{0:020}.json.crc",
        "..crc",
        ".crc",
    }
    (root / LOG / f"{1:020}.crc").unlink()
    for name in stays:
        write_log_file(root, name, b"crc")
    run(root)
    assert stays <= in_log(root)


def test_what_is_not_the_logs_own_stays(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 1], checkpoints=[1])
    others = {
        "_last_checkpoint",
        "_last_vacuum_info",
        "0.json",
        "note.txt",
        f"_staged_commits/{0:020}.x.json",
    }
    for name in others:
        write_log_file(root, name, b"{}")
    run(root)
    assert others <= in_log(root)


def test_properties_decide_unless_an_option_is_given(tmp_path: Path) -> None:
    ages = [20, 15, 1]
    short = {"delta.logRetentionDuration": "interval 10 days"}
    off = {"delta.enableExpiredLogCleanup": "false", **short}
    assert versions(going(a_table(tmp_path / "a", ages, checkpoints=[1]))) == set()
    assert versions(going(a_table(tmp_path / "b", ages, checkpoints=[1], configuration=short))) == {0}
    switched_off = a_table(tmp_path / "c", ages, checkpoints=[1], configuration=off)
    assert going(switched_off) == []
    assert versions(going(switched_off, log_retention_ms=10 * DAY_MS)) == {0}


def test_a_log_retention_below_that_of_files_is_blocked(tmp_path: Path) -> None:
    root = a_table(tmp_path, [20, 15, 1], checkpoints=[1])
    plan = planned(root, log_retention_ms=DAY_MS)
    assert plan.due
    assert "24 h is less than the 168 h" in plan.blocked_by[0]
    assert not planned(root, log_retention_ms=DAY_MS, unsafe_short_retention=True).blocked_by


# -- in-commit timestamps --------------------------------------------------------------------------------------


def test_in_commit_timestamps_decide_where_they_are_enabled(tmp_path: Path) -> None:
    times = {
        version: [a_commit_info(inCommitTimestamp=NOW_MS - days * DAY_MS)]
        for version, days in enumerate([60, 50, 40, 20, 1])
    }
    configuration = {"delta.enableInCommitTimestamps": "true"}
    root = a_table(
        tmp_path,
        [0, 0, 0, 0, 0],
        checkpoints=[1, 3],
        configuration=configuration,
        protocol=a_protocol_with("inCommitTimestamp"),
        commits=times,
    )
    assert versions(going(root)) == {0}


def test_without_the_version_that_enabled_them_every_commit_tells_its_time(tmp_path: Path) -> None:
    times = {
        version: [a_commit_info(inCommitTimestamp=NOW_MS - days * DAY_MS)]
        for version, days in enumerate([60, 20, 1])
    }
    configuration = {"delta.enableInCommitTimestamps": "true"}
    protocol = a_protocol_with("inCommitTimestamp")
    root = a_table(
        tmp_path, [0, 0, 0], checkpoints=[0], configuration=configuration, protocol=protocol, commits=times
    )
    assert planned(root).verdicts[-1].id == "from 0"
    commit_path(root, 1).write_bytes(a_commit(a_commit_info(), an_add(path="1.parquet")))
    with pytest.raises(CorruptFile, match=f"{1:020}.json.*inCommitTimestamp"):
        planned(root)


def test_commits_before_the_one_that_enabled_them_go_by_their_files() -> None:
    times = {version: version * 10 for version in range(6)}
    timestamp_of = {3: 1_000, 4: 1_010, 5: 1_020}

    def at(time_ms: int) -> int | None:
        return newest_version_at(times, time_ms, since=3, timestamp_of=timestamp_of.__getitem__)

    assert [at(time_ms) for time_ms in (-1, 0, 15, 500, 999, 1_000, 1_019, 1_020, 9_999)] == [
        None, 0, 1, 2, 2, 3, 4, 5, 5,
    ]  # fmt: skip


# -- checkpoint protection -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protected", "expected"), [(0, {0, 1, 2}), (3, {0, 1, 2}), (4, set()), (9, set())])
def test_checkpoint_protection_keeps_all_or_lets_all_go(
    tmp_path: Path, protected: int, expected: set[int]
) -> None:
    root = a_table(
        tmp_path,
        [60, 55, 50, 45, 40, 1],
        checkpoints=[1, 3],
        configuration={"delta.requireCheckpointProtectionBeforeVersion": str(protected)},
        protocol=a_protocol_with("checkpointProtection"),
    )
    assert versions(going(root)) == expected


def test_protection_without_a_version_protects_none(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50], checkpoints=[0], protocol=a_protocol_with("checkpointProtection"))
    compacted = compact(root, 0, 1)
    assert going(root) == [compacted]


def test_protection_that_is_asked_for_between_plan_and_deletion_is_heeded(tmp_path: Path) -> None:
    root = a_table(
        tmp_path, [60, 55, 50, 1], checkpoints=[2], protocol=a_protocol_with("checkpointProtection")
    )
    plan = planned(root)
    files = in_log(root)
    table = opened(root)
    asked = a_metadata(configuration={"delta.requireCheckpointProtectionBeforeVersion": "9"})
    a_log(root, [asked], first=4)
    assert unreachable(root, plan, table=table) == []
    assert files <= in_log(root)


def test_nothing_goes_once_the_checkpoint_that_stands_for_it_is_gone(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 1], checkpoints=[2])
    plan = planned(root)
    (root / LOG / classic_name(2)).unlink()
    assert plan.removals is not None
    assert plan.removals.count == 4
    assert unreachable(root, plan) == []


# -- sidecars --------------------------------------------------------------------------------------------------


def a_table_of_v2_checkpoints(root: Path) -> Path:
    a_table(root, [60, 55, 50, 45, 40, 35, 1], protocol=a_protocol_with("v2Checkpoint"))
    for version, days, unique in ((2, 50, "aa"), (4, 40, "bb"), (6, 1, "cc")):
        a_v2_checkpoint(root, version, days=days, unique=unique)
    a_classic_checkpoint(root, 6)
    return root


def test_sidecars_go_that_no_remaining_checkpoint_names(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    expected = {f"_sidecars/{sidecar_name(2, part, 2, 'aa')}" for part in range(2)}
    names = going(root)
    assert {name for name in names if name.startswith("_sidecars/")} == expected
    assert top_level_name(2, "aa") in names
    run(root)
    assert not expected & in_log(root)
    assert [files_at(root, version) for version in (4, 5, 6)] == [
        [f"{number}.parquet" for number in range(version + 1)] for version in (4, 5, 6)
    ]


def test_a_hidden_checksum_goes_with_its_sidecar(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    old, kept = (sidecar_name(version, 0, 2, unique) for version, unique in ((2, "aa"), (4, "bb")))
    for name in (old, kept, "gone.parquet"):
        write_log_file(root, f"_sidecars/.{name}.crc", b"crc")
    hidden = {row["path"]: row["kind"] for row in removed(root) if "/_sidecars/." in row["path"]}
    assert hidden == {f"{root}/{LOG}/_sidecars/.{old}.crc": "checksum_file"}


def test_a_young_sidecar_stays_for_it_may_belong_to_a_checkpoint_that_is_being_written(
    tmp_path: Path,
) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    for name, days in (("young", 1.4), ("old", 1.5)):
        write_aged(root, f"_sidecars/{name}.parquet", b"part", days=days)
    names = going(root)
    assert "_sidecars/old.parquet" in names
    assert "_sidecars/young.parquet" not in names


def test_no_sidecar_goes_where_a_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    write_aged(root, "_sidecars/old.parquet", b"part", days=40)
    listed = planned(root)
    path = root / LOG / top_level_name(4, "bb")
    path.write_bytes(path.read_bytes()[:-9])
    plan = planned(root)
    assert [step.name for step in plan.steps] == ["log cleanup"]
    assert any("no sidecar goes" in warning for warning in plan.warnings)
    with pytest.raises(CorruptFile, match=top_level_name(4, "bb")):
        unreachable(root, listed, "sidecar cleanup")


def test_what_a_checkpoint_names_is_not_known_once_it_is_gone(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    log = the_log(root)
    listing = log.listing()
    path = root / LOG / top_level_name(4, "bb")
    path.unlink()
    with pytest.raises(CorruptFile, match="listed and is gone") as error:
        expired_sidecars_of(log, listing, listing.checkpoints[1:], as_of_ms=NOW_MS)
    assert error.value.path == str(path)


def test_a_sidecar_stays_that_a_part_of_a_multi_part_checkpoint_names(tmp_path: Path) -> None:
    founding = [a_protocol_with("v2Checkpoint"), a_metadata()]
    write_aged(tmp_path, f"{0:020}.json", a_commit(*founding, an_add(path="a")), days=40)
    write_aged(tmp_path, f"{1:020}.json", a_commit(a_txn()), days=35)
    sidecar = a_checkpoint(an_add(path="a"))
    for name in ("named", "orphan"):
        write_aged(tmp_path, f"_sidecars/{name}.parquet", sidecar, days=40)
    names_it: Action = {
        "sidecar": {"path": "named.parquet", "sizeInBytes": len(sidecar), "modificationTime": 0}
    }
    for part, actions in enumerate(([*founding, names_it], [a_txn()]), 1):
        write_log_file(tmp_path, f"{0:020}.checkpoint.{part:010}.{2:010}.parquet", a_checkpoint(*actions))
    assert files_at(tmp_path, 0) == ["a"]
    assert going(tmp_path) == ["_sidecars/orphan.parquet"]


def test_sidecars_wait_for_the_checkpoint_that_names_them(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    plan = planned(root)
    assert [step.name for step in plan.steps] == list(CLEANUP)
    assert unreachable(root, plan, "sidecar cleanup") == []


# -- a checkpoint of our own -----------------------------------------------------------------------------------


def test_a_checkpoint_is_written_first_where_it_frees_as_many_commits_as_a_writer_pays_one_for(
    tmp_path: Path,
) -> None:
    ages = [*range(60, 30, -2), 20, 10]
    root = a_table(tmp_path / "a", ages, checkpoints=[1], configuration={"delta.checkpointInterval": "10"})
    names = going(root)
    assert versions(names) == set(range(14))
    before = files_at(root, 14)
    run(root)
    assert classic_name(14) in in_log(root)
    assert files_at(root, 14) == before
    assert PeerTable(str(root)).version() == 16
    rare = a_table(tmp_path / "b", ages, checkpoints=[1], configuration={"delta.checkpointInterval": "14"})
    assert versions(going(rare)) == {0}


def test_a_log_that_never_had_a_checkpoint_gets_one(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 1], configuration={"delta.checkpointInterval": "3"})
    assert versions(going(root)) == {0, 1, 2}
    run(root)
    assert files_at(root, 4) == [f"{number}.parquet" for number in range(5)]


def test_one_commit_is_enough_where_a_checkpoint_is_wanted_for_each(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 1], checkpoints=[0], configuration={"delta.checkpointInterval": "1"})
    assert versions(going(root)) == {0}
    run(root)
    assert files_at(root, 1) == ["0.parquet", "1.parquet"]


def test_no_checkpoint_is_written_over_commits_that_are_not_allowed(tmp_path: Path) -> None:
    clash = [a_remove(path="0.parquet"), an_add(path="0.parquet")]
    root = a_table(
        tmp_path, [60, 55, 50, 1], configuration={"delta.checkpointInterval": "1"}, commits={1: clash}
    )
    (reason,) = planned(root).blocked_by
    assert reason.startswith("no checkpoint can be written of version 2, to which the log would be cut: ")
    with pytest.raises(Refused, match="version 1, line 2"):
        run(root)


def test_a_log_of_v2_checkpoints_alone_gets_a_classic_one_that_older_readers_find(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    assert [step.tasks for step in planned(root).steps] == [(), ()]
    (root / LOG / classic_name(6)).unlink()
    assert [[task.name for task in step.tasks] for step in planned(root).steps] == [[classic_name(4)], []]
    shown = iceberg_cli("expire-snapshots", root, "--dry-run", "--as-of", NOW_MS).out
    assert f"step 1, log cleanup: no commit, writes {classic_name(4)}\n" in shown
    run(root)
    assert classic_name(4) in in_log(root)


def test_a_checkpoint_is_not_written_for_a_version_that_only_others_can_write(tmp_path: Path) -> None:
    root = a_table(
        tmp_path,
        [60, 55, 50, 45, 1],
        configuration={"delta.checkpointInterval": "1"},
        protocol=a_protocol(1, 7, writer_features=["tomorrow"]),
        commits={4: [a_protocol(1, 7, writer_features=["appendOnly"])]},
    )
    assert not planned(root).due


def test_no_checkpoint_is_written_below_a_protected_version(tmp_path: Path) -> None:
    root = a_table(
        tmp_path,
        [60, 55, 50, 45, 1],
        configuration={
            "delta.checkpointInterval": "1",
            "delta.requireCheckpointProtectionBeforeVersion": "4",
        },
        protocol=a_protocol_with("checkpointProtection"),
    )
    assert not planned(root).due


# -- whatever happens on the way -------------------------------------------------------------------------------


def readable_versions(root: Path) -> dict[int, list[str]]:
    """The files of every version whose commit or checkpoint is there and that can be read."""
    found = {}
    for version in {int(name[:20]) for name in in_log(root) if name[:20].isdigit()}:
        try:
            found[version] = files_at(root, version)
        except IcebergCliError:
            continue
    return found


@settings(max_examples=25)
@given(data=st.data())
def test_whatever_part_of_it_is_deleted_the_versions_that_stay_are_read_as_before(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("t")
    count = data.draw(st.integers(2, 7))
    ages = sorted(data.draw(st.lists(st.integers(1, 60), min_size=count, max_size=count)), reverse=True)
    checkpoints = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    a_table(root, ages, protocol=a_protocol_with("v2Checkpoint"))
    for version in checkpoints:
        if data.draw(st.booleans()):
            a_v2_checkpoint(root, version, days=ages[version], unique=f"u{version}")
        else:
            a_classic_checkpoint(root, version)
    before = readable_versions(root)
    names = going(root)
    cut_ms = cut_off_ms(NOW_MS, 30 * DAY_MS)
    expired = [v for v in range(count) if NOW_MS - ages[v] * DAY_MS <= cut_ms]
    kept = max((v for v in checkpoints if expired and v <= expired[-1]), default=0)
    for name in data.draw(st.permutations(names)):
        (root / LOG / name).unlink()
        after = readable_versions(root)
        assert {v: files for v, files in before.items() if v >= kept}.items() <= after.items()
        assert all(before[version] == files for version, files in after.items())
    assert versions(names) == set(range(kept))


@pytest.mark.parametrize("v2", [False, True])
def test_in_the_order_of_deletion_no_version_ever_looks_readable_that_is_not(
    tmp_path: Path, *, v2: bool
) -> None:
    root = a_table(tmp_path, [60, 55, 50, 45, 42, 40, 35, 1], protocol=a_protocol_with("v2Checkpoint"))
    for version in (0, 2, 5):
        if v2:
            a_v2_checkpoint(root, version, days=50, unique=f"u{version}")
        else:
            a_classic_checkpoint(root, version)
    commit_path(root, 0).unlink()  # the log was cleaned up before
    before = readable_versions(root)
    names = going(root)
    assert len(names) > 10
    for name in names:
        (root / LOG / name).unlink()
        there = {int(name[:20]) for name in in_log(root) if name.endswith(".json") and len(name) == 25}
        there |= {checkpoint.version for checkpoint in the_log(root).listing().checkpoints}
        assert {version: before[version] for version in there} == readable_versions(root)


def test_the_plan_says_why_each_file_goes(tmp_path: Path) -> None:
    root = a_table(tmp_path, [60, 55, 50, 1], checkpoints=[0, 2])
    found = {(row["kind"], row["reason"]) for row in removed(root)}
    assert found == {
        ("commit_file", "before checkpoint 2, which stands for it"),
        ("checksum_file", "before checkpoint 2, which stands for it"),
        ("checkpoint_file", "an older checkpoint than 2"),
    }


def test_a_second_run_finds_nothing(tmp_path: Path) -> None:
    root = a_table_of_v2_checkpoints(tmp_path)
    report = run(root)
    assert report.status == "done"
    assert report.counts["deleted_commit_files_count"] == 4
    assert report.counts["deleted_sidecar_files_count"] == 2
    assert not planned(root).due
    assert json.loads(commit_path(root, 4).read_bytes().splitlines()[-1])["add"]

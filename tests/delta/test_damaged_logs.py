"""Logs that every engine reads although an optional file cannot be read, or a commit holds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as PeerTable

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_checkpoint,
    a_commit,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    an_add,
    commit_path,
    set_modified,
    write_checkpoint,
    write_commit,
    write_log,
    write_log_file,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, opened, the_log

DAY_MS = 86_400_000
ROWS = 10


def a_file(root: Path, name: str) -> Action:
    """The add of a file of `ROWS` rows, which is there."""
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(range(ROWS))}), root / name)
    return an_add(path=name, size=(root / name).stat().st_size)


def a_table(root: Path, *, commits: int = 4, protocol: Action | None = None, **configuration: str) -> None:
    """One file more in each version; each was made a day after the one before."""
    adds = [a_file(root, f"{version}.parquet") for version in range(commits)]
    founding = [protocol or a_protocol(), a_metadata(configuration=configuration)]
    ages_ms = [DAY_MS * (commits - version) for version in range(commits)]
    write_log(root, [*founding, adds[0]], *([add] for add in adds[1:]), age_ms=ages_ms)


def state_of(root: Path, version: int) -> list[Action]:
    """The actions of a whole checkpoint of a version of `a_table`."""
    adds = [
        an_add(path=f"{each}.parquet", size=(root / f"{each}.parquet").stat().st_size, dataChange=False)
        for each in range(version + 1)
    ]
    return [a_protocol(), a_metadata(), *adds]


def cut(path: Path) -> Path:
    """The file without its second half."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def names(root: Path) -> list[str]:
    return sorted(the_log(root).snapshot().adds["path"].to_pylist())


def log_names(root: Path) -> set[str]:
    return {path.name for path in (root / "_delta_log").iterdir()}


@pytest.fixture(scope="module")
def kernel() -> Iterator[duckdb.DuckDBPyConnection]:
    (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, root: Path) -> int:
    (found,) = connection.execute(f"SELECT count(*) FROM delta_scan('{root}')").fetchall()
    return int(found[0])


# -- a commit of no bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [b"", b"\n", b" \r\n\n"])
def test_a_commit_without_actions_changes_nothing(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, nothing: bytes
) -> None:
    a_table(tmp_path)
    write_commit(tmp_path, 4, nothing)
    before = the_log(tmp_path).snapshot(3)
    snapshot = the_log(tmp_path).snapshot()
    assert (snapshot.version, names(tmp_path)) == (4, [f"{each}.parquet" for each in range(4)])
    (warning,) = snapshot.warnings
    assert warning.startswith(f"{commit_path(tmp_path, 4)} is empty")
    assert the_log(tmp_path).advance(before).warnings == snapshot.warnings
    assert rows_of(kernel, tmp_path) == 4 * ROWS
    if not nothing:
        assert len(PeerTable(str(tmp_path)).file_uris()) == 4


def test_a_commit_without_actions_is_a_warning_and_a_finding_by_name(tmp_path: Path) -> None:
    a_table(tmp_path)
    write_commit(tmp_path, 2, b"")
    name = commit_path(tmp_path, 2).name
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 0
    (finding,) = checked.json["findings"]
    assert (finding["id"], finding["severity"]) == ("commit-empty", "warning")
    assert finding["where"].endswith(name)
    done = iceberg_cli("rewrite-manifests", tmp_path, "--yes")
    assert (done.code, "is empty: nothing changed in that version" in done.out) == (0, True)
    assert {path.name for path in tmp_path.glob("*.parquet")} - set(names(tmp_path)) == {"2.parquet"}


def test_the_first_commit_must_say_what_the_table_is(tmp_path: Path) -> None:
    write_log(tmp_path, b"", [an_add()])
    with pytest.raises(CorruptFile, match="no protocol action"):
        the_log(tmp_path).snapshot()


def test_an_empty_log_compaction_does_not_stand_for_commits_that_hold_something(tmp_path: Path) -> None:
    a_table(tmp_path)
    write_log_file(tmp_path, f"{1:020}.{3:020}.compacted.json", b"")
    snapshot = the_log(tmp_path).snapshot()
    assert sorted(snapshot.adds["path"].to_pylist()) == [f"{each}.parquet" for each in range(4)]
    (warning,) = snapshot.warnings
    assert "log compaction files are passed over" in warning


def test_an_empty_top_level_is_no_checkpoint(tmp_path: Path) -> None:
    a_table(tmp_path, protocol=a_protocol_with("v2Checkpoint"))
    top_level = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    write_log_file(tmp_path, top_level, b"")
    assert names(tmp_path) == [f"{each}.parquet" for each in range(4)]
    (warning,) = the_log(tmp_path).snapshot().warnings
    assert top_level in warning


# -- a checkpoint that cannot be read -------------------------------------------------------------------------------


def a_cut_classic(root: Path, version: int) -> None:
    cut(write_checkpoint(root, version, *state_of(root, version)))


def a_cut_part(root: Path, version: int) -> None:
    """One of two parts is cut."""
    actions = state_of(root, version)
    for part, some in enumerate((actions[:3], actions[3:]), 1):
        name = f"{version:020}.checkpoint.{part:010}.{2:010}.parquet"
        path = write_log_file(root, name, a_checkpoint(*some))
    cut(path)


def no_parquet(root: Path, version: int) -> None:
    write_log_file(root, f"{version:020}.checkpoint.parquet", b"not a checkpoint")


def of_no_bytes(root: Path, version: int) -> None:
    write_log_file(root, f"{version:020}.checkpoint.parquet", b"")


def without_its_sidecar(root: Path, version: int) -> None:
    action = {"sidecar": {"path": "gone.parquet", "sizeInBytes": 10, "modificationTime": NOW_MS}}
    head = {"checkpointMetadata": {"version": version}}
    data = a_commit(head, action, a_protocol_with("v2Checkpoint"), a_metadata())
    write_log_file(root, f"{version:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", data)


DAMAGE = [a_cut_classic, a_cut_part, no_parquet, of_no_bytes, without_its_sidecar]


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_log_is_read_past_a_checkpoint_that_cannot_be(
    tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    a_table(tmp_path)
    log = the_log(tmp_path)
    sound = log.snapshot()
    damage(tmp_path, 2)
    snapshot = log.snapshot()
    assert sorted(snapshot.adds["path"].to_pylist()) == [f"{each}.parquet" for each in range(4)]
    assert [each.version for each in snapshot.listing.damaged] == [2]
    (warning,) = snapshot.warnings
    assert warning.startswith("the checkpoint of version 2 cannot be read and is passed over: ")
    # It is remembered, so that a second look reads nothing again.
    assert log.advance(snapshot) is snapshot
    write_commit(tmp_path, 4, a_commit(a_remove(path="0.parquet")))
    newer = log.advance(snapshot)
    assert (newer.version, newer.adds.num_rows, newer.warnings) == (4, 3, snapshot.warnings)
    assert log.advance(sound).adds.num_rows == 3


def test_an_older_checkpoint_stands_for_commits_that_are_gone(tmp_path: Path) -> None:
    a_table(tmp_path)
    write_checkpoint(tmp_path, 1, *state_of(tmp_path, 1))
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    a_cut_classic(tmp_path, 3)
    assert names(tmp_path) == [f"{each}.parquet" for each in range(4)]
    segment = the_log(tmp_path).snapshot().segment
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 1


@pytest.mark.parametrize("gone", [0, 2, 3])
def test_a_checkpoint_that_nothing_stands_for_is_an_error_that_names_it(tmp_path: Path, gone: int) -> None:
    a_table(tmp_path)
    a_cut_classic(tmp_path, 3)
    commit_path(tmp_path, gone).unlink()
    with pytest.raises(CorruptFile) as caught:
        the_log(tmp_path).snapshot()
    assert caught.value.path.endswith(f"{3:020}.checkpoint.parquet")


def test_two_checkpoints_that_cannot_be_read_are_both_named(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_cut_classic(tmp_path, 1)
    a_cut_part(tmp_path, 3)
    warnings = the_log(tmp_path).snapshot().warnings
    assert [warning[:27] for warning in warnings] == [
        "the checkpoint of version 3",
        "the checkpoint of version 1",
    ]


def test_a_finding_names_the_checkpoint_and_the_remedy(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_cut_classic(tmp_path, 2)
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 15
    (finding,) = (each for each in checked.json["findings"] if each["severity"] == "error")
    assert finding["id"] == "checkpoint-unreadable"
    assert finding["where"].endswith(f"{2:020}.checkpoint.parquet")
    assert "`rewrite-manifests` writes a checkpoint that can be read" in finding["remedy"]
    assert "cannot be read and is passed over" in iceberg_cli("inspect", tmp_path).err


@pytest.mark.parametrize("damaged", [2, 3])
def test_rewrite_manifests_writes_the_cure(
    tmp_path: Path, kernel: duckdb.DuckDBPyConnection, damaged: int
) -> None:
    """Of an older version beside it, of the newest one in its place."""
    a_table(tmp_path)
    a_cut_classic(tmp_path, damaged)
    assert iceberg_cli("plan", tmp_path, "rewrite-manifests", "--exit-code").code == 3
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    snapshot = the_log(tmp_path).snapshot()
    assert (snapshot.warnings, snapshot.adds.num_rows) == ((), 4)
    for version in range(4):
        commit_path(tmp_path, version).unlink()
    assert len(PeerTable(str(tmp_path)).file_uris()) == 4
    assert rows_of(kernel, tmp_path) == 4 * ROWS
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes", "--format", "json").json["status"] == (
        "nothing_to_do"
    )


def test_no_checkpoint_is_put_beside_one_of_another_kind_that_cannot_be_read(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_cut_part(tmp_path, 3)
    before = log_names(tmp_path)
    refused = iceberg_cli("rewrite-manifests", tmp_path, "--yes")
    assert refused.code == 11
    assert "of kind multi-part" in refused.err
    assert "move " in refused.err
    assert log_names(tmp_path) == before
    for path in (tmp_path / "_delta_log").glob("*.checkpoint.*"):
        path.unlink()
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0


VACUUM = Operator(VERBS["expire-snapshots"])
NO_RETENTION = {"retention_ms": 0, "log_retention_ms": 0, "unsafe_short_retention": True}


def test_the_log_is_not_cut_to_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    a_table(tmp_path, commits=6)
    write_checkpoint(tmp_path, 1, *state_of(tmp_path, 1))
    a_cut_classic(tmp_path, 3)
    assert VACUUM.run(tmp_path, **NO_RETENTION).status == "done"
    assert commit_path(tmp_path, 1).name in log_names(tmp_path)
    assert commit_path(tmp_path, 0).name not in log_names(tmp_path)
    assert names(tmp_path) == [f"{each}.parquet" for each in range(6)]


def test_a_vacuum_goes_on_by_the_log(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_file(tmp_path, "nobody.parquet")
    removed = a_commit(a_remove(path="0.parquet", deletionTimestamp=NOW_MS - DAY_MS))
    write_commit(tmp_path, 4, removed, modified_ms=NOW_MS - DAY_MS // 2)
    cut(write_checkpoint(tmp_path, 4, *state_of(tmp_path, 3)))
    for path in tmp_path.glob("*.parquet"):
        set_modified(path, NOW_MS - DAY_MS)
    assert VACUUM.run(tmp_path, **NO_RETENTION).status == "done"
    assert {path.name for path in tmp_path.glob("*.parquet")} == {f"{each}.parquet" for each in (1, 2, 3)}


def test_what_a_survey_sees_of_it_is_a_finding(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_cut_classic(tmp_path, 2)
    (row,) = iceberg_cli("survey", tmp_path, "--format", "json").json["tables"]
    assert [each["id"] for each in row["findings"]] == ["checkpoint-unreadable"]


def test_a_table_that_is_opened_again_knows_it_anew(tmp_path: Path) -> None:
    a_table(tmp_path)
    a_cut_classic(tmp_path, 2)
    table = opened(tmp_path)
    write_checkpoint(tmp_path, 2, *state_of(tmp_path, 2), modified_ms=NOW_MS + 1)
    table.load()
    assert table.snapshot.listing.damaged == ()


def test_refusals_are_not_passed_over(tmp_path: Path) -> None:
    """A checkpoint that tells of a reader feature which is not known here is no damage."""
    a_table(tmp_path)
    tomorrow = a_protocol(3, 7, reader_features=["tomorrow"], writer_features=["tomorrow"])
    write_checkpoint(tmp_path, 2, tomorrow, *state_of(tmp_path, 2)[1:])
    with pytest.raises(Refused, match="tomorrow"):
        the_log(tmp_path).snapshot()

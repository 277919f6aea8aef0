"""VACUUM: which files go. Expected values from the protocol's text and from what Delta Spark was seen to do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.reachability import DeltaReachability
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vacuum import hidden, hides_metadata
from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.engines import Event
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.formats.open import iceberg_files
from iceberg_cli.operation.apply import resume
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.delta_vectors import vector_file_name, vector_name
from iceberg_cli.testing.delta_writer import (
    NOW_MS,
    Action,
    a_cdc,
    a_commit,
    a_dv,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    commit_path,
    set_modified,
    write_checkpoint,
    write_commit,
    write_file,
    write_log,
    write_log_file,
)
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, a_log, a_shell, opened, the_log

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
OLD_MS = NOW_MS - 20 * DAY_MS
YOUNG_MS = NOW_MS - DAY_MS
LOG = "_delta_log"
RECORD = "latestCommitVersionOutsideOfRetentionWindow"


OPERATOR = Operator(VERB)
prepared, planned, run = OPERATOR.prepare, OPERATOR.plan, OPERATOR.run


def some_files(root: Path, *names: str, modified_ms: int = OLD_MS, data: bytes = b"data") -> None:
    """Files of a table, or beside it."""
    for name in names:
        write_file(root, name, data, modified_ms=modified_ms)


def adds(*paths: str) -> list[Action]:
    return [an_add(path=path) for path in paths]


def removes(*paths: str, at_ms: int | None = OLD_MS) -> list[Action]:
    return [a_remove(path=path, deletionTimestamp=at_ms) for path in paths]


def going(root: Path, **policy: Any) -> set[str]:
    """What would be deleted outside of the log."""
    removals = planned(root, **policy).removals
    assert removals is not None
    paths = (path.removeprefix(f"{root}/") for path in removals.rows["path"].to_pylist())
    return {path for path in paths if not path.startswith(f"{LOG}/")}


def reasons(root: Path, **policy: Any) -> dict[str, tuple[str, str]]:
    """Kind and reason of what would be deleted."""
    removals = planned(root, **policy).removals
    assert removals is not None
    return {
        row["path"].removeprefix(f"{root}/"): (row["kind"], row["reason"])
        for row in removals.rows.to_pylist()
    }


def vector_names(number: int) -> tuple[str, str]:
    """The name of a deletion vector file in a descriptor, and on the disk."""
    return vector_name(number), vector_file_name(number)


# -- names that are not looked at ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "_change_data/cdc-0.parquet",
        "_delta_index/old.idx",
        "metadata/old.avro",
        "_p=9/old.parquet",
        "_p=0/orphan",
        "sp ace/ol%20d ü.parquet",
        "a.txt",
        "a.bin",
        "deep/_p=1/_change_data_of/x",
    ],
)
def test_names_that_delta_spark_lists_are_seen(name: str) -> None:
    assert hidden(pa.array([name]), partition_columns=["_p", "q"], metadata=False).to_pylist() == [False]


@pytest.mark.parametrize(
    "name",
    [
        "_hidden/a.parquet",
        ".dot/a.parquet",
        "_temporary/a.parquet",
        "_spark_metadata/0",
        "_P=0/a.parquet",
        "_delta_log_old/a.json",
        "_delta_log/0.json",
        "_iceberg_cli/ops/1/000000.json",
        "_committed_123",
        "_orphan.parquet",
        ".orphan.parquet",
        "deep/.x.crc",
        "_p=1/_x/a.parquet",
        "p=1/_p/a.parquet",
    ],
)
def test_names_that_delta_spark_does_not_list_are_hidden(name: str) -> None:
    assert hidden(pa.array([name]), partition_columns=["_p", "q"], metadata=False).to_pylist() == [True]


def test_metadata_is_hidden_where_uniform_writes_iceberg_metadata() -> None:
    names = pa.array(["metadata/v1.metadata.json", "metadata", "metadata2/a", "a/metadata/b"])
    assert hidden(names, partition_columns=[], metadata=True).to_pylist() == [True, True, False, True]
    assert hides_metadata({"delta.universalFormat.enabledFormats": "hudi, iceberg"})
    assert not hides_metadata({"delta.universalFormat.enabledFormats": "hudi"})


@given(
    names=st.lists(st.text(alphabet="._/pq=x%\n(é ", min_size=1, max_size=12), max_size=8),
    columns=st.lists(st.sampled_from(["_p", ".q", "p", "_(", "_é", "_ \n"]), max_size=3),
)
def test_hidden_names_are_those_of_delta_sparks_rule_name_by_name(
    names: list[str], columns: list[str]
) -> None:
    def is_hidden(name: str) -> bool:
        exempt = ("_delta_index", "_change_data", *(f"{column}=" for column in columns))
        return name.startswith((".", "_")) and not name.startswith(exempt)

    expected = [any(is_hidden(part) for part in name.split("/")) for name in names]
    found = hidden(pa.array(names, pa.string()), partition_columns=columns, metadata=False)
    assert found.to_pylist() == expected


# -- what is kept ----------------------------------------------------------------------------------------------


def test_a_file_goes_only_when_its_tombstone_and_its_modification_time_are_both_older(tmp_path: Path) -> None:
    old = removes("old-old", "old-young")
    younger = [*removes("young-old", at_ms=YOUNG_MS), *removes("at-cut", at_ms=NOW_MS - WEEK_MS)]
    names = ("old-old", "young-old", "at-cut")
    a_log(tmp_path, adds("old-young", *names), [*old, *younger], age_ms=20 * DAY_MS)
    some_files(tmp_path, *names)
    some_files(tmp_path, "old-young", modified_ms=YOUNG_MS)
    assert going(tmp_path) == {"old-old"}


def test_an_untracked_file_goes_by_its_age_alone_and_a_file_written_at_the_cut_off_stays(
    tmp_path: Path,
) -> None:
    a_log(tmp_path, adds("live.parquet"))
    some_files(tmp_path, "a", "live.parquet")
    some_files(tmp_path, "b", modified_ms=YOUNG_MS)
    some_files(tmp_path, "c", modified_ms=NOW_MS - WEEK_MS)
    assert going(tmp_path) == {"a"}


def test_a_path_that_was_added_again_after_its_removal_stays(tmp_path: Path) -> None:
    a_log(
        tmp_path,
        adds("a", "b"),
        removes("a", "b"),
        adds("a"),
        age_ms=20 * DAY_MS,
    )
    some_files(tmp_path, "a", "b")
    assert going(tmp_path) == {"b"}


def test_a_tombstone_without_a_time_has_that_of_its_commit(tmp_path: Path) -> None:
    removed = removes("a", at_ms=None)
    a_log(tmp_path / "young", adds("a"), removed, age_ms=DAY_MS)
    a_log(tmp_path / "old", adds("a"), removed, age_ms=20 * DAY_MS)
    some_files(tmp_path, "young/a", "old/a")
    assert (going(tmp_path / "young"), going(tmp_path / "old")) == (set(), {"a"})


def test_a_tombstone_of_which_nobody_knows_the_time_keeps_its_file(tmp_path: Path) -> None:
    unknown = [*removes("a", at_ms=None), *removes("b")]
    a_log(tmp_path, adds("a", "b", "live"), unknown, age_ms=20 * DAY_MS)
    write_checkpoint(tmp_path, 1, a_protocol(), a_metadata(), an_add(path="live"), *unknown)
    some_files(tmp_path, "a", "b", "live")
    assert going(tmp_path) == {"b"}


def test_a_live_deletion_vector_file_stays_even_where_only_one_of_its_vectors_is_live(tmp_path: Path) -> None:
    shared, shared_file = vector_names(1)
    replaced, replaced_file = vector_names(2)
    young, young_file = vector_names(3)
    _, unnamed_file = vector_names(4)
    a_log(
        tmp_path,
        [a_protocol_with("deletionVectors"), a_metadata()],
        [
            an_add(path="a", dv=a_dv(name=shared, offset=1)),
            an_add(path="b", dv=a_dv(name=shared, offset=43)),
            an_add(path="c", dv=a_dv(name=replaced)),
            an_add(path="d", dv=a_dv(name=young)),
        ],
        [
            a_remove(path="b", dv=a_dv(name=shared, offset=43), deletionTimestamp=OLD_MS),
            a_remove(path="c", dv=a_dv(name=replaced), deletionTimestamp=OLD_MS),
            a_remove(path="d", dv=a_dv(name=young), deletionTimestamp=YOUNG_MS),
            an_add(path="c"),
            an_add(path="d"),
        ],
        age_ms=20 * DAY_MS,
    )
    some_files(tmp_path, "a", "b", "c", "d", shared_file, replaced_file, young_file, unnamed_file)
    assert going(tmp_path) == {"b", replaced_file, unnamed_file}
    found = reasons(tmp_path)
    assert found[replaced_file] == ("deletion_vector_file", "removed on 2026-12-26")
    assert found[unnamed_file][0] == "deletion_vector_file"
    assert found["b"] == ("data_file", "removed on 2026-12-26")


def test_a_deletion_vector_below_a_prefix_or_at_an_absolute_path_stays(tmp_path: Path) -> None:
    in_prefix, prefix_file = vector_names(5)
    a_log(
        tmp_path,
        [a_protocol_with("deletionVectors"), a_metadata()],
        [
            an_add(path="a", dv=a_dv(name=f"ab{in_prefix}")),
            an_add(path="b", dv=a_dv(storageType="p", pathOrInlineDv=f"file:{tmp_path}/dv%20s/x.bin")),
            an_add(
                path="c",
                dv=a_dv(
                    storageType="i",
                    pathOrInlineDv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
                    offset=None,
                ),
            ),
        ],
    )
    some_files(tmp_path, "a", "b", "c", f"ab/{prefix_file}", "dv s/x.bin", "dv s/y.bin")
    assert going(tmp_path) == {"dv s/y.bin"}


@pytest.mark.parametrize(
    ("logged", "folder"),
    [
        ("p=100%2525", "p=100%25"),
        ("p=two%20words", "p=two words"),
        ("p=a+b", "p=a+b"),
        ("p=%252F", "p=%2F"),
        ("p=é漢", "p=é漢"),
        ("p=12%253A30", "p=12%3A30"),
        ("p=it's&~", "p=it's&~"),
        ("p=%23%3F", "p=#?"),
        ("p=東京\uff0f大阪", "p=東京\uff0f大阪"),
        ("p=1%E2%81%842", "p=1\u20442"),
        ("p=a%5Cb", "p=a\\b"),
        ("p=a%252F.%252Fb", "p=a%2F.%2Fb"),
    ],
)
def test_escapes_in_partition_values_delete_nothing_live(tmp_path: Path, logged: str, folder: str) -> None:
    a_log(
        tmp_path,
        [a_protocol(), a_metadata(partitionColumns=["p"])],
        adds(f"{logged}/live", f"{logged}/gone"),
        removes(f"{logged}/gone"),
        age_ms=20 * DAY_MS,
    )
    some_files(tmp_path, f"{folder}/live", f"{folder}/gone")
    assert going(tmp_path) == {f"{folder}/gone"}


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_file_that_was_removed_in_another_spelling_stays_for_those_who_still_read_it(
    tmp_path: Path, mode: str
) -> None:
    a_log(
        tmp_path,
        [a_protocol(), a_metadata(partitionColumns=["p"]), *adds("p=\u00e9/a", "p=\u00e9/b")],
        removes("p=%C3%A9/a", "p=\u00e9/b"),
        age_ms=20 * DAY_MS,
    )
    some_files(tmp_path, "p=\u00e9/a", "p=\u00e9/b")
    assert going(tmp_path, mode=mode) == {"p=\u00e9/b"}


def test_a_file_at_the_place_that_the_log_spells_literally_stays_too(tmp_path: Path) -> None:
    a_log(tmp_path, adds("p=50%25/a"))
    some_files(tmp_path, "p=50%25/a", "p=50%/a")
    assert going(tmp_path) == set()


@pytest.mark.parametrize("spelling", ["{root}/a", "file:{root}/a", "file://{root}/a", "file:///{root}//a"])
def test_an_absolute_path_inside_the_table_keeps_its_file_in_any_spelling(
    tmp_path: Path, spelling: str
) -> None:
    a_log(tmp_path, [an_add(path=spelling.format(root=tmp_path))])
    some_files(tmp_path, "a", "b")
    assert going(tmp_path) == {"b"}


def test_files_outside_the_table_are_never_listed(tmp_path: Path) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    some_files(source, "a")
    a_log(
        clone,
        adds(f"file:{source}/a", "own"),
        removes(f"file:{source}/a", "own"),
        age_ms=20 * DAY_MS,
    )
    some_files(clone, "own")
    for mode in ("full", "lite"):
        assert going(clone, mode=mode) == {"own"}


def test_a_file_that_the_log_names_through_a_linked_folder_stays(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(root, adds("link/a"))
    some_files(root, "real/a", "real/b")
    (root / "link").symlink_to(root / "real")
    assert going(root) == {"real/b"}


def test_a_file_behind_a_link_out_of_the_table_blocks_the_vacuum_that_would_leave_it(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "disk"
    a_log(root, adds("k=1/gone", "live"), removes("k=1/gone"), age_ms=20 * DAY_MS)
    some_files(elsewhere, "gone")
    (root / "k=1").symlink_to(elsewhere)
    table, made = prepared(root, mode="lite")
    plan = made.plan
    link = f"the symbolic link {root}/k=1 leads to {elsewhere}"
    assert plan.blocked_by == (
        f"files cannot be deleted: {link}; mount {elsewhere} there instead of the link",
    )
    with pytest.raises(Refused):
        OPERATOR.apply(made, table)
    assert table.snapshot.version == 1
    assert planned(root).blocked_by == ()


@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
def test_what_a_link_that_the_log_names_leads_to_stays_inside_the_table(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "t"
    old = ["real", "d/second", "third", "gone"]
    links = {"first": "real", "d/link": "../d/second", "chain": str(root / "d" / "hop"), "d/hop": "../third"}
    a_log(root, adds(*old, "first", "d/link", "chain"), removes(*old), age_ms=20 * DAY_MS)
    some_files(root, *old)
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "dangling").symlink_to(root / "nowhere")
    policy = looking(root, mode)
    assert going(root, **policy) == {"gone"}
    run(root, **policy)
    assert [(root / name).read_bytes() for name in ("first", "d/link", "chain")] == [b"data"] * 3


def test_what_a_link_that_a_young_commit_removed_leads_to_stays(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live", "link"), removes("link", at_ms=YOUNG_MS))
    some_files(tmp_path, "real")
    (tmp_path / "link").symlink_to("real")
    assert going(tmp_path) == set()


def test_a_log_that_is_a_link_is_cleaned_up_where_it_is(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    a_log(root, adds("live"), adds("more"), adds("most"), age_ms=60 * DAY_MS)
    write_checkpoint(
        root, 2, a_protocol(), a_metadata(), *adds("live", "more", "most"), modified_ms=NOW_MS - 60 * DAY_MS
    )
    (root / LOG).rename(elsewhere)
    (root / LOG).symlink_to(elsewhere)
    some_files(root, "live", "more", "most")
    assert run(root).status == "done"
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        f"{2:020}.checkpoint.parquet",
        f"{2:020}.json",
    ]


def test_a_table_that_is_opened_through_a_link_keeps_what_it_names_by_its_real_folder(tmp_path: Path) -> None:
    real = tmp_path / "real"
    a_log(real, adds(f"file:{real}/a"))
    some_files(real, "a", "b")
    (tmp_path / "link").symlink_to(real)
    removals = planned(tmp_path / "link").removals
    assert removals is not None
    assert [path.rpartition("/")[2] for path in removals.rows["path"].to_pylist()] == ["b"]


def test_a_file_whose_name_is_no_text_stays(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live", "orphan")
    strange = os.fsencode(tmp_path) + b"/\xff\xfe.parquet"
    Path(os.fsdecode(strange)).write_bytes(b"data")
    set_modified(Path(os.fsdecode(strange)), OLD_MS)
    assert going(tmp_path) == {"orphan"}


def test_change_data_goes_by_its_age_also_where_it_lies_beside_the_data(tmp_path: Path) -> None:
    changes = [a_cdc(path="_change_data/cdc-0"), a_cdc(path="y0/cdc-1")]
    a_log(tmp_path, [an_add(path="live"), *changes], age_ms=20 * DAY_MS)
    some_files(tmp_path, "live", "_change_data/cdc-0", "y0/cdc-1", "_change_data/orphan")
    some_files(tmp_path, "_change_data/cdc-2", modified_ms=YOUNG_MS)
    assert going(tmp_path) == {"_change_data/cdc-0", "y0/cdc-1", "_change_data/orphan"}
    assert {kind for kind, _ in reasons(tmp_path).values()} == {"change_data_file"}
    assert {reason for _, reason in reasons(tmp_path).values()} == {"change data, last written on 2026-12-26"}


def test_a_removed_file_that_is_named_like_change_data_goes_for_its_removal(tmp_path: Path) -> None:
    a_log(tmp_path, adds("cdc-0", "b"), removes("cdc-0", "b"), age_ms=20 * DAY_MS)
    some_files(tmp_path, "cdc-0", "b", "orphan")
    assert reasons(tmp_path) == {
        "cdc-0": ("change_data_file", "removed on 2026-12-26"),
        "b": ("data_file", "removed on 2026-12-26"),
        "orphan": ("untracked_file", "nothing in the log names it, last written on 2026-12-26"),
    }


def test_folders_are_never_listed_and_only_those_that_a_run_empties_are_removed(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live", "p=1/gone", "p=2/gone")
    some_files(tmp_path, "p=2/young", modified_ms=YOUNG_MS)
    (tmp_path / "empty").mkdir()
    assert going(tmp_path) == {"p=1/gone", "p=2/gone"}
    assert run(tmp_path).status == "done"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name[0] != "_") == [
        "empty",
        "p=2",
    ]


def test_what_becomes_live_between_plan_and_deletion_stays(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"), age_ms=10_000)
    some_files(tmp_path, "live", "a", "b")
    _, made = prepared(tmp_path)
    a_log(tmp_path, adds("a"), first=1)
    report = OPERATOR.apply(made, opened(tmp_path))
    assert report.status == "done"
    assert (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_the_second_look_keeps_what_the_table_needs_by_now_and_what_no_plan_may_list(tmp_path: Path) -> None:
    names = ["again", "again-and-gone", "gone", "orphan"]
    a_log(
        tmp_path,
        adds(*names[:3]),
        removes(*names[:3]),
        age_ms=20 * DAY_MS,
    )
    some_files(tmp_path, *names)
    plan = planned(tmp_path)
    removals = plan.removals
    assert removals is not None
    a_log(tmp_path, adds(*names[:2]), [a_remove(path="again-and-gone")], first=2)
    rows = opened(tmp_path).unreachable(removals, range(removals.count), plan=plan)
    assert [removals.rows["path"][row].as_py() for row in rows] == [str(tmp_path / n) for n in names[2:]]
    some_files(tmp_path, "_hidden/gone")
    paths = [
        str(tmp_path / "_hidden/gone"),
        str(commit_path(tmp_path, 0)),
        str(tmp_path.parent / "elsewhere"),
    ]
    forged = Removals.of(
        pa.table(
            {name: pa.array([value] * 3) for name, value in removals.read_rows([0]).to_pylist()[0].items()}
        )
        .drop_columns(["path", "as_written"])
        .append_column("path", pa.array(paths))
        .append_column("as_written", pa.array(paths))
        .select(removals.rows.column_names)
    )
    assert opened(tmp_path).unreachable(forged, range(3), plan=plan) == []


# -- what commits removed that are young -----------------------------------------------------------------------


def every_file(root: Path, path: Path) -> str:
    """An inventory of all files of a table."""
    files = [file for file in root.rglob("*") if file.is_file()]
    rows = [
        {"path": str(f), "length": 4, "isDir": False, "modificationTime": f.stat().st_mtime_ns // 1_000_000}
        for f in files
    ]
    return an_inventory(path, rows)


def looking(root: Path, mode: str) -> dict[str, str]:
    """The policy of a mode, or of an inventory that lies beside the table."""
    inventory = root.parent / f"{root.name}.jsonl"
    return {"inventory": every_file(root, inventory)} if mode == "inventory" else {"mode": mode}


def a_table_whose_checkpoint_forgot(root: Path, **configuration: str) -> Path:
    """x was removed 40 days ago and y 10, and a checkpoint that is 2 days old has the tombstone of neither."""
    founding = [a_protocol(), a_metadata(configuration=configuration)]
    removals = [removes(name, at_ms=NOW_MS - days * DAY_MS) for name, days in (("x", 40), ("y", 10))]
    ages_ms = [days * DAY_MS for days in (50, 40, 10, 2)]
    write_log(root, [*founding, *adds(*"xyz")], *removals, [a_txn()], age_ms=ages_ms)
    write_checkpoint(root, 3, *founding, *adds("z"))
    some_files(root, *"xyz", modified_ms=NOW_MS - 60 * DAY_MS)
    return root


@pytest.mark.parametrize("mode", ["full", "inventory"])
def test_a_retention_longer_than_that_of_a_checkpoint_is_kept_by_the_commits_that_are_there(
    tmp_path: Path, mode: str
) -> None:
    root = a_table_whose_checkpoint_forgot(tmp_path / "asked")
    raised = a_table_whose_checkpoint_forgot(
        tmp_path / "raised", **{"delta.deletedFileRetentionDuration": "interval 30 days"}
    )
    short, long = (looking(table, mode) for table in (root, raised))
    assert going(root, **short) == {"x", "y"}
    assert going(root, retention_ms=30 * DAY_MS, **short) == {"x"}
    assert going(raised, **long) == {"x"}
    assert planned(root, retention_ms=30 * DAY_MS).warnings == ()


def test_the_second_look_keeps_what_young_commits_removed(tmp_path: Path) -> None:
    root = a_table_whose_checkpoint_forgot(tmp_path)
    short = planned(root)
    long = planned(root, retention_ms=30 * DAY_MS)
    removals = short.removals
    assert removals is not None
    rows = range(2)
    assert [removals.rows["path"][row].as_py() for row in rows] == [f"{root}/x", f"{root}/y"]
    assert opened(root).unreachable(removals, rows, plan=short) == [0, 1]
    assert opened(root).unreachable(removals, rows, plan=long) == [0]


def test_a_log_that_ends_after_the_cut_off_keeps_by_tombstones_alone_and_the_plan_warns(
    tmp_path: Path,
) -> None:
    root = a_table_whose_checkpoint_forgot(tmp_path)
    for version in range(3):
        commit_path(root, version).unlink()
    assert going(root, retention_ms=30 * DAY_MS) == {"x", "y"}
    (warning,) = planned(root, retention_ms=30 * DAY_MS).warnings
    assert warning == (
        "the log does not go back to 2026-12-16T08:00:00.000Z: files go that may have been removed since, by commits "
        "that are gone, if checkpoints forgot them after the 168 h that the table promises"
    )
    assert planned(root).warnings == ()
    (root / "x").unlink()
    (root / "y").unlink()
    assert planned(root, retention_ms=30 * DAY_MS).warnings == ()


@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
def test_what_a_young_commit_removed_stays_whatever_the_clock_of_its_writer_said(
    tmp_path: Path, mode: str
) -> None:
    root = tmp_path / "t"
    dv, dv_file = vector_names(1)
    names = ["old", "at-cut", "young", "p=1%/a"]
    changed = ["_change_data/cdc-old", "_change_data/cdc-at-cut", "_change_data/cdc-1%"]
    escaped = a_remove(path="p=1%25/a", dv=a_dv(name=dv), deletionTimestamp=OLD_MS)
    write_log(
        root,
        [a_protocol_with("deletionVectors"), a_metadata()],
        adds(*names[:3]),
        [an_add(path="p=1%25/a", dv=a_dv(name=dv)), *adds("live")],
        [*removes("old"), a_cdc(path=changed[0])],
        [*removes("at-cut"), a_cdc(path=changed[1])],
        removes("young"),
        [escaped, a_cdc(path="_change_data/cdc-1%25")],
        age_ms=[20 * DAY_MS, 19 * DAY_MS, 19 * DAY_MS, WEEK_MS + 1, WEEK_MS, DAY_MS, DAY_MS],
    )
    some_files(root, "live", *names, *changed, dv_file)
    policy = looking(root, mode)
    assert going(root, **policy) == {"old", "_change_data/cdc-old"}


def test_lite_mode_looks_again_at_commits_whose_files_it_kept(tmp_path: Path) -> None:
    root = a_lite_table(tmp_path)
    newest = commit_path(root, 2)
    set_modified(newest, NOW_MS - WEEK_MS)
    assert run(root, mode="lite").status == "done"
    assert recorded(root) == {RECORD: 1}
    write_commit(root, 2, newest.read_bytes().replace(b"%d" % YOUNG_MS, b"%d" % OLD_MS), modified_ms=OLD_MS)
    assert going(root, mode="lite") == {"b"}


def test_lite_mode_calls_a_file_by_its_one_name_however_the_log_spells_it(tmp_path: Path) -> None:
    spelled, other = "d//./old", f"file:{tmp_path}//d/older"
    a_log(tmp_path, adds("live", spelled, other), removes(spelled, other), age_ms=20 * DAY_MS)
    some_files(tmp_path, "live", "d/old", "d/older")
    assert going(tmp_path, mode="lite") == {"d/old", "d/older"}


def test_a_remove_whose_name_is_spelled_by_numbers_keeps_its_file(tmp_path: Path) -> None:
    removed = a_commit(a_remove(path="a", deletionTimestamp=OLD_MS)).replace(b'"remove"', rb'"\u0072emove"')
    a_log(tmp_path, adds("a", "live"), removed)
    some_files(tmp_path, "a", "live")
    assert going(tmp_path) == set()


def test_each_young_commit_is_read_once_for_all_looks_at_one_table_and_old_ones_never(tmp_path: Path) -> None:
    a_lite_table(tmp_path)
    seen: list[Event] = []
    storage = open_storage()
    log = DeltaLog(storage, LocalEngine(storage), str(tmp_path), seen.append)
    snapshot = the_log(tmp_path).snapshot()
    reachability = DeltaReachability(log=log, iceberg=iceberg_files(log))
    files = [f"{tmp_path}/{name}" for name in ("a", "b", "c", "_change_data/cdc-0", "unheard-of")]

    def needed(newest: Snapshot, *, age_ms: int) -> list[bool]:
        held: list[bool] = reachability.reachable(newest, pa.array(files), cut_ms=NOW_MS - age_ms).to_pylist()
        return held

    def reads() -> list[int]:
        found = [event.done for event in seen if event.phase == "read commits" and event.done == event.total]
        seen.clear()
        return found

    assert needed(snapshot, age_ms=0) == [False, False, True, False, False]
    assert reads() == []
    for _ in range(3):
        assert needed(snapshot, age_ms=21 * DAY_MS) == [True, True, True, True, False]
    assert reads() == [3]
    a_log(tmp_path, removes("c"), first=3)
    for newer in [the_log(tmp_path).snapshot()] * 2:
        assert needed(newer, age_ms=21 * DAY_MS) == [True, True, True, True, False]
    assert reads() == [1]


# -- tables in folders below -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "inventory"])
def test_everything_in_the_folder_of_another_table_stays(tmp_path: Path, mode: str) -> None:
    """Delta Spark deletes what is there: to it these are files that nothing names."""
    root = tmp_path / "t"
    a_log(root, adds("live", "n/own"), age_ms=20 * DAY_MS)
    a_log(root / "n", adds("live"), age_ms=20 * DAY_MS)
    others = ["n/live", "n/deep/orphan", "i/w/metadata/v1.metadata.json", "i/w/data/a"]
    others += ["z/metadata/0.metadata.json.gz", "z/a\nb"]
    plain = ["i/orphan", "n2/orphan", "metadata/a.json", "m/metadata/a.json", "x/_delta_log"]
    some_files(root, "live", "n/own", *others, *plain)
    policy = looking(root, mode)
    assert going(root, **policy) == {"i/orphan", "n2/orphan", "metadata/a.json", "m/metadata/a.json"}
    verdicts = {v.reason: v.id for v in planned(root, **policy).verdicts if v.subject == "files"}
    below = ", ".join(str(root / name) for name in ("i/w", "n", "z"))
    assert verdicts[f"kept: they are in the folder of another table, {below}"] == "6 of 24 bytes"
    assert (
        verdicts["kept: the table needs them, or a version that is younger than the cut-off"]
        == "2 of 8 bytes"
    )


def test_another_table_beside_this_one_in_the_inventory_keeps_nothing(tmp_path: Path) -> None:
    root, beside = tmp_path / "t", tmp_path / "u"
    a_log(root, adds("live"), age_ms=20 * DAY_MS)
    a_log(beside / "n", adds("live"), age_ms=20 * DAY_MS)
    for file in (root / "live", root / "n" / "orphan", beside / "n" / "live"):
        some_files(file.parent, file.name)
    assert going(root, inventory=every_file(tmp_path, tmp_path / "i.jsonl")) == {"n/orphan"}


# -- against a transcription -----------------------------------------------------------------------------------


def literal_vacuum(
    made: Sequence[Sequence[Action]], files: Mapping[str, int], *, cut_ms: int
) -> tuple[set[str], set[str], bool]:
    """The rule, action by action and file by file; of the commits the last is young.

    Returns:
        What goes; what of it has the name of an active file that is lost; whether a data file of the table is listed.
    """
    active: dict[tuple[str, str], Action] = {}
    tombstones: dict[tuple[str, str], Action] = {}
    for action in [action for commit in made for action in commit]:
        ((kind, body),) = action.items()
        dv = body.get("deletionVector")
        key = (unquote(body["path"]), "" if dv is None else f"{dv['pathOrInlineDv']}@{dv['offset']}")
        if kind == "add":
            tombstones.pop(key, None)
            active[key] = body
        else:
            active.pop(key, None)
            tombstones[key] = body
    needed: set[str] = set()
    young = [body for body in tombstones.values() if body["deletionTimestamp"] >= cut_ms]
    young += [action["remove"] for action in made[-1] if "remove" in action]
    for body in (*active.values(), *young):
        needed |= {unquote(body["path"]), body["path"]}
        if "deletionVector" in body:
            number = VECTORS.index(body["deletionVector"]["pathOrInlineDv"])
            needed.add(vector_names(number)[1])
    live = [{unquote(body["path"]), body["path"]} for body in active.values()]
    vectors = [
        body["deletionVector"]["pathOrInlineDv"] for body in active.values() if "deletionVector" in body
    ]
    any_listed = any(unquote(body["path"]) in files for body in active.values())
    live += [{vector_names(VECTORS.index(vector))[1]} for vector in vectors]
    lost = {name.split("/")[-1] for names in live if names.isdisjoint(files) for name in names}
    going = {name for name, modified_ms in files.items() if modified_ms < cut_ms and name not in needed}
    namesakes = {name for name in going if name.split("/")[-1] in lost}
    return going, namesakes if lost else set(), any_listed or not lost


VECTORS = [vector_names(number)[0] for number in range(3)]
PATHS = ["a", "b", "p=50%25/a", "p=50%2525/a", "p=x%20y/a"]
PLACES = ["a", "b", "p=50%/a", "p=50%25/a", "p=50%2525/a", "p=x y/a", *(vector_names(n)[1] for n in range(3))]
TIMES = st.sampled_from([OLD_MS, NOW_MS - WEEK_MS - 1, NOW_MS - WEEK_MS, YOUNG_MS])


@st.composite
def commits(draw: st.DrawFn) -> list[list[Action]]:
    """Adds and removes in which a file has at most one deletion vector at a time."""
    made: list[list[Action]] = []
    current: dict[str, Action | None] = {}
    for _ in range(draw(st.integers(1, 5))):
        commit: list[Action] = []
        for path in draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=3)):
            dv = draw(
                st.none() | st.builds(a_dv, name=st.sampled_from(VECTORS), offset=st.sampled_from([1, 43]))
            )
            if path in current:
                removed = current.pop(path)
                commit.append(a_remove(path=path, dv=removed, deletionTimestamp=draw(TIMES)))
                if dv is None or dv == removed:
                    continue
            commit.append(an_add(path=path, dv=dv))
            current[path] = dv
        made.append(commit)
    return made


@given(made=commits(), files=st.dictionaries(st.sampled_from(PLACES), TIMES))
@settings(max_examples=60)
def test_vacuum_lists_what_the_rule_read_literally_lists(
    tmp_path_factory: pytest.TempPathFactory, made: list[list[Action]], files: dict[str, int]
) -> None:
    root = tmp_path_factory.mktemp("t")
    founding = [a_protocol_with("deletionVectors"), a_metadata()]
    a_log(root, founding, *(commit or [a_txn()] for commit in made), age_ms=8 * DAY_MS)
    set_modified(commit_path(root, len(made)), YOUNG_MS)
    for name, modified_ms in files.items():
        some_files(root, name, modified_ms=modified_ms)
    due, namesakes, any_listed = literal_vacuum(made, files, cut_ms=NOW_MS - WEEK_MS)
    if due and not any_listed:
        with pytest.raises(CorruptFile, match="the table needs this file"):
            going(root)
    else:
        assert going(root) == due - namesakes


def test_what_has_the_name_of_a_file_that_is_lost_stays(tmp_path: Path) -> None:
    """It may be that file by another name, as where a storage drops a dot."""
    a_log(tmp_path, adds("name=Inc./a", "name=Inc./B%25.parquet", "live"), age_ms=20 * DAY_MS)
    some_files(tmp_path, "name=Inc/a", "x/b%.PARQUET", "x/b%25.parquet", "live", "orphan")
    assert going(tmp_path) == {"orphan"}
    plan = planned(tmp_path)
    (warning,) = plan.warnings
    assert warning.startswith(
        f"the table needs {tmp_path}/name=Inc./a, {tmp_path}/name=Inc./B%.parquet, and nothing"
    )
    (kept,) = (each for each in plan.verdicts if "the same name" in each.reason)
    assert kept.id == f"3 of {3 * len(b'data')} bytes"
    assert run(tmp_path).status == "done"
    assert (tmp_path / "name=Inc" / "a").exists()
    some_files(tmp_path, "name=Inc./a", "name=Inc./B%.parquet")
    assert going(tmp_path) == {"name=Inc/a", "x/b%.PARQUET", "x/b%25.parquet"}


def test_a_table_that_lost_a_file_is_vacuumed_and_its_check_names_the_file(tmp_path: Path) -> None:
    a_log(tmp_path, adds("lost", "live"), removes("lost again"), age_ms=20 * DAY_MS)
    some_files(tmp_path, "live", "orphan")
    assert run(tmp_path).status == "done"
    assert not (tmp_path / "orphan").exists()
    checked = iceberg_cli("inspect", tmp_path, "--check", "--format", "json")
    assert checked.code == 15
    missing = [each["where"] for each in checked.json["findings"] if each["id"] == "file-missing"]
    assert missing == [f"{tmp_path}/lost"]


def test_nothing_goes_by_a_listing_that_has_no_file_of_the_table(tmp_path: Path) -> None:
    a_log(tmp_path, adds("lost", "too"), age_ms=20 * DAY_MS)
    some_files(tmp_path, "orphan")
    with pytest.raises(CorruptFile, match="nor 1 other; nor any other file that the table needs") as error:
        planned(tmp_path)
    assert error.value.path == f"{tmp_path}/lost"


def test_a_file_of_the_table_that_is_behind_a_link_is_not_lost(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(root, adds("k=1/live", "live"), age_ms=20 * DAY_MS)
    some_files(root, "live", "orphan")
    some_files(tmp_path / "elsewhere", "live")
    (root / "k=1").symlink_to(tmp_path / "elsewhere")
    assert going(root) == {"orphan"}


# -- retention -------------------------------------------------------------------------------------------------


def a_table_with_an_old_orphan(root: Path, **configuration: str) -> Path:
    a_log(root, [a_protocol(), a_metadata(configuration=configuration), an_add(path="live")])
    some_files(root, "live")
    some_files(root, "orphan", modified_ms=NOW_MS - 5 * DAY_MS)
    return root


def test_retention_comes_from_the_option_else_the_property_else_a_week(tmp_path: Path) -> None:
    plain = a_table_with_an_old_orphan(tmp_path / "plain")
    short = a_table_with_an_old_orphan(
        tmp_path / "short", **{"delta.deletedFileRetentionDuration": "interval 4 days"}
    )
    assert going(plain) == set()
    assert going(short) == {"orphan"}
    assert going(short, retention_ms=6 * DAY_MS) == set()
    assert (
        planned(short).options["retention_ms"].source == "table property delta.deletedFileRetentionDuration"
    )


def test_a_retention_below_the_tables_own_is_blocked_and_never_ignored(tmp_path: Path) -> None:
    root = a_table_with_an_old_orphan(tmp_path)
    plan = planned(root, retention_ms=HOUR_MS)
    assert going(root, retention_ms=HOUR_MS) == {"orphan"}
    assert len(plan.blocked_by) == 1
    assert "1 h is less than the 168 h" in plan.blocked_by[0]
    with pytest.raises(Refused, match="168 h"):
        run(root, retention_ms=HOUR_MS)
    assert run(root, retention_ms=HOUR_MS, unsafe_short_retention=True).status == "done"
    assert not (root / "orphan").exists()


def test_an_unknown_writer_feature_blocks_the_deletion_and_not_the_view(tmp_path: Path) -> None:
    features = ["appendOnly", "tomorrow"]
    a_log(tmp_path, [a_protocol(1, 7, writer_features=features), a_metadata(), an_add(path="live")])
    some_files(tmp_path, "live", "orphan")
    plan = planned(tmp_path)
    assert going(tmp_path) == {"orphan"}
    assert any("tomorrow" in reason for reason in plan.blocked_by)


def test_what_was_specified_is_in_the_log(tmp_path: Path) -> None:
    root = a_table_with_an_old_orphan(tmp_path)
    run(root, retention_ms=0, unsafe_short_retention=True)
    (line,) = commit_path(root, 1).read_text().splitlines()
    assert json.loads(line)["commitInfo"]["operationParameters"] == {
        "retentionCheckEnabled": False,
        "defaultRetentionMillis": WEEK_MS,
        "specifiedRetentionMillis": 0,
    }


def test_the_end_of_a_vacuum_tells_how_many_folders_were_looked_at(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live", "orphan", "a=1/b=2/orphan", "a=1/b=3/orphan", "c/orphan", "d/e/f/orphan")
    run(tmp_path)
    (line,) = commit_path(tmp_path, 2).read_text().splitlines()
    folders = {"", "a=1", "a=1/b=2", "a=1/b=3", "c", "d", "d/e", "d/e/f"}
    metrics = json.loads(line)["commitInfo"]["operationMetrics"]
    assert {name: int(value) for name, value in metrics.items()} == {
        "numDeletedFiles": 5,
        "numVacuumedDirectories": len(folders),
    }


def test_nothing_to_delete_commits_nothing(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live")
    assert run(tmp_path).status == "nothing_to_do"
    assert [path.name for path in (tmp_path / LOG).iterdir()] == [f"{0:020}.json"]


def test_every_kept_file_is_counted_by_the_rule_that_keeps_it(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live", data=b"12345")
    some_files(tmp_path, "_hidden", data=b"1")
    some_files(tmp_path, "young", modified_ms=YOUNG_MS, data=b"123")
    some_files(tmp_path, "orphan")
    found = {
        v.reason.split(":")[1].split()[0]: v.id for v in planned(tmp_path).verdicts if v.subject == "files"
    }
    log_bytes = commit_path(tmp_path, 0).stat().st_size
    assert found == {"the": "1 of 5 bytes", "written": "1 of 3 bytes", "their": f"2 of {1 + log_bytes} bytes"}


def test_a_kept_file_without_a_byte_is_counted_with_none(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    some_files(tmp_path, "live", data=b"")
    verdicts = {v.reason: v.id for v in planned(tmp_path).verdicts if v.subject == "files"}
    assert (
        verdicts["kept: the table needs them, or a version that is younger than the cut-off"]
        == "1 of 0 bytes"
    )


# -- lite ------------------------------------------------------------------------------------------------------


def a_lite_table(root: Path, *, first: int = 0) -> Path:
    """Files removed long ago at version 1 and lately at version 2, old change data, and an orphan."""
    write_log(
        root,
        [a_protocol(), a_metadata(), *adds("a", "b", "c")],
        [*removes("a"), a_cdc(path="_change_data/cdc-0")],
        removes("b", at_ms=YOUNG_MS),
        first=first,
        age_ms=[21 * DAY_MS, 20 * DAY_MS, DAY_MS],
    )
    some_files(root, "a", "b", "c", "_change_data/cdc-0", "orphan")
    return root


def test_lite_mode_finds_what_old_commits_removed_and_leaves_a_record(tmp_path: Path) -> None:
    root = a_lite_table(tmp_path)
    assert going(root, mode="lite") == {"a", "_change_data/cdc-0"}
    assert going(root) == {"a", "_change_data/cdc-0", "orphan"}
    run(root, mode="lite")
    assert recorded(root) == {RECORD: 1}
    assert going(root, mode="lite") == set()


def recorded(root: Path) -> dict[str, int]:
    """What a VACUUM in lite mode left for the next one."""
    found: dict[str, int] = json.loads((root / LOG / "_last_vacuum_info").read_text())
    return found


def a_row_of_removals(root: Path, ages_ms: Mapping[str, int]) -> Path:
    """Commits 1, 2 and so on, each of which removed one file long ago by its own time, if not by its tombstone's."""
    commits = [removes(name, at_ms=NOW_MS - age_ms) for name, age_ms in ages_ms.items()]
    write_log(root, adds(*ages_ms), *commits, age_ms=20 * DAY_MS)
    some_files(root, *ages_ms)
    return root


LONG_AGO = {"a": 20 * DAY_MS, "n/b": 20 * DAY_MS, "d//./c": 20 * DAY_MS, "e": 20 * DAY_MS}


def test_lite_mode_records_no_commit_whose_file_a_tombstone_with_a_fast_clock_keeps(tmp_path: Path) -> None:
    root = a_row_of_removals(tmp_path, {**LONG_AGO, "d//./c": DAY_MS})
    assert going(root, mode="lite") == {"a", "n/b", "e"}
    run(root, mode="lite")
    assert recorded(root) == {RECORD: 2}
    table, later = prepared(root, mode="lite", as_of_ms=NOW_MS + 10 * DAY_MS)
    assert later.plan.removals is not None
    assert later.plan.removals.rows["path"].to_pylist() == [f"{root}/d/c"]
    OPERATOR.apply(later, table)
    assert recorded(root)[RECORD] >= 4


def test_lite_mode_records_no_commit_whose_file_was_written_lately(tmp_path: Path) -> None:
    root = a_row_of_removals(tmp_path, LONG_AGO)
    some_files(root, "a", modified_ms=YOUNG_MS)
    run(root, mode="lite")
    assert recorded(root) == {RECORD: 0}
    some_files(root, "a")
    assert going(root, mode="lite") == {"a"}


def test_lite_mode_records_no_commit_whose_file_the_second_look_keeps(tmp_path: Path) -> None:
    root = a_row_of_removals(tmp_path, LONG_AGO)
    _, made = prepared(root, mode="lite")
    some_files(root, "e", modified_ms=YOUNG_MS)
    (root / "n" / LOG).mkdir()
    assert OPERATOR.apply(made, opened(root)).kept_again == 2
    assert recorded(root) == {RECORD: 1}
    (root / "n" / LOG).rmdir()
    some_files(root, "e")
    assert going(root, mode="lite") == {"n/b", "e"}


def test_lite_mode_passes_a_commit_whose_file_is_active_again(tmp_path: Path) -> None:
    root = a_row_of_removals(tmp_path, LONG_AGO)
    a_log(root, adds("a"), first=5, age_ms=19 * DAY_MS)
    run(root, mode="lite")
    assert recorded(root) == {RECORD: 5}


def a_lite_table_whose_log_went_on_without_its_record(root: Path) -> Path:
    """The record is 0, because a file was kept then, and the log begins with version 3 by now."""
    a_row_of_removals(root, LONG_AGO)
    some_files(root, "a", modified_ms=YOUNG_MS)
    run(root, mode="lite")
    assert recorded(root) == {RECORD: 0}
    write_checkpoint(root, 3, a_protocol(), a_metadata(), an_add(path="e"))
    for version in range(3):
        commit_path(root, version).unlink()
    some_files(root, "a")
    with pytest.raises(Refused, match="the last VACUUM looked up to 0") as refusal:
        planned(root, mode="lite")
    assert "--mode full" in str(refusal.value.next_step)
    return root


def test_a_vacuum_that_lists_everything_lets_lite_mode_go_on_where_commits_are_gone(tmp_path: Path) -> None:
    root = a_lite_table_whose_log_went_on_without_its_record(tmp_path)
    assert going(root) == {"a"}
    run(root)
    assert recorded(root)[RECORD] >= 4
    assert going(root, mode="lite") == set()


def test_a_vacuum_that_lists_everything_records_no_commit_whose_file_it_kept(tmp_path: Path) -> None:
    root = a_lite_table_whose_log_went_on_without_its_record(tmp_path)
    some_files(root, "e", modified_ms=YOUNG_MS)
    run(root)
    assert recorded(root) == {RECORD: 3}
    some_files(root, "e")
    assert going(root, mode="lite") == {"e"}


def test_an_inventory_does_not_tell_what_commits_removed_that_are_gone(tmp_path: Path) -> None:
    root = a_lite_table_whose_log_went_on_without_its_record(tmp_path / "t")
    run(root, inventory=every_file(root, tmp_path / "i.jsonl"))
    assert recorded(root) == {}


def test_lite_mode_records_nothing_before_its_last_deletion(tmp_path: Path) -> None:
    root = a_row_of_removals(tmp_path, LONG_AGO)
    table, made = prepared(root, mode="lite")
    report = OPERATOR.apply(made, table, limit_deletes=1)
    assert report.status == "partial"
    assert not (root / LOG / "_last_vacuum_info").exists()
    (operation,) = table.workspace.open_operations()
    assert resume(table, operation, a_shell(), verbs={VERB.name: VERB}).status == "done"
    assert recorded(root) == {RECORD: 4}


def test_lite_mode_does_not_list_what_is_gone_already(tmp_path: Path) -> None:
    root = a_lite_table(tmp_path)
    (root / "a").unlink()
    assert going(root, mode="lite") == {"_change_data/cdc-0"}


def test_lite_mode_begins_after_the_commits_that_the_one_before_looked_at(tmp_path: Path) -> None:
    root = a_lite_table(tmp_path)
    write_log_file(root, "_last_vacuum_info", b'{"latestCommitVersionOutsideOfRetentionWindow":1}')
    assert going(root, mode="lite") == set()
    write_log_file(root, "_last_vacuum_info", b'{"latestCommitVersionOutsideOfRetentionWindow":0}\n')
    assert going(root, mode="lite") == {"a", "_change_data/cdc-0"}
    write_log_file(root, "_last_vacuum_info", b"not JSON")
    assert going(root, mode="lite") == {"a", "_change_data/cdc-0"}


def test_lite_mode_is_refused_where_commits_are_gone_that_nobody_has_looked_at(tmp_path: Path) -> None:
    root = a_lite_table(tmp_path, first=3)
    write_checkpoint(
        root, 3, a_protocol(), a_metadata(), an_add(path="a"), an_add(path="b"), an_add(path="c")
    )
    with pytest.raises(Refused, match="lite"):
        planned(root, mode="lite")
    write_log_file(root, "_last_vacuum_info", b'{"latestCommitVersionOutsideOfRetentionWindow":2}')
    with pytest.raises(Refused, match="the last VACUUM looked up to 2"):
        planned(root, mode="lite")
    write_log_file(root, "_last_vacuum_info", b'{"latestCommitVersionOutsideOfRetentionWindow":3}')
    assert going(root, mode="lite") == {"a", "_change_data/cdc-0"}


# -- inventory -------------------------------------------------------------------------------------------------


def an_inventory(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_inventory_takes_the_place_of_the_listing(tmp_path: Path, form: str) -> None:
    root = tmp_path / "t"
    a_log(root, adds("live"))
    some_files(root, "live", "orphan", "unlisted", "young")

    def row(path: str, *, modified_ms: int = OLD_MS, is_folder: bool = False) -> dict[str, Any]:
        return {"path": path, "length": 4, "isDir": is_folder, "modificationTime": modified_ms}

    rows = [
        row(f"file:{root}/live"),
        row(f"file://{root}/orphan"),
        row(f"{root}/young", modified_ms=YOUNG_MS),
        row(f"{root}/young"),
        row(f"{root}/folder", is_folder=True),
        row(f"{root}/_delta_log/{0:020}.json"),
        row(f"{tmp_path}/elsewhere"),
    ]
    assert going(root, inventory=an_inventory(tmp_path / f"inventory.{form}", rows)) == {"orphan"}


@pytest.mark.parametrize(
    "rows",
    [
        [{"path": "/a", "length": 4, "isDir": False}],
        [{"path": None, "length": 4, "isDir": False, "modificationTime": 1}],
        [{"path": "/a", "length": "many", "isDir": False, "modificationTime": 1}],
    ],
    ids=["a field is missing", "a path is null", "a length is text"],
)
def test_an_inventory_of_another_form_is_refused(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    a_log(tmp_path / "t", adds("live"))
    for form in ("parquet", "jsonl"):
        with pytest.raises(UsageError, match="inventory"):
            planned(tmp_path / "t", inventory=an_inventory(tmp_path / f"i.{form}", rows))


@pytest.mark.parametrize("line", ["null", "[]", '{"path": "/a"} null', '{"path": "/a", "path": "/b"}'])
def test_an_inventory_with_a_line_that_is_no_object_is_refused(tmp_path: Path, line: str) -> None:
    a_log(tmp_path / "t", adds("live"))
    good = {"path": str(tmp_path / "t" / "x"), "length": 4, "isDir": False, "modificationTime": 1}
    inventory = tmp_path / "i.jsonl"
    for lines in ([json.dumps(good), line], [line], [line, json.dumps(good)]):
        inventory.write_text("\n".join(lines))
        with pytest.raises(UsageError, match="inventory"):
            planned(tmp_path / "t", inventory=str(inventory))


def test_an_inventory_in_json_may_tell_times_as_text(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(root, adds("live"))
    some_files(root, "old", "young")
    rows = [
        {"path": f"{root}/{name}", "length": 4, "isDir": False, "modificationTime": text, "more": [1]}
        for name, text in (("old", "2001-01-01T00:00:00Z"), ("young", "2099-01-01 00:00:00.5"))
    ]
    assert going(root, inventory=an_inventory(tmp_path / "inventory.jsonl", rows)) == {"old"}


def test_an_inventory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    a_log(tmp_path, adds("live"))
    with pytest.raises(UsageError, match="no file is there"):
        planned(tmp_path, inventory=str(tmp_path / "missing.parquet"))

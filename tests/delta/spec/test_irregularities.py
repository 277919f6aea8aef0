"""Commits that can be read and that the protocol does not allow: who reads them how, and what is refused over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit,
    a_commit_info,
    a_domain,
    a_dv,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
    commit_path,
    write_checkpoint,
    write_commit,
)
from tests.cli.running import Ran, iceberg_cli
from tests.delta_opened import a_log, the_log

BEGINNING = [a_protocol(), a_metadata(), an_add(path="a.parquet")]
CLASHES: dict[str, list[Action]] = {
    "two metaData": [a_metadata(name="first"), a_metadata(name="second")],
    "two equal metaData": [a_metadata(), a_metadata()],
    "two protocols": [a_protocol(1, 2), a_protocol(1, 3)],
    "two txn of an application": [a_txn(version=1), a_txn(version=2)],
    "two states of a domain": [a_domain(), a_domain(removed=True)],
    "remove, then add": [a_remove(path="a.parquet"), an_add(path="a.parquet")],
    "add, then remove": [an_add(path="a.parquet"), a_remove(path="a.parquet")],
    "two adds": [an_add(path="b.parquet", tags={"t": "1"}), an_add(path="b.parquet", tags={"t": "2"})],
    "two removes": [a_remove(path="a.parquet", deletionTimestamp=1), a_remove(path="a.parquet")],
    "add and remove of a vector": [
        an_add(path="a.parquet", dv=a_dv()),
        a_remove(path="a.parquet", dv=a_dv()),
    ],
    "two spellings of a place": [a_remove(path="file:///x/b.parquet"), an_add(path="/x/b.parquet")],
}
LEGAL: dict[str, list[Action]] = {
    "a vector": [a_remove(path="a.parquet"), an_add(path="a.parquet", dv=a_dv())],
    "another vector": [a_remove(path="a.parquet", dv=a_dv()), an_add(path="a.parquet", dv=a_dv(offset=43))],
    "txn of two applications": [a_txn(app_id="x"), a_txn(app_id="y")],
    "two domains": [a_domain(domain="x"), a_domain(domain="y")],
}


def parsed(*actions: Action) -> Any:
    return parse_commits([CommitBytes("1.json", 1, a_commit(*actions))])


def in_log(root: Path) -> set[str]:
    return {path.name for path in (root / "_delta_log").iterdir()}


def refused(root: Path, *arguments: object) -> Ran:
    """A verb that ends with 11 and leaves the log as it was."""
    before = in_log(root)
    ran = iceberg_cli(arguments[0], root, *arguments[1:], "--yes")
    assert ran.code == 11, ran.out + ran.err
    assert in_log(root) == before
    return ran


def rules(root: Path) -> set[str]:
    return {row["id"] for row in iceberg_cli("inspect", root, "--check", "--format", "json").json["findings"]}


# -- two actions of one commit that reconcile with each other ---------------------------------------------------


@pytest.mark.parametrize("actions", CLASHES.values(), ids=CLASHES)
def test_two_actions_of_a_commit_for_one_thing_are_noted_with_the_lines_of_both(
    actions: list[Action],
) -> None:
    (clash,) = parsed(a_commit_info(), *actions).irregular
    assert (clash.rule, clash.version, clash.path, clash.where) == (
        "commit-actions-clash",
        1,
        "1.json",
        "line 3",
    )
    assert "line 2" in clash.message


@pytest.mark.parametrize("actions", LEGAL.values(), ids=LEGAL)
def test_actions_for_two_things_are_as_they_should_be(actions: list[Action]) -> None:
    assert parsed(a_commit_info(), *actions).irregular == ()


def test_what_two_commits_say_of_one_file_is_no_clash() -> None:
    commits = [[an_add(path="a")], [a_remove(path="a")], [an_add(path="a")], [an_add(path="a")]]
    data = [CommitBytes(f"{version}", version, a_commit(*each)) for version, each in enumerate(commits)]
    assert parse_commits(data).irregular == ()


def test_of_many_clashes_each_commit_tells_the_first_and_counts_all() -> None:
    many = [kind(path=f"{number}") for number in range(3) for kind in (an_add, a_remove)]
    data = [CommitBytes(f"{version}", version, a_commit(*many)) for version in (4, 5)]
    found = parse_commits(data).irregular
    assert [(each.version, each.where, each.times) for each in found] == [(4, "line 2", 3), (5, "line 2", 3)]


def test_delta_rs_lets_the_first_count_and_a_checkpoint_of_the_last_would_change_what_it_reads(
    tmp_path: Path,
) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    add = an_add(path="a.parquet", rows=1, size=(tmp_path / "a.parquet").stat().st_size)
    clash = [a_metadata(name="first"), a_metadata(name="second"), a_remove(path="a.parquet"), add]
    a_log(tmp_path, [a_protocol(), a_metadata(), add], clash)
    peer, own = deltalake.DeltaTable(str(tmp_path)), the_log(tmp_path).snapshot()
    assert (peer.metadata().name, peer.file_uris()) == ("first", [])
    assert (own.metadata.name, own.adds["path"].to_pylist()) == ("second", ["a.parquet"])


@pytest.mark.parametrize("actions", CLASHES.values(), ids=CLASHES)
def test_no_checkpoint_is_written_over_a_clash_and_the_check_reports_it(
    tmp_path: Path, actions: list[Action]
) -> None:
    a_log(tmp_path, [a_protocol_with("deletionVectors", "domainMetadata"), *BEGINNING[1:]], actions)
    stated = refused(tmp_path, "rewrite-manifests")
    assert f"version 1, line 2 of {tmp_path}/_delta_log/{1:020}.json" in " ".join(
        (stated.out + stated.err).split()
    )
    assert "commit-actions-clash" in rules(tmp_path)


def test_a_checkpoint_of_another_writer_settles_a_clash_before_it(tmp_path: Path) -> None:
    a_log(tmp_path, BEGINNING, CLASHES["two metaData"], [an_add(path="c.parquet")])
    write_checkpoint(tmp_path, 1, *BEGINNING)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    assert f"{2:020}.checkpoint.parquet" in in_log(tmp_path)
    assert "commit-actions-clash" not in rules(tmp_path)


def test_a_clash_among_commits_that_were_read_before_is_not_forgotten(tmp_path: Path) -> None:
    a_log(tmp_path, BEGINNING, CLASHES["two metaData"])
    log = the_log(tmp_path)
    first = log.snapshot()
    write_commit(tmp_path, 2, a_commit(an_add(path="c.parquet")))
    assert log.advance(first).irregular == first.irregular
    assert len(first.irregular) == 1


def test_no_commit_repeats_the_state_over_a_clash(tmp_path: Path) -> None:
    a_log(tmp_path, BEGINNING, CLASHES["two metaData"])
    assert "line 2" in refused(tmp_path, "upgrade-v3").err
    assert "line 2" in refused(tmp_path, "assign-row-ids").err


def test_a_range_with_a_clash_is_not_compacted_whatever_checkpoint_is_after_it(tmp_path: Path) -> None:
    a_log(tmp_path, BEGINNING, CLASHES["remove, then add"], [an_add(path="c.parquet")])
    write_checkpoint(tmp_path, 2, *BEGINNING, an_add(path="c.parquet"))
    assert "version 1, line 2" in refused(tmp_path, "rewrite-manifests", "--compact-log", "0..1").err
    a_log(tmp_path / "later", BEGINNING, [an_add(path="b.parquet")], CLASHES["two metaData"])
    write_checkpoint(tmp_path / "later", 2, *BEGINNING)
    assert iceberg_cli("rewrite-manifests", tmp_path / "later", "--compact-log", "0..1", "--yes").code == 0


def test_a_log_is_not_cleaned_up_by_a_checkpoint_over_a_clash(tmp_path: Path) -> None:
    often = a_metadata(configuration={"delta.checkpointInterval": "1"})
    old = [
        [a_protocol(), often, an_add(path="a.parquet")],
        CLASHES["add, then remove"],
        [an_add(path="b.parquet")],
    ]
    a_log(tmp_path, *old, age_ms=400 * 86_400_000)
    arguments = ("--log-retention", "0h", "--retention", "0h", "--unsafe-allow-short-retention")
    assert "version 1, line 2" in refused(tmp_path, "expire-snapshots", *arguments).err


# -- what Delta Spark and delta-kernel read alike, or one of them -----------------------------------------------


def a_line(action: Action, old: str, new: str) -> bytes:
    """The line of an action with another spelling of a part of it."""
    line = json.dumps(action)
    assert line.count(old) == 1
    return line.replace(old, new).encode()


def lines(*each: bytes | Action) -> bytes:
    return b"".join(line + b"\n" if isinstance(line, bytes) else a_commit(line) for line in each)


@pytest.mark.parametrize(
    "line",
    [
        b'{"commitInfo":{"operation":"READ","operation":"WRITE"}}',
        b'{"commitInfo":{"operation":"WRITE","operationParameters":{"mode":"a","mode":"b"}}}',
        b'{"fromTheFuture":{"a":1,"a":2}}',
    ],
)
def test_where_nothing_depends_on_it_the_last_of_equal_keys_counts_and_the_check_tells(
    tmp_path: Path, line: bytes
) -> None:
    a_log(tmp_path, BEGINNING, lines(line, an_add(path="b.parquet")))
    snapshot = the_log(tmp_path).snapshot()
    assert sorted(snapshot.adds["path"].to_pylist()) == ["a.parquet", "b.parquet"]
    assert [each.rule for each in snapshot.irregular] == ["commit-key-repeated"]
    assert "commit-key-repeated" in rules(tmp_path)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0


def test_the_last_in_commit_timestamp_of_a_commit_info_counts_as_for_every_reader() -> None:
    (info,) = parse_commits(
        [CommitBytes("1", 1, b'{"commitInfo":{"inCommitTimestamp":1,"inCommitTimestamp":2}}')]
    ).commit_infos
    assert info == (1, {"inCommitTimestamp": 2})


@pytest.mark.parametrize("beside", ['"later":{"x":1}', '"later":["a","1"]', '"later":"x","other":{}'])
@pytest.mark.parametrize("first", [False, True])
def test_what_nobody_knows_beside_an_action_does_not_hide_it(
    tmp_path: Path, beside: str, *, first: bool
) -> None:
    add = json.dumps(an_add(path="b.parquet", size=7))
    line = f"{{{beside},{add[1:]}" if first else f"{add[:-1]},{beside}}}"
    a_log(tmp_path, BEGINNING, lines(line.encode(), an_add(path="c.parquet")))
    assert sorted(the_log(tmp_path).snapshot().adds["path"].to_pylist()) == [
        f"{letter}.parquet" for letter in "abc"
    ]
    assert [Path(uri).name for uri in sorted(deltalake.DeltaTable(str(tmp_path)).file_uris())] == [
        f"{letter}.parquet" for letter in "abc"
    ]
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    commit_path(tmp_path, 0).unlink()
    assert len(deltalake.DeltaTable(str(tmp_path)).file_uris()) == 3


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        (an_add(path="b.parquet", size=484), '"size": 484', '"size": 484.0'),
        (an_add(path="b.parquet", size=484), '"size": 484', '"size": 4.84e2'),
        (
            an_add(path="b.parquet", size=484, dv=a_dv(cardinality=3)),
            '"cardinality": 3',
            '"cardinality": 3.0',
        ),
    ],
)
def test_a_whole_number_that_is_written_as_a_fraction_is_one_and_the_check_tells(
    tmp_path: Path, action: Action, old: str, new: str
) -> None:
    """delta-rs reads it, Delta Spark fails; from our checkpoint both read it."""
    founded = [a_protocol_with("deletionVectors"), a_metadata()]
    a_log(tmp_path, [*founded, an_add(path="a.parquet")], lines(a_line(action, old, new)))
    snapshot = the_log(tmp_path).snapshot()
    assert sorted(snapshot.adds["size"].to_pylist()) == [100, 484]
    (stated,) = snapshot.irregular
    assert (stated.rule, stated.version) == ("commit-number-with-fraction", 1)
    assert stated.where.startswith("line 1, add.")
    assert "commit-number-with-fraction" in rules(tmp_path)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    assert "commit-number-with-fraction" not in rules(tmp_path)
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    sizes = [add["size"] for add in pq.read_table(checkpoint)["add"].to_pylist() if add]
    assert sorted(sizes) == [100, 484]


@pytest.mark.parametrize("size", ["484.5", "9007199254740994.0", "1e300"])
def test_a_fraction_indeed_and_more_digits_than_a_double_holds_are_no_whole_number(size: str) -> None:
    with pytest.raises(CorruptFile, match=r"line 2, add\.size: .* is not a whole number"):
        parse_commits([CommitBytes("1", 1, lines(an_add(), a_line(an_add(size=484), "484", size)))])


def test_a_key_that_is_twice_where_the_table_depends_on_it_is_refused() -> None:
    with pytest.raises(CorruptFile, match="line 1, path: the key appears twice"):
        parse_commits([CommitBytes("1", 1, b'{"add":{"path":"a","path":"b","size":1},"later":1}')])
    with pytest.raises(CorruptFile, match="line 1, commitInfo: the key appears twice"):
        parse_commits([CommitBytes("1", 1, b'{"commitInfo":{},"commitInfo":{"a":1}}')])


# -- properties and statistics ----------------------------------------------------------------------------------

DAY_MS = 86_400_000
FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


def expiry_options(root: Path) -> dict[str, Any]:
    ran = iceberg_cli("expire-snapshots", root, "--dry-run", "--format", "json")
    assert ran.code == 0, ran.err
    options: dict[str, Any] = ran.json["options"]
    return options


@pytest.mark.parametrize(
    ("text", "files_days", "log_days"),
    [
        ("interval '7' day", 7, 30),
        ("interval '40' days", 40, 40),
        ("interval 1 month", 31, 31),
        ("1 year", 366, 366),
    ],
)
def test_a_retention_that_delta_spark_does_not_read_is_never_shorter_than_what_other_readers_take_it_for(
    tmp_path: Path, text: str, files_days: int, log_days: int
) -> None:
    a_log(
        tmp_path, [a_protocol(), a_metadata(configuration={FILES: text, LOG: text}), an_add()], age_ms=DAY_MS
    )
    options = expiry_options(tmp_path)
    assert options["retention_ms"]["value"] == files_days * DAY_MS
    assert options["log_retention_ms"]["value"] == log_days * DAY_MS
    assert "property-unreadable" in rules(tmp_path)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0


def test_transactions_whose_retention_delta_spark_does_not_read_do_not_expire(tmp_path: Path) -> None:
    properties = {"delta.setTransactionRetentionDuration": "interval '1' day"}
    a_log(tmp_path, [a_protocol(), a_metadata(configuration=properties), a_txn(lastUpdated=1), an_add()])
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    assert [txn["appId"] for txn in pq.read_table(checkpoint)["txn"].to_pylist() if txn] == ["loader"]


def test_flags_that_are_neither_true_nor_false_count_as_what_keeps_more(tmp_path: Path) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "yes",
        "delta.checkpoint.writeStatsAsJson": "no",
        "delta.enableExpiredLogCleanup": "yes",
        "delta.enableInCommitTimestamps": "yes",
        "delta.checkpointInterval": "often",
    }
    metadata = a_metadata(configuration=properties)
    a_log(tmp_path, [a_protocol_with("inCommitTimestamp"), metadata, an_add(rows=10)], age_ms=400 * DAY_MS)
    document = iceberg_cli("inspect", tmp_path, "--check", "--format", "json").json
    where = {
        row["where"].rpartition("delta.")[2]
        for row in document["findings"]
        if row["id"] == "property-unreadable"
    }
    assert where == {name.removeprefix("delta.") for name in properties if name != "delta.checkpointInterval"}
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    (add,) = (add for add in pq.read_table(checkpoint)["add"].to_pylist() if add)
    assert (add["stats"], add["stats_parsed"]["numRecords"]) == ('{"numRecords":10}', 10)
    assert expiry_options(tmp_path)["log_older_than"]["value"] is None
    # A commit would have to tell its time, or must not.
    assert "delta.enableInCommitTimestamps" in refused(tmp_path, "upgrade-v3").err


def test_a_property_that_is_null_is_not_set_and_the_check_tells(tmp_path: Path) -> None:
    line = a_line(a_metadata(configuration={"x": "?"}), '"?"', "null")
    a_log(tmp_path, lines(a_protocol(), line, an_add()))
    assert iceberg_cli("inspect", tmp_path).code == 0
    assert "property-unreadable" in rules(tmp_path)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    assert the_log(tmp_path).snapshot().metadata.to_json()["configuration"] == {"x": None}


def test_statistics_that_are_null_are_none_and_the_check_tells(tmp_path: Path) -> None:
    """Delta Spark takes them for none, delta-kernel fails where it filters by them."""
    a_log(tmp_path, [*BEGINNING[:2], an_add(path="b.parquet", stats="null")])
    assert "statistics-unreadable" in rules(tmp_path)
    assert iceberg_cli("rewrite-manifests", tmp_path, "--yes").code == 0
    assert "row" in refused(tmp_path, "assign-row-ids").err

"""File actions that Arrow reads: the same as line by line, and what is out of the ordinary is left to that."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import deltalake
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.commit_parsing import (
    CommitBytes,
    _files_at_once,
    _line_by_line,
    file_actions,
    may_be_ordinary,
    parse_commits,
)
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_writer import a_cdc, a_commit, a_commit_info, a_dv, a_remove, a_txn, an_add
from tests.budget import few_or_many
from tests.paths import FIXTURES, ROOT, needs_fixtures

ORDINARY = '{"add":{"path":"a","partitionValues":{"p":"1"},"size":1}}'


def plain(actions: Actions) -> dict[str, Any]:
    values = {field.name: getattr(actions, field.name) for field in fields(actions)}
    return {
        name: (str(value.schema), value.to_pylist()) if isinstance(value, pa.Table) else repr(value)
        for name, value in values.items()
    }


def at_once(*lines: str) -> pa.Table | None:
    return file_actions("add", [line.encode() for line in lines], [0], ADD)


def assert_same(commits: list[CommitBytes]) -> None:
    """`parse_commits` finds what the reader line by line finds, or fails as that does."""
    try:
        expected = _line_by_line(commits)
    except CorruptFile as error:
        with pytest.raises(CorruptFile) as raised:
            parse_commits(commits)
        assert (raised.value.path, raised.value.reason) == (error.path, error.reason)  # noqa: PT017
        return
    assert plain(parse_commits(commits)) == plain(expected[0])


@needs_fixtures
def test_every_commit_of_the_fixtures_is_read_as_line_by_line_and_those_of_spark_by_arrow() -> None:
    ordinary = []
    for path in sorted(FIXTURES.glob("[13]*/**/_delta_log/*.json")):
        commit = CommitBytes(str(path), 1, path.read_bytes())
        assert_same([commit])
        if path.relative_to(FIXTURES).parts[0].startswith("3"):
            ordinary.append(may_be_ordinary(commit.data) and _files_at_once([commit]) is not None)
    assert len(ordinary) > 90
    assert all(ordinary)


def test_what_delta_rs_writes_is_ordinary(tmp_path: Path) -> None:
    rows = pa.table({"p": ["x y", None, "é"], "n": [1, 2, 3]})
    for mode in ("append", "overwrite"):
        deltalake.write_deltalake(str(tmp_path), rows, mode=mode, partition_by=["p"])
    commits = [
        CommitBytes(str(path), version, path.read_bytes())
        for version, path in enumerate(sorted(tmp_path.glob("_delta_log/*.json")))
    ]
    found = _files_at_once(commits)
    assert found is not None
    assert (found[0].adds.num_rows, found[0].removes.num_rows) == (6, 3)
    assert_same(commits)


@pytest.mark.parametrize(
    "line",
    [
        '{"add":{"path":"a","size":1,"size":1}}',
        '{"add":{"path":"a","size":1,"size":null}}',
        '{"add":{"path":"a","size":1.0}}',
        '{"add":{"path":"a","size":1e2}}',
        '{"add":{"path":"a","size":9223372036854775808}}',
        '{"add":{"path":"a","size":NaN}}',
        '{"add":{"path":"a","size":"1"}}',
        '{"add":{"path":1,"size":1}}',
        '{"add":{"path":"a","size":1,"later":true}}',
        '{"add":{"path":"a","size":1},"txn":{}}',
        '{"add":{"path":"a","size":1,"deletionVector":{"storageType":"u","later":1}}}',
        '{"add":{"path":"a","size":1,"partitionValues":{"p":1}}}',
        '{"add":{"path":"a","size":1,"partitionValues":{"q":"1"}}}',
        '{"add":{"path":"a","size":1,"partitionValues":{}}}',
        '{"add":{"path":"a","size":1}} {"add":{"path":"b","size":1}}',
        '{"add":{"path":"a","size":1',
        '{"add":{"path":"a\tb","size":1}}',
        '{"add":null}',
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_reader_of_lines(line: str) -> None:
    assert at_once(ORDINARY, line) is None
    assert_same([CommitBytes("1", 1, f"{ORDINARY}\n{line}\n".encode())])


@pytest.mark.parametrize(
    "data",
    [
        b'{"add":{"path":"\\ud800","size":1}}\n',
        b'{"add":{"path":"\xff","size":1}}\n',
        b'{"add":{"path":"a","size":1}}\r\n',
    ],
)
def test_of_some_files_no_line_is_ordinary(data: bytes) -> None:
    assert not may_be_ordinary(data)
    assert_same([CommitBytes("1", 1, data)])


def test_a_partition_value_that_is_null_is_there_and_an_absent_one_is_not() -> None:
    null, absent = ORDINARY.replace('"1"', "null"), ORDINARY.replace('"p":"1"', "")
    found = at_once(ORDINARY, null)
    assert found is not None
    assert found["partitionValues"].to_pylist() == [[("p", "1")], [("p", None)]]
    assert at_once(ORDINARY, absent) is None
    assert_same([CommitBytes("1", 1, f"{ORDINARY}\n{null}\n{absent}".encode())])


def test_maps_of_several_names_keep_what_belongs_to_each_row() -> None:
    line = '{{"add":{{"path":"{0}","partitionValues":{{"p":"p{0}","é":"q{0}"}},"size":1{1}}}}}'
    tags = ',"tags":{"a":"1","b":"2"}'
    found = at_once(line.format(1, tags), line.format(2, ""), line.format(3, ',"tags":null'))
    assert found is not None
    assert found.schema == ADD
    assert found["partitionValues"].to_pylist() == [[("p", f"p{row}"), ("é", f"q{row}")] for row in (1, 2, 3)]
    assert found["tags"].to_pylist() == [[("a", "1"), ("b", "2")], None, None]


def test_each_commit_tells_its_names_and_lines_keep_their_numbers() -> None:
    first = a_commit(a_commit_info(), an_add(path="a"), a_txn(), an_add(path="b", dv=a_dv()))
    second = a_commit(an_add(path="c", tags={"t": "1"}), a_remove(path="a"), a_cdc(path="d"))
    commits = [CommitBytes("1", 1, first), CommitBytes("2", 2, second)]
    found = _files_at_once(commits)
    assert found is not None
    assert plain(found[0]) == plain(_line_by_line(commits)[0])
    assert found[0].add_lines.tolist() == [2, 4, 1]
    assert found[0].add_versions.tolist() == [1, 1, 2]


STRINGS = st.sampled_from(["", "a", "é", '"', "\\", "b/c%20d", ":", "null", "\u2028", "}}", '{"add":{'])
MAPS = st.none() | st.dictionaries(st.sampled_from(["p", "q", ""]), STRINGS | st.none(), max_size=2)
ODD = st.sampled_from([1.5, True, [], {}, "x", -1, 2**70, None])
ACTIONS = st.fixed_dictionaries(
    {"path": STRINGS, "size": st.integers(0, 2**63 - 1)},
    optional={
        "partitionValues": MAPS,
        "tags": MAPS,
        "stats": STRINGS | st.none(),
        "dataChange": st.booleans() | st.none(),
        "deletionVector": st.none() | st.just(a_dv()) | st.just(a_dv(offset=None)) | ODD,
        "baseRowId": ODD,
        "clusteringProvider": ODD,
        "later": ODD,
    },
)
LINES = st.one_of(
    st.builds(lambda kind, action: json.dumps({kind: action}, separators=(",", ":")),
              st.sampled_from(["add", "remove", "cdc", "add", "add"]), ACTIONS),
    st.builds(lambda action: json.dumps({"add": action}, separators=(",", ":"), ensure_ascii=False), ACTIONS),
    st.builds(lambda action: json.dumps({"add": action}), ACTIONS),
    st.sampled_from(["", " ", '{"txn":{"appId":"a","version":1}}', '{"commitInfo":{"n":1.5}}', '{"later":{}}', "{}"]),
)  # fmt: skip


@settings(max_examples=120)
@given(commits=st.lists(st.lists(LINES, max_size=6), min_size=1, max_size=3))
def test_whatever_lines_hold_they_are_read_as_one_by_one(commits: list[list[str]]) -> None:
    assert_same(
        [
            CommitBytes(str(version), version, "\n".join(lines).encode())
            for version, lines in enumerate(commits)
        ]
    )


@few_or_many(4_000, all_of=40_000)
def test_no_damage_of_a_line_ends_the_process(budget: int) -> None:
    """In a process of its own, which would die."""
    program = """
import random, sys
from iceberg_cli.delta.spec.actions import ADD
from iceberg_cli.delta.spec.commit_parsing import file_actions
draw = random.Random(7)
damage = [b"", b"null", b"{", b"}", b'"', b",", b"[", b"]", b"0", b"\\\\", b"\\x00", b"\\n", b":"]
good = (b'{"add":{"path":"a","partitionValues":{"p":"1","q":null},"size":1,"dataChange":true,'
        b'"tags":{},"deletionVector":{"storageType":"u","offset":1,"cardinality":2}}}')
read = 0
for _ in range(int(sys.argv[1])):
    text = bytearray(good)
    for _ in range(draw.randrange(1, 6)):
        place = draw.randrange(8, len(text))
        text[place : place + draw.randrange(4)] = draw.choice(damage)
    lines = draw.sample([bytes(text) + b"}}", bytes(text), good], draw.randrange(1, 4))
    found = file_actions("add", lines, [0], ADD)
    read += found is not None
    assert found is None or found.num_rows == len(lines)
    if found is not None:
        found.validate(full=True)
print("alive", read > 200)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(budget)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.stdout.strip(), done.returncode) == ("alive True", 0), done.stderr

"""Which deletes apply to data files, which are newer and which are dead: drawn states, by a literal reading of them.

Spec: "Scan Planning": a deletion vector, and position deletes, apply to data files that are not newer; equality deletes
to older ones, of their partition, or of all where their spec has none.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.iceberg.branch.entry_columns import (
    DELETES_SCHEMA,
    EQUALITY,
    FILES_SCHEMA,
    POSITIONS,
    VECTOR,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files import rules
from iceberg_cli.iceberg.verbs.rewrite_data_files.rules import Doubt

Row = dict[str, Any]
UNTIL = 4
EVERYWHERE = [0]  # the spec without partitions
KEYS = {0: [b"all"], 1: [b"x", b"y"], 2: [b"z"]}
STATES = range(120)


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)


class State:
    """Data files and deletes, of which some files are listed twice, and some deletes are odd."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(seed)
        self.files = [self._file(drawn, number) for number in range(drawn.randint(1, 6))]
        if drawn.random() < 0.2:
            self.files.append(dict(self.files[0]))
        self.deletes = [self._delete(drawn, number) for number in range(drawn.randint(0, 8))]
        self.removed = sorted(drawn.sample(range(len(self.files)), drawn.randint(1, len(self.files))))
        self.new_keys = [self.files[place]["key"] for place in self.removed if drawn.random() < 0.7]

    def _file(self, drawn: random.Random, number: int) -> Row:
        spec = drawn.choice([0, 1, 1, 2])
        return {
            "path": f"f{number}",
            "spec_id": spec,
            "key": drawn.choice(KEYS[spec]),
            "first_row_id": None,
            "sequence_number": drawn.randint(1, UNTIL),
            "record_count": drawn.randint(1, 9),
        }

    def _delete(self, drawn: random.Random, number: int) -> Row:
        kind = drawn.choice([POSITIONS, VECTOR, EQUALITY])
        named = drawn.choice(self.files) if kind == VECTOR or drawn.random() < 0.5 else None
        spec = drawn.choice([0, 1, 1, 2])
        row = {
            "path": f"d{number}",
            "spec_id": spec,
            "key": drawn.choice(KEYS[spec]),
            "kind": kind,
            "sequence_number": drawn.randint(1, UNTIL + 2),
            "record_count": drawn.randint(1, 5),
            "offset": drawn.choice([None, 4]),
            "equality_ids": None,
        }
        if kind == EQUALITY:
            return row | {"equality_ids": drawn.sample([1, 2, 3], drawn.randint(1, 2))}
        if named is not None:
            by = "ref" if kind == VECTOR or drawn.random() < 0.5 else "only"
            row[by] = named["path"] if by == "ref" else named["path"].encode()
            if drawn.random() < 0.8:
                row |= {"spec_id": named["spec_id"], "key": named["key"]}
        return row

    @property
    def data(self) -> pa.Table:
        return table(self.files, FILES_SCHEMA)

    def of(self, deletes: list[Row]) -> pa.Table:
        return table(deletes, DELETES_SCHEMA)


def target(delete: Row) -> str | None:
    """The one file that a delete is for."""
    if delete["kind"] == EQUALITY:
        return None
    only = delete.get("only")
    return delete.get("ref") if only is None else only.decode()


def is_global(delete: Row) -> bool:
    return delete["kind"] == EQUALITY and delete["spec_id"] in EVERYWHERE


def applies(delete: Row, file: Row) -> bool:
    """Whether a delete may apply to a file."""
    if delete["kind"] == EQUALITY:
        of_it = is_global(delete) or delete["key"] == file["key"]
        return bool(of_it and delete["sequence_number"] > file["sequence_number"])
    name = target(delete)
    of_it = delete["key"] == file["key"] if name is None else name == file["path"]
    return bool(of_it and delete["sequence_number"] >= file["sequence_number"])


def doubt_of(file: Row, state: State) -> Doubt:
    own = [each for each in state.deletes if target(each) == file["path"]]
    vectors = [each for each in own if each["kind"] == VECTOR]
    if [each["path"] for each in state.files].count(file["path"]) > 1:
        return Doubt.LISTED_TWICE
    if len(vectors) > 1:
        return Doubt.TWO_VECTORS
    if any(each["key"] != file["key"] or not applies(each, file) for each in vectors):
        return Doubt.STRAY_VECTOR
    others = [each for each in own if each["kind"] == POSITIONS and applies(each, file)]
    return Doubt.OTHER_PARTITION if any(each["key"] != file["key"] for each in others) else Doubt.NONE


@pytest.mark.parametrize("seed", STATES)
def test_the_deletes_that_apply(seed: int) -> None:
    state = State(seed)
    if doubt_of(state.files[0], state) == Doubt.LISTED_TWICE:
        state.files.pop()  # of which only the first gets its deletes, and the doubt: see the next test
    found = rules.applied_deletes(state.data, state.of(state.deletes), everywhere=EVERYWHERE, until=UNTIL)
    own = [[each for each in state.deletes if applies(each, file)] for file in state.files]
    named = [
        [each for each in each_own if target(each) == file["path"]]
        for file, each_own in zip(state.files, own, strict=True)
    ]
    assert found.delete_files.tolist() == [len(each) for each in own]
    assert found.deleted_rows.tolist() == [
        sum(each["record_count"] for each in each_own) for each_own in named
    ]
    assert found.named_by_newer.tolist() == [
        any(each["sequence_number"] > UNTIL for each in each_own) for each_own in named
    ]
    assert found.doubts.tolist() == [doubt_of(file, state) for file in state.files]
    for gone in state.deletes:  # a digest tells of each delete, if it is not newer
        left = [each for each in state.deletes if each is not gone]
        then = rules.applied_deletes(state.data, state.of(left), everywhere=EVERYWHERE, until=UNTIL)
        is_old = gone["sequence_number"] <= UNTIL
        of_it = [is_old and applies(gone, file) for file in state.files]
        is_equality = gone["kind"] == EQUALITY
        changed = [
            (found.position_digests != then.position_digests).tolist(),
            (found.equality_digests != then.equality_digests).tolist(),
        ]
        none = [False] * len(of_it)
        assert changed == ([none, of_it] if is_equality else [of_it, none])


def test_a_file_that_is_listed_twice_is_in_doubt_in_both_places() -> None:
    state = State(0)
    state.files = [*state.files[:2], state.files[0]]
    found = rules.applied_deletes(state.data, state.of([]), everywhere=EVERYWHERE, until=UNTIL)
    assert found.doubts.tolist() == [Doubt.LISTED_TWICE, Doubt.NONE, Doubt.LISTED_TWICE]


@pytest.mark.parametrize("seed", STATES)
def test_the_deletes_that_are_newer(seed: int) -> None:
    state = State(seed)
    deletes, newer = (
        state.of(state.deletes),
        [each for each in state.deletes if each["sequence_number"] > UNTIL],
    )
    equality = [each for each in newer if each["kind"] == EQUALITY]
    for columns in ([1, 2, 3], [1, 2], [3]):
        lost = [each for each in equality if not {*each["equality_ids"]} <= {*columns}]
        assert rules.compared_columns_lost(
            state.data, deletes, columns, everywhere=EVERYWHERE, until=UNTIL
        ).tolist() == [
            any(is_global(each) or each["key"] == file["key"] for each in lost) for file in state.files
        ]
    keys = rules.newer_equality_keys(deletes, everywhere=EVERYWHERE, until=UNTIL).to_pylist()
    assert sorted(keys) == sorted({each["key"] for each in equality if not is_global(each)})
    unread = [
        each["path"]
        for each in newer
        if each["kind"] != EQUALITY
        and target(each) is None
        and each["key"] in {file["key"] for file in state.files}
    ]
    assert rules.unread_newer(state.data, deletes, until=UNTIL)["path"].to_pylist() == unread


@pytest.mark.parametrize("seed", STATES)
def test_the_deletes_that_are_dead(seed: int) -> None:
    state = State(seed)
    removed = [state.files[place] for place in state.removed]
    stays = [file for place, file in enumerate(state.files) if place not in state.removed]
    live = stays + [{"path": "new", "key": key, "sequence_number": UNTIL} for key in state.new_keys]

    def is_dead(delete: Row) -> bool:
        name = target(delete)
        if name is not None:
            return name in {file["path"] for file in removed}
        touched = is_global(delete) or delete["key"] in {file["key"] for file in removed}
        newer = delete["sequence_number"] > UNTIL
        return touched and not newer and not any(applies(delete, file) for file in live)

    found = rules.dead_deletes(
        state.data,
        state.of(state.deletes),
        removed=np.array(state.removed, np.int64),
        new_keys=pa.chunked_array([pa.array(state.new_keys, pa.binary())]),
        everywhere=EVERYWHERE,
        until=UNTIL,
    )
    assert found.tolist() == [is_dead(each) for each in state.deletes]


def test_a_missing_number_is_equal_to_a_missing_one_alone() -> None:
    """As a row id that a file has since, or has no more."""
    files = [
        {"path": name, "key": b"x", "spec_id": 1, "sequence_number": 1, "record_count": 1} for name in "abcd"
    ]
    ids = [(None, None), (None, 5), (5, None), (5, 5)]
    planned = [each | {"first_row_id": then} for each, (then, _) in zip(files, ids, strict=True)]
    now = [each | {"first_row_id": own} for each, (_, own) in zip(files, ids, strict=True)]
    inputs = [each | {"group": 0, "position_digest": 0, "equality_digest": 0} for each in planned]
    codes, places = rules.differences(
        table(inputs, rules.INPUTS_SCHEMA),
        table(now, FILES_SCHEMA),
        table([], DELETES_SCHEMA),
        everywhere=EVERYWHERE,
        until=UNTIL,
    )
    same, other = rules.Difference.NONE, rules.Difference.ROW_IDS
    assert (codes.tolist(), places.tolist()) == ([same, other, other, same], [0, 1, 2, 3])

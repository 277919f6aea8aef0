"""Damaged commits and checkpoints: refused as corrupt, or read as actions that can be written again."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.checkpoints.checkpoint import read_part
from iceberg_cli.delta.spec.columns import file_lines
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_commits
from iceberg_cli.delta.spec.snapshot import reconcile
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_writer import (
    a_cdc,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_domain,
    a_dv,
    a_metadata,
    a_protocol_with,
    a_remove,
    a_txn,
    an_add,
)

ACTIONS = [
    a_protocol_with("deletionVectors"),
    a_metadata(configuration={"k": "v"}),
    an_add(path="p=a%20b/x", partitionValues={"p": "a b"}, tags={"t": "é"}, dv=a_dv(), baseRowId=4),
    an_add(path="y", rows=None, odd={"x": [1, 2.5]}),
    a_remove(path="z", size=3, deletionVector=a_dv(offset=None, storageType="i")),
    a_txn(lastUpdated=5),
    a_domain(),
]
COMMIT = a_commit(a_commit_info(inCommitTimestamp=7), *ACTIONS, a_cdc(), {"later": {"a": [None, True]}})


@cache
def checkpoint() -> bytes:
    return a_checkpoint(*ACTIONS)


def from_commit(data: bytes) -> Actions | None:
    try:
        return parse_commits([CommitBytes("/t/_delta_log/1.json", 1, data)])
    except CorruptFile:
        return None


def from_checkpoint(data: bytes, name: str = "1.checkpoint.parquet") -> Actions | None:
    try:
        return read_part(f"/t/_delta_log/{name}", 1, data).actions
    except CorruptFile:
        return None


def replayed(actions: Actions) -> Actions | None:
    """What is left of it, None where a path has escapes that are no UTF-8."""
    try:
        return reconcile([actions])
    except CorruptFile as error:
        if "UTF-8" not in error.reason:
            raise
        return None


def assert_usable(actions: Actions) -> None:
    """It can be replayed, and its file actions written and read again."""
    kept = replayed(actions)
    if kept is None:
        return
    for kind, table in (("add", kept.adds), ("remove", kept.removes)):
        lines = file_lines(kind, table)
        assert all(list(json.loads(line)) == [kind] for line in lines)
        again = from_commit("\n".join(lines).encode()) if lines else None
        if again is not None:
            assert file_lines(kind, again.adds if kind == "add" else again.removes) == lines


def flipped(data: bytes, bits: int, seed: int) -> bytes:
    chance = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(bits):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def test_every_prefix_of_a_commit_is_refused_or_ends_with_a_whole_line() -> None:
    ends = {len(COMMIT[: end + 1]) for end, byte in enumerate(COMMIT) if byte == ord("\n")}
    whole = ends | {end - 1 for end in ends} | {0}
    for length in range(len(COMMIT)):
        assert (from_commit(COMMIT[:length]) is not None) == (length in whole), length


def test_every_prefix_of_a_checkpoint_is_refused() -> None:
    data = checkpoint()
    assert from_checkpoint(data) is not None
    for length in range(0, len(data), 7):
        assert from_checkpoint(data[:length]) is None, length


def test_every_prefix_of_a_checkpoint_in_json_is_refused_or_ends_with_a_whole_line() -> None:
    data = a_commit(*ACTIONS)
    for length in range(0, len(data), 11):
        found = from_checkpoint(data[:length], "1.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
        assert found is None or data[length - 1 : length] == b"\n" or data[length : length + 1] == b"\n"


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_commits_with_flipped_bits_are_refused_or_usable(seed: int) -> None:
    for number in range(100):
        found = from_commit(flipped(COMMIT, 1 + number % 3, seed * 1_000 + number))
        if found is not None:
            assert_usable(found)


@pytest.mark.parametrize("seed", range(2))
def test_checkpoints_with_flipped_bits_are_refused_or_usable(seed: int) -> None:
    for number in range(40):
        found = from_checkpoint(flipped(checkpoint(), 1 + number % 3, seed * 1_000 + number))
        if found is not None:
            assert_usable(found)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_damaged_commits_and_checkpoints_are_refused_or_usable(seed: int) -> None:
    for number in range(150):
        bits = 1 + number % 8
        for found in (
            from_commit(flipped(COMMIT, bits, seed * 1_000 + number)),
            from_checkpoint(flipped(checkpoint(), bits, seed * 1_000 + number)),
        ):
            if found is not None:
                assert_usable(found)

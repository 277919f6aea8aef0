"""One file of a Delta log damaged: the same table, or a refusal, or at least `inspect --check` tells; nothing goes.

A log has little redundancy. What no check can tell of is printed: a digit of a path in a commit of which there is no
checkpoint.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from iceberg_cli.delta.check.table_check import DeltaTableCheck
from iceberg_cli.delta.spec.checkpoints.checkpoint import read_part
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import CorruptFile, IcebergCliError
from iceberg_cli.operation.apply import apply
from iceberg_cli.testing.crash.delta_reader import LOG, vector_id
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, World
from tests.budget import FULL, few_or_many
from tests.crash.delta import an_add, commit_to
from tests.crash.delta_scenes import VERBS_ASKED, Scene
from tests.paths import FIXTURES, needs_fixtures

NEWEST = f"{LOG}{3:020}"
SAME, REFUSED, TOLD, UNTOLD = "the same", "refused", "told by --check", "not to be told"
PASSED_OVER = "a checkpoint is passed over, and the commits read"
DETAIL = "not to be told, and the files are the same"


@cache
def a_table(kind: str) -> World:
    """The table without any checkpoint, or with one of its newest version, checksum and compaction."""
    scene = Scene()
    if kind != "commits":
        VERBS_ASKED[kind].process(scene.world).run()
    scene.world.deleted.clear()
    return scene.world


def state_of(snapshot: Snapshot) -> Any:
    def rows(table: Any) -> list[str]:
        return sorted(map(repr, table.to_pylist()))

    names = (snapshot.protocol, snapshot.metadata, snapshot.domains, snapshot.transactions)
    return snapshot.version, rows(snapshot.adds), rows(snapshot.removes), names


def files_of(snapshot: Snapshot) -> list[set[tuple[str, str]]]:
    """What deletions depend on: active files and tombstones, each with its vector."""
    tables = (snapshot.adds.to_pylist(), snapshot.removes.to_pylist())
    return [{(row["path"], vector_id(row)) for row in rows} for rows in tables]


@cache
def sound(kind: str) -> Any:
    return state_of(a_process(a_table(kind)).table.log.snapshot())


def a_process(world: World) -> DeltaProcess:
    return VERBS_ASKED["vacuum"].process(world)


@cache
def sound_without_checkpoint(kind: str) -> Any:
    world = a_table(kind).copy()
    for path in [path for path in world.files if ".checkpoint." in path]:
        del world.files[path]
    return state_of(a_process(world).table.log.snapshot())


def outcome(kind: str, damaged: Mapping[str, bytes]) -> str:
    """What becomes of the table with other files in place of some of its own; of one that is refused nothing goes."""
    world = a_table(kind).copy()
    world.files |= damaged
    process = a_process(world)
    try:
        snapshot = process.table.log.snapshot()
        state = state_of(snapshot)
    except IcebergCliError:
        with pytest.raises(IcebergCliError):
            process.run()
        assert world.deleted == []
        return REFUSED
    if state == sound(kind):
        return SAME
    if snapshot.listing.damaged:
        assert state == sound_without_checkpoint(kind)
        return PASSED_OVER
    try:
        checked = DeltaTableCheck(table=process.table, snapshot=snapshot, deep=False).run()
    except CorruptFile:
        return TOLD
    if checked.counts()["error"]:
        return TOLD
    return DETAIL if files_of(snapshot) == files_of(a_process(a_table(kind)).table.log.snapshot()) else UNTOLD


def damages(data: bytes, budget: int, seed: int) -> Iterator[bytes]:
    """Cut short, at every place with FULL_SUITES=1, and with a bit or a few flipped."""
    chance = random.Random(seed)
    for length in range(len(data)) if FULL else chance.sample(range(len(data)), min(budget, len(data))):
        yield data[:length]
    for number in range(2 * budget):
        damaged = bytearray(data)
        for bit in chance.sample(range(8 * len(data)), 1 + number % 3):  # one twice would be no damage
            damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def outcomes(kind: str, path: str, budget: int) -> Counter[str]:
    found: Counter[str] = Counter()
    data = a_table(kind).files[path]
    for damaged in damages(data, budget, len(data)):
        came_out = outcome(kind, {path: damaged})
        found[came_out] += 1
        if came_out == UNTOLD:
            print(f"{path}: {damaged!r:.400}")
    print(f"{path.removeprefix(DELTA_TABLE)}: {dict(found)}")
    return found


@pytest.mark.parametrize("version", range(4))
@few_or_many(6, all_of=1_000)
def test_a_damaged_commit_that_a_checkpoint_stands_for(version: int, budget: int) -> None:
    found = outcomes("classic", f"{LOG}{version:020}.json", budget)
    assert found.keys() <= {SAME, REFUSED}


@pytest.mark.parametrize("kind", ["classic", "v2"])
@few_or_many(20, all_of=1_000)
def test_a_damaged_checkpoint(kind: str, budget: int) -> None:
    """What the commits beside it say otherwise is told of, and most of it is never read at all."""
    for path in sorted(a_table(kind).files):
        if ".checkpoint." in path:
            found = outcomes(kind, path, budget)
            assert found.keys() <= {SAME, REFUSED, PASSED_OVER, TOLD, DETAIL}


@few_or_many(60, all_of=1_000)
def test_a_page_of_a_checkpoint_with_a_flipped_bit_is_never_believed(budget: int) -> None:
    path = f"{NEWEST}.checkpoint.parquet"
    data = a_table("classic").files[path]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chance = random.Random(budget)
    for _ in range(budget):
        place = chance.randrange(4, footer)
        damaged = bytearray(data)
        damaged[place] ^= 1 << chance.randrange(8)
        assert outcome("classic", {path: bytes(damaged)}) in (SAME, PASSED_OVER), place


@needs_fixtures
@pytest.mark.parametrize(
    "fixture", ["30-delta-spark-v2-checkpoint-sidecars", "36-delta-spark-multipart-checkpoint-crc"]
)
@few_or_many(40, all_of=1_000)
def test_a_page_that_delta_spark_wrote_with_a_flipped_bit_is_never_believed(
    fixture: str, budget: int
) -> None:
    """Parquet's Java writer gives each page a checksum too."""
    files = sorted((FIXTURES / fixture / "table" / "_delta_log").rglob("*.parquet"))
    chance = random.Random(budget)
    for _ in range(budget):
        path = chance.choice(files)
        data = path.read_bytes()
        damaged = bytearray(data)
        place = chance.randrange(4, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
        damaged[place] ^= 1 << chance.randrange(8)
        with suppress(CorruptFile):
            assert rows_of(path.name, bytes(damaged)) == rows_of(path.name, data), (path, place)


def rows_of(name: str, data: bytes) -> Any:
    actions = read_part(name, 1, data).actions
    return actions.adds.to_pylist(), actions.removes.to_pylist(), actions.protocol, actions.metadata


@pytest.mark.parametrize("name", [f"{3:020}.crc", "_last_checkpoint", f"{0:020}.{3:020}.compacted.json"])
@few_or_many(12, all_of=1_000)
def test_a_damaged_file_that_is_advice_changes_nothing(name: str, budget: int) -> None:
    """The log is listed and the newest checkpoint read: neither hint nor checksum nor compaction is needed."""
    assert outcomes("classic", LOG + name, budget).keys() == {SAME}


@pytest.mark.parametrize("version", range(4))
@few_or_many(8, all_of=1_000)
def test_a_damaged_commit_that_nothing_stands_for(version: int, budget: int) -> None:
    """Refused for the most part; a digit that is another one is a version like any other."""
    found = outcomes("commits", f"{LOG}{version:020}.json", budget)
    assert found[REFUSED] > found[UNTOLD]


@pytest.mark.parametrize(
    ("was", "damaged"),
    [
        (b'"g.parquet", "partitionValues": {}, "size": 4', b'"g.parquet", "partitionValues": {}, "size": 6'),
        (b'"b.parquet", "deletionTimestamp"', b'"B.parquet", "deletionTimestamp"'),
        (b'"delta.enableDeletionVectors": "true"', b'"delta.enableDeletionVectors": "tru%"'),
        (b'"minWriterVersion": 7', b'"minWriterVersion": 6'),
    ],
)
def test_a_commit_that_disagrees_with_its_version_checksum_is_told_of(was: bytes, damaged: bytes) -> None:
    """The checksum says how many files there are, of how many bytes, with which protocol and properties."""
    world = a_table("classic")
    kept = {path: data for path, data in world.files.items() if ".checkpoint." not in path}
    kept = {path: data for path, data in kept.items() if "compacted" not in path}
    (path, data) = next((p, d) for p, d in kept.items() if p.endswith(".json") and was in d)
    table = World(files=kept | {path: data.replace(was, damaged, 1)})
    process = a_process(table)
    try:
        snapshot = process.table.log.snapshot()
    except IcebergCliError:
        return
    counts = DeltaTableCheck(table=process.table, snapshot=snapshot, deep=False).run().counts()
    assert counts["error"] > 0


@few_or_many(15, all_of=1_000)
def test_a_damaged_file_of_vectors_is_refused_by_the_verb_and_told_of_by_the_check(budget: int) -> None:
    world = a_table("commits")
    (path,) = (path for path in world.files if path.endswith("000000000002.bin"))
    for damaged in damages(world.files[path], budget, 1):
        table = world.copy()
        table.files[path] = damaged
        process = VERBS_ASKED["merge"].process(table)
        with pytest.raises(IcebergCliError):
            process.run()
        assert table.deleted == [] or all(
            "/_iceberg_cli/" in gone or gone not in world.files for gone in table.deleted
        )
        assert {path for path in world.files if path.startswith(LOG)} == {
            path for path in table.files if path.startswith(LOG)
        }
        checked = DeltaTableCheck(table=process.table, snapshot=process.table.snapshot, deep=False).run()
        assert checked.counts()["error"] > 0


def test_a_commit_that_is_damaged_between_the_plan_and_the_deletions_stops_them() -> None:
    world = a_table("commits").copy()
    process = a_process(world)
    plan = process.plan()
    version = commit_to(world, an_add("new.parquet"))
    path = f"{LOG}{version:020}.json"
    world.files[path] = world.files[path][:-3]
    with pytest.raises(CorruptFile, match=f"{version:020}"):
        apply(plan, process.table, VERBS[plan.plan.verb], process.runtime)
    assert not [name for name in world.deleted if "/_iceberg_cli/" not in name]

"""A rewrite of data files is stopped around every effect that it has, and answers of the catalog are lost."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.catalogs.files.versions import find_current
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import ICEBERG_TABLE, Crash, Script, SimStorage, World, crash
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of
from iceberg_cli.testing.iceberg_rows import LiteralRow, read_rows
from tests.budget import crash_points
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.iceberg.verbs.rewrite_data_files.writers import OPERATION, comparable
from tests.paths import besides_history

DAY_MS = 86_400_000
CATALOGS = ("pointer", "file names", "served")
STEPS = 140  # at least as many as there are effects
POLICY = RewriteDataFiles(
    target_size="4KiB", max_group_size="4KiB", min_input_files=2, commit_every="1KiB", processes=1
)


@dataclass(kw_only=True)
class Rewriter(Process):
    """One run of the verb, which commits each group by itself."""

    verb: str = "rewrite-data-files"
    policy: Any = POLICY


@cache
def table_files(version: int) -> dict[str, bytes]:
    """A table of three partitions, each of which becomes a group; some rows of each are deleted."""
    world = World()
    table = RowsTable(storage=SimStorage(world, Script()), location=ICEBERG_TABLE, format_version=version)
    for k in "xyz":
        for number in range(3):
            first = 100 * "xyz".index(k) + 10 * number
            table.rows(f"{k}{number}", [(N, [*range(first, first + 3)]), (K, [k] * 3)], k=k)
    table.commit(1)
    for k in "xyz":
        if version >= 3:
            table.vectors(f"v{k}", {f"{k}0": [1], f"{k}1": [0, 2]}, k=k)
        else:
            table.positions(f"p{k}", {f"{k}0": [1]}, k=k)
            table.equality_rows(f"e{k}", [(N, [100 * "xyz".index(k) + 10])], k=k)
    table.commit(2)
    table.publish()
    return dict(world.files)


def a_world(version: int, catalog: str = "pointer") -> World:
    world = World(files=dict(table_files(version)), dated=True)
    if catalog != "file names":
        location = find_current(ICEBERG_TABLE, SimStorage(world, Script())).location
        world.pointer = f"{ICEBERG_TABLE}/metadata/00001-first.metadata.json"
        world.files[world.pointer] = world.files.pop(location)
    world.served = catalog == "served"
    return world


def document(world: World) -> dict[str, Any]:
    storage = SimStorage(world, Script())
    location = world.pointer or find_current(ICEBERG_TABLE, storage).location
    found: dict[str, Any] = json.loads(storage.read(location))
    return found


def rows(world: World) -> list[LiteralRow]:
    now = document(world)
    return read_rows(SimStorage(world, Script()), now, now["current-snapshot-id"])


def left(world: World) -> list[str]:
    """Data files and manifests that no snapshot names, and what is left of operations."""
    storage, now = SimStorage(world, Script()), document(world)
    named = set()
    for snapshot in now["snapshots"]:
        named.add(snapshot["manifest-list"])
        for manifest in manifests_of(storage, snapshot):
            named.add(manifest["manifest_path"])
            named |= {entry["file_path"] for entry in entries_of(storage, manifest)}
    return sorted(
        path
        for path in besides_history(world.files)
        if path not in named and not path.endswith((".metadata.json", "-hint.text"))
    )


@cache
def effects(version: int, catalog: str) -> int:
    process = Rewriter(world=a_world(version, catalog))
    report = process.run()
    assert (report.status, len(report.commits)) == ("done", 3)
    assert len(process.effects) <= STEPS
    return len(process.effects)


def check(world: World, version: int) -> None:
    """The rows and their ids are what they were, and nothing is left."""
    before = comparable(rows(a_world(version)), with_ids=version >= 3)
    assert comparable(rows(world), with_ids=version >= 3) == before
    assert left(world) == []
    assert not world.leaked_uploads


def own_commits(world: World) -> int:
    return sum(OPERATION in snapshot["summary"] for snapshot in document(world)["snapshots"])


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("version", [2, 3])
def test_undisturbed_it_commits_each_group_and_leaves_nothing(version: int, catalog: str) -> None:
    world = a_world(version, catalog)
    Rewriter(world=world).run()
    check(world, version)
    assert own_commits(world) == 3


@pytest.mark.few(20)
@pytest.mark.parametrize(
    ("version", "catalog", "step", "after"), crash_points([*itertools.product([2, 3], CATALOGS)], STEPS)
)
def test_whoever_comes_after_a_process_that_ended_anywhere_goes_on_or_settles(
    version: int, catalog: str, step: int, after: bool
) -> None:
    number = step * effects(version, catalog) // STEPS
    world = a_world(version, catalog)
    script = Script(after={number: crash}) if after else Script(before={number: crash})
    with pytest.raises(Crash):
        Rewriter(world=world, script=script).run()
    world.now_ms += DAY_MS
    later = Rewriter(world=world)
    if number % 2:
        later.resume()
        live = {row.path for row in rows(world)}
        assert len(live) in (3, 9)  # where it had ended before there was a plan, nothing was done
    else:
        later.settle()
        later.settle()
    assert later.table.workspace.open_operations() == []
    check(world, version)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(60))
def test_processes_that_end_one_after_the_other_lose_and_leave_nothing(seed: int) -> None:
    drawn = random.Random(seed)
    version, catalog = drawn.choice((2, 3)), drawn.choice(CATALOGS)
    world = a_world(version, catalog)
    most = effects(version, catalog)
    with pytest.raises(Crash):
        Rewriter(world=world, script=Script(before={drawn.randrange(most): crash})).run()
    for _ in range(drawn.randint(1, 3)):
        world.now_ms += DAY_MS
        process = Rewriter(world=world, script=Script(before={drawn.randrange(most): crash}))
        process.dies(process.resume if drawn.random() < 0.6 else process.settle)
    world.now_ms += DAY_MS
    Rewriter(world=world).resume()
    check(world, version)


@pytest.mark.few(10)
@pytest.mark.parametrize("fate", ["lost", "lost after"])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("catalog", ["pointer", "served"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_whose_answer_is_lost_is_settled_and_happens_once(
    version: int, catalog: str, at: int, fate: str
) -> None:
    world = a_world(version, catalog)
    process = Rewriter(world=world, script=Script(swaps=[*[""] * at, fate]))
    with suppress(CommitStateUnknown):  # a catalog that writes the metadata itself is asked at once
        process.run()
    world.now_ms += DAY_MS
    Rewriter(world=world).resume()
    check(world, version)
    assert own_commits(world) == 3


def commit_on_another_branch(world: World) -> None:
    """Another writer's snapshot of the branch `audit`, which lists what main does and adds nothing."""
    assert world.pointer is not None
    found = document(world)
    (head,) = (each for each in found["snapshots"] if each["snapshot-id"] == found["current-snapshot-id"])
    new = {
        **head,
        "snapshot-id": 1_000 + len(found["snapshots"]),
        "parent-snapshot-id": 1,
        "sequence-number": found["last-sequence-number"] + 1,
        "summary": {"operation": "append"},
    }
    if found["format-version"] > 2:
        new |= {"first-row-id": found["next-row-id"], "added-rows": 0}
    entry = {"timestamp-ms": found["last-updated-ms"], "metadata-file": world.pointer}
    found |= {
        "snapshots": [*found["snapshots"], new],
        "last-sequence-number": new["sequence-number"],
        "refs": {**found["refs"], "audit": {"type": "branch", "snapshot-id": new["snapshot-id"]}},
        "metadata-log": [*found["metadata-log"], entry],
    }
    world.pointer = f"{ICEBERG_TABLE}/metadata/{len(found['metadata-log']) + 1:05d}-other.metadata.json"
    world.files[world.pointer] = json.dumps(found).encode()


@pytest.mark.few(2)
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_on_another_branch_right_before_ours_costs_a_try_and_no_work(version: int, at: int) -> None:
    undisturbed = Rewriter(world=a_world(version, "served"))
    undisturbed.run()
    swaps = [place for place, name in enumerate(undisturbed.effects) if name == "swap by the catalog"]
    world = a_world(version, "served")
    process = Rewriter(
        world=world, script=Script(before={swaps[at]: lambda: commit_on_another_branch(world)})
    )
    report = process.run()
    assert (report.status, len(report.commits), report.counts["conflicted_groups_count"]) == ("done", 3, 0)
    assert sum(name == "swap by the catalog" for name in process.effects) == 4
    written = [sum(".parquet" in name for name in each.effects) for each in (undisturbed, process)]
    assert written[0] == written[1]
    check(world, version)


@pytest.mark.few(1)
@pytest.mark.parametrize("version", [2, 3])
def test_a_request_that_arrives_after_a_commit_on_another_branch_is_refused(version: int) -> None:
    world = a_world(version, "served")
    process = Rewriter(world=world, script=Script(swaps=["late"]))
    with pytest.raises(CommitStateUnknown):
        process.run()
    commit_on_another_branch(world)
    (request,) = world.late
    assert "is not above the table's" in getattr(request(world), "reason", "")
    world.now_ms += DAY_MS
    Rewriter(world=world).resume()
    before = comparable(rows(a_world(version)), with_ids=version >= 3)
    assert comparable(rows(world), with_ids=version >= 3) == before
    assert own_commits(world) == 2  # what the request named stays, and its group with it

"""How often the log of a Delta table is listed: once a plan, and then where that decides something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CorruptFile
from iceberg_cli.formats.open import iceberg_files
from iceberg_cli.operation.apply import apply
from iceberg_cli.plan.plan import Plan
from iceberg_cli.storage import FileInfo
from iceberg_cli.testing.crash.process import WorldLogCommitter
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, SimStorage, World
from tests.builders import NOW_MS
from tests.crash.delta import CLEANUP_POLICY, a_world_of_v2_checkpoints
from tests.crash.delta_scenes import VERBS_ASKED, Scene, Verb
from tests.delta_opened import unseen
from tests.policies import policy_with

LOG = f"{DELTA_TABLE}/_delta_log"


class ListedStorage(SimStorage):
    """Counts the listings of the log: those with sizes and times, and those of names alone."""

    def __init__(self, world: World) -> None:
        super().__init__(world, Script())
        self.listings = 0
        self.name_listings = 0

    def list(self, folder: str) -> Iterator[FileInfo]:
        self.listings += folder == LOG
        return super().list(folder)

    def paths(self, folder: str) -> Iterator[str]:
        self.name_listings += folder == LOG
        return (info.path for info in super().list(folder))


CLEANUP = Verb(operation="expire-snapshots", policy=CLEANUP_POLICY)
VERBS_WITH_WORLDS = {name: (verb, lambda: Scene().world) for name, verb in VERBS_ASKED.items()} | {
    "log cleanup": (CLEANUP, a_world_of_v2_checkpoints)
}
# Each step looks for its base, but the first one that commits: that its base was another would be a conflict. So does
# each batch of deletions, for what is unreachable by then.
STEP, BATCH = 1, 1
RANGE, HINT = 1, 1  # whether all commits to compact are there; whether the hint goes back
LISTINGS: Mapping[str, int] = {
    "vacuum": BATCH + STEP,
    "vacuum lite": BATCH + STEP,
    "classic": STEP + RANGE + HINT,
    "v2": STEP + RANGE + HINT,
    "merge": 0,
    "upgrade": 0,
    "assign": 4 * STEP,  # three batches of files, and the property
    "log cleanup": STEP + BATCH + STEP + BATCH,
}
COMMITS: Mapping[str, int] = {"vacuum": 2, "vacuum lite": 2, "merge": 1, "upgrade": 1, "assign": 5}
NAMES_A_COMMIT = 2  # the base is the newest version, and it is there still once the new file is


def a_table(storage: SimStorage) -> DeltaTable:
    """The table of a simulated world."""
    return DeltaTable(
        name="visits",
        root=DELTA_TABLE,
        storage=storage,
        committer=WorldLogCommitter(DELTA_TABLE, storage),
        iceberg_files=iceberg_files,
        engine=LocalEngine(storage, threads=1),
        on_event=unseen,
    )


@pytest.mark.parametrize("name", VERBS_WITH_WORLDS)
def test_the_log_is_listed_once_a_plan_and_then_where_that_decides_something(name: str) -> None:
    asked, a_world = VERBS_WITH_WORLDS[name]
    world = a_world()
    storage = ListedStorage(world)
    verb = VERBS[asked.operation]
    table = a_table(storage)
    planned = verb.plan(table, policy_with(verb.policy, asked.policy), as_of_ms=NOW_MS)
    assert planned.plan.due
    assert (storage.listings, storage.name_listings) == (1, 0)
    runtime = replace(asked.process(world).runtime, sweep_batch=5_000)
    assert apply(planned, table, verb, runtime).status == "done"
    assert storage.listings - 1 == LISTINGS[name]
    assert storage.name_listings == NAMES_A_COMMIT * COMMITS.get(name, 0)


class ShortListings(SimStorage):
    """Lists all files but one, as where a page of a listing never came."""

    def list(self, folder: str) -> Iterator[FileInfo]:
        return (info for info in super().list(folder) if not info.path.endswith("/a.parquet"))


def test_nothing_goes_by_a_listing_that_lacks_a_file_which_is_there() -> None:
    asked, a_world = VERBS_WITH_WORLDS["vacuum"]
    world = a_world()
    verb = VERBS[asked.operation]

    def the_plan() -> Plan:
        storage = ShortListings(world, Script())
        table = a_table(storage)
        return verb.plan(table, policy_with(verb.policy, asked.policy), as_of_ms=NOW_MS).plan

    with pytest.raises(CorruptFile, match="asked for it, the storage has it") as error:
        the_plan()
    assert error.value.path == f"{DELTA_TABLE}/a.parquet"
    del world.files[error.value.path]
    assert the_plan().due

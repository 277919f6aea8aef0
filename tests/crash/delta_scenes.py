"""One Delta table for every verb: files with deletion vectors, old and young tombstones; and what must hold of it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import CommitConflict, Refused, StalePlan, TakenOver
from iceberg_cli.operation.apply import apply
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.delta_reader import (
    COMMIT,
    LOG,
    Content,
    State,
    checkpoints,
    commits,
    is_ours,
    named_files,
    state_at,
    vector_file,
    vector_id,
)
from iceberg_cli.testing.crash.process import DeltaProcess
from iceberg_cli.testing.crash.world import DELTA_TABLE, Script, World
from iceberg_cli.testing.delta_vectors import an_inline_vector, vector_file_name
from tests.crash import suite
from tests.crash.delta import DATA, PROTOCOL, a_metadata, a_remove, a_vector, an_add, commit_to, numbered
from tests.paths import besides_history

HINT = f"{LOG}_last_checkpoint"
OURS = re.compile(
    rf"{re.escape(LOG)}(?:\d{{20}}\.(?:json|crc|checkpoint\..*|\d{{20}}\.compacted\.json)"
    r"|_last_checkpoint|_last_vacuum_info)"
)
CONFIGURATION = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "100"}
NAMES = tuple("abcdefg")


def replaced(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], *, age_days: int) -> Any:
    """A DELETE: the file with another vector."""
    fields = {} if old is None else {"deletionVector": old}
    path = f"{name}.parquet"
    return a_remove(path, age_days=age_days, **fields), an_add(path, deletionVector=new)


@cache
def _the_world() -> World:
    world = World()
    files = (an_add(f"{name}.parquet") for name in NAMES)
    commit_to(world, PROTOCOL, a_metadata(**CONFIGURATION), *files)
    vectors = {name: a_vector(world, number, number) for number, name in enumerate("abc", start=1)}
    commit_to(world, *(each for name in "abc" for each in replaced(name, None, vectors[name], age_days=30)))
    inline = replaced("d", None, an_inline_vector([4, 5]), age_days=30)
    commit_to(world, *inline, a_remove("e.parquet", age_days=30), a_remove("f.parquet", age_days=1))
    commit_to(world, *replaced("a", vectors["a"], a_vector(world, 9, 1, 2), age_days=30))
    for name in (*NAMES, "nobody", "_hidden"):
        world.files[f"{DELTA_TABLE}/{name}.parquet"] = DATA
    world.dated = True
    return world


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb, and what it is asked."""

    operation: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    goes: frozenset[str] = frozenset()  # files that it deletes
    made: Callable[[State], bool] = lambda _state: True  # whether the table is what it makes of it

    def process(self, world: World, script: Script | None = None) -> DeltaProcess:
        whole = 0 in commits(world.files)  # else there is nothing to compact any more
        policy = {name: value for name, value in self.policy.items() if whole or name != "compact_log"}
        return DeltaProcess(world=world, script=script or Script(), verb=self.operation, policy=policy)

    def effects(self) -> list[str]:
        """Those of a run that nothing disturbs."""
        process = self.process(Scene().world)
        assert process.run().status == "done"
        return process.effects


_OLD_VECTOR = f"{DELTA_TABLE}/{vector_file_name(1)}"
_LITE = frozenset({f"{DELTA_TABLE}/e.parquet", _OLD_VECTOR})
_COMPACT = {"compact_log": [0, 3]}
VERBS_ASKED: Mapping[str, Verb] = {
    "vacuum": Verb(operation="expire-snapshots", goes=_LITE | {f"{DELTA_TABLE}/nobody.parquet"}),
    "vacuum lite": Verb(operation="expire-snapshots", policy={"mode": "lite"}, goes=_LITE),
    "classic": Verb(operation="rewrite-manifests", policy={"checkpoint": "classic", **_COMPACT}),
    "v2": Verb(operation="rewrite-manifests", policy={"checkpoint": "v2", "part_size": 4, **_COMPACT}),
    "merge": Verb(
        operation="merge-dvs",
        policy={"min_files": 2, "target_size": 100},
        made=lambda state: len({*map(vector_file, state.adds.values())} - {None}) <= 2,
    ),
    "upgrade": Verb(
        operation="upgrade-v3",
        policy={"features": ["rowTracking", "inCommitTimestamp"]},
        made=lambda state: {"rowTracking", "inCommitTimestamp"} <= {*state.protocol["writerFeatures"]},
    ),
    "assign": Verb(
        operation="assign-row-ids",
        policy={"batch_size": 2},
        made=lambda state: state.metadata["configuration"]["delta.enableRowTracking"] == "true",
    ),
}


class Scene(suite.Scene):
    """The table in a world of its own, a verb on it, and what every version said when it was written."""

    refusals = (CommitConflict, Refused, StalePlan, TakenOver)

    def __init__(self, name: str = "vacuum") -> None:
        self.name = name
        self.case = VERBS_ASKED[name]
        self.makes_versions = self.case.operation != "rewrite-manifests"  # which writes checkpoints
        self.world = _the_world().copy()
        self.stated: dict[int, Content] = {}
        self.before = set(self.world.files)
        self.raced: set[str] = set()  # files of other writers
        self.hear()

    def copy(self) -> Scene:
        """The same, to change it alone."""
        scene = copy.copy(self)
        scene.world = self.world.copy()
        scene.stated, scene.raced = dict(self.stated), {*self.raced}
        return scene

    @property
    def others(self) -> list[str]:
        return sorted({*VERBS_ASKED} - {self.name})

    def process(self, **script: Any) -> DeltaProcess:
        """A run of the verb."""
        return self.case.process(self.world, Script(**script))

    def process_of(self, other: str) -> DeltaProcess:
        """A run of another verb."""
        return VERBS_ASKED[other].process(self.world)

    def is_commit(self, effect: str) -> bool:
        """Whether the effect makes a version."""
        return COMMIT.fullmatch(effect.removeprefix(f"put {LOG}")) is not None

    def is_too_late(self, act: suite.Act, effect: str) -> bool:
        # Between the last look and the deletions of one batch nothing can help: that is what retention is for.
        return act is restore and effect.removeprefix("delete ") in self.case.goes

    def hear(self) -> None:
        """Remember what the versions say that are new."""
        for version in commits(self.world.files):
            if version not in self.stated:
                self.stated[version] = self.state(version).content(self.world.files)

    def commit(self, *actions: Mapping[str, Any]) -> int:
        """Another writer's commit. What ours say is not taken for granted."""
        self.check_ours()
        version = commit_to(self.world, *actions)
        self.hear()
        return version

    def state(self, version: int | None = None) -> State:
        found = state_at(self.world.files, self.newest if version is None else version)
        assert found is not None, f"version {version} is there and cannot be read"
        return found

    @property
    def newest(self) -> int:
        return commits(self.world.files)[-1]

    def check_ours(self) -> None:
        """A version of ours has the same rows as the one before it."""
        for version in commits(self.world.files):
            if version not in self.stated:
                assert is_ours(self.world.files, version)
                now = self.state(version).content(self.world.files)
                assert now == self.stated[version - 1], f"version {version} changes the table's rows"
                self.stated[version] = now

    def check(self) -> None:
        """What must hold at every moment."""
        files = self.world.files
        versions = commits(files)
        assert versions == list(range(versions[0], versions[-1] + 1))
        assert versions[-1] >= max(self.stated)
        self.check_ours()
        ids: dict[str, int] = {}
        for version in versions:
            state = self.state(version)
            now = state.content(files)
            assert now.keys() == self.stated[version].keys()
            # Vectors of old versions may be gone, with the time for which they were promised.
            assert all(now[path] in (None, old) for path, old in self.stated[version].items())
            for (path, _), add in state.adds.items():
                if "baseRowId" in add:
                    assert ids.setdefault(path, add["baseRowId"]) == add["baseRowId"]
                else:
                    assert path not in ids, "an id was lost"
            state.check_row_ids()
        newest = self.state()
        assert newest.needed() <= set(files)
        assert f"{DELTA_TABLE}/f.parquet" in files  # its tombstone is young
        assert f"{DELTA_TABLE}/_hidden.parquet" in files
        if HINT in files:
            assert json.loads(files[HINT])["version"] in checkpoints(files).values()

    def check_reading(self) -> None:
        """We read what the log says."""
        for version in commits(self.world.files):
            ours = self.process().table.log.snapshot(version).adds.to_pylist()
            assert {(add["path"], vector_id(add)) for add in ours} == set(self.state(version).adds)

    def leftovers(self) -> set[str]:
        """Files of ours that nothing names. Sidecars of a process that died are a log cleanup's."""
        new = besides_history(self.world.files) - self.before - named_files(self.world.files) - self.raced
        return {name for name in new if not OURS.fullmatch(name) and "/_sidecars/" not in name}

    def finish(self) -> None:
        """Resume, run again, and nothing is left to do or to clean up."""
        self.process().resume()
        self.check()
        self.process_of(self.possible_verb()).run()
        self.check()
        verb = self.possible_verb()
        if verb != self.name:
            self.process_of(verb).run()
            self.check()
        assert self.process_of(verb).run().status == "nothing_to_do"
        assert not self.process_of(verb).plan().plan.due
        self.check_reading()
        assert self.leftovers() == set()

    def possible_verb(self) -> str:
        """The verb, or a full VACUUM where commits are gone whose files one in lite mode would have to look at."""
        try:
            self.process().plan()
        except Refused as refused:
            if self.case.policy.get("mode") != "lite" or "--mode full" not in refused.next_step:
                raise
            return "vacuum"
        return self.name

    def check_done(self) -> None:
        """The files are gone that the verb deletes, and the table is what it makes of it."""
        assert not self.case.goes & set(self.world.files)
        assert self.case.made(self.state())


# -- other writers ---------------------------------------------------------------------------------------------


def append(scene: Scene) -> None:
    scene.commit(*_new_file(scene))


def _new_file(scene: Scene) -> Iterable[dict[str, Any]]:
    path = f"new-{scene.newest}.parquet"
    scene.world.write(f"{DELTA_TABLE}/{path}", DATA)
    scene.raced |= {f"{DELTA_TABLE}/{path}"}
    return numbered(scene.state(), an_add(path))


def delete_rows(scene: Scene) -> None:
    """One more row of a file goes, whose vector may just be merged."""
    _renew(scene, "b.parquet", scene.newest + 100)


def delete_rows_without_vector(scene: Scene) -> None:
    """The first vector of a file, which may just get its row ids."""
    _renew(scene, "g.parquet", scene.newest + 200)


def _renew(scene: Scene, path: str, number: int) -> None:
    (add,) = (add for (found, _), add in scene.state().adds.items() if found == path)
    old = scene.state().content(scene.world.files)[path] or ()
    vector = a_vector(scene.world, number, *sorted({*old, 7}))
    scene.commit(_remove_of(add), {"add": {**add, "deletionVector": vector}})


def remove(scene: Scene) -> None:
    """A file goes whose vector may just be merged, or which may just get its row ids."""
    for path in ("b.parquet", "g.parquet"):
        scene.commit(*_removes_of(scene, path))


def replace(scene: Scene) -> None:
    """A file goes whose vector may just be merged, and another one comes, in one commit."""
    scene.commit(*_removes_of(scene, "b.parquet"), *_new_file(scene))


def _removes_of(scene: Scene, path: str) -> list[dict[str, Any]]:
    return [_remove_of(add) for (name, _), add in scene.state().adds.items() if name == path]


def _remove_of(add: Mapping[str, Any]) -> dict[str, Any]:
    names = ("deletionVector", "baseRowId", "defaultRowCommitVersion")
    return a_remove(add["path"], age_days=0, **{name: add[name] for name in names if name in add})


def restore(scene: Scene) -> None:
    """A file that was removed long ago comes back, if it is still there."""
    if f"{DELTA_TABLE}/e.parquet" in scene.world.files:
        scene.commit(*numbered(scene.state(), an_add("e.parquet")))


def set_property(scene: Scene) -> None:
    metadata = scene.state().metadata
    scene.commit({"metaData": {**metadata, "configuration": {**metadata["configuration"], "owner": "them"}}})


def ours(name: str) -> Callable[[Scene], Report]:
    """Another process of this tool, which does not settle what the first one has under way."""

    def run(scene: Scene) -> Report:
        other = VERBS_ASKED[name].process(scene.world)
        return apply(other.plan(), other.table, VERBS[other.verb], other.runtime)

    return run


RACES: Mapping[str, Callable[[Scene], object]] = {
    "append": append,
    "delete rows": delete_rows,
    "delete rows without vector": delete_rows_without_vector,
    "remove": remove,
    "replace": replace,
    "restore": restore,
    "set property": set_property,
    "checkpoint": ours("classic"),
    "vacuum": ours("vacuum lite"),
    "merge": ours("merge"),
}

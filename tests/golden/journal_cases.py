"""Operations in the simulated store, and every file that their journals ever had."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pyarrow.parquet as pq

from iceberg_cli.errors import BackendUnavailable, IcebergCliError
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation.apply import abandon
from iceberg_cli.testing.crash.delta_reader import COMMIT, LOG
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, World, crash
from tests.crash.delta_scenes import RACES, VERBS_ASKED
from tests.crash.delta_scenes import Scene as DeltaScene
from tests.crash.lakes import ACTS, CASES, Lake
from tests.crash.scenes import POLICY, Expiry, a_scene, few_rows_in_a_part
from tests.crash.verbs import SWEEP_FIRST, THREE, FakeProcess

JOURNALS = "/_iceberg_cli/"
HOUR_MS = 3_600_000


class Recorded(dict[str, bytes]):
    """The files of a world, which remembers those of journals as they are written."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.written: list[tuple[str, bytes] | str] = []

    def __setitem__(self, path: str, data: bytes) -> None:
        if JOURNALS in path:
            self.written.append((path, data))
        super().__setitem__(path, data)


Written = list[tuple[str, bytes] | str]


class Tape:
    """A world whose journals are recorded, with what befell it in between."""

    def __init__(self, world: World) -> None:
        self.files = Recorded(world.files)
        world.files = self.files

    def run(self, what: str, act: Callable[[], Any]) -> None:
        """Do something that may fail as the program fails; how it ended is noted."""
        self.files.written.append(what)
        try:
            found = act()
        except IcebergCliError as error:
            self.files.written.append(f"{type(error).__name__}: {error.message}")
            return
        for report in found if isinstance(found, list) else [found]:
            self.files.written.append(f"ended: {getattr(report, 'status', report)}")


def as_text(written: Written, *, records_only: bool = False) -> str:
    """The files in the order in which they were written; Parquet files as their rows.

    Args:
        written: see `Recorded`.
        records_only: name the other files only: another case has them whole.
    """
    parts = []
    for each in written:
        if isinstance(each, str):
            parts.append(f"## {each}\n")
            continue
        path, data = each
        if records_only and not _is_record(path):
            parts.append(f"== {path}\n")
            continue
        if path.endswith(".parquet"):
            rows = pq.read_table(io.BytesIO(data))
            lines = [json.dumps(row) for row in rows.to_pylist()]
            text = "".join(f"{line}\n" for line in (", ".join(map(str, rows.schema.types)), *lines))
        else:
            text = data.decode()
            text += "" if text.endswith("\n") else "\n\\ no newline at the end\n"
        parts.append(f"== {path}\n{text}")
    return "".join(parts)


def _is_record(path: str) -> bool:
    return path.rpartition("/")[2].removesuffix(".json").isdigit()


def records_in(text: str) -> list[tuple[str, bytes]]:
    """The journals' records of such a text: path and bytes, in order.

    A process that was overtaken may write a record anew once the journal is deleted: that one is left out.
    """
    found: dict[str, bytes] = {}
    for part in text.split("== ")[1:]:
        path, _, rest = part.partition("\n")
        if _is_record(path):
            line, newline, _ = rest.partition("\n")
            found.setdefault(path, (line + newline).encode())
    return [*found.items()]


# -- Iceberg -------------------------------------------------------------------------------------------------------


def _expire(
    *scripts: Script,
    limits: Mapping[str, Any] | None = None,
    few_rows: bool = False,
    catalog: bool = True,
    grace_ms: int = 0,
) -> Written:
    """Expire snapshots, each script's process after the one before; the last one has none."""
    scene = a_scene(catalog=catalog)
    tape = Tape(scene.world)
    policy = replace(POLICY, grace=grace_ms)

    def process(script: Script, **values: Any) -> Expiry:
        return Expiry(world=scene.world, script=script, policy=policy, **values)

    first, *others = scripts or (Script(),)
    started = process(first, limits=limits or {})
    with few_rows_in_a_part() if few_rows else nullcontext():
        tape.run("expire-snapshots", lambda: started.dies(lambda: tape.run("runs", started.run)))
    for script in others:
        scene.world.now_ms += HOUR_MS
        again = process(script)
        tape.run("resume", lambda again=again: again.dies(lambda: tape.run("runs", again.resume)))
    return tape.files.written


def _denied(path: str) -> str | None:
    return "access denied" if path.endswith("b.parquet") else None


def _abandoned_expiry() -> Written:
    scene = a_scene()
    tape = Tape(scene.world)
    tape.run("expire-snapshots", Expiry(world=scene.world, limits={"limit_deletes": 3}).run)
    process = Expiry(world=scene.world)
    [operation_id] = process.table.workspace.open_operations()
    tape.run("abandon", lambda: abandon(process.table, operation_id, process.runtime))
    return tape.files.written


def _overtaken_expiry() -> Written:
    """Another process resumes the operation, and the first one goes on."""
    scene = a_scene()
    tape = Tape(scene.world)
    other = Expiry(world=scene.world)
    script = Script(before={6: lambda: tape.run("another process resumes", other.resume)})
    tape.run("expire-snapshots", Expiry(world=scene.world, script=script).run)
    return tape.files.written


def _lost_track() -> Written:
    """The swap has no answer, others commit on, and the log of metadata files is too short to show what happened."""
    scene = a_scene()
    tape = Tape(scene.world)
    tape.run("expire-snapshots", Expiry(world=scene.world, script=Script(swaps=["lost"])).run)
    for _ in range(3):
        scene.foreign_append(keep_log=1)
    tape.run("resume", Expiry(world=scene.world).resume)
    return tape.files.written


class _OnWorkers(IcebergTable):
    """A table whose staged files are written by processes that may outlive ours."""

    workers_write = True


@dataclass(kw_only=True)
class _WorkersProcess(Process):
    def open(self) -> IcebergTable:
        """See `Process.open`."""
        table = super().open()
        table.__class__ = _OnWorkers
        return table


def _late_files(number: int) -> Written:
    """The process dies before its commit while workers may still write; a day later it is looked at again."""
    lake = _lake(number).copy()
    tape = Tape(lake.world)
    asked = {"verb": lake.case.verb, "policy": lake.case.policy}
    process = _WorkersProcess(world=lake.world, script=Script(before={_staged_of(number): crash}), **asked)
    tape.run(str(lake.case), lambda: process.dies(lambda: tape.run("runs", process.run)))
    for hours in (0, 1, 25):
        lake.world.now_ms += hours * HOUR_MS
        tape.run(f"resume {hours} h later", _WorkersProcess(world=lake.world).resume)
    return tape.files.written


def _fake(operation: str, **script: Any) -> Written:
    world = a_scene().world
    tape = Tape(world)
    process = FakeProcess(world=world, verb=operation, script=Script(**script))
    tape.run(operation, lambda: process.dies(lambda: tape.run("runs", process.run)))
    again = FakeProcess(world=world, verb=operation)
    tape.run("resume", again.resume)
    return tape.files.written


@cache
def _lake(number: int) -> Lake:
    return Lake.of(CASES[number])


@cache
def _swap_of(number: int) -> int:
    """The number of the first effect that commits."""
    trial = _lake(number).copy()
    process = trial.process()
    process.run()
    return next(number for number, effect in enumerate(process.effects) if effect.startswith("swap "))


@cache
def _staged_of(number: int) -> int:
    """The number of the effect that records what is to be committed; staged files are there, and no commit is tried."""
    trial = _lake(number).copy()
    tape = Tape(trial.world)
    process = trial.process()
    process.run()
    kinds = {path: json.loads(data)["kind"] for path, data in records_in(as_text(tape.files.written))}
    intent = next(path for path, kind in kinds.items() if kind == "commit-intent")
    return process.effects.index(f"put {intent}")


def _verb(number: int, *, befalls: str = "") -> Written:
    """A verb of `CASES`; what befalls it happens at its first commit, and another process resumes it."""
    lake = _lake(number).copy()
    script: dict[str, Any] = {}
    match befalls:
        case "stop before":
            script = {"before": {_swap_of(number): crash}}
        case "stop after":
            script = {"after": {_swap_of(number): crash}}
        case "refused" | "lost" | "lost after":
            script = {"swaps": [befalls]}
        case "always refused":
            script = {"swaps": ["refused"] * 9}
        case "append" | "delete":
            act = ACTS[befalls]
            script = {"before": {_swap_of(number): lambda: act(lake.engine)}}
        case "abandon":
            script = {"before": {_staged_of(number): crash}}
    tape = Tape(lake.world)
    process = lake.process(**script)
    tape.run(str(lake.case), lambda: process.dies(lambda: tape.run("runs", process.run)))
    again = lake.process()
    for operation_id in again.table.workspace.open_operations():
        if befalls == "abandon":
            tape.run("abandon", partial(abandon, again.table, operation_id, again.runtime))
        else:
            tape.run("resume", again.resume)
    return tape.files.written


# -- Delta ---------------------------------------------------------------------------------------------------------


def _down() -> None:
    raise BackendUnavailable("Cannot reach the storage: no answer")


@cache
def _commit_of(name: str) -> int:
    """The number of the first effect that commits; of one that never commits, its middle."""
    effects = VERBS_ASKED[name].effects()
    commits = (n for n, effect in enumerate(effects) if COMMIT.fullmatch(effect.removeprefix(f"put {LOG}")))
    return next(commits, len(effects) // 2)


def _delta(name: str, *, befalls: str = "") -> Written:
    verb, scene = VERBS_ASKED[name], DeltaScene()
    script: dict[str, Any] = {}
    match befalls:
        case "stop before":
            script = {"before": {_commit_of(name): crash}}
        case "abandon":
            script = {"after": {_commit_of(name): crash}}
        case "stop after":
            script = {"after": {_commit_of(name): crash}}
        case "no answer before":
            script = {"before": {_commit_of(name): _down}}
        case "no answer after":
            script = {"after": {_commit_of(name): _down}}
        case "delete rows" | "append":
            script = {"before": {_commit_of(name): partial(RACES[befalls], scene)}}
        case "denied":
            script = {"fail_delete": lambda path: "access denied" if path.endswith("e.parquet") else None}
    tape = Tape(scene.world)
    process = verb.process(scene.world, Script(**script))
    if befalls == "stop and limit":
        process.runtime.deletes_left = process.runtime.limit_deletes = 1
    tape.run(name, lambda: process.dies(lambda: tape.run("runs", process.run)))
    again = verb.process(scene.world)
    for operation_id in again.table.workspace.open_operations():
        if befalls == "abandon":
            tape.run("abandon", partial(abandon, again.table, operation_id, again.runtime))
        else:
            tape.run("resume", again.resume)
    return tape.files.written


# -- all -----------------------------------------------------------------------------------------------------------


def _named(case: object) -> str:
    return str(case).replace(" ", "-")


def _all() -> dict[str, Callable[[], Written]]:
    expire: dict[str, Callable[[], Written]] = {
        "": _expire,
        "by-file-names": partial(_expire, catalog=False),
        "in-parts": partial(_expire, few_rows=True),
        "in-parts-stopped": partial(_expire, Script(after={9: crash}), Script(), few_rows=True),
        "grace": partial(_expire, Script(), Script(), grace_ms=HOUR_MS),
        "limit-deletes": partial(_expire, Script(), Script(), limits={"limit_deletes": 3}),
        "denied": partial(_expire, Script(fail_delete=_denied), Script()),
        "refused-twice": partial(_expire, Script(swaps=["refused"] * 2)),
        "always-refused": partial(_expire, Script(swaps=["refused"] * 9)),
        "lost": partial(_expire, Script(swaps=["lost"]), Script(swaps=["lost"]), Script()),
        "lost-after": partial(_expire, Script(swaps=["lost after"]), Script()),
        "down": partial(_expire, Script(swaps=["down"]), Script()),
        "stopped-thrice": partial(
            _expire, Script(before={5: crash}), Script(after={1: crash}), Script(after={4: crash}), Script()
        ),
        "abandoned": _abandoned_expiry,
        "overtaken": _overtaken_expiry,
    }
    found = {f"iceberg-expire-snapshots{'-' if name else ''}{name}": case for name, case in expire.items()}
    for number, case in enumerate(CASES):
        name = f"iceberg-{number}-{_named(case)}"
        found[name] = partial(_verb, number)
    for number in (0, 2, 4, 6):  # each verb once
        for befalls in ("stop before", "stop after", "refused", "lost", "append", "abandon"):
            name = f"iceberg-{number}-{_named(CASES[number])}-{_named(befalls)}"
            found[name] = partial(_verb, number, befalls=befalls)
    found["iceberg-2-merge-dvs-fragmented-delete"] = partial(_verb, 2, befalls="delete")
    found["iceberg-2-merge-dvs-fragmented-always-refused"] = partial(_verb, 2, befalls="always refused")
    found["iceberg-expire-snapshots-lost-track"] = _lost_track
    for number in (0, 2):
        found[f"iceberg-{number}-{_named(CASES[number])}-late-files"] = partial(_late_files, number)
    for operation in (THREE, SWEEP_FIRST):
        found[f"iceberg-{operation}"] = partial(_fake, operation)
        found[f"iceberg-{operation}-stopped"] = partial(_fake, operation, after={8: crash})
    for name in VERBS_ASKED:
        found[f"delta-{_named(name)}"] = partial(_delta, name)
    for name in ("vacuum", "classic", "merge", "upgrade", "assign"):  # each verb once
        for befalls in ("stop before", "append", "no answer after", "abandon"):
            found[f"delta-{_named(name)}-{_named(befalls)}"] = partial(_delta, name, befalls=befalls)
    found["delta-merge-delete-rows"] = partial(_delta, "merge", befalls="delete rows")
    found["delta-vacuum-denied"] = partial(_delta, "vacuum", befalls="denied")
    found["delta-vacuum-limit-deletes"] = partial(_delta, "vacuum", befalls="stop and limit")
    return found


JOURNALLED = _all()
# What befalls these comes after the plan and the removals are written.
BEFALLEN = frozenset(name for name in JOURNALLED if any(name.startswith(f"{other}-") for other in JOURNALLED))
WHOLE = frozenset({"iceberg-expire-snapshots-in-parts", "iceberg-expire-snapshots-grace"})


def text_of(name: str) -> str:
    """The golden text of a case."""
    return as_text(JOURNALLED[name](), records_only=name in BEFALLEN - WHOLE)

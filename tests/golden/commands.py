"""Command lines on small tables, as an operator sees them: a transcript of what was asked, and of all that came of it.

Nothing of this machine or this day is in one: tables lie in a folder of a fixed name, which one process has at a time;
clock, ids, host and process are fixed; files that the program writes get the time of the clock.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from iceberg_cli.demo import create_demo
from iceberg_cli.operation import runtime
from iceberg_cli.testing.crash.world import DELTA_TABLE
from tests.builders import DAY_MS, HOUR_MS, NOW_MS
from tests.cli.lakes import four_snapshots
from tests.cli.running import Ran, iceberg_cli
from tests.crash.delta_scenes import Scene

# Fixed, for its length has a say in sizes and in the widths of columns.
ROOT = Path("/tmp/iceberg-cli-golden")
CLOCK_MS = 1_730_000_000_000  # 2024-10-27, before the storage's own clock
FOUR, EVENTS, ORDERS, VISITS = (str(ROOT / name) for name in ("four", "db/events", "db/orders", "visits"))
PLAN = str(ROOT / "saved.plan")
NAMED, NAME_LENGTHS = str(ROOT / "names"), (5, 62, 200)
POLICY = str(ROOT / "policy.toml")

_OF_STORAGE = re.compile(r"20(?:2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")

Command = Sequence[str] | Callable[[], str | None]


def anew() -> None:
    """The tables are again as they were made."""


def _make(tables: Collection[str]) -> None:
    """Write these tables anew."""
    files = _files()
    shutil.rmtree(ROOT, ignore_errors=True)
    for path, (data, modified_ms) in files.items():
        if not str(path).startswith(tuple(tables)):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)


@cache
def _files() -> dict[Path, tuple[bytes, int]]:
    """All tables: bytes and time of each file."""
    shutil.rmtree(ROOT, ignore_errors=True)
    four_snapshots(Path(FOUR)).publish()
    create_demo(str(ROOT), now_ms=CLOCK_MS)
    write_visits(VISITS)
    tables = (FOUR, EVENTS, ORDERS, VISITS)
    paths = sorted(path for table in tables for path in Path(table).rglob("*") if path.is_file())
    old_ms = CLOCK_MS - 40 * DAY_MS
    return {path: (path.read_bytes(), old_ms + number * HOUR_MS) for number, path in enumerate(paths)}


def write_visits(folder: str) -> None:
    """The Delta table of the crash suite, in a folder and as far back as our clock."""

    def earlier(match: re.Match[bytes]) -> bytes:
        return match[1] + str(int(match[2]) - NOW_MS + CLOCK_MS).encode()

    for name, data in Scene().world.files.items():
        path = Path(name.replace(DELTA_TABLE, folder, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_bytes(re.sub(rb'("(?:t|deletionT)imestamp": )(\d+)', earlier, data))
        else:
            path.write_bytes(data)


def name_at_length() -> None:
    """Tables as `four` have names of 5, 62 and 200 characters, and one more is broken; a policy file matches them."""
    for length in NAME_LENGTHS:
        four_snapshots(Path(NAMED) / ("orders_by_customer_and_day_" * length)[:length]).publish()
    broken = Path(NAMED) / "broken" / "metadata" / "v1.metadata.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    lines = ["version = 1", "[[tables]]", f'match = ["{NAMED}/*"]', "expire-snapshots = {}"]
    Path(POLICY).write_text("\n".join(lines) + "\n")


def damage() -> None:
    """The newest metadata of `four` is cut off."""
    path = Path(FOUR) / "metadata" / "v1.metadata.json"
    path.write_bytes(path.read_bytes()[:100])


def keep_all() -> None:
    """The owner of `four` says that nothing may be deleted."""
    path = Path(FOUR) / "metadata" / "v1.metadata.json"
    document = json.loads(path.read_bytes())
    document["properties"] = {**document.get("properties", {}), "gc.enabled": "false"}
    path.write_bytes(json.dumps(document).encode())


def lose_a_list() -> None:
    """A manifest list of `four` is gone."""
    (Path(FOUR) / "metadata" / "snap-4.avro").unlink()


def show_plan() -> str:
    """The saved plan, as it is in the file."""
    return Path(PLAN).read_text(encoding="utf-8")


@contextmanager
def alone(root: Path = ROOT) -> Iterator[None]:
    """Nobody else uses the folder meanwhile, neither another worker nor the tests of another checkout."""
    descriptor = os.open(f"{root}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        shutil.rmtree(root, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def fixed(root: Path = ROOT) -> Iterator[None]:
    """Clock, ids, host, user, process and width of the screen."""
    drawn = itertools.count(1)
    random_uuid = uuid.uuid4

    def next_uuid() -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, str(next(drawn)))

    def new_uuid() -> uuid.UUID:
        # The shell's; temporary files have names that nobody sees, and how many there are is of no interest.
        caller = sys._getframe(1).f_code.co_name
        if "uuid" in caller:
            return next_uuid()
        return random_uuid()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: CLOCK_MS * 1_000_000)
        patched.setattr(uuid, "uuid4", new_uuid)
        patched.setattr(runtime, "time_ordered_uuid", lambda _: str(next_uuid()))
        patched.setattr(socket, "gethostname", lambda: "here")
        patched.setattr(os, "getpid", lambda: 4242)
        patched.setenv("LOGNAME", "operator")
        patched.setenv("COLUMNS", "80")
        patched.setenv("NO_COLOR", "1")
        patched.setenv("XDG_CACHE_HOME", str(root / "cache"))
        yield


def settle_times(root: Path = ROOT) -> None:
    """Files that are younger than the clock are as old as it."""
    for path in root.rglob("*"):
        if path.is_file() and path.stat().st_mtime_ns > CLOCK_MS * 1_000_000:
            os.utime(path, ns=(CLOCK_MS * 1_000_000,) * 2)


def transcript(commands: Sequence[Command], run: Callable[..., Ran] = iceberg_cli) -> str:
    """Carry command lines out, one after the other, on tables that were just made.

    Args:
        commands: their words.
        run: runs one.
    """
    parts = []
    words = {word for command in commands if not callable(command) for word in command}
    named = {
        table for table in (FOUR, EVENTS, ORDERS, VISITS) if any(word.startswith(table) for word in words)
    }
    tables = named or {FOUR}
    with alone(), fixed():
        _make(tables)
        for command in commands:
            if command is anew:
                _make(tables)
            if callable(command):
                stated = command()
                parts.append(f"# {(command.__doc__ or '').strip()}\n{stated or ''}\n")
                continue
            ran = run(*command)
            settle_times()
            parts.append(f"$ iceberg-cli {shlex.join(command)}\n{as_text(ran)}\n")
    return "\n".join(parts)


def as_text(ran: Ran) -> str:
    """Exit code and both streams as they are, but for times of the storage's own clock, which is not ours."""
    err = f"--- standard error\n{ran.err}" if ran.err else ""
    return _OF_STORAGE.sub("(a time of the storage)", f"--- exit code {ran.code}\n{ran.out}{err}")


ICEBERG_VIEWS = (
    "snapshots", "refs", "history", "schemas", "specs", "properties", "manifests", "files", "deletes", "partitions",
    "statistics", "metadata-log", "row-ids",
)  # fmt: skip


DELTA_VIEWS = (
    "history", "schemas", "properties", "protocol", "features", "files", "deletes", "partitions", "row-ids",
)  # fmt: skip


JSON = ("--format", "json")


SHOWN = (JSON, (), ("-v",), ("-q",))


# What is asked of which table, and what an upgrade is needed for.
TO_V3 = ("upgrade-v3", EVENTS, "--yes", "-q")


TRACKED = ("upgrade-v3", VISITS, "--feature", "rowTracking", "--yes", "-q")


VERBS: dict[str, tuple[Sequence[str], ...]] = {
    "expire-four": (("expire-snapshots", FOUR),),
    "expire-events": (("expire-snapshots", EVENTS, "--older-than", "10d"),),
    "expire-orders-clean": (("expire-snapshots", ORDERS, "--retain-last", "3", "--clean-metadata"),),
    "rewrite-events": (("rewrite-manifests", EVENTS),),
    "rewrite-orders-all": (("rewrite-manifests", ORDERS, "--all-manifests"),),
    "merge-orders": (("merge-dvs", ORDERS, "--min-files", "2"),),
    "upgrade-four": (("upgrade-v3", FOUR),),
    "restore-orders": (("restore", ORDERS, "--to", "closed"),),
    "restore-events-branch": (("restore", EVENTS, "--branch", "audit", "--to", "eom"),),
    "tag-orders": (("tag", ORDERS, "before-migration", "--max-age", "90d"),),
    "tag-events-drop": (("tag", EVENTS, "eom", "--drop"),),
    "upgrade-events": (("upgrade-v3", EVENTS, "--with", "merge-dvs,assign-row-ids"),),
    "merge-upgraded": (TO_V3, ("merge-dvs", EVENTS)),
    "assign-upgraded": (TO_V3, ("assign-row-ids", EVENTS)),
    "assign-upgraded-shared": (TO_V3, ("assign-row-ids", EVENTS, "--share-ids")),
    "delta-vacuum": (("expire-snapshots", VISITS),),
    "delta-vacuum-lite": (("expire-snapshots", VISITS, "--mode", "lite"),),
    "delta-rewrite": (("rewrite-manifests", VISITS, "--compact-log", "0..3"),),
    "delta-rewrite-v2": (("rewrite-manifests", VISITS, "--checkpoint", "v2", "--part-size", "4"),),
    "delta-merge": (("merge-dvs", VISITS, "--min-files", "2", "--target-size", "100"),),
    "delta-upgrade": (("upgrade-v3", VISITS, "--feature", "rowTracking", "--feature", "inCommitTimestamp"),),
    "delta-restore": (("restore", VISITS, "--to", "1"),),
    "delta-assign": (TRACKED, ("assign-row-ids", VISITS, "--batch-size", "2")),
}


ALL_WAYS = ("expire-four", "rewrite-events", "upgrade-four", "delta-vacuum", "delta-merge")


def _all() -> dict[str, list[Command]]:
    found: dict[str, list[Command]] = {}
    tables = {"four": FOUR, "events": EVENTS, "orders": ORDERS, "visits": VISITS}
    for name, table in tables.items():
        views = DELTA_VIEWS if table == VISITS else ICEBERG_VIEWS
        found[f"inspect-{name}"] = [
            *(("inspect", table, *shown) for shown in SHOWN),
            *(("inspect", table, view, "--limit", "2", *shown) for view in views for shown in (JSON, ())),
        ]
        found[f"check-{name}"] = [
            *(("inspect", table, "--check", *shown) for shown in (*SHOWN, ("--deep", *JSON), ("--deep",))),
            *(("upgrade-v3", table, "--check", *shown) for shown in SHOWN),
        ]
        found[f"plan-{name}"] = [
            *(("plan", table, *shown) for shown in SHOWN),
            ("plan", table, "--exit-code", "-q"),
        ]
    found["inspect-events-then"] = [
        ("inspect", EVENTS, "--ref", "audit"),
        ("inspect", EVENTS, "snapshots", "--ref", "audit", "-v"),
        ("inspect", EVENTS, "--at", "2024-10-10T00:00:00Z", *JSON),
        ("inspect", EVENTS, "files", "--ref", "eom", "--limit", "1", "-v"),
        ("inspect", EVENTS, "--recount"),
        ("inspect", f"{FOUR}/metadata/v1.metadata.json", "refs"),
        ("inspect", VISITS, "files", "--version", "1", "--limit", "2"),
        ("inspect", VISITS, "--at", "2024-10-27T00:00:00Z", *JSON),
    ]
    for name, (*before, verb) in VERBS.items():
        dry = [
            *before,
            *((*verb, "--dry-run", *shown) for shown in (JSON, (), ("-v",), ("--exit-code", "-q"))),
        ]
        done: list[Command] = []
        for shown in SHOWN if name in ALL_WAYS else (JSON, ()):
            done += [*([anew] if done else []), *before, (*verb, "--yes", *shown)]
        found[f"verb-{name}"] = [*dry, anew, *done, (*verb, "--yes"), (*verb, "--yes", *JSON)]
    for name, verb in {"four": VERBS["expire-four"][-1], "visits": VERBS["delta-vacuum"][-1]}.items():
        table = verb[1]
        found[f"resume-{name}"] = [
            ("resume", table),
            ("resume", table, *JSON),
            (*verb, "--yes", "--limit-deletes", "1"),
            *(("resume", table, "--list", *shown) for shown in SHOWN),
            ("history", table),
            ("resume", table, "--limit-deletes", "1"),
            ("resume", table, "--limit-deletes", "1", *JSON),
            (*verb, "--dry-run"),
            ("resume", table),
            *(("history", table, *shown) for shown in SHOWN),
            anew,
            (*verb, "--yes", "--limit-deletes", "1", *JSON),
            ("resume", table, *JSON),
            anew,
            (*verb, "--yes", "--limit-deletes", "1", "-q"),
            ("resume", table, "-q"),
            anew,
            (*verb, "--yes", "--limit-deletes", "1", "-v"),
            (*verb, "--yes", "-v"),
        ]
        found[f"abandon-{name}"] = []
        for shown in SHOWN:
            found[f"abandon-{name}"] += [
                anew,
                (*verb, "--yes", "--limit-deletes", "2", "-q"),
                ("resume", table, "--abandon", *shown),
            ]
        saved = ("plan", table, verb[0], "-o", PLAN)
        found[f"apply-{name}"] = [
            saved,
            show_plan,
            *(("apply", PLAN, "--dry-run", *shown) for shown in SHOWN),
            ("apply", PLAN, "--replan"),
            ("apply", PLAN, "--replan", *JSON),
            ("apply", PLAN),
            ("apply", PLAN, "--yes", *JSON),
            ("apply", PLAN, "--yes"),
            anew,
            (*saved, *JSON),
            ("apply", PLAN, "--yes", "-v"),
        ]
    found["grace"] = [
        ("expire-snapshots", FOUR, "--grace", "1h", "--yes"),
        ("resume", FOUR, "--list"),
        ("resume", FOUR),
        ("expire-snapshots", FOUR, "--yes", *JSON),
    ]
    for name, act, command in (
        ("2-usage", None, ("expire-snapshots", FOUR, "--retain-last", "0")),
        ("2-no-option", None, ("merge-dvs", FOUR, "--no-such-option")),
        ("2-foreign-option", None, ("expire-snapshots", VISITS, "--retain-last", "2")),
        ("2-nobody-to-ask", None, ("expire-snapshots", FOUR)),
        ("10-no-table", None, ("inspect", str(ROOT / "nowhere"))),
        ("11-kept-by-owner", keep_all, ("expire-snapshots", FOUR, "--yes")),
        ("11-short-retention", None, ("expire-snapshots", VISITS, "--retention", "1h", "--yes")),
        ("15-cut-off", damage, ("inspect", FOUR)),
        ("15-list-gone", lose_a_list, ("expire-snapshots", FOUR, "--yes")),
        ("not-applicable", None, ("assign-row-ids", EVENTS, "--yes")),
    ):
        found[f"exit-{name}"] = [
            *([act] if act else []), *((*command, *shown) for shown in SHOWN if shown != ("-v",))
        ]  # fmt: skip
    return found


SESSIONS = _all()


TABLES_OF_OTHERS = (
    "03-iceberg-v3-deletion-vectors",
    "04-iceberg-v3-default-values",
    "05-iceberg-v2-equality-deletes",
    "16-iceberg-v3-java-row-lineage/orders",
    "17-iceberg-v2-java-branches-tags-retention/events",
    "18-iceberg-v2-upgraded-v3-posdeletes/parcels",
    "19-iceberg-v1-java-spec-evolution/visits",
    "20-iceberg-v3-java-many-puffins/sensors",
    "21-iceberg-java-statistics-and-gzip-metadata/stock",
)

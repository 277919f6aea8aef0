"""Documents, texts and help of the command line are what they were."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cli.running import iceberg_cli
from tests.golden.commands import (
    EVENTS,
    FOUR,
    ORDERS,
    PLAN,
    ROOT,
    VISITS,
    Command,
    anew,
    as_text,
    damage,
    fixed,
    keep_all,
    lose_a_list,
    show_plan,
    transcript,
)
from tests.golden.comparing import Hold
from tests.paths import FIXTURES, needs_fixtures

COMMANDS = (
    "inspect",
    "plan",
    "expire-snapshots",
    "rewrite-manifests",
    "merge-dvs",
    "upgrade-v3",
    "assign-row-ids",
    "apply",
    "resume",
    "demo",
    "completion",
)
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
            ("resume", table, "--limit-deletes", "1"),
            ("resume", table, "--limit-deletes", "1", *JSON),
            (*verb, "--dry-run"),
            ("resume", table),
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


@pytest.mark.parametrize("name", SESSIONS)
def test_a_command_line_says_what_it_said(name: str, hold: Hold) -> None:
    hold(f"commands/{name}.txt", transcript(SESSIONS[name]))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_what_it_was(command: str, hold: Hold) -> None:
    with fixed():
        ran = iceberg_cli(*([command] if command else []), "--help")
    hold(f"help/{command or 'iceberg-cli'}.txt", as_text(ran))


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


@needs_fixtures
@pytest.mark.parametrize("table", TABLES_OF_OTHERS)
def test_what_is_found_in_tables_of_other_engines_is_what_it_was(table: str, hold: Hold) -> None:
    parts = []
    with fixed():
        for arguments in (("--check", "--deep"), ("snapshots", "--limit", "3"), ()):
            ran = iceberg_cli("inspect", FIXTURES / table, *arguments, *JSON, "--no-cache")
            parts.append(f"$ inspect {table} {' '.join(arguments)}\n{as_text(ran)}")
    name = table.partition("/")[0]
    hold(f"fixtures/{name}.txt", "\n".join(parts).replace(str(FIXTURES), "FIXTURES"))

"""What people see of every command on a terminal of 60, 80, 120 and 200 columns, of either format.

Terminals are looked at by `python -m tests.golden.pictures FOLDER`, which draws these on a dark and on a light ground.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from iceberg_cli.cli.render.inspection import ReadRows, show_findings, show_preflight, show_rows
from iceberg_cli.cli.render.plan import show_plan, show_survey
from iceberg_cli.cli.render.report import show_report
from iceberg_cli.cli.render.screen import Screen
from iceberg_cli.plan.inspection import ID, NUMBER, PATH, SIZE, TIME, Column
from iceberg_cli.plan.plan import Base, Option, Plan, Step, Verdict
from iceberg_cli.plan.report import Report
from tests.builders import DAY_MS
from tests.cli.printed import on_a_terminal, plain, run_on_a_terminal
from tests.cli.running import Ran
from tests.golden.commands import (
    CLOCK_MS,
    DELTA_VIEWS,
    EVENTS,
    FOUR,
    ICEBERG_VIEWS,
    NAMED,
    ORDERS,
    PLAN,
    POLICY,
    ROOT,
    VERBS,
    VISITS,
    Command,
    name_at_length,
    transcript,
)

LOCATION = "s3://lake/warehouse/sales"
METADATA = f"{LOCATION}/orders/metadata/00042-4f1c0d9e-8e6b-4d7c-9c53-2f8f1b5b2a11.metadata.json"
FIRST_ID = 2**53 + 1  # beyond what JSON readers keep whole
WIDTHS = (60, 80, 120, 200)
NUMBERS = (0, 1, 3, 10_000)


def _sessions() -> Iterator[tuple[str, list[Command]]]:
    for name, table, views in (
        ("events", EVENTS, ICEBERG_VIEWS),
        ("orders", ORDERS, ICEBERG_VIEWS),
        ("visits", VISITS, DELTA_VIEWS),
    ):
        yield f"inspect-{name}", [("inspect", table)]
        yield f"views-{name}", [("inspect", table, view, "--limit", "3") for view in views]
        yield f"plan-{name}", [("plan", table)]
        yield f"check-{name}", [("inspect", table, "--check"), ("upgrade-v3", table, "--check")]
    for name, table, before in (
        ("events", EVENTS, "audit"),
        ("orders", ORDERS, "closed"),
        ("visits", VISITS, "1"),
    ):
        difference = ("inspect", table, "diff", before)
        yield f"diff-{name}", [difference, (*difference, "--by-partition", "--limit", "3")]
    yield "sample", [("inspect", table, "sample", "--limit", "3") for table in (EVENTS, ORDERS)]
    yield (
        "views-verbose",
        [("inspect", ORDERS, view, "--limit", "1", "-v") for view in ("snapshots", "files", "manifests")],
    )
    for name, (*before, verb) in VERBS.items():
        yield f"verb-{name}", [*before, (*verb, "--dry-run")]
    for name, verb in {"four": VERBS["expire-four"][-1], "visits": VERBS["delta-vacuum"][-1]}.items():
        yield f"done-{name}", [(*verb, "--yes"), (*verb, "--yes")]
        yield (
            f"resume-{name}",
            [
                ("resume", verb[1], "--list"),
                (*verb, "--yes", "--limit-deletes", "1", "-q"),
                ("resume", verb[1], "--list"),
                ("resume", verb[1]),
            ],
        )
        yield f"abandon-{name}", [
            (*verb, "--yes", "--limit-deletes", "1", "-q"), ("resume", verb[1], "--abandon"),
        ]  # fmt: skip
        yield (
            f"apply-{name}",
            [
                ("plan", verb[1], verb[0], "-o", PLAN),
                ("apply", PLAN, "--replan"),
                ("apply", PLAN, "--yes"),
            ],
        )
    yield (
        "errors",
        [
            ("expire-snapshots", FOUR, "--retain-last", "0"),
            ("expire-snapshots", VISITS, "--retain-last", "2"),
            ("expire-snapshots", FOUR),
            ("inspect", str(ROOT / "nowhere")),
            ("inspect", FOUR, "snapshot"),
        ],
    )
    yield (
        "names",
        [
            name_at_length,
            ("list", NAMED),
            ("survey", NAMED, "--no-cache"),
            ("maintain", NAMED, "--policy", POLICY, "--dry-run", "--no-cache"),
            (
                "maintain",
                NAMED,
                "--policy",
                POLICY,
                "--yes",
                "--limit-deletes",
                "2",
                "--jobs",
                "1",
                "--no-cache",
            ),
            ("resume", NAMED, "--list"),
        ],
    )
    yield "config", [("config", "show"), ("config", "show", "resume", "-v")]


SESSIONS = dict(_sessions())


def session(name: str, width: int) -> str:
    """A session on a terminal so wide."""
    return transcript(SESSIONS[name], partial(_run, width))


def _run(width: int, *arguments: object) -> Ran:
    ran = run_on_a_terminal(width, *arguments)
    return Ran(ran.code, plain(ran.out), plain(ran.err))


# -- of so many rows -------------------------------------------------------------------------------------------


def screen_of(kind: str, number: int, width: int) -> str:
    """A screen of so many rows, on a terminal so wide."""
    return on_a_terminal(width, partial(SCREENS[kind], number), as_of_ms=CLOCK_MS)


def _iceberg_plan(screen: Screen, number: int) -> None:
    show_plan(screen, _plan("expire-snapshots", "iceberg", _snapshots(number)))


def _delta_plan(screen: Screen, number: int) -> None:
    paths = (f"deletion_vector_{index:08}-0000-4000-8000-000000000000.bin" for index in range(number))
    verdicts = (
        Verdict(
            subject="deletion-vector-file", id=f"/lake/visits/{path}", keep=index % 3 == 2, gist="small",
            reason=f"small: {index:,} vectors in {index * 1_000:,} bytes, 0 of them dead",
        )
        for index, path in enumerate(paths)
    )  # fmt: skip
    show_plan(screen, _plan("merge-dvs", "delta", verdicts))


def _snapshots(number: int) -> Iterator[Verdict]:
    for index in range(number):
        keep, gist = index % 4 == 1, "older than the cut-off"
        yield Verdict(
            subject="snapshot",
            id=str(FIRST_ID + index),
            keep=keep,
            timestamp_ms=CLOCK_MS - index * DAY_MS,
            reason=f"kept: tag release_{index}" if keep else f"expires: {index} d old, {gist} (default)",
            gist="" if keep else gist,
        )


def _plan(verb: str, format_: str, verdicts: Iterable[Verdict]) -> Plan:
    found = tuple(verdicts)
    is_delta, number = format_ == "delta", len(found)
    cutoff = Option(value=CLOCK_MS - 5 * DAY_MS, source="table property history.expire.max-snapshot-age-ms")
    return Plan(
        verb=verb,
        table={
            "name": "prod.sales.visits" if is_delta else "prod.sales.orders",
            "location": f"{LOCATION}/{format_}",
            "format": format_,
            "format_version": 7 if is_delta else 2,
        },
        base=Base(table_uuid="u", version="42" if is_delta else METADATA),
        as_of_ms=CLOCK_MS,
        options={} if is_delta else {"older_than_ms": cutoff},
        policy={},
        verdicts=found,
        warnings=("the cut-off is only 5 d old; readers may still use what expires",) if number == 1 else (),
        blocked_by=("gc.enabled=false: another table may use these files",) if number == 3 else (),
        steps=(Step(name="expire"),) if found else (),
    )


def _survey(screen: Screen, number: int) -> None:
    plans = [_plan("expire-snapshots", "iceberg", _snapshots(min(number, 3))) for _ in range(min(number, 5))]
    show_survey(screen, plans, ["iceberg-cli expire-snapshots prod.sales.orders"] * len(plans))


def _rows(screen: Screen, number: int) -> None:
    columns = (
        Column("committed at", "at", TIME), Column("snapshot", "id", ID), Column("parent", "parent", ID, leaves=2),
        Column("operation", "operation", ID), Column("records", "records", NUMBER), Column("size", "size", SIZE),
        Column("partition", "partition"), Column("manifest list", "path", PATH, leaves=1),
    )  # fmt: skip
    rows = [
        {
            "at": CLOCK_MS - index * DAY_MS,
            "id": str(FIRST_ID + index),
            "parent": str(FIRST_ID + index - 1),
            "operation": ("append", "overwrite")[index % 2],
            "records": 10 ** (index % 10),
            "size": 3 ** (index % 30),
            "partition": ("city=東京/day=2024-10-01", "city=القاهرة", "null")[index % 3],
            "path": f"s3://lake/t/metadata/snap-{FIRST_ID + index}-1-a7dc6ed0-050e-5a36-912d-e1438efe74df.avro",
        }
        for index in range(min(number, 50))
    ]
    shown = ReadRows(columns, rows, total=min(number, 50), more=number > 50, head={})
    show_rows(screen, shown, location="s3://lake/t")


def _findings(screen: Screen, number: int) -> None:
    rows = [
        {
            "id": ("file-size-differs", "parquet-unreadable")[index % 2],
            "severity": "error",
            "section": "Data File Fields",
            "where": f"{LOCATION}/orders/data/{index:05}-0-4f1c0d9e.parquet",
            "message": f"the file has {index} bytes, its manifest says 100",
            "remedy": "Restore the file from a backup, or roll back to a snapshot without it.",
        }
        for index in range(min(number, 20))
    ]
    rows.sort(key=lambda row: row["id"])
    document = {
        "table": {"name": "prod.sales.orders"}, "deep": False, "checked": {"snapshots": 1, "files": number},
        "counts": {"error": number, "warning": 0, "info": 0}, "findings": rows,
        "left_out": {"parquet-unreadable": number - 20} if number > 20 else {},
    }  # fmt: skip
    show_findings(screen, document, deep_reads="opens Puffin and Parquet files too")


def _preflight(screen: Screen, number: int) -> None:
    show_preflight(
        screen,
        [
            {
                "id": "writer-lacks-v3", "severity": "blocking", "where": f"writer {index}",
                "message": "wrote the last snapshot with a library that cannot read version 3",
                "remedy": "iceberg-cli inspect prod.sales.orders snapshots",
            }
            for index in range(number)
        ],
    )  # fmt: skip


def _report(screen: Screen, number: int) -> None:
    failures = (
        {"path": f"{LOCATION}/data/{index}.parquet", "reason": "access denied"} for index in range(number)
    )
    report = Report(
        verb="expire-snapshots",
        operation_id="018f3a52-9f1c-7c3e-8f5e-4f1c0d9e8e6b",
        status="partial" if number else "done",
        metadata_location=METADATA,
        counts={"deleted_data_files_count": 1_204, "deleted_manifest_lists_count": 15},
        reclaimed_bytes=73_000_000_000,
        failed_deletes=tuple(failures),
        duration_ms=83_000,
    )
    show_report(screen, report, "prod.sales.orders")


SCREENS: dict[str, Callable[[int, Screen], None]] = {
    name: lambda number, screen, show=show: show(screen, number)  # type: ignore[misc]
    for name, show in {
        "plan-iceberg": _iceberg_plan,
        "plan-delta": _delta_plan,
        "survey": _survey,
        "rows": _rows,
        "findings": _findings,
        "preflight": _preflight,
        "report": _report,
    }.items()
}

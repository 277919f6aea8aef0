"""A program that uses the package as its pages say: mypy reads it with every check, and a test runs it.

What it must not do stands in `refused`, which nothing calls: mypy has to find each of these.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

import iceberg_cli as ic


def look(folder: str, as_of: datetime) -> int:
    """Survey the tables below a folder, and look at each; how many files can be freed."""
    tables = ic.list_tables(f"{folder}/**")
    assert_type(tables, ic.TableListing)
    survey = ic.survey(tables, sort="name", as_of=as_of)
    assert_type(survey, ic.SurveyResult)
    for each in survey:
        assert_type(each.name, str)
        assert_type(each.is_due, bool)
    assert_type(survey[0].freed_bytes, int)
    assert_type(survey.exit_code, int)
    files = 0
    for listed in tables:
        assert_type(listed, ic.ListedTable)
        table = ic.open_table(listed.name)
        assert_type(table, ic.Table)
        plan = table.plan(ic.iceberg.ExpireSnapshots(older_than=timedelta(days=1), grace=timedelta(hours=1)))
        assert_type(plan, ic.Plan)
        files += len(plan.removals)
        assert_type(len(table.inspect("files", at="1h")), int)
        assert_type(table.check(as_of=timedelta(hours=1)).errors, int)
    return files


def keep_up(policy_file: str) -> list[str]:
    """Maintain by a policy file what is due; what came of it."""
    policy = ic.Policy.load(policy_file)
    assert_type(policy, ic.Policy)
    result = ic.maintain(
        policy=policy, deadline=timedelta(hours=1), max_bytes="1TiB", only=["expire-snapshots"]
    )
    assert_type(result, ic.MaintenanceResult)
    return [f"{run.name} {run.verb}: {run.status}" for run in result]


def carry_out(folder: str) -> str:
    """Expire by texts, with a bound; the status."""
    table = ic.open_table(folder, engine=ic.EngineChoice(engine="local"))
    runtime = ic.new_runtime(limit_deletes=1_000, deadline="2h", allowance=ic.DeletionAllowance(files=1_000))
    assert_type(runtime, ic.Runtime)
    try:
        report = table.apply(table.plan(ic.iceberg.ExpireSnapshots(older_than="1d")), runtime=runtime)
    except ic.errors.IcebergCliError as error:
        assert_type(error.exit_code, int)
        raise
    assert_type(report, ic.Report)
    return report.status


def refused(table: ic.Table) -> None:
    """What is no use of the package."""
    ic.open_table(5)  # type: ignore[arg-type]
    ic.maintain("prod")  # type: ignore[call-arg]
    ic.maintain(policy=7)  # type: ignore[arg-type]
    ic.survey(as_of=1.5)  # type: ignore[arg-type]
    ic.iceberg.ExpireSnapshots(older_then="7d")  # type: ignore[call-arg]
    ic.iceberg.ExpireSnapshots(older_than=[])  # type: ignore[arg-type]
    ic.delta.ExpireSnapshots(retention=datetime(2026, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]
    table.plan("expire-snapshots")  # type: ignore[arg-type]
    table.inspect(as_of_ms=0)  # type: ignore[call-arg]
    ic.nothing  # type: ignore[attr-defined]  # noqa: B018
    ic.iceberg.Nothing()  # type: ignore[attr-defined]

"""Maintain every table that a policy file matches, each in a task of its own, every night: a DAG of Airflow 3.

Airflow's environment needs iceberg-cli with the extras of your catalog and storage, and its workers the policy file.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

RETRIED = {12, 13, 14, 16}  # a conflict, an unknown outcome, something left open, no answer
# Airflow maps a task at most [core] max_map_length times, 1,024 by default: more tables than these share tasks.
MOST_TASKS = 1_000
DEADLINE = timedelta(hours=3)
log = logging.getLogger(__name__)


@dag(
    schedule="30 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={"policy": "/etc/iceberg-cli/policy.toml"},
    default_args={"retries": 3, "retry_delay": timedelta(minutes=15)},
)
def maintain_tables() -> None:
    """List the tables, maintain each, and fail where some could not be listed."""

    @task
    def find(params: Any = None, ti: Any = None) -> list[list[dict[str, Any]]]:
        import iceberg_cli as ic

        try:
            found = ic.list_tables(policy=ic.Policy.load(params["policy"]))
        except ic.errors.UsageError as error:
            raise AirflowFailException(error.message) from error
        errors = [error for _, error in found.failed]
        if any(error.exit_code in RETRIED for error in errors) and ti.try_number <= ti.max_tries:
            raise AirflowException("; ".join(error.message for error in errors))
        ti.xcom_push("errors", [error.message for error in errors])
        tables = [table.to_json() for table in found]
        return [tables[first::MOST_TASKS] for first in range(min(len(tables), MOST_TASKS))]

    @task(max_active_tis_per_dagrun=4, map_index_template="{{ tables }}")
    def maintain(group: list[dict[str, Any]], params: Any = None) -> None:
        import iceberg_cli as ic

        get_current_context()["tables"] = ", ".join(table["name"] for table in group)
        # First it settles what an earlier run or try left open: so 13 and 14 are mended by another try.
        runs = ic.maintain(
            [ic.ListedTable.from_json(table) for table in group],
            policy=ic.Policy.load(params["policy"]),
            deadline=DEADLINE,
            jobs=1,
        )
        for run in runs:
            log.info("%s %s %s %s %s", run.name, run.verb or "", run.status, run.reason, run.traceback)
        failed = [run for run in runs if run.exit_code]
        reasons = "; ".join(f"{run.name}: {run.reason} ({run.exit_code})" for run in failed)
        if any(run.exit_code in RETRIED for run in failed):
            raise AirflowException(reasons)
        if failed:  # 2, 10, 11: nothing changes by itself; 1, 15: call somebody
            raise AirflowFailException(reasons)
        if all(run.status == "skipped" for run in runs):
            raise AirflowSkipException("; ".join(run.reason for run in runs))

    @task(retries=0)
    def check(errors: list[str]) -> None:
        if errors:
            raise AirflowFailException("; ".join(errors))

    groups = find()
    maintain.expand(group=groups)
    check(groups["errors"])


maintain_tables()

"""Maintain every table that a policy file matches, each in an op of its own, every night: a job of Dagster.

Dagster's environment needs iceberg-cli with the extras of your catalog and storage, and the policy file.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg

import iceberg_cli as ic

RETRIED = {12, 13, 14, 16}  # a conflict, an unknown outcome, something left open, no answer
TRIES = 3
WAIT_S = 900
DEADLINE = timedelta(hours=3)


class Settings(dg.ConfigurableResource):
    """What both ops need."""

    policy: str = "/etc/iceberg-cli/policy.toml"


@dg.op(out={"tables": dg.DynamicOut(dict), "errors": dg.Out(list)})
def find(context: dg.OpExecutionContext, settings: Settings) -> Iterator[Any]:
    """List the tables, and tell of places that could not be listed and of patterns that match no table."""
    try:
        found = ic.list_tables(policy=ic.Policy.load(settings.policy))
    except ic.errors.UsageError as error:
        raise dg.Failure(error.message, allow_retries=False) from error
    errors = [error for _, error in found.failed]
    if any(error.exit_code in RETRIED for error in errors) and context.retry_number < TRIES:
        raise dg.RetryRequested(max_retries=TRIES, seconds_to_wait=WAIT_S)
    for number, table in enumerate(found):
        key = f"{number}_{re.sub(r'[^A-Za-z0-9]', '_', table.name)}"
        yield dg.DynamicOutput(table.to_json(), mapping_key=key, output_name="tables")
    yield dg.Output([error.message for error in errors], output_name="errors")


@dg.op(pool="iceberg-cli")  # `dagster instance concurrency set iceberg-cli 4`: so many tables side by side
def maintain(context: dg.OpExecutionContext, settings: Settings, table: dict) -> None:
    """Settle what an earlier run or try left open, then run every due verb."""
    runs = ic.maintain(
        ic.ListedTable.from_json(table),
        policy=ic.Policy.load(settings.policy),
        deadline=DEADLINE,
        jobs=1,
    )
    for run in runs:
        context.log.info(" ".join(filter(None, (run.name, run.verb, run.status, run.reason, run.traceback))))
    failed = [run for run in runs if run.exit_code]
    failure = dg.Failure("; ".join(f"{run.reason} ({run.exit_code})" for run in failed), allow_retries=False)
    if any(run.exit_code in RETRIED for run in failed):
        raise dg.RetryRequested(max_retries=TRIES, seconds_to_wait=WAIT_S) from failure
    if failed:  # 2, 10, 11: nothing changes by itself; 1, 15: call somebody
        raise failure


@dg.op
def check(errors: list) -> None:
    """Fail where some tables could not be listed: those that could are maintained all the same."""
    if errors:
        raise dg.Failure("; ".join(errors), allow_retries=False)


@dg.job(resource_defs={"settings": Settings()})
def maintain_tables() -> None:
    """List the tables, and maintain each."""
    tables, errors = find()
    tables.map(maintain)
    check(errors)


definitions = dg.Definitions(
    jobs=[maintain_tables],
    schedules=[
        dg.ScheduleDefinition(job=maintain_tables, cron_schedule="30 1 * * *", execution_timezone="UTC")
    ],
)

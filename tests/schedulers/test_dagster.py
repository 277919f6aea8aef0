"""The job, run by `execute_in_process` of Dagster: an op for each table, tried again only where that can help."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.paths import ROOT
from tests.schedulers import run_dagster
from tests.schedulers.environments import DAGSTER, python_of
from tests.schedulers.machine import (
    RETRIED,
    Machine,
    add_trouble,
    assert_maintained,
    machine,
    open_operations,
    state,
)

__all__ = ["machine"]

pytestmark = pytest.mark.deep


def job_run(machine: Machine) -> dict[str, Any]:
    """Run the job; what came of it."""
    text = machine.example("dagster_job.py").replace("WAIT_S = 900", "WAIT_S = 0")
    assert f"RETRIED = {{{', '.join(map(str, sorted(RETRIED)))}}}" in text
    file = machine.root / "dagster_job.py"
    file.write_text(text)
    ran = machine.run(
        [str(python_of(DAGSTER)), run_dagster.__file__, str(file), str(machine.policy)],
        {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def ops(run: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """How each op ended, and how often it was tried; ops of tables by the table's name."""
    names = {key: key.partition("_")[2].strip("]") if "[" in key else key for key in run["ops"]}
    return {names[key]: (each["state"], each["tries"]) for key, each in run["ops"].items()}


DONE = ("STEP_SUCCESS", 1)
TABLES = dict.fromkeys(
    [f"prod_{namespace}_{table}" for namespace in ("legal", "sales") for table in ("events", "orders")], DONE
)


def test_every_table_is_maintained_in_an_op_of_its_own(machine: Machine) -> None:
    before = state(machine)
    run = job_run(machine)
    assert run["success"]
    assert ops(run) == {"find": DONE, "check": DONE} | TABLES
    assert_maintained(machine, before)


def test_trouble_is_tried_again_only_where_that_helps_and_stops_no_other_table(machine: Machine) -> None:
    before = state(machine)
    add_trouble(machine)
    run = job_run(machine)
    assert not run["success"]
    failures = {"prod_sales_away": ("STEP_FAILURE", 4), "prod_sales_broken": ("STEP_FAILURE", 1)}
    failures["check"] = ("STEP_FAILURE", 1)  # some tables may not be listed
    listing = {"find": ("STEP_SUCCESS", 4)}  # a catalog does not answer
    assert ops(run) == listing | TABLES | failures
    assert open_operations(machine) == 0
    assert_maintained(machine, before)


def test_policy_file_with_a_mistake_fails_at_once(machine: Machine) -> None:
    machine.policy.write_text("version = 2\n")
    assert ops(job_run(machine)) == {"find": ("STEP_FAILURE", 1)}

"""The DAG, run by `dag.test()` of Airflow: a task for each table, tried again only where that can help."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.paths import ROOT
from tests.schedulers import run_airflow
from tests.schedulers.environments import AIRFLOW, python_of
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

MAINTENANCE = [
    ("prod.legal.events", "skipped", 1),
    ("prod.legal.orders", "skipped", 1),
    ("prod.sales.events", "success", 1),
    ("prod.sales.orders", "success", 1),
]


class Airflow(NamedTuple):
    """Airflow with a database of its own."""

    python: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }

    def run(self, machine: Machine, **replaced: str) -> dict[str, Any]:
        """Run the DAG; what came of it.

        Args:
            machine: with the tables.
            replaced: values of names that the DAG's file assigns.
        """
        text = machine.example("airflow_dag.py").replace("minutes=15", "seconds=0")
        assert f"RETRIED = {{{', '.join(map(str, sorted(RETRIED)))}}}" in text
        for name, value in replaced.items():
            [line] = [line for line in text.splitlines() if line.startswith(f"{name} = ")]
            text = text.replace(line, f"{name} = {value}")
        file = self.home / "dags" / "airflow_dag.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        command = [str(self.python), run_airflow.__file__, str(file), str(machine.policy)]
        ran = machine.run(command, self.environment)
        assert ran.code == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """Airflow with a new SQLite database."""
    made = Airflow(python_of(AIRFLOW), tmp_path_factory.mktemp("airflow"))
    command = [made.python.parent / "airflow", "db", "migrate"]
    subprocess.run(command, env=made.environment, capture_output=True, check=True)
    return made


def tasks(run: dict[str, Any], name: str) -> list[tuple[str, str, int]]:
    """The tables, state and tries of each task of a name."""
    return sorted(
        (each["name"], each["state"], each["tries"]) for each in run["tasks"] if each["task"] == name
    )


def test_trouble_is_tried_again_only_where_that_helps_and_stops_no_other_table(
    airflow: Airflow, machine: Machine
) -> None:
    before = state(machine)
    add_trouble(machine)
    run = airflow.run(machine)
    assert run["state"] == "failed"
    assert tasks(run, "maintain") == sorted(
        [*MAINTENANCE, ("prod.sales.away", "failed", 4), ("prod.sales.broken", "failed", 1)]
    )
    assert tasks(run, "find") == [(None, "success", 4)], "a catalog does not answer"
    assert tasks(run, "check") == [(None, "failed", 1)], "some tables may not be listed"
    assert open_operations(machine) == 0
    assert_maintained(machine, before)


def test_more_tables_than_tasks_share_them(airflow: Airflow, machine: Machine) -> None:
    before = state(machine)
    run = airflow.run(machine, MOST_TASKS="3")
    assert run["state"] == "success"
    assert [(name, state) for name, state, _ in tasks(run, "maintain")] == [
        ("prod.legal.events, prod.sales.orders", "success"),
        ("prod.legal.orders", "skipped"),
        ("prod.sales.events", "success"),
    ]
    assert_maintained(machine, before)


def test_policy_file_with_a_mistake_fails_at_once(airflow: Airflow, machine: Machine) -> None:
    machine.policy.write_text("version = 2\n")
    run = airflow.run(machine)
    assert tasks(run, "find") == [(None, "failed", 1)]
    assert run["state"] == "failed"


def test_packages_of_its_environment_fit_together(airflow: Airflow) -> None:
    command = [airflow.python, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

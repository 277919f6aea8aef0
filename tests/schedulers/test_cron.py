"""The crontab is one that cron takes, and its command does its work in the environment that cron gives it."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime
from itertools import islice

import pytest
from cronsim import CronSim

from tests.schedulers.machine import EXAMPLES, Machine, assert_maintained, machine, program_of, state

__all__ = ["machine"]

CRONTAB = EXAMPLES / "crontab"
# crontab(5): what cron sets before the lines of the crontab do.
OF_CRON = {"SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "LOGNAME": "iceberg-cli"}


def settings_and_jobs(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The variables that a crontab sets, and its jobs: the five fields of time, and the command."""
    settings: dict[str, str] = {}
    jobs = []
    for line in text.splitlines():
        if setting := re.fullmatch(r"(\w+)\s*=\s*(.*)", line):
            settings[setting[1]] = setting[2]
        elif line and not line.startswith("#"):
            fields = line.split(maxsplit=5)
            jobs.append((" ".join(fields[:5]), fields[5]))
    return settings, jobs


def test_cron_takes_the_crontab() -> None:
    crontab = program_of("crontab", "cron")
    usage = subprocess.run([crontab, "-h"], capture_output=True, text=True, check=False)
    # Elsewhere -n is another option, and the file would become the crontab of whoever runs this.
    if "dry run" not in usage.stdout + usage.stderr:
        pytest.skip("this crontab only installs files: it cannot check one")
    done = subprocess.run([crontab, "-n", str(CRONTAB)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_runs_once_a_night() -> None:
    [(time, _)] = settings_and_jobs(CRONTAB.read_text())[1]
    next_three = islice(CronSim(time, datetime(2026, 12, 30, 12, 0, tzinfo=UTC)), 3)
    assert [each.isoformat() for each in next_three] == [
        "2026-12-31T01:30:00+00:00",
        "2027-01-01T01:30:00+00:00",
        "2027-01-02T01:30:00+00:00",
    ]


def test_its_command_maintains_the_tables_and_prints_nothing(machine: Machine) -> None:
    before = state(machine)
    settings, [(_, command)] = settings_and_jobs(machine.example("crontab"))
    assert "%" not in command, "cron makes a new line of it"
    shell = shutil.which(settings["SHELL"])
    assert shell is not None
    ran = machine.run([shell, "-c", command], OF_CRON | settings)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert_maintained(machine, before)

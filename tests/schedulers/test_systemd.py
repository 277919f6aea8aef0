"""The units are ones that systemd takes, and ExecStart does its work in the environment that the unit gives it."""

from __future__ import annotations

import shlex
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.schedulers.machine import (
    EXAMPLES,
    FOR_PEOPLE,
    RETRIED,
    Machine,
    assert_maintained,
    bare_machine,
    machine,
    program_of,
    state,
)

__all__ = ["bare_machine", "machine"]

UNIT = "iceberg-cli-maintain"
# systemd.exec(5): what a system service has without settings of its own.
OF_SYSTEMD = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def settings(unit: str) -> dict[str, list[str]]:
    """The values of each setting of a unit, in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.replace("\\\n", " ").splitlines():
        if "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found[name].append(value)
    return dict(found)


def verify(*units: Path) -> tuple[int, str]:
    """`systemd-analyze verify`, without a look for the manual pages of units."""
    done = subprocess.run(
        [program_of("systemd-analyze", "systemd"), "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_systemd_takes_the_units(bare_machine: Machine) -> None:
    units = [bare_machine.root / f"{UNIT}.{kind}" for kind in ("service", "timer")]
    for unit in units:
        unit.write_text(bare_machine.example(unit.name))
    assert verify(*units) == (0, "")
    units[0].write_text(bare_machine.example(units[0].name).replace("Restart=on-failure", "Restart=always"))
    assert verify(*units)[0] != 0, "a unit that systemd refuses is noticed"


def test_it_runs_once_a_night() -> None:
    [when] = settings((EXAMPLES / f"{UNIT}.timer").read_text())["OnCalendar"]
    analyze = [program_of("systemd-analyze", "systemd"), "calendar", "--iterations=2", f"{when} UTC"]
    analyze.insert(2, "--base-time=2026-12-30 12:00:00 UTC")
    done = subprocess.run(analyze, capture_output=True, text=True, check=True)
    assert "2026-12-31 01:30:00 UTC" in done.stdout
    assert "2027-01-01 01:30:00 UTC" in done.stdout


def test_it_starts_again_only_where_that_can_help() -> None:
    unit = settings((EXAMPLES / f"{UNIT}.service").read_text())
    prevented = {int(code) for code in unit["RestartPreventExitStatus"][0].split()}
    assert unit["Restart"] == ["on-failure"]
    assert prevented == FOR_PEOPLE
    assert not prevented & RETRIED


@pytest.mark.deep  # the command of the crontab is alike
def test_exec_start_maintains_the_tables(machine: Machine) -> None:
    before = state(machine)
    unit = settings(machine.example(f"{UNIT}.service"))
    [command] = unit["ExecStart"]
    assert not {"%", "$"} & {*command}, "systemd would replace what follows"
    environment = dict(each.split("=", 1) for each in unit["Environment"])
    assert environment == {"XDG_CACHE_HOME": "/var/cache"}
    assert unit["CacheDirectory"] == ["iceberg-cli"], "below /var/cache, for the unit's user"
    cache = machine.root / "cache"
    ran = machine.run(shlex.split(command), OF_SYSTEMD | {"XDG_CACHE_HOME": str(cache)})
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (cache / "iceberg-cli").is_dir()
    assert_maintained(machine, before)

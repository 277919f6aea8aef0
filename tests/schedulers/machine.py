"""A machine as the examples expect it: the program, a policy file, and a catalog with tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ran, iceberg_cli
from tests.paths import ROOT
from tests.spark_settings import Missing

EXAMPLES = ROOT / "docs" / "pages" / "examples"
RETRIED = {12, 13, 14, 16}  # conflict, unknown outcome, something left open, no answer
FOR_PEOPLE = {1, 2, 10, 11, 15, 141}  # nothing changes by itself
_PROGRAM = "/opt/iceberg-cli"
_SETTINGS = "/etc/iceberg-cli"


@dataclass(frozen=True)
class Machine:
    """The folders that examples name, below a folder of the test's.

    `prod.sales.events` and `prod.sales.orders` are maintained, `prod.legal.events` and `prod.legal.orders` are held.
    """

    root: Path

    @property
    def home(self) -> Path:
        """The home of the user that runs maintenance."""
        return self.root / "home"

    @property
    def policy(self) -> Path:
        """The policy file."""
        return self.root / "etc" / "policy.toml"

    def example(self, name: str) -> str:
        """The text of an example, with the folders of this machine."""
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        return text.replace(_PROGRAM, f"{self.root}/opt").replace(_SETTINGS, f"{self.root}/etc")

    def run(self, command: list[str], environment: Mapping[str, str]) -> Ran:
        """Run a command with this environment and no other variable."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env={"HOME": str(self.home), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def uri(self) -> str:
        """Of the catalog's database."""
        return f"sqlite:///{self.root}/catalog.db"

    def catalog(self) -> Any:
        """The catalog `prod`, as PyIceberg has it."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("prod", uri=self.uri)

    def register(self, name: str, table: Path) -> Path:
        """Have the catalog name the table of a folder; the path of its metadata."""
        version = (table / "metadata" / "version-hint.text").read_text().strip()
        metadata = table / "metadata" / f"v{version}.metadata.json"
        self.catalog().register_table(name, str(metadata))
        return metadata

    def table(self, name: str) -> Any:
        """A table, as PyIceberg reads it."""
        return self.catalog().load_table(name)

    def snapshots(self, name: str) -> int:
        """How many snapshots a table has, as PyIceberg reads it."""
        return len(self.table(name).snapshots())

    def rows(self, name: str) -> list[Any]:
        """The rows of a table, as PyIceberg reads them."""
        rows = self.table(name).scan().to_arrow()
        found: list[Any] = rows.sort_by([(column, "ascending") for column in rows.column_names]).to_pylist()
        return found


def make_bare_machine(root: Path) -> Machine:
    """A machine with the program, a policy file, and a catalog without tables."""
    made = Machine(root)
    for folder in ("home", "etc", "opt/bin"):
        (root / folder).mkdir(parents=True)
    program = root / "opt" / "bin" / "iceberg-cli"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m iceberg_cli "$@"\n')
    program.chmod(0o755)
    shutil.copy(EXAMPLES / "policy.toml", made.policy)
    (made.home / ".pyiceberg.yaml").write_text(f"catalog:\n  prod:\n    type: sql\n    uri: {made.uri}\n")
    return made


def make_machine(root: Path) -> Machine:
    """A machine with tables of `iceberg-cli demo`."""
    made = make_bare_machine(root)
    for namespace in ("sales", "legal"):
        made.catalog().create_namespace(namespace)
        assert iceberg_cli("demo", root / namespace, "--quiet").code == 0
        for table in ("events", "orders"):
            made.register(f"{namespace}.{table}", root / namespace / "db" / table)
    return made


@pytest.fixture
def bare_machine(tmp_path: Path) -> Machine:
    """A machine without tables."""
    return make_bare_machine(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which every table has something due."""
    return make_machine(tmp_path)


def add_trouble(machine: Machine) -> None:
    """What schedulers have to deal with beside the tables of a machine.

    Of `prod.sales.orders` an earlier run left an expiry that is not finished; `prod.sales.broken` has metadata that is
    cut off, which is 15; the disk does not give that of `prod.sales.away`, which is 16. The policy file
    names a namespace that is not there, too, and a catalog whose database is not, which is 16.
    """
    bounded = ["expire-snapshots", "prod.sales.orders", "--yes", "--quiet", "--limit-deletes", "1"]
    left = machine.run([f"{machine.root}/opt/bin/iceberg-cli", *bounded], {"PATH": "/usr/bin:/bin"})
    assert left.code == 0, left.err
    assert open_operations(machine) == 1
    assert iceberg_cli("demo", machine.root / "trouble", "--quiet").code == 0
    tables = machine.root / "trouble" / "db"
    broken = machine.register("sales.broken", tables / "events")
    broken.write_text(broken.read_text()[:200])
    away = machine.register("sales.away", tables / "orders")
    away.unlink()
    away.symlink_to(away.name)
    with machine.policy.open("a") as policy:
        policy.write('\n[[tables]]\nmatch = ["prod.nowhere.*", "away.*.*"]\n')
    with (machine.home / ".pyiceberg.yaml").open("a") as catalogs:
        catalogs.write(f"  away:\n    type: sql\n    uri: sqlite:///{machine.root}/away/catalog.db\n")


def open_operations(machine: Machine) -> int:
    """How many operations of `prod.sales.orders` are open."""
    table = machine.root / "sales" / "db" / "orders"
    listed = machine.run(
        [f"{machine.root}/opt/bin/iceberg-cli", "resume", str(table), "--list", "--format", "json"],
        {"PATH": "/usr/bin:/bin"},
    )
    return len(listed.json["operations"])


def assert_maintained(machine: Machine, before: Mapping[str, Any]) -> None:
    """What the policy file asks for is done, nothing else, and no row is lost.

    Args:
        machine: after maintenance.
        before: what `state` was before.
    """
    after = state(machine)
    assert after["rows"] == before["rows"]
    assert after["held"] == before["held"]
    for name, snapshots in after["snapshots"].items():
        assert snapshots < before["snapshots"][name], name


def state(machine: Machine) -> dict[str, Any]:
    """What maintenance may change and what not."""
    names = ("sales.events", "sales.orders")
    held = machine.root / "legal"
    return {
        "rows": machine.rows("sales.events"),
        "snapshots": {name: machine.snapshots(name) for name in names},
        "held": sorted(str(path) for path in held.rglob("*") if ".pyiceberg" not in path.name),
    }


def program_of(name: str, package: str) -> str:
    """A program of the system, or of the environment of the tests, that reads an example.

    Raises:
        Missing: it is not there.
    """
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        raise Missing(f"{name} is not here: it is of the package {package}")
    return found

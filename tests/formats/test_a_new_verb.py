"""A verb that one format has: its folder and its name in that format's registry are all that it takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lakes import AS_OF, FolderTable, delta_with_removed_files
from tests.cli.running import Ran, process
from tests.paths import ROOT

VERB = "regroup-manifests"
POLICY = '''
"""regroup-manifests on an Iceberg table: the policy."""

from dataclasses import dataclass
from typing import ClassVar

from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.plan.policy import Switch, option
from iceberg_cli.plan.verb_place import VerbPlace


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RegroupManifests(RewriteManifests):
    """The options of regroup-manifests."""

    verb: ClassVar[str] = "regroup-manifests"
    place: ClassVar = VerbPlace(order=7)
    about: ClassVar[str] = """Write manifests as large as they should be."""
    examples: ClassVar = (("Every manifest:", "regroup-manifests prod.sales.orders --twice"),)

    twice: bool = option(Switch(), "Look at the result again.", default=False)


POLICY = RegroupManifests
'''
PLAN = '''
"""regroup-manifests: the plan."""

from iceberg_cli.iceberg.verbs.regroup_manifests.policy import POLICY
from iceberg_cli.iceberg.verbs.rewrite_manifests.plan import RewriteManifestsVerb


class RegroupManifestsVerb(RewriteManifestsVerb):
    """Regroups the manifests of main."""

    name = POLICY.verb
    policy = POLICY


VERB = RegroupManifestsVerb()
'''


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and what is generated of it, with a verb more that Iceberg alone has."""
    root = tmp_path_factory.mktemp("house")
    for name in ("iceberg_cli", ".ci", "completions", "docs", "man"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "venv"))
    shutil.copy(ROOT / "CHANGELOG.md", root)
    folder = root / "iceberg_cli" / "iceberg" / "verbs" / VERB.replace("-", "_")
    folder.mkdir()
    for name, text in {"__init__": "", "policy": POLICY, "plan": PLAN}.items():
        (folder / f"{name}.py").write_text(text)
    registry = root / "iceberg_cli" / "iceberg" / "verb_registry.py"
    text = registry.read_text()
    assert text.count('"merge-dvs",') == 1
    registry.write_text(text.replace('"merge-dvs",', f'"merge-dvs",\n    "{VERB}",'))
    return root


def in_the_house(house: Path) -> dict[str, Any]:
    return {"cwd": house, "env": {**os.environ, "PYTHONPATH": str(house)}}


def program(house: Path, *words: object) -> Ran:
    return process(*words, **in_the_house(house))


def test_help_schemas_manual_pages_and_completions_have_it(house: Path) -> None:
    text = program(house, "--help").out
    assert re.search(rf"^  {VERB} +Write manifests as large as they should be\.$", text, re.MULTILINE)
    subprocess.run([sys.executable, ".ci/generate.py"], check=True, **in_the_house(house))
    for path in (
        f"man/iceberg-cli-{VERB}.1",
        "iceberg_cli/schemas/policy-1.json",
        "iceberg_cli/schemas/plan-2.json",
        f"docs/pages/reference/{VERB}.md",
        "docs/pages/reference/policies.md",
        *(f"completions/{name}" for name in ("iceberg-cli.bash", "_iceberg-cli", "iceberg-cli.fish")),
    ):
        text = (house / path).read_text()
        assert "twice" in text, path
        assert VERB in text or VERB.replace("-", r"\-") in text, path


def test_it_is_planned_and_maintained_on_tables_of_its_format(
    house: Path, table: FolderTable, tmp_path: Path
) -> None:
    planned = program(house, "plan", table.name, VERB, "--twice", "--all-manifests", *AS_OF)
    assert planned.code == 0, planned.err
    assert "4 manifests are rewritten" in planned.out
    assert program(house, "plan", table.name, *AS_OF).code == 0
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'version = 1\n[[tables]]\nmatch = ["{tmp_path}/**"]\n{VERB}.when = "always"\n{VERB}.all-manifests = true\n'
    )
    checked = program(house, "policy", "check", policy, table.name)
    assert f"tables[0].{VERB}.all-manifests" in checked.out, checked.err
    before = table.files()
    done = program(house, "maintain", "--policy", policy, "--yes", "--format", "json", *AS_OF)
    assert done.code == 0, done.out + done.err
    assert VERB in done.out
    assert before < table.files()


def test_tables_of_other_formats_have_none(house: Path, tmp_path: Path) -> None:
    table = delta_with_removed_files(tmp_path / "d", "old")
    refused = program(house, VERB, table, "--yes")
    assert refused.code == 2
    assert f"{VERB} is no verb of Delta tables" in refused.err
    assert "It is for Iceberg tables alone." in refused.err
    assert program(house, "plan", table, VERB).code == 2
    assert program(house, "plan", table).code == 0
    policy = tmp_path / "policy.toml"
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{tmp_path}/**"]\n{VERB}.when = "always"\n')
    done = program(house, "maintain", "--policy", policy, "--yes", "--format", "json")
    assert done.code == 0, done.out + done.err
    assert VERB not in done.out

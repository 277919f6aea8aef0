"""Write what is made from commands and policies: completions, `man/`, the reference of `docs/`, schemas.

With `--check` nothing is written, and it fails where a file is stale. The result depends on the commands, the schemas,
the version and the date that CHANGELOG.md gives it, and on nothing else.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from command_tree import Command, read_commands
from manual import man_page
from policy_schema import policy_schema
from reference import reference_pages
from shell_scripts import bash, fish, zsh

from iceberg_cli import __version__
from iceberg_cli.cli.commands.completion import SCRIPTS
from iceberg_cli.formats import VERB_NAMES, policies_of

ROOT = Path(__file__).resolve().parents[1]
COMPLETIONS = "completions"
REFERENCE = "docs/pages/reference"
FOLDERS = (COMPLETIONS, "man", REFERENCE)
SCHEMAS = "iceberg_cli/schemas"
PLAN_SCHEMA = f"{SCHEMAS}/plan-2.json"
POLICY_SCHEMA = f"{SCHEMAS}/policy-1.json"


def release_date(changelog: str) -> str:
    """The date that CHANGELOG.md gives the version.

    Raises:
        SystemExit: it has no such heading.
    """
    match = re.search(rf"^## {re.escape(__version__)} \((\d{{4}}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    if match is None:
        raise SystemExit(f"CHANGELOG.md has no heading `## {__version__} (YYYY-MM-DD)`")
    return match[1]


def plan_schema(schema: str) -> str:
    """The schema of plans, with those of the policies that a plan can have."""
    document = json.loads(schema)
    document["properties"]["policy"] = {
        "description": "What the operator asked for; planning again starts from it.",
        "anyOf": [
            {"title": f"{verb}, {name}", **policy.schema()}
            for verb in VERB_NAMES
            for name, policy in policies_of(verb).items()
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def generated() -> dict[str, str]:
    """The text of every generated file, by its path in the repository."""
    root, commands = read_commands()
    date = release_date((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    scripts: dict[str, Callable[[Command, tuple[Command, ...]], str]] = {
        f"{COMPLETIONS}/{SCRIPTS['bash']}": bash,
        f"{COMPLETIONS}/{SCRIPTS['zsh']}": zsh,
        f"{COMPLETIONS}/{SCRIPTS['fish']}": fish,
    }
    found = {path: write(root, commands) for path, write in scripts.items()}
    for one in (root, *commands):
        found[f"man/{one.page}.1"] = man_page(one, root, commands, date)
    found[PLAN_SCHEMA] = plan_schema((ROOT / PLAN_SCHEMA).read_text(encoding="utf-8"))
    found[POLICY_SCHEMA] = policy_schema()
    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / SCHEMAS).glob("*.json")]
    schemas = [one for one in schemas if "schema" in one["properties"]]  # no command prints a policy file
    for name, text in reference_pages(root, commands, schemas).items():
        found[f"{REFERENCE}/{name}.md"] = text
    return found


def stale() -> list[str]:
    """The paths of generated files that are missing, differ, or belong to no command."""
    targets = generated()
    present = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*")}
    present |= {each for each in (PLAN_SCHEMA, POLICY_SCHEMA) if (ROOT / each).exists()}
    differ = {
        path
        for path in present & targets.keys()
        if (ROOT / path).read_text(encoding="utf-8") != targets[path]
    }
    return sorted(differ | (present ^ targets.keys()))


def main() -> None:
    """Write the files, or check them."""
    if sys.argv[1:] == ["--check"]:
        found = stale()
        if found:
            raise SystemExit(f"stale: {', '.join(found)}; run: python .ci/generate.py")
        return
    if sys.argv[1:]:
        raise SystemExit("usage: python .ci/generate.py [--check]")
    targets = generated()
    for path in stale():
        target = ROOT / path
        target.parent.mkdir(exist_ok=True)
        if path in targets:
            target.write_text(targets[path], encoding="utf-8")
        else:
            target.unlink()


if __name__ == "__main__":
    main()

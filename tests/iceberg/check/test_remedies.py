"""Every remedy that names a verb of this program is run on a table with its finding, which is gone then.

The tables are those that the tests of the checks have for each rule, so a new rule whose remedy names a verb is run
here without a word; what else an operator has to do for it first stands in `BEFORE`.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.delta.check.rules import RULES as DELTA_RULES
from iceberg_cli.iceberg.check.rules import RULES
from iceberg_cli.iceberg.verbs.upgrade_v3 import plan as upgrading
from iceberg_cli.iceberg.verbs.upgrade_v3 import preflight
from iceberg_cli.plan.preflight import SECTIONS
from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import a_branch, a_tag
from tests.check_cases import CASES
from tests.check_tables import SNAPSHOT_ID, Sound
from tests.cli.lakes import listing
from tests.cli.running import iceberg_cli
from tests.delete_tables import a_table
from tests.delta_check_tables import DEEP, a_table_that_breaks
from tests.delta_vector_tables import a_table as a_delta_table
from tests.delta_vector_tables import many_files
from tests.hazard_tables import Hazard, entry, obstruct_an_upgrade

VERBS = "expire-snapshots|rewrite-manifests|merge-dvs|upgrade-v3|assign-row-ids|resume"
MONTH_S = 31 * 86_400


def commands(remedy: str) -> list[str]:
    """The verbs that a sentence names, with their options; `inspect` only shows."""
    return re.findall(rf"`((?:{VERBS})[^`]*)`", remedy)


def cases(rules: Any) -> list[tuple[str, str]]:
    return [(rule, command) for rule, each in rules.items() for command in commands(each.remedy)]


def carry_out(command: str, folder: object) -> None:
    verb, *options = shlex.split(command)
    agreed = () if verb == "resume" else ("--yes",)
    ran = iceberg_cli(verb, folder, *options, *agreed, "--format", "json")
    assert ran.code == 0, ran.out + ran.err


def found(folder: object, *options: object) -> set[str]:
    ran = iceberg_cli("inspect", folder, "--check", *options, "--format", "json")
    assert ran.code in (0, 15), ran.out + ran.err
    return {finding["id"] for finding in ran.json["findings"]}


# -- what an operator does first -----------------------------------------------------------------------------------


def another_snapshot(folder: Path) -> None:
    """A commit on top, so that the snapshot without row ids is not current."""
    carry_out("rewrite-manifests --all-manifests", folder)


def without_checkpoints(folder: Path) -> None:
    """Delete the checkpoint and `_last_checkpoint`."""
    for path in [*folder.glob("_delta_log/*.checkpoint*"), folder / "_delta_log/_last_checkpoint"]:
        path.unlink(missing_ok=True)


def a_month_later(folder: Path) -> None:
    """Whatever is there is old enough to go."""
    now_s = folder.stat().st_mtime  # it was made for this test
    for path in folder.rglob("*"):
        os.utime(path, (now_s - MONTH_S,) * 2)


def a_month_after_a_checkpoint(folder: Path) -> None:
    """Without a checkpoint no log is cleaned up."""
    carry_out("rewrite-manifests", folder)
    a_month_later(folder)


def listed_for_readers(folder: Path) -> None:
    """An engine lists the features for readers too, and does so in a commit of its own."""
    commits = sorted(folder.glob("_delta_log/*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    protocol = [action["protocol"] for action in actions if "protocol" in action][-1]
    protocol["readerFeatures"] = [
        name for name in protocol["writerFeatures"] if name in ("deletionVectors", "v2Checkpoint", "columnMapping")
    ]  # fmt: skip
    info = next(action["commitInfo"] for action in reversed(actions) if "commitInfo" in action)
    if "inCommitTimestamp" in info:
        info["inCommitTimestamp"] += 1
    lines = [json.dumps(action) for action in ({"commitInfo": info}, {"protocol": protocol})]
    (folder / f"_delta_log/{len(commits):020}.json").write_text("\n".join(lines) + "\n")


BEFORE: dict[str, Callable[[Path], None]] = {
    "snapshot-row-ids-missing": another_snapshot,
    "checkpoint-unreadable": without_checkpoints,
    "checkpoint-differs": without_checkpoints,
    "sidecar-missing": without_checkpoints,
    "sidecar-size-differs": without_checkpoints,
    "sidecar-dangling": a_month_after_a_checkpoint,
    "deletion-vector-file-dangling": a_month_later,
    "feature-for-writers-only": listed_for_readers,
}


def of_rule(rule: str, folder: Path, *, version: int | None = None) -> str:
    """A table with that finding."""
    table = Sound(folder=folder, version=version or CASES[rule].version)
    CASES[rule].change(table)
    return table.write()


@pytest.mark.few(12)
@pytest.mark.parametrize(("rule", "command"), cases(RULES))
def test_the_verb_that_a_finding_of_an_iceberg_table_names_takes_it_away(
    rule: str, command: str, tmp_path: Path
) -> None:
    location = of_rule(rule, tmp_path / "t")
    deep = ["--deep"] if CASES[rule].deep else []
    assert rule in found(location, *deep)
    BEFORE.get(rule, lambda _folder: None)(tmp_path / "t")
    carry_out(command.replace("ID", str(SNAPSHOT_ID)), location)
    assert rule not in found(location, *deep)


@pytest.mark.few(9)
@pytest.mark.parametrize(("rule", "command"), cases(DELTA_RULES))
def test_the_verb_that_a_finding_of_a_delta_table_names_takes_it_away(
    rule: str, command: str, tmp_path: Path
) -> None:
    root = a_table_that_breaks(rule, tmp_path / "t").root
    deep = ["--deep"] if rule in DEEP else []
    assert rule in found(root, *deep)
    BEFORE.get(rule, lambda _folder: None)(root)
    carry_out(command, root)
    assert rule not in found(root, *deep)


def test_only_remedies_that_name_a_verb_need_something_first() -> None:
    assert BEFORE.keys() <= {rule for rules in (RULES, DELTA_RULES) for rule, _ in cases(rules)}


def test_the_next_commit_ends_the_log_with_the_current_snapshot(tmp_path: Path) -> None:
    location = of_rule("snapshot-log-end", tmp_path / "t")
    assert "The next commit to main mends it" in RULES["snapshot-log-end"].remedy
    carry_out("rewrite-manifests --all-manifests", location)
    assert found(location) == set()


def test_an_expiry_that_removes_snapshots_cuts_the_log_behind_a_gap(tmp_path: Path) -> None:
    location = of_rule("snapshot-log-gap", tmp_path / "t")
    assert "An expiry that removes snapshots cuts the log" in RULES["snapshot-log-gap"].remedy
    carry_out("rewrite-manifests --all-manifests", location)
    assert found(location) == {"snapshot-log-gap"}
    carry_out(f"expire-snapshots --snapshot-id {SNAPSHOT_ID}", location)
    assert found(location) == set()


def test_log_cleanup_deletes_a_checkpoint_of_which_parts_are_missing(tmp_path: Path) -> None:
    root = a_table_that_breaks("checkpoint-incomplete", tmp_path / "t").root
    assert "Log cleanup deletes it" in DELTA_RULES["checkpoint-incomplete"].remedy
    a_month_after_a_checkpoint(root)
    carry_out("expire-snapshots", root)
    assert found(root) == set()


@pytest.mark.parametrize("verb", ["rewrite-manifests --all-manifests", "upgrade-v3 --with repair-manifests"])
def test_no_verb_commits_where_counts_of_files_differ(verb: str, tmp_path: Path) -> None:
    rule = "manifest-file-counts-differ"
    assert "no verb commits" in RULES[rule].remedy
    location = of_rule(rule, tmp_path / "t", version=2)
    name, *options = verb.split()
    before = listing(tmp_path / "t")
    assert iceberg_cli(name, location, *options, "--yes").code == 15
    assert listing(tmp_path / "t") == before


def test_where_a_summary_is_wrong_the_verbs_go_on_with_the_option_that_is_named(tmp_path: Path) -> None:
    rule = "manifest-list-cut-short"
    assert "--unsafe-trust-lists" in RULES[rule].remedy
    location = of_rule(rule, tmp_path / "t")
    arguments = ("rewrite-manifests", location, "--all-manifests", "--yes")
    assert iceberg_cli(*arguments).code == 15
    assert iceberg_cli(*arguments, "--unsafe-trust-lists").code == 0


# -- what blocks a verb --------------------------------------------------------------------------------------------


def obstructed(folder: Path, *, main: int = 7, **refs: Any) -> str:
    """Snapshots of version 1 that obstruct an upgrade; 6 names its manifests itself."""
    table = Hazard(location=str(folder), format_version=1, fields={"snapshot-log": []})
    obstruct_an_upgrade(table)
    table.publish(main=main, **refs)
    return table.location


def of_one_file(folder: Path, *, version: int = 2, **refs: Any) -> str:
    table = Hazard(location=str(folder), format_version=version)
    table.manifest("m1", entry(ADDED, *table.data("a")))
    table.snapshot(9, "m1")
    table.publish(main=9, **refs)
    return table.location


def without_the_property(folder: Path) -> None:
    folder.mkdir()
    a_delta_table(folder, *many_files(folder), configuration={})


@pytest.mark.parametrize(
    ("verb", "make"),
    [
        ("rewrite-manifests", partial(obstructed, main=6)),
        ("assign-row-ids", of_one_file),
        ("merge-dvs", without_the_property),
    ],
)
def test_the_verb_that_a_blocked_plan_names_takes_away_what_blocks_it(
    verb: str, make: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    make(folder)

    def blocked_by() -> str:
        ran = iceberg_cli(verb, folder, "--dry-run", "--format", "json")
        return " ".join([*ran.json["blocked_by"], ran.json["not_applicable"] or ""]).strip()

    (command,) = commands(blocked_by())
    carry_out(command, folder)
    assert blocked_by() == ""


# -- before an upgrade ---------------------------------------------------------------------------------------------


def without_an_old_list(folder: Path) -> str:
    table = Hazard(location=str(folder), format_version=1)
    a, b = table.data("a", "b")
    table.manifest("m1", entry(ADDED, a))
    table.manifest("m2", entry(ADDED, b))
    table.snapshot(9, "m1")
    table.snapshot(8, "m1", "m2", parent=9)
    table.publish(main=8)
    (folder / "metadata/snap-9.avro").unlink()
    return table.location


def with_position_deletes(folder: Path) -> str:
    table = a_table(folder, {"a": 5}, format_version=2)
    table.positions("d", {"a": [1]})
    table.commit_and_publish(2)
    return table.location


def upgraded(folder: Path) -> str:
    """A snapshot of before the upgrade, and a current one with row ids."""
    location = of_one_file(folder)
    carry_out("upgrade-v3 --with assign-row-ids", location)
    return location


LOOK = "shows what it is about; nothing is wrong"
ENGINE = "is a statement for an engine"
PREFLIGHT: dict[str, Callable[[Path], str] | str] = {
    "inline-manifests": partial(obstructed, b=a_branch(6)),
    "uncounted-manifests": partial(obstructed, b=a_branch(6)),
    "missing-manifest-list": without_an_old_list,
    "position-deletes": with_position_deletes,
    "rows-without-ids": partial(of_one_file, eod=a_tag(9)),
    "v1-manifest-lists": partial(of_one_file, version=1),
    "snapshots-without-ids": upgraded,
    "repair-blocked": LOOK,
    "encryption-keys": ENGINE,
    "equality-deletes": ENGINE,
    "unknown-transform": ENGINE,
    "unknown-type": LOOK,
    "unknown-field": LOOK,
    "writer-reads-v3": LOOK,
    "writer-reads-v3-partly": LOOK,
    "writer-without-v3": LOOK,
    "writer-unknown": LOOK,
    "rare-type": LOOK,
    "default-values": LOOK,
    "multi-argument-transform": LOOK,
    "deletion-vectors": LOOK,
    "already-v3": LOOK,
    "no-table-uuid": LOOK,
    "partition-field-ids": LOOK,
    "upgrade-refused": LOOK,
    "file-unreadable": LOOK,
}


def ids_in_source() -> set[str]:
    """The ids of all findings that the preflight can make, wherever one is made."""
    trees = [ast.parse(inspect.getsource(module)) for module in (preflight, upgrading)]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Tuple))]
    makers = {"blocking", "warning", "info", "make"}
    found = set()
    for node in calls:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            values = [keyword.value for keyword in node.keywords if keyword.arg == "id"]
            found |= {value.value for value in values if isinstance(value, ast.Constant)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
            found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
        elif isinstance(node, ast.Tuple) and node.elts and ast.unparse(node.elts[0]) in makers:
            found |= {each.value for each in node.elts[1:2] if isinstance(each, ast.Constant)}
    return {str(each) for each in found}


def test_every_finding_of_the_preflight_has_a_case_here() -> None:
    assert ids_in_source() == PREFLIGHT.keys()
    assert PREFLIGHT.keys() <= SECTIONS.keys()


@pytest.mark.parametrize("rule", [rule for rule, case in PREFLIGHT.items() if callable(case)])
def test_the_command_that_the_preflight_names_takes_its_finding_away(rule: str, tmp_path: Path) -> None:
    case = PREFLIGHT[rule]
    assert callable(case)
    location = case(tmp_path / "t")

    def findings() -> dict[str, str]:
        ran = iceberg_cli("upgrade-v3", location, "--check", "--format", "json")
        assert ran.code in (0, 11), ran.out + ran.err
        return {each["id"]: each["remedy"] for each in ran.json["findings"]}

    program, *arguments = shlex.split(findings()[rule])
    ran = iceberg_cli(*arguments, "--yes", "--format", "json")
    assert (program, ran.code) == ("iceberg-cli", 0), ran.out + ran.err
    assert rule not in findings()

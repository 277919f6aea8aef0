"""Words that are no command, as people type them who come from other tools: where each leads."""

from __future__ import annotations

import pytest

from iceberg_cli.cli.options.unknown_commands import unknown_command
from iceberg_cli.formats import VERB_NAMES, place_of, verbs_of
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli

BACK = "No command here moves a branch ahead"
TABLES = "No command here makes, drops or copies tables, or writes rows"

# The words of Iceberg's and Delta's procedures and metadata tables, of Trino, iceberg-go, PyIceberg, delta-rs and
# Databricks, of version control and of operating systems, and slips of the hand.
LEADS_TO = {
    "inspect TABLE": "describe desc detail info show stat status summary metadata get table view DESCRIBE Describe",
    "inspect TABLE snapshots": "snapshots snapshot versions log snapshtos",
    "inspect TABLE refs": "refs ref branches branch tags",
    "inspect TABLE schemas": "schemas schema",
    "inspect TABLE specs": "specs spec",
    "inspect TABLE properties": "properties property",
    "inspect TABLE manifests": "manifests manifest",
    "inspect TABLE files": "files file flies",
    "inspect TABLE deletes": "deletes",
    "inspect TABLE partitions": "partitions partition",
    "inspect TABLE statistics": "statistics statistic",
    "inspect TABLE metadata-log": "metadata-log metadata_log",
    "inspect TABLE protocol": "protocol protocols",
    "inspect TABLE features": "features feature",
    "inspect TABLE row-ids": "row-ids row_ids",
    "inspect TABLE diff": "diff",
    "inspect TABLE diff A": "compare changes",
    "inspect TABLE sample": "sample sampel head cat select query rows preview scan read",
    "inspect TABLE --check": "check fsck verify validate doctor health lint diagnose",
    "inspect": "inspct inspec Inspect",
    "plan TABLE": "dry-run dry_run due explain simulate analyze",
    "plan": "plans",
    "apply FILE": "run execute exec carry-out",
    "apply": "aply",
    "history TABLE": "audit operations actions",
    "history": "HISTORY histroy",
    "resume TABLE": "abort abandon continue recover retry",
    "resume": "resmue",
    "list": "ls tables namespaces catalogs find lists",
    "survey": "fleet overview report stats surveys",
    "maintain --policy FILE": "cron schedule auto service daemon maintenance",
    "maintain": "mantain",
    "config show": "settings options configure",
    "config": "confg",
    "policy": "polciy",
    "demo DIR": "tutorial example init quickstart sandbox",
    "completion SHELL": "completions autocomplete complete",
    "--help": "help HELP usage man commands",
    "--version": "version v",
    "expire-snapshots TABLE --dry-run": "vacuum VACUUM expire gc prune cleanup clean log-cleanup remove-snapshots",
    "expire-snapshots": "expire_snapshots expire-snapshosts EXPIRE_SNAPSHOTS",
    "rewrite-manifests TABLE --dry-run": "checkpoint create-checkpoint compact-log log-compaction optimize_manifests",
    "rewrite-manifests": "rewrite_manifests rewrite-manifest",
    "rewrite-data-files TABLE --dry-run": "optimize OPTIMIZE optimise compact compaction binpack bin-pack rewrite-data"
    " compact-files rewrite rewrite_files zorder z-order sort cluster reorg",
    "rewrite-data-files": "rewrite_data_files",
    "merge-dvs TABLE --dry-run": "rewrite_position_delete_files rewrite-position-deletes merge-deletes",
    "merge-dvs": "merge_dvs merge-dv",
    "upgrade-v3 TABLE --dry-run": "upgrade upgrade-table upgrade-format",
    "upgrade-v3": "upgrade_v3 upgrade-v2",
    "assign-row-ids TABLE --dry-run": "row-tracking row-lineage backfill",
    "assign-row-ids": "assign_row_ids assign-rowids",
    "remove-orphan-files TABLE --dry-run": "orphans orphan delete-orphan-files clean_orphan_files remove-orphans"
    " orphan-files",
    "remove-orphan-files": "remove_orphan_files remove-orphan-file",
    "undo TABLE --dry-run": "undelete unexpire",
    "undo": "UNDO undoo",
    "restore TABLE --to SNAPSHOT|REF|VERSION|TIME --dry-run": "rollback revert rollback_to_snapshot"
    " rollback_to_timestamp set_current_snapshot checkout roll-back",
    "restore TABLE --to VERSION|TIME --dry-run": "restore-table RESTORE_TABLE",
    "restore": "RESTORE restor",
    "tag TABLE NAME --dry-run": "create-tag drop_tag replace-tag label untag",
}  # fmt: skip
NOT_HERE = {
    BACK: "cherrypick_snapshot cherry-pick fast_forward publish-changes",
    TABLES: "drop create delete truncate migrate register_table add_files rename insert append alter update"
    " clone convert export import copy move write",
}  # fmt: skip
NOTHING = "foo xyzzy 42 --- qwertz"


def message(word: str) -> str:
    return unknown_command(word, COMMANDS).message


@pytest.mark.parametrize(("line", "words"), LEADS_TO.items())
def test_a_word_leads_to_what_it_is_called_here(line: str, words: str) -> None:
    found = {word: message(word) for word in words.split()}
    assert found == {word: f"{word!r} is no command. Did you mean `iceberg-cli {line}`?" for word in found}


@pytest.mark.parametrize(("sentence", "words"), NOT_HERE.items())
def test_what_there_is_not_is_said_to_be_missing(sentence: str, words: str) -> None:
    found = {word: message(word) for word in words.split()}
    assert found == {word: f"{word!r} is no command. {sentence}" for word in found}


@pytest.mark.parametrize("word", NOTHING.split())
def test_a_word_that_is_like_none_leads_nowhere(word: str) -> None:
    assert message(word) == f"{word!r} is no command"


def test_there_are_two_hundred_words() -> None:
    words = [word for words in (*LEADS_TO.values(), *NOT_HERE.values(), NOTHING) for word in words.split()]
    assert len({*words}) == len(words) >= 200


def test_nobody_who_wants_to_look_is_led_to_a_verb_that_writes() -> None:
    looking = [
        words for line, words in LEADS_TO.items() if line.startswith(("inspect", "plan", "list", "survey"))
    ]
    for word in " ".join(looking).split():
        for cut in range(3, len(word) + 1):  # and while it is typed, unless that is a command itself
            if word[:cut] in COMMANDS:
                continue
            assert not any(f"iceberg-cli {verb}" in message(word[:cut]) for verb in VERB_NAMES), word[:cut]


def test_a_verb_that_is_not_there_is_named_by_no_other_one() -> None:
    names = [
        name
        for kind in ("iceberg", "delta")
        for verb in verbs_of(kind)
        for name in place_of(kind, verb).names_elsewhere
    ]
    assert len(names) == len({*names})
    assert not {*names} & {*COMMANDS}


def test_the_program_says_it_and_ends_with_2() -> None:
    ran = iceberg_cli("snapshots", "T")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: 'snapshots' is no command. Did you mean `iceberg-cli inspect TABLE snapshots`?\n"
        "Nothing was changed.\n`iceberg-cli --help` lists the commands.\n"
    )


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["inspect"], "Usage: iceberg-cli inspect [OPTIONS] TABLE [WHAT] [A] [B]"),
        (["expire-snapshots", "t", "--oldr-than", "7d"], "Usage: iceberg-cli expire-snapshots [OPTIONS] TABLE"),
        (["survey", "--x"], "Usage: iceberg-cli survey [OPTIONS] [PATTERN]..."),
        (["resume"], "Usage: iceberg-cli resume [OPTIONS] TABLE|PATTERN [OP_ID]"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_command_shows_how_that_one_is_written(words: list[str], usage: str) -> None:
    ran = iceberg_cli(*words, "--format", "json")
    assert (ran.code, ran.json["next"]) == (2, f"{usage}; `iceberg-cli {words[0]} --help` says more.")

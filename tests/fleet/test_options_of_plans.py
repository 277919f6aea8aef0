"""`Table.options`: what a plan has as its options, without planning."""

from __future__ import annotations

from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import BUILT_IN, policies_of, verbs_of
from iceberg_cli.plan.policy import Policy
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, a_txn, an_add, write_log
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF_MS, four_snapshots

# Of each format: properties that decide where nothing else does, and none.
ICEBERG: dict[str, dict[str, str]] = {
    "none": {},
    "own": {
        "history.expire.max-snapshot-age-ms": str(9 * DAY_MS),
        "history.expire.min-snapshots-to-keep": "3",
        "history.expire.max-ref-age-ms": str(90 * DAY_MS),
        "commit.manifest.target-size-bytes": "65536",
        "write.delete.target-file-size-bytes": "131072",
        "write.target-file-size-bytes": "1048576",
    },
}
DELTA: dict[str, dict[str, str]] = {
    "none": {},
    "own": {
        "delta.deletedFileRetentionDuration": "interval 9 days",
        "delta.logRetentionDuration": "interval 40 days",
        "delta.checkpointPolicy": "v2",
    },
}
GIVEN = {
    "expire-snapshots": {"--older-than": "8d", "--retain-last": 2, "--retention": "8d", "--mode": "lite"},
    "rewrite-manifests": {"--target-size": "16MiB", "--min-manifests": 3, "--checkpoint": "classic"},
    "merge-dvs": {"--target-size": "1MiB", "--dead-ratio": "0.5"},
    "rewrite-data-files": {"--target-size": "64MiB", "--min-input-files": 3, "--max-rewrite-bytes": "1GiB"},
    "assign-row-ids": {"--ref": ["main"], "--batch-size": 5},
    "upgrade-v3": {"--with": "merge-dvs", "--feature": ["deletionVectors"]},
    "remove-orphan-files": {"--older-than": "8d", "--metadata-files": True},
    "undo": {},
    "restore": {"--to": "1", "--keep-as": "before"},
    "tag": {"NAME": "eod", "--max-age": "30d"},
}
# What a plan knows only once it has looked at more than the table's metadata.
OF_PLANS_ALONE = {"delta": {"oldest_checkpoint", "protocol"}}


def a_table(folder: Path, format_name: str, kind: str) -> ic.Table:
    if format_name == "iceberg":
        return ic.open_table(four_snapshots(folder / "t", properties=ICEBERG[kind]).publish())
    actions = [a_protocol(), a_metadata(configuration=DELTA[kind]), an_add(path="a.parquet")]
    write_log(folder / "t", actions, [a_txn()])
    (folder / "t" / "a.parquet").write_bytes(b"1234")
    return ic.open_table(str(folder / "t"))


def policies(verb: str, format_name: str) -> list[Policy]:
    """By the defaults, by the command line, and by a file for all tables."""
    own, given = policies_of(verb)[format_name], GIVEN[verb]
    sources = {flag: f"policy.toml: defaults{flag}" for flag in given}
    needed = {flag: given[flag] for item in own.options() if item.required for flag in item.help_of}
    return [
        own.from_options(needed, now_ms=AS_OF_MS),
        own.from_options(given, now_ms=AS_OF_MS),
        own.from_options(given, now_ms=AS_OF_MS, sources=sources),
    ]


@pytest.mark.parametrize("kind", ["none", "own"])
@pytest.mark.parametrize(
    ("format_name", "verb"), [(name, verb) for name in BUILT_IN for verb in verbs_of(name)]
)
def test_they_are_those_of_the_plan(format_name: str, verb: str, kind: str, tmp_path: Path) -> None:
    table = a_table(tmp_path, format_name, kind)
    for policy in policies(verb, format_name):
        planned = dict(table.plan(policy, as_of=AS_OF_MS).content.options)
        found = table.options(policy, as_of=AS_OF_MS)
        alone = OF_PLANS_ALONE.get(format_name, set())
        if verb == "upgrade-v3" and format_name == "delta":
            # A plan has the features that the policy stands for, these have those that it names.
            assert {name: each.source for name, each in found.items()} == {
                name: each.source for name, each in planned.items() if name not in alone
            }
            continue
        assert found == {name: each for name, each in planned.items() if name not in alone}


def test_a_policy_of_the_other_format_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path, "delta", "none")
    with pytest.raises(UsageError):
        table.options(ic.iceberg.ExpireSnapshots())

"""Settings of other tools as policy files. Samples are as the tools' own documentation and schemas have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_file import PolicyFile, parse_policy
from iceberg_cli.fleet.policy_import import ImportedPolicy, import_policy

EXPIRE, REWRITE, MERGE = "expire-snapshots", "rewrite-manifests", "merge-dvs"
COMPACT, ORPHANS = "rewrite-data-files", "remove-orphan-files"
ORDER = (
    "it does not say by which columns, so data files are left as they are: --curve-by or --sort-by names them"
)
AUTO = "auto sorts tables that have a sort order; here rows stay in the order in which they are"
HOLD = "partitions whose window is open, or was lately, are compacted, too"
YOUNG = "younger files may be of writers at work: it is 24h, the least without --unsafe-allow-young"
FOLDERS = (
    "the table's folders of data and metadata are looked through, whatever it says; location adds others"
)
IN_BUCKETS = (
    "tables in a table bucket, where S3 Tables removes such files itself, are refused by remove-orphan-files: this is "
    "for those that move elsewhere"
)
SCHEDULE = "when it runs is up to the scheduler"
REF_AGE = "how long branches and tags stay is up to the table: property history.expire.max-ref-age-ms"


def imported(folder: Path, source: str, content: object, *patterns: str, name: str = "") -> ImportedPolicy:
    path = folder / (name or f"{source}.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return import_policy(source, str(path), patterns)


def made(
    folder: Path, source: str, content: object, *patterns: str, name: str = ""
) -> tuple[PolicyFile, dict[str, str]]:
    """The policy file of a document, and by path what was left out of it."""
    found = imported(folder, source, content, *patterns, name=name)
    return parse_policy("made.toml", found.text.encode()), {note.path: note.text for note in found.notes}


def text_of(folder: Path, source: str, content: object, *patterns: str, name: str = "") -> str:
    """The policy file as it is written, without its title and version."""
    return imported(folder, source, content, *patterns, name=name).text.partition("version = 1\n")[2]


def verbs(policy: PolicyFile, *names: str) -> dict[str, dict[str, Any]] | None:
    """By verb the options of a table; `never` where it does not run; None where nothing does."""
    found = policy.of_table(names)
    if found is None or not found.maintain:
        return None
    return {
        verb: {"never": True} if own.when == "never" else {key[2:]: value for key, value in own.given.items()}
        for verb, own in found.verbs.items()
    }


def complaint(folder: Path, source: str, content: object, *patterns: str, name: str = "") -> str:
    with pytest.raises(UsageError) as caught:
        made(folder, source, content, *patterns, name=name)
    assert caught.value.next_step
    return caught.value.message.replace(f"{folder}/", "")


# -- Polaris -----------------------------------------------------------------------------------------------------------


def polaris(kind: str, enable: bool, **config: object) -> dict[str, Any]:
    content = {"version": "2025-02-03", "enable": enable, "config": config}
    return {"name": f"my-{kind}", "type": f"system.{kind}", "appliedAt": "namespace", "content": content}


# The sample response of "Retrieving Applicable Policies" in Polaris' documentation, and the examples of its schemas.
APPLICABLE = {
    "policies": [
        polaris(
            "snapshot-expiry", True, min_snapshot_to_keep=1, max_snapshot_age_days=2, max_ref_age_days=3, key1="value1"
        ),
        polaris("data-compaction", True, target_file_size_bytes=134217728),
        polaris("metadata-compaction", True, spec_id=1, my_key="my_value"),
        polaris("orphan-file-removal", True, prefix_mismatch_mode="ignore"),
    ]
}  # fmt: skip


def test_policies_of_polaris_that_apply_to_a_table(tmp_path: Path) -> None:
    policy, notes = made(tmp_path, "polaris", APPLICABLE, "prod.finance.transactions")
    assert verbs(policy, "prod.finance.transactions") == {
        EXPIRE: {"older-than": "2d", "retain-last": 1}, REWRITE: {"spec-id": [1]}, COMPACT: {"target-size": "128MiB"},
        ORPHANS: {},
    }  # fmt: skip
    assert verbs(policy, "prod.finance.other") is None
    assert notes == {
        "policies[0].content.config.max_ref_age_days": REF_AGE,
        "policies[0].content.config.key1": "it has no counterpart",
        "policies[2].content.config.my_key": "it has no counterpart",
        "policies[3].content.config.prefix_mismatch_mode":
            "files are known by their names, whatever their paths begin with",
    }  # fmt: skip


# The example of Polaris' documentation, and of the test of its parser.
ORPHAN_POLICY = {
    "type": "system.orphan-file-removal",
    "content": {
        "version": "2025-02-03",
        "enable": True,
        "max_orphan_file_age_in_days": 30,
        "locations": ["s3://my-bucket/my-table-location"],
        "config": {"prefix_mismatch_mode": "ignore", "key1": "value1"},
    },
}


def test_the_removal_of_orphan_files_of_polaris(tmp_path: Path) -> None:
    assert (
        text_of(tmp_path, "polaris", ORPHAN_POLICY, "prod.sales")
        == """
[[tables]]
match = ["prod.sales"]
remove-orphan-files = { older-than = "30d" }
"""
    )
    _, notes = made(tmp_path, "polaris", ORPHAN_POLICY, "prod.sales")
    assert notes == {
        "content.locations": FOLDERS,
        "content.config.prefix_mismatch_mode": "files are known by their names, whatever their paths begin with",
        "content.config.key1": "it has no counterpart",
    }


def test_an_age_of_polaris_that_is_refused_here_is_a_day(tmp_path: Path) -> None:
    content = {"enable": True, "max_orphan_file_age_in_days": 0, "x": 1}
    policy, notes = made(tmp_path, "polaris", {"type": "system.orphan-file-removal", "content": content}, "p")
    assert verbs(policy, "p.a.t") == {ORPHANS: {"older-than": "1d"}}
    assert notes == {
        "content.max_orphan_file_age_in_days": YOUNG, "content.x": "it has no counterpart",
    }  # fmt: skip
    disabled = {"type": "system.orphan-file-removal", "content": {**content, "enable": False}}
    policy, notes = made(tmp_path, "polaris", disabled, "p")
    assert verbs(policy, "p.a.t") == {ORPHANS: {"never": True}}
    assert notes == {"content.x": "it has no counterpart"}


# The example of the schema of `system.data-compaction`, and Java's option for groups.
COMPACTION_POLICY = {
    "type": "system.data-compaction",
    "content": {
        "version": "2025-02-03",
        "enable": True,
        "target_file_size_bytes": 134217728,
        "config": {
            "compaction_strategy": "bin-pack", "max-concurrent-file-group-rewrites": 5, "my-key": "my-value",
            "max-file-group-size-bytes": 107374182400, "target_file_size_bytes": 1,
        },
    },
}  # fmt: skip


def test_compaction_of_polaris_has_the_target_of_the_schema_over_that_of_its_own_keys(tmp_path: Path) -> None:
    policies = [polaris("snapshot-expiry", True, max_snapshot_age_days=2), COMPACTION_POLICY]
    assert (
        text_of(tmp_path, "polaris", policies, "prod.sales")
        == """
[[tables]]
match = ["prod.sales"]
expire-snapshots = { older-than = "2d" }
rewrite-data-files = { target-size = "128MiB" }
"""
    )
    _, notes = made(tmp_path, "polaris", policies, "prod.sales")
    below = "[1].content.config"
    assert notes == {
        f"{below}.max-concurrent-file-group-rewrites": "it has no counterpart",
        f"{below}.my-key": "it has no counterpart",
        f"{below}.max-file-group-size-bytes": "it has no meaning here: groups are cut by the size of new files",
        f"{below}.target_file_size_bytes": "the one beside config counts",
    }


def test_compaction_of_polaris_without_a_target_leaves_that_to_the_table(tmp_path: Path) -> None:
    document = polaris("data-compaction", True, compaction_strategy=None, target_file_size_bytes=None)
    policy, notes = made(tmp_path, "polaris", document, "prod")
    assert verbs(policy, "prod.a.t") == {COMPACT: {}}
    assert notes == {}


def test_compaction_of_polaris_that_sorts_goes_by_the_tables_order(tmp_path: Path) -> None:
    policies = [
        polaris("snapshot-expiry", True),
        polaris("data-compaction", True, compaction_strategy="sort", target_file_size_bytes=1 << 27),
    ]
    policy, notes = made(tmp_path, "polaris", policies, "prod")
    assert verbs(policy, "prod.a.t") == {EXPIRE: {}, COMPACT: {"strategy": "sort", "target-size": "128MiB"}}
    assert notes == {}


def test_one_policy_of_polaris_whose_content_is_a_text(tmp_path: Path) -> None:
    content = json.dumps(
        {"enable": True, "config": {"min_snapshots_to_keep": "10", "max_snapshot_age_days": 7.0}}
    )
    answer = {
        "policy": {"policy-type": "system.snapshot-expiry", "name": "n", "version": 3, "content": content}
    }
    policy, notes = made(tmp_path, "polaris", answer, "prod.sales", "prod.hr")
    assert verbs(policy, "prod.hr.people") == {EXPIRE: {"older-than": "7d", "retain-last": 10}}
    assert notes == {}


def test_a_policy_of_polaris_that_is_disabled_never_runs(tmp_path: Path) -> None:
    policy, _ = made(
        tmp_path, "polaris", [polaris("snapshot-expiry", False, max_snapshot_age_days=2)], "prod"
    )
    assert verbs(policy, "prod.a.t") == {EXPIRE: {"never": True}}
    disabled = polaris("data-compaction", False, compaction_strategy="sort", target_file_size_bytes=1 << 27)
    policy, notes = made(tmp_path, "polaris", disabled, "prod")
    assert verbs(policy, "prod.a.t") == {COMPACT: {"never": True}}
    assert notes == {}


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        (APPLICABLE, (), "polaris.json does not say for which tables its settings are"),
        ({"enable": True}, ("p",), "polaris.json is no policy of Polaris: it has no type and content"),
        ([polaris("snapshot-expiry", True), polaris("snapshot-expiry", False)], ("p",),
         "polaris.json: [1]: a second policy of the type system.snapshot-expiry, for expire-snapshots"),
        ([polaris("data-compaction", True), polaris("data-compaction", False)], ("p",),
         "polaris.json: [1]: a second policy of the type system.data-compaction, for rewrite-data-files"),
        ([polaris("orphan-file-removal", True)] * 2, ("p",),
         "polaris.json: [1]: a second policy of the type system.orphan-file-removal, for remove-orphan-files"),
        ([polaris("compute-quota", True)], ("p",),
         "Nothing in polaris.json can be said in a policy file; [0]: policies of the type system.compute-quota"),
        ({**ORPHAN_POLICY, "content": {"enable": True, "max_orphan_file_age_in_days": -3}}, ("p",),
         "polaris.json: content.max_orphan_file_age_in_days must be at least 0, not -3"),
        ([polaris("data-compaction", True, compaction_strategy="zorder")], ("p",),
         "Nothing in polaris.json can be said in a policy file; [0].content.config.compaction_strategy: " + ORDER),
        ([polaris("data-compaction", True, target_file_size_bytes=0)], ("p",),
         "polaris.json: [0].content.config.target_file_size_bytes must be at least 1, not 0"),
        ([polaris("data-compaction", True, target_file_size_bytes=100)], ("p",),
         "the policy file that was made: tables[0].rewrite-data-files.target-size must be between 4KiB and 1TiB"),
        ([{**polaris("snapshot-expiry", True), "content": "{"}], ("p",), "polaris.json: [0].content is no JSON"),
        ([{**polaris("snapshot-expiry", True), "content": {"config": {}}}], ("p",),
         "polaris.json: [0].content has no enable, which the schema of policies requires"),
        ([polaris("snapshot-expiry", True, max_snapshot_age_days=-1)], ("p",),
         "polaris.json: [0].content.config.max_snapshot_age_days must be at least 0, not -1"),
        ([polaris("snapshot-expiry", True, min_snapshots_to_keep=0)], ("p",),
         "polaris.json: [0].content.config.min_snapshots_to_keep must be at least 1, not 0"),
        ([polaris("snapshot-expiry", True, max_snapshot_age_days=True)], ("p",),
         "polaris.json: [0].content.config.max_snapshot_age_days: True is no whole number"),
        ([polaris("snapshot-expiry", True, max_snapshot_age_days=1.5)], ("p",),
         "polaris.json: [0].content.config.max_snapshot_age_days: 1.5 is no whole number"),
        ([polaris("snapshot-expiry", True)], ("*.x",),
         "*.x: the first part of a pattern names a catalog and takes no *"),
    ],
)  # fmt: skip
def test_what_is_no_policy_of_polaris(
    document: object, patterns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert complaint(tmp_path, "polaris", document, *patterns).startswith(message)


# -- S3 Tables ---------------------------------------------------------------------------------------------------------

S3_TABLE = {
    "tableARN": "arn:aws:s3tables:us-east-1:111122223333:bucket/lake/table/6f7c",
    "configuration": {
        "icebergCompaction": {
            "status": "enabled",
            "settings": {"icebergCompaction": {"targetFileSizeMB": 512, "strategy": "auto"}},
        },
        "icebergSnapshotManagement": {
            "status": "enabled",
            "settings": {"icebergSnapshotManagement": {"minSnapshotsToKeep": 1, "maxSnapshotAgeHours": 120}},
        },
    },
}  # fmt: skip


def s3_request(name: str, status: str, least: int, hours: int) -> dict[str, Any]:
    settings = {"icebergSnapshotManagement": {"minSnapshotsToKeep": least, "maxSnapshotAgeHours": hours}}
    return {
        "tableBucketARN": "arn:aws:s3tables:us-east-1:111122223333:bucket/lake", "namespace": "sales", "name": name,
        "type": "icebergSnapshotManagement", "value": {"status": status, "settings": settings},
    }  # fmt: skip


def test_the_maintenance_configuration_of_a_table_in_a_table_bucket(tmp_path: Path) -> None:
    policy, notes = made(tmp_path, "s3tables", S3_TABLE, "lake.sales.orders")
    assert verbs(policy, "lake.sales.orders") == {
        COMPACT: {"target-size": "512MiB"}, EXPIRE: {"older-than": "5d", "retain-last": 1},
    }  # fmt: skip
    assert notes == {"configuration.icebergCompaction.settings.icebergCompaction.strategy": AUTO}


def s3_compaction(name: str, status: str, **settings: object) -> dict[str, Any]:
    value = {"status": status, "settings": {"icebergCompaction": settings}}
    return {"namespace": "sales", "name": name, "type": "icebergCompaction", "value": value}


def test_requests_for_one_table_are_one_entry_wherever_they_stand(tmp_path: Path) -> None:
    requests = [
        s3_request("a", "enabled", 5, 168),
        s3_request("b", "enabled", 5, 168),
        s3_compaction("b", "enabled", strategy="binpack", targetFileSizeMB=64),
        s3_compaction("a", "disabled", strategy="sort"),
        s3_compaction("c", "enabled", strategy="auto"),
        s3_compaction("d", "enabled", strategy="z-order", targetFileSizeMB=128),
    ]
    assert (
        text_of(tmp_path, "s3tables", requests, "lake")
        == """
[[tables]]
match = ["lake.sales.a"]
expire-snapshots = { retain-last = 5, older-than = "7d" }
rewrite-data-files = { when = "never" }

[[tables]]
match = ["lake.sales.b"]
expire-snapshots = { retain-last = 5, older-than = "7d" }
rewrite-data-files = { target-size = "64MiB" }

[[tables]]
match = ["lake.sales.c"]
rewrite-data-files = { target-size = "512MiB" }
"""
    )
    _, notes = made(tmp_path, "s3tables", requests, "lake")
    assert notes == {
        "[4].value.settings.icebergCompaction.strategy": AUTO,
        "[5].value.settings.icebergCompaction.strategy": ORDER,
    }


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"status": "enabled"}, "value"),
        ({"status": "enabled", "settings": {"icebergCompaction": {"targetFileSizeMB": None, "strategy": None}}},
         "value.settings.icebergCompaction"),
        ({"status": "enabled", "settings": {"icebergCompaction": {"strategy": "auto"}}},
         "value.settings.icebergCompaction.strategy"),
    ],
)  # fmt: skip
def test_what_s3_tables_compacts_by_default_is_written_out(
    value: dict[str, Any], path: str, tmp_path: Path
) -> None:
    request = {"namespace": "sales", "name": "a", "type": "icebergCompaction", "value": value}
    policy, notes = made(tmp_path, "s3tables", request, "lake")
    assert verbs(policy, "lake.sales.a") == {COMPACT: {"target-size": "512MiB"}}
    assert notes == {path: AUTO}


def test_requests_that_configure_tables_name_them(tmp_path: Path) -> None:
    requests = [
        s3_request("a", "enabled", 5, 168),
        s3_request("b", "enabled", 5, 168),
        s3_request("c", "disabled", 1, 12),
    ]
    policy, notes = made(tmp_path, "s3tables", requests, "lake")
    assert len(policy.entries) == 2  # tables with the same share one
    assert verbs(policy, "lake.sales.a") == verbs(policy, "lake.sales.b") == {
        EXPIRE: {"older-than": "7d", "retain-last": 5},
    }  # fmt: skip
    assert verbs(policy, "lake.sales.c") == {EXPIRE: {"never": True}}
    assert verbs(policy, "lake.hr.a") is None
    assert notes == {}


def test_hours_that_are_no_days_stay_hours(tmp_path: Path) -> None:
    policy, _ = made(tmp_path, "s3tables", s3_request("a", "enabled", 1, 30), "lake")
    assert verbs(policy, "lake.sales.a") == {EXPIRE: {"older-than": "30h", "retain-last": 1}}


REMOVAL_SETTINGS = "configuration.icebergUnreferencedFileRemoval.settings.icebergUnreferencedFileRemoval"


def s3_bucket(**settings: object) -> dict[str, Any]:
    """What `get-table-bucket-maintenance-configuration` prints."""
    value = {"status": "enabled", "settings": {"icebergUnreferencedFileRemoval": settings}}
    return {
        "tableBucketARN": "arn:aws:s3tables:us-east-1:111122223333:bucket/lake",
        "configuration": {"icebergUnreferencedFileRemoval": value},
    }


def test_the_removal_of_unreferenced_files_of_a_table_bucket(tmp_path: Path) -> None:
    document = s3_bucket(unreferencedDays=4, nonCurrentDays=15, x=1)
    assert (
        text_of(tmp_path, "s3tables", document, "prod.sales")
        == """
[[tables]]
match = ["prod.sales"]
remove-orphan-files = { older-than = "4d", grace = "15d" }
"""
    )
    _, notes = made(tmp_path, "s3tables", document, "prod.sales")
    below = "configuration.icebergUnreferencedFileRemoval"
    assert notes == {
        below: IN_BUCKETS,
        f"{REMOVAL_SETTINGS}.x": "it has no counterpart",
    }


def test_the_removal_of_unreferenced_files_by_default_and_one_that_is_disabled(tmp_path: Path) -> None:
    document = s3_bucket(unreferencedDays=None, nonCurrentDays=None)
    policy, notes = made(tmp_path, "s3tables", document, "prod.sales")
    assert verbs(policy, "prod.sales.t") == {ORPHANS: {"grace": "10d"}}
    below = "configuration.icebergUnreferencedFileRemoval"
    assert notes == {
        below: IN_BUCKETS,
    }
    request = {
        "tableBucketARN": "arn", "type": "icebergUnreferencedFileRemoval", "value": {"status": "disabled"},
    }  # fmt: skip
    policy, notes = made(tmp_path, "s3tables", request, "prod.sales")
    assert verbs(policy, "prod.sales.t") == {ORPHANS: {"never": True}}
    assert notes == {}


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        (S3_TABLE, (), "s3tables.json does not say for which tables its settings are"),
        (s3_request("a", "enabled", 1, 1), (), "s3tables.json names its tables without a catalog"),
        (s3_request("a", "enabled", 1, 1), ("lake.sales",),
         "s3tables.json names its tables itself, in a catalog: lake.sales is none"),
        (s3_request("a", "on", 1, 1), ("lake",), "s3tables.json: value.status must be enabled or disabled, not 'on'"),
        ([s3_request("a", "enabled", 1, 1), s3_request("a", "enabled", 2, 1)], ("lake",),
         "s3tables.json: [1].value: a second setting for expire-snapshots of lake.sales.a"),
        ([S3_TABLE, S3_TABLE], ("lake.a",),
         "s3tables.json: [1].configuration.icebergCompaction: a second setting for rewrite-data-files of lake.a"),
        (s3_compaction("a", "enabled", targetFileSizeMB=0), ("lake",),
         "s3tables.json: value.settings.icebergCompaction.targetFileSizeMB must be at least 1, not 0"),
        (s3_compaction("a", "enabled", strategy="z-order"), ("lake",),
         "Nothing in s3tables.json can be said in a policy file; value.settings.icebergCompaction.strategy: " + ORDER),
        (s3_request("", "enabled", 1, 1), ("lake",), "('sales', '') is no table's name: a level is empty"),
        ({"tableBucketARN": "x"}, ("lake",), "s3tables.json has neither configuration"),
        (s3_bucket(unreferencedDays=3), (), "s3tables.json does not say for which tables its settings are"),
        (s3_bucket(unreferencedDays=0), ("lake",),
         f"s3tables.json: {REMOVAL_SETTINGS}.unreferencedDays must be at least 1, not 0"),
        (s3_bucket(nonCurrentDays=0), ("lake",),
         f"s3tables.json: {REMOVAL_SETTINGS}.nonCurrentDays must be at least 1, not 0"),
        ({"configuration": {"icebergRecordExpiration": {"status": "enabled"}}}, ("lake",),
         "Nothing in s3tables.json can be said in a policy file; configuration.icebergRecordExpiration: iceberg"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_of_s3_tables(
    document: object, patterns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert complaint(tmp_path, "s3tables", document, *patterns).startswith(message)


# -- Glue --------------------------------------------------------------------------------------------------------------


def glue(kind: str, enabled: bool = True, **settings: object) -> dict[str, Any]:
    names = {"retention": "retentionConfiguration", "orphan_file_deletion": "orphanFileDeletionConfiguration",
             "compaction": "compactionConfiguration"}  # fmt: skip
    return {
        "type": kind,
        "configuration": {
            "roleArn": "arn:aws:iam::123456789012:role/optimizer", "enabled": enabled,
            names[kind]: {"icebergConfiguration": settings},
        },
        "lastRun": {"eventType": "completed"},
    }  # fmt: skip


def glue_answer(optimizer: dict[str, Any], table: str = "orders") -> dict[str, Any]:
    return {
        "CatalogId": "123456789012",
        "DatabaseName": "sales",
        "TableName": table,
        "TableOptimizer": optimizer,
    }


def test_the_retention_optimizer_of_a_table_in_glue(tmp_path: Path) -> None:
    optimizer = glue(
        "retention",
        snapshotRetentionPeriodInDays=5,
        numberOfSnapshotsToRetain=3,
        cleanExpiredFiles=True,
        runRateInHours=24,
    )
    policy, notes = made(tmp_path, "glue", glue_answer(optimizer), "glue")
    assert verbs(policy, "glue.sales.orders") == {EXPIRE: {"older-than": "5d", "retain-last": 3}}
    below = "TableOptimizer.configuration"
    assert notes == {
        f"{below}.roleArn": "what runs here has permissions of its own",
        f"{below}.retentionConfiguration.icebergConfiguration.runRateInHours": SCHEDULE,
    }


def test_files_that_glue_leaves_are_left(tmp_path: Path) -> None:
    policy, _ = made(tmp_path, "glue", glue_answer(glue("retention", cleanExpiredFiles=False)), "glue")
    assert verbs(policy, "glue.sales.orders") == {EXPIRE: {"cleanup": "none"}}


def test_the_optimizers_of_several_tables_in_glue(tmp_path: Path) -> None:
    def one(table: str, optimizer: dict[str, Any]) -> dict[str, Any]:
        return {"catalogId": "1", "databaseName": "sales", "tableName": table, "tableOptimizer": optimizer}

    answer = {
        "TableOptimizers": [
            one("a", glue("retention", snapshotRetentionPeriodInDays=None, numberOfSnapshotsToRetain=2)),
            one("b", glue("retention", enabled=False, snapshotRetentionPeriodInDays=1)),
            one("b", glue("compaction", strategy="binpack", minInputFiles=50, deleteFileThreshold=None)),
            one("a", glue("orphan_file_deletion", orphanFileRetentionPeriodInDays=3)),
        ],
        "Failures": [{"tableName": "c", "error": {"errorCode": "EntityNotFoundException"}}],
    }
    policy, notes = made(tmp_path, "glue", answer, "glue")
    assert verbs(policy, "glue.sales.a") == {
        EXPIRE: {"retain-last": 2}, ORPHANS: {"older-than": "3d"},
    }  # fmt: skip
    assert verbs(policy, "glue.sales.b") == {
        EXPIRE: {"never": True}, COMPACT: {"min-input-files": 50, "delete-files": 1},
    }  # fmt: skip
    assert len(policy.entries) == 2  # one for each table, though the answer has them mixed
    assert notes["Failures[0]"] == "Glue did not tell the optimizer of this table"


def test_the_orphan_file_deletion_optimizer_of_a_table_in_glue(tmp_path: Path) -> None:
    optimizer = glue(
        "orphan_file_deletion",
        orphanFileRetentionPeriodInDays=7,
        location="s3://example-bucket/example_table/",
        runRateInHours=168,
        x=1,
    )
    assert (
        text_of(tmp_path, "glue", glue_answer(optimizer), "prod")
        == """
[[tables]]
match = ["prod.sales.orders"]
remove-orphan-files = { older-than = "7d", every = "7d" }
"""
    )
    _, notes = made(tmp_path, "glue", glue_answer(optimizer), "prod")
    below = "TableOptimizer.configuration.orphanFileDeletionConfiguration.icebergConfiguration"
    assert {path: text for path, text in notes.items() if path.startswith(below)} == {
        f"{below}.location": FOLDERS,
        f"{below}.x": "it has no counterpart",
    }


@pytest.mark.parametrize(
    ("own", "every"),
    [
        ({}, "1d"),
        ({"orphanFileRetentionPeriodInDays": None, "location": None, "runRateInHours": None}, "1d"),
        ({"runRateInHours": 3}, "3h"),
    ],
)
def test_how_often_glue_looks_for_orphan_files_is_written_out(
    own: dict[str, Any], every: str, tmp_path: Path
) -> None:
    answer = glue_answer(glue("orphan_file_deletion", **own))
    assert text_of(tmp_path, "glue", answer, "glue").endswith(
        f'remove-orphan-files = {{ every = "{every}" }}\n'
    )


def test_an_age_of_glue_that_is_refused_here_is_a_day_and_what_is_disabled_never_runs(tmp_path: Path) -> None:
    answers = [
        glue_answer(glue("orphan_file_deletion", orphanFileRetentionPeriodInDays=0), "a"),
        glue_answer(glue("orphan_file_deletion", enabled=False), "b"),
    ]
    policy, notes = made(tmp_path, "glue", answers, "glue")
    assert verbs(policy, "glue.sales.a") == {ORPHANS: {"older-than": "1d"}}
    assert verbs(policy, "glue.sales.b") == {ORPHANS: {"never": True}}
    below = "TableOptimizer.configuration.orphanFileDeletionConfiguration.icebergConfiguration"
    assert notes[f"[0].{below}.orphanFileRetentionPeriodInDays"] == YOUNG


def test_the_compaction_optimizer_of_a_table_in_glue(tmp_path: Path) -> None:
    configuration = {
        "enabled": True,
        "compactionConfiguration": {
            "icebergConfiguration": {"strategy": "binpack", "minInputFiles": 20, "deleteFileThreshold": 4, "x": 1},
        },
    }  # fmt: skip
    answer = glue_answer({"type": "compaction", "configuration": configuration})
    assert (
        text_of(tmp_path, "glue", answer, "prod")
        == """
[[tables]]
match = ["prod.sales.orders"]
rewrite-data-files = { min-input-files = 20, delete-files = 4 }
"""
    )
    _, notes = made(tmp_path, "glue", answer, "prod")
    below = "TableOptimizer.configuration.compactionConfiguration.icebergConfiguration"
    assert notes == {f"{below}.x": "it has no counterpart"}


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"compactionConfiguration": None},
        {"compactionConfiguration": {"icebergConfiguration": {"strategy": None, "minInputFiles": None}}},
    ],
)
def test_what_glue_compacts_by_default_is_written_out(own: dict[str, Any], tmp_path: Path) -> None:
    answer = glue_answer({"type": "compaction", "configuration": {"enabled": True, **own}})
    policy, notes = made(tmp_path, "glue", answer, "glue")
    assert verbs(policy, "glue.sales.orders") == {COMPACT: {"min-input-files": 100, "delete-files": 1}}
    assert notes == {}


def test_compaction_of_glue_that_sorts_goes_by_the_tables_order_and_what_is_disabled_never_runs(
    tmp_path: Path,
) -> None:
    answers = [
        glue_answer(glue("compaction", strategy="sort", minInputFiles=20), "a"),
        glue_answer(glue("compaction", strategy="z-order"), "c"),
        glue_answer(glue("compaction", enabled=False, strategy="z-order"), "b"),
        glue_answer(glue("retention"), "a"),
    ]
    policy, notes = made(tmp_path, "glue", answers, "glue")
    assert verbs(policy, "glue.sales.a") == {
        COMPACT: {"strategy": "sort", "min-input-files": 20, "delete-files": 1}, EXPIRE: {},
    }  # fmt: skip
    assert "glue.sales.c" not in str(policy)
    assert verbs(policy, "glue.sales.b") == {COMPACT: {"never": True}}
    below = "TableOptimizer.configuration.compactionConfiguration.icebergConfiguration"
    assert {path: text for path, text in notes.items() if text == ORDER} == {f"[1].{below}.strategy": ORDER}


def test_a_request_that_sets_an_optimizer(tmp_path: Path) -> None:
    request = {
        "CatalogId": "1", "DatabaseName": "sales", "TableName": "orders", "Type": "retention",
        "TableOptimizerConfiguration": glue("retention", snapshotRetentionPeriodInDays=30)["configuration"],
    }  # fmt: skip
    policy, _ = made(tmp_path, "glue", request, "glue")
    assert verbs(policy, "glue.sales.orders") == {EXPIRE: {"older-than": "30d"}}


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        (glue_answer(glue("retention")), (), "glue.json names its tables without a catalog"),
        ({"TableName": "t"}, ("glue",), "glue.json has no optimizer with its type and configuration"),
        ("[3]", ("glue",), "glue.json: [0] is no object"),
        (glue_answer(glue("retention", enabled="yes")), ("glue",),  # type: ignore[arg-type]
         "glue.json: TableOptimizer.configuration.enabled: 'yes' is not true or false"),
        (glue_answer(glue("compaction", strategy="z-order")), ("glue",),
         "Nothing in glue.json can be said in a policy file"),
        (glue_answer(glue("compaction", minInputFiles=0)), ("glue",),
         "glue.json: TableOptimizer.configuration.compactionConfiguration.icebergConfiguration.minInputFiles must be"),
        ([glue_answer(glue("compaction")), glue_answer(glue("compaction", enabled=False))], ("glue",),
         "glue.json: [1].TableOptimizer.configuration: a second setting for rewrite-data-files of glue.sales.orders"),
        ("{", ("glue",), "Cannot read glue.json: "),
    ],
)  # fmt: skip
def test_what_is_no_optimizer_of_glue(
    document: object, patterns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert complaint(tmp_path, "glue", document, *patterns).startswith(message)


# -- zamboni -----------------------------------------------------------------------------------------------------------

# zamboni 0.7.0 loads it.
TABLE_CONFIG = {
    "version": 2,
    "warehouse": "acme",
    "defaults": {
        "target_file_size_bytes": 268435456,
        "retention": {
            "expire_snapshots": {"max_snapshot_age_days": 7, "min_snapshots_to_keep": 3, "max_ref_age_days": 90},
            "remove_orphan_files": {"older_than_days": 5},
            "rewrite_manifests": {"min_input_manifests": 4},
        },
    },
    "namespaces": {
        "raw.telemetry": {
            "tables": {
                "events": {"partition": [{"column": "ts", "transform": "day"}], "description": "hot"},
                "clicks": {"retention": {"expire_snapshots": {"max_snapshot_age_days": None}}},
            }
        },
        "sales": {
            "tables": {
                "orders": {
                    "retention": {
                        "expire_snapshots": {"enabled": False},
                        "remove_orphan_files": {"enabled": False},
                        "remove_dangling_deletes": {"enabled": False},
                        "metadata": {"previous_versions_max": 20},
                    }
                },
                "lines": {
                    "min_input_files": 8, "ordering": {"mode": "none"}, "skip_partitions_newer_than_windows": 0,
                    "retention": {"rewrite_manifests": {"enabled": False}},
                },
            }
        },
    },
}  # fmt: skip


def test_a_table_config_of_zamboni(tmp_path: Path) -> None:
    policy, notes = made(tmp_path, "zamboni", TABLE_CONFIG)
    packs = {COMPACT: {"target-size": "256MiB", "min-input-files": 2}}
    usual = {
        **packs,
        EXPIRE: {"older-than": "7d", "retain-last": 3},
        REWRITE: {"min-manifests": 4},
        MERGE: {},
        ORPHANS: {"older-than": "5d"},
    }
    assert verbs(policy, "acme.raw.telemetry.events") == usual
    # null is a value of its own: the table's property decides.
    assert verbs(policy, "acme.raw.telemetry.clicks") == {**usual, EXPIRE: {"retain-last": 3}}
    assert verbs(policy, "acme.sales.orders") == {
        **packs, EXPIRE: {"never": True}, REWRITE: {"min-manifests": 4}, MERGE: {"never": True},
        ORPHANS: {"never": True},
    }  # fmt: skip
    assert verbs(policy, "acme.sales.lines") == {
        **usual, COMPACT: {"target-size": "256MiB", "min-input-files": 8}, REWRITE: {"never": True},
    }  # fmt: skip
    assert verbs(policy, "acme.sales.other") is None
    layout = "how data is partitioned is up to its writers"
    assert notes == {
        "namespaces": HOLD,
        "namespaces.sales.tables.lines.skip_partitions_newer_than_windows": HOLD,
        "defaults.retention.expire_snapshots.max_ref_age_days": REF_AGE,
        'namespaces."raw.telemetry".tables.events.partition': layout,
        "namespaces.sales.tables.orders.retention.metadata":
            "old metadata files are up to the table: properties write.metadata.*",
    }  # fmt: skip


def test_what_is_built_into_zamboni_runs_where_its_file_says_nothing(tmp_path: Path) -> None:
    document = {"warehouse": "acme", "namespaces": {"sales": {"tables": {"orders": {}}}}}
    policy, notes = made(tmp_path, "zamboni", document, "prod")
    assert verbs(policy, "prod.sales.orders") == {
        COMPACT: {"min-input-files": 2}, EXPIRE: {}, REWRITE: {}, MERGE: {}, ORPHANS: {},
    }  # fmt: skip
    assert verbs(policy, "acme.sales.orders") is None
    assert notes == {"namespaces": HOLD}


def test_ages_of_orphan_files_of_zamboni(tmp_path: Path) -> None:
    def table(**removal: object) -> dict[str, Any]:
        return {"retention": {"remove_orphan_files": removal}}

    document = {
        "warehouse": "acme",
        "defaults": table(older_than_days=0),
        "namespaces": {
            "sales": {"tables": {"a": {}, "b": table(older_than_days=10), "c": table(older_than_days=None)}}
        },
    }
    policy, notes = made(tmp_path, "zamboni", document)
    found = {name: (verbs(policy, f"acme.sales.{name}") or {})[ORPHANS] for name in "abc"}
    assert found == {"a": {"older-than": "1d"}, "b": {"older-than": "10d"}, "c": {}}
    assert notes == {"defaults.retention.remove_orphan_files.older_than_days": YOUNG, "namespaces": HOLD}


def test_compaction_of_zamboni_as_a_policy_file(tmp_path: Path) -> None:
    document = {
        "warehouse": "acme",
        "defaults": {
            "target_file_size_bytes": 134217728,
            "skip_partitions_newer_than_windows": None,
            "ordering": {"mode": "zorder", "zorder": {"columns": ["a", "b"]}},
        },
        "namespaces": {
            "sales": {
                "tables": {
                    "clustered": {"min_input_files": 4},
                    "plain": {"min_input_files": 4, "ordering": {"mode": "none"}, "target_file_size_bytes": None},
                    "odd": {"ordering": {}, "target_file_size_bytes": 100000000},
                    "sorted": {"ordering": {"mode": "sort", "sort": [{"column": "a"}]}},
                }
            }
        },
    }  # fmt: skip
    assert (
        text_of(tmp_path, "zamboni", document)
        == """
[[tables]]
match = ["acme.sales.clustered"]
expire-snapshots = {}
rewrite-manifests = {}
merge-dvs = {}
remove-orphan-files = {}

[[tables]]
match = ["acme.sales.plain"]
rewrite-data-files = { min-input-files = 4 }
expire-snapshots = {}
rewrite-manifests = {}
merge-dvs = {}
remove-orphan-files = {}

[[tables]]
match = ["acme.sales.odd"]
rewrite-data-files = { target-size = 100000000, min-input-files = 2 }
expire-snapshots = {}
rewrite-manifests = {}
merge-dvs = {}
remove-orphan-files = {}

[[tables]]
match = ["acme.sales.sorted"]
expire-snapshots = {}
rewrite-manifests = {}
merge-dvs = {}
remove-orphan-files = {}
"""
    )
    _, notes = made(tmp_path, "zamboni", document)
    assert notes == {"defaults.ordering": ORDER, "namespaces.sales.tables.sorted.ordering": ORDER}


def test_a_fleet_file_of_zamboni_has_a_table_config_for_each_warehouse(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "acme.json").write_text(json.dumps(TABLE_CONFIG))
    fleet = """
    version: 1
    pressure: {delete_files: 20}
    warehouses:
      - name: acme
        uri: https://catalog.example/acme
        schedule: "0 2 * * *"
        table_config: configs/acme.json
      - name: globex
        schedule: "@weekly"
        table_config:
          namespaces: {hr: {tables: {people: {retention: {expire_snapshots: {min_snapshots_to_keep: 9}}}}}}
    """
    policy, notes = made(tmp_path, "zamboni", fleet, name="fleet.yaml")
    assert verbs(policy, "acme.sales.lines") == {
        COMPACT: {"target-size": "256MiB", "min-input-files": 8},
        EXPIRE: {"older-than": "7d", "retain-last": 3}, REWRITE: {"never": True}, MERGE: {},
        ORPHANS: {"older-than": "5d"},
    }  # fmt: skip
    assert verbs(policy, "globex.hr.people") == {
        COMPACT: {"min-input-files": 2}, EXPIRE: {"retain-last": 9}, REWRITE: {}, MERGE: {}, ORPHANS: {},
    }  # fmt: skip
    assert {path: text for path, text in notes.items() if text == SCHEDULE} == dict.fromkeys(
        ["pressure", "warehouses[0].schedule", "warehouses[1].schedule"], SCHEDULE
    )
    assert notes["warehouses[0].uri"] == "catalogs are in PyIceberg's configuration"


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        ({"version": 1, "tables": {}}, (), "zamboni.json is no table-config of version 2: it has no namespaces"),
        ({**TABLE_CONFIG, "version": 3}, (), "zamboni.json: version must be 2, not 3"),
        ({"namespaces": {"a": {"tables": {"t": {}}}}}, (), "zamboni.json names its tables without a catalog"),
        ({**TABLE_CONFIG, "namespaces": {}}, (), "Nothing in zamboni.json can be said in a policy file"),
        ({"warehouses": [{"name": "a"}]}, (), "zamboni.json: warehouses[0] has no name and table_config"),
        ({"warehouses": [{"name": "a", "table_config": TABLE_CONFIG}]}, (),
         "zamboni.json: warehouses[0].table_config.warehouse is 'acme', and the fleet file names 'a'"),
        ({"warehouses": [{"name": "a", "table_config": "none.json"}]}, (), "Cannot read none.json: No such file"),
        ({"warehouses": []}, ("prod",), "zamboni.json names the catalog of each warehouse itself"),
        ({"warehouse": "a", "namespaces": {"n": {"tables": {"t": {"retention": {"expire_snapshots":
          {"enabled": 1}}}}}}}, (),
         "zamboni.json: namespaces.n.tables.t.retention.expire_snapshots.enabled: 1 is not true or false"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_zamboni(
    document: object, patterns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert complaint(tmp_path, "zamboni", document, *patterns).startswith(message)


# -- iceops ------------------------------------------------------------------------------------------------------------

# iceops 0.1.0 loads it; what each table gets is what its `resolve` answers.
ICEOPS = """
catalog: prod
engine: spark
defaults:
  compact: {target-file-size: 512MB, when: "small-file-ratio > 0.3"}
  expire-snapshots: {retain-last: 20, older-than: 14d, when: "snapshot-count > 100"}
tables:
  analytics.events:
    rewrite-manifests: {target-manifest-size: 16MB}
    engine: trino
  analytics.*:
    expire-snapshots: {older-than: 36h}
    rewrite-manifests: {target-manifest-size: 4MB}
  raw.tmp_*:
    disabled: true
  raw.*:
    expire-snapshots: {retain-last: 1}
    clean-orphans: {}
"""


def test_the_policy_of_iceops(tmp_path: Path) -> None:
    policy, notes = made(tmp_path, "iceops", ICEOPS, name="iceops.yaml")
    usual = {"older-than": "14d", "retain-last": 20}
    packs = {COMPACT: {"target-size": "512MiB", "min-input-files": 2}}
    assert verbs(policy, "prod.sales.orders") == {EXPIRE: usual, **packs}
    assert verbs(policy, "prod.analytics.clicks") == {
        EXPIRE: {**usual, "older-than": "36h"}, REWRITE: {"target-size": "4MiB"}, **packs,
    }  # fmt: skip
    assert verbs(policy, "prod.analytics.events") == {
        EXPIRE: {**usual, "older-than": "36h"}, REWRITE: {"target-size": "16MiB"}, **packs,
    }  # fmt: skip
    assert verbs(policy, "prod.raw.lines") == {EXPIRE: {**usual, "retain-last": 1}, **packs, ORPHANS: {}}
    assert verbs(policy, "prod.raw.tmp_1") is None
    assert verbs(policy, "prod.raw.tmp_1.deep") is None
    assert verbs(policy, "dev.sales.orders") is None
    held = policy.of_table(["prod.raw.tmp_1"])
    assert held is not None
    assert held.reason == f"disabled in {tmp_path}/iceops.yaml"
    level = "a * of iceops stands for any text, here for any text within one level of the namespace"
    assert notes == {
        "engine": "no other engine does it",
        "defaults.compact.when": "a verb runs where it is due; there are no conditions",
        "defaults.expire-snapshots.when": "a verb runs where it is due; there are no conditions",
        'tables."analytics.events".engine': "no other engine does it",
        'tables."analytics.*"': level,
        'tables."raw.*"': level,
        'tables."raw.tmp_*"': "what is disabled is so where its * stands for up to three levels of the namespace",
    }


def test_compaction_of_iceops_as_a_policy_file(tmp_path: Path) -> None:
    text = """
    catalog: prod
    defaults: {expire-snapshots: {retain-last: 20}}
    tables:
      hot.*: {compact: {target-file-size: 64mb, when: "small-file-ratio > 0.3"}, expire-snapshots: {older-than: 36h}}
      hot.events: {compact: {target-file-size: 100KB}}
      cold.lines: {compact: {}, rewrite-manifests: }
    """
    assert (
        text_of(tmp_path, "iceops", text, name="iceops.yaml")
        == """
[[tables]]
match = ["prod"]
expire-snapshots = { older-than = "7d", retain-last = 20 }

[[tables]]
match = ["prod.hot.*", "prod.hot.events", "prod.cold.lines"]
rewrite-data-files = { target-size = "512MiB", min-input-files = 2 }

[[tables]]
match = ["prod.hot.*"]
rewrite-data-files = { target-size = "64MiB" }
expire-snapshots = { older-than = "36h" }

[[tables]]
match = ["prod.hot.events"]
rewrite-data-files = { target-size = 102400 }
"""
    )
    policy, notes = made(tmp_path, "iceops", text, name="iceops.yaml")
    expires = {"older-than": "36h", "retain-last": 20}
    assert verbs(policy, "prod.hot.clicks") == {
        EXPIRE: expires, COMPACT: {"target-size": "64MiB", "min-input-files": 2},
    }  # fmt: skip
    assert verbs(policy, "prod.hot.events") == {
        EXPIRE: expires, COMPACT: {"target-size": "102400", "min-input-files": 2},
    }  # fmt: skip
    assert verbs(policy, "prod.cold.lines") == {
        EXPIRE: {"older-than": "7d", "retain-last": 20}, COMPACT: {"target-size": "512MiB", "min-input-files": 2},
    }  # fmt: skip
    assert verbs(policy, "prod.other.t") == {EXPIRE: {"older-than": "7d", "retain-last": 20}}
    assert notes['tables."hot.*".compact.when'] == "a verb runs where it is due; there are no conditions"


def test_the_removal_of_orphan_files_of_iceops(tmp_path: Path) -> None:
    text = """
    catalog: prod
    defaults: {clean-orphans: {older-than: 10d, when: "snapshot-count > 100"}}
    tables:
      hot.events: {clean-orphans: {older-than: 12h}}
      cold.lines: {clean-orphans: {}, compact: }
    """
    assert (
        text_of(tmp_path, "iceops", text, name="iceops.yaml")
        == """
[[tables]]
match = ["prod"]
remove-orphan-files = { older-than = "10d" }

[[tables]]
match = ["prod.hot.events"]
remove-orphan-files = { older-than = "1d" }
"""
    )
    policy, notes = made(tmp_path, "iceops", text, name="iceops.yaml")
    assert verbs(policy, "prod.hot.events") == {ORPHANS: {"older-than": "1d"}}
    assert verbs(policy, "prod.cold.lines") == {ORPHANS: {"older-than": "10d"}}
    assert notes == {
        "defaults.clean-orphans.when": "a verb runs where it is due; there are no conditions",
        'tables."hot.events".clean-orphans.older-than': YOUNG,
    }


def test_an_operation_of_one_table_has_what_is_built_into_iceops(tmp_path: Path) -> None:
    text = "tables: {sales.orders: {expire-snapshots: {retain-last: 3}}, sales.lines: {expire-snapshots: {}}}"
    policy, _ = made(tmp_path, "iceops", text, name="iceops.yaml")
    assert verbs(policy, "default.sales.orders") == {EXPIRE: {"older-than": "7d", "retain-last": 3}}
    assert verbs(policy, "default.sales.lines") == {EXPIRE: {"older-than": "7d", "retain-last": 10}}
    assert verbs(policy, "default.sales.other") is None
    policy, _ = made(tmp_path, "iceops", text, "prod", name="iceops.yaml")
    assert verbs(policy, "prod.sales.lines") is not None


@pytest.mark.parametrize(
    ("glob", "held"),
    [
        ("raw.x?", ["raw.xy", "raw.xyz"]),
        ("raw.[ab]", ["raw.a", "raw.q"]),
        ("legal.*", ["legal.a", "legal.a.b.c.d"]),
        ("*", ["a.b"]),
        ("*_hold", ["a.b_hold", "a.b.c_hold"]),
        ("a*.x", ["a1.x", "a.b.x"]),
        ("sales.orders", ["sales.orders"]),
    ],
)
def test_what_is_disabled_is_held_in_every_meaning(glob: str, held: list[str], tmp_path: Path) -> None:
    text = f"defaults: {{expire-snapshots: {{}}}}\ntables: {{'{glob}': {{disabled: true}}, other.t: {{}}}}"
    policy, _ = made(tmp_path, "iceops", text, name="iceops.yaml")
    assert [verbs(policy, f"default.{name}") for name in held] == [None] * len(held)
    if glob != "*":
        assert verbs(policy, "default.other.t") is not None


def test_a_glob_that_no_pattern_says_is_left_out(tmp_path: Path) -> None:
    text = "defaults: {expire-snapshots: {}}\ntables: {'raw.x?': {expire-snapshots: {retain-last: 1}}}"
    policy, notes = made(tmp_path, "iceops", text, name="iceops.yaml")
    assert verbs(policy, "default.raw.xy") == {EXPIRE: {"older-than": "7d", "retain-last": 10}}
    assert notes == {'tables."raw.x?"': "no pattern has ? or [...]: write the tables' names"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default: {}", "iceops.yaml: default is no key of iceops.yaml"),
        ("defaults: {expire: {}}", "iceops.yaml: defaults.expire is no key of iceops.yaml"),
        ("defaults: {expire-snapshots: {retain: 3}}",
         "iceops.yaml: defaults.expire-snapshots.retain is no key of iceops.yaml"),
        ("defaults: {expire-snapshots: {older-than: P7D}}",
         "iceops.yaml: defaults.expire-snapshots.older-than: 'P7D' is no duration of iceops; it writes 12h, 7d"),
        ("defaults: {rewrite-manifests: {target-manifest-size: 8MiB}}",
         "iceops.yaml: defaults.rewrite-manifests.target-manifest-size: '8MiB' is no size of iceops"),
        ("defaults: {rewrite-manifests: {target-manifest-size: 1KB}}",
         "the policy file that was made: tables[0].rewrite-manifests.target-size must be between 4KiB and 1TiB"),
        ("defaults: [", "Cannot read iceops.yaml: "),
        ("3", "iceops.yaml is no object"),
        ("defaults: {clean-orphans: }", "Nothing in iceops.yaml can be said in a policy file"),
        ("defaults: {clean-orphans: {retain-last: 3}}",
         "iceops.yaml: defaults.clean-orphans.retain-last is no key of iceops.yaml"),
        ("defaults: {clean-orphans: {older-than: P3D}}",
         "iceops.yaml: defaults.clean-orphans.older-than: 'P3D' is no duration of iceops; it writes 12h, 7d"),
        ("defaults: {compact: {target-manifest-size: 8MB}}",
         "iceops.yaml: defaults.compact.target-manifest-size is no key of iceops.yaml"),
        ("defaults: {compact: {target-file-size: 0MB}}",
         "the policy file that was made: tables[0].rewrite-data-files.target-size: '0MiB' is no size"),
    ],
)  # fmt: skip
def test_what_is_no_policy_of_iceops(text: str, message: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, "iceops", text, name="iceops.yaml").startswith(message)


# -- all of them -------------------------------------------------------------------------------------------------------


def of_unity(location: str, **others: Any) -> dict[str, Any]:
    """What the Tables API says of a table, as far as it is about this."""
    fields = {"catalog_name": "main", "schema_name": "sales", "name": "orders", "table_type": "MANAGED"}
    return {**fields, "data_source_format": "DELTA", "storage_location": location, **others}


def effective(value: str) -> dict[str, Any]:
    """By a catalog that a table is in."""
    flag = {"value": value, "inherited_from_type": "CATALOG", "inherited_from_name": "main"}
    return {"enable_predictive_optimization": "INHERIT", "effective_predictive_optimization_flag": flag}


def test_tables_of_unity_catalog_with_predictive_optimization(tmp_path: Path) -> None:
    size = {"delta.targetFileSize": "128mb", "delta.minReaderVersion": "1"}
    tables = [
        of_unity("s3://lake/a", **effective("ENABLE"), properties=size),
        of_unity("s3://lake/b", **effective("DISABLE")),
        of_unity("abfss://c@account.dfs.core.windows.net/c", enable_predictive_optimization="ENABLE"),
        of_unity("s3://lake/d", properties={"delta.autoOptimize.autoCompact": "auto"}),
        of_unity("s3://lake/e", enable_predictive_optimization="INHERIT", properties={}),
        of_unity("s3://lake/f", **effective("ENABLE"), data_source_format="PARQUET"),
    ]
    policy, notes = made(tmp_path, "unity", {"tables": tables, "next_page_token": ""})
    assert {name: verbs(policy, f"s3://lake/{name}") for name in "abdef"} == {
        "a": {EXPIRE: {}, COMPACT: {}},
        "b": {EXPIRE: {"never": True}, COMPACT: {"never": True}},
        "d": {COMPACT: {}},
        "e": None,
        "f": None,
    }
    assert verbs(policy, "abfss://c@account.dfs.core.windows.net/c") == {EXPIRE: {}, COMPACT: {}}
    assert {path: text.partition(":")[0] for path, text in notes.items()} == {
        'tables[0].properties."delta.targetFileSize"': "the verbs read it from the table itself",
        "tables[4]": "whether it is optimized is not said",
        "tables[5].data_source_format": "it is no Delta table",
    }
    one, _ = made(tmp_path, "unity", tables[0])
    assert verbs(one, "s3://lake/a") == {EXPIRE: {}, COMPACT: {}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "orders"}, "unity.json has no storage_location, as Unity Catalog says it of a table"),
        ([of_unity("s3://lake/a", **effective("ON"))],
         "unity.json: [0].effective_predictive_optimization_flag.value must be ENABLE, DISABLE or INHERIT, not 'ON'"),
        ([of_unity("s3://lake/a", **effective("ENABLE"))] * 2, "unity.json: [1]: a second setting for"),
        (of_unity("s3://lake/a", properties={"delta.autoOptimize.autoCompact": "false"}),
         "Nothing in unity.json can be said in a policy file"),
    ],
)  # fmt: skip
def test_what_is_no_table_of_unity_catalog(document: object, message: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, "unity", document).startswith(message)


def test_names_are_quoted_as_toml_wants_it(tmp_path: Path) -> None:
    name = 'a"b\\c\x7fé𝄞'
    policy, _ = made(tmp_path, "s3tables", s3_request(name, "enabled", 1, 24), "lake")
    assert verbs(policy, f"lake.sales.`{name}`") == {EXPIRE: {"older-than": "1d", "retain-last": 1}}


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read .*none\.json: No such file"):
        import_policy("glue", str(tmp_path / "none.json"))
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(UsageError, match=r"Cannot read .*latin\.json: it is no UTF-8"):
        import_policy("glue", str(tmp_path / "latin.json"))

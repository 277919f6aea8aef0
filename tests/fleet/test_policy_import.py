"""Settings of other tools as policy files. Samples are as the tools' own documentation and schemas have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_file import PolicyFile, parse_policy
from iceberg_cli.fleet.policy_import import import_policy

EXPIRE, REWRITE, MERGE = "expire-snapshots", "rewrite-manifests", "merge-dvs"
COMPACTION = "data files are not compacted here"
ORPHANS = "files that nothing refers to are not looked for here"
SCHEDULE = "when it runs is up to the scheduler"
REF_AGE = "how long branches and tags stay is up to the table: property history.expire.max-ref-age-ms"


def made(
    folder: Path, source: str, content: object, *patterns: str, name: str = ""
) -> tuple[PolicyFile, dict[str, str]]:
    """The policy file of a document, and by path what was left out of it."""
    path = folder / (name or f"{source}.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    imported = import_policy(source, str(path), patterns)
    return parse_policy("made.toml", imported.text.encode()), {
        note.path: note.text for note in imported.notes
    }


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
        EXPIRE: {"older-than": "2d", "retain-last": 1}, REWRITE: {"spec-id": [1]},
    }  # fmt: skip
    assert verbs(policy, "prod.finance.other") is None
    assert notes == {
        "policies[0].content.config.max_ref_age_days": REF_AGE,
        "policies[0].content.config.key1": "it has no counterpart",
        "policies[1]": COMPACTION,
        "policies[2].content.config.my_key": "it has no counterpart",
        "policies[3]": ORPHANS,
    }


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


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        (APPLICABLE, (), "polaris.json does not say for which tables its settings are"),
        ({"enable": True}, ("p",), "polaris.json is no policy of Polaris: it has no type and content"),
        ([polaris("snapshot-expiry", True), polaris("snapshot-expiry", False)], ("p",),
         "polaris.json: [1]: a second policy of the type system.snapshot-expiry, for expire-snapshots"),
        ([polaris("data-compaction", True)], ("p",),
         f"Nothing in polaris.json can be said in a policy file; [0]: {COMPACTION}"),
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
    assert verbs(policy, "lake.sales.orders") == {EXPIRE: {"older-than": "5d", "retain-last": 1}}
    assert notes == {"configuration.icebergCompaction": COMPACTION}


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


@pytest.mark.parametrize(
    ("document", "patterns", "message"),
    [
        (S3_TABLE, (), "s3tables.json does not say for which tables its settings are"),
        (s3_request("a", "enabled", 1, 1), (), "s3tables.json names its tables without a catalog"),
        (s3_request("a", "enabled", 1, 1), ("lake.sales",),
         "s3tables.json names its tables itself, in a catalog: lake.sales is none"),
        (s3_request("a", "on", 1, 1), ("lake",), "s3tables.json: value.status must be enabled or disabled, not 'on'"),
        (s3_request("", "enabled", 1, 1), ("lake",), "('sales', '') is no table's name: a level is empty"),
        ({"tableBucketARN": "x"}, ("lake",), "s3tables.json has neither configuration"),
        ({"configuration": {"icebergUnreferencedFileRemoval": {"status": "enabled"}}}, ("lake",),
         "Nothing in s3tables.json can be said in a policy file; configuration.icebergUnreferencedFileRemoval: "
         + ORPHANS),
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
            one("b", glue("compaction", strategy="binpack")),
            one("a", glue("orphan_file_deletion", orphanFileRetentionPeriodInDays=3)),
        ],
        "Failures": [{"tableName": "c", "error": {"errorCode": "EntityNotFoundException"}}],
    }
    policy, notes = made(tmp_path, "glue", answer, "glue")
    assert verbs(policy, "glue.sales.a") == {EXPIRE: {"retain-last": 2}}
    assert verbs(policy, "glue.sales.b") == {EXPIRE: {"never": True}}
    assert notes["TableOptimizers[2].tableOptimizer.configuration"] == COMPACTION
    assert notes["TableOptimizers[3].tableOptimizer.configuration"] == ORPHANS
    assert notes["Failures[0]"] == "Glue did not tell the optimizer of this table"


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
        (glue_answer(glue("compaction")), ("glue",), "Nothing in glue.json can be said in a policy file"),
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
                "lines": {"retention": {"rewrite_manifests": {"enabled": False}}},
            }
        },
    },
}  # fmt: skip


def test_a_table_config_of_zamboni(tmp_path: Path) -> None:
    policy, notes = made(tmp_path, "zamboni", TABLE_CONFIG)
    usual = {EXPIRE: {"older-than": "7d", "retain-last": 3}, REWRITE: {"min-manifests": 4}, MERGE: {}}
    assert verbs(policy, "acme.raw.telemetry.events") == usual
    # null is a value of its own: the table's property decides.
    assert verbs(policy, "acme.raw.telemetry.clicks") == {**usual, EXPIRE: {"retain-last": 3}}
    assert verbs(policy, "acme.sales.orders") == {
        EXPIRE: {"never": True}, REWRITE: {"min-manifests": 4}, MERGE: {"never": True},
    }  # fmt: skip
    assert verbs(policy, "acme.sales.lines") == {**usual, REWRITE: {"never": True}}
    assert verbs(policy, "acme.sales.other") is None
    layout = "how data is partitioned and ordered is up to its writers"
    assert notes == {
        "defaults.target_file_size_bytes": COMPACTION,
        "defaults.retention.expire_snapshots.max_ref_age_days": REF_AGE,
        "defaults.retention.remove_orphan_files": ORPHANS,
        'namespaces."raw.telemetry".tables.events.partition': layout,
        "namespaces.sales.tables.orders.retention.remove_orphan_files": ORPHANS,
        "namespaces.sales.tables.orders.retention.metadata":
            "old metadata files are up to the table: properties write.metadata.*",
    }  # fmt: skip


def test_what_is_built_into_zamboni_runs_where_its_file_says_nothing(tmp_path: Path) -> None:
    document = {"warehouse": "acme", "namespaces": {"sales": {"tables": {"orders": {}}}}}
    policy, notes = made(tmp_path, "zamboni", document, "prod")
    assert verbs(policy, "prod.sales.orders") == {EXPIRE: {}, REWRITE: {}, MERGE: {}}
    assert verbs(policy, "acme.sales.orders") is None
    assert notes == {}


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
        EXPIRE: {"older-than": "7d", "retain-last": 3}, REWRITE: {"never": True}, MERGE: {},
    }  # fmt: skip
    assert verbs(policy, "globex.hr.people") == {EXPIRE: {"retain-last": 9}, REWRITE: {}, MERGE: {}}
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
    assert verbs(policy, "prod.sales.orders") == {EXPIRE: usual}
    assert verbs(policy, "prod.analytics.clicks") == {
        EXPIRE: {**usual, "older-than": "36h"}, REWRITE: {"target-size": str(4 << 20)},
    }  # fmt: skip
    assert verbs(policy, "prod.analytics.events") == {
        EXPIRE: {**usual, "older-than": "36h"}, REWRITE: {"target-size": str(16 << 20)},
    }  # fmt: skip
    assert verbs(policy, "prod.raw.lines") == {EXPIRE: {**usual, "retain-last": 1}}
    assert verbs(policy, "prod.raw.tmp_1") is None
    assert verbs(policy, "prod.raw.tmp_1.deep") is None
    assert verbs(policy, "dev.sales.orders") is None
    held = policy.of_table(["prod.raw.tmp_1"])
    assert held is not None
    assert held.reason == f"disabled in {tmp_path}/iceops.yaml"
    level = "a * of iceops stands for any text, here for any text within one level of the namespace"
    assert notes == {
        "engine": "no other engine does it",
        "defaults.compact": COMPACTION,
        "defaults.expire-snapshots.when": "a verb runs where it is due; there are no conditions",
        'tables."analytics.events".engine': "no other engine does it",
        'tables."raw.*".clean-orphans': ORPHANS,
        'tables."analytics.*"': level,
        'tables."raw.*"': level,
        'tables."raw.tmp_*"': "what is disabled is so where its * stands for up to three levels of the namespace",
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
        ("defaults: {compact: {}}", "Nothing in iceops.yaml can be said in a policy file"),
    ],
)  # fmt: skip
def test_what_is_no_policy_of_iceops(text: str, message: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, "iceops", text, name="iceops.yaml").startswith(message)


# -- all of them -------------------------------------------------------------------------------------------------------


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

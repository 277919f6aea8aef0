"""`policy check` and `policy import` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.commands import policy
from iceberg_cli.cli.commands.policy import FORMATS
from iceberg_cli.cli.context import Run
from iceberg_cli.fleet.due import FleetPolicy
from iceberg_cli.fleet.listing import ListedTable
from iceberg_cli.fleet.opening import TableOpener
from iceberg_cli.fleet.policy_file import load_policy, parse_policy
from iceberg_cli.fleet.policy_import import SOURCES
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, an_add, write_log
from tests.builders import DAY_MS, HOUR_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, catalog_table, four_snapshots
from tests.cli.running import JSON, iceberg_cli

AGE = "history.expire.max-snapshot-age-ms"
POLICY = """
version = 1
[defaults]
expire-snapshots = { retain-last = 5 }
window = { days = ["mon-fri"], from = "01:00", to = "05:00", zone = "UTC" }
[[tables]]
match = ["./wh/**"]
except = ["./wh/out"]
expire-snapshots.older-than = "7d"
merge-dvs.when = "never"
[[tables]]
match = ["./wh/held"]
maintain = false
reason = "litigation hold"
[[tables]]
match = ["prod.sales.*"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a policy file and tables."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY)
    four_snapshots(tmp_path / "wh" / "ice", properties={AGE: str(30 * DAY_MS)}).publish()
    four_snapshots(tmp_path / "wh" / "held").publish()
    four_snapshots(tmp_path / "wh" / "out").publish()
    write_log(tmp_path / "wh" / "delta", [a_protocol(), a_metadata(), an_add(path="a.parquet")])
    return tmp_path


def checked(*words: str) -> dict[str, Any]:
    ran = iceberg_cli("policy", "check", "policy.toml", *words, *AS_OF, *JSON)
    assert ran.code == 0, ran.err
    return ran.json


def checked_now(*words: str) -> dict[str, Any]:
    ran = iceberg_cli("policy", "check", "policy.toml", *words, *JSON)
    assert ran.code == 0, ran.err
    return ran.json


def options(document: dict[str, Any], place: Path, name: str) -> dict[str, tuple[Any, str]]:
    (row,) = [row for row in document["tables"] if row["table"]["name"] == f"{place}/wh/{name}"]
    return {key: (each["value"], each["source"]) for key, each in row["options"].items()}


# -- check -------------------------------------------------------------------------------------------------------------


def test_without_patterns_the_entries_are_shown(place: Path) -> None:
    document = checked()
    assert document["policy"] == {"path": "policy.toml", "digest": load_policy("policy.toml").digest}
    assert [each["key"] for each in document["entries"]] == [
        "defaults",
        "tables[0]",
        "tables[1]",
        "tables[2]",
    ]
    assert document["entries"][1] == {
        "key": "tables[0]", "match": [f"{place}/wh/**"], "except": [f"{place}/wh/out"], "maintain": None,
        "reason": None, "window": None, "unsafe": None,
        "verbs": {"expire-snapshots": {"older-than": "7d"}, "merge-dvs": {"when": "never"}},
    }  # fmt: skip
    assert (document["tables"], document["unmatched"]) == ([], None)
    text = iceberg_cli("policy", "check", "policy.toml").out
    assert "expire-snapshots  older-than 7d" in text
    assert "litigation hold" in text
    assert "mon-fri 01:00 to 05:00 UTC" in text


def test_each_table_has_the_value_and_the_source_of_every_option(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEBERG_CLI_GRACE", "3h")
    monkeypatch.setenv("ICEBERG_CLI_LOG_RETENTION", "60d")
    (place / "iceberg-cli.toml").write_text(
        '[expire-snapshots]\nclean-metadata = true\nretain-last = 1\nretention = "9d"'
    )
    document = checked("./wh/**")
    own = "policy.toml: tables[0].expire-snapshots.older-than"
    iceberg = options(document, place, "ice")
    assert iceberg["expire-snapshots.when"] == ("due", "default")
    assert iceberg["expire-snapshots.older_than_ms"] == (
        AS_OF_MS - 30 * DAY_MS, f"table property {AGE}, which keeps more than {own}",
    )  # fmt: skip
    assert iceberg["expire-snapshots.retain_last"] == (
        5,
        "policy.toml: defaults.expire-snapshots.retain-last",
    )
    assert iceberg["expire-snapshots.grace_ms"] == (3 * HOUR_MS, "variable ICEBERG_CLI_GRACE")
    assert iceberg["expire-snapshots.clean_metadata"] == (
        True,
        "iceberg-cli.toml: expire-snapshots.clean-metadata",
    )
    assert iceberg["expire-snapshots.cleanup"] == ("all", "default")
    assert iceberg["merge-dvs.when"] == ("never", "policy.toml: tables[0].merge-dvs.when")
    assert {key.partition(".")[0] for key in iceberg} == {"expire-snapshots", "merge-dvs"}
    assert [key for key in iceberg if key.startswith("merge-dvs.")] == ["merge-dvs.when"]
    delta = options(document, place, "delta")
    assert delta["expire-snapshots.retention_ms"] == (
        9 * DAY_MS,
        "iceberg-cli.toml: expire-snapshots.retention",
    )
    assert delta["expire-snapshots.log_retention_ms"] == (60 * DAY_MS, "variable ICEBERG_CLI_LOG_RETENTION")
    assert "expire-snapshots.retain_last" not in delta


def test_tables_on_which_nothing_runs_say_why_and_are_not_opened(place: Path) -> None:
    for name in ("held", "out"):
        (place / "wh" / name / "metadata" / "v1.metadata.json").write_text("no JSON")
    document = checked("./wh/*")
    rows = {Path(row["table"]["name"]).name: row for row in document["tables"]}
    assert set(rows) == {"ice", "held", "out", "delta"}
    assert {name: row["maintain"] for name, row in rows.items()} == {
        "ice": True, "delta": True, "held": False, "out": False,
    }  # fmt: skip
    assert rows["held"]["reason"] == "litigation hold (policy.toml: tables[1].maintain)"
    assert rows["out"]["reason"] == "no entry of policy.toml matches it"
    assert rows["held"]["options"] == rows["out"]["options"] == {}
    assert rows["ice"]["window"] == "mon-fri 01:00 to 05:00 UTC"
    assert document["unmatched"] == [{"match": "prod.sales.*"}]
    text = iceberg_cli("policy", "check", "policy.toml", "./wh/*").out
    assert "Nothing runs on it: litigation hold (policy.toml: tables[1].maintain)." in text
    assert "No table among these matches prod.sales.*." in text


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", None),
        ('match = ["PLACE/**"]\nmaintain = false\nreason = "hold"', "hold (policy.toml: tables[1].maintain)"),
        ('match = ["PLACE/**"]\nexcept = ["lake.shop"]\nmaintain = false',
         "maintain = false (policy.toml: tables[1].maintain)"),
        ('match = ["PLACE/*"]\nmaintain = false', None),  # the table lies deeper
    ],
)  # fmt: skip
def test_where_a_table_of_a_catalog_lies_is_a_name_of_it(
    entry: str, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = catalog_table(tmp_path, monkeypatch)
    entry = entry and f"[[tables]]\n{entry}".replace("PLACE", f"{tmp_path}/warehouse")
    text = f'version = 1\n[[tables]]\nmatch = ["lake.shop.*"]\nexpire-snapshots = {{}}\n{entry}\n'
    (tmp_path / "policy.toml").write_text(text)
    (row,) = checked_now("lake")["tables"]
    assert (row["table"]["name"], row["reason"]) == ("lake.shop.events", reason)
    excepted = text.replace('*"]', f'*"]\nexcept = ["{table.folder}"]', 1)
    (tmp_path / "policy.toml").write_text(excepted)
    (row,) = checked_now("lake")["tables"]
    assert row["reason"] == (reason or "no entry of policy.toml matches it")


def test_a_location_that_no_list_tells_is_known_once_the_table_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch)
    listed = ListedTable(name="lake.shop.events", catalog="lake", namespace="shop")
    entry = f'[[tables]]\nmatch = ["lake"]\nexcept = ["{table.folder}"]\nexpire-snapshots = {{}}\n'
    hold = f'[[tables]]\nmatch = ["lake"]\nmerge-dvs = {{}}\n[[tables]]\nmatch = ["{table.folder}"]\nmaintain = false\n'
    for text, reason in (
        (entry, "no entry of p.toml matches it"),
        (hold, "maintain = false (p.toml: tables[1].maintain)"),
    ):
        chosen = FleetPolicy(file=parse_policy("p.toml", f"version = 1\n{text}".encode()))
        row = policy._row(Run(), chosen, TableOpener(), listed)
        assert (row["maintain"], row["reason"], row["options"]) == (False, reason, {})


def test_a_table_that_cannot_be_opened_is_named_and_the_others_are_shown(place: Path) -> None:
    (newest,) = (place / "wh" / "ice" / "metadata").glob("v1.metadata.json")
    newest.write_text("no JSON")
    ran = iceberg_cli("policy", "check", "policy.toml", "./wh/**", *JSON)
    assert ran.code == 15
    assert [each["name"] for each in ran.json["failed"]] == [f"{place}/wh/ice"]
    assert ran.json["failed"][0]["exit_code"] == 15
    assert len(ran.json["tables"]) == 3


def test_an_option_that_makes_no_sense_for_a_table_is_2(place: Path) -> None:
    (place / "policy.toml").write_text(
        'version = 1\n[[tables]]\nmatch = ["./wh/ice"]\nrewrite-manifests.sort-by = ["day"]\n'
    )
    ran = iceberg_cli("policy", "check", "policy.toml", "./wh/ice")
    assert ran.code == 2
    assert "--sort-by day: no partition field has this name" in ran.err


def test_patterns_that_mean_nothing_are_10(place: Path) -> None:
    ran = iceberg_cli("policy", "check", "policy.toml", "./nowhere/*")
    assert ran.code == 10
    assert f"No table matches {place}/nowhere/*" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chek", "policy.toml"), "'chek' is nothing that policy does. Did you mean 'check'?"),
        (("check", "none.toml"), "Cannot read the policy file none.toml: No such file or directory"),
        (("check", "policy.toml", "--from", "iceops"), "--from is an option of `policy import`"),
        (("check", "policy.toml", "-o", "x"), "--output is an option of `policy import`"),
        (("import", "policy.toml"), "`policy import` needs --from"),
        (("import", "policy.toml", "--from", "iceop"),
         "--from must be polaris, s3tables, glue, zamboni, iceops or unity, not 'iceop'. Did you mean 'iceops'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_2(words: tuple[str, ...], message: str, place: Path) -> None:
    ran = iceberg_cli("policy", *words)
    assert ran.code == 2
    assert message in ran.err


def test_a_faulty_file_names_the_key(place: Path) -> None:
    (place / "policy.toml").write_text('version = 1\n[[tables]]\nmatch = ["a"]\nmerge-dvs.when = "dew"\n')
    ran = iceberg_cli("policy", "check", "policy.toml", *JSON)
    assert ran.code == 2
    assert ran.json["message"].startswith(
        "policy.toml: tables[0].merge-dvs.when must be due, always or never"
    )
    assert ran.json["next"] == "Correct policy.toml."


# -- import ------------------------------------------------------------------------------------------------------------

ICEOPS = """
catalog: prod
defaults:
  expire-snapshots: {retain-last: 20, older-than: 14d}
  clean-orphans: {older-than: 12h}
"""
NO_YOUNG = "younger files may be of writers at work: it is 24h, the least without --unsafe-allow-young"


def test_a_policy_file_is_printed_and_what_is_left_out_is_told(place: Path) -> None:
    (place / "iceops.yaml").write_text(ICEOPS)
    ran = iceberg_cli("policy", "import", "iceops.yaml", "--from", "iceops")
    assert ran.code == 0
    assert ran.err == f"warning: iceops.yaml: defaults.clean-orphans.older-than: {NO_YOUNG}\n"
    (place / "made.toml").write_text(ran.out)
    made = load_policy("made.toml").of_table(["prod.sales.orders"])
    assert made is not None
    assert made.verbs["expire-snapshots"].given == {"--older-than": "14d", "--retain-last": 20}
    assert made.verbs["remove-orphan-files"].given == {"--older-than": "1d"}


def test_a_policy_file_is_written_where_none_is(place: Path) -> None:
    (place / "iceops.yaml").write_text(ICEOPS)
    words = ("policy", "import", "iceops.yaml", "--from", "iceops", "-o", "made.toml")
    ran = iceberg_cli(*words, *JSON)
    assert (ran.code, ran.json["file"]) == (0, "made.toml")
    assert (place / "made.toml").read_text() == ran.json["policy"]
    assert ran.json["left_out"] == [{"path": "defaults.clean-orphans.older-than", "message": NO_YOUNG}]
    (place / "made.toml").write_text("mine")
    again = iceberg_cli(*words)
    assert again.code == 2
    assert "Cannot write made.toml: File exists" in again.err
    assert (place / "made.toml").read_text() == "mine"


MIXED_OPTIMIZERS = [
    {"Type": kind, "TableOptimizerConfiguration": {f"{kind}Configuration": {"icebergConfiguration": own}}}
    for kind, own in (
        ("retention", {"snapshotRetentionPeriodInDays": 3, "numberOfSnapshotsToRetain": 2}),
        ("compaction", {"strategy": "binpack", "minInputFiles": None, "deleteFileThreshold": 4}),
    )
]  # fmt: skip


@pytest.mark.parametrize("optimizers", [MIXED_OPTIMIZERS, MIXED_OPTIMIZERS[::-1]])
def test_expiry_and_compaction_of_one_table_both_hold_in_what_was_imported(
    optimizers: list[dict[str, Any]], place: Path
) -> None:
    (place / "glue.json").write_text(json.dumps(optimizers))
    ran = iceberg_cli("policy", "import", "glue.json", "./wh/ice", "--from", "glue", "-o", "made.toml")
    assert (ran.code, ran.err) == (0, "")
    checked = iceberg_cli("policy", "check", "made.toml", "./wh/ice", *AS_OF, *JSON)
    assert checked.code == 0, checked.err
    found = options(checked.json, place, "ice")
    of_file = {key: value for key, (value, source) in found.items() if "made.toml: tables[0]" in source}
    assert of_file == {
        "expire-snapshots.older_than_ms": AS_OF_MS
        - 30 * DAY_MS,  # the table's own property, which keeps more
        "expire-snapshots.retain_last": 2,
        "rewrite-data-files.min_input_files": 100,
        "rewrite-data-files.delete_files": 4,
    }
    assert found["rewrite-data-files.when"] == ("due", "default")


def test_how_often_orphan_files_are_looked_for_is_taken_over(place: Path) -> None:
    own = {"orphanFileRetentionPeriodInDays": 5, "runRateInHours": 48}
    configuration = {"enabled": True, "orphanFileDeletionConfiguration": {"icebergConfiguration": own}}
    document = {"Type": "orphan_file_deletion", "TableOptimizerConfiguration": configuration}
    (place / "glue.json").write_text(json.dumps(document))
    ran = iceberg_cli("policy", "import", "glue.json", "./wh/ice", "--from", "glue", "-o", "made.toml")
    assert (ran.code, ran.err) == (0, "")
    checked = iceberg_cli("policy", "check", "made.toml", "./wh/ice", *AS_OF, *JSON)
    found = options(checked.json, place, "ice")
    assert found["remove-orphan-files.older_than_ms"][0] == AS_OF_MS - 5 * DAY_MS
    assert found["remove-orphan-files.every_ms"] == (
        2 * DAY_MS, "made.toml: tables[0].remove-orphan-files.every",
    )  # fmt: skip


def test_compaction_that_was_disabled_elsewhere_is_never_due_here(place: Path) -> None:
    (place / "polaris.json").write_text(
        json.dumps({"type": "system.data-compaction", "content": {"enable": False}})
    )
    ran = iceberg_cli("policy", "import", "polaris.json", "./wh/ice", "--from", "polaris", "-o", "made.toml")
    assert (ran.code, ran.err) == (0, "")
    checked = iceberg_cli("policy", "check", "made.toml", "./wh/ice", *AS_OF, *JSON)
    assert options(checked.json, place, "ice") == {
        "rewrite-data-files.when": ("never", "made.toml: tables[0].rewrite-data-files.when")
    }


def test_every_tool_has_a_reader() -> None:
    assert tuple(SOURCES) == FORMATS

"""A variable or configuration file never keeps less than the table's own properties ask for; the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, a_remove, an_add, write_log
from tests.builders import DAY_MS, NOW_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, edited, four_snapshots, newest_metadata, old_files
from tests.cli.running import dry, going, iceberg_cli

HOUR_MS = DAY_MS // 24
AGE, COUNT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
UNSAFE = "--unsafe-allow-short-retention"
PLACES = (pytest.param("variable", marks=pytest.mark.deep), "file")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which there is no configuration file yet."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def say(where: str, place: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> dict[str, str]:
    """Have a variable or the file give options of expire-snapshots; by name how a plan calls their source."""
    sources = {}
    lines = ["[expire-snapshots]"]
    for name, text in options.items():
        key, variable = name.replace("_", "-"), f"ICEBERG_CLI_{name.upper()}"
        if where == "variable":
            monkeypatch.setenv(variable, text)
        lines.append(f'{key} = "{text}"')
        sources[name] = (
            f"variable {variable}" if where == "variable" else f"iceberg-cli.toml: expire-snapshots.{key}"
        )
    if where == "file":
        (place / "iceberg-cli.toml").write_text("\n".join(lines))
    return sources


def an_iceberg_table(tmp_path: Path, **properties: str) -> str:
    """Snapshots 1 to 4, nine to six days old."""
    return four_snapshots(tmp_path / "t", properties=properties).publish()


# -- Iceberg -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("age_ms", "text", "cut_ms", "wins"),
    [
        (8 * DAY_MS, "7d", 8 * DAY_MS, True),
        (8 * DAY_MS, "1w", 8 * DAY_MS, True),
        (8 * DAY_MS, "8d", 8 * DAY_MS, False),
        (8 * DAY_MS, "192h", 8 * DAY_MS, False),
        (8 * DAY_MS, "9d", 9 * DAY_MS, False),
        (8 * DAY_MS + 1, "8d", 8 * DAY_MS + 1, True),
        (HOUR_MS, "60m", HOUR_MS, False),
        (HOUR_MS, "3599s", HOUR_MS, True),
        (8 * DAY_MS, str(AS_OF_MS - 7 * DAY_MS), 8 * DAY_MS, True),
        (8 * DAY_MS, str(AS_OF_MS - 8 * DAY_MS), 8 * DAY_MS, False),
        (0, "0s", 0, False),
    ],
)
def test_the_greater_age_of_the_property_and_of_what_is_said_for_all_tables_decides(
    age_ms: int, text: str, cut_ms: int, wins: bool, where: str,
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    table = an_iceberg_table(tmp_path, **{AGE: str(age_ms)})
    source = say(where, place, monkeypatch, older_than=text)["older_than"]
    plan = dry(table, *AS_OF)
    stated = f"table property {AGE}, which keeps more than {source}" if wins else source
    assert plan["options"]["older_than_ms"] == {"value": AS_OF_MS - cut_ms, "source": stated}
    # The newest snapshot is kept by count, and all that are older than the cut-off go.
    assert going(plan) == {str(n) for n in (1, 2, 3) if (10 - n) * DAY_MS > cut_ms}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(("count", "text", "kept"), [(3, "2", 3), (3, "3", 3), (2, "3", 3), (1, "2", 2)])
def test_the_greater_count_of_the_property_and_of_what_is_said_for_all_tables_decides(
    count: int, text: str, kept: int, where: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path, **{COUNT: str(count)})
    source = say(where, place, monkeypatch, retain_last=text)["retain_last"]
    plan = dry(table, *AS_OF)
    stated = f"table property {COUNT}, which keeps more than {source}" if count > int(text) else source
    assert plan["options"]["retain_last"] == {"value": kept, "source": stated}
    assert len(going(plan)) == 4 - kept


def test_the_command_line_keeps_less_than_the_property(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(30 * DAY_MS), COUNT: "4"})
    say("file", place, monkeypatch, older_than="1d", retain_last="1")
    assert going(dry(table, *AS_OF)) == set()
    assert going(dry(table, *AS_OF, "--older-than", "7d", "--retain-last", "1")) == {"1", "2"}
    options = dry(table, *AS_OF, "--retain-last", "1")["options"]
    assert options["older_than_ms"]["value"] == AS_OF_MS - 30 * DAY_MS
    assert options["retain_last"] == {"value": 1, "source": "--retain-last"}


def test_defaults_bind_nobody(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = an_iceberg_table(tmp_path)
    source = say("file", place, monkeypatch, older_than="1d")["older_than"]
    assert dry(table, *AS_OF)["options"]["older_than_ms"] == {"value": AS_OF_MS - DAY_MS, "source": source}


@pytest.mark.parametrize("name", [AGE, COUNT])
def test_a_property_that_is_negative_is_named(
    name: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path, **{name: "-1"})
    say("file", place, monkeypatch, older_than="1d", retain_last="1")
    ran = iceberg_cli("expire-snapshots", table, *AS_OF, "--dry-run")
    assert ran.code == 2
    assert f"{name}=-1 is negative" in ran.err


def test_a_saved_plan_keeps_what_the_property_asked_for(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = four_snapshots(tmp_path / "t", properties={AGE: str(int(7.5 * DAY_MS))})
    table = made.publish()
    say("file", place, monkeypatch, older_than="6d")
    assert iceberg_cli("plan", table, "expire-snapshots", *AS_OF, "-o", "saved.plan").code == 0
    (place / "iceberg-cli.toml").unlink()
    ran = iceberg_cli("apply", "saved.plan", "--yes", "--format", "json")
    assert ran.code == 0, ran.err
    left = iceberg_cli("inspect", table, "snapshots", "--format", "json").json["rows"]
    assert {row["snapshot_id"] for row in left} == {"3", "4"}


def test_named_snapshots_stay_alone_and_their_plan_names_the_property(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(8 * DAY_MS)})
    say("file", place, monkeypatch, older_than="9d", retain_last="1")
    plan = dry(table, "--snapshot-id", "3", *AS_OF)
    assert going(plan) == {"3"}
    assert plan["options"]["older_than_ms"]["source"] == f"table property {AGE}"


# -- Delta -------------------------------------------------------------------------------------------------------------


def a_delta_table(tmp_path: Path, **configuration: str) -> str:
    """Files removed 20 and 10 days ago, and a version for each."""
    folder = tmp_path / "d"
    names = ("a", "b", "c")
    first = [
        a_protocol(),
        a_metadata(configuration=configuration),
        *(an_add(path=f"{n}.parquet") for n in names),
    ]
    removes = [
        a_remove(path=f"{name}.parquet", deletionTimestamp=AS_OF_MS - days * DAY_MS)
        for name, days in (("b", 20), ("c", 10))
    ]
    behind_ms = NOW_MS - AS_OF_MS
    ages = [behind_ms + days * DAY_MS for days in (40, 20, 10)]
    write_log(folder, first, *([each] for each in removes), age_ms=ages)
    old_files(folder, *(f"{name}.parquet" for name in names))
    return str(folder)


def files_of(plan: dict[str, Any]) -> int:
    found: int = plan["removals"]["by_kind"].get("data_file", {}).get("count", 0)
    return found


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("interval", "text", "days", "wins", "files"),
    [
        ("interval 15 days", "8d", 15, True, 1),
        ("interval 360 hours", "15d", 15, False, 1),
        ("interval 15 days", "2w", 15, True, 1),
        ("interval 2 weeks", "15d", 15, False, 1),
        ("interval 15 days", "25d", 25, False, 0),
        ("interval 1 week", "168h", 7, False, 2),
        ("interval 30 days", "P7D", 30, True, 0),
    ],
)
def test_the_longer_retention_of_files_of_the_property_and_of_what_is_said_for_all_tables_decides(
    interval: str, text: str, days: int, wins: bool, files: int, where: str,
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    table = a_delta_table(tmp_path, **{FILES: interval})
    source = say(where, place, monkeypatch, retention=text)["retention"]
    plan = dry(table, *AS_OF)
    stated = f"table property {FILES}, which keeps more than {source}" if wins else source
    assert plan["options"]["retention_ms"] == {"value": days * DAY_MS, "source": stated}
    assert plan["blocked_by"] == []
    assert files_of(plan) == files


def test_a_retention_below_the_default_is_blocked_and_names_its_place(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_delta_table(tmp_path)
    source = say("file", place, monkeypatch, retention="1h")["retention"]
    (reason,) = dry(table, *AS_OF)["blocked_by"]
    assert reason.startswith(f"{source} 1 h is less than the 168 h that the table promises")
    assert dry(table, *AS_OF, UNSAFE)["blocked_by"] == []
    explicit = a_delta_table(tmp_path / "explicit", **{FILES: "interval 15 days"})
    assert dry(explicit, *AS_OF, UNSAFE)["options"]["retention_ms"]["value"] == 15 * DAY_MS
    assert dry(explicit, *AS_OF, "--retention", "1h", UNSAFE)["options"]["retention_ms"]["value"] == HOUR_MS


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("interval", "text", "days", "stated"),
    [
        ("interval 35 days", "20d", 35, f"table property {LOG}, which keeps more than PLACE"),
        ("interval 35 days", "840h", 35, "PLACE"),
        ("interval 5 weeks", "36d", 36, "PLACE"),
        (None, "20d", 20, "PLACE"),
        (None, "3d", 7, "default, which keeps more than PLACE"),  # files stay for 7 days
    ],
)
def test_the_longer_retention_of_the_log_decides(
    interval: str | None, text: str, days: int, stated: str, where: str,
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    table = a_delta_table(tmp_path, **({} if interval is None else {LOG: interval}))
    source = say(where, place, monkeypatch, log_retention=text)["log_retention"]
    plan = dry(table, *AS_OF)
    assert plan["options"]["log_retention_ms"] == {
        "value": days * DAY_MS, "source": stated.replace("PLACE", source),
    }  # fmt: skip
    assert plan["blocked_by"] == []


def test_a_log_that_the_table_does_not_clean_up_stays(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_delta_table(tmp_path, **{"delta.enableExpiredLogCleanup": "false"})
    say("file", place, monkeypatch, log_retention="15d")
    options = dry(table, *AS_OF)["options"]
    assert options["log_older_than"]["value"] is None
    assert options["log_retention_ms"]["source"] == "default"
    typed = dry(table, *AS_OF, "--log-retention", "15d")["options"]
    assert typed["log_older_than"]["value"] is not None


def test_a_retention_on_the_command_line_is_not_blocked_by_a_log_retention_in_the_file(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_delta_table(tmp_path)
    source = say("file", place, monkeypatch, log_retention="10d")["log_retention"]
    plan = dry(table, *AS_OF, "--retention", "12d")
    assert plan["blocked_by"] == []
    assert plan["options"]["log_retention_ms"] == {
        "value": 12 * DAY_MS, "source": f"--retention, which keeps more than {source}",
    }  # fmt: skip


def test_what_a_branch_says_is_stronger_than_a_file(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path)
    with edited(newest_metadata(tmp_path / "t")) as metadata:
        metadata["refs"]["main"]["min-snapshots-to-keep"] = 3
    say("file", place, monkeypatch, older_than="1d", retain_last="1")
    assert going(dry(table, *AS_OF)) == {"1"}


def test_a_variable_keeps_no_less_than_the_properties_either(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = an_iceberg_table(tmp_path, **{AGE: str(8 * DAY_MS), COUNT: "2"})
    sources = say("variable", place, monkeypatch, older_than="1d", retain_last="1", retention="8d")
    plan = dry(table, *AS_OF)
    assert going(plan) == {"1"}
    assert plan["options"]["retain_last"]["source"].endswith(
        f"which keeps more than {sources['retain_last']}"
    )
    delta = dry(a_delta_table(tmp_path, **{FILES: "interval 15 days"}), *AS_OF)["options"]["retention_ms"]
    assert delta["value"] == 15 * DAY_MS
    assert delta["source"].endswith(f"which keeps more than {sources['retention']}")

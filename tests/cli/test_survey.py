"""`plan` without a verb: what each verb would do, as blocks whose commands can be copied."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_cli.cli.render import plan as render_plan
from iceberg_cli.plan.plan import Base, Option, Plan, Step, Verdict
from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import AS_OF, AS_OF_MS, FolderTable, edited, four_snapshots
from tests.cli.printed import on_a_terminal
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import Hazard, entry


@pytest.fixture
def table(tmp_path: Path) -> FolderTable:
    made = four_snapshots(tmp_path / "a shop" / "events")
    made.publish()
    return made


def commands(ran: Ran) -> list[list[str]]:
    """The commands of a survey, as a shell splits them."""
    assert ran.code in (0, 3), ran.err
    return [shlex.split(line) for line in ran.out.splitlines() if line.startswith("  iceberg-cli ")]


def test_a_command_carries_the_options_of_its_verb_and_a_path_that_a_shell_reads(table: FolderTable) -> None:
    ran = iceberg_cli(
        "plan", table.folder, *AS_OF, "--older-than", "7d", "--clean-metadata", "--min-manifests", 2
    )
    found = {words[1]: words for words in commands(ran)}
    as_of = ["--as-of", str(AS_OF_MS)]
    assert found["expire-snapshots"] == [
        "iceberg-cli", "expire-snapshots", str(table.folder), "--older-than", "7d", "--clean-metadata", *as_of,
    ]  # fmt: skip
    assert found["rewrite-manifests"] == [
        "iceberg-cli", "rewrite-manifests", str(table.folder), "--min-manifests", "2", *as_of,
    ]  # fmt: skip
    assert found["upgrade-v3"] == ["iceberg-cli", "upgrade-v3", str(table.folder), *as_of]


def test_options_that_repeat_and_flags_of_another_name_are_carried(table: FolderTable) -> None:
    ran = iceberg_cli(
        "plan", table.folder, *AS_OF, "--snapshot-id", 1, "--snapshot-id", 2, "--with", "assign-row-ids"
    )
    found = {words[1]: words[3:-2] for words in commands(ran)}
    assert found["expire-snapshots"] == ["--snapshot-id", "1", "--snapshot-id", "2"]
    assert found["upgrade-v3"] == ["--with", "assign-row-ids"]


def test_a_command_does_what_the_survey_says(table: FolderTable) -> None:
    words = next(
        words for words in commands(iceberg_cli("plan", table.folder, *AS_OF, "--older-than", "200h"))
        if words[1] == "expire-snapshots"
    )  # fmt: skip
    report = iceberg_cli(*words[1:], "--yes", "--format", "json").json
    assert report["deleted_manifest_lists_count"] == 1


def test_a_secret_of_the_storage_is_not_repeated(table: FolderTable, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hidden")
    ran = iceberg_cli(
        "plan", table.folder, *AS_OF, "--storage-option", "s3.secret-access-key=sesame",
        "--storage-option", f"s3.access-key-id=@{tmp_path / 'key'}",
    )  # fmt: skip
    assert "sesame" not in ran.out
    assert "s3.secret-access-key=..." in ran.out
    assert f"s3.access-key-id=@{tmp_path / 'key'}" in ran.out


def test_what_is_blocked_is_not_due(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties={"gc.enabled": "false"})
    arguments = ("plan", table.publish(), *AS_OF, "--min-manifests", 100, "--exit-code")
    ran = iceberg_cli(*arguments, "--format", "json")
    assert (ran.code, ran.json["due"]) == (0, False)
    expiry = next(plan for plan in ran.json["plans"] if plan["operation"] == "expire-snapshots")
    assert expiry["due"]
    assert expiry["blocked_by"]
    out = iceberg_cli(*arguments).out
    assert "  blocked by: table property gc.enabled=false" in out
    headline = out.partition("\n")[0]
    assert headline.endswith("expire-snapshots is blocked")
    assert "freed" not in headline
    for one_verb in (
        ("plan", table.folder, "expire-snapshots", *AS_OF, "--exit-code"),
        ("expire-snapshots", table.folder, *AS_OF, "--dry-run", "--exit-code"),
    ):
        assert iceberg_cli(*one_verb).code == 0


def with_a_manifest_cut_short(folder: Path) -> Hazard:
    """Two small manifests of which a merge reads both; expiry keeps them unread. One is cut inside a block."""
    table = Hazard(location=str(folder))
    a, b = table.data("a", "b")
    table.manifest("m1", entry(ADDED, a))
    path = Path(table.rows[table.manifest("m2", entry(ADDED, b))]["manifest_path"])
    path.write_bytes(path.read_bytes()[:-20])
    table.rows["m2"]["manifest_length"] -= 20
    table.snapshot(9, "m1", "m2")
    table.publish(main=9)
    return table


def test_a_verb_that_cannot_be_planned_says_why_and_the_others_are_shown(tmp_path: Path) -> None:
    location = with_a_manifest_cut_short(tmp_path / "t").location
    ran = iceberg_cli("plan", location, *AS_OF)
    assert ran.code == 15
    lines = ran.out.splitlines()
    assert (
        lines[0] == "Nothing is due; rewrite-manifests, upgrade-v3 and rewrite-data-files cannot be planned"
    )
    assert "rewrite-manifests: cannot be planned" in lines
    why = lines[lines.index("rewrite-manifests: cannot be planned") + 1]
    assert why.startswith(f"  Cannot read {location}/metadata/m2.avro at byte ")
    assert "expire-snapshots: nothing to do" in lines
    document = iceberg_cli("plan", location, *AS_OF, "--format", "json").json
    assert "expire-snapshots" in {each["operation"] for each in document["plans"]}
    failed = {each["operation"]: each for each in document["failed"]}
    assert failed["rewrite-manifests"]["exit_code"] == 15
    assert failed["rewrite-manifests"]["message"] == why.strip()
    quiet = iceberg_cli("plan", location, *AS_OF, "--quiet", "--exit-code")
    assert (quiet.code, quiet.out) == (15, "")
    assert f"error: {why.strip()}" in quiet.err


def test_one_verb_alone_that_cannot_be_planned_is_an_error(tmp_path: Path) -> None:
    location = with_a_manifest_cut_short(tmp_path / "t").location
    ran = iceberg_cli("plan", location, "rewrite-manifests", *AS_OF, "--format", "json")
    assert (ran.code, ran.json["schema"]) == (15, "iceberg-cli/error/2")


def test_a_wrong_word_on_the_command_line_ends_the_whole_survey(table: FolderTable) -> None:
    assert iceberg_cli("plan", table.folder, *AS_OF, "--spec-id", 77).code == 2


def test_a_refusal_is_of_an_effect(tmp_path: Path) -> None:
    """Nothing is due, so nothing is refused: neither in the plan nor when it is carried out."""
    table = four_snapshots(tmp_path / "t", properties={"gc.enabled": "false"})
    arguments = ("expire-snapshots", table.publish(), *AS_OF, "--older-than", "30d", "--format", "json")
    assert iceberg_cli(*arguments, "--dry-run").json["blocked_by"] == []
    ran = iceberg_cli(*arguments, "--yes")
    assert (ran.code, ran.json["status"]) == (0, "nothing_to_do")
    survey = iceberg_cli("plan", table.folder, *AS_OF, "--older-than", "30d", "--min-manifests", 100).out
    assert "assign-row-ids: nothing to do: the table has format version 2" in survey
    assert "blocked by" not in survey.partition("upgrade-v3")[0]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_command_and_no_word_is_cut_on_a_narrow_terminal(table: FolderTable, width: int) -> None:
    plan = made(blocked_by=("another table may use these files: see the table's properties",))
    command = f"iceberg-cli expire-snapshots {shlex.quote(str(table.folder / ('x' * 80)))} --older-than 14d"
    out = on_a_terminal(width, lambda screen: render_plan.show_survey(screen, [plan], [command]))
    assert f"  {command}" in out.splitlines()
    assert "blocked by: another" in out
    assert {"properties", "snapshot"} <= set(out.replace(",", " ").split())


# -- one plan ----------------------------------------------------------------------------------------------------


def made(*, options: dict[str, Option] | None = None, blocked_by: tuple[str, ...] = ()) -> Plan:
    return Plan(
        verb="expire-snapshots",
        table={"name": "t", "location": "/t", "format": "iceberg", "format_version": 2},
        base=Base(table_uuid="u", version="v1"),
        as_of_ms=0,
        options=options or {},
        policy={},
        verdicts=(
            Verdict(subject="snapshot", id="1", keep=False, reason="old"),
            Verdict(subject="branch", id="main", keep=True, reason="kept"),
        ),
        blocked_by=blocked_by,
        steps=(Step(name="expire"),),
    )


def test_options_are_words_and_no_python() -> None:
    options = {
        "with": Option(value=["merge-dvs", "assign-row-ids"], source="--with"),
        "where": Option(value=None, source="default"),
        "keep_dangling": Option(value=True, source="--keep-dangling"),
        "spec_ids": Option(value=[], source="default"),
        "target_size_bytes": Option(value=8 << 20, source="table property p"),
    }
    for verbose, defaults in ((True, "by default     where not given, spec-ids not given"), (False, None)):
        out = on_a_terminal(
            200, lambda screen: render_plan.show_plan(screen, made(options=options)), verbose=verbose
        )
        lines = out.splitlines()
        for line in (
            "with           merge-dvs, assign-row-ids, by --with",
            "keep-dangling  yes, by --keep-dangling",
            "target-size    8.0 MiB, by table property p",
        ):
            assert line in lines
        assert [line for line in lines if line.startswith("by default")] == ([defaults] if defaults else [])


def test_one_is_singular_and_a_column_of_times_needs_a_time() -> None:
    out = on_a_terminal(200, lambda screen: render_plan.show_plan(screen, made()))
    assert out.splitlines()[0] == "1 snapshot goes; no file is deleted"
    assert "time" not in out


def test_the_summary_of_a_table_names_the_command_for_the_other_verbs(table: FolderTable) -> None:
    out = iceberg_cli("inspect", table.folder, *AS_OF).out
    assert f"  iceberg-cli plan '{table.folder}'  # what goes, and the other verbs" in out.splitlines()
    assert "nothing to do" not in out


def test_a_table_without_uuid_says_so(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "old"), format_version=1)
    table.manifest("m1", entry(ADDED, *table.data("a"), record_count=3))
    table.snapshot(9, "m1")
    table.publish(main=9)
    with edited(tmp_path / "old/metadata/v1.metadata.json") as document:
        del document["table-uuid"]
    ran = iceberg_cli("inspect", table.location)
    assert ran.code == 0, ran.err
    assert ["uuid", "none"] in [line.split() for line in ran.out.splitlines()]


@pytest.mark.parametrize(("number", "ending"), [(2, ": v0, v1"), (12, ", v8, v9 and 2 more")])
def test_tags_that_go_are_named_where_they_are_one_row(number: int, ending: str) -> None:
    tags = tuple(
        Verdict(subject="tag", id=f"v{index}", keep=False, reason=f"dropped: {index} d old", gist="too old")
        for index in range(number)
    )
    out = on_a_terminal(160, lambda screen: render_plan.show_verdicts(screen, replace(made(), verdicts=tags)))
    (row,) = out.splitlines()[1:]
    assert row.startswith(f"- go  {number} tags  too old: v0")
    assert row.endswith(ending)

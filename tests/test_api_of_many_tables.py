"""Many tables from Python: what a program gets is what the commands show and do."""

from __future__ import annotations

import html
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.errors import CorruptFile, TableNotFound, UsageError
from tests import api_consumer
from tests.cli.lakes import AS_OF_MS, GONE, delta_with_removed_files, four_snapshots, listing, unchanged
from tests.cli.running import iceberg_cli
from tests.fleet.maintaining import policy_file

OLD = '{ older-than = "1d", retain-last = 1 }'


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with two Iceberg tables, `a` and `b`, of four snapshots each, and the Delta table `d`."""
    folder = tmp_path / "lake"
    for name in "ab":
        four_snapshots(folder / name).publish()
    delta_with_removed_files(folder / "d", "gone")
    return folder


@pytest.fixture
def policy(lake: Path, tmp_path: Path) -> Path:
    """A policy file by which `expire-snapshots` runs on all of them but `b`, which is held."""
    held = ["[[tables]]", f'match = ["{lake}/b"]', "maintain = false", 'reason = "an audit"']
    return policy_file(tmp_path / "policy.toml", {"expire-snapshots": OLD}, [f"{lake}/*"], more=held)


def command(*arguments: object) -> Any:
    """The document of a command at the time of these tests."""
    return iceberg_cli(*arguments, "--no-cache", "--as-of", AS_OF_MS, "--format", "json").json


def text(*arguments: object) -> str:
    """What a command prints."""
    return iceberg_cli(*arguments, "--no-cache", "--as-of", AS_OF_MS).out.rstrip("\n")


def page_in(frame: str | None) -> str:
    """The page in what a notebook gets."""
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', frame or ""
    )
    assert found is not None
    return html.unescape(found[1])


def deleted(before: dict[str, str], folder: Path) -> set[str]:
    return {name for name in before.keys() - listing(folder).keys() if "_iceberg_cli" not in name}


def test_tables_are_listed_as_the_command_lists_them(lake: Path) -> None:
    found = ic.list_tables(f"{lake}/**")
    assert [each.name for each in found] == [f"{lake}/{name}" for name in "abd"]
    assert [each.format for each in found] == ["iceberg", "iceberg", "delta"]
    assert (len(found), found.exit_code, found.failed) == (3, 0, [])
    assert found.to_json() == iceberg_cli("list", f"{lake}/**", "--format", "json").json
    assert str(found) == iceberg_cli("list", f"{lake}/**").out.rstrip("\n")
    assert [each.name for each in ic.list_tables([f"{lake}/a", f"{lake}/d"], kind="delta")] == [f"{lake}/d"]
    assert [ic.ListedTable.from_json(each.to_json()) for each in found] == list(found)
    assert repr(found) == "TableListing(3 tables)"
    assert [repr(each).partition("/lake/")[2] for each in found] == [
        "a, iceberg)",
        "b, iceberg)",
        "d, delta)",
    ]
    assert found._repr_html_() is None


def test_pattern_that_means_nothing_fails_beside_the_tables_of_others(lake: Path) -> None:
    found = ic.list_tables([f"{lake}/a", f"{lake}/x*"])
    assert [each.name for each in found] == [f"{lake}/a"]
    [(name, error)] = found.failed
    assert (name, type(error), found.exit_code) == (f"{lake}/x*", TableNotFound, 10)
    assert f"error: No table matches {lake}/x*." in str(found)
    assert repr(found) == "TableListing(1 table, 1 failed)"


def test_survey_is_that_of_the_command(lake: Path, tmp_path: Path) -> None:
    with unchanged(lake):
        found = ic.survey(f"{lake}/**", as_of=AS_OF_MS)
    page = tmp_path / "page.html"
    assert found.to_json() == command("survey", f"{lake}/**", "--report", page)
    assert page_in(found._repr_html_()) == page.read_text(encoding="utf-8")
    assert str(found) == text("survey", f"{lake}/**")
    files = {each.name: [due["files"] for due in each.row["due"]] for each in found}
    assert files == {f"{lake}/a": [len(GONE)], f"{lake}/b": [len(GONE)], f"{lake}/d": [1]}
    assert found.totals.due == 3
    few = [f"{lake}/d", f"{lake}/a"]  # by what they free, and by their names, the other way round
    assert [each.name for each in ic.survey(few, as_of=AS_OF_MS)] == few[::-1]
    quick = ic.survey(f"{lake}/**", quick=True, sort="name", as_of=AS_OF_MS)
    assert quick.to_json() == command("survey", f"{lake}/**", "--quick", "--sort", "name")


def test_broken_table_is_a_row_and_no_error(lake: Path) -> None:
    (lake / "a" / "metadata" / "v1.metadata.json").write_text("{")
    found = ic.survey(f"{lake}/*", as_of=AS_OF_MS)
    assert (found[0].name, found[0].grade) == (f"{lake}/a", "broken")
    assert repr(found[0]).endswith("/lake/a: broken)")
    assert found.exit_code == CorruptFile.exit_code
    assert f"{lake}/a is broken: " in str(found).splitlines()[3]


def test_maintenance_deletes_what_the_policy_says_and_leaves_what_is_held(lake: Path, policy: Path) -> None:
    loaded = ic.Policy.load(policy)
    assert repr(loaded) == f"Policy({str(policy)!r}, 2 entries)"
    with unchanged(lake):
        planned = ic.maintain(policy=loaded, dry_run=True, as_of=AS_OF_MS)
    shown = command("maintain", "--policy", policy, "--dry-run")
    own = {"run_id": planned.run_id}
    without_times = [{**run, "duration_ms": 0} for run in planned.to_json()["runs"]]
    assert without_times == sorted(
        ({**run, "duration_ms": 0} for run in shown["runs"]), key=lambda run: str(run["table"]["name"])
    )
    assert {**planned.to_json(), "runs": []} == {**shown, "runs": [], **own}
    assert str(planned) == text("maintain", "--policy", policy, "--dry-run")
    before = {name: listing(lake / name) for name in "abd"}
    done = ic.maintain(policy=str(policy), as_of=AS_OF_MS, deadline="1h")
    assert [(run.name, run.status, run.skipped_for) for run in done] == [
        (f"{lake}/a", "done", ""),
        (f"{lake}/b", "skipped", "held"),
        (f"{lake}/d", "done", ""),
    ]
    assert deleted(before["a"], lake / "a") == GONE
    assert deleted(before["b"], lake / "b") == set()
    assert deleted(before["d"], lake / "d") == {"gone.parquet"}
    assert (done.totals.files, done.exit_code) == (len(GONE) + 1, 0)
    assert [repr(run).partition("/lake/")[2] for run in done] == [
        f"a: done, {done[0].freed_bytes / 1024:.1f} KiB freed)", "b: skipped)", "d: done, 4 B freed)",
    ]  # fmt: skip
    assert repr(done).startswith("MaintenanceResult(3 tables, 2 worked_on, 1 skipped, ")
    assert "done" in page_in(done._repr_html_())


def test_hold_of_no_table_is_a_warning(lake: Path, tmp_path: Path) -> None:
    held = ["[[tables]]", f'match = ["{lake}/mistyped"]', "maintain = false"]
    policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": OLD}, [f"{lake}/a"], more=held)
    result = ic.maintain(f"{lake}/a", policy=policy, dry_run=True, as_of=AS_OF_MS)
    warning = f"{lake}/mistyped means no table, so that its maintain = false holds none"
    assert result.warnings == (warning,)
    assert f"warning: {warning}" in str(result)


def test_bound_and_choice_of_verbs_hold_for_all_tables(lake: Path, policy: Path) -> None:
    before = listing(lake)
    found = ic.maintain(f"{lake}/a", policy=policy, as_of=AS_OF_MS, limit_deletes=2)
    assert len(deleted(before, lake)) == 2
    assert [run.status for run in found] == ["partial"]
    assert [each["operation"] for each in found.left] == ["expire-snapshots"]
    tables = [each for each in ic.list_tables(policy=policy) if each.name == f"{lake}/a"]
    again = ic.maintain(tables, policy=policy, as_of=AS_OF_MS, max_bytes="1MiB", deadline=timedelta(hours=1))
    assert again.exit_code == 0
    assert deleted(before, lake) == {f"a/{name}" for name in GONE}
    assert not ic.maintain([], policy=policy)
    assert not ic.maintain(f"{lake}/a", policy=policy, only="merge-dvs")


def test_columns_have_the_same_types_of_no_table_as_of_many(lake: Path, policy: Path, tmp_path: Path) -> None:
    nothing = f"{tmp_path}/none/**"
    full = (
        ic.list_tables(f"{lake}/**"),
        ic.survey(f"{lake}/**", as_of=AS_OF_MS),
        ic.maintain(policy=policy, dry_run=True, as_of=AS_OF_MS),
    )
    empty = (ic.list_tables(nothing), ic.survey(nothing), ic.maintain(nothing, policy=policy))
    for many, none in zip(full, empty, strict=True):
        assert (many.to_arrow().num_rows, none.to_arrow().num_rows) == (3, 0)
        assert many.to_arrow().schema == none.to_arrow().schema
        assert not [each for each in many.to_arrow().schema if pa.types.is_null(each.type)]
    due = {row["name"]: row["due"] for row in full[1].to_arrow().to_pylist()}
    assert [each["files"] for each in due[f"{lake}/a"]] == [len(GONE)]
    planned = full[2].to_arrow().to_pylist()
    assert [row["deleted_files_count"] for row in planned] == [len(GONE), 0, 1]


def test_mistakes_are_told_by_the_names_of_arguments(lake: Path, policy: Path) -> None:
    for arguments, message in (
        ({"only": "expire"}, "only: 'expire' is no verb"),
        ({"jobs": 0}, "jobs must be at least 1, not 0"),
        ({"limit_deletes": 0}, "limit_deletes must be at least 1, not 0"),
        ({"max_bytes": "lots"}, "max_bytes: 'lots' is no size"),
        ({"deadline": "soon"}, "deadline: 'soon' is no duration"),
        ({"deadline": 3_600}, "deadline: 3600 is 1970-01-01T00:00:03.600Z"),
        ({"as_of": datetime(2026, 1, 1)}, r"as_of: .* has no zone"),  # noqa: DTZ001 - what is refused
        ({"policy": None}, r"policy must be one"),
        ({"tables": [*ic.list_tables(f"{lake}/a"), "x"]}, r"tables: ListedTable.* is no pattern"),
    ):
        given: dict[str, Any] = {"tables": f"{lake}/a", "policy": policy, **arguments}
        with unchanged(lake), pytest.raises(UsageError, match=f"^{message}") as caught:
            ic.maintain(**given)
        assert "--" not in str(caught.value) + caught.value.next_step
    for sort in ("size", "--name"):
        with pytest.raises(UsageError, match=r"^sort must be freed, grade or name"):
            ic.survey(f"{lake}/**", sort=sort)
    with pytest.raises(UsageError, match=r"^kind must be iceberg or delta"):
        ic.list_tables(f"{lake}/**", kind="hudi")


def test_consumer_whose_types_mypy_checks_gets_what_it_says(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "--quiet").code == 0
    shutil.rmtree(tmp_path / "demo/db/visits")  # it is about tables of one format
    folder = f"{tmp_path}/demo"
    now = datetime.fromtimestamp((tmp_path / "demo").stat().st_mtime, UTC)
    due = api_consumer.look(folder, now)
    assert due > 0
    match = [f"{folder}/**"]
    policy = policy_file(tmp_path / "policy.toml", {"expire-snapshots": OLD}, match)
    assert api_consumer.keep_up(str(policy)) == [
        f"{folder}/db/{name} expire-snapshots: done" for name in ("events", "orders")
    ]
    assert api_consumer.carry_out(f"{folder}/db/events") == "nothing_to_do"

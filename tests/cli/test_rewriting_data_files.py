"""`rewrite-data-files` as an operator meets it: its plan, what it did, how it ends, and where it runs by itself."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.storage.local import LocalStorage
from tests.cli.running import JSON, Ran, iceberg_cli
from tests.fleet.maintaining import maintain, policy_file, runs_of
from tests.iceberg.verbs.rewrite_data_files.tables import RowsTable
from tests.iceberg.verbs.rewrite_data_files.whole_runs import numbers

VERB = "rewrite-data-files"
MORE_LEFT = ("--commit-every", "1KiB")  # each group by itself


def a_table(folder: Path, *, version: int = 2, **properties: str) -> RowsTable:
    """Six small files of `x` and two of `y`, three deleted rows of the first one, and a tag."""
    table = RowsTable(
        storage=LocalStorage(), location=str(folder), format_version=version, properties=properties
    )
    for number in range(6):
        numbers(table, f"x{number}", range(10 * number, 10 * number + 10), k="x")
    for number in range(2):
        numbers(table, f"y{number}", [100 + number], k="y")
    table.commit(1)
    (table.positions if version < 3 else table.vectors)("p", {"x0": [0, 1, 2]}, k="x")
    table.commit(2)
    table.publish()
    return table


def dry(folder: Path | str, *words: object) -> dict[str, Any]:
    """The plan of a dry run."""
    ran = iceberg_cli(VERB, folder, *words, "--dry-run", *JSON)
    assert ran.code == 0, ran.out
    return ran.json


def rows_of(folder: Path) -> list[int]:
    """The numbers that `inspect` shows of a table."""
    ran = iceberg_cli("inspect", folder, "sample", "--limit", 1000, *JSON)
    return sorted(row["n"] for row in ran.json["rows"])


LEFT = [*range(3, 60), 100, 101]


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_a_plan_has_its_groups_its_cost_and_a_reason_for_each_partition_that_it_passes_by(
    tmp_path: Path,
) -> None:
    table = a_table(tmp_path / "t")
    plan = dry(tmp_path / "t")
    found, entries = plan["rewrite"], {each["file_path"]: each for each in table.live()}
    names = [f"x{number}" for number in range(6)]
    sizes = [entries[table.path(name)]["file_size_in_bytes"] for name in names]
    (group,) = found["groups"]
    assert (group["partition"], group["files"], group["bytes"], group["rows"]) == ("k=x", 6, sum(sizes), 60)
    assert group["inputs_digest"] == sha256("".join(f"{table.path(n)}\n" for n in names).encode()).hexdigest()
    assert (found["input_files"], found["input_bytes"], found["rows"]) == (6, sum(sizes), 60)
    assert (found["output_files"], found["peak_extra_bytes"]) == (1, found["output_bytes"])
    # How many rows go is known before they are read where a delete is about one file alone.
    assert found["output_bytes"] == sum(sizes)
    # A delete file of the partition may be about any of its files; only its rows tell whether it names another one.
    assert (found["deletes_applied"], found["delete_files_that_go"]) == (6, 0)
    assert found["passed_by"] == [
        {"partition": "k=y", "reason": f"2 files of {_size(table, 'y0', 'y1')}, fewer than min-input-files 5"}
    ]
    (freed,) = found["comes_back"]
    assert (freed["bytes"], freed["held_by"]) == (sum(sizes), [])
    assert str(table.document["current-snapshot-id"]) in freed["after"]
    assert plan["due"]
    assert plan["removals"]["count"] == 0


def _size(table: RowsTable, *names: str) -> str:
    size_bytes = sum(os.path.getsize(table.path(name)) for name in names)
    return f"{size_bytes} B"


def test_a_plan_says_which_refs_hold_the_bytes(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    table.document["refs"] |= {
        "eom": {"snapshot-id": 1, "type": "tag"}, "old": {"snapshot-id": 1, "type": "branch"},
    }  # fmt: skip
    table.publish()
    (freed,) = dry(tmp_path / "t")["rewrite"]["comes_back"]
    assert freed["held_by"] == ["eom", "old"]
    forbidden = a_table(tmp_path / "u", **{"gc.enabled": "false"})
    (freed,) = dry(forbidden.location)["rewrite"]["comes_back"]
    assert freed["after"] == "table property gc.enabled is true again"


def test_the_same_is_read_at_three_in_the_morning(tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    lines = iceberg_cli(VERB, tmp_path / "t", "--dry-run").out.splitlines()
    assert lines[0].startswith("6 data files of ")
    assert " are rewritten to about 1 of " in lines[0]
    assert lines[0].endswith(" in 1 group; no file is deleted")
    assert any(line.split()[:4] == ["k=x", "1", "6", lines[0].split()[4]] for line in lines)
    assert any("2 files of" in line and "fewer than min-input-files 5" in line for line in lines)
    for fact in ("reads", "extra space", "deletes", "comes back"):
        assert any(line.startswith(fact) for line in lines), fact


def test_how_long_it_takes_is_told_where_it_was_measured_before(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    first = dry(table.location)
    assert first["rewrite"]["expected_duration_ms"] is None
    assert not any(
        line.startswith("takes") for line in iceberg_cli(VERB, table.location, "--dry-run").out.splitlines()
    )
    ran = iceberg_cli(VERB, table.location, "--yes", *JSON)
    assert ran.code == 0, ran.err
    (record,) = (tmp_path / "t" / "_iceberg_cli" / "history").iterdir()
    past = json.loads(record.read_text())
    assert past["counts"]["rewritten_bytes_count"] == ran.json["rewritten_bytes_count"] > 0
    # As if it had taken two seconds.
    record.write_text(json.dumps({**past, "finished_ms": past["started_ms"] + 2_000}))
    again = dry(table.location, "--rewrite-all")["rewrite"]
    expected_ms = again["input_bytes"] * 2_000 / past["counts"]["rewritten_bytes_count"]
    assert abs(again["expected_duration_ms"] - expected_ms) <= 1
    (takes,) = (
        line
        for line in iceberg_cli(VERB, table.location, "--rewrite-all", "--dry-run").out.splitlines()
        if line.startswith("takes")
    )
    assert takes.endswith(", as the last runs here did")


def test_where_no_file_can_be_chosen_it_says_why_there_is_nothing_to_do(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    reason = "main has no data file that --where k = 'nowhere' is about"
    words = ("--where", "k = 'nowhere'")
    assert dry(table.location, *words)["not_applicable"] == reason
    assert iceberg_cli(VERB, table.location, *words, "--yes", *JSON).json["not_applicable"] == reason
    for entry in table.live():
        table._drop(lambda each, path=entry["file_path"]: each["file_path"] == path)
    table.commit(3)
    table.publish()
    assert iceberg_cli(VERB, table.location, "--yes").out.startswith("Nothing to do: main has no data file\n")


# -- what it did -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_run_reports_what_it_did_and_a_second_one_finds_nothing(version: int, tmp_path: Path) -> None:
    a_table(tmp_path / "t", version=version)
    before = rows_of(tmp_path / "t")
    report = iceberg_cli(VERB, tmp_path / "t", "--yes", *JSON).json
    assert rows_of(tmp_path / "t") == before == LEFT
    assert (report["status"], report["verified"]) == ("done", True)
    counts = {name: number for name, number in report.items() if name.endswith("_count") and number}
    assert {name: number for name, number in counts.items() if "bytes" not in name} == {
        "rewritten_data_files_count": 6, "added_data_files_count": 1, "rewritten_rows_count": 57,
        "dropped_rows_count": 3, **({"removed_delete_files_count": 1} if version > 2 else {}),
    }  # fmt: skip
    assert report["commits"] == [{"snapshot_id": report["committed_snapshot_id"], "groups": 1}]
    assert report["failed_groups"] == []
    again = iceberg_cli(VERB, tmp_path / "t", "--yes", *JSON).json
    assert (again["status"], again["commits"]) == ("nothing_to_do", [])
    text = iceberg_cli(VERB, tmp_path / "t", "--yes").out
    assert text.startswith("Nothing to do; 2 partitions stay")


def test_rows_that_are_only_counted_are_not_called_verified(tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    assert iceberg_cli(VERB, tmp_path / "t", "--no-verify-rows", "--yes", *JSON).json["verified"] is False


def test_a_broken_file_leaves_out_its_partition_and_the_whole_report_is_there(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    path = table.path("x1")
    Path(path).write_bytes(Path(path).read_bytes()[:-9] + bytes(9))
    ran = iceberg_cli(VERB, tmp_path / "t", "--min-input-files", 2, "--yes", *JSON)
    assert ran.code == 15
    report = ran.json
    assert (report["status"], [each["groups"] for each in report["commits"]]) == ("partial", [1])
    (failed,) = report["failed_groups"]
    assert (failed["partition"], path in failed["reason"]) == ("k=x", True)
    assert (report["failed_groups_count"], report["failed_data_files_count"]) == (1, 6)
    text = iceberg_cli(VERB, tmp_path / "t", "--min-input-files", 2, "--yes")
    assert text.code == 15
    assert f"broken: k=x: {failed['reason']}" in " ".join(text.out.split())


def test_a_run_that_ends_before_its_first_group_does_not_say_that_it_committed(tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    words = (VERB, tmp_path / "t", "--deadline", "0s", "--yes")
    report = iceberg_cli(*words, *JSON)
    assert (report.code, report.json["status"], report.json["commits"]) == (0, "partial", [])
    headline = f"{VERB}: Nothing was committed: the run had to end before a group was finished; took"
    assert headline in " ".join(iceberg_cli(*words).out.split())
    assert rows_of(tmp_path / "t") == LEFT


# -- a saved plan ------------------------------------------------------------------------------------------------------


def saved(folder: Path, table: RowsTable, *words: str) -> Path:
    path = folder / "p.json"
    assert iceberg_cli("plan", table.location, VERB, *words, "-o", path).code == 0
    return path


def test_a_saved_plan_is_carried_out_as_it_was_shown_whatever_was_added_since(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    plan = saved(tmp_path, table)
    for number in range(6):
        numbers(table, f"z{number}", [200 + number], k="z")
    table.commit(3)
    table.publish()
    report = iceberg_cli("apply", plan, "--yes", *JSON).json
    assert (report["status"], report["rewritten_data_files_count"]) == ("done", 6)
    assert rows_of(tmp_path / "t") == [*LEFT, *range(200, 206)]
    assert dry(table.location)["rewrite"]["groups"][0]["partition"] == "k=z"


def test_a_group_of_a_saved_plan_that_others_changed_is_left_out_and_none_is_planned_afresh(
    tmp_path: Path,
) -> None:
    table = a_table(tmp_path / "t")
    plan = saved(tmp_path, table, "--min-input-files", "2")
    table.remove("y0")
    table.commit(3)
    table.publish()
    report = iceberg_cli("apply", plan, "--yes", *JSON).json
    assert (report["status"], report["conflicted_groups_count"]) == ("partial", 1)
    assert report["rewritten_data_files_count"] == 6
    again = iceberg_cli("apply", plan, "--yes", *JSON)
    assert (again.code, again.json["error"]) == (12, "CommitConflict")
    assert again.json["next"] == "Plan again: another writer changed what the file lists."
    assert rows_of(tmp_path / "t") == [*range(3, 60), 101]


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_saved_plan_without_its_inputs_is_no_plan(damage: str, tmp_path: Path) -> None:
    plan = saved(tmp_path, a_table(tmp_path / "t"))
    inputs = Path(f"{plan}.inputs.arrow")
    assert json.loads(plan.read_text())["rewrite"]["inputs"] == {
        "digest": sha256(inputs.read_bytes()).hexdigest(), "file": inputs.name,
    }  # fmt: skip
    inputs.write_bytes(inputs.read_bytes() + b" ") if damage == "changed" else inputs.unlink()
    ran = iceberg_cli("apply", plan, "--yes", *JSON)
    assert (ran.code, inputs.name in ran.json["message"]) == (15, True)
    assert "plan again" in ran.json["next"]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--target-size", "0"], 2, "--target-size"),
        (["--target-size", "8MiB", "--min-size", "8MiB"], 2, "--min-size 8.0 MiB is not below target-size 8.0 MiB"),
        (["--target-size", "8MiB", "--max-size", "8MiB"], 2, "--max-size 8.0 MiB is not above target-size 8.0 MiB"),
        (["--max-group-size", "1MiB"], 2, "--max-group-size 1.0 MiB is below target-size 512.0 MiB"),
        (["--delete-ratio", "0"], 2, "--delete-ratio must be above 0 and at most 1"),
        (["--delete-ratio", "1.5"], 2, "--delete-ratio must be above 0 and at most 1"),
        (["--where", "kk = 'x'"], 2, "k"),
        (["--where", "k = 'x' OR k = 'y'"], 2, "--where"),
        (["--branch", "nightly"], 2, "nightly is no branch of the table"),
        (["--branch", "eom"], 2, "eom is a tag"),
        (["--strategy", "clustered"], 2, "bin-pack, sort, z-order, hilbert or declared, not 'clustered'"),
        (["--strategy", "sort"], 2, "--strategy sort: the table has no sort order"),
        (["--sort-by", "nn:desc"], 2, "--sort-by: rows are not ordered by nn: it is no column. Did you mean 'n'?"),
        (["--strategy", "hilbert", "--curve-by", "n"], 2, "needs 2 to 9 columns of --curve-by, and has 1"),
        (["--min-gain", "0.2"], 2, "--min-gain is for rows that come into an order"),
        (["--output-format", "orc"], 2, "--output-format must be parquet, not 'orc'"),
        (["--commit-every", "often"], 2, "--commit-every"),
        (["--single-commit", "--max-commits", "3"], 2, "--single-commit and --max-commits exclude each other"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    words: list[str], code: int, text: str, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t")
    table.document["refs"] |= {"eom": {"snapshot-id": 1, "type": "tag"}}
    table.publish()
    ran = iceberg_cli(VERB, tmp_path / "t", *words, "--yes", *JSON)
    assert (ran.code, text in ran.json["message"]) == (code, True), ran.json["message"]
    assert not (tmp_path / "t" / "_iceberg_cli" / "ops").exists()


@pytest.mark.parametrize(
    ("version", "properties", "text", "way_out"),
    [
        (1, {"write.format.default": "avro"}, "avro is not written here", ["--output-format", "parquet"]),
        (2, {"write.format.default": "orc"}, "orc is not written here", ["--output-format", "parquet"]),
        (
            2,
            {"write.location-provider.impl": "com.example.Mine"},
            "table property write.location-provider.impl cannot be obeyed",
            ["--unsafe-ignore-property", "write.location-provider.impl"],
        ),
        (2, {"encryption.key-id": "k"}, "its writers encrypt data files", None),
    ],
)
def test_a_table_whose_files_cannot_be_written_as_it_asks_is_refused(
    version: int, properties: dict[str, str], text: str, way_out: list[str] | None, tmp_path: Path
) -> None:
    table = RowsTable(
        storage=LocalStorage(), location=str(tmp_path / "t"), format_version=version, properties=properties
    )
    for number in range(5):
        numbers(table, f"x{number}", [number])
    table.commit(1)
    table.publish()
    ran = iceberg_cli(VERB, tmp_path / "t", "--yes", *JSON)
    assert (ran.code, text in ran.json["message"]) == (11, True), ran.json["message"]
    assert iceberg_cli(VERB, tmp_path / "t", "--dry-run", *JSON).json["blocked_by"] != []
    if way_out is not None:
        assert way_out[0] in ran.json["message"]
        assert iceberg_cli(VERB, tmp_path / "t", *way_out, "--yes", *JSON).json["status"] == "done"
        assert rows_of(tmp_path / "t") == list(range(5))


def test_a_property_that_is_ignored_for_nothing_is_told(tmp_path: Path) -> None:
    """A name that is mistyped ignores nothing, and its writer believes that it does."""
    impl = "write.location-provider.impl"
    a_table(tmp_path / "t", **{impl: "com.example.Mine"})
    plan = dry(tmp_path / "t", "--unsafe-ignore-property", f"write.location-provider.imp,{impl}")
    assert plan["blocked_by"] == []
    (warning,) = (each for each in plan["warnings"] if "--unsafe-ignore-property" in each)
    option = "--unsafe-ignore-property write.location-provider.imp"
    assert warning == f"Without effect: {option}: the table has no such property, or it is obeyed."


def test_a_run_that_will_not_fit_on_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_table(tmp_path / "t")
    free = LocalStorage.free_bytes
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda self, folder: min(free(self, folder), 1000))
    ran = iceberg_cli(VERB, tmp_path / "t", "--yes", *JSON)
    assert (ran.code, "1000 B are free where they go" in ran.json["message"]) == (11, True), ran.json[
        "message"
    ]
    assert iceberg_cli(VERB, tmp_path / "t", "--unsafe-accept-space", "--yes", *JSON).json["status"] == "done"


# -- many tables -------------------------------------------------------------------------------------------------------


def test_without_a_policy_file_it_is_an_offer_which_makes_nothing_due(tmp_path: Path) -> None:
    a_table(tmp_path / "t", **{"history.expire.max-snapshot-age-ms": str(10**15)})
    every = iceberg_cli("plan", tmp_path / "t", "--exit-code", *JSON)
    (plan,) = (each for each in every.json["plans"] if each["operation"] == VERB)
    assert (every.code, every.json["due"], plan["due"]) == (0, False, True)
    assert plan["offer"] == "it rewrites rows, which is done by name, or where a policy file names it"
    survey = iceberg_cli("survey", tmp_path / "*", "--exit-code", *JSON)
    (row,) = survey.json["tables"]
    assert (survey.code, row["grade"], row["due"]) == (0, "ok", [])
    assert row["offers"] == [{"operation": VERB, "reason": plan["reason"]}]
    assert survey.json["totals"]["offers"] == {VERB: 1}
    assert f"{VERB} has something to do in 1 table" in iceberg_cli("survey", tmp_path / "*").out
    alone = iceberg_cli("plan", tmp_path / "t", VERB, "--exit-code", *JSON)
    assert alone.code == 3


def test_an_offer_that_cannot_be_planned_changes_no_grade_and_no_exit_code(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", **{"history.expire.max-snapshot-age-ms": str(10**15)})
    numbers(table, "twice", [7])
    table.added.append({**table.added[-1]})
    table.commit(3)
    table.publish()
    every = iceberg_cli("plan", table.location, *JSON)
    assert (every.code, [each["operation"] for each in every.json["failed"]]) == (0, [VERB])
    (row,) = iceberg_cli("survey", tmp_path / "*", *JSON).json["tables"]
    assert (row["grade"], row["offers"]) == ("ok", [])
    assert [each["id"] for each in row["findings"]] == [f"{VERB}-cannot-be-planned"]
    alone = iceberg_cli("plan", table.location, VERB, *JSON)
    assert (alone.code, "it is listed twice" in alone.json["message"]) == (15, True)


def maintained(folder: Path, options: str, *words: str) -> Ran:
    policy = policy_file(folder / "policy.toml", {VERB: options}, [folder / "*"])
    return iceberg_cli("maintain", "--policy", policy, *words, *JSON)


def test_a_policy_file_that_names_it_has_it_run(tmp_path: Path) -> None:
    a_table(tmp_path / "t")
    ran = maintained(tmp_path, "{ min-input-files = 2 }", "--dry-run", "--exit-code")
    assert (ran.code, [each["status"] for each in ran.json["runs"]]) == (3, ["due"])
    assert ran.json["runs"][0]["reason"].startswith("8 data files of ")
    (row,) = iceberg_cli("survey", "--policy", tmp_path / "policy.toml", *JSON).json["tables"]
    assert [each["operation"] for each in row["due"]] == [VERB]
    assert row["offers"] == []
    done = maintained(tmp_path, "{ min-input-files = 2 }", "--yes")
    (run,) = done.json["runs"]
    assert (done.code, run["status"]) == (0, "done")
    assert run["reason"].startswith("2 groups committed by 1 snapshot")
    assert rows_of(tmp_path / "t") == LEFT
    again = maintained(tmp_path, "{ min-input-files = 2 }", "--yes")
    assert [each["status"] for each in again.json["runs"]] == ["not_due"]


@pytest.mark.parametrize("key", ["processes = 2", 'memory = "1GiB"', "unsafe-accept-space = true"])
def test_what_is_about_the_process_is_no_key_of_a_policy_file(key: str, tmp_path: Path) -> None:
    ran = maintained(tmp_path, f"{{ {key} }}", "--dry-run")
    assert (ran.code, ran.json["error"]) == (2, "UsageError")
    assert key.split(maxsplit=1)[0] in ran.json["message"]


def test_memory_of_a_maintenance_is_shared_by_the_tables_that_are_worked_on_side_by_side(
    tmp_path: Path,
) -> None:
    from iceberg_cli.fleet.memory import memory_of_rows

    assert memory_of_rows(3 << 30, jobs=3).given == {"--memory": 1 << 30}
    assert 0 < memory_of_rows(None, jobs=2).given["--memory"] <= 1 << 30
    a_table(tmp_path / "t")
    assert maintained(tmp_path, "{}", "--memory", "64MiB", "--yes").json["runs"][0]["status"] == "done"
    assert maintained(tmp_path, "{}", "--memory", "none", "--yes").code == 2


@pytest.mark.parametrize("at_first", ["no snapshot", "one file"])
def test_a_saved_plan_with_nothing_to_do_does_nothing_whatever_came_since(
    tmp_path: Path, at_first: str
) -> None:
    folder, saved = tmp_path / "t", tmp_path / "plan.json"
    table = RowsTable(storage=LocalStorage(), location=str(folder), format_version=2)
    if at_first == "one file":
        numbers(table, "first", [1000], k="x")
        table.commit(1)
    table.publish()
    assert iceberg_cli("plan", folder, VERB, "-o", saved).code == 0
    for number in range(6):
        numbers(table, f"x{number}", [number], k="x")
    table.commit(2)
    table.publish()
    done = iceberg_cli("apply", saved, "--yes", *JSON)
    assert (done.code, done.json["status"]) == (0, "nothing_to_do")
    assert dry(folder)["due"]


# -- rows that have no ids yet -----------------------------------------------------------------------------------------


def upgraded(folder: Path) -> Path:
    table = a_table(folder)
    table.document |= {"format-version": 3, "next-row-id": 0}
    table.publish()
    return folder


def test_rows_get_ids_first_where_the_plan_says_so(tmp_path: Path) -> None:
    folder = upgraded(tmp_path / "t")
    assert [step["name"] for step in dry(folder)["steps"]] == ["assign-row-ids main", f"{VERB} main"]
    shown = iceberg_cli(VERB, folder, "--dry-run")
    assert "1 branch head gets row ids" in shown.out
    assert "step 2, rewrite-data-files main: its groups, committed as they are finished" in shown.out
    saved = tmp_path / "plan.json"
    assert iceberg_cli("plan", folder, VERB, "-o", saved).code == 0
    done = iceberg_cli("apply", saved, "--yes", *JSON)
    assert (done.code, done.json["status"], done.json["operation"]) == (0, "done", VERB)
    assert [each["groups"] for each in done.json["commits"]] == [0, 1]
    assert rows_of(folder) == LEFT


def test_a_policy_file_gives_rows_ids_only_where_it_names_that_verb_too(tmp_path: Path) -> None:
    folder = upgraded(tmp_path / "t")
    alone = maintain(tmp_path, {VERB: "{}"}, folder)
    run = runs_of(alone)[str(folder), VERB]
    assert (run["status"], alone.code) == ("blocked", 11)
    assert "`assign-row-ids` gives them some" in run["reason"]
    both = maintain(tmp_path, {VERB: "{}", "assign-row-ids": "{}"}, folder)
    assert both.code == 0
    assert {operation: run["status"] for (_, operation), run in runs_of(both).items()} == {
        "assign-row-ids": "done",
        VERB: "done",
    }
    assert rows_of(folder) == LEFT

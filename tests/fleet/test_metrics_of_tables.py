"""`survey --metrics` and `maintain --metrics`: a sample for each table and verb, and what a run that fails keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders import DAY_MS
from tests.cli.lakes import (
    AS_OF,
    AS_OF_MS,
    GONE,
    delta_with_removed_files,
    four_snapshots,
    in_the_way,
    listing,
)
from tests.cli.running import JSON, iceberg_cli
from tests.fleet.builder import BROKEN, COMMITS, FIRST_MS, Fleet, FleetTable, Format, Place, build_fleet
from tests.fleet.maintaining import EXPIRE, policy_file
from tests.prometheus import Samples

EXPIRY = "expire-snapshots"
FEW: Mapping[tuple[Place, Format], int] = {
    ("folder", "iceberg"): 3, ("folder", "delta"): 2, ("sqlite", "iceberg"): 2,
}  # fmt: skip
SIXTY: Mapping[tuple[Place, Format], int] = {
    ("folder", "iceberg"): 25, ("folder", "delta"): 20, ("sqlite", "iceberg"): 15,
}  # fmt: skip
OK, DUE, OVERDUE, BREAKS, UNREADABLE = range(5)  # grades


def sizes(table: FleetTable) -> dict[str, int]:
    return {name: os.stat(table.folder / name).st_size for name in listing(table.folder)}


@pytest.mark.parametrize(
    ("counts", "ills"),
    [
        pytest.param(FEW, ["manifest missing", "metadata.json missing"], id="7 tables"),
        pytest.param(SIXTY, [*BROKEN], id="60 tables", marks=pytest.mark.deep),
    ],
)
def test_each_table_and_verb_has_a_sample(
    tmp_path: Path, counts: Mapping[tuple[Place, Format], int], ills: list[str]
) -> None:
    fleet = build_fleet(tmp_path, counts, broken=ills)
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, fleet.patterns)
    options = (*fleet.patterns, *fleet.options, "--policy", policy, "--metrics")
    sound = {table.name for table in fleet.sound}
    iceberg = {table.name for table in fleet.sound if table.table_format == "iceberg"}
    codes = {table.name: BROKEN[table.broken].exit_code if table.broken else 0 for table in fleet.tables}

    assert iceberg_cli("survey", *options, tmp_path / "look.prom").code == 15
    look = Samples.of(tmp_path / "look.prom")
    assert look.of_tables("exit_code", "survey") == codes
    assert look.of_tables("grade", "survey") == {
        name: (OVERDUE if name in iceberg else DUE) if not code else BREAKS if code == 15 else UNREADABLE
        for name, code in codes.items()
    }
    # Some of the broken ones can be opened, and have these as well.
    assert of_all(sound, look.of_tables("open_operations", "survey")) == {0}
    assert of_all(sound, look.of_tables("oldest_snapshot_timestamp_seconds", "survey")) == {FIRST_MS / 1_000}
    assert iceberg_cli("maintain", *options, tmp_path / "dry.prom", "--dry-run").code == 15
    dry = Samples.of(tmp_path / "dry.prom")
    assert dry.of_tables("last_success_timestamp_seconds", EXPIRY) == {}

    before = {table.name: sizes(table) for table in fleet.sound}
    assert iceberg_cli("maintain", *options, tmp_path / "run.prom", "--yes").code == 15
    gone = {
        table.name: [size for name, size in before[table.name].items() if name not in sizes(table)]
        for table in fleet.sound
    }
    assert all(gone.values())
    freed = {name: sum(each) for name, each in gone.items()}
    assert look.of_tables("due_bytes", EXPIRY) == freed == dry.of_tables("due_bytes", EXPIRY)
    assert look.of_run("due_bytes") == sum(freed.values()) == dry.of_run("due_bytes")
    run = Samples.of(tmp_path / "run.prom")
    assert run.of_tables("due_bytes", EXPIRY) == dict.fromkeys(sound, 0)
    assert (run.of_run("due_bytes"), run.of_run("due_files")) == (0, 0)
    assert run.of_run("reclaimed_bytes") == sum(freed.values())
    assert sum(run.by("deleted_files", "kind").values()) == sum(map(len, gone.values()))
    assert {**run.of_tables("exit_code", EXPIRY), **run.of_tables("exit_code", "maintain")} == codes
    assert run.of_tables("last_success_timestamp_seconds", EXPIRY) == dict.fromkeys(
        sound, run.of_run("last_run_timestamp_seconds")
    )
    assert of_all(sound, run.of_tables("open_operations", "maintain")) == {0}
    newest_s = (FIRST_MS + (COMMITS - 1) * DAY_MS) / 1_000
    oldest = run.of_tables("oldest_snapshot_timestamp_seconds", "maintain")
    assert of_all(iceberg, oldest) == {newest_s}
    logs = {table.name: table.folder / "_delta_log" for table in fleet.sound if table.name not in iceberg}
    for name, log in logs.items():
        assert oldest[name] == pytest.approx(
            min(path.stat().st_mtime for path in log.glob("*.json")), abs=0.01
        )

    assert iceberg_cli("survey", *options, tmp_path / "after.prom").code == 15
    assert of_all(sound, Samples.of(tmp_path / "after.prom").of_tables("grade", "survey")) == {OK}
    one = min(iceberg)
    ran = iceberg_cli(EXPIRY, one, *fleet.options, "--yes", "--metrics", tmp_path / "one.prom")
    assert ran.code == 0
    together = Samples.of(*tmp_path.glob("*.prom"))  # as one collector reads them: no series is in two
    runs = [each.labels.get("run") for each in together.found if each.name == "due_bytes" and
            each.labels.get("table") == one and each.labels["verb"] == EXPIRY]  # fmt: skip
    assert sorted(runs, key=str) == [None, "after", "dry", "look", "run"]


def of_all(names: set[str], values: Mapping[str, float]) -> set[float]:
    """The values of these tables, each of which has one."""
    return {values[name] for name in names}


def test_what_is_blocked_frees_nothing(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "lake" / "t", properties={"gc.enabled": "false"}).publish()
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [tmp_path / "lake/*"])
    for command, code in (("survey", 0), ("maintain", 11)):
        file = tmp_path / f"{command}.prom"
        options = (*AS_OF, "--policy", policy, "--metrics", file)
        ran = iceberg_cli(command, *options, *(["--yes"] if command == "maintain" else []))
        assert ran.code == code, ran.err
        samples = Samples.of(file)
        assert samples.of_tables("due_bytes", EXPIRY) == {table: 0}
        assert (samples.of_run("due_bytes"), samples.of_run("due_files")) == (0, 0)


def test_the_oldest_snapshot_is_that_after_the_commit_also_where_no_file_is_deleted(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "lake" / "t").publish(), tmp_path / "run.prom"
    verbs = {EXPIRY: '{ older-than = "5d", retain-last = 1, cleanup = "none" }'}
    policy = policy_file(tmp_path / "policy.toml", verbs, [tmp_path / "lake/*"])
    assert iceberg_cli("maintain", "--policy", policy, *AS_OF, "--yes", "--metrics", file).code == 0
    oldest = Samples.of(file).of_tables("oldest_snapshot_timestamp_seconds", "maintain")
    assert oldest == {table: (AS_OF_MS - 6 * DAY_MS) / 1_000}


def test_another_name_of_a_table_has_no_series(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("sqlite", "iceberg"): 1})
    [table] = fleet.tables
    older = min((table.folder / "metadata").glob("*.metadata.json"))
    fleet.register_in_sqlite("other", [("older", str(older))])
    catalogs = "".join(
        f"  {name}:\n    type: sql\n    uri: sqlite:///{tmp_path}/{name}.db\n" for name in ("lake", "other")
    )
    (tmp_path / "both.yaml").write_text(f"catalog:\n{catalogs}")
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, ["lake.*.*", "other.*.*"])
    file = tmp_path / "run.prom"
    options = ("--catalog-config", tmp_path / "both.yaml", "--policy", policy, "--dry-run", *JSON)
    ran = iceberg_cli("maintain", *options, "--jobs", 1, "--metrics", file)
    skipped = [run for run in ran.json["runs"] if run["skipped_for"] == "same_table"]
    assert len(skipped) == 1
    named = {each.labels["table"] for each in Samples.of(file).found if "table" in each.labels}
    assert len(named) == 1
    assert skipped[0]["table"]["name"] not in named


# -- kinds of files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["one table", "survey"])
def test_kinds_of_files_are_those_that_the_format_has(tmp_path: Path, command: str) -> None:
    delta = tmp_path / "delta"
    delta_with_removed_files(delta, "b")
    iceberg = four_snapshots(tmp_path / "iceberg").publish()
    kinds = {}
    for table in (str(delta), iceberg):
        file = tmp_path / "run.prom"
        options = (EXPIRY, table, "--dry-run") if command == "one table" else ("survey", table)
        assert iceberg_cli(*options, "--metrics", file).code == 0
        kinds[table] = {
            each.labels["kind"] for each in Samples.of(file).found if each.name == "deleted_files"
        }
    assert kinds[iceberg] == {
        "data_file", "position_delete_file", "equality_delete_file", "statistics_file", "manifest_file",
        "manifest_list", "metadata_file",
    }  # fmt: skip
    assert kinds[str(delta)] == {
        "data_file", "deletion_vector_file", "change_data_file", "untracked_file", "compacted_file",
        "checksum_file", "commit_file", "checkpoint_file", "sidecar_file",
    }  # fmt: skip


# -- open operations ---------------------------------------------------------------------------------------------


def test_operations_that_wait_are_counted_also_of_a_table_that_is_not_opened(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "lake" / "t").publish()
    file = tmp_path / "run.prom"
    verbs = {EXPIRY: '{ older-than = "5d", retain-last = 1, grace = "1d" }'}
    policy = policy_file(tmp_path / "policy.toml", verbs, [tmp_path / "lake/*"])
    dry = iceberg_cli("maintain", "--policy", policy, *AS_OF, "--dry-run", "--metrics", file)
    assert dry.code == 0
    due = Samples.of(file).of_tables("due_bytes", EXPIRY)
    assert due[table] > 0
    ran = iceberg_cli("maintain", "--policy", policy, *AS_OF, "--yes", "--metrics", file)
    assert ran.code == 0, ran.err
    run = Samples.of(file)
    assert run.of_tables("open_operations", "maintain") == {table: 1}
    assert run.of_tables("due_bytes", EXPIRY) == due, "its files are there until the grace is over"
    assert run.of_tables("last_success_timestamp_seconds", EXPIRY).keys() == {table}
    counts = []
    for _ in range(2):  # the second survey has the table from its cache
        assert iceberg_cli("survey", table, *AS_OF, "--metrics", file).code == 0
        counts.append(Samples.of(file).of_tables("open_operations", "survey"))
    assert counts == [{table: 1}] * 2


def test_what_a_bound_leaves_is_due(tmp_path: Path) -> None:
    table, file = Path(four_snapshots(tmp_path / "lake" / "t").publish()), tmp_path / "run.prom"
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [tmp_path / "lake/*"])
    before = sizes_of(table)
    options = ("--policy", policy, *AS_OF, "--yes", "--metrics", file)
    assert iceberg_cli("maintain", *options, "--limit-deletes", 2).code == 0
    left = [before[name] for name in GONE & sizes_of(table).keys()]
    run = Samples.of(file)
    assert len(left) == len(GONE) - 2
    assert run.of_tables("due_bytes", EXPIRY) == {str(table): sum(left)}
    assert (run.of_run("due_files"), run.of_run("due_bytes")) == (len(left), sum(left))
    assert run.of_tables("open_operations", "maintain") == {str(table): 1}


def test_what_an_earlier_run_left_open_is_of_the_exit_code_of_its_verb(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "lake" / "t"), tmp_path / "run.prom"
    name = table.publish()
    folder = in_the_way(table.folder, "one")
    (folder / "in").mkdir()
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [tmp_path / "lake/*"])
    codes, successes = [], []
    for _ in range(3):
        ran = iceberg_cli("maintain", "--policy", policy, *AS_OF, "--yes", "--metrics", file)
        run = Samples.of(file)
        assert run.of_run("exit_code") == ran.code
        codes.append(run.of_tables("exit_code", EXPIRY)[name])
        successes.append(name in run.of_tables("last_success_timestamp_seconds", EXPIRY))
        if len(codes) == 2:
            shutil.rmtree(folder)
    # In the second run nothing else is due, and still a file cannot be deleted.
    assert (codes, successes) == ([14, 14, 0], [False, False, True])


def test_resume_counts_what_it_deleted_itself(tmp_path: Path) -> None:
    table, file = Path(four_snapshots(tmp_path / "t").publish()), tmp_path / "run.prom"
    before = sizes_of(table)
    first = iceberg_cli(EXPIRY, table, *AS_OF, "--yes", "--limit-deletes", 2, "--metrics", file)
    assert first.code == 0
    middle = sizes_of(table)
    assert len(before.keys() - middle.keys()) == 2
    assert iceberg_cli("resume", table, "--metrics", file).code == 0
    gone = [middle[name] for name in middle.keys() - sizes_of(table).keys() if name in before]
    metrics = Samples.of(file)
    [size] = [each.value for each in metrics.found if each.name == "reclaimed_bytes"]
    counts = [each.value for each in metrics.found if each.name == "deleted_files"]
    assert (sum(counts), size) == (len(gone), sum(gone))


def sizes_of(folder: Path) -> dict[str, int]:
    return {name: os.stat(folder / name).st_size for name in listing(folder)}


# -- the last success --------------------------------------------------------------------------------------------


class Nightly:
    """Runs of `maintain` over the tables of a folder and a catalog that write one file.

    Args:
        root: of the fleet.
    """

    def __init__(self, root: Path) -> None:
        self.fleet: Fleet = build_fleet(root, {("folder", "iceberg"): 2, ("sqlite", "iceberg"): 1})
        self.first, self.second, self.in_catalog = (table.name for table in self.fleet.tables)
        self.policy = policy_file(root / "policy.toml", EXPIRE, self.fleet.patterns)
        self.file = root / "nightly.prom"
        self.ended_s: list[float] = []

    def run(self, code: int, *options: str) -> dict[str, float]:
        """The last success of expiries by table, after a run that ends with this code."""
        ran = iceberg_cli(
            "maintain",
            *self.fleet.options,
            "--policy",
            self.policy,
            "--yes",
            "--metrics",
            self.file,
            *options,
        )
        assert ran.code == code, ran.out + ran.err
        samples = Samples.of(self.file)
        ended_s = samples.of_run("last_run_timestamp_seconds")
        assert ended_s is not None
        self.ended_s.append(ended_s)
        return samples.of_tables("last_success_timestamp_seconds", EXPIRY)


def test_a_run_that_fails_on_a_table_keeps_when_it_succeeded_last_there(tmp_path: Path) -> None:
    nightly = Nightly(tmp_path)
    everywhere = dict.fromkeys((nightly.first, nightly.second, nightly.in_catalog), 0.0)
    assert nightly.run(0) == dict.fromkeys(everywhere, nightly.ended_s[0])
    # Nothing is due any more: to have found that out is a success.
    assert nightly.run(0) == dict.fromkeys(everywhere, nightly.ended_s[1])
    assert Samples.of(nightly.file).of_tables("due_bytes", EXPIRY) == everywhere
    hint = Path(nightly.first) / "metadata" / "v7.metadata.json"
    shutil.copy(hint, tmp_path / "kept")
    hint.write_bytes(b"{")
    assert nightly.run(15) == dict.fromkeys(everywhere, nightly.ended_s[2]) | {
        nightly.first: nightly.ended_s[1]
    }
    shutil.copy(tmp_path / "kept", hint)
    assert nightly.run(0, "--dry-run") == dict.fromkeys(everywhere, nightly.ended_s[2]) | {
        nightly.first: nightly.ended_s[1]
    }
    assert nightly.run(0) == dict.fromkeys(everywhere, nightly.ended_s[4])


def test_a_run_that_finds_no_table_keeps_them_only_where_they_may_be_there(tmp_path: Path) -> None:
    nightly = Nightly(tmp_path)
    known = nightly.run(0)
    policy = nightly.policy.read_text()
    nightly.policy.write_text("version = 1\n[[tables]]\nmatch = 1\n")
    assert nightly.run(2) == known, "the run ended before it came to a table"
    nightly.policy.write_text(policy)
    shutil.move(tmp_path / "lake.db", tmp_path / "away.db")
    (tmp_path / "lake.db").mkdir()
    shutil.rmtree(nightly.second)
    assert nightly.run(16) == {
        nightly.first: nightly.ended_s[2], nightly.second: known[nightly.second],
        nightly.in_catalog: known[nightly.in_catalog],
    }, "a place could not be listed, and tables may be there"  # fmt: skip
    (tmp_path / "lake.db").rmdir()
    shutil.move(tmp_path / "away.db", tmp_path / "lake.db")
    assert nightly.run(0).keys() == {nightly.first, nightly.in_catalog}, "all places were listed"


def test_a_table_that_is_held_is_to_have_no_success(tmp_path: Path) -> None:
    nightly = Nightly(tmp_path)
    known = nightly.run(0)
    with nightly.policy.open("a") as policy:
        policy.write(f'[[tables]]\nmatch = ["{nightly.first}"]\nmaintain = false\n')
        start = datetime.fromtimestamp(nightly.ended_s[0] + 7_200, UTC)
        window = (
            f'window = {{ from = "{start:%H:%M}", to = "{start + timedelta(hours=1):%H:%M}", zone = "UTC" }}'
        )
        policy.write(f'[[tables]]\nmatch = ["{nightly.second}"]\n{window}\n')
    found = nightly.run(0)
    assert nightly.first not in found
    assert found[nightly.second] == known[nightly.second], "outside its window it is as it was"


def test_a_verb_that_the_policy_file_no_longer_has_loses_its_success(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "lake" / "t").publish(), tmp_path / "run.prom"
    for verbs in ({**EXPIRE, "rewrite-manifests": '{ when = "due" }'}, EXPIRE):
        policy = policy_file(tmp_path / "policy.toml", verbs, [tmp_path / "lake/*"])
        assert iceberg_cli("maintain", "--policy", policy, *AS_OF, "--yes", "--metrics", file).code == 0
        found = [each for each in Samples.of(file).found if each.name == "last_success_timestamp_seconds"]
        assert {each.labels["verb"] for each in found if each.labels.get("table") == table} == {*verbs}


@pytest.mark.parametrize("name", ['a "b" \\ c', 'x",verb="maintain', "\u8868 {}=,"])
def test_a_table_of_any_name_keeps_its_last_success(tmp_path: Path, name: str) -> None:
    table = four_snapshots(tmp_path / "lake" / name).publish()
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [tmp_path / "lake/*"])
    file = tmp_path / 'nightly "1".prom'
    for code, options in ((0, ("--yes",)), (0, ("--dry-run",))):
        ran = iceberg_cli("maintain", "--policy", policy, *AS_OF, *options, "--metrics", file)
        assert ran.code == code, ran.err
        samples = Samples.of(file)
        assert samples.of_tables("last_success_timestamp_seconds", EXPIRY).keys() == {table}
        assert {each.labels["run"] for each in samples.found} == {'nightly "1"'}


def test_a_secret_in_the_name_of_a_table_is_in_no_label(tmp_path: Path) -> None:
    for number in range(2):
        four_snapshots(tmp_path / "lake" / f"t?sig=zq-secret-{number}").publish()
    file = tmp_path / "run.prom"
    assert iceberg_cli("survey", tmp_path / "lake/*", "--metrics", file).code == 0
    assert "zq-secret" not in file.read_text()
    # Both have one label by now, and a series is there once.
    assert Samples.of(file).of_tables("exit_code", "survey") == {f"{tmp_path}/lake/t?sig=***": 0}

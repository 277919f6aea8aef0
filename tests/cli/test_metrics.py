"""`--metrics FILE`, read by the parser of Prometheus' own client library, for every way in which a run can end."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from iceberg_cli.demo import create_demo
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, GONE, delta_with_removed_files, four_snapshots, listing
from tests.cli.running import iceberg_cli, process
from tests.cli.terminals import PATIENCE_S, Gate, background
from tests.fleet.maintaining import EXPIRE, policy_file
from tests.prometheus import Samples

VERB = "expire-snapshots"


@dataclass(frozen=True)
class Metrics:
    """The values of a metrics file: by name, and by the labels beside table and verb where a name has others."""

    values: dict[tuple[str, str], float]
    labels: set[tuple[str | None, str]]  # table and verb

    @classmethod
    def of(cls, path: Path) -> Metrics:
        """Every sample of a file."""
        values, labels = {}, set()
        for name, series, value in Samples.of(path).found:
            own = dict(series)
            labels.add((own.pop("table", None), own.pop("verb")))
            values[name, ",".join(own.values())] = value
        return cls(values, labels)

    def __getitem__(self, name: str) -> float:
        return self.values[name, ""]

    def by(self, name: str) -> dict[str, float]:
        """The values of one name that are not 0, by its other label."""
        return {label: value for (own, label), value in self.values.items() if own == name and value}

    @property
    def outcome(self) -> tuple[float, set[str]]:
        return self["exit_code"], set(self.by("status"))


def sizes(folder: Path) -> dict[str, int]:
    return {name: os.stat(folder / name).st_size for name in listing(folder)}


def test_what_is_freed_is_what_left_the_disk(tmp_path: Path) -> None:
    table, file = Path(create_demo(str(tmp_path), now_ms=AS_OF_MS).events), tmp_path / "run.prom"
    options = (VERB, table, *AS_OF, "--older-than", "5d", "--metrics", file)
    before = sizes(table)
    assert iceberg_cli(*options, "--dry-run").code == 0
    looked = Metrics.of(file)
    assert (looked.outcome, looked.labels) == ((0, {"not_run"}), {(str(table), VERB)})
    assert (looked["reclaimed_bytes"], looked.by("deleted_files")) == (0, {})
    assert ("last_success_timestamp_seconds", "") not in looked.values

    assert iceberg_cli(*options, "--yes").code == 0
    gone = {name: size for name, size in before.items() if name not in sizes(table)}
    done = Metrics.of(file)
    assert done.outcome == (0, {"done"})
    assert (looked["due_bytes"], looked["due_files"]) == (sum(gone.values()), len(gone))
    assert (done["reclaimed_bytes"], done["due_bytes"], done["due_files"]) == (sum(gone.values()), 0, 0)
    assert done.by("deleted_files") == {
        "data_file": sum(name.startswith("data/") for name in gone),
        "manifest_list": sum("snap-" in name for name in gone),
        "manifest_file": sum(name.startswith("metadata/") and "snap-" not in name for name in gone),
    }
    assert done.by("commit_attempts") == {"committed": 1}
    shown = iceberg_cli("inspect", table, "snapshots", "--format", "json").json["rows"]
    oldest_s = min(datetime.fromisoformat(row["committed_at"]).timestamp() for row in shown)
    assert looked["oldest_snapshot_timestamp_seconds"] < oldest_s
    assert done["oldest_snapshot_timestamp_seconds"] == oldest_s
    assert done["oldest_snapshot_age_seconds"] == pytest.approx(done["last_run_timestamp_seconds"] - oldest_s)
    assert done["last_success_timestamp_seconds"] == done["last_run_timestamp_seconds"]
    phases = done.by("phase_duration_seconds")
    assert {"open", "plan", "record", "sweep"} <= phases.keys()
    assert sum(phases.values()) <= done["duration_seconds"]


def test_the_oldest_snapshot_is_that_after_the_commit_also_where_no_file_is_deleted(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    metrics = ended(table, "--yes", "--cleanup", "none", file=file)
    assert metrics["oldest_snapshot_timestamp_seconds"] == (AS_OF_MS - 6 * DAY_MS) / 1_000
    assert metrics.by("deleted_files") == {}


def test_delta_frees_what_left_the_disk(tmp_path: Path) -> None:
    table, file = tmp_path / "t", tmp_path / "run.prom"
    delta_with_removed_files(table, "b")
    before = sizes(table)
    assert iceberg_cli(VERB, table, "--yes", "--metrics", file).code == 0
    gone = [size for name, size in before.items() if name not in sizes(table)]
    metrics = Metrics.of(file)
    assert gone
    assert metrics["reclaimed_bytes"] == sum(gone)
    assert sum(metrics.by("deleted_files").values()) == len(gone)
    assert metrics["oldest_snapshot_timestamp_seconds"] == pytest.approx(
        min(path.stat().st_mtime for path in (table / "_delta_log").glob("*.json")), abs=0.01
    )


# -- every end of a run ----------------------------------------------------------------------------------------


def ended(table: str, *options: object, file: Path) -> Metrics:
    ran = iceberg_cli(VERB, table, *AS_OF, "--metrics", file, *options)
    metrics = Metrics.of(file)
    assert metrics["exit_code"] == ran.code, ran.err
    return metrics


def test_every_outcome_is_told(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    table = four_snapshots(tmp_path / "t").publish()
    assert ended(table, "--older-than", "soon", file=file).outcome == (2, {"failed"})
    assert ended(table, "--engine", "fast", file=file).outcome == (2, {"failed"})
    assert ended(table, file=file).outcome == (2, {"failed"})  # nobody can be asked
    assert ended(table, "--dry-run", "--exit-code", file=file).outcome == (3, {"not_run"})
    assert ended(f"{table}/no", "--yes", file=file).outcome == (10, {"failed"})
    assert Metrics.of(file).labels == {(f"{table}/no", VERB)}
    partial = ended(table, "--yes", "--limit-deletes", 2, file=file)
    assert partial.outcome == (0, {"partial"})
    assert sum(partial.by("deleted_files").values()) == 2
    assert partial["due_files"] == len(GONE) - 2
    assert partial["last_success_timestamp_seconds"] == partial["last_run_timestamp_seconds"]
    done = ended(table, "--yes", file=file)
    assert done.outcome == (0, {"nothing_to_do"})  # what was left is swept by recovering
    assert sum(done.by("deleted_files").values()) == len(GONE) - 2
    assert done.by("phase_duration_seconds").keys() <= {"open", "plan", "recover"}
    refusing = four_snapshots(tmp_path / "held", properties={"gc.enabled": "false"}).publish()
    assert ended(refusing, "--yes", file=file).outcome == (11, {"refused"})
    waiting = ended(four_snapshots(tmp_path / "w").publish(), "--yes", "--grace", "1d", file=file)
    assert waiting.outcome == (0, {"waiting"})
    assert waiting["due_files"] == len(GONE)


def test_a_deletion_that_fails_is_told(tmp_path: Path) -> None:
    table, file = Path(four_snapshots(tmp_path / "t").publish()), tmp_path / "run.prom"
    os.unlink(table / "data/one.parquet")
    (table / "data/one.parquet/in").mkdir(parents=True)
    metrics = ended(str(table), "--yes", file=file)
    assert metrics.outcome == (14, {"partial"})
    assert (metrics["failed_deletes"], metrics["due_files"]) == (1, 1)
    assert sum(metrics.by("deleted_files").values()) == len(GONE) - 1
    assert "last_success_timestamp_seconds" not in {name for name, _ in metrics.values}
    shutil.rmtree(table / "data/one.parquet")
    ran = iceberg_cli("resume", table, "--metrics", file)
    assert (ran.code, Metrics.of(file).outcome) == (0, (0, {"done"}))
    assert Metrics.of(file).labels == {(str(table), "resume")}
    assert iceberg_cli("resume", table, "--metrics", file).code == 0
    assert Metrics.of(file).outcome == (0, {"nothing_to_do"})
    assert iceberg_cli("resume", table, "--list", "--metrics", file).code == 0
    assert Metrics.of(file).outcome == (0, {"not_run"})


def test_apply_is_told(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    saved = tmp_path / "saved.plan"
    assert iceberg_cli("plan", table, VERB, *AS_OF, "-o", saved).code == 0
    assert iceberg_cli("apply", tmp_path / "no.plan", "--yes", "--metrics", file).code == 2
    assert (Metrics.of(file).outcome, Metrics.of(file).labels) == ((2, {"failed"}), {(None, "apply")})
    assert iceberg_cli("apply", saved, "--dry-run", "--metrics", file).code == 0
    assert Metrics.of(file).outcome == (0, {"not_run"})
    assert iceberg_cli("apply", saved, "--yes", "--metrics", file).code == 0
    assert (Metrics.of(file).outcome, Metrics.of(file).labels) == ((0, {"done"}), {(table, "apply")})
    done = Metrics.of(file)
    assert sum(done.by("deleted_files").values()) == len(GONE)
    saved.rename(tmp_path / "away.plan")
    assert iceberg_cli("apply", saved, "--yes", "--metrics", file).code == 2
    failed = Metrics.of(file)
    assert (failed.outcome, failed.labels) == ((2, {"failed"}), {(None, "apply"), (table, "apply")})
    assert failed["last_success_timestamp_seconds"] == done["last_success_timestamp_seconds"]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.deep)],
)
def test_a_signal_is_told(tmp_path: Path, number: int, code: int) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    command = gate.command("read", VERB, table, *AS_OF, "--yes", "--metrics", file)
    with background(command) as program:
        gate.wait()
        program.send_signal(number)
        assert program.wait(PATIENCE_S) == code
    assert Metrics.of(file).outcome == (code, {"stopped"})


@pytest.mark.deep
def test_a_bug_is_told(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    with background(gate.command("read", VERB, table, "--yes", "--metrics", file)) as program:
        gate.open("bug")
        assert program.wait(PATIENCE_S) == 1
        assert program.stderr is not None
        assert "AssertionError: bug" in program.stderr.read()
    assert Metrics.of(file).outcome == (1, {"failed"})


@pytest.mark.deep
def test_a_conflict_is_told(tmp_path: Path) -> None:
    table = Path(four_snapshots(tmp_path / "t", properties={"commit.retry.num-retries": "0"}).publish())
    file, gate = tmp_path / "run.prom", Gate.at(tmp_path / "gate", "v2.metadata.json")
    with background(
        gate.command("put_if_absent", VERB, table, *AS_OF, "--yes", "--metrics", file)
    ) as program:
        gate.wait()
        shutil.copy(table / "metadata/v1.metadata.json", table / "metadata/v2.metadata.json")
        gate.open()
        assert program.wait(PATIENCE_S) == 12
    metrics = Metrics.of(file)
    assert metrics.outcome == (12, {"conflict"})
    assert metrics.by("commit_attempts") == {"conflict": 1}
    assert metrics["due_files"] == len(GONE)


@pytest.mark.deep
def test_a_conflict_on_one_of_many_tables_leaves_its_files_due(tmp_path: Path) -> None:
    properties = {"commit.retry.num-retries": "0"}
    table = Path(four_snapshots(tmp_path / "lake" / "t", properties=properties).publish())
    policy = policy_file(tmp_path / "policy.toml", EXPIRE, [tmp_path / "lake/*"])
    file, gate = tmp_path / "run.prom", Gate.at(tmp_path / "gate", "v2.metadata.json")
    command = ("maintain", "--policy", policy, *AS_OF, "--yes", "--jobs", 1, "--metrics", file)
    with background(gate.command("put_if_absent", *command)) as program:
        gate.wait()
        shutil.copy(table / "metadata/v1.metadata.json", table / "metadata/v2.metadata.json")
        gate.open()
        assert program.wait(PATIENCE_S) == 12
    samples = Samples.of(file)
    assert samples.of_tables("exit_code", VERB) == {str(table): 12}
    assert samples.of_run("due_files") == len(GONE)
    assert samples.of_tables("due_bytes", VERB) == {str(table): samples.of_run("due_bytes")}


def test_a_run_that_fails_keeps_when_the_last_one_succeeded(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    success = ended(table, "--yes", file=file)["last_success_timestamp_seconds"]
    shutil.move(table, f"{table}-away")
    failed = ended(table, "--yes", file=file)
    assert failed.outcome == (10, {"failed"})
    assert failed["last_success_timestamp_seconds"] == success < failed["last_run_timestamp_seconds"]
    shutil.move(f"{table}-away", table)
    assert ended(table, "--dry-run", file=file)["last_success_timestamp_seconds"] == success
    other = four_snapshots(tmp_path / "u").publish()
    assert ("last_success_timestamp_seconds", "") not in ended(other, "--dry-run", file=file).values


# -- the file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ['a "b" \\ c', "a\nb", "a\\nb", "{}=,", "\u8868 \u05d8\u05d1\u05dc\u05d4", "a\rb\u2028c"]
)
def test_a_table_of_any_name_is_a_label(tmp_path: Path, name: str) -> None:
    table, file = four_snapshots(tmp_path / name).publish(), tmp_path / "run.prom"
    first = ended(table, "--yes", file=file)
    assert first.labels == {(table, VERB)}
    kept = ended(table, "--dry-run", file=file)["last_success_timestamp_seconds"]
    assert kept == first["last_success_timestamp_seconds"]


def test_the_file_is_another_one_each_time_and_others_may_read_it(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.prom"
    with open(tmp_path / "run.prom", "w+", encoding="utf-8") as older:
        older.write("an earlier run\n")
        older.flush()
        ran = process(VERB, table, "--dry-run", "--metrics", file, umask=0o022)
        older.seek(0)
        assert (ran.code, older.read()) == (0, "an earlier run\n")
    assert file.stat().st_mode & 0o777 == 0o644
    assert Metrics.of(file).outcome == (0, {"not_run"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.prom", "t"]
    linked = tmp_path / "link.prom"
    linked.symlink_to(file)
    assert iceberg_cli(VERB, table, "--dry-run", "--exit-code", *AS_OF, "--metrics", linked).code == 3
    assert linked.is_symlink()
    assert Metrics.of(file)["exit_code"] == 3


def test_a_place_that_cannot_have_the_file_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    before = listing(Path(table))
    for place in (tmp_path / "no" / "run.prom", tmp_path, Path("/dev/null")):
        ran = iceberg_cli(VERB, table, *AS_OF, "--yes", "--metrics", place)
        assert (ran.code, "--metrics: cannot " in ran.err, "Nothing was changed." in ran.err) == (
            2,
            True,
            True,
        )
    assert listing(Path(table)) == before
    assert Path("/dev/null").is_char_device()


def test_a_file_that_the_collector_does_not_read_is_warned_of(tmp_path: Path) -> None:
    table, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "run.txt"
    ran = iceberg_cli(VERB, table, "--dry-run", "--quiet", "--metrics", file)
    assert (ran.code, "whose names end in .prom" in ran.err) == (0, True)
    assert Metrics.of(file).outcome == (0, {"not_run"})


@pytest.mark.deep
def test_a_file_that_cannot_be_written_at_the_end_is_a_warning_and_the_exit_code_stays(
    tmp_path: Path,
) -> None:
    table, folder = four_snapshots(tmp_path / "t").publish(), tmp_path / "metrics"
    folder.mkdir()
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    command = gate.command("read", VERB, table, *AS_OF, "--yes", "-q", "--metrics", folder / "run.prom")
    with background(command) as program:
        gate.wait()
        folder.rmdir()
        gate.open()
        out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out) == (0, "")
    assert err == f"warning: --metrics: cannot write {folder}/run.prom: No such file or directory\n"

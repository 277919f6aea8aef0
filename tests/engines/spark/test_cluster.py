"""Verbs on a standalone master with two workers, and on a Spark Connect server, each in processes of their own."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.storage.local import LocalStorage
from tests.budget import FULL
from tests.cli.lakes import GONE, four_snapshots, listing
from tests.cli.running import iceberg_cli
from tests.conformance.both_engines import BY_CHANCE, CARRIED_OUT, of_four_snapshots
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.large_tables import Size, make_table
from tests.manifest_tables import live_entries, of_folder
from tests.spark_tables.clusters import TWICE, WAIT_S, Running, executors, finished, on_cluster, start

pytestmark = pytest.mark.jvm


def upgraded(folder: Path) -> None:
    """A table of version 3 whose rows have no ids."""
    of_four_snapshots(folder)
    assert iceberg_cli("upgrade-v3", folder, "--yes").code == 0


EVERY_VERB = {
    **CARRIED_OUT,
    "upgrade with row ids": (of_four_snapshots, ("upgrade-v3", "--with", "assign-row-ids")),
    "row ids": (upgraded, ("assign-row-ids",)),
    "check": (of_four_snapshots, ("inspect", "--check", "--deep")),
}
SECRET = "a-secret-that-nobody-may-see"


def expiry(folder: object) -> tuple[object, ...]:
    return ("plan", folder, "expire-snapshots", "--older-than", "1s", "--retain-last", "3", "--as-of")


def on(where: str, running: Running, **conf: str) -> list[str]:
    """The options for a cluster, by its settings, or for a server, which has its own."""
    return on_cluster(running, **conf) if where == "cluster" else on_server(running)


def on_server(server: Running) -> list[str]:
    return ["--engine", "spark", "--spark-remote", server.url]


def compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan[name] for name in ("verdicts", "removals", "warnings", "blocked_by")}


@pytest.mark.deep
def test_a_cluster_plans_as_one_process_does_though_an_executor_is_killed_and_tasks_run_twice(
    cluster: Running, tmp_path: Path
) -> None:
    made = make_table(str(tmp_path / "t"), Size(300, 150, 3))
    command = (*expiry(made.location), made.last_ms + 10_000)
    local = iceberg_cli(*command, "--engine", "local", "--format", "json").json
    process = start(*command, *on_cluster(cluster, **TWICE))
    until = time.monotonic() + WAIT_S
    try:
        while not (busy := [each for each in executors(cluster) if each.children(recursive=True)]):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(3)  # by then it has looked what the workers have, and reads
        assert process.poll() is None
        busy[0].send_signal(signal.SIGKILL)
    except BaseException:
        process.kill()
        raise
    found = finished(process)
    assert compared(found) == compared(local)
    assert found["removals"]["count"] > 0


@pytest.mark.deep
def test_a_verb_is_carried_out_on_a_cluster(cluster: Running, tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    before = table.files()
    done = finished(
        start(
            "expire-snapshots", tmp_path / "t", "--older-than", "1s", "--retain-last", "1", "--yes",
            *on_cluster(cluster),
        )
    )  # fmt: skip
    assert (done["status"], done["deleted_data_files_count"]) == ("done", 2)
    assert before - table.files() == GONE


@pytest.mark.deep
@pytest.mark.skipif(not FULL, reason="every verb in processes of their own: with FULL_SUITES=1")
@pytest.mark.parametrize("where", ["cluster", "server"])
@pytest.mark.parametrize("name", EVERY_VERB)
def test_every_verb_does_the_same_with_workers_in_processes_of_their_own(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, where: str
) -> None:
    running: Running = request.getfixturevalue(where)
    make, (verb, *options) = EVERY_VERB[name]
    folder, aside = tmp_path / "t", tmp_path / "aside"
    make(folder)
    shutil.copytree(folder, aside)
    command = (verb, folder, *options, *(() if verb == "inspect" else ("--yes",)))
    local = iceberg_cli(*command, "--engine", "local", "--format", "json")
    assert local.code == (0 if verb != "inspect" else 15), local.out + local.err  # the data are no Parquet
    left = [path for path in listing(folder) if (aside / path).exists()]
    made = len(listing(folder))
    shutil.rmtree(folder)
    shutil.copytree(aside, folder)
    process = start(*command, *on(where, running))
    found = finished(process, code=local.code)
    same = found.keys() - BY_CHANCE - {"as_of", "as_of_ms"}
    assert {key: found[key] for key in same} == {key: local.json[key] for key in same}
    assert [path for path in listing(folder) if (aside / path).exists()] == left
    assert len(listing(folder)) == made


@pytest.mark.deep
@pytest.mark.parametrize("where", ["cluster", "server"])
def test_workers_write_new_manifests_of_the_same_entries_though_tasks_run_twice(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    running: Running = request.getfixturevalue(where)
    made = make_table(str(tmp_path / "t"), Size(60, 40, 3))
    before = live_entries(of_folder(tmp_path / "t"))
    done = finished(
        start(
            "rewrite-manifests", made.location, "--target-size", "16KiB", "--yes",
            *on(where, running, **TWICE),
        )
    )  # fmt: skip
    assert (done["status"], done["added_manifests_count"] > 3) == ("done", True)
    after = of_folder(tmp_path / "t")
    assert len(before) > 1_000
    assert live_entries(after) == before
    new = {path.name for path in (tmp_path / "t/metadata").glob("*-spec0-*.avro")}
    assert new <= {Path(row["manifest_path"]).name for row in after.manifests()}
    assert len(new) == done["added_manifests_count"]


@pytest.mark.deep
@pytest.mark.parametrize("where", ["cluster", "server"])
def test_groups_are_rewritten_by_workers_though_one_is_killed_and_tasks_run_twice(
    request: pytest.FixtureRequest, tmp_path: Path, where: str
) -> None:
    running: Running = request.getfixturevalue(where)
    rows, files = 100_000, 24
    table = RowsTable(storage=LocalStorage(), location=str(tmp_path / "t"), format_version=2)
    for number in range(files):
        numbers = pa.array(range(rows * number, rows * (number + 1)))
        k = f"k{number % 8}"
        table.rows(f"d{number}", [(N, numbers), (K, pa.repeat(k, rows))], k=k, group_rows=rows)
    table.commit_and_publish(1)
    process = start(
        "rewrite-data-files", tmp_path / "t", "--min-input-files", "2", "--yes",
        *on(where, running, **TWICE),
    )  # fmt: skip
    until = time.monotonic() + WAIT_S
    try:
        while not list((tmp_path / "t").rglob("begun/*.json")):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        if where == "cluster":  # the server has none beside itself
            busy = [each for each in executors(running) if each.children(recursive=True)]
            busy[0].send_signal(signal.SIGKILL)
    except BaseException:
        process.kill()
        raise
    done = finished(process)
    assert (done["status"], done["rewritten_data_files_count"], done["added_data_files_count"]) == (
        "done",
        files,
        8,
    )
    newest = max((tmp_path / "t/metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    head = StaticTable.from_metadata(str(newest))
    found = head.scan(selected_fields=("n",)).to_arrow()["n"].to_numpy()
    assert sorted(found.tolist()) == [*range(rows * files)]
    live = {path.rpartition("/")[2] for path in head.inspect.data_files()["file_path"].to_pylist()}
    old = {f"d{number}.parquet" for number in range(files)}
    assert {path.name for path in (tmp_path / "t").rglob("*.parquet")} == live | old
    assert not list((tmp_path / "t").rglob("begun/*"))


def test_spark_connect_plans_as_one_process_does_and_logs_no_secret(server: Running, tmp_path: Path) -> None:
    made = make_table(str(tmp_path / "t"), Size(60, 40, 3))
    command = (*expiry(made.location), made.last_ms + 10_000)
    local = iceberg_cli(*command, "--engine", "local", "--format", "json").json
    secret = ("--storage-option", f"s3.secret-access-key={SECRET}")
    found = finished(start(*command, *secret, *on_server(server)))
    assert compared(found) == compared(local)
    assert SECRET not in "".join(path.read_text() for path in server.logs.glob("*.log"))

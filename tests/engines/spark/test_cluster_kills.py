"""Executors and drivers of a real cluster that are killed while its workers write, and tasks that run twice.

New files of workers go through `tests/spark_tables/gated.py`, which holds one: what is killed is what writes it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.iceberg_files import vector_blob
from tests.budget import FULL
from tests.cli.lakes import listing, listing_of_table
from tests.cli.running import iceberg_cli
from tests.delete_tables import DeleteTable
from tests.manifest_tables import Opened, a_lot, avro, live_entries, opened
from tests.spark_tables import gated
from tests.spark_tables.clusters import TWICE, Running, executors, finished, on_cluster, start

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

# Below the time after which a task at the gate goes on by itself.
IN_TIME_S = 100


@dataclass(frozen=True, kw_only=True)
class Case:
    """A verb that has workers write, and the table for it."""

    make: Callable[[Path], None]
    command: Sequence[str]
    new: str  # the names of files that workers write


def many_manifests(folder: Path) -> None:
    """A table of 400 files in 8 manifests, whose new ones go through the gate."""
    properties = {"write.metadata.path": f"gate:{folder}/metadata"}
    a_lot(2, storage=LocalStorage(), location=str(folder), properties=properties).table()


def position_deletes(folder: Path) -> None:
    """A table with position deletes in four partitions, whose deletion vectors go through the gate."""
    properties = {"write.data.path": f"gate:{folder}/data", "write.delete.target-file-size-bytes": "1"}
    table = DeleteTable(storage=LocalStorage(), location=str(folder), properties=properties)
    for number in range(8):
        table.data(f"d{number}", 100, k=f"k{number % 4}")
    table.commit(1)
    for number in range(8):
        table.positions(f"p{number}", {f"d{number}": range(number, 90, 2)}, k=f"k{number % 4}")
    table.commit(2)
    table.publish()


CASES = {
    "rewrite-manifests": Case(
        make=many_manifests,
        command=("rewrite-manifests", "--target-size", "8KiB"),
        new="metadata/*-spec0-*.avro",
    ),
    "merge-dvs": Case(make=position_deletes, command=("merge-dvs",), new="data/*-deletes.puffin"),
}


def some_verbs(always: str) -> list[str]:
    """One verb for each test; every one with FULL_SUITES=1."""
    return list(CASES) if FULL else [always]


@dataclass(kw_only=True)
class Scene:
    """A table, the gate before it, and a cluster."""

    case: Case
    table: Path
    gate: Path
    plug_in: Path
    cluster: Running
    before: dict[str, str] = field(default_factory=dict)

    def start(self, **conf: str) -> subprocess.Popen[str]:
        """The verb, on the cluster."""
        verb, *options = self.case.command
        return start(
            verb, self.table, *options, "--yes", "--storage-option", f"{gated.OPTION}={self.gate}",
            *on_cluster(self.cluster, **{"spark.executorEnv.PYTHONPATH": str(self.plug_in), **conf}),
            modules=[self.plug_in],
        )  # fmt: skip

    def attempts(self) -> dict[int, psutil.Process]:
        """The processes that have brought the file that is held and have an executor, each with it."""
        found = {}
        for path in self.gate.glob("*@*"):
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                process = psutil.Process(int(path.name.rpartition("@")[2]))
                executor = next(filter(is_executor, process.parents()), None)
                if executor is not None:
                    found[process.pid] = executor
        return found

    def open_gate(self) -> None:
        (self.gate / "open").touch()

    def written(self) -> set[str]:
        """Files of workers that are there."""
        return {str(path) for path in self.table.glob(self.case.new)}

    def held(self) -> Path:
        """Where the file goes that is held."""
        return self.table / Path(self.case.new).parent / (self.gate / "held").read_text()


@pytest.fixture
def scene(
    cluster: Running, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """The table of a case; processes of Spark that are left end with it."""
    case = CASES[request.param]
    plug_in, gate = tmp_path / "plug-in", tmp_path / "gate"
    info = plug_in / "gated-1.dist-info"
    info.mkdir(parents=True)
    gate.mkdir()
    (plug_in / "gated.py").write_text(Path(gated.__file__).read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gated\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[iceberg_cli.storage]\ngate = gated:GatedStorage\n")
    monkeypatch.syspath_prepend(str(plug_in))
    case.make(tmp_path / "t")
    found = Scene(case=case, table=tmp_path / "t", gate=gate, plug_in=plug_in, cluster=cluster)
    found.before = listing(found.table)
    yield found
    found.open_gate()
    for each in executors(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGCONT)
    wait_until(lambda: not executors(cluster))


def is_executor(process: psutil.Process) -> bool:
    return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())


def wait_until(true: Callable[[], Any]) -> None:
    until = time.monotonic() + IN_TIME_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The command, which is killed where the test fails."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()


def kill_driver(process: subprocess.Popen[str]) -> None:
    """Our command and its JVM, as where their machine fails."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.communicate()


def table_of(scene: Scene) -> Opened:
    """The table by its newest version."""
    versions = scene.table.glob("metadata/v*.metadata.json")
    newest = max(versions, key=lambda path: int(path.name[1:].split(".")[0]))
    return opened(open_storage(), str(newest))


def referenced(storage: Storage, table: Opened) -> set[str]:
    """The manifest lists, manifests and files of every snapshot, by fastavro, as paths below `/`."""
    found = set()
    for snapshot in table.metadata()["snapshots"]:
        found.add(snapshot["manifest-list"])
        for row in avro(storage.read(snapshot["manifest-list"])):
            found.add(row["manifest_path"])
            found |= {entry["data_file"]["file_path"] for entry in avro(storage.read(row["manifest_path"]))}
    return {path.removeprefix(gated.SCHEME) for path in found}


def check_whole(scene: Scene, entries: Sequence[Any]) -> None:
    """Nothing is lost or doubled, and the folder holds what the table references and no other file."""
    table = table_of(scene)
    if scene.case.command[0] == "rewrite-manifests":
        assert live_entries(table) == entries
    else:
        check_vectors(scene, table)
    named = referenced(open_storage(), table)
    there = {str(scene.table / name) for name in listing_of_table(scene.table)}
    free = {path for path in there if not path.endswith((".metadata.json", "version-hint.text"))}
    assert free <= named
    assert scene.written() <= named
    assert {path for path in named if path.startswith(str(scene.table))} <= there


def check_vectors(scene: Scene, table: Opened) -> None:
    """Each data file has one deletion vector, of all its positions, and no position delete file is left."""
    found = []
    for row in table.manifests():
        if row["content"] == 1:
            entries = avro(table.storage.read(row["manifest_path"]))
            found += [each["data_file"] for each in entries if each["status"] != 2]
    assert Counter(each["referenced_data_file"] for each in found) == {
        f"{scene.table}/data/d{number}.parquet": 1 for number in range(8)
    }
    assert {each["referenced_data_file"][-9]: each["record_count"] for each in found} == {
        str(number): len(range(number, 90, 2)) for number in range(8)
    }
    for each in found:
        data = table.storage.read(each["file_path"])
        at, size = each["content_offset"], each["content_size_in_bytes"]
        number = int(each["referenced_data_file"][-9])
        assert data[at : at + size] == vector_blob(range(number, 90, 2))


# -- executors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", some_verbs("rewrite-manifests"), indirect=True)
def test_what_an_executor_that_is_killed_was_writing_another_one_writes_once(scene: Scene) -> None:
    entries = live_entries(table_of(scene))
    with running(scene.start(**TWICE)) as process:
        wait_until(lambda: scene.attempts() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        ((writer, executor),) = list(scene.attempts().items())[:1]
        executor.kill()
        wait_until(lambda: not executor.is_running())
        wait_until(lambda: scene.attempts().keys() - {writer})
        scene.open_gate()
        done = finished(process)
    assert done["status"] == "done"
    check_whole(scene, entries)


@pytest.mark.parametrize("scene", some_verbs("merge-dvs"), indirect=True)
def test_a_task_that_runs_twice_at_the_same_time_writes_one_file(scene: Scene) -> None:
    entries = live_entries(table_of(scene))
    with running(scene.start(**TWICE)) as process:
        wait_until(lambda: len(set(scene.attempts().values())) > 1 or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        scene.open_gate()
        done = finished(process)
    assert done["status"] == "done"
    held = scene.held().name
    outcomes = [path.name.rpartition("=")[2] for path in scene.gate.glob(f"{held}@*=*")]
    assert outcomes.count("created") == 1
    check_whole(scene, entries)


# -- drivers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", some_verbs("merge-dvs"), indirect=True)
def test_what_workers_wrote_for_a_driver_that_is_killed_resume_removes_and_the_next_run_writes(
    scene: Scene,
) -> None:
    entries = live_entries(table_of(scene))
    with running(scene.start()) as process:
        # One file is being written, and others are.
        wait_until(lambda: (scene.attempts() and scene.written()) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        kill_driver(process)
    wait_until(lambda: not executors(scene.cluster))
    left = listing(scene.table)
    assert scene.before.items() < left.items()
    assert scene.written()
    assert not scene.held().exists()
    carried_out(scene, "resume", status="nothing_to_do")
    assert listing_of_table(scene.table) == scene.before
    carried_out(scene, *scene.case.command, "--yes", status="done")
    check_whole(scene, entries)


def carried_out(scene: Scene, verb: str, *options: str, status: str) -> None:
    ran = iceberg_cli(verb, scene.table, *options, "--engine", "local", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert status in ran.out


def outliving(scene: Scene) -> psutil.Process:
    """Kill the driver while the executor that writes for it stands still, and so does not notice.

    Returns:
        The process that waits at the gate; it goes on.
    """
    with running(scene.start()) as process:
        wait_until(lambda: scene.attempts() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        ((writer, executor),) = scene.attempts().items()
        executor.suspend()
        kill_driver(process)
    assert not scene.held().exists()
    return psutil.Process(writer)


@pytest.mark.parametrize("scene", ["rewrite-manifests"], indirect=True)
def test_what_a_task_that_outlives_its_driver_writes_resume_removes(scene: Scene) -> None:
    outliving(scene)
    scene.open_gate()
    wait_until(scene.held().exists)
    carried_out(scene, "resume", status="nothing_to_do")
    assert listing_of_table(scene.table) == scene.before


@pytest.mark.parametrize("scene", ["rewrite-manifests"], indirect=True)
def test_what_such_a_task_writes_after_resume_the_next_one_removes(scene: Scene) -> None:
    entries = live_entries(table_of(scene))
    outliving(scene)
    carried_out(scene, "resume", status="nothing_to_do")
    assert listing_of_table(scene.table) == scene.before
    scene.open_gate()
    wait_until(scene.held().exists)
    carried_out(scene, "resume", status="nothing_to_do")
    assert listing_of_table(scene.table) == scene.before
    carried_out(scene, *scene.case.command, "--yes", status="done")
    check_whole(scene, entries)

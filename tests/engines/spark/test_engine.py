"""What only the Spark engine promises: how it is chosen, what reaches workers, and what must not reach others."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import iceberg_cli
from iceberg_cli.encoding.transport import pickled_data
from iceberg_cli.engines import Scan, Source
from iceberg_cli.engines import selection as choice
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.engines.spark.session import Session, pickled_without_storages, translated
from iceberg_cli.engines.spark.startup import package_archive, prepare
from iceberg_cli.engines.spark.worker import InlineBytes, Payload
from iceberg_cli.errors import BackendUnavailable, UsageError
from iceberg_cli.formats import open as choosing
from iceberg_cli.formats.open import open_table
from iceberg_cli.storage.credential_options import with_environment
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import RoutedStorage
from iceberg_cli.testing.conformance.engines import SHORT_FILES, Batch, as_it_is, make_files, unseen
from tests.cli.lakes import four_snapshots
from tests.cli.running import iceberg_cli as run
from tests.paths import ROOT
from tests.servers import S3Server

NO_SPARK = ("--engine", "spark", "--spark-master", "nonsense", "--format", "json")
KNOWN = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER")


def scan(
    engine: SparkEngine, paths: Sequence[str], parse: Callable[[Batch], object], size_bytes: int = 1
) -> list:
    found = engine.scan(
        Scan(lambda path: Source(path, size_bytes), as_it_is, parse, phase="reading"),
        paths,
        on_event=unseen,
    )
    return list(found)


@pytest.fixture
def engine(spark_session: Session) -> SparkEngine:
    return SparkEngine(spark_session, LocalStorage())


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever session other tests have left in this process."""
    monkeypatch.setattr(choice, "active_session", lambda: None)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files, each of its own bytes."""
    return make_files(tmp_path, count=SHORT_FILES, size_bytes=1_000)


# -- choosing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"engine": "flink"},
        {"master": "local[2]", "remote": "sc://host"},
        {"engine": "local", "master": "local[2]"},
        {"engine": "local", "conf": {"a": "b"}},
    ],
)
def test_what_contradicts_itself_is_a_mistake_of_usage(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        EngineChoice(**options)


@pytest.mark.parametrize("name", KNOWN)
def test_auto_thinks_of_spark_only_where_one_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in KNOWN:
        monkeypatch.delenv(each, raising=False)
    known = EngineChoice().may_be_spark  # a session may run in this process
    assert EngineChoice(master="local[2]").may_be_spark
    assert EngineChoice(remote="sc://host").may_be_spark
    assert not EngineChoice(engine="local").may_be_spark
    monkeypatch.setenv(name, "something")
    assert EngineChoice().may_be_spark
    if not known:
        monkeypatch.delenv(name)
        assert not EngineChoice(conf={"spark.executor.cores": "2"}).may_be_spark


def test_auto_reads_a_small_table_here_and_says_why(tmp_path: Path) -> None:
    four_snapshots(tmp_path / "t").publish()
    ran = run("inspect", tmp_path / "t", "--spark-master", "spark://nobody.is.there:7077", "--format", "json")
    assert ran.code == 0
    assert ran.err.startswith("engine: local, for the current manifests hold ")
    assert "bytes (less than " in ran.err


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[2]", 2),
        ("local[12,3]", 12),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
@pytest.mark.usefixtures("no_session")
def test_the_cores_of_this_machine_alone_are_told_from_a_cluster(master: str, cores: int | None) -> None:
    assert EngineChoice(master=master).cores_here == cores
    assert EngineChoice(conf={"spark.master": master}).cores_here == cores
    assert EngineChoice(remote="sc://host").cores_here is None


@pytest.mark.deep
@pytest.mark.jvm
def test_the_cores_of_a_session_that_runs_are_those_of_its_master(spark_session: Session) -> None:
    assert spark_session.spark.sparkContext.master == "local[2]"
    assert EngineChoice(master="spark://host:7077").cores_here == 2
    assert EngineChoice(remote="sc://host").cores_here is None


@pytest.mark.usefixtures("no_session")
def test_auto_leaves_a_large_table_to_the_local_engine_where_spark_has_no_more_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_snapshots(tmp_path / "t").publish()
    monkeypatch.setattr(choosing, "CROSSOVER_BYTES", 1)
    stated: list[str] = []
    table = open_table(
        str(tmp_path / "t"),
        storage_options={},
        engine=EngineChoice(master="local[2]", say=stated.append),
        on_event=unseen,
    )
    assert isinstance(table.engine, LocalEngine)
    [line] = stated
    assert line.startswith("engine: local, for the current manifests hold ")
    assert line.endswith("bytes (at least 1), but Spark has 2 of this machine's cores and no others")


@pytest.mark.deep
@pytest.mark.jvm
def test_a_spark_that_does_not_start_is_an_error_of_the_backend(tmp_path: Path) -> None:
    four_snapshots(tmp_path / "t").publish()
    done = subprocess.run(
        [sys.executable, "-m", "iceberg_cli", "inspect", tmp_path / "t", *NO_SPARK],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 16
    assert json.loads(done.stdout)["message"].startswith("Cannot start Spark: ")
    assert "Master must" in done.stdout
    assert done.stderr == ""


# As Spark 4.1 says it; the first where executors ended for lack of memory, their heap being 1 GB.
LOST_OUTPUT = """\
org.apache.spark.SparkException: Job aborted due to stage failure: ShuffleMapStage 10 (toLocalIterator) has failed the \
maximum allowable number of times: 4. Most recent failure reason:
org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 2 partition 0
\tat org.apache.spark.MapOutputTracker$.validateStatus(MapOutputTracker.scala:1779)
"""
NO_COLUMN = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved.\nSQLSTATE: 42703"


@pytest.mark.parametrize(
    ("text", "ends", "memory"),
    [
        (
            LOST_OUTPUT,
            "MetadataFetchFailedException: Missing an output location for shuffle 2 partition 0",
            True,
        ),
        (NO_COLUMN, "A column with name `x` cannot be resolved.", False),
    ],
)
def test_the_reason_that_spark_gives_is_told_whole_and_memory_where_executors_ended(
    text: str, ends: str, memory: bool
) -> None:
    with pytest.raises(BackendUnavailable) as caught, translated("go on (reading)"):
        raise PySparkException(text)
    assert caught.value.message.startswith("Cannot go on (reading): Spark says: ")
    assert caught.value.message.endswith(ends)
    assert ("spark.executor.memory" in caught.value.next_step) is memory


# -- workers -------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.jvm
def test_workers_run_the_package_that_was_sent_to_them(engine: SparkEngine, paths: list[str]) -> None:
    def where(_: Batch) -> tuple[int, str]:
        return os.getpid(), str(iceberg_cli.__file__)

    for process_id, file in scan(engine, paths, where):
        assert process_id != os.getpid()
        assert ".zip/" in file


@pytest.mark.deep
@pytest.mark.jvm
def test_a_package_that_workers_lack_is_named(spark_session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendUnavailable, match="lack no_such_package") as caught:
        prepare(spark_session, LocalStorage(), str(tmp_path / "file"), needed=frozenset({"no_such_package"}))
    assert "spark.archives" in caught.value.next_step


@pytest.mark.deep
@pytest.mark.jvm
def test_workers_that_do_not_see_the_table_are_an_error(spark_session: Session, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"workers cannot read .*/nowhere"):
        prepare(spark_session, LocalStorage(), str(tmp_path / "nowhere"))


@pytest.mark.deep
@pytest.mark.jvm
def test_a_driver_without_memory_ends_rather_than_its_jobs_never(spark_session: Session) -> None:
    beans = spark_session.spark._jvm.java.lang.management.ManagementFactory
    assert "-XX:+ExitOnOutOfMemoryError" in list(beans.getRuntimeMXBean().getInputArguments())


@pytest.mark.deep
@pytest.mark.jvm
def test_results_of_a_large_scan_come_in_order_too(engine: SparkEngine, paths: list[str]) -> None:
    found = scan(engine, paths, lambda batch: [data[:1] for _, data in batch if data], size_bytes=10 << 20)
    assert [each for batch in found for each in batch] == [bytes([number]) for number in range(12)]


@pytest.mark.deep
@pytest.mark.jvm
def test_large_values_that_functions_hold_reach_workers_whole(engine: SparkEngine, paths: list[str]) -> None:
    kept = np.arange(500_000)
    assert set(scan(engine, paths, lambda _: int(kept.sum()))) == {499_999 * 250_000}


@pytest.mark.deep
@pytest.mark.jvm
def test_a_function_that_holds_the_engine_is_a_bug(engine: SparkEngine, paths: list[str]) -> None:
    with pytest.raises(TypeError, match="holds the engine"):
        scan(engine, paths, lambda batch: (engine, len(batch)))


@pytest.mark.deep
@pytest.mark.jvm
@pytest.mark.parametrize("size_bytes", [1, 10 << 20], ids=["at once", "streamed"])
def test_a_worker_that_dies_is_an_error_and_no_short_result(
    engine: SparkEngine, paths: list[str], size_bytes: int
) -> None:
    def parse(batch: Batch) -> int:
        if batch[-1][0] == paths[-1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(batch)

    with pytest.raises(BackendUnavailable, match=r"Cannot go on .*Spark says"):
        scan(engine, paths, parse, size_bytes)
    assert sum(scan(engine, paths, len, size_bytes)) == len(paths)


def test_of_a_table_that_is_cut_into_items_each_takes_its_own_rows_along() -> None:
    whole = pa.table({"n": np.arange(100_000), "name": [f"name {n}" for n in range(100_000)]})
    cut = {"rows": whole.slice(70_000, 3)}
    data = pickled_data(cut)
    assert len(data) < 2_000
    (rows,) = pickle.loads(data).values()
    assert rows.to_pydict() == {
        "n": [70_000, 70_001, 70_002],
        "name": [f"name {n}" for n in range(70_000, 70_003)],
    }


# -- storage and secrets -------------------------------------------------------------------------------------------


def test_the_package_is_packed_into_the_same_bytes_each_time() -> None:
    assert package_archive() == package_archive()


def test_keys_of_the_environment_go_along_together_or_not_at_all() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    assert with_environment({}, environment) == {
        "client.access-key-id": "k",
        "client.secret-access-key": "s",
        "client.session-token": "t",
    }
    for own in ({"key": "mine", "secret": "x"}, {"s3.access-key-id": "mine"}, {"anon": "true"}):
        assert with_environment(own, environment) == own


def test_an_option_is_stronger_than_the_environment() -> None:
    environment = {"AWS_DEFAULT_REGION": "b", "AWS_REGION": "a", "AWS_ENDPOINT_URL": "http://e"}
    assert with_environment({}, environment) == {"client.region": "a", "s3.endpoint": "http://e"}
    for own in ({"region": "c", "endpoint_url": "f"}, {"s3.region": "c", "s3.endpoint": "f"}):
        assert with_environment(own, environment) == own


def test_a_task_is_pickled_without_the_storages_that_it_holds() -> None:
    first, second = RoutedStorage({"secret": "a-secret"}), RoutedStorage({"secret": "another"})

    def task(name: str) -> object:
        return first, second, name

    data, storages = pickled_without_storages((task, first))
    assert b"a-secret" in pickle.dumps(first)
    assert b"a-secret" not in data
    assert b"another" not in data
    assert storages == [first, second]
    held: list[object] = [LocalStorage(), LocalStorage()]
    sent = Payload("", InlineBytes(data), storages=Payload("held", InlineBytes(pickle.dumps(held))))
    again, own = sent.value()
    assert [type(each) for each in again("x")[:2]] == [LocalStorage, LocalStorage]
    assert again("x")[0] is own
    assert again("x")[2] == "x"


@pytest.mark.deep
@pytest.mark.jvm
def test_tasks_on_workers_create_files_on_an_object_store_and_no_secret_is_in_sparks_log(
    spark_session: Session, moto_server: S3Server
) -> None:
    storage = RoutedStorage({**moto_server.options, "secret": "a-very-secret-secret"})
    folder = f"s3://{moto_server.bucket}/{uuid.uuid4()}"

    def task(number: int) -> int:
        with_parts = storage.create(f"{folder}/{number}", on_upload=lambda _: None)
        with_parts.write(bytes([number]) * 100)
        with_parts.commit()
        return os.getpid()

    engine = SparkEngine(spark_session, storage)
    ends = [
        each for each in engine.run(task, [7, 8], may_begin=lambda: True, processes=1) if each is not None
    ]
    assert all(each.error is None for each in ends)
    assert os.getpid() not in {each.result for each in ends}
    assert [storage.read(f"{folder}/{number}") for number in (7, 8)] == [b"\7" * 100, b"\x08" * 100]
    logs = Path(spark_session.spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    logged = b"".join(path.read_bytes() for path in logs.rglob("*") if path.is_file())
    assert b"iceberg-cli: rewriting a group of files" in logged
    assert b"a-very-secret-secret" not in logged


@pytest.mark.deep
@pytest.mark.jvm
def test_workers_read_an_object_store_and_no_secret_is_in_sparks_log(
    spark_session: Session, moto_server: S3Server, tmp_path: Path
) -> None:
    storage = RoutedStorage({**moto_server.options, "secret": "a-very-secret-secret"})
    paths = [f"s3://{moto_server.bucket}/{uuid.uuid4()}/{number}" for number in range(3)]
    for number, path in enumerate(paths):
        storage.put_if_absent(path, bytes([number]))
    engine = SparkEngine(spark_session, storage)
    prepare(spark_session, storage, paths[0])
    found = scan(engine, paths, lambda batch: [data for _, data in batch])
    assert [data for batch in found for data in batch] == [b"\0", b"\1", b"\2"]
    folder = Path(spark_session.spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    logged = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"iceberg-cli: reading" in logged
    assert b"a-very-secret-secret" not in logged

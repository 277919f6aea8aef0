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
from iceberg_cli.engines import BuiltFile, Engine, Event, Scan, ShuffleStage, Source, local
from iceberg_cli.engines import selection as choice
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.engines.spark.session import Session, translated
from iceberg_cli.engines.spark.startup import packed, prepare
from iceberg_cli.errors import BackendUnavailable, CorruptFile, UsageError
from iceberg_cli.formats import open as choosing
from iceberg_cli.formats.open import open_table
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import RoutedStorage, with_environment
from tests.cli.lakes import four_snapshots
from tests.cli.running import iceberg_cli as run
from tests.paths import ROOT
from tests.servers import S3Server

Batch = Sequence[tuple[str, bytes | None]]
NO_SPARK = ("--engine", "spark", "--spark-master", "nonsense", "--format", "json")
KNOWN = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER")


def unseen(_: Event) -> None:
    """Progress that nobody looks at."""


def scan(
    engine: SparkEngine, paths: Sequence[str], parse: Callable[[Batch], object], size_bytes: int = 1
) -> list:
    found = engine.scan(
        Scan(lambda path: Source(path, size_bytes), lambda _, data: data, parse, phase="reading"),
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
    found = [tmp_path / f"{number:02d}" for number in range(12)]
    for number, path in enumerate(found):
        path.write_bytes(bytes([number]) * 1_000)
    return [str(path) for path in found]


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


@pytest.mark.jvm
def test_workers_run_the_package_that_was_sent_to_them(engine: SparkEngine, paths: list[str]) -> None:
    def where(_: Batch) -> tuple[int, str]:
        return os.getpid(), str(iceberg_cli.__file__)

    for process_id, file in scan(engine, paths, where):
        assert process_id != os.getpid()
        assert ".zip/" in file


@pytest.mark.jvm
def test_a_package_that_workers_lack_is_named(spark_session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendUnavailable, match="lack no_such_package") as caught:
        prepare(spark_session, LocalStorage(), str(tmp_path / "file"), needed=frozenset({"no_such_package"}))
    assert "spark.archives" in caught.value.next_step


@pytest.mark.jvm
def test_workers_that_do_not_see_the_table_are_an_error(spark_session: Session, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"workers cannot read .*/nowhere"):
        prepare(spark_session, LocalStorage(), str(tmp_path / "nowhere"))


@pytest.mark.jvm
def test_a_driver_without_memory_ends_rather_than_its_jobs_never(spark_session: Session) -> None:
    beans = spark_session.spark._jvm.java.lang.management.ManagementFactory
    assert "-XX:+ExitOnOutOfMemoryError" in list(beans.getRuntimeMXBean().getInputArguments())


@pytest.mark.jvm
def test_results_of_a_large_scan_come_in_order_too(engine: SparkEngine, paths: list[str]) -> None:
    found = scan(engine, paths, lambda batch: [data[:1] for _, data in batch if data], size_bytes=10 << 20)
    assert [each for batch in found for each in batch] == [bytes([number]) for number in range(12)]


@pytest.mark.jvm
def test_large_values_that_functions_hold_reach_workers_whole(engine: SparkEngine, paths: list[str]) -> None:
    kept = np.arange(500_000)
    assert set(scan(engine, paths, lambda _: int(kept.sum()))) == {499_999 * 250_000}


@pytest.mark.jvm
def test_a_function_that_holds_the_engine_is_a_bug(engine: SparkEngine, paths: list[str]) -> None:
    with pytest.raises(TypeError, match="holds the engine"):
        scan(engine, paths, lambda batch: (engine, len(batch)))


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


# -- shuffling, on each engine -------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "local, spilled", pytest.param("spark", marks=pytest.mark.jvm)])
def any_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    if request.param == "spark":
        return request.getfixturevalue("engine")
    if request.param == "local, spilled":
        monkeypatch.setattr(local, "_HELD_BYTES", 1)
    return LocalEngine(LocalStorage())


def by_parity(batch: Batch) -> dict[int, bytes]:
    """Even first bytes go to bucket 0 and odd ones to bucket 3."""
    firsts = [data[0] for _, data in batch if data is not None]
    return {place: bytes(each for each in firsts if each % 2 == odd) for odd, place in ((0, 0), (1, 3))}


def shuffle(
    any_engine: Engine, paths: Sequence[str], parse: object, combine: object, *then: ShuffleStage
) -> list:
    found = any_engine.shuffle(
        Scan(
            lambda path: Source(path, 1 << 20),
            lambda _, data: data,
            parse,
            phase="sharing out",
            missing_ok=True,
        ),
        [ShuffleStage(combine, 4), *then],
        paths,
        on_event=unseen,
    )
    return list(found)


def test_each_bucket_is_combined_once_with_all_that_is_in_it(any_engine: Engine, paths: list[str]) -> None:
    os.remove(paths[5])
    found = shuffle(
        any_engine, paths, by_parity, lambda bucket, parts: (bucket, sorted(b"".join(map(bytes, parts))))
    )
    assert sorted(found) == [(0, [0, 2, 4, 6, 8, 10]), (3, [1, 3, 7, 9, 11])]


def test_errors_of_either_side_of_an_exchange_arrive_as_they_were_raised(
    any_engine: Engine, paths: list[str]
) -> None:
    def corrupt(batch: Batch) -> dict[int, bytes]:
        if paths[7] in [path for path, _ in batch]:
            raise CorruptFile(paths[7], 17, "no sync marker")
        return by_parity(batch)

    def broken(bucket: int, parts: Sequence[bytes]) -> int:
        return len(parts) // bucket

    with pytest.raises(CorruptFile) as caught:
        shuffle(any_engine, paths, corrupt, lambda bucket, _: bucket)
    assert (caught.value.path, caught.value.offset) == (paths[7], 17)
    with pytest.raises(ZeroDivisionError):
        shuffle(any_engine, paths, by_parity, broken)


# -- shuffling twice ----------------------------------------------------------------------------------------------


def digits(number: int, parts: Sequence[bytes]) -> dict[int, bytes]:
    """The numbers of a bucket to those of their last digits."""
    found = b"".join(map(bytes, parts))
    return {digit: bytes(each for each in found if each % 10 == digit) for digit in {n % 10 for n in found}}


def test_what_was_combined_is_shared_out_and_combined_once_more(any_engine: Engine, paths: list[str]) -> None:
    found = shuffle(
        any_engine,
        paths,
        by_parity,
        digits,
        ShuffleStage(lambda digit, parts: (digit, sorted(b"".join(map(bytes, parts)))), 10),
    )
    assert sorted(found) == [(digit, [digit, 10 + digit][: 2 if digit < 2 else 1]) for digit in range(10)]


def test_errors_of_every_round_arrive_as_they_were_raised(any_engine: Engine, paths: list[str]) -> None:
    def corrupt(batch: Batch) -> dict[int, bytes]:
        raise CorruptFile(batch[0][0], 17, "no sync marker")

    def broken(bucket: int, parts: Sequence[bytes]) -> dict[int, bytes]:
        raise KeyError(bucket)

    def nothing(bucket: int, parts: Sequence[bytes]) -> int:
        return len(parts)

    with pytest.raises(CorruptFile, match="no sync marker"):
        shuffle(any_engine, paths, corrupt, digits, ShuffleStage(nothing, 10))
    with pytest.raises(KeyError):
        shuffle(any_engine, paths, by_parity, broken, ShuffleStage(nothing, 10))
    with pytest.raises(KeyError):
        shuffle(any_engine, paths, by_parity, digits, ShuffleStage(broken, 10))


# -- writing -------------------------------------------------------------------------------------------------------


def write(any_engine: Engine, paths: list[str], folder: Path, *, twice: bool = False) -> list:
    """Make a file of each bucket of one round, or of two; what workers say of them, in order."""
    root = str(folder)

    def file(bucket: int, parts: Sequence[bytes]) -> BuiltFile:
        data = bytes(sorted(b"".join(map(bytes, parts))))
        return BuiltFile(f"{root}/new/{bucket}", data, (bucket, len(data), os.getpid()))

    stages = [digits, ShuffleStage(file, 10)] if twice else [file]
    return sorted(shuffle(any_engine, paths, by_parity, *stages))


@pytest.mark.parametrize("twice", [False, True], ids=["one round", "two rounds"])
def test_workers_write_new_files_and_a_task_that_runs_again_finds_its_own(
    any_engine: Engine, paths: list[str], tmp_path: Path, twice: bool
) -> None:
    expected = (
        {digit: [n for n in range(12) if n % 10 == digit] for digit in range(10)}
        if twice
        else {0: range(0, 12, 2), 3: range(1, 12, 2)}
    )
    for _ in range(2):
        found = write(any_engine, paths, tmp_path, twice=twice)
        assert [each[:2] for each in found] == [(place, len(numbers)) for place, numbers in expected.items()]
        processes = {process_id for _, _, process_id in found}
        assert (os.getpid() not in processes) == any_engine.is_distributed
        written = {int(path.name): path.read_bytes() for path in (tmp_path / "new").iterdir()}
        assert written == {place: bytes(numbers) for place, numbers in expected.items()}


@pytest.mark.parametrize("theirs", [b"", b"theirs", bytes(range(0, 12, 2)) + b"and more"])
def test_a_file_of_others_is_an_error_and_stays_as_it_is(
    any_engine: Engine, paths: list[str], tmp_path: Path, theirs: bytes
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/0").write_bytes(theirs)
    with pytest.raises(FileExistsError):
        write(any_engine, paths, tmp_path)
    assert (tmp_path / "new/0").read_bytes() == theirs


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
    assert packed() == packed()


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


@pytest.mark.jvm
def test_workers_read_an_object_store_and_no_secret_is_in_sparks_log(
    spark_session: Session, s3_server: S3Server, tmp_path: Path
) -> None:
    storage = RoutedStorage({**s3_server.options, "secret": "a-very-secret-secret"})
    paths = [f"s3://{s3_server.bucket}/{uuid.uuid4()}/{number}" for number in range(3)]
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

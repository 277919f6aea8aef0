"""Fixtures that several test modules use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from iceberg_cli.engines import selection as choice
from iceberg_cli.storage import backoff
from tests import budget, shards
from tests.cli.lakes import FolderTable, four_snapshots
from tests.delta_live.lake import delta_lake, delta_spark
from tests.emulators import azurite, fake_gcs
from tests.glue_front import glue, glue_service
from tests.hive_server import hive
from tests.nessie import nessie
from tests.recording import plugin as recording
from tests.recording.plugin import recorder, transcript
from tests.refusals_seen import FOLDER, RefusalsSeen
from tests.rest_servers import rest_on_s3, rest_server
from tests.s3_users import guarded_s3
from tests.s3_words import unconditional, without_conditions
from tests.seaweedfs import seaweedfs
from tests.servers import (
    mariadb_database,
    mariadb_server,
    moto_server,
    postgres_database,
    postgres_server,
    versitygw,
    versitygw_with_users,
)
from tests.shuffling import workers
from tests.spark_settings import tell_once
from tests.spark_tables.clusters import cluster, server
from tests.spark_tables.s3_lake import glue_s3_lake, hive_s3_lake, rest_s3_lake, sql_s3_lake
from tests.spark_tables.sessions import (
    hadoop,
    lake,
    lake_folder,
    lakes,
    live_lakes,
    spark_session,
    written,
)
from tests.toxiproxy import toxiproxy
from tests.vending import rest_with_users
from tests.worker_memory import WorkerMemory

__all__ = [
    "azurite",
    "cluster",
    "delta_lake",
    "delta_spark",
    "fake_gcs",
    "glue",
    "glue_s3_lake",
    "glue_service",
    "guarded_s3",
    "hadoop",
    "hive",
    "hive_s3_lake",
    "lake",
    "lake_folder",
    "lakes",
    "live_lakes",
    "mariadb_database",
    "mariadb_server",
    "moto_server",
    "nessie",
    "postgres_database",
    "postgres_server",
    "recorder",
    "rest_on_s3",
    "rest_s3_lake",
    "rest_server",
    "rest_with_users",
    "seaweedfs",
    "server",
    "spark_session",
    "sql_s3_lake",
    "toxiproxy",
    "transcript",
    "unconditional",
    "versitygw",
    "versitygw_with_users",
    "without_conditions",
    "workers",
    "written",
]

# Tests start the program many hundred times, and each time it would be compiled anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what is in its background with this signal ignored, and so would all programs that tests start be.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A machine with other work is no failure of a test.
hypothesis.settings.register_profile("tests", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("tests")


# A run makes and drops millions of objects beside those of ten thousand tests: it is not to look through all so often.
gc.set_threshold(20_000, 10, 10)


def pytest_configure(config: pytest.Config) -> None:
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    if folder := os.environ.get(FOLDER):
        config.pluginmanager.register(RefusalsSeen(folder=Path(folder)))
    config.pluginmanager.register(shards.plugin(config))
    config.pluginmanager.register(WorkerMemory(config))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate", action="store_true", help="Write the texts of tests/golden or tests/docs anew."
    )
    recording.pytest_addoption(parser)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands learn is kept in a folder of the tests', and the developer's configuration is not theirs."""
    own = {
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config")),
    }
    for name in [name for name in os.environ if name.startswith("ICEBERG_CLI_")]:
        del os.environ[name]
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session", autouse=True)
def short_waits() -> Iterator[None]:
    """Requests that failed are sent again soon."""
    with pytest.MonkeyPatch.context() as patched:
        for name, wait_s in _WAITS_OF_USERS.items():
            patched.setattr(backoff, name, wait_s / 10)
        yield


@pytest.fixture
def waits_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that failed are sent again when users' are."""
    for name, wait_s in _WAITS_OF_USERS.items():
        monkeypatch.setattr(backoff, name, wait_s)


@pytest.fixture
def table(tmp_path: Path) -> FolderTable:
    """Four snapshots, of which three are old."""
    made = four_snapshots(tmp_path / "shop" / "events")
    made.publish()
    return made


@pytest.fixture(autouse=True)
def no_session_of_others(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that other tests of this process left running is not there for a test that asks for none."""
    if request.node.get_closest_marker("jvm") is None:
        monkeypatch.setattr(choice, "active_session", lambda: None)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n 2 --dist loadgroup` a module stays on one worker, and so do all tests that share a Spark.

    These come first: each takes minutes, and a worker that began one last would end long after the other. In the order
    of the files a process has the engine's session before the live tests ask for Spark, and they share it.
    """
    items[:] = recording.chosen(items, record=config.option.record)
    if not config.option.regenerate:
        budget.make_rest_deep(items)
    groups = [_group(item) for item in items]
    for item, group in zip(items, groups, strict=True):
        item.add_marker(pytest.mark.xdist_group(group))
    places = {group: place for place, group in enumerate(dict.fromkeys([*_LONG, *groups]))}
    grouped = sorted(zip(groups, items, strict=True), key=lambda pair: places[pair[0]])
    items[:] = [item for _, item in grouped]


@pytest.hookimpl(tryfirst=True)  # before its fixtures start servers
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Deep tests fail from `DEEP_UNTIL` on, a time of `date +%s`: a run that takes so long has a fault of its own."""
    until = os.environ.get("DEEP_UNTIL")
    if until and item.get_closest_marker("deep") and time.time() > int(until):  # noqa: TID251 - as bash's
        pytest.fail(
            "the deep suites took twice the time that they have: this test was not run", pytrace=False
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What is in memory goes where nobody has a reason to look at it."""
    if exitstatus == 0 and "PYTEST_XDIST_WORKER" not in os.environ:
        base = session.config._tmp_path_factory.getbasetemp()
        if base.is_relative_to(_MEMORY):
            shutil.rmtree(base, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What this machine lacks is said once."""
    recording.note_outcome(item, call)
    report = yield
    tell_once(item, call, report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How answers that say nothing for sure were judged, and which files took longest."""
    _tell_slowest_files(terminalreporter)
    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.getreports(outcome)]
    judged = Counter(value for each in reports for name, value in each.user_properties if name == "judged")
    if judged:
        total, wrong = sum(judged.values()), judged["wrong"]
        figures = f"{judged['right']} right, {judged['unknown']} unknown"
        terminalreporter.write_line(
            f"Ambiguous answers: {total - wrong} of {total} judged right or unknown ({figures})."
        )


def _tell_slowest_files(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time of a long run goes."""
    reports = [
        each for found in terminalreporter.stats.values() for each in found if hasattr(each, "duration")
    ]
    seconds = Counter[str]()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > _MANY_FILES:
        terminalreporter.section("slowest files")
        for path, spent in seconds.most_common(10):
            terminalreporter.write_line(f"{spent:6.1f} s {path}")


def _group(item: pytest.Item) -> str:
    if (named := item.get_closest_marker("xdist_group")) is not None:
        return str(named.args[0])
    if item.get_closest_marker("jvm") is None:
        needs_the_folder = "lake_folder" in getattr(item, "fixturenames", ())
        return _SPARK if needs_the_folder else item.nodeid.partition("::")[0]
    # Not by fixtures: some are asked for while the test runs.
    if item.path.parent.name == "spark" and item.path.stem.startswith("test_cluster"):
        return _CLUSTER
    names = getattr(item, "fixturenames", ())
    if "delta_spark_on_s3" in names:
        return _DELTA_ON_S3
    return _DELTA if "delta_lake" in names else _SPARK


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where groups would do nothing, as with pytest 9.2: each worker would start every Spark."""
    gc.collect()
    gc.freeze()  # the tests stay, and nobody needs to look through them again
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        pytest.exit("--dist loadgroup has no effect with these versions of pytest and pytest-xdist", 3)


_MANY_FILES = 100
_WAITS_OF_USERS = {name: getattr(backoff, name) for name in ("_FIRST_WAIT_S", "_FIRST_THROTTLED_WAIT_S")}
# Each file that the program writes is flushed to a disk, and one that no test can pull the plug of.
_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 4 << 30  # pytest makes a folder of its own in it
_SPARK, _DELTA, _CLUSTER, _DELTA_ON_S3 = _LONG = (
    "spark",  # the session of this process
    "delta",
    "cluster",
    "delta-s3",
)

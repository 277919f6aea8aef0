"""Jars for Spark: from repositories by checksum, whatever the home folder holds and whoever else fetches them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import spark_jars as jars
from tests.paths import ROOT
from tests.spark_jars import Jar, NoJar, repositories, spark_jars
from tests.spark_settings import Missing, has_only_descriptions, settings_of_jvm
from tests.spark_tables.lake import Lake
from tests.spark_tables.sessions import JARS

CONTENT = b"PK" + bytes(range(256)) * 4096
JAR = Jar("org.example", "thing_2.13", "1.2.0", hashlib.sha256(CONTENT).hexdigest())
PATH = "org/example/thing_2.13/1.2.0/thing_2.13-1.2.0.jar"


class Repository:
    """A Maven repository on this machine; it counts how often a file is asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                found = files.get(self.path.removeprefix("/maven/"))
                self.send_response(404 if found is None else 200)
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/maven"

    asked: list[str]


@pytest.fixture
def repository() -> Iterator[Repository]:
    found = Repository({PATH: CONTENT})
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture(autouse=True)
def no_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "CENTRAL", "http://127.0.0.1:9/maven2")


def test_a_jar_is_downloaded_once_and_a_damaged_one_again(repository: Repository, tmp_path: Path) -> None:
    settings = {"DEFAULT_ARTIFACT_REPOSITORY": f"{repository.url}/", "HOME": str(tmp_path)}
    for _ in range(2):
        kept = spark_jars([JAR], folder=tmp_path / "jars", environment=settings)
        assert kept == str(tmp_path / "jars" / "thing_2.13-1.2.0.jar")
        assert Path(kept).read_bytes() == CONTENT
    assert repository.asked == [f"/maven/{PATH}"]
    Path(kept).write_bytes(CONTENT[:-1])
    spark_jars([JAR], folder=tmp_path / "jars", environment=settings)
    assert Path(kept).read_bytes() == CONTENT
    assert repository.asked == [f"/maven/{PATH}"] * 2
    assert os.listdir(tmp_path / "jars") == ["thing_2.13-1.2.0.jar"]


def test_what_has_another_checksum_is_not_kept_and_every_repository_is_named(
    repository: Repository, tmp_path: Path
) -> None:
    other = Jar(JAR.group, JAR.artifact, JAR.version, "0" * 64)
    settings = {"DEFAULT_ARTIFACT_REPOSITORY": repository.url, "HOME": str(tmp_path)}
    with pytest.raises(NoJar) as failed:
        spark_jars([other], folder=tmp_path / "jars", environment=settings)
    stated = str(failed.value)
    assert (
        f"{repository.url}/{PATH}: 1,048,578 bytes with SHA-256 {JAR.sha256} instead of {'0' * 64}" in stated
    )
    assert f"http://127.0.0.1:9/maven2/{PATH}: <urlopen error [Errno 111] Connection refused>" in stated
    assert "\n" not in stated
    assert os.listdir(tmp_path / "jars") == []


def test_a_folder_that_cannot_be_written_is_named(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = {"DEFAULT_ARTIFACT_REPOSITORY": repository.url, "HOME": str(tmp_path)}
    with pytest.raises(NoJar, match=r"^Cannot keep thing_2.13-1.2.0.jar in .*/file/jars: Not a directory\.$"):
        spark_jars([JAR], folder=tmp_path / "file" / "jars", environment=settings)


def test_many_fetch_one_jar_at_once_and_each_gets_it_whole(repository: Repository, tmp_path: Path) -> None:
    settings = {"DEFAULT_ARTIFACT_REPOSITORY": repository.url, "HOME": str(tmp_path)}

    def fetched(_: int) -> bytes:
        return Path(spark_jars([JAR], folder=tmp_path / "jars", environment=settings)).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fetched, range(32))) == {CONTENT}
    assert os.listdir(tmp_path / "jars") == ["thing_2.13-1.2.0.jar"]


@pytest.mark.parametrize(
    ("mirror_of", "blocked", "used"),
    [
        ("central", "", True),
        ("*", "", True),
        ("external:*, !snapshots", "", True),
        ("*,!central", "", False),
        ("snapshots", "", False),
        ("*", "<blocked>true</blocked>", False),
    ],
)
@pytest.mark.parametrize("namespace", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'])
def test_mavens_mirror_of_central_is_asked_before_it(
    mirror_of: str, blocked: str, used: bool, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        f"<settings{namespace}><mirrors><mirror><id>m</id><mirrorOf>{mirror_of}</mirrorOf>{blocked}"
        "<url> https://mirror.example/maven/ </url></mirror></mirrors></settings>"
    )
    central = "http://127.0.0.1:9/maven2"
    found = ["https://mirror.example/maven"] * used
    assert repositories({"HOME": str(tmp_path)}) == [*found, central]
    named = {"HOME": str(tmp_path), "DEFAULT_ARTIFACT_REPOSITORY": "https://first.example"}
    assert repositories(named) == ["https://first.example", *found, central]


@pytest.mark.parametrize("settings", [None, b"", b"<settings>", b"\xff\xfe"])
def test_settings_of_maven_that_cannot_be_read_name_no_mirror(settings: bytes | None, tmp_path: Path) -> None:
    if settings is not None:
        (tmp_path / ".m2").mkdir()
        (tmp_path / ".m2" / "settings.xml").write_bytes(settings)
    assert repositories({"HOME": str(tmp_path)}) == ["http://127.0.0.1:9/maven2"]


def test_a_jvms_proxy_is_used(repository: Repository, tmp_path: Path) -> None:
    port = repository.server.server_port
    proxied = "http://repository.invalid/maven"
    settings = {
        "DEFAULT_ARTIFACT_REPOSITORY": proxied,
        "HOME": str(tmp_path),
        "JAVA_TOOL_OPTIONS": f"-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port}",
    }
    with pytest.raises(NoJar):  # a proxy is asked for the whole address
        spark_jars([JAR], folder=tmp_path / "jars", environment=settings)
    assert f"{proxied}/{PATH}" in repository.asked


def test_a_jar_that_cannot_be_had_is_one_reason_for_the_tests_that_need_it(tmp_path: Path) -> None:
    nowhere = Jar("org.example.nowhere", "nothing", "0", "0" * 64)
    with pytest.raises(Missing, match=r"^(Cannot download nothing-0\.jar: |no java on the path)[^\n]*$"):
        settings_of_jvm([nowhere], tmp_path)


@pytest.mark.deep
@pytest.mark.jvm
def test_iceberg_in_spark_runs_with_a_home_folder_of_descriptions_without_jars(
    live_lakes: dict[str, Lake],
) -> None:
    spark = live_lakes["hadoop"].spark
    home = Path(spark._jvm.java.lang.System.getProperty("user.home"))
    assert has_only_descriptions(home, JARS)
    assert spark.conf.get("spark.jars").split(",") == [str(jars.FOLDER / jar.name) for jar in JARS]
    assert spark.conf.get("spark.jars.packages", "") == ""
    assert spark.sql("SELECT hadoop.system.iceberg_version()").collect()[0][0] == jars.ICEBERG.version


@pytest.mark.deep
def test_without_java_tests_of_spark_are_skipped_for_one_reason_and_in_ci_the_first_fails(
    tmp_path: Path,
) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"CI", "JAVA_HOME"}}
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_")}
    runs = [
        subprocess.Popen(
            [
                sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / f"run{ci}"),
                "-n", "0",
                "tests/iceberg/verbs/test_engines_agree.py", "tests/delta/verbs/test_engines_agree.py",
            ],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**environment, "PATH": str(tmp_path), "CI": ci},
        )
        for ci in ("", "true")
    ]  # fmt: skip
    skipped, failed = (run.communicate()[0] for run in runs)
    reason = "no java on the path and no JAVA_HOME, so Spark cannot start: it needs Java 17 or newer"
    assert [run.returncode for run in runs] == [0, 1], skipped + failed
    assert (skipped.count(reason), "Traceback" in skipped) == (1, False)
    count = re.search(r"^(\d+) skipped,", skipped, re.MULTILINE)
    assert count is not None, skipped
    assert re.search(rf"^{int(count[1]) - 1} skipped, .*1 error in", failed, re.MULTILINE), failed
    assert "Traceback" not in failed

"""What every Spark of the tests needs and is told, of whatever format: it runs here, and hundreds of tiny queries."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.spark_jars import Jar, NoJar, spark_jars

HERE_AND_TINY: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
FOR_STATEMENTS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
"""For a session that carries out what tests say."""
_JAVA = 17
# Compiling the queries further would cost more than it saves. At this level a JVM has 48 MB for what it compiled; they
# are full after a minute, and from then on it looks for methods to drop, and compiles them again.
OPTIONS_OF_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


class Missing(Exception):
    """What tests need and this machine does not have: they are skipped, with CI set all but the first."""


class NotStarted(Missing):
    """Nothing is missing, and it did not start: the first test that needs it fails, others are skipped."""


@contextlib.contextmanager
def starting(name: str) -> Iterator[None]:
    """Whatever goes wrong inside means that `name` did not start.

    Raises:
        NotStarted: something went wrong.
    """
    try:
        yield
    except Missing:
        raise
    except Exception as error:
        raise NotStarted(f"{name} did not start: {str(error).partition(os.linesep)[0][:500]}") from error


def tell_once(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Make the report of a test that lacks something one line, and a failure only where it is to be one.

    A fixture that could not be made is remembered by pytest, and not made again for other tests.
    """
    error = call.excinfo.value if call.excinfo is not None else None
    if not isinstance(error, Missing):
        return
    is_failure = isinstance(error, NotStarted) or os.environ.get("CI", "").lower() not in {"", "0", "false"}
    if is_failure and _is_first(item.config, str(error)):
        if not isinstance(error, NotStarted):
            report.longrepr = str(error)
        return
    report.outcome = "skipped"
    report.longrepr = (__file__, 0, f"Skipped: {error}")


def _is_first(config: pytest.Config, reason: str) -> bool:
    """Whether no test of this run, on whatever worker, has failed for this reason before."""
    folder = config._tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    try:
        (folder / f"missing-{hashlib.sha256(reason.encode()).hexdigest()}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def settings_of_jvm(jars: Sequence[Jar], folder: Path) -> dict[str, str]:
    """Settings of a Spark with these jars, whose home folder is one that has misled Spark's own search for jars.

    Args:
        jars: of the class path.
        folder: where the home folder is made.

    Raises:
        Missing: Spark cannot start, or a jar cannot be had.
    """
    require_spark()
    try:
        found = spark_jars(jars)
    except NoJar as error:
        raise Missing(str(error)) from error
    options = f"{OPTIONS_OF_JVM} -Duser.home={_home_without_jars(jars, folder)}"
    return {"spark.jars": found, "spark.driver.extraJavaOptions": options}


def require_spark() -> None:
    """Stop the test where no Spark can start.

    Raises:
        Missing: with the reason.
    """
    reason = _why_no_spark()
    if reason:
        raise Missing(reason)


@functools.cache
def _why_no_spark() -> str:
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install -e '.[test]'"
    java = (
        Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else shutil.which("java")
    )
    if java is None:
        return f"no java on the path and no JAVA_HOME, so Spark cannot start: it needs Java {_JAVA} or newer"
    try:
        stated = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        return (
            f"{java} does not run ({error.strerror}), so Spark cannot start: it needs Java {_JAVA} or newer"
        )
    version = re.search(r'version "(\d+)', stated)
    if version is None or int(version[1]) < _JAVA:
        return f"{java} is {stated.partition(os.linesep)[0]!r}, and Spark needs Java {_JAVA} or newer"
    return ""


def _home_without_jars(jars: Sequence[Jar], folder: Path) -> Path:
    """A home folder with descriptions of the jars and no jar, as `mvn dependency:tree` leaves it."""
    home = folder / "home"
    for jar in jars:
        pom = (home / ".m2" / "repository" / jar.path).with_suffix(".pom")
        pom.parent.mkdir(parents=True)
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
            f"<version>{jar.version}</version></project>\n"
        )
    return home


def has_only_descriptions(home: Path, jars: Sequence[Jar]) -> bool:
    """Whether this home folder holds the descriptions of these jars, and nothing else."""
    repository = home / ".m2" / "repository"
    files = {path for path in home.rglob("*") if path.is_file()}
    return files == {(repository / jar.path).with_suffix(".pom") for jar in jars}

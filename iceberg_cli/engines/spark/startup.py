"""Start of a Spark session: the one that exists, or one by the operator's choice; and the setup of its workers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any
from weakref import WeakKeyDictionary

from iceberg_cli import __version__
from iceberg_cli.engines.selection import SUBMITTED, EngineChoice, active_session, is_connect
from iceberg_cli.engines.spark.session import Session, cause_of, translated
from iceberg_cli.errors import BackendUnavailable, UsageError, how_to_install
from iceberg_cli.storage import Storage
from iceberg_cli.storage.declarations import declaration_of
from iceberg_cli.storage.redaction import redact

_NEEDED = ("isal", "mmh3", "numpy", "pyarrow", "pyroaring")
_MOST_LOOKS = 64  # tasks that check which packages workers have
_LOG_LINES = 3
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file in the archive: equal sources are equal bytes


@dataclass
class _SentPackage:
    """The package as sent to a session's workers. The folder holds the archive for workers that join later."""

    folder: tempfile.TemporaryDirectory[str]
    found: frozenset[str] = frozenset()


_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A driver whose dispatcher has no memory left would start no more tasks, and its jobs would never end.
    "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    # Spark's own words, and those of other settings that are secret: it shows the rest in its event log and its pages.
    "spark.redaction.regex": "(?i)secret|passw(or)?d|token|access[.]?key|account[.-]key|encryption[.-]key|api[.-]?key"
    "|credential|connection-string|[.]sas[.]|[.]header[.]|authorization",
}
_started: list[tuple[EngineChoice, Session]] = []
_lock = threading.RLock()  # tables may be opened side by side
_sent: WeakKeyDictionary[Any, _SentPackage] = WeakKeyDictionary()


def open_session(choice: EngineChoice) -> Session:
    """The session that exists, or a new one; one for all threads that choose alike.

    While one starts nothing may be printed: see `_quietly`.

    Raises:
        UsageError: pyspark, or what it needs here, is not installed. BackendUnavailable: Spark did not start.
    """
    with _lock:
        for started_by, session in _started:
            if started_by is choice:
                return session
        return _open_session(choice)


def _open_session(choice: EngineChoice) -> Session:
    try:
        from pyspark.errors import PySparkImportError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(
            f"Cannot use Spark: {error.name} is not installed.",
            next_step=how_to_install(error, extra="spark"),
        ) from error
    ours = active_session() is None
    builder = SparkSession.builder.appName("iceberg-cli")
    settings = _SETTINGS
    remote = choice.named_remote
    master = None if remote else choice.named_master
    if remote:
        builder, settings = builder.remote(remote), {}
    elif master:
        builder = builder.master(master)
    _choose_python(choice, master)
    for key, value in {**(settings if ours else {}), **choice.conf}.items():
        builder = builder.config(key, value)
    with _quietly() as log, _own_signals():
        try:
            spark = builder.getOrCreate()
        except PySparkImportError as error:
            raise UsageError(
                f"Cannot use Spark: {cause_of(error)}",
                next_step="Install what Spark Connect needs with: pip install 'pyspark[connect]'",
            ) from error
        except Exception as error:
            raise BackendUnavailable(f"Cannot start Spark: {cause_of(error)}{_tail(log)}") from error
    session = Session(spark, connect=is_connect(spark), ours=ours)
    if ours:
        _started.append((choice, session))
    return session


def close_sessions() -> None:
    """End the sessions that were started here, and delete the archives sent to them."""
    while _started:
        _started.pop()[1].close()
    for sent in list(_sent.values()):
        sent.folder.cleanup()


def needed_for(path: str) -> frozenset[str]:
    """The packages that workers need for the storage of a path."""
    own = declaration_of(path)
    return frozenset() if own is None else own.workers_need


def prepare(
    session: Session, storage: Storage, path: str, *, needed: frozenset[str] = frozenset(_NEEDED)
) -> None:
    """Send the package to the workers, and check that they have the rest and see the table.

    Args:
        session: open.
        storage: of the table.
        path: a file of it.
        needed: packages that workers must have, beside those for the storage.

    Raises:
        BackendUnavailable: workers lack a package, or cannot read the table's files.
    """
    from iceberg_cli.engines.spark.worker import prober

    with _lock:
        _send_package(session)
    _check_packages(session, needed | needed_for(path))
    rows = [b""] * min(session.cores, _MOST_LOOKS)
    with session.payload(pickle.dumps(storage, 5), secret=True) as payload:
        for answer in session.answers(
            rows, prober(payload, path), description="looking at the table", gather=True
        ):
            if answer:
                error = pickle.loads(answer)  # noqa: S301 - our own worker wrote it
                raise BackendUnavailable(
                    f"Cannot use Spark: its workers cannot read {path}: {error}",
                    next_step="A table on local disks needs workers that see them; --engine local reads it here.",
                )


def _choose_python(choice: EngineChoice, master: str | None) -> None:
    """Set the Python that workers run: a classic session takes it from the environment, else the first on the path."""
    python = choice.conf.get("spark.pyspark.python")
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    elif (master or "local").startswith("local") and SUBMITTED not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _send_package(session: Session) -> None:
    """Send the package to the workers, once in the life of a session."""
    if session.spark in _sent:
        return
    folder = tempfile.TemporaryDirectory(prefix="iceberg-cli-")
    archive = package_archive()
    place = f"{folder.name}/iceberg_cli-{__version__}-{hashlib.sha256(archive).hexdigest()[:12]}.zip"
    with open(place, "wb") as file:
        file.write(archive)
    with translated("send this package to the workers"):
        session.spark.addArtifacts(place, pyfile=True)
    _sent[session.spark] = _SentPackage(folder)


def package_archive() -> bytes:
    """This package's sources as a zip archive, the same bytes each time."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources(files("iceberg_cli"), "iceberg_cli")):
            info = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(info, source, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            yield from _sources(item, f"{name}/{item.name}")
        elif item.is_file() and not item.name.endswith(".pyc"):
            yield f"{name}/{item.name}", item.read_bytes()


def _check_packages(session: Session, names: frozenset[str]) -> None:
    sent = _sent[session.spark]
    if names <= sent.found:
        return
    from pyspark.sql import functions

    looks = min(session.cores, _MOST_LOOKS)
    look = functions.udf(_look_for((*sorted(names), "iceberg_cli")), "string", useArrow=False)
    with translated("look what the workers have"):
        rows = session.spark.range(0, looks, 1, looks).select(look("id")).distinct().collect()
    answers = [json.loads(row[0]) for row in rows]
    missing = sorted({name for each in answers for name in each["missing"]})
    if missing:
        raise BackendUnavailable(
            f"Cannot use Spark: its workers lack {', '.join(missing)}",
            next_step="Install them on every node, or ship an environment: `venv-pack -o env.tar.gz`, then"
            " --spark-conf spark.archives=env.tar.gz#env --spark-conf spark.pyspark.python=./env/bin/python",
        )
    others = sorted({each["version"] for each in answers} - {__version__})
    if others:
        raise BackendUnavailable(
            f"Cannot use Spark: its workers have iceberg-cli {', '.join(others)} and this is {__version__}",
            next_step="Install one version everywhere, or none on the workers: it is sent to them.",
        )
    sent.found |= names


def _look_for(names: tuple[str, ...]) -> Callable[[Any], str]:
    """A self-contained function for workers: those that lack packages cannot import the module it is from."""

    def look(_: Any) -> str:
        import importlib
        import json

        missing = []
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        version = None
        if "iceberg_cli" not in missing:
            version = getattr(
                importlib.import_module("iceberg_cli"), "__version__", "of another distribution"
            )
        return json.dumps({"missing": missing, "version": version})

    return look


@contextlib.contextmanager
def _quietly() -> Iterator[io.BufferedRandom]:
    """Have the JVM print to a file while it starts, and so for its life: JSON on standard output stays whole."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        descriptors = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(log.fileno(), number)
            yield log
        finally:
            for number, descriptor in zip((1, 2), descriptors, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handler of Ctrl-C, which stops at the next safe point: Spark's would raise at any point."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tail(log: io.BufferedRandom) -> str:
    """The last lines of the JVM's output without stack traces, for an error's message."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    shown_lines = [
        line for line in lines if line.strip() and not line.startswith(("\tat ", "\t...", "WARNING:"))
    ]
    return "".join(f"\n  {redact(line)}" for line in shown_lines[-_LOG_LINES:])

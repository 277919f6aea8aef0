"""The operator's choice of an engine, and the Spark sessions that exist."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.arguments import naming

SUBMITTED = "PYSPARK_GATEWAY_PORT"  # is set in what spark-submit runs
# The others are set by whoever connects to a server, and by whoever submits.
_VARIABLES = (SUBMITTED, "SPARK_REMOTE", "MASTER")
_CONF = ("spark.master", "spark.remote")
_HERE = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")  # masters that are this machine's own cores
# What a program gives where the command line has options.
_NAMES = {
    "--engine": "engine",
    "--spark-master": "master",
    "--spark-remote": "remote",
    "--spark-conf": "conf",
}


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The engine that is to read, and the Spark that is to run it.

    Args:
        engine: `auto`, `local` or `spark`.
        master: of a Spark cluster.
        remote: of a Spark Connect server.
        conf: of Spark.
        say: gets one line with what was chosen and why, where there was a choice.
        names_options: the command line chooses, and errors name its options.
    """

    engine: str = "auto"
    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = field(default=lambda _: None)
    names_options: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        with naming(_NAMES, names_options=self.names_options):
            self._check()

    def _check(self) -> None:
        if self.engine not in ("auto", "local", "spark"):
            raise UsageError(f"--engine must be auto, local or spark, not {self.engine!r}")
        if self.master and self.remote:
            raise UsageError("--spark-master and --spark-remote name two different Sparks: give one of them")
        if self.engine == "local" and (self.master or self.remote or self.conf):
            raise UsageError("--engine local takes no --spark-master, --spark-remote or --spark-conf")

    @property
    def may_be_spark(self) -> bool:
        """Whether Spark is named, or can be chosen: a master, a remote or a running session is known."""
        if self.engine != "auto":
            return self.engine == "spark"
        named = self.master or self.remote or any(name in self.conf for name in _CONF)
        return bool(named or any(os.environ.get(name) for name in _VARIABLES) or active_session() is not None)

    @property
    def named_remote(self) -> str | None:
        """The Spark Connect server to use; None where a master was given, or none is named."""
        return self.remote or (None if self.master else os.environ.get("SPARK_REMOTE"))

    @property
    def named_master(self) -> str | None:
        """The master to use; None where spark-submit has chosen one, or Spark's own default is to be used."""
        named = self.master or self.conf.get("spark.master")
        return named or (None if SUBMITTED in os.environ else os.environ.get("MASTER"))

    @property
    def cores_here(self) -> int | None:
        """How many cores Spark has where it is this machine alone; None where that is not known."""
        session = active_session()
        if self.named_remote or (session is not None and is_connect(session)):
            return None
        master = self.named_master if session is None else session.conf.get("spark.master", None)
        found = _HERE.fullmatch(master or "")
        if found is None:
            return None
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def active_session() -> Any:
    """The Spark session that runs in this process, if any; does not import Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")

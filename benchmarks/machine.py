"""What results were measured on: cores, memory and versions. No host names and no paths."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import iceberg_cli
from benchmarks import peers
from benchmarks.spark_jars import ICEBERG

_PACKAGES = ("pyiceberg", "deltalake", "pyspark", "pyarrow", "numpy")


@functools.cache
def machine() -> dict[str, object]:
    """Cores that may be used, memory in GB, processor, system and Python."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


@functools.cache
def versions(*, spark: bool) -> dict[str, str]:
    """Us, the peers, and the libraries that decide how fast we are."""
    found = {"iceberg-cli": iceberg_cli.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    go = peers.find_iceberg_go()
    if go:
        found["iceberg-go"] = _stated(go, "--version").split()[-1]
    if spark:
        found["Iceberg for Spark"] = ICEBERG.version
        java = re.search(r'"(.+?)"', _stated("java", "-version"))
        if java:
            found["Java"] = java[1]
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _stated(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or done.stderr.strip() or "unknown"

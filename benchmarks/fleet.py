"""`python -m benchmarks fleet`: many tables of one SQLite catalog, against `zamboni health` and `iceops scan`.

The peers are installed from the package index into environments of their own, in the user's cache folder.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Row, Work
from benchmarks.measure import OURS, PYTHON, Run, run
from benchmarks.peers import CACHE, ours
from iceberg_cli.testing.iceberg_files import DATA, Json
from iceberg_cli.testing.iceberg_writer import IcebergWriter, arrow_schema, parquet_metrics

PEERS = {"zamboni": "iceberg-zamboni==0.7.0", "iceops": "iceops==0.1.0"}
HEALTH, SCAN = "zamboni 0.7.0, health", "iceops 0.1.0, scan"
TABLES = {"S": 100, "M": 1_000, "L": 1_000}
DUE = 100  # of these, are maintained
SNAPSHOTS = 20
LIVE_COMMITS = 5  # the files of a commit are replaced by the one that comes so many later
FILES = 3  # of a commit
START_MS = 1_790_000_000_000
DAY_MS = 86_400_000
POLICY = """version = 1
[defaults]
expire-snapshots = { older-than = "5d", retain-last = 5 }
[[tables]]
match = ["local.fleet.*"]
"""
EXPIRY = ("--older-than", "5d", "--retain-last", "5")
_NAMES = [f"c{number}" for number in range(20)]
_FIELDS = [{"id": n, "name": name, "required": False, "type": "long"} for n, name in enumerate(_NAMES, 1)]
_SCHEMA = {"type": "struct", "schema-id": 0, "fields": _FIELDS}


class _Folder:
    """The files of tables whose locations are `file://` URIs, as PyIceberg writes them."""

    def put_if_absent(self, path: str, data: bytes, /) -> None:
        file = Path(path.removeprefix("file://"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def write_table(location: str) -> str:
    """A table that is appended to, and whose oldest files are replaced; returns its metadata's location."""
    writer = IcebergWriter(
        storage=_Folder(), location=location, schema=_SCHEMA, seed=location, time_ms=START_MS
    )
    data, metrics = _data_file()
    added: list[list[tuple[str, int | None]]] = []
    for commit in range(SNAPSHOTS):
        writer.time_ms = START_MS + commit * DAY_MS
        files = [
            writer.file(f"{commit:05d}-{number}-{writer.new_uuid()}.parquet", data, DATA, 0, **metrics)
            for number in range(FILES)
        ]
        added.append([(each["file_path"], None) for each in files])
        removed = added[-1 - LIVE_COMMITS] if commit >= LIVE_COMMITS else []
        writer.commit_files("overwrite" if removed else "append", files, removed)
        metadata = writer.publish(f"{commit:05d}-{writer.new_uuid()}.metadata.json")
    return metadata


@functools.cache
def _data_file() -> tuple[bytes, Json]:
    """A Parquet file, which every table has many copies of, and its part of a manifest entry."""
    rows = pa.table({name: pa.array(range(100)) for name in _NAMES}, arrow_schema(_SCHEMA))
    out = io.BytesIO()
    pq.write_table(rows, out)
    return out.getvalue(), parquet_metrics(out.getvalue())


@dataclass
class Fleet:
    """A warehouse of PyIceberg's SQL catalog `local`: tables `fleet.t0000` and so on."""

    root: str
    count: int

    def __post_init__(self) -> None:
        self.warehouse, self._copy = f"{self.root}/warehouse", f"{self.root}/pristine"
        self.names = [f"t{number:04d}" for number in range(self.count)]
        self.policy, self.peer_tables = f"{self.root}/policy.toml", f"{self.root}/zamboni.json"

    def make(self) -> None:
        for folder in (self.warehouse, self._copy):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(f"{folder}/fleet")
        locations = [f"file://{self.warehouse}/fleet/{name}" for name in self.names]
        with ProcessPoolExecutor() as pool:
            metadata = list(pool.map(write_table, locations, chunksize=10))
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        from pyiceberg.catalog.sql import SqlCatalog

        SqlCatalog("local", uri=uri).create_namespace("fleet")
        with sqlite3.connect(f"{self.warehouse}/catalog.db") as database:
            database.executemany(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
                "iceberg_type) VALUES ('local', 'fleet', ?, ?, 'TABLE')",
                zip(self.names, metadata, strict=True),
            )
        for name in self.names[:DUE]:
            self._link(f"{self.warehouse}/fleet/{name}", f"{self._copy}/fleet/{name}")
        shutil.copy(f"{self.warehouse}/catalog.db", self._copy)
        configuration = (
            f"catalog:\n  local:\n    type: sql\n    uri: {uri}\n    warehouse: file://{self.warehouse}\n"
        )
        Path(f"{self.root}/.pyiceberg.yaml").write_text(configuration)
        tables = {name: {} for name in self.names}
        document = {"version": 2, "warehouse": "local", "namespaces": {"fleet": {"tables": tables}}}
        Path(self.peer_tables).write_text(json.dumps(document))
        Path(self.policy).write_text(POLICY)
        os.environ["PYICEBERG_HOME"] = self.root

    def due_again(self) -> None:
        """Have the tables that are maintained as they were made, with nothing cached of any."""
        for name in self.names[:DUE]:
            shutil.rmtree(f"{self.warehouse}/fleet/{name}")
            self._link(f"{self._copy}/fleet/{name}", f"{self.warehouse}/fleet/{name}")
        shutil.copy(f"{self._copy}/catalog.db", self.warehouse)
        uncached()

    def left(self, _: Run) -> Hashable:
        """The files that maintenance left, but for metadata.json, whose names differ."""
        folders = (Path(f"{self.warehouse}/fleet/{name}") for name in self.names[:DUE])
        return frozenset(str(file) for each in folders for file in each.rglob("*.[ap][va]*"))

    @staticmethod
    def _link(source: str, target: str) -> None:
        subprocess.run(["cp", "-al", source, target], check=True)


def uncached() -> None:
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def program_of(peer: str) -> str:
    """A peer's command, in an environment of its own that is made here where it is not there."""
    requirement = PEERS[peer]
    folder = CACHE / "peers" / requirement.replace("==", "-")
    if not (folder / "bin" / peer).exists():
        print(f"installing {requirement}", file=sys.stderr)
        subprocess.run([PYTHON, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "-q", requirement], check=True)
    return str(folder / "bin" / peer)


def peers_of(fleet: Fleet) -> dict[str, tuple[Work, Callable[[], object]]]:
    """By name, a look of each peer at the whole fleet, and one at a table, which compiles and probes what it needs."""
    zamboni, iceops = map(program_of, PEERS)
    health = [zamboni, "health", "--local-warehouse", fleet.warehouse]
    scan = [iceops, "scan", "--catalog", "local", "--json", "--pattern"]
    # A peer has its own bytecode, as it was installed, and keeps what it caches.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["XDG_CACHE_HOME"] = f"{fleet.root}/peers"

    def look(command: list[str], last: str) -> Run:
        """iceops leaves with 1 where it finds something, and both where they fail."""
        found = run(command, env=env, codes=(0, 1))
        if last not in found.output.decode():
            raise RuntimeError(f"{shlex.join(command)} did not look at {last}: {found.stated[-2000:]}")
        return found

    first, last = (f"fleet.{name}" for name in (fleet.names[0], fleet.names[-1]))
    return {
        HEALTH: (
            partial(look, [*health, "--table-config", fleet.peer_tables], last),
            partial(look, [*health, first], first),
        ),
        SCAN: (partial(look, [*scan, "*"], last), partial(look, [*scan, first], first)),
    }


def fleet_rows(bench: Bench) -> Iterator[Row]:
    """survey and maintain of many tables; the peers look at no more than `survey --quick` does."""
    fleet = Fleet(bench.root, TABLES[bench.size_name])
    fleet.make()
    peers = peers_of(fleet)
    quick, whole = (ours("survey", "local", "-q", *options) for options in (["--quick"], []))
    name = "survey --quick, nothing cached"
    for peer, (theirs, first) in peers.items():
        # A look of iceops takes minutes.
        pairs = 5 if peer == HEALTH else 1
        yield Row(name, peer, quick, theirs, uncached, first, processor_bar=1 / 5, pairs=pairs)
    theirs, _ = peers[HEALTH]
    yield Row("survey, nothing cached", HEALTH, whole, theirs, uncached, pairs=1)
    for name, mine in (("survey --quick", quick), ("survey", whole)):
        yield Row(
            f"{name}, nothing changed", HEALTH, mine, theirs, warm_up=mine, most_s=60, most_mb=1_000, pairs=1
        )  # fmt: skip
    names = [f"local.fleet.{name}" for name in fleet.names[:DUE]]
    alone = shlex.join([*OURS, "expire-snapshots", *EXPIRY, "--yes", "-q"])
    loop = ["bash", "-ec", f'for table in "$@"; do {alone} "$table"; done', "loop", *names]
    yield Row(
        f"maintain, {DUE} due tables", "loop of expire-snapshots",
        ours("maintain", "local.fleet.t00*", "--policy", fleet.policy, "--yes", "-q"), partial(run, loop),
        fleet.due_again, look=fleet.left, processor_bar=1 / 2, bar_sizes="SML", pairs=1,
    )  # fmt: skip

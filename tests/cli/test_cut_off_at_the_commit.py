"""The program is killed or cut off between its commit's request and the answer, then `resume`: nothing is lost.

The request takes its effect, or is gone; another writer's commit comes first, or builds upon ours; or the request
arrives when `resume` has settled the operation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, get_args

import pytest

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.testing.conformance.commits import load, properties_of, set_property
from iceberg_cli.testing.conformance.delta_logs import add_version, names_of
from tests.cli.lakes import catalog_table
from tests.cli.running import Ran, iceberg_cli
from tests.conformance.catalogs import VOUCHED
from tests.conformance.troubles import TroubledUploads
from tests.database_proxy import Proxy, through
from tests.delta import test_writers_on_s3 as delta_on_s3
from tests.iceberg.catalogs import test_filesystem_on_s3 as by_names_on_s3
from tests.iceberg.catalogs.test_rest import Lake, lake
from tests.paths import ROOT
from tests.s3_words import WORD, storage_of
from tests.servers import Versitygw

__all__ = ["lake"]

Way = Literal["killed", "cut off"]
Truth = Literal["came in", "gone", "another's first", "built upon", "late"]
HAPPENED: Final = ("came in", "built upon")


class Place(ABC):
    """A table, and a verb whose commit is met by a kill.

    Args:
        request: of the test.
        folder: of the test.
        stack: of what ends with the test.
        happens: whether the request takes effect.
        way: what befalls the program then.
    """

    truths: tuple[Truth, ...] = get_args(Truth)
    environment: Mapping[str, str] = {}
    program: subprocess.Popen[bytes]

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack, *, happens: bool, way: Way
    ) -> None:
        self.request, self.folder, self.stack = request, folder, stack
        self.happens, self.way = happens, way
        self.make()

    @abstractmethod
    def make(self) -> None:
        """The table, and what meets the commit."""

    @property
    @abstractmethod
    def command(self) -> Sequence[object]:
        """The verb on the table, by way of what meets its commit."""

    @property
    @abstractmethod
    def table(self) -> Sequence[object]:
        """The table, and what a command needs to open it by a way that is well."""

    @abstractmethod
    def add(self) -> None:
        """Another writer's commit."""

    @abstractmethod
    def check(self, *, added: int) -> None:
        """The verb's effect is there, once, and everything of the other writers."""

    def arrive(self) -> None:
        """What is late arrives."""
        raise AssertionError

    def carry_out(self) -> None:
        """Run the verb until what meets its commit has killed it, or let it notice that it was cut off."""
        if self.way == "cut off":
            with pytest.MonkeyPatch.context() as patches:
                for name, value in self.environment.items():
                    patches.setenv(name, value)
                ran = iceberg_cli(*self.command)
            assert ran.code == (0 if self.happens else CommitStateUnknown.exit_code), ran.out + ran.err
            return
        command = [sys.executable, "-m", "iceberg_cli", *map(str, self.command)]
        self.program = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = self.program.communicate(timeout=120)
        assert self.program.returncode == -signal.SIGKILL, output.decode()

    def meet(self) -> None:
        """What meets the commit calls this."""
        if self.way == "killed":
            self.program.kill()
            self.program.wait()

    def run(self, verb: str, *arguments: object) -> Ran:
        return iceberg_cli(verb, *self.table, *arguments)

    def check_files(self) -> None:
        """Where the table has real ones."""
        checked = self.run("inspect", "--check")
        assert checked.code == 0, checked.out + checked.err


class OnRest(Place):
    """Iceberg's reference server."""

    def make(self) -> None:
        self.lake: Lake = self.request.getfixturevalue("lake")
        self.lake.front.fates.append("lost after" if self.happens else "late")
        if self.happens:
            self.lake.front.later = self.meet
        else:
            self.lake.front.meanwhile.append(self.meet)
        self.older = [snapshot.snapshot_id for snapshot in self.lake.table.metadata.snapshots[:-1]]
        self.config = self.folder / "pyiceberg.yaml"
        self.config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {self.lake.front.uri}\n")

    @property
    def command(self) -> Sequence[object]:
        ids = [f"--snapshot-id={each}" for each in self.older]
        return ["expire-snapshots", *self.table, *ids, "--yes"]

    @property
    def table(self) -> Sequence[object]:
        return [f"prod.{self.lake.namespace}.inner.t", "--catalog-config", self.config]

    def add(self) -> None:
        self.lake.append()

    def arrive(self) -> None:
        self.lake.front.release()

    def check(self, *, added: int) -> None:
        table = self.lake.table
        assert not {*self.older} & {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        assert table.scan().to_arrow()["i"].sort().to_pylist() == sorted([0, 1, 2, *[1] * added])
        self.check_files()


class OnSql(Place):
    """A database by TCP."""

    database: str
    # A database takes back what a client did that is gone: nothing of it can be late.
    truths = ("came in", "gone", "another's first", "built upon")

    def make(self) -> None:
        uri = self.request.getfixturevalue(self.database)
        patches = self.stack.enter_context(pytest.MonkeyPatch.context())
        self.events = catalog_table(self.folder, patches, appends=3, uri=uri)
        self.older = self.events.snapshot_ids()[:-1]
        proxy = Proxy(uri, deliver=self.happens, meanwhile=self.meet)
        self.stack.callback(proxy.close)
        self.environment = {"PYICEBERG_CATALOG__LAKE__URI": through(proxy, uri)}

    @property
    def command(self) -> Sequence[object]:
        return ["expire-snapshots", *self.table, *(f"--snapshot-id={each}" for each in self.older), "--yes"]

    @property
    def table(self) -> Sequence[object]:
        return [self.events.name]

    def add(self) -> None:
        self.events.append(7)

    def check(self, *, added: int) -> None:
        assert not {*self.older} & {*self.events.snapshot_ids()}
        assert self.events.ids() == [0, 1, 2, *[7] * added]
        self.check_files()


class OnPostgreSql(OnSql):
    """PostgreSQL."""

    database = "postgres_database"


class OnMariaDb(OnSql):
    """MariaDB."""

    database = "mariadb_database"


class OnS3(Place):
    """versitygw, behind a front that meets the PUT of the next version."""

    version: str  # how its path ends

    def make(self) -> None:
        self.server: Versitygw = self.request.getfixturevalue("versitygw")
        self.front = self.stack.enter_context(TroubledUploads.before(self.server.endpoint))
        self.front.met = lambda path: path.endswith(self.version)
        self.front.fate = "error after" if self.happens else "late"
        self.front.meanwhile = self.meet
        self.location = self.make_table()

    @abstractmethod
    def make_table(self) -> str:
        """Make it; its location."""

    def options(self, endpoint: str) -> list[str]:
        options = {**self.server.options, "endpoint_url": endpoint}
        return [part for item in options.items() for part in ("--storage-option", "=".join(item))]

    @property
    def through(self) -> Sequence[object]:
        return [self.location, *self.options(self.front.endpoint), WORD]

    @property
    def table(self) -> Sequence[object]:
        return [self.location, *self.options(self.server.endpoint), WORD]

    def arrive(self) -> None:
        self.front.release()


class FileNames(OnS3):
    """An Iceberg table by file names."""

    version = "/v2.metadata.json"

    def make_table(self) -> str:
        return by_names_on_s3.a_table(self.server)

    @property
    def command(self) -> Sequence[object]:
        return ["expire-snapshots", *self.through, by_names_on_s3.ALONE, *by_names_on_s3.EXPIRE, "--yes"]

    @property
    def table(self) -> Sequence[object]:
        return [*super().table, by_names_on_s3.ALONE]

    @property
    def committer(self) -> ObjectStoreCommitter:
        return ObjectStoreCommitter(self.location, storage_of(self.server), VOUCHED)

    def add(self) -> None:
        set_property(self.committer, storage_of(self.server), "theirs")

    def check(self, *, added: int) -> None:
        storage = storage_of(self.server)
        assert [each.snapshot_id for each in load(storage, self.committer.current()).snapshots] == [4]
        assert properties_of(storage, self.committer) == ({"theirs": "yes"} if added else {})
        names = {path.rpartition("/")[2] for path in storage.paths(f"{self.location}/data")}
        assert names == {"keep.parquet", "two.parquet", "four.parquet"}


class DeltaLog(OnS3):
    """A Delta table, which gets a feature."""

    version = "/00000000000000000002.json"

    def make_table(self) -> str:
        return delta_on_s3.a_table(self.server, self.folder)

    @property
    def command(self) -> Sequence[object]:
        return ["upgrade-v3", *self.through, *delta_on_s3.UPGRADE, "--yes"]

    def add(self) -> None:
        add_version(DeltaLogCommitter(self.location, storage_of(self.server), VOUCHED), "theirs")

    def check(self, *, added: int) -> None:
        storage = storage_of(self.server)
        assert names_of(self.location, storage) == ["theirs"] * added
        upgrades = [
            version
            for version in range(2, 4 + added)
            if storage.stat_many([path := f"{self.location}/_delta_log/{version:020d}.json"]) != [None]
            and b"deletionVectors" in storage.read(path)
        ]
        assert len(upgrades) == 1


PLACES: dict[str, type[Place]] = {
    "REST": OnRest,
    "PostgreSQL": OnPostgreSql,
    "MariaDB": OnMariaDb,
    "file names on S3": FileNames,
    "Delta log on S3": DeltaLog,
}
CASES: list[tuple[str, Truth, Way]] = [
    (name, truth, way)
    for name, place in PLACES.items()
    for truth in place.truths
    for way in get_args(Way)
    if way == "killed" or truth != "built upon"  # who is cut off looks back, and goes on where it came in
]
ALWAYS = [("REST", "gone", "killed"), ("PostgreSQL", "came in", "killed"), ("MariaDB", "gone", "cut off")]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "truth", "way"),
    [
        pytest.param(*case, id=", ".join(case), marks=() if case in ALWAYS else pytest.mark.deep)
        for case in CASES
    ],
)
def test_whoever_resumes_it_ends_it_right(
    name: str, truth: Truth, way: Way, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        place = PLACES[name](request, tmp_path, stack, happens=truth in HAPPENED, way=way)
        place.carry_out()
        added = int(truth in ("another's first", "built upon"))
        if added:
            place.add()
        resumed = place.run("resume")
        assert resumed.code == 0, resumed.out + resumed.err
        if truth == "late":
            place.arrive()
        place.check(added=added)
        assert "No open operation" in place.run("resume", "--list").out

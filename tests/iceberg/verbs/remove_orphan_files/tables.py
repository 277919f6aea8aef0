"""Tables with files that nothing names: on a local disk, and in a simulated store of any scheme."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.ports import Planned
from iceberg_cli.plan.report import Report
from iceberg_cli.storage import FileInfo
from iceberg_cli.testing.crash.catalogs import SimCommitter
from iceberg_cli.testing.crash.parsed_once import ParsedOnce
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import Script, SimStorage, World, unseen
from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import DAY_MS, NOW_MS
from tests.cli.lakes import listing, listing_of_table
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import Hazard, entry

OLD_MS: Final = 40 * DAY_MS
VERB: Final = "remove-orphan-files"
JSON: Final = ("--format", "json")


def uuid_of(writer: object) -> str:
    """Of a writer's job, the same in each run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(writer)))


def name_of(writer: object, number: int = 0, ending: str = ".parquet") -> str:
    """The name that Spark gives a data file of a job."""
    return f"{number:05d}-{number}-{uuid_of(writer)}-00001{ending}"


LIVE, ORPHAN, SUBJECT = (name_of(each) for each in ("live", "orphan", "subject"))
"""A file of the table, one of nobody, and the one that a test is about."""


# -- on a disk -----------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class DiskTable(Hazard):
    """A table on a local disk, all of whose files are old."""

    name: str = ""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return Path(self.location)

    def put(self, *paths: str, age_ms: int = OLD_MS, data: bytes = b"ten bytes.") -> None:
        """Write files below the table's folder."""
        for path in paths:
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            make_old(file, age_ms)

    def with_live(self, *paths: str, **fields: Any) -> DiskTable:
        """Publish a version whose one snapshot reaches `LIVE` and these paths, beside an orphan; all old."""
        self.put(f"data/{LIVE}", f"data/{ORPHAN}")
        entries = [entry(ADDED, each) for each in (f"{self.location}/data/{LIVE}", *paths)]
        self.fields |= fields
        self.snapshot(1, self.manifest("m1", *entries))
        self.publish(main=1)
        self.age()
        return self

    def age(self) -> None:
        """Let every file below the folder be old."""
        for path in self.folder.rglob("*"):
            make_old(path)

    def document(self, name: str = "v1.metadata.json") -> dict[str, Any]:
        """Of a metadata file."""
        found: dict[str, Any] = json.loads((self.folder / "metadata" / name).read_text())
        return found

    def beside(self, name: str, *, age_ms: int = OLD_MS, **changed: Any) -> None:
        """Put another metadata file there: that of version 1 with some fields changed; None leaves one out."""
        document = {**self.document(), **{key.replace("_", "-"): value for key, value in changed.items()}}
        kept = {key: value for key, value in document.items() if value is not None}
        self.put(f"metadata/{name}", age_ms=age_ms, data=json.dumps(kept).encode())

    def run(self, *arguments: object) -> Ran:
        """What the verb says."""
        return iceberg_cli(VERB, self.name or self.location, "--yes", *JSON, *arguments)

    def dry(self, *arguments: object) -> dict[str, Any]:
        """The plan."""
        ran = iceberg_cli(VERB, self.name or self.location, "--dry-run", *JSON, *arguments)
        assert ran.code == 0, ran.out + ran.err
        return ran.json

    def removed(self, *arguments: object) -> set[str]:
        """What a run that succeeds deletes, by path below the table's folder."""
        before = set(listing(self.folder))
        ran = self.run(*arguments)
        assert ran.code == 0, ran.out + ran.err
        return before - set(listing(self.folder))

    def refused(self, *arguments: object, code: int = 11) -> str:
        """Why a run ends with an exit code; no file goes."""
        before = listing_of_table(self.folder)
        ran = self.run(*arguments)
        assert ran.code == code, ran.out + ran.err
        assert listing_of_table(self.folder) == before
        return f"{ran.json['message']} {ran.json['state']} {ran.json['next']}"


def make_old(path: Path, age_ms: int = OLD_MS) -> None:
    """Let a file be written so long ago, by the clock of the machine."""
    now_s = time_s()
    os.utime(path, (now_s - age_ms / 1_000,) * 2, follow_symlinks=False)


def time_s() -> float:
    """By the clock of the machine's disks."""
    import time

    return time.time()  # noqa: TID251 - files have the times of the machine


def kept_by(plan: Mapping[str, Any], rule: str) -> int:
    """How many files stay by a rule whose words have this text, as a plan says."""
    rows = [each["id"] for each in plan["verdicts"] if each["subject"] == "files" and rule in each["reason"]]
    return sum(int(text.partition(" ")[0]) for text in rows)


# -- in a store of any scheme --------------------------------------------------------------------------------------

_START: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


def _loosely(path: str) -> str:
    """A path without scheme and host, each of its slashes once."""
    return re.sub(r"/(\.?/)+", "/", _START.sub("", path))


class LooseStorage(SimStorage):
    """A store that finds a file by whatever scheme and host, as services do that have several names.

    Args:
        world: that has the files.
        hooks: what else happens, by the name of the call, right before it: `list` and `listed` (after its last file),
            `stat`, `delete`.
        lie: makes of what is listed in a folder what is said to be there.
    """

    def __init__(
        self,
        world: World,
        *,
        hooks: Mapping[str, Callable[[], object]] | None = None,
        lie: Callable[[list[FileInfo]], Sequence[FileInfo]] = list,
    ) -> None:
        super().__init__(world, Script())
        self.hooks = dict(hooks or {})
        self.lie = lie

    def _call(self, name: str) -> None:
        if (hook := self.hooks.pop(name, None)) is not None:
            hook()

    def _stored(self, path: str) -> str:
        key = self.canonical(path)
        if key in self.world.files:
            return key
        return next((each for each in self.world.files if _loosely(each) == _loosely(path)), key)

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        return super().read(self._stored(path), span)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        self._call("stat")
        return super().stat_many([self._stored(path) for path in paths], versions=versions)

    def list(self, folder: str) -> Iterator[FileInfo]:
        self._call("list")
        hooks, self.hooks = self.hooks, {}  # which are of others' calls
        found = list(super().list(folder))
        self.hooks = hooks
        yield from self.lie(found)
        self._call("listed")

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        self._call("delete")
        return super().delete(paths)


@dataclass(kw_only=True)
class OrphanProcess(Process):
    """A run of the verb on a table in a store.

    Args:
        allow_roots: see `IcebergTable`.
        committer_type: the catalog.
    """

    verb: str = VERB
    store: Any = None
    allow_roots: tuple[str, ...] = ()
    committer_type: Callable[[Any], Committer] = SimCommitter

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store is not None:
            self.storage = self.store
            self.table = self.open()

    def open(self) -> IcebergTable:
        self.committer = self.committer_type(self.storage)
        return IcebergTable(
            name="t",
            storage=self.storage,
            committer=self.committer,
            engine=ParsedOnce(self.storage),
            allow_roots=self.allow_roots,
            on_event=unseen,
        )

    def carry_out(self, planned: Planned) -> Report:
        """Carry out a plan that was made before."""
        return apply(planned, self.table, self.verbs[self.verb], self.runtime)


@dataclass(kw_only=True)
class StoreTable(Hazard):
    """A table in a simulated store, all of whose files are old but for those that a test makes young."""

    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.storage = LooseStorage(self.world)

    def put(self, *paths: str, age_ms: int = OLD_MS, data: bytes = b"ten bytes.") -> None:
        """Write files, by whole paths or such below the table's location."""
        for path in paths:
            key = path if path.startswith("/") or ":" in path else f"{self.location.rstrip('/')}/{path}"
            self.world.files[self.storage.canonical(key)] = data
            self.world.written_ms[self.storage.canonical(key)] = NOW_MS - age_ms

    def with_live(self, *paths: str, **fields: Any) -> StoreTable:
        """Publish a version whose one snapshot reaches `LIVE` and these paths, beside an orphan; all old."""
        self.put(f"data/{LIVE}", f"data/{ORPHAN}")
        place = self.location.rstrip("/")
        entries = [entry(ADDED, each) for each in (f"{place}/data/{LIVE}", *paths)]
        self.fields |= fields
        self.snapshot(1, self.manifest("m1", *entries))
        self.commit()
        return self

    def commit(self) -> None:
        """Publish the snapshots so far, and point to that; the last one is main's. Files without a time are old."""
        name = f"{len(self.world.files):05d}-{uuid_of(len(self.world.files))}.metadata.json"
        location = self.publish(main=self.snapshots[-1]["snapshot-id"], name=name)
        self.world.pointer = location
        for path in self.world.files:
            self.world.written_ms.setdefault(path, NOW_MS - OLD_MS)

    def process(self, *, allow_roots: tuple[str, ...] = (), **policy: Any) -> OrphanProcess:
        """A run; policies in their JSON form."""
        return OrphanProcess(world=self.world, store=self.storage, allow_roots=allow_roots, policy=policy)

    def removed(self, **policy: Any) -> set[str]:
        """What a run deletes, by path below the table's location, or whole."""
        before = set(self.world.files)
        self.process(**policy).run()
        return self.short(before - set(self.world.files))

    def short(self, paths: set[str]) -> set[str]:
        """Paths below the table's location without it, and without this tool's own."""
        place = f"{self.storage.canonical(self.location).rstrip('/')}/"
        return {path.removeprefix(place) for path in paths if "/_iceberg_cli/" not in path}

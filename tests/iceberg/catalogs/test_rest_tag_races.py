"""Tags that others make over REST while snapshots expire: seen ones stay, and no file of any of them is deleted."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tests.budget import FULL
from tests.cli.running import Ran, iceberg_cli
from tests.iceberg.catalogs.test_rest import Lake, lake
from tests.rest_servers import configuration_of
from tests.servers import BY_FSSPEC

__all__ = ["lake"]

_LONGEST_RUN_S = 0.6  # of an expiry, roughly: a tag comes at any moment of it
_KEPT = 4  # tags that are left standing, so that the table does not grow with the rounds


def files_of(table: Table, snapshot: Snapshot) -> set[str]:
    """Every file that a reader of the snapshot needs."""
    manifests = snapshot.manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    return {
        snapshot.manifest_list,
        *(manifest.manifest_path for manifest in manifests),
        *(entry.data_file.file_path for entry in entries),
    }


class Race:
    """Expiries of one table, round after round, against a client that makes tags."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.name = f"prod.{lake.namespace}.inner.t"
        self.config = folder / "pyiceberg.yaml"
        properties = {"uri": lake.front.uri, **lake.options, **lake.properties}
        self.config.write_text(configuration_of("prod", properties))
        self.tags: dict[str, int] = {}  # seen, or made while a run looked elsewhere, and still there
        self.met: Counter[str] = Counter()
        self.deleted = 0  # files of the table

    def run(self, verb: str, *arguments: str) -> Ran:
        return iceberg_cli(verb, self.name, *arguments, "--catalog-config", self.config)

    def play(self, number: int, draw: random.Random) -> None:
        """One round."""
        for _ in range(2):
            # So that each snapshot has files which go with it.
            self.lake.table.overwrite(pa.table({"i": [number]}))
        self.tag(f"seen-{number}", draw.choice(self.going()).snapshot_id)
        table = self.lake.table
        target = draw.choice(self.going())
        needed = files_of(table, target)
        unseen = f"unseen-{number}"
        before = self.files()
        with self.tagging(unseen, target.snapshot_id, draw) as acknowledged:
            ran = self.run(
                "expire-snapshots", "--older-than", "0s", "--retain-last", "1", "--yes", "--no-cache"
            )
        assert ran.code in (0, 12, 14), ran.out + ran.err
        self.deleted += len(before - self.files())
        refs = {name: ref.snapshot_id for name, ref in self.lake.table.metadata.refs.items()}
        assert self.tags.items() <= refs.items()
        if not acknowledged:
            self.met["refused by the catalog"] += 1
        elif unseen in refs:
            self.met["kept"] += 1
            self.tags[unseen] = refs[unseen]
        else:
            self.met["dropped by the catalog"] += 1
            assert ran.code == 14, ran.out + ran.err
            output = " ".join((ran.out + ran.err).split())
            assert f"{unseen}, made meanwhile, went with it: see " in output
            assert "--abandon` closes the operation; all files of the table stay" in output
            assert self.are_there(needed)
            assert self.run("resume").code == 14
        if ran.code == 14:
            assert acknowledged
            [operation_id] = re.findall(
                r"`resume TABLE (\S+) --abandon`", " ".join((ran.out + ran.err).split())
            )
            assert self.run("resume", operation_id, "--abandon").code == 0
        if acknowledged:
            assert self.are_there(needed)
        self.check_tags()

    def files(self) -> set[str]:
        """All that are in the table's folder."""
        storage = self.lake.storage
        return {*storage.paths(storage.canonical(self.lake.table.location()))}

    def are_there(self, files: Iterable[str]) -> bool:
        """Whether the storage has all of them."""
        storage = self.lake.storage
        return None not in storage.stat_many([storage.canonical(file) for file in files])

    def going(self) -> list[Snapshot]:
        """The snapshots that no ref holds."""
        metadata = self.lake.table.metadata
        held = {ref.snapshot_id for ref in metadata.refs.values()}
        return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]

    @contextmanager
    def tagging(self, name: str, snapshot_id: int, draw: random.Random) -> Iterator[list[str]]:
        """Make a tag while the run is under way; what the block gets has its name in the end if the catalog made it."""
        acknowledged: list[str] = []
        delay_s = draw.uniform(0, _LONGEST_RUN_S)

        def make(wait_s: float) -> None:
            time.sleep(wait_s)
            if self.tag(name, snapshot_id, seen=False):
                acknowledged.append(name)

        thread = threading.Thread(target=make, args=(delay_s,))
        match draw.choice(("at any moment", "beside the request", "before the request")):
            case "at any moment":
                thread.start()
            case "beside the request":
                thread = threading.Thread(target=make, args=(0.0,))
                self.lake.front.meanwhile.append(thread.start)
            case _:
                self.lake.front.meanwhile.append(lambda: make(0.0))
        yield acknowledged
        self.lake.front.meanwhile.clear()
        if thread.ident is not None:
            thread.join()

    def tag(self, name: str, snapshot_id: int, *, seen: bool = True) -> bool:
        """Make a tag by a client of its own; whether the catalog made it."""
        more = {**self.lake.options, **self.lake.properties, **BY_FSSPEC}
        table = RestCatalog("others", uri=self.lake.front.behind, **more).load_table(
            (self.lake.namespace, "inner", "t")
        )
        try:
            table.manage_snapshots().create_tag(snapshot_id, name).commit()
        except (RESTError, ValueError):  # the snapshot is gone
            return False
        if seen:
            self.tags[name] = snapshot_id
        return True

    def check_tags(self) -> None:
        """All that is needed to read them is there; then the oldest ones go."""
        table = self.lake.table
        for name, snapshot_id in self.tags.items():
            snapshot = table.snapshot_by_name(name)
            assert snapshot is not None
            assert snapshot.snapshot_id == snapshot_id
            assert self.are_there(files_of(table, snapshot))
        while len(self.tags) > _KEPT:
            oldest = next(iter(self.tags))
            del self.tags[oldest]
            self.lake.table.manage_snapshots().remove_tag(oldest).commit()


def play(race: Race, rounds: int) -> None:
    """So many rounds."""
    draw = random.Random(20)
    for number in range(rounds):
        race.play(number, draw)
    print(dict(race.met), f"{race.deleted} files were deleted")
    assert race.met.total() == rounds
    assert race.deleted > rounds


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(2, id="few"), pytest.param(1_000 if FULL else 200, marks=pytest.mark.deep, id="many")],
)
def test_a_seen_tag_stays_and_no_file_of_another_is_deleted(lake: Lake, tmp_path: Path, rounds: int) -> None:
    race = Race(lake, tmp_path)
    play(race, rounds)
    if rounds > 100:
        assert {*race.met} == {"kept", "dropped by the catalog", "refused by the catalog"}

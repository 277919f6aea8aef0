"""Each verb of Delta on Google Cloud Storage and on Azure, by the command line: delta-rs reads what it leaves.

The tables are Delta Spark's own, put there as they are: paths in a log are relative.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as PeerTable
from deltalake import QueryBuilder

from tests.cli.running import iceberg_cli
from tests.emulators import ObjectStore
from tests.fixtures.delta_tables import a_copy
from tests.paths import needs_fixtures
from tests.s3_words import WORD

pytestmark = needs_fixtures

MANY_DVS = "31-delta-spark-many-dvs/table"
LATE_TRACKING = "33-delta-spark-row-tracking-enabled-later/pending"
VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "expire-snapshots": (MANY_DVS, ("--retention", "0s", "--unsafe-allow-short-retention")),
    "merge-dvs": (MANY_DVS, ("--min-files", "2", "--dead-ratio", "0.01")),
    "rewrite-manifests": (MANY_DVS, ()),
    "upgrade-v3": (MANY_DVS, ("--feature", "rowTracking")),
    "assign-row-ids": (LATE_TRACKING, ()),
}
CASES = [(store, verb) for store in ("fake_gcs", "azurite") for verb in VERBS]
ALWAYS = [("fake_gcs", "expire-snapshots"), ("azurite", "merge-dvs")]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "verb"),
    [
        pytest.param(*case, id=" ".join(case), marks=() if case in ALWAYS else pytest.mark.deep)
        for case in CASES
    ],
)
def test_a_verb_leaves_what_it_leaves_on_a_disk_and_no_row_changes(
    name: str, verb: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: ObjectStore = request.getfixturevalue(name)
    fixture, options = VERBS[verb]
    local = a_copy(fixture, tmp_path / "local")
    location = uploaded(store, local)
    before = rows(local)
    in_store = [part for item in store.options.items() for part in ("--storage-option", "=".join(item))]
    refused = iceberg_cli(verb, location, *options, "--yes", "--format", "json", *in_store)
    assert (refused.code, WORD in refused.json["message"]) == (11, True)  # no emulator is known
    assert names(downloaded(store, location, tmp_path / "untouched")) == names(local)
    ran = iceberg_cli(verb, location, *options, "--yes", "--format", "json", WORD, *in_store)
    on_disk = iceberg_cli(verb, local, *options, "--yes", "--format", "json")
    assert (ran.code, on_disk.code) == (0, 0), (ran.out, ran.err, on_disk.out)
    assert ran.json["status"] == on_disk.json["status"] == "done"
    result = downloaded(store, location, tmp_path / "result")
    assert rows(result) == rows(local) == before
    assert versions(result) == versions(local)
    assert len(names(result)) == len(names(local))
    again = iceberg_cli(verb, location, *options, "--yes", "--format", "json", WORD, *in_store)
    assert again.json["status"] == "nothing_to_do"


def uploaded(store: ObjectStore, folder: Path) -> str:
    """Where a local table is in the store."""
    location = f"{store.new_folder()}/t"
    for name in names(folder):
        store.storage.put_if_absent(f"{location}/{name}", (folder / name).read_bytes())
    return location


def downloaded(store: ObjectStore, location: str, folder: Path) -> Path:
    """The table as local files; it must hold no record of an operation."""
    for path in store.storage.paths(location):
        name = path.removeprefix(f"{location}/")
        assert not name.startswith("_iceberg_cli/ops/")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(store.storage.read(path))
    return folder


def names(folder: Path) -> list[str]:
    """Of all files, without the checksums that Hadoop keeps beside local ones."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"]
    return sorted(str(path.relative_to(folder)) for path in found)


def versions(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.startswith("_delta_log/0") and name.endswith(".json")]


def rows(root: Path) -> list[dict[str, Any]]:
    """What delta-rs reads."""
    found = QueryBuilder().register("t", PeerTable(str(root))).execute("select * from t order by n")
    listed: list[dict[str, Any]] = pa.table(found.read_all()).to_pylist()
    return listed

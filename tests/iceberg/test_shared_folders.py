"""Two tables in one folder: a Delta table with Iceberg metadata beside it, and two Iceberg tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.errors import Refused
from iceberg_cli.plan.plan import Plan
from iceberg_cli.testing.delta_writer import NOW_MS, a_remove, an_add
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING
from tests.cli.lakes import AS_OF_MS, CatalogTable, catalog_table, listing, rows
from tests.cli.running import dry, iceberg_cli
from tests.delta_opened import Operator, a_log
from tests.hazard_tables import Hazard, entry, expire, removed

DAY_MS = 86_400_000
OLD_MS = NOW_MS - 20 * DAY_MS
EVERYTHING = ("--older-than", "0s", "--retain-last", "1")


# -- the Iceberg half of a Delta table -------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    """A catalog's table whose first rows were overwritten."""
    table = catalog_table(tmp_path, monkeypatch)
    table.append(1)
    table.open().delete("id = 1")
    table.append(2)
    table.append(3)
    return table


WRITING = [
    ("expire-snapshots", *EVERYTHING),
    ("rewrite-manifests",),
    ("upgrade-v3",),
]


def test_no_verb_writes_to_a_catalogs_table_once_a_delta_table_has_its_files(events: CatalogTable) -> None:
    write_deltalake(events.folder, rows(7))
    log = f"{events.folder}/_delta_log"
    before = set(listing(events.folder))
    for verb, *options in WRITING:
        shown = iceberg_cli(verb, events.name, *options, "--dry-run", "--format", "json").json
        assert [log in reason for reason in shown["blocked_by"]] == [True], verb
        ran = iceberg_cli(verb, events.name, *options, "--yes")
        assert ran.code == 11, verb
        assert log in ran.err
    check = iceberg_cli("upgrade-v3", events.name, "--check", "--format", "json")
    blocking = [each["message"] for each in check.json["findings"] if each["severity"] == "blocking"]
    assert (check.code, [log in reason for reason in blocking]) == (11, [True])
    assert dry(events.name, *EVERYTHING)["removals"]["count"] > 0
    assert set(listing(events.folder)) == before


@pytest.mark.parametrize("mark", ["delta-version", "delta.universalFormat.enabledFormats"])
def test_a_table_that_bears_deltas_mark_is_maintained_as_a_delta_table(
    events: CatalogTable, mark: str
) -> None:
    with events.open().transaction() as transaction:
        transaction.set_properties({mark: "iceberg"})
    ran = iceberg_cli("expire-snapshots", events.name, *EVERYTHING, "--yes")
    assert ran.code == 11
    assert f"{events.folder}/_delta_log" in ran.err
    assert len(events.snapshot_ids()) == 4


def test_a_delta_table_that_comes_after_the_plan_forbids_its_commit(
    events: CatalogTable, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    assert iceberg_cli("plan", events.name, "expire-snapshots", *EVERYTHING, "-o", saved).code == 0
    write_deltalake(events.folder, rows(7))
    ran = iceberg_cli("apply", saved, "--yes")
    assert ran.code == 11, ran.err
    assert len(events.snapshot_ids()) == 4


def test_a_delta_table_that_comes_after_the_commit_forbids_its_deletions(events: CatalogTable) -> None:
    ran = iceberg_cli("expire-snapshots", events.name, *EVERYTHING, "--yes", "--limit-deletes", "1")
    assert ran.code == 0, ran.err
    write_deltalake(events.folder, rows(7))
    before = set(listing(events.folder / "data"))
    ran = iceberg_cli("resume", events.name)
    assert ran.code == 11, ran.out + ran.err
    assert f"{events.folder}/_delta_log" in ran.out + ran.err
    assert set(listing(events.folder / "data")) == before


# -- two Iceberg tables ----------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Hazard:
    """A table whose older snapshot reaches `gone`; what another one needs cannot be told."""
    table = Hazard(location=str(tmp_path / "t"))
    live, gone = table.data("live", "gone")
    table.snapshot(9, table.manifest("m9", entry(ADDED, live), entry(ADDED, gone)))
    table.snapshot(1, table.manifest("m1", entry(EXISTING, live)), parent=9)
    table.publish(main=1, name="v2.metadata.json")
    return table


def put_metadata(table: Hazard, name: str, uuid: str | None, **others: Any) -> None:
    """Put a table's metadata beside that of a table."""
    document = json.loads(Path(f"{table.location}/metadata/v2.metadata.json").read_text())
    updated_ms = document["last-updated-ms"] - ("v2" not in name)
    document = {**others, **document, "table-uuid": uuid, "last-updated-ms": updated_ms}
    if uuid is None:
        del document["table-uuid"]
    table.storage.put_if_absent(f"{table.location}/metadata/{name}", json.dumps(document).encode())


OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize("padding", [0, 100_000], ids=["early", "late"])
def test_an_iceberg_table_beside_another_one_deletes_nothing(two: Hazard, padding: int) -> None:
    name = "v1.metadata.json"
    put_metadata(two, name, OTHER, unknown="x" * padding)
    plan = dry(two.location, "--as-of", AS_OF_MS)
    assert plan["removals"]["by_kind"]["data_file"]["count"] == 1
    (reason,) = plan["blocked_by"]
    assert OTHER in reason
    assert name in reason
    ran = expire(two)
    assert (ran.code, OTHER in ran.out + ran.err) == (11, True)
    assert expire(two, "--cleanup", "none").json["status"] == "done"


def test_a_tables_own_earlier_metadata_and_scraps_forbid_nothing(two: Hazard) -> None:
    own = json.loads(Path(f"{two.location}/metadata/v2.metadata.json").read_text())["table-uuid"]
    put_metadata(two, "v1.metadata.json", own)
    put_metadata(two, "v0.metadata.json", None)
    for name in ("v0", "v1"):
        os.utime(f"{two.location}/metadata/{name}.metadata.json", (1_000, 1_000))
    two.storage.put_if_absent(f"{two.location}/metadata/{OTHER}.metadata.json", b'{"format-ver')
    assert removed(two) == {"data/gone", "metadata/m9.avro", "metadata/snap-9.avro"}


# -- a Delta table with Iceberg metadata -----------------------------------------------------------------------


@pytest.fixture
def uniform(tmp_path: Path) -> Hazard:
    """A Delta table that removed `both` and `gone` long ago; an Iceberg table in its folder still reaches `both`."""
    table = Hazard(location=str(tmp_path / "t"))
    names = ["data/live", "data/both", "data/gone"]
    paths = table.data("live", "both", "gone")
    removes = [a_remove(path=name, deletionTimestamp=OLD_MS) for name in names[1:]]
    a_log(Path(table.location), [an_add(path=name) for name in names], removes, age_ms=20 * DAY_MS)
    table.snapshot(9, table.manifest("m9", *(entry(ADDED, path) for path in paths)))
    table.snapshot(1, table.manifest("m1", *(entry(EXISTING, f"file:{path}") for path in paths[:2])))
    age(table)
    return table


def age(table: Hazard) -> None:
    """Let every file be old."""
    for path in Path(table.location).rglob("*"):
        if "_delta_log" not in path.parts:
            os.utime(path, ns=(OLD_MS * 1_000_000,) * 2)


OPERATOR = Operator(VERB)


def planned(table: Hazard, **policy: Any) -> Plan:
    return OPERATOR.plan(f"{table.location}/_delta_log", **policy)


def going(table: Hazard, **policy: Any) -> set[str]:
    removals = planned(table, **policy).removals
    assert removals is not None
    return {path.removeprefix(f"{table.location}/") for path in removals.rows["path"].to_pylist()}


def publish(table: Hazard) -> None:
    """Put the Iceberg table's versions there: an older one that reaches all, and the newest."""
    snapshots = table.snapshots
    table.publish(main=1, name="v1.metadata.json")
    table.snapshots = snapshots[1:]
    table.publish(main=1, name="v2.metadata.json")
    older = Path(table.location) / "metadata/v1.metadata.json"
    document = json.loads(older.read_text())
    older.write_text(json.dumps({**document, "last-updated-ms": document["last-updated-ms"] - 1}))
    age(table)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_vacuum_keeps_what_iceberg_metadata_in_its_folder_reaches(uniform: Hazard, mode: str) -> None:
    assert {"data/both", "data/gone"} <= going(uniform, mode=mode)
    publish(uniform)
    assert going(uniform, mode=mode) == {"data/gone"}
    assert any("Iceberg table" in warning for warning in planned(uniform, mode=mode).warnings)


def test_a_vacuum_keeps_what_iceberg_metadata_reaches_that_came_after_the_plan(uniform: Hazard) -> None:
    table, made = OPERATOR.prepare(f"{uniform.location}/_delta_log")
    publish(uniform)
    before = set(listing(Path(uniform.location)))
    report = OPERATOR.apply(made, table)
    assert report.status == "done"
    assert before - set(listing(Path(uniform.location))) == {"data/gone"}


def test_a_vacuum_beside_iceberg_metadata_that_cannot_be_read_is_refused(uniform: Hazard) -> None:
    publish(uniform)
    Path(f"{uniform.location}/metadata/m1.avro").unlink()
    with pytest.raises(Refused, match=r"m1\.avro"):
        planned(uniform)
    ran = iceberg_cli("expire-snapshots", f"{uniform.location}/_delta_log", "--dry-run")
    assert ran.code == 11

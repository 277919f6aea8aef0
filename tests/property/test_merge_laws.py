"""Laws of merge-dvs on random tables: readers see the same before and after, and a second run finds nothing to do.

What readers see is `tests.scan_planning`, which shares no code with the program.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.rules import TARGET_PROPERTY
from iceberg_cli.storage.local import LocalStorage
from tests.budget import deep_unless
from tests.cli.running import iceberg_cli
from tests.delete_tables import DeleteTable
from tests.scan_planning import entries_of, is_vector, view

STORAGE = LocalStorage()
PARTITIONS = (None, "x", "y", "null")


def random_table(folder: Path, seed: int, **values: Any) -> DeleteTable:
    """Data files come and go; deletes of all kinds are added, carelessly: they overlap and name what is gone."""
    rng = random.Random(seed)
    table = DeleteTable(storage=STORAGE, location=str(folder), **values)
    partition: dict[str, str | None] = {}
    live: list[str] = []
    vectors: dict[str, set[int]] = {}
    deleted: dict[str, set[int]] = {}
    names = iter(range(10_000))

    def some(name: str) -> set[int]:
        return {rng.randrange(-0, RECORDS[name] + rng.choice([0, 0, 0, 2])) for _ in range(rng.randint(1, 5))}

    for snapshot_id in range(1, rng.randint(4, 10)):
        for _ in range(rng.randint(1, 3) if snapshot_id > 1 else 4):
            name = f"f{next(names)}"
            partition[name] = rng.choice(PARTITIONS)
            RECORDS[name] = rng.choice([3, 20, 70_000])
            table.data(name, RECORDS[name], k=partition[name])
            live.append(name)
        if rng.random() < 0.7:
            k = rng.choice(PARTITIONS)
            named = [name for name in partition if partition[name] == k or rng.random() < 0.05]
            # Writers of version 2 wrote these; only such files come before a deletion vector of the same data file.
            chosen = [n for n in named if (n not in vectors or rng.random() < 0.1) and rng.random() < 0.6]
            if chosen:
                rows = {name: some(name) for name in chosen}
                stated = {}
                if rng.random() < (0.6 if len(rows) == 1 else 0.4):
                    stated = {"referenced_data_file": table.path(rng.choice(chosen))}
                table.positions(f"p{next(names)}", rows, k=k, **stated)
                for name, positions in rows.items():
                    deleted.setdefault(name, set()).update(positions)
        for k in PARTITIONS if table.format_version > 2 else ():
            mine = [n for n in live if partition[n] == k and rng.random() < 0.35]
            if mine:
                rows = {}
                for name in mine:
                    older = deleted.get(name, set()) if rng.random() < 0.9 else set()
                    # Now and then a careless writer's vector goes behind the end of its data file.
                    end = RECORDS[name] + (2 if rng.random() < 0.05 else 0)
                    inside = {p for p in older | some(name) if p < end}
                    rows[name] = vectors.get(name, set()) | inside or {0}
                    vectors[name] = rows[name]
                table.vectors(f"v{next(names)}", rows, k=k)
        if rng.random() < 0.3:
            table.equality(f"e{next(names)}", k=rng.choice(PARTITIONS))
        if rng.random() < 0.4 and len(live) > 2:
            gone = live.pop(rng.randrange(len(live)))
            table.remove(gone, vectors=rng.random() < 0.7)
        table.commit(snapshot_id)
    table.publish()
    return table


RECORDS: dict[str, int] = {}


def metadata_of(folder: Path) -> dict[str, Any]:
    newest = max(folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    document: dict[str, Any] = json.loads(newest.read_text())
    return document


def check_summary(metadata: dict[str, Any]) -> None:
    """The totals of the last snapshot are what its manifests hold."""
    entries = entries_of(STORAGE.read, metadata)
    deletes = [entry for entry in entries if entry["content"]]
    size = sum(e["content_size_in_bytes"] if is_vector(e) else e["file_size_in_bytes"] for e in entries)
    found = {
        "total-delete-files": len(deletes),
        "total-position-deletes": sum(e["record_count"] for e in deletes if e["content"] == 1),
        "total-equality-deletes": sum(e["record_count"] for e in deletes if e["content"] == 2),
        "total-files-size": size,
    }
    summary = metadata["snapshots"][-1]["summary"]
    assert {name: summary[name] for name in found} == {name: str(number) for name, number in found.items()}


OPTIONS = (
    [],
    ["--min-files", "2"],
    ["--min-files", "1", "--dead-ratio", "0.01"],
    ["--min-files", "3"],
    ["--keep-dangling", "--min-files", "2"],
    ["--where", "k = 'x'", "--min-files", "2"],
    ["--where", "k IS NULL"],
)
# So small that one file is not enough: smaller than the command line takes.
PROPERTIES = {2: {TARGET_PROPERTY: "800"}, 3: {TARGET_PROPERTY: "1500"}}


@pytest.mark.parametrize("seed", deep_unless(range(2 * len(OPTIONS)), range(5 * len(OPTIONS))))
def test_readers_see_the_same_after_a_merge_and_a_second_one_finds_nothing(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "t"
    kind = seed % len(OPTIONS)
    random_table(folder, seed, properties=PROPERTIES.get(kind, {}))
    options = OPTIONS[kind]
    before = view(STORAGE.read, metadata_of(folder))

    ran = iceberg_cli("merge-dvs", folder, *options, "--yes", "--format", "json")

    assert ran.code == 0, ran.out + ran.err
    metadata = metadata_of(folder)
    assert view(STORAGE.read, metadata) == before
    if ran.json["status"] == "done":
        check_summary(metadata)
    again = iceberg_cli("merge-dvs", folder, *options, "--dry-run", "--exit-code", "--format", "json")
    assert again.code == 0, again.out
    assert not again.json["due"]


def dangling(entries: list[dict[str, Any]]) -> set[str]:
    """Position delete files of which no row names a live data file that is not newer, row by row."""
    data = [(e["file_path"], e["sequence_number"]) for e in entries if not e["content"]]
    found = set()
    for delete in entries:
        if delete["content"] == 1:
            names = pq.read_table(delete["file_path"])["file_path"].to_pylist()
            if not any(path in names and number <= delete["sequence_number"] for path, number in data):
                found.add(delete["file_path"])
    return found


def contradicting(entry: dict[str, Any]) -> bool:
    """Whether a row names another data file than the entry."""
    named = set(pq.read_table(entry["file_path"])["file_path"].to_pylist())
    return entry["referenced_data_file"] is not None and named != {entry["referenced_data_file"]}


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(6, 60))]
)
def test_below_version_3_position_deletes_go_that_no_live_data_file_needs_and_no_others(
    tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / "t"
    table = random_table(folder, seed, format_version=2)
    # A compaction of half of what is there, so that much dangles.
    live = {path for manifest in table.manifests for e in manifest.entries if e["status"] != 2
            for path in [e["file_path"]] if e["content"] == 0}  # fmt: skip
    table.remove(*[Path(path).stem for path in sorted(live)[::2]])
    table.commit(99)
    table.publish()
    before = view(STORAGE.read, metadata_of(folder))
    entries = entries_of(STORAGE.read, metadata_of(folder))
    due = dangling(entries) - {e["file_path"] for e in entries if e["content"] == 1 and contradicting(e)}

    ran = iceberg_cli("merge-dvs", folder, "--yes", "--format", "json")

    assert ran.code == 0, ran.out + ran.err
    metadata = metadata_of(folder)
    assert view(STORAGE.read, metadata) == before
    left = entries_of(STORAGE.read, metadata)
    assert {e["file_path"] for e in left} == {e["file_path"] for e in entries} - due
    assert ran.json["status"] == ("done" if due else "nothing_to_do")
    if due:
        check_summary(metadata)
    numbers = ("snapshot_id", "sequence_number", "file_sequence_number")
    kept = {e["file_path"]: [e[n] for n in numbers] for e in left}
    assert kept.items() <= {e["file_path"]: [e[n] for n in numbers] for e in entries}.items()

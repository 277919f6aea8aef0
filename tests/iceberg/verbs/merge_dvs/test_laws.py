"""Laws of merge-dvs on random tables: readers see the same before and after, and a second run finds nothing to do.

What readers see is `tests.scan_planning`, which shares no code with the program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.rules import TARGET_PROPERTY
from tests.budget import deep_unless
from tests.cli.lakes import metadata_of
from tests.cli.running import iceberg_cli
from tests.delete_tables import STORAGE, merge, random_table
from tests.scan_planning import entries_of

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


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", deep_unless(range(2 * len(OPTIONS)), range(5 * len(OPTIONS))))
def test_readers_see_the_same_after_a_merge_and_a_second_one_finds_nothing(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "t"
    kind = seed % len(OPTIONS)
    random_table(folder, seed, properties=PROPERTIES.get(kind, {}))
    options = OPTIONS[kind]

    merge(folder, *options)

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
    live = {entry["file_path"] for entry in table.live() if not entry["content"]}
    table.remove(*[Path(path).stem for path in sorted(live)[::2]])
    table.commit_and_publish(99)
    entries = entries_of(STORAGE.read, metadata_of(folder))
    due = dangling(entries) - {e["file_path"] for e in entries if e["content"] == 1 and contradicting(e)}

    report = merge(folder)

    left = entries_of(STORAGE.read, metadata_of(folder))
    assert {e["file_path"] for e in left} == {e["file_path"] for e in entries} - due
    assert report["status"] == ("done" if due else "nothing_to_do")
    numbers = ("snapshot_id", "sequence_number", "file_sequence_number")
    kept = {e["file_path"]: [e[n] for n in numbers] for e in left}
    assert kept.items() <= {e["file_path"]: [e[n] for n in numbers] for e in entries}.items()

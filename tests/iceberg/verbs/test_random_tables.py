"""Random Iceberg tables, every verb in any order, another writer in between: a referee reads the rows of each snapshot.

The referee shares no code with the package (`tests.referee.iceberg`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.budget import few_or_many
from tests.cli.running import iceberg_cli
from tests.paths import besides_history
from tests.referee.iceberg import Row, Table, entries_of, manifests_of, rows_of

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000  # the program refuses a time in the future
WRITES = ("append", "append", "delete", "delete", "compact", "branch", "tag", "audit", "evolve")
NEEDS_V3 = ("merge-dvs", "assign-row-ids")
REFUSED = 11
# What finds something to do, by format version: games in which a verb never does prove nothing about it.
WORK = {
    1: {"expire-snapshots", "rewrite-manifests", "upgrade-v3", "assign-row-ids"},
    2: {"expire-snapshots", "rewrite-manifests", "upgrade-v3", "assign-row-ids", "merge-dvs"},
    3: {"expire-snapshots", "rewrite-manifests", "merge-dvs"},
}


class Game:
    """One table, what its refs hold, and the verbs."""

    def __init__(self, folder: Path, *, version: int, seed: int) -> None:
        self.table = Table(folder, version=version, seed=seed, now_ms=NOW_MS)
        self.draw = self.table.draw
        self.rows: dict[str, dict[int, Row]] = {}  # by ref
        self.worked: set[str] = set()
        self.table.append()
        for _ in range(7):
            self.write()

    def write(self) -> None:
        """One thing that another writer does."""
        match self.draw.choice(WRITES):
            case "branch":
                self.table.branch("audit", kind="branch")
            case "tag":
                self.table.branch(f"t{self.draw.randrange(3)}", kind="tag")
            case "audit" if "audit" in self.table.document["refs"]:
                self.draw.choice([self.table.append, self.table.delete])("audit")
            case "append" | "audit":
                self.table.append()
            case "delete":
                self.table.delete()
            case "compact":
                self.table.compact()
            case "evolve":
                self.table.evolve()
        self.rows = self.read()

    def read(self) -> dict[str, dict[int, Row]]:
        """The rows of every ref."""
        document = self.table.document
        by_id = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
        return {name: rows_of(by_id[ref["snapshot-id"]]) for name, ref in document["refs"].items()}

    def verb(self, verb: str) -> None:
        """Run a verb with drawn options; what readers see stays."""
        before, number = self.table.document, self.table.number
        arguments, cutoff_ms, minimum = self._arguments(verb)
        ran = iceberg_cli(verb, self.table.folder, "--yes", "--no-cache", "-q", "--as-of", NOW_MS, *arguments)
        print(f"{verb} {' '.join(map(str, arguments))}: {ran.code}")
        if before["format-version"] < 3 and verb in NEEDS_V3 and ran.code == REFUSED:
            assert self.table.number == number
            return
        assert ran.code == 0, ran.err
        if self.table.number > number:
            self.worked.add(verb)
        if verb == "expire-snapshots":
            kept = expected_snapshots(before, cutoff_ms=cutoff_ms, minimum=minimum)
            assert {s["snapshot-id"] for s in self.table.document["snapshots"]} == kept
            assert self.files() == self.reached()
        self.check()

    def _arguments(self, verb: str) -> tuple[list[object], int, int]:
        match verb:
            case "expire-snapshots":
                age_ms, minimum = self.draw.randrange(30 * DAY_MS), self.draw.randint(1, 4)
                cutoff_ms = NOW_MS - age_ms
                return ["--older-than", cutoff_ms, "--retain-last", minimum], cutoff_ms, minimum
            case "rewrite-manifests":
                return [*self.draw.choice([[], ["--target-size", "6KiB"], ["--min-manifests", "2"]])], 0, 0
            case "merge-dvs":
                return ["--min-files", self.draw.choice([1, 2])], 0, 0
            case "upgrade-v3":
                return [*self.draw.choice([[], ["--with", "merge-dvs,assign-row-ids"]])], 0, 0
            case _:
                return [], 0, 0

    def check(self) -> None:
        """Every ref has the rows that it had, and their ids where they had some; every snapshot can be read."""
        found = self.read()
        for name, rows in self.rows.items():
            assert {key: row[:2] for key, row in found[name].items()} == {
                key: row[:2] for key, row in rows.items()
            }
            for key, row in rows.items():
                if row.row_id is not None:
                    assert found[name][key] == row, f"row {key} of {name}"
            ids = [row.row_id for row in found[name].values() if row.row_id is not None]
            assert len(set(ids)) == len(ids)
            assert all(row_id < self.table.document["next-row-id"] for row_id in ids)
        self.rows = found
        for snapshot in self.table.document["snapshots"]:
            rows_of(snapshot)
        assert self.reached() <= self.files()
        ran = iceberg_cli("inspect", self.table.folder, "--check", "--format", "json")
        findings = [each for each in ran.json["findings"] if each["severity"] == "error"]
        assert (ran.code, findings) == (0, []), findings

    def reached(self) -> set[str]:
        """Every file that the table needs."""
        document = self.table.document
        found = {str(self.table.folder / "metadata" / "version-hint.text")}
        found |= {entry["metadata-file"] for entry in document["metadata-log"]}
        found.add(str(self.table.folder / "metadata" / f"v{self.table.number}.metadata.json"))
        for snapshot in document["snapshots"]:
            found.add(snapshot["manifest-list"])
            for manifest in manifests_of(snapshot):
                found |= {manifest["manifest_path"], *(entry["file_path"] for entry in entries_of(manifest))}
        return found

    def files(self) -> set[str]:
        """Every file that is there."""
        return besides_history(str(path) for path in self.table.folder.rglob("*") if path.is_file())


def expected_snapshots(document: Mapping[str, Any], *, cutoff_ms: int, minimum: int) -> set[int]:
    """The snapshots that stay where no ref has a retention of its own. Spec: "Snapshot Retention Policy"."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
    kept: set[int] = set()
    on_refs: set[int] = set()
    for ref in document["refs"].values():
        walk, walking, count = ref["snapshot-id"], True, 0
        while walk in by_id:
            on_refs.add(walk)
            walking = walking and (count < minimum or by_id[walk]["timestamp-ms"] >= cutoff_ms)
            if walking or count == 0:
                kept.add(walk)
            if ref["type"] == "tag":
                break
            walk, count = by_id[walk].get("parent-snapshot-id"), count + 1
    return kept | {key for key, s in by_id.items() if key not in on_refs and s["timestamp-ms"] >= cutoff_ms}


@pytest.mark.few(2)
@few_or_many(1, many=8, all_of=200)  # with fewer not every verb finds work
@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_row_ids_and_kept_snapshots_stay_whatever_verbs_do(
    tmp_path: Path, version: int, budget: int
) -> None:
    worked: set[str] = set()
    for seed in range(budget):
        print(f"version {version}, seed {seed}")
        game = Game(tmp_path / f"{seed}" / "table", version=version, seed=1000 * version + seed)
        verbs = ["expire-snapshots", "rewrite-manifests", "merge-dvs", "assign-row-ids", "rewrite-manifests"]
        verbs += ["upgrade-v3"] if version < 3 else ["merge-dvs"]
        game.draw.shuffle(verbs)
        for verb in [*verbs, "assign-row-ids", "merge-dvs", "expire-snapshots"]:
            if game.draw.random() < 0.5:
                game.write()
            game.verb(verb)
        worked |= game.worked
    if budget > 1:
        assert worked >= WORK[version]

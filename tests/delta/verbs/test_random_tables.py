"""Random Delta tables, every verb in any order, another writer in between: a referee reads the rows of each version.

The referee shares no code with the package (`tests.referee.delta`).
"""

from __future__ import annotations

from pathlib import Path

from tests.budget import few_or_many
from tests.cli.running import iceberg_cli
from tests.referee.delta import DAY_MS, Row, Table

NOW_MS = 1_790_000_000_000  # the program refuses a time in the future
REFUSED = 11
VERBS = {"expire-snapshots", "rewrite-manifests", "merge-dvs", "upgrade-v3", "assign-row-ids"}


class Game:
    """One table, what each version of it says, and the verbs."""

    def __init__(self, root: Path, *, seed: int) -> None:
        self.table = Table(root, seed=seed, now_ms=NOW_MS)
        self.draw, self.log = self.table.draw, self.table.log
        self.rows: dict[int, dict[int, Row]] = {}  # by version, as it was when it was written
        self.times_ms: dict[int, int] = {}
        self.kept_from_ms = 0  # what old versions name may be gone since a vacuum up to then
        self.log_from_ms = 0
        self.worked: set[str] = set()
        self.table.append()
        for _ in range(9):
            self.write()

    def write(self) -> None:
        """One thing that another writer does."""
        self.draw.choice(self.table.deeds)()
        self.note()

    def note(self) -> None:
        """Remember what the versions say that are new."""
        for version in self.log.versions():
            if version not in self.rows:
                self.rows[version] = self.log.rows(self.log.states(version)[0])
        self.times_ms |= self.log.times_ms()

    def verb(self, verb: str) -> None:
        """Run a verb with drawn options; what readers see stays."""
        newest, files = self.table.newest, self.files()
        arguments: list[object] = []
        match verb:
            case "expire-snapshots":
                days = self.draw.randint(2, 20)
                log_days = self.draw.randint(max(days, 4), 30)
                mode = self.draw.choice(["full", "full", "lite"])
                arguments = ["--retention", f"{days}d", "--log-retention", f"{log_days}d", "--mode", mode]
                self.kept_from_ms = max(self.kept_from_ms, NOW_MS - days * DAY_MS)
                self.log_from_ms = max(self.log_from_ms, (NOW_MS - log_days * DAY_MS) // DAY_MS * DAY_MS)
            case "rewrite-manifests":
                arguments = [
                    *self.draw.choice(
                        [["--checkpoint", "classic"], ["--checkpoint", "v2", "--part-size", "3"]]
                    )
                ]
            case "merge-dvs":
                arguments = ["--min-files", "2"]
            case "assign-row-ids":
                arguments = ["--batch-size", "2"]
            case "upgrade-v3":
                arguments = [
                    *self.draw.choice([[], ["--feature", "rowTracking"], ["--feature", "inCommitTimestamp"]])
                ]
        ran = iceberg_cli(verb, self.table.root, "--yes", "-q", "--as-of", NOW_MS, *arguments)
        print(f"{verb} {' '.join(map(str, arguments))}: {ran.code}")
        if (
            "lite" in arguments and "no VACUUM left a record" in ran.err
        ):  # what it would miss is gone from the log
            assert (ran.code, self.table.newest, self.files()) == (REFUSED, newest, files)
            return
        assert ran.code == 0, ran.err
        if self.table.newest > newest or self.files() != files:
            self.worked.add(verb)
        if verb == "expire-snapshots" and "full" in arguments:
            assert not self.old_orphans()
        self.check(newest)

    def files(self) -> set[Path]:
        """Every file that is there."""
        return {path for path in self.table.root.rglob("*") if path.is_file()}

    def old_orphans(self) -> list[Path]:
        """Files that nobody ever named and that were written before every cut-off."""
        return [
            path
            for path in self.table.root.glob("orphan-*")
            if path.stat().st_mtime_ns // 1_000_000 < self.kept_from_ms
        ]

    def check(self, newest: int) -> None:
        """Versions that are promised have their rows, from each checkpoint alike; ours have those of the one before."""
        versions = self.log.versions()
        assert versions == list(range(versions[0], versions[-1] + 1))
        assert versions[-1] >= newest
        for version in range(max(self.rows) + 1):
            gone_ms = self.times_ms.get(version + 1)  # when the next version took its place
            states = self.log.states(version)
            if version == newest or (
                gone_ms is not None and gone_ms >= max(self.log_from_ms, self.kept_from_ms)
            ):
                assert states, f"version {version} cannot be read any more"
                for state in states:
                    assert self.log.rows(state) == self.rows[version], f"version {version}"
        for version in range(newest + 1, versions[-1] + 1):
            before, now = self.rows[version - 1], self.log.rows(self.log.states(version)[0])
            assert {key: row[:2] for key, row in now.items()} == {key: row[:2] for key, row in before.items()}
            for key, row in before.items():
                assert row.row_id is None or now[key] == row, f"row {key} of version {version}"
            self.rows[version] = now
        self.note()
        found = self.rows[versions[-1]]
        ids = [row.row_id for row in found.values() if row.row_id is not None]
        assert len(set(ids)) == len(ids)
        ran = iceberg_cli("inspect", self.table.root, "--check", "--deep", "--format", "json")
        findings = [each for each in ran.json["findings"] if each["severity"] == "error"]
        assert (ran.code, findings) == (0, []), findings


@few_or_many(1, many=8, all_of=400)
def test_rows_row_ids_and_promised_versions_stay_whatever_verbs_do(tmp_path: Path, budget: int) -> None:
    worked: set[str] = set()
    for seed in range(budget):
        print(f"seed {seed}")
        game = Game(tmp_path / f"{seed}" / "table", seed=seed)
        verbs = [*VERBS, "rewrite-manifests", "expire-snapshots"]
        verbs.sort()
        game.draw.shuffle(verbs)
        for verb in verbs:
            if game.draw.random() < 0.6:
                game.write()
            game.verb(verb)
        worked |= game.worked
    if budget > 2:
        assert worked == VERBS

"""A table with files that nothing names, all of them old, and what a run takes of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import listing
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import Hazard, entry
from tests.paths import besides_history

DAY_S = 86_400
OLD_S = 1_767_225_600.0  # the first moment of 2026
UUID = "550e8400-e29b-41d4-a716-446655440000"
ORPHANS = ("data/nobody.parquet", f"data/k=1/00000-1-{UUID}-00001.parquet", "metadata/nobody-m0.avro")


class Lake(Hazard):
    """A table on a local disk, whose files are old unless a test says otherwise."""

    @property
    def folder(self) -> Path:
        return Path(self.location)

    def plant(self, *names: str, data: bytes = b"nobody") -> None:
        """Files that nothing names, below the table's folder."""
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def age(self, *names: str, seconds: float = OLD_S) -> None:
        """Have some files, or all of the folder, as if last written then."""
        paths: Iterable[Path] = [self.folder / name for name in names] if names else self.folder.rglob("*")
        for path in paths:
            if not path.is_dir() and not path.is_symlink():
                os.utime(path, (seconds, seconds))

    def run(self, *options: object, yes: bool = True) -> Ran:
        words = ("--yes",) if yes else ("--dry-run",)
        return iceberg_cli("remove-orphan-files", self.location, *words, "--format", "json", *options)

    def gone(self, *options: object) -> set[str]:
        """What a successful run deletes, by path below the table's folder."""
        before = files_of(self.folder)
        ran = self.run(*options)
        assert ran.code == 0, ran.out + ran.err
        return before - files_of(self.folder)

    def refused(self, *options: object, code: int) -> str:
        """Why a run leaves with this exit code, which deletes nothing."""
        before = files_of(self.folder)
        ran = self.run(*options)
        assert ran.code == code, ran.out + ran.err
        assert files_of(self.folder) == before
        return str(ran.json["message"]) if ran.json and "message" in ran.json else ran.err

    def kept(self, *options: object) -> dict[str, int]:
        """How many files each rule keeps, by its words."""
        plan = self.run(*options, yes=False).json
        return {each["reason"]: int(each["id"].split()[0]) for each in plan["verdicts"] if each["keep"]}


def files_of(folder: Path) -> set[str]:
    return besides_history(listing(folder))


def a_lake(tmp_path: Path, **values: Any) -> Lake:
    """The table, not published yet."""
    return Lake(location=str(tmp_path / "lake" / "events"), **values)


def published(lake: Lake, *paths: str, name: str = "v1.metadata.json", **refs: Any) -> Lake:
    """The table with one snapshot of files of these paths, with the orphans, all of them old."""
    lake.snapshot(1, lake.manifest("m1", *(entry(ADDED, path) for path in paths)))
    lake.publish(main=1, name=name, **refs)
    lake.plant(*ORPHANS)
    lake.age()
    return lake

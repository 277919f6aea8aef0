"""A catalog of a package, in one folder, as a stranger would write it: a JSON file with a location for each name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests import installed

SOURCE: Final = """
import fcntl
import json
import os
from pathlib import Path

from iceberg_cli.errors import TableNotFound
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Pointer
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.storage.router import open_storage


class PaperCatalog(Catalog):
    def _read(self):
        return json.loads(Path(self.properties["file"]).read_text())

    def open(self, levels, table, storage_options):
        options = {**self.properties, **storage_options}
        name = ".".join((*levels, table))
        return PaperCommitter(self.properties["file"], name, open_storage(options)), options

    def list(self, may_match):
        for name in self._read():
            *levels, table = name.split(".")
            if may_match(tuple(levels)):
                yield CatalogEntry(tuple(levels), table)

    def pointer(self, levels, table):
        location = self._read().get(".".join((*levels, table)))
        return None if location is None else Pointer(location)

    def place(self):
        return {"file": os.path.realpath(self.properties["file"])}

    def duplicates(self):
        return {}


class PaperCommitter(SwapCommitter):
    def __init__(self, file, name, storage):
        super().__init__(storage)
        self._file, self._name = file, name

    def takes_late_requests(self):
        return False

    def hidden_snapshots_reason(self):
        return None

    def prove(self, path, properties):
        pass

    def current(self):
        location = json.loads(Path(self._file).read_text()).get(self._name)
        if location is None:
            raise TableNotFound(f"Cannot find {self._name} in {self._file}.")
        return location

    def _swap(self, attempt):
        with open(f"{self._file}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.current() != attempt.base:
                return False
            locations = json.loads(Path(self._file).read_text())
            Path(f"{self._file}.new").write_text(json.dumps({**locations, self._name: attempt.file}))
            os.replace(f"{self._file}.new", self._file)
            return True
"""


def install(
    site: Path, patch: pytest.MonkeyPatch, *, source: str = SOURCE, value: str = "paper_catalog:PaperCatalog"
) -> None:
    """Put the package `paper_catalog`, with an entry point for the type `paper`, on the path: one folder."""
    installed.install(
        site, patch, "paper_catalog", group="iceberg_cli.committers", entry=f"paper = {value}", source=source
    )

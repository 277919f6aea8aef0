"""A catalog of a package: one folder with an entry point, and it is opened, committed to, listed and maintained."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.catalogs import Catalog, Committer
from iceberg_cli.iceberg.catalogs.registry import BUILT_IN, GROUP, Catalogs, open_catalog_table
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.catalogs import CatalogConformance, CatalogUnderTest
from iceberg_cli.testing.conformance.commits import first_metadata
from iceberg_cli.testing.conformance.listings import ListedCatalog, ListingConformance, Name
from iceberg_cli.testing.conformance.rewriting import RewritingConformance
from tests.cli.lakes import CatalogTable, catalog_table
from tests.cli.running import JSON
from tests.cli.running import iceberg_cli as run
from tests.fleet.maintaining import maintain, runs_of
from tests.iceberg.catalogs.plugged import SOURCE, install

NAME = "paper.shop.events"
OLD = ("--older-than", "0s", "--retain-last", "1")


@dataclass(frozen=True)
class Paper:
    """A table whose name is in the JSON file of the catalog `paper`."""

    file: Path
    table: CatalogTable

    @property
    def location(self) -> str:
        """Where the catalog points."""
        found: str = json.loads(self.file.read_text())["shop.events"]
        return found


def configure(patch: pytest.MonkeyPatch, file: Path, name: str = "PAPER") -> None:
    patch.setenv(f"PYICEBERG_CATALOG__{name}__TYPE", "paper")
    patch.setenv(f"PYICEBERG_CATALOG__{name}__FILE", str(file))


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paper:
    install(tmp_path / "site", monkeypatch)
    (tmp_path / "lake").mkdir()
    table = catalog_table(tmp_path / "lake", monkeypatch, appends=3)
    for name in ("TYPE", "URI"):
        monkeypatch.delenv(f"PYICEBERG_CATALOG__LAKE__{name}")
    file = tmp_path / "paper.json"
    file.write_text(json.dumps({"shop.events": table.open().metadata_location}))
    configure(monkeypatch, file)
    return Paper(file, table)


def snapshots(paper: Paper) -> int:
    return len(json.loads(Path(paper.location.removeprefix("file://")).read_bytes())["snapshots"])


def test_its_table_is_opened_and_committed_to(paper: Paper) -> None:
    assert run("inspect", NAME, *JSON).json["metadata_location"] == paper.location
    before = paper.location
    ran = run("expire-snapshots", NAME, *OLD, "--yes", *JSON)
    assert (ran.code, ran.json["status"]) == (0, "done")
    assert paper.location != before
    assert snapshots(paper) == 1


def test_it_is_listed(paper: Paper) -> None:
    for patterns in (("paper",), ("paper.shop.*",), ()):
        [row] = run("list", *patterns, *JSON).json["tables"]
        assert (row["name"], row["catalog"], row["namespace"]) == (NAME, "paper", "shop")


def test_one_configured_twice_is_one_table_where_its_place_says_so(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, paper.file, "COPY")
    [row] = run("list", "copy", "paper", *JSON).json["tables"]
    assert (row["name"], row["also"]) == ("copy.shop.events", [NAME])


def test_it_is_surveyed_and_not_opened_again_where_its_pointer_stayed(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [row] = run("survey", "paper", *JSON).json["tables"]
    assert (row["table"]["name"], row["snapshots"]) == (NAME, snapshots(paper))
    install(
        tmp_path / "other",
        monkeypatch,
        source=SOURCE.replace("def open(self, levels", "def open(self, never"),
    )
    [again] = run("survey", "paper", *JSON).json["tables"]
    assert (row["from_cache"], again["from_cache"]) == (False, True)
    assert again["snapshots"] == row["snapshots"]


def test_it_is_maintained(paper: Paper, tmp_path: Path) -> None:
    before = paper.location
    ran = maintain(tmp_path, {"expire-snapshots": '{ older-than = "0s", retain-last = 1 }'}, "paper")
    assert ran.code == 0, ran.err
    assert runs_of(ran)[NAME, "expire-snapshots"]["status"] == "done"
    assert paper.location != before
    assert snapshots(paper) == 1


MEMBERS = ("duplicates", "list", "open", "place", "pointer")


@pytest.mark.parametrize("member", MEMBERS)
def test_one_that_lacks_a_member_is_refused_and_the_member_named(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, source=SOURCE.replace(f"def {member}(self", "def other(self"))
    configure(monkeypatch, tmp_path / "paper.json")
    for line in (("inspect", NAME), ("list", "paper"), ("survey", "paper")):
        ran = run(*line)
        assert ran.code == 2
        assert (
            f"the entry point paper_catalog:PaperCatalog of its type paper has no {member}, as every"
            " iceberg_cli.iceberg.catalogs.Catalog has" in " ".join(ran.err.split())
        )
        assert "Install a version of that package that is for this version of iceberg-cli" in ran.err


def test_what_earlier_versions_called_is_refused_and_every_member_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = "def open_table(catalog, namespace, table, properties, storage): ..."
    install(tmp_path / "site", monkeypatch, source=earlier, value="paper_catalog:open_table")
    configure(monkeypatch, tmp_path / "paper.json")
    with pytest.raises(UsageError, match=f"has no {', '.join(MEMBERS)}, as every"):
        open_catalog_table(NAME)


def test_what_has_every_member_and_is_no_catalog_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, source=SOURCE.replace("PaperCatalog(Catalog)", "PaperCatalog"))
    configure(monkeypatch, tmp_path / "paper.json")
    with pytest.raises(UsageError, match=r"is no iceberg_cli\.iceberg\.catalogs\.Catalog"):
        open_catalog_table(NAME)


@pytest.mark.parametrize("value", ["paper_catalog:Other", "no_such_module:PaperCatalog"])
def test_an_entry_point_that_cannot_be_loaded_is_one_clear_error(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, value=value)
    configure(monkeypatch, tmp_path / "paper.json")
    with pytest.raises(UsageError, match=f"the entry point {value} of its type paper cannot be loaded"):
        open_catalog_table(NAME)


@pytest.mark.parametrize("member", ["takes_late_requests", "hidden_snapshots_reason", "prove", "_swap"])
def test_a_committer_that_lacks_an_answer_is_refused_and_the_member_named(
    paper: Paper, member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "other", monkeypatch, source=SOURCE.replace(f"def {member}(self", "def other(self"))
    before = paper.location
    ran = run("expire-snapshots", NAME, *OLD, "--yes")
    assert ran.code == 2
    assert member in ran.err
    assert paper.location == before


def test_a_committer_of_a_class_of_its_own_is_refused_and_its_members_named(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SOURCE.replace("PaperCommitter(SwapCommitter)", "PaperCommitter").replace(
        "super().__init__(storage)", ""
    )
    install(tmp_path / "other", monkeypatch, source=own)
    with pytest.raises(
        UsageError, match="its committer has no commit, lost_fields_reason, prepare, read_only_reason"
    ):
        open_catalog_table(NAME)


def test_a_class_that_is_made_of_other_things_is_refused(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SOURCE.replace("    def _read(self):", "    def __init__(self, name): ...\n\n    def _read(self):")
    install(tmp_path / "other", monkeypatch, source=own)
    with pytest.raises(UsageError, match=r"paper_catalog\.PaperCatalog fails: .*__init__\(\) takes 2"):
        open_catalog_table(NAME)


def test_what_is_built_in_looks_for_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(group: str, _: object) -> Any:
        raise AssertionError(group)

    catalog_table(tmp_path, monkeypatch, appends=2)
    monkeypatch.setattr("iceberg_cli.storage.plugins._entry_points", unexpected)
    for line in (("list", "lake"), ("survey", "lake"), ("inspect", "lake.shop.events")):
        assert run(*line).code == 0
    assert run("expire-snapshots", "lake.shop.events", *OLD, "--yes", *JSON).json["status"] == "done"
    configure(monkeypatch, tmp_path / "paper.json")
    with pytest.raises(AssertionError, match=GROUP):
        Catalogs().catalog("paper")


def test_every_type_that_is_built_in_is_a_folder_with_its_object() -> None:
    folder = Path(iceberg_cli.__file__).parent / "iceberg" / "catalogs"
    found = {path.parent.name for path in folder.glob("*/catalog.py")}
    assert found == {*BUILT_IN, "python_class"}


def test_the_lists_of_all_types_are_loaded_without_what_reads_tables() -> None:
    names = [f"iceberg_cli.iceberg.catalogs.{kind}.catalog" for kind in (*BUILT_IN, "python_class")]
    heavy = ("numpy", "pyarrow", "fsspec", "sqlalchemy")
    program = f"import sys, {', '.join(names)}; print({{*sys.modules}}.intersection({heavy}))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_no_type_is_named_where_many_tables_are_worked_on() -> None:
    fleet = Path(iceberg_cli.__file__).parent / "fleet"
    for path in fleet.glob("*.py"):
        text = path.read_text()
        assert [kind for kind in BUILT_IN if f'"{kind}"' in text or f"catalogs.{kind}" in text] == [], path


# Conformance


@dataclass(frozen=True)
class Table(CatalogUnderTest):
    """One table of the package's catalog."""

    catalogs: Catalogs

    @property
    def storage(self) -> Storage:
        return open_storage()

    def open(self, storage: Storage | None = None) -> Committer:
        committer, _ = open_catalog_table(NAME, catalogs=self.catalogs)
        committer._storage = storage or self.storage  # type: ignore[attr-defined]
        return committer


class Tables(ListedCatalog):
    """Three tables of the package's catalog."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "paper.json"
        locations = {}
        for name in ("shop.events", "shop.orders", "shop.inner.events"):
            locations[name] = f"{folder}/{name}/metadata/00000-first.metadata.json"
            open_storage().put_if_absent(locations[name], first_metadata(f"{folder}/{name}"))
        self.file.write_text(json.dumps(locations))

    @property
    def tables(self) -> Mapping[Name, str]:
        found = json.loads(self.file.read_text())
        return {(tuple(name.split(".")[:-1]), name.rpartition(".")[2]): found[name] for name in found}

    def open(self) -> Catalog:
        return Catalogs().catalog("paper")

    def drop(self, levels: tuple[str, ...], table: str) -> None:
        found = json.loads(self.file.read_text())
        del found[".".join((*levels, table))]
        self.file.write_text(json.dumps(found))


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    install(tmp_path / "site", monkeypatch)
    tables = Tables(tmp_path)
    configure(monkeypatch, tables.file)
    return tables


@pytest.fixture
def catalog(listed: Tables) -> Table:
    return Table(Catalogs())


class TestCommits(CatalogConformance):
    """Its commits."""


@pytest.mark.few(1)
class TestRewriting(RewritingConformance):
    """The rows of tables whose files are rewritten through it."""


class TestLists(ListingConformance):
    """Its lists."""

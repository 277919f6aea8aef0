"""Tables of a catalog that is any Python class: shown and planned, never written to."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import BackendUnavailable, IcebergCliError, Refused, TableNotFound, UsageError
from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table
from iceberg_cli.operation.outcomes import Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import a_commit, an_attempt
from tests.cli.lakes import CatalogTable, catalog_table, unchanged
from tests.cli.running import JSON, Ran, iceberg_cli

CLASSES = "tests.iceberg.catalogs.python_catalogs"
SECRETS = {"pin": "very-secret-pin", "api.password": "another-secret", "header.x": "third-secret"}
NAME = "lake.shop.events"
EXPIRE = ("expire-snapshots", NAME, "--older-than", "0s")


def configured(folder: Path, name: str, database: Path | None = None, **more: str) -> str:
    """The configuration of the catalog `lake` as a class of `python_catalogs`."""
    uri = f"sqlite:///{database}" if database else "postgresql://u:fourth-secret@h/d"
    properties = {"py-catalog-impl": f"{CLASSES}.{name}", "uri": uri, **SECRETS, **more}
    path = folder / "config.yaml"
    path.write_text(
        "catalog:\n  lake:\n" + "".join(f"    {key}: {value}\n" for key, value in properties.items())
    )
    return str(path)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    """A table whose catalog is configured by a class, and by no variable of the environment."""
    (tmp_path / "lake").mkdir()
    made = catalog_table(tmp_path / "lake", monkeypatch, appends=3)
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__TYPE")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__URI")
    return made


@pytest.fixture
def config(lake: CatalogTable, tmp_path: Path) -> str:
    return configured(tmp_path, "OwnCatalog", lake.database)


def run(*line: str, config: str, code: int = 0) -> Ran:
    """A command line, whose output has no secret."""
    ran = iceberg_cli(*line, "--catalog-config", config)
    assert ran.code == code, ran.err
    for secret in (*SECRETS.values(), "fourth-secret"):
        assert secret not in ran.out + ran.err
    return ran


def test_it_is_shown_and_planned_as_through_a_catalog_that_can_be_committed_to(
    lake: CatalogTable, config: str, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text(f"catalog:\n  lake:\n    type: sql\n    uri: sqlite:///{lake.database}\n")
    now_ms = int(time.time() * 1000)  # noqa: TID251  (a test is a shell)
    at = ("--as-of", str(now_ms), "--no-cache", *JSON)
    for line in (
        ("inspect", NAME),
        ("plan", NAME),
        ("plan", NAME, *EXPIRE[:1], *EXPIRE[2:]),
        (*EXPIRE, "--dry-run"),
    ):
        with unchanged(tmp_path / "lake"):
            shown, expected = (json.loads(run(*line, *at, config=each).out) for each in (config, str(plain)))
        assert "tests.iceberg.catalogs.python_catalogs.OwnCatalog" in json.dumps(shown)
        assert without_reason(shown) == without_reason(expected)


def without_reason(document: Any) -> Any:
    """What a document says, but for why nothing can be due on the table, and the names of plans."""
    if isinstance(document, dict):
        left_out = ("read_only", "blocked_by", "due", "id", "plan_id", "operation_id")
        return {key: without_reason(value) for key, value in document.items() if key not in left_out}
    return [without_reason(each) for each in document] if isinstance(document, list) else document


def test_writing_is_refused_and_changes_nothing(lake: CatalogTable, config: str, tmp_path: Path) -> None:
    with unchanged(tmp_path / "lake"):
        refused = run(*EXPIRE, "--yes", config=config, code=11)
        assert f"its catalog is the Python class {CLASSES}.OwnCatalog" in refused.err
        run("rewrite-manifests", NAME, "--min-manifests", "2", "--yes", config=config, code=11)
        run("upgrade-v3", NAME, "--yes", config=config, code=11)
        run("rewrite-data-files", NAME, "--rewrite-all", "--yes", config=config, code=11)


def test_its_committer_refuses_what_a_program_asks_of_it(lake: CatalogTable, config: str) -> None:
    storage = open_storage()
    committer, _ = open_catalog_table(NAME, catalogs=Catalogs(config))
    location = committer.current()
    assert location == lake.open().metadata_location == committer.current()
    with pytest.raises(Refused, match="OwnCatalog"):
        committer.prepare(a_commit(storage, location, {"colour": "red"}), base_location=location)
    (Path(config).parent / "plain.yaml").write_text(
        f"catalog:\n  lake:\n    type: sql\n    uri: sqlite:///{lake.database}\n"
    )
    other, _ = open_catalog_table(NAME, catalogs=Catalogs(f"{Path(config).parent}/plain.yaml"))
    attempt = an_attempt(other, storage, {"colour": "red"})
    with pytest.raises(Refused, match="OwnCatalog"):
        committer.commit(attempt)
    assert isinstance(committer.settle(attempt), Unknown)
    lake.append(9)
    assert committer.current() == lake.open().metadata_location != location


def test_the_tables_storage_options_come_before_the_catalogs_and_after_the_operators(
    lake: CatalogTable, tmp_path: Path
) -> None:
    more = {"s3.region": "of the catalog", "s3.access-key-id": "of the catalog", "token": "of the catalog"}
    config = configured(tmp_path, "OwnCatalog", lake.database, **more)
    _, options = open_catalog_table(
        NAME, catalogs=Catalogs(config), storage_options={"s3.endpoint": "of the operator"}
    )
    assert {key: value for key, value in options.items() if value.startswith("of the")} == {
        "s3.endpoint": "of the operator",
        "s3.region": "of the table",
        "s3.access-key-id": "of the catalog",
    }
    assert "header.x" not in options


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("OneThatDoesNotStart", BackendUnavailable, "OneThatDoesNotStart says RuntimeError: cannot use"),
        ("OneThatDoesNotAnswer", BackendUnavailable, "OneThatDoesNotAnswer says ServerError: no answer to"),
        ("NoCatalog", UsageError, "NoCatalog is no catalog"),
        ("Missing", UsageError, "has no attribute 'Missing'"),
        ("missing.Module", UsageError, "No module named"),
    ],
)
def test_what_the_class_raises_is_said_in_one_line_without_what_it_was_given(
    lake: CatalogTable, name: str, error: type[IcebergCliError], message: str, tmp_path: Path
) -> None:
    config = configured(tmp_path, name, lake.database if name == "OneThatDoesNotAnswer" else None)
    ran = run("inspect", NAME, config=config, code=error.exit_code)
    assert message in ran.err.replace("\n", " ")
    with pytest.raises(error) as caught:
        open_catalog_table(NAME, catalogs=Catalogs(config))
    assert "\n" not in caught.value.message


def test_what_the_class_gave_the_table_is_a_secret_too(lake: CatalogTable, tmp_path: Path) -> None:
    config = configured(tmp_path, "OneThatAnswersOnce", lake.database)
    committer, _ = open_catalog_table(NAME, catalogs=Catalogs(config))
    committer.current()
    with pytest.raises(BackendUnavailable, match=r"ServerError: \*\*\* has ended"):
        committer.current()


def test_a_table_that_the_class_does_not_know_is_not_found(config: str) -> None:
    for name in ("lake.shop.other", "lake.nowhere.t"):
        with pytest.raises(TableNotFound, match=name):
            open_catalog_table(name, catalogs=Catalogs(config))
        run("inspect", name, config=config, code=10)


def test_a_class_and_a_type_exclude_each_other(lake: CatalogTable, tmp_path: Path) -> None:
    config = configured(tmp_path, "OwnCatalog", lake.database, type="sql")
    with pytest.raises(UsageError, match="both a type and py-catalog-impl"):
        open_catalog_table(NAME, catalogs=Catalogs(config))

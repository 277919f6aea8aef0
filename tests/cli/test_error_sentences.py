"""What an operator reads who has mistyped something: one sentence for each mistake, and the nearest name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.lakes import AS_OF_MS, catalog_table, four_snapshots, unchanged
from tests.cli.running import Ran, iceberg_cli


def error(*arguments: object) -> dict[str, str]:
    """The document of a command line that fails."""
    ran = iceberg_cli(*arguments, "--format", "json")
    assert ran.code not in (0, 3), ran.out
    found: dict[str, str] = ran.json
    assert found["exit_code"] == ran.code
    return found


@pytest.fixture
def name(tmp_path: Path) -> str:
    return four_snapshots(tmp_path / "shop" / "events").publish()


def test_a_missing_folder_names_its_neighbours(name: str, tmp_path: Path) -> None:
    found = error("inspect", tmp_path / "shop" / "event")
    assert found["message"] == (
        f"Cannot find a table at {tmp_path}/shop/event: no such folder. Did you mean 'events'?"
    )
    assert found["exit_code"] == 10


def test_a_name_with_too_few_parts_says_which_parts_there_are() -> None:
    found = error("inspect", "shop.events")
    assert found["exit_code"] == 10
    assert "as a name in a catalog it has too few parts" in found["message"]
    assert "CATALOG.NAMESPACE.TABLE" in found["next"]


def test_json_that_is_no_metadata_is_somebody_elses_file(tmp_path: Path) -> None:
    file = tmp_path / "t" / "metadata" / "v1.metadata.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"name": "package", "version": 3}))
    for each in (tmp_path / "t", file):
        found = error("inspect", each)
        assert (
            "it is JSON, but no metadata of a table: it has none of format-version, table-uuid"
            in found["message"]
        )
        assert found["next"].startswith("Name a table's folder")


def test_a_table_of_a_catalog_names_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog_table(tmp_path, monkeypatch)
    found = error("inspect", "lake.shop.event")
    assert found["message"].endswith("in its catalog. Did you mean 'events'?")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("inspct", "T"), "Did you mean `iceberg-cli inspect`?"),
        (("inspect", "T", "snapshot"), "Did you mean 'snapshots'?"),
        (("inspect", "T", "--ref", "mian"), "Did you mean 'main'?"),
        (("plan", "T", "merge-dv"), "Did you mean 'merge-dvs'?"),
        (("expire-snapshots", "T", "--older-thn", "3d"), "--older-than"),
        (("upgrade-v3", "T", "--chek"), "--check"),
    ],
    ids=str,
)
def test_what_is_mistyped_gets_the_nearest_name(name: str, arguments: tuple[str, ...], near: str) -> None:
    found = error(*(name if word == "T" else word for word in arguments))
    assert found["exit_code"] == 2
    assert near in found["message"]


@pytest.mark.parametrize("more", [(), ("--catalog-config", "broken.yaml")], ids=["its own", "named"])
def test_a_broken_configuration_is_shown_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    for file in ("broken.yaml", ".pyiceberg.yaml"):
        (tmp_path / file).write_text("catalog:\n  lake:\n   uri: x\n  - bad\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    ran = iceberg_cli("inspect", "lake.shop.events", *more)
    assert ran.code == 2
    assert "\\u000a" not in ran.err
    assert ": line 4: expected <block end>, but found '-'" in ran.err
    assert len(ran.err.splitlines()) == 2


def test_a_refusal_prints_its_reason_once(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t", properties={"gc.enabled": "false"}).publish()
    reason = "table property gc.enabled=false: another table may use these files"
    for verb in (("--yes",), ("--yes", "--quiet")):
        ran = iceberg_cli("expire-snapshots", table, "--as-of", AS_OF_MS, *verb)
        assert ran.code == 11
        assert (ran.out + ran.err).count(reason) == 1
        assert reason in ran.err
    assert iceberg_cli("expire-snapshots", table, "--as-of", AS_OF_MS, "--dry-run").out.count(reason) == 1


def only(name: str, *ids: int, more: tuple[str, ...] = ()) -> Ran:
    named = (word for each in ids for word in ("--snapshot-id", str(each)))
    return iceberg_cli("expire-snapshots", name, "--as-of", AS_OF_MS, *named, *more, "--yes")


def test_a_snapshot_that_is_not_there_is_an_error_where_nothing_else_is_asked_for(name: str) -> None:
    with unchanged(Path(name)):
        ran = only(name, 77)
        assert ran.code == 2
        assert "Cannot expire by --snapshot-id 77: the table has no such snapshot." in ran.err
        assert only(name, 77, 78).code == 2
    assert only(name, 77, 1).code == 0
    assert only(name, 77, more=("--older-than", "7d")).code == 0


def test_a_saved_plan_of_a_snapshot_that_is_gone_by_now_has_nothing_to_do(name: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    arguments = ("plan", name, "expire-snapshots", "--as-of", AS_OF_MS, "--snapshot-id", 1, "--output", file)
    assert iceberg_cli(*arguments).code == 0
    assert only(name, 1).code == 0
    assert iceberg_cli("apply", file, "--yes").code == 0


def test_a_damaged_plan_file_says_to_plan_again(name: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert iceberg_cli("plan", name, "expire-snapshots", "--output", file).code == 0
    file.write_text(file.read_text().replace('"steps"', '"stops"'))
    assert "plan again" in error("apply", file, "--yes")["next"]

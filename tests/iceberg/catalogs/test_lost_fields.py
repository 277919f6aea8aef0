"""Fields that a catalog does not know, and would lose with the next commit: it takes none of ours then."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.iceberg.catalogs.rest.lost_fields import fields_of, lost_fields
from tests.cli.running import iceberg_cli
from tests.iceberg.catalogs.test_rest import Lake, expiry, lake, run
from tests.metadata_documents import a_document, a_snapshot, parsed, without
from tests.rest_servers import configuration_of

__all__ = ["lake"]

ONE = a_snapshot(1, key_id="k", first_row_id=0, added_rows=1) | {"later": {"a": 1}}
STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "s3://lake/a",
    "file-size-in-bytes": 2,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [],
}
WHOLE = a_document(
    3,
    1,
    next_row_id=1,
    snapshots=[ONE],
    statistics=[STATISTICS | {"later": 1}],
    refs={"main": {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": 2}},
) | {"later": ["x"]}


def test_of_a_table_that_is_shown_whole_nothing_is_lost() -> None:
    assert lost_fields(parsed(WHOLE), fields_of(WHOLE)) == []


@pytest.mark.parametrize(
    ("shown", "lost"),
    [
        (without(WHOLE, "later"), ["later"]),
        (WHOLE | {"snapshots": [without(ONE, "later")]}, ["snapshots.later"]),
        (WHOLE | {"snapshots": [without(ONE, "key-id", "first-row-id")]},
         ["snapshots.first-row-id", "snapshots.key-id"]),
        (WHOLE | {"refs": a_document(3, 1)["refs"]}, ["refs.min-snapshots-to-keep"]),
        (WHOLE | {"statistics": [STATISTICS]}, ["statistics.later"]),
        (without(WHOLE, "statistics"), ["statistics", "statistics.later"]),
    ],
)  # fmt: skip
def test_what_is_not_shown_is_lost(shown: dict[str, Any], lost: list[str]) -> None:
    assert lost_fields(parsed(WHOLE), fields_of(shown)) == lost


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_holds_nothing_and_what_version_1_repeats_can_be_left_out(version: int) -> None:
    nothing = {"later": None, "others": [], "more": {}}
    document = a_document(version, 1) | nothing | ({"next-row-id": 1} if version == 3 else {})
    kept = ("statistics", "partition-statistics", "schema", "partition-spec", *nothing)
    assert lost_fields(parsed(document), fields_of(without(document, *kept))) == []


def register_changed(lake: Lake, table: str, changes: dict[str, Any]) -> None:
    """Register another table of the same snapshots, in a folder of its own, whose metadata has other fields."""
    document = json.loads(lake.storage.read(lake.storage.canonical(lake.table.metadata_location)))
    folder = f"{lake.table.location()}-{table}"
    others = {"location": folder, "table-uuid": str(uuid.uuid4())}
    location = f"{folder}/metadata/00000-{uuid.uuid4()}.metadata.json"
    lake.storage.put_if_absent(
        lake.storage.canonical(location), json.dumps({**document, **others, **changes}).encode()
    )
    lake.theirs.register_table((lake.namespace, "inner", table), location)


def check_refused(lake: Lake, table: str, folder: Path, lost: str) -> None:
    """No verb commits to the table, which is shown as read-only; no file of it comes or goes."""
    config, name = folder / "pyiceberg.yaml", f"prod.{lake.namespace}.inner.{table}"
    properties = {"uri": lake.front.uri, **lake.options, **lake.properties}
    config.write_text(configuration_of("prod", properties))
    more = ("--catalog-config", config, "--no-cache", "--format", "json", "--no-progress")
    folder = lake.storage.canonical(lake.theirs.load_table((lake.namespace, "inner", table)).location())
    files = set(lake.storage.paths(folder))
    reason = f"its catalog does not know fields that the table has, and each commit loses them: {lost}"
    for verb, *options in (("expire-snapshots", "--older-than", "0s", "--retain-last", "1"), ("upgrade-v3",)):
        refused = iceberg_cli(verb, name, *options, "--yes", *more)
        assert refused.code == 11, refused.out
        assert reason in refused.json["message"]
        assert refused.json["state"] == "Nothing was changed."
    assert iceberg_cli("inspect", name, *more).json["read_only"] == reason
    assert set(lake.storage.paths(folder)) == files
    assert all(method == "GET" for method, _ in lake.front.requests)


def test_no_verb_commits_to_a_table_of_which_the_catalog_would_lose_something(
    lake: Lake, tmp_path: Path
) -> None:
    register_changed(lake, "later", {"later": {"a": 1}})
    check_refused(lake, "later", tmp_path, "later")


def test_an_operation_that_is_open_can_be_closed(lake: Lake, tmp_path: Path) -> None:
    """To leave its files needs no commit, so that nothing is lost by it."""
    head = lake.table.metadata.current_snapshot_id
    assert head is not None
    lake.table.manage_snapshots().create_tag(head, "kept", max_ref_age_ms=1 << 40).commit()
    run(lake, tmp_path, *expiry(lake), "--grace", "1h")
    (path,) = {path for method, path in lake.front.requests if method == "GET" and "/tables/" in path}
    shown = json.loads(lake.front.forward("GET", path, {}, b"")[1])
    assert shown["metadata"]["refs"]["kept"].pop("max-ref-age-ms") == 1 << 40
    lake.front.contents[path] = json.dumps(shown).encode()
    (operation_id,) = (each.name for each in (tmp_path / "t" / "_iceberg_cli" / "ops").iterdir())
    assert "loses them: refs.max-ref-age-ms" in " ".join(run(lake, tmp_path, "inspect").split())
    run(lake, tmp_path, "resume", operation_id, "--abandon")
    assert "No open operation" in run(lake, tmp_path, "resume", "--list")

"""What every document has: the table, ids as strings, what was settled before; and that each agrees with its exit code.

`Ran.json` holds each document against its JSON Schema.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.plan.plan import encode
from iceberg_cli.testing.delta_writer import a_commit_info, a_metadata, a_protocol, a_protocol_with, an_add
from tests.cli.command_names import VERBS
from tests.cli.lakes import AS_OF, GONE, FolderTable, in_the_way
from tests.cli.running import JSON, Ran, expire, iceberg_cli
from tests.delta_opened import a_log
from tests.first_release import first_plan
from tests.paths import FIXTURES, needs_fixtures, tables_below


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    root = tmp_path / "visits"
    a_log(root, [an_add()])
    (root / "part-0.parquet").write_bytes(b"1234")
    return root


def documents(name: str, tmp_path: Path) -> Iterator[Ran]:
    """One of every kind about a table; what writes comes last."""
    yield iceberg_cli("inspect", name, *JSON)
    yield iceberg_cli("inspect", name, "files", *JSON)
    yield iceberg_cli("inspect", name, "--check", *JSON)
    yield iceberg_cli("plan", name, *JSON)
    yield iceberg_cli("plan", name, "expire-snapshots", *JSON)
    yield iceberg_cli("upgrade-v3", name, "--check", *JSON)
    yield iceberg_cli("resume", name, "--list", *JSON)
    saved = tmp_path / "saved.json"
    iceberg_cli("plan", name, "rewrite-manifests", "--output", saved)
    yield iceberg_cli("apply", saved, "--replan", *JSON)
    yield iceberg_cli("rewrite-manifests", name, "--yes", *JSON)
    yield iceberg_cli("inspect", name, "nothing", *JSON)


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_every_document_about_a_table_names_it(
    table: FolderTable, visits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = {"iceberg": table.folder, "delta": visits}[format_]
    place = str(folder)
    name = str(folder.relative_to(tmp_path))
    seen = []
    for ran in documents(name, tmp_path):
        document = ran.json
        stated = document.get("table") or document["plan"]["table"]
        # Where it was not opened, nothing but what was typed is known.
        expected = {"name": place, "location": place, "format": format_}
        if document["schema"].startswith("iceberg-cli/error/"):
            expected = {"name": name, "location": None, "format": None}
        assert {key: stated[key] for key in ("name", "location", "format")} == expected
        seen.append(document["schema"])
    assert {schema.split("/")[1] for schema in seen} == {
        "inspection", "survey", "plan", "preflight", "operations", "replan", "report", "error",
    }  # fmt: skip
    settled = iceberg_cli("resume", name, *JSON)
    assert settled.json["table"]["location"] == str(folder)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("inspect", "no/such/table"), "no/such/table"),
        (("inspect", "no/such/table", "--as-of", "yesterday"), "no/such/table"),
        (("plan", "no/such/table", "expire"), "no/such/table"),
        (("inspect", "no/such/table", "--bogus"), None),  # the words cannot be told apart
        (("inspect",), None),
        (("demo", "/proc/x"), None),
        (("apply", "no-such-file"), None),
    ],
)
def test_an_error_names_the_table_that_was_typed_if_one_was(
    words: tuple[str, ...], named: str | None
) -> None:
    ran = iceberg_cli(*words, *JSON)
    expected = None if named is None else {"name": named, "location": None, "format": None}
    assert (ran.json["table"], ran.json["settled"]) == (expected, [])
    assert ran.code == ran.json["exit_code"]


def test_an_error_after_the_table_was_opened_says_where_it_is(table: FolderTable) -> None:
    (table.folder / "metadata" / "snap-4.avro").unlink()
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", *JSON)
    place = str(table.folder)
    assert (ran.code, ran.json["table"]) == (15, {"name": place, "location": place, "format": "iceberg"})


# -- what was settled before -----------------------------------------------------------------------------------------


def stuck(table: FolderTable) -> tuple[str, str]:
    """A run whose deletion of one file fails: the id of its operation, and the file."""
    path = in_the_way(table.folder, "one")
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", *JSON)
    assert ran.code == 14
    assert ran.json["settled"] == []
    return ran.json["operation_id"], str(path)


def test_a_run_that_ends_with_14_for_an_earlier_operation_says_so_in_its_document(table: FolderTable) -> None:
    operation, path = stuck(table)
    ran = iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", *JSON)
    assert (ran.code, ran.json["status"], ran.json["failed_deletes"]) == (14, "nothing_to_do", [])
    [settled] = ran.json["settled"]
    assert (settled["operation_id"], settled["verb"]) == (operation, "expire-snapshots")
    assert (settled["status"], settled["exit_code"]) == ("partial", 14)
    assert settled["failed_deletes"] == [{"path": path, "reason": "it is a folder"}]
    assert (
        iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes", "--no-resume", *JSON).json["settled"]
        == []
    )


def test_one_that_cannot_be_settled_says_why(table: FolderTable) -> None:
    operation, _ = stuck(table)
    (table.folder / "_iceberg_cli" / "ops" / operation / "000001.json").write_bytes(b"{}")
    ran = iceberg_cli("rewrite-manifests", table.folder, "--yes", *JSON)
    [settled] = ran.json["settled"]
    assert (ran.code, settled["exit_code"], settled["status"]) == (15, 15, "refused")
    assert settled["notes"][0].startswith(f"Cannot settle the open operation {operation}: ")


def test_an_error_after_it_says_what_was_settled_and_not_that_nothing_was_changed(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--limit-deletes", "1").json["operation_id"]
    ran = iceberg_cli("expire-snapshots", table.folder, "--snapshot-id", "999", "--yes", *JSON)
    assert ran.code == ran.json["exit_code"] == 2
    assert [(each["operation_id"], each["status"]) for each in ran.json["settled"]] == [(operation, "done")]
    assert ran.json["state"] == "Earlier operations were gone on with; nothing else was changed."
    text = iceberg_cli("expire-snapshots", table.folder, "--snapshot-id", "999", "--yes")
    assert "Nothing was changed." in text.err


# -- operations ------------------------------------------------------------------------------------------------------


def operations(table: FolderTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = iceberg_cli("resume", table.folder, "--list", *JSON).json["operations"]
    return found


def test_an_operation_that_waits_says_until_when(table: FolderTable) -> None:
    report = expire(str(table.folder), *AS_OF, "--grace", "1h").json
    [found] = operations(table)
    assert (found["operation_id"], found["state"]) == (report["operation_id"], "waiting")
    assert found["started_ms"] < found["grace_until_ms"] - 3_599_000 < found["started_ms"] + 60_000
    assert found["grace_until"].startswith("20")


def test_the_state_of_an_operation_is_one_word(table: FolderTable) -> None:
    operation = expire(str(table.folder), *AS_OF, "--limit-deletes", "1").json["operation_id"]
    [found] = operations(table)
    assert (found["state"], found["grace_until_ms"]) == ("sweeping", None)
    assert found["message"] == "committed; some files that may go are still there"
    journal = table.folder / "_iceberg_cli" / "ops" / operation
    whole = sorted(journal.iterdir())
    for path in whole[2:]:
        path.unlink()
    assert operations(table)[0]["state"] == "asking"
    intent = whole[1].read_bytes()
    whole[1].unlink()
    assert operations(table)[0]["state"] == "interrupted"
    assert b"intent" in intent
    whole[1].write_bytes(b"{}")
    [found] = operations(table)
    assert (found["state"], found["operation"]) == ("unreadable", None)


# -- plans of the first release --------------------------------------------------------------------------------------


def test_a_plan_of_the_first_release_is_applied(table: FolderTable, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert iceberg_cli("plan", table.folder, "expire-snapshots", *AS_OF, "--output", saved).code == 0
    saved.write_text(json.dumps(first_plan(json.loads(saved.read_text()))))
    with table.loses(GONE):
        ran = iceberg_cli("apply", saved, "--yes", *JSON)
        assert (ran.code, ran.json["status"]) == (0, "done")


def test_an_operation_that_the_first_release_began_is_resumed(
    table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.loses(GONE):
        with monkeypatch.context() as patched:
            patched.setattr(
                "iceberg_cli.operation.apply.encode",
                lambda document, **how: encode(first_plan(document), **how),
            )
            operation = expire(str(table.folder), *AS_OF, "--limit-deletes", "1").json["operation_id"]
        kept = json.loads((table.folder / "_iceberg_cli" / "ops" / operation / "plan.json").read_text())
        assert kept["schema"] == "iceberg-cli/plan/1"
        ran = iceberg_cli("resume", table.folder, *JSON)
        assert (ran.code, [report["status"] for report in ran.json["reports"]]) == (0, ["done"])


# -- ids -------------------------------------------------------------------------------------------------------------

ID = re.compile(r"snapshot.ids?$|parent.id$|sequence.number$|row.id$|rowId$|high_water_mark$")


def numbers(value: Any, name: str = "") -> Iterator[str]:
    """Names of ids that are numbers."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from numbers(each, name)
    elif type(value) in (int, float) and ID.search(name) and "without" not in name:
        yield name


@needs_fixtures
@pytest.mark.parametrize("folder", ["16-iceberg-v3-java-row-lineage", "32-delta-spark-row-tracking"])
def test_ids_sequence_numbers_and_row_ids_are_strings_everywhere(folder: str, tmp_path: Path) -> None:
    table = shutil.copytree(tables_below(FIXTURES / folder)[0], tmp_path / "t")
    asked = [("inspect", table, *what) for what in ((), ("snapshots",), ("refs",), ("history",), ("manifests",),
        ("files",), ("deletes",), ("statistics",), ("metadata-log",), ("row-ids",), ("protocol",))]  # fmt: skip
    asked += [("plan", table, verb) for verb in VERBS]
    found = {}
    for words in asked:
        ran = iceberg_cli(*words, *JSON)
        found[" ".join(map(str, (words[0], *words[2:])))] = sorted(set(numbers(json.loads(ran.out))))
    assert {words: names for words, names in found.items() if names} == {}


# -- preflight of a Delta table --------------------------------------------------------------------------------------


def checked(root: Path, code: int, *options: str) -> dict[str, Any]:
    ran = iceberg_cli("upgrade-v3", root, "--check", *options, *JSON)
    assert ran.code == code, ran.out
    return ran.json


def ids(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The severity of each finding."""
    return {(each["id"], each["where"]): each["severity"] for each in document["findings"]}


def test_the_preflight_of_a_delta_table_tells_what_it_will_have(tmp_path: Path) -> None:
    root = tmp_path / "t"
    a_log(
        root,
        [a_protocol(1, 2), a_metadata(), an_add()],
        [a_commit_info(engineInfo="Apache-Spark/3.4.1 Delta-Lake/2.4.0"), an_add(path="b.parquet")],
        [a_commit_info(engineInfo="Apache-Spark/4.1.4 Delta-Lake/4.4.0"), an_add(path="c.parquet")],
    )
    document = checked(root, 0)
    assert document["blocked"] is False
    assert document["target"] == {
        "min_reader_version": 3,
        "min_writer_version": 7,
        "features": ["appendOnly", "deletionVectors", "domainMetadata", "invariants", "rowTracking"],
    }
    assert ids(document) == {
        ("client-lacks-features", "Apache-Spark/3.4.1 Delta-Lake/2.4.0"): "warning",
        ("client-knows-features", "Apache-Spark/4.1.4 Delta-Lake/4.4.0"): "info",
        ("feature-turned-on", "feature deletionVectors"): "info",
        ("feature-turned-on", "feature rowTracking"): "info",
        ("feature-turned-on", "feature domainMetadata"): "info",
    }
    assert document["base"]["version"] == "2"
    text = iceberg_cli("upgrade-v3", root, "--check")
    assert (text.code, text.out.splitlines()[0]) == (0, f"upgrade-v3 {root}: nothing blocks the upgrade")


def test_the_preflight_of_a_delta_table_that_is_blocked_leaves_with_11_and_says_by_what(
    tmp_path: Path,
) -> None:
    root = tmp_path / "t"
    a_log(
        root, [a_protocol(1, 2), a_metadata(configuration={"delta.enableIcebergCompatV1": "true"}), an_add()]
    )
    document = checked(root, 11)
    assert document["blocked"] is True
    [found] = [each for each in document["findings"] if each["severity"] == "blocking"]
    assert (found["id"], found["section"]) == ("deletion-vectors-excluded", "Deletion Vectors")
    assert "delta.enableIcebergCompatV1 is true" in found["message"]
    quiet = iceberg_cli("upgrade-v3", root, "--check", "--quiet")
    assert (quiet.code, quiet.out) == (11, "")
    assert "blocking: deletion-vectors-excluded" in quiet.err
    assert checked(root, 0, "--feature", "rowTracking")["blocked"] is False


def test_the_preflight_of_a_delta_table_that_has_the_features_has_nothing_to_upgrade(tmp_path: Path) -> None:
    root = tmp_path / "t"
    configuration = {"delta.enableDeletionVectors": "true"}
    protocol = a_protocol_with("deletionVectors", "rowTracking", "domainMetadata")
    a_log(root, [protocol, a_metadata(configuration=configuration), an_add()])
    assert set(ids(checked(root, 0)).values()) == {"info"}
    assert {rule for rule, _ in ids(checked(root, 0))} == {"feature-kept"}
    ran = iceberg_cli("upgrade-v3", root, "--check")
    assert ran.out.splitlines()[0] == f"upgrade-v3 {root}: the table has these features: nothing to upgrade"


def test_a_table_that_the_upgrade_cannot_read_whole_is_blocked_in_the_preflight_too(
    table: FolderTable,
) -> None:
    gone = table.folder / "metadata" / "4-m0.avro"
    gone.unlink()
    found = {each["id"]: each for each in checked(table.folder, 11)["findings"]}
    assert (found["file-unreadable"]["severity"], found["file-unreadable"]["where"]) == (
        "blocking",
        str(gone),
    )
    assert iceberg_cli("upgrade-v3", table.folder, "--yes").code == 15


def test_a_read_only_table_is_blocked_in_the_preflight_too(table: FolderTable) -> None:
    document = checked(table.folder / "metadata" / "v1.metadata.json", 11)
    assert [each["id"] for each in document["findings"] if each["severity"] == "blocking"] == [
        "upgrade-refused"
    ]

"""`inspect --check`: for every rule a table that breaks it, and nothing else; sound tables break none."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.iceberg.check.rules import RULES
from iceberg_cli.plan.findings import EXAMPLES, CheckResult, Findings
from tests.check_cases import (
    BY_BUCKET,
    CASES,
    by_k,
    check,
    current,
    found,
    partition_field,
    specs,
    theta,
)
from tests.check_tables import SNAPSHOT_ID, Break, Sound
from tests.cli.running import Ran
from tests.delete_tables import BY_K, a_table, puffin
from tests.paths import FIXTURES, needs_fixtures


@pytest.mark.parametrize("rule", RULES)
def test_a_table_that_breaks_one_rule_breaks_no_other(rule: str, tmp_path: Path) -> None:
    case = CASES[rule]
    table = Sound(folder=tmp_path / "t", version=case.version)
    case.change(table)
    ran = check(table.write(), *(["--deep"] if case.deep else []))
    assert set(found(ran)) == {rule}
    assert {finding["severity"] for finding in ran.json["findings"]} == {RULES[rule].severity}
    assert ran.code == (16 if rule == "file-not-looked-at" else 15 if RULES[rule].severity == "error" else 0)


def test_there_is_a_table_for_every_rule_and_a_rule_for_every_table() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_sound_table_breaks_no_rule(version: int, tmp_path: Path) -> None:
    ran = check(Sound(folder=tmp_path / "t", version=version).write(), "--deep")
    assert ran.json["findings"] == []
    assert ran.json["checked"] == {
        "snapshots": 1,
        "manifests": 1 if version == 1 else 2,
        "files": 2 if version == 1 else 3,
    }


@pytest.mark.parametrize(
    ("spec", "value"), [(BY_K, "x"), (BY_BUCKET, 3), (BY_BUCKET, None)], ids=["k", "bucket", "null"]
)
def test_a_sound_partitioned_table_breaks_no_rule(spec: dict[str, Any], value: Any, tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    by_k(table, spec, value)
    assert check(table.write(), "--deep").json["findings"] == []


def a_puffin(*blobs: dict[str, Any]) -> bytes:
    """A Puffin file whose blobs are four bytes each; written by hand from the specification."""
    rows = [{"offset": 4 + 4 * place, "length": 4, **blob} for place, blob in enumerate(blobs)]
    payload = json.dumps({"blobs": rows}).encode()
    parts = [
        b"PFA1",
        b"blob" * len(rows),
        b"PFA1",
        payload,
        struct.pack("<i", len(payload)),
        bytes(4),
        b"PFA1",
    ]
    return b"".join(parts)


def messages(ran: Ran, rule: str) -> list[str]:
    return [finding["message"] for finding in ran.json["findings"] if finding["id"] == rule]


@pytest.mark.parametrize(
    ("blobs", "stated"),
    [
        ((theta(1), theta(2)), []),
        ((theta(1), theta(1)), ["blob 1 (apache-datasketches-theta-v1 of 1) is there twice"]),
        ((theta(1), theta(1, snapshot_id=9)), []),
        ((theta(1), theta(1, 99)), ["blob 1 is of field 99, which no schema of the table has"]),
        ((theta(2147483645),), []),
    ],
)
def test_blobs_of_statistics_are_once_and_of_columns(
    blobs: tuple[dict[str, Any], ...], stated: list[str], tmp_path: Path
) -> None:
    """In metadata it shows without --deep, in the file itself with it."""
    table = Sound(folder=tmp_path / "in metadata")
    table.documents.append(
        lambda d: d.update(statistics=[{**table.statistics(), "blob-metadata": list(blobs)}])
    )
    assert messages(check(table.write()), "puffin-blob-unfit") == stated
    other = Sound(folder=tmp_path / "in the file")
    path = other.put("metadata/2.stats", a_puffin(*blobs))
    entry = {
        "snapshot-id": SNAPSHOT_ID, "statistics-path": path, "blob-metadata": [],
        "file-size-in-bytes": Path(path).stat().st_size,
        "file-footer-size-in-bytes": Path(path).stat().st_size - 4 - 4 * len(blobs),
    }  # fmt: skip
    other.documents.append(lambda d: d.update(statistics=[entry]))
    location = other.write()
    assert found(check(location)) == []
    assert messages(check(location, "--deep"), "puffin-blob-unfit") == stated


def test_blobs_of_deletion_vectors_are_once_and_of_columns(tmp_path: Path) -> None:
    changes = {
        "of a column": (b"[2147483645]", b"[77]        ", "blob 0 is of field 77, which no schema of the table has"),
        "once": (b"b.parquet", b"a.parquet", "blob 1 (deletion-vector-v1 of {a}) is there twice"),
    }  # fmt: skip
    for name, (old, new, stated) in changes.items():
        table = Sound(folder=tmp_path / name)
        data, places = puffin({table.path("a"): {0}, table.path("b"): {1}})
        table.puffin("odd", data.replace(old, new, 1), places[:1])
        ran = check(table.write(), "--deep")
        assert messages(ran, "puffin-blob-unfit") == [stated.format(a=table.path("a"))]


@pytest.mark.parametrize(
    ("transform", "name", "source", "clashes"),
    [
        ("identity", "k", 2, False),
        ("bucket[4]", "k", 2, False),
        ("identity", "n", 2, True),
        ("void", "n", 2, True),
        ("identity", "elsewhere", 2, False),
    ],
)
def test_a_partition_field_may_be_named_as_its_own_column_only(
    transform: str, name: str, source: int, clashes: bool, tmp_path: Path
) -> None:
    """The Java library refuses to load the others: "sourced from different field in schema"."""
    table = Sound(folder=tmp_path / "t")
    table.documents.append(specs(partition_field(transform, source, name)))
    assert found(check(table.write())) == ["partition-name-clashes"] * clashes


def test_partition_statistics_of_a_snapshot_that_is_gone_are_found(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    path = table.put("metadata/p.parquet", b"ten bytes.")
    gone = {"snapshot-id": 77, "statistics-path": path, "file-size-in-bytes": 10}
    table.documents.append(lambda d: d.update({"partition-statistics": [gone]}))
    location = table.write()
    assert found(check(location)) == found(check(location, "--deep")) == ["statistics-without-snapshot"]


def test_what_pyarrow_cannot_open_is_not_called_broken(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    CASES["parquet-cannot-be-read-here"].change(table)
    (finding,) = check(table.write(), "--deep").json["findings"]
    assert finding["severity"] == "warning"
    assert finding["message"].startswith("it cannot be read here, pyarrow says: ")
    assert "thrift" in finding["message"].lower()


@pytest.mark.parametrize(
    ("columns", "stated"),
    [
        ({"file_path": ["x", None, None], "pos": [1, 2, 3]}, "2 of 3 rows have no file_path"),
        ({"file_path": ["x", "x", "x"], "pos": [None, 2, 3]}, "1 of 3 rows have no pos"),
        ({"path": ["x", "x", "x"], "pos": [1, 2, 3]}, "field file_path: no column has field id 2147483546"),
    ],
)
def test_position_deletes_that_say_not_what_they_delete_are_found(
    columns: dict[str, list[Any]], stated: str, tmp_path: Path
) -> None:
    table = Sound(folder=tmp_path / "t", version=2)
    path = tmp_path / "t/data/odd-deletes.parquet"
    pq.write_table(pa.table(columns), path)
    table.deletes = [table.entry(1, str(path), 3, path.stat().st_size)]
    location = table.write()
    assert found(check(location)) == []
    assert messages(check(location, "--deep"), "position-deletes-unfit") == [stated]


@needs_fixtures
def test_every_section_is_a_heading_of_the_specification() -> None:
    text = (FIXTURES.parent / "specs/iceberg-table-spec-v3.md").read_text(encoding="utf-8")
    headings = {title.lower() for title in re.findall(r"^#+ (?:Appendix .: )?(.+)$", text, re.MULTILINE)}
    assert {rule.section.lower() for rule in RULES.values()} <= headings


@pytest.mark.parametrize("name", ["added_files_count", "added_rows_count"])
def test_a_count_of_nothing_where_entries_are_is_wrong_too(name: str, tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    table.rows.append(lambda rows: rows[0].update({name: 0}))
    assert found(check(table.write())) == [f"manifest-{name.split('_')[1][:-1]}-counts-differ"]


def test_equality_deletes_without_partition_apply_to_every_partition(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", format_version=2)
    table.data("x", 3, k="x")
    table.commit(1)
    table.equality("everywhere")
    table.equality("here", k="x")
    table.equality("elsewhere", k="y")
    table.commit_and_publish(2)
    dangling = [row for row in check(table.location).json["findings"] if row["id"] == "deletes-dangling"]
    assert [Path(row["where"]).name for row in dangling] == ["elsewhere-eq-deletes.parquet"]


def test_equality_deletes_do_not_apply_to_files_of_their_own_commit(tmp_path: Path) -> None:
    # Spec, "Scan Planning": strictly older for equality deletes, as old for position deletes.
    table = a_table(tmp_path / "t", format_version=2)
    table.data("x", 3)
    table.equality("same")
    table.positions("same", {"x": [1]})
    table.commit_and_publish(1)
    dangling = [row for row in check(table.location).json["findings"] if row["id"] == "deletes-dangling"]
    assert [Path(row["where"]).name for row in dangling] == ["same-eq-deletes.parquet"]


def test_findings_of_several_processes_keep_the_first_examples_and_count_them_all() -> None:
    parts = [Findings(), Findings(), Findings()]
    for part, findings in enumerate(parts):
        for number in range(EXAMPLES - 5):
            findings.add("file-missing", f"{part}/{number}", "gone")
    whole = Findings()
    for findings in parts:
        whole.merge(findings)
    names = [f"{part}/{number}" for part in range(3) for number in range(EXAMPLES - 5)]
    result = CheckResult(rules=RULES, found=whole, deep=False, checked={})
    assert [finding.where for finding in result.findings()] == names[:EXAMPLES]
    assert result.left_out() == {"file-missing": len(names) - EXAMPLES}
    whole.add("file-missing", "one more", "gone")
    assert len(result.findings()) == EXAMPLES
    assert result.counts() == {"error": len(names) + 1, "warning": 0, "info": 0}


TOO_LONG = f"/{'x' * 300}/file"  # no system takes such a name, nor says whether it is there


def far_statistics(table: Sound) -> None:
    table.documents.append(
        lambda d: d.update(statistics=[{**table.statistics(), "statistics-path": TOO_LONG}])
    )


def far_vectors(table: Sound) -> None:
    table.deletes[0]["file_path"] = TOO_LONG


def far_manifest(table: Sound) -> None:
    table.rows.append(lambda rows: rows[1].update(manifest_path=TOO_LONG))


@pytest.mark.parametrize("far", [far_statistics, far_vectors, far_manifest])
@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_one_file_out_of_reach_is_named_and_all_others_are_checked(
    far: Break, deep: list[str], tmp_path: Path
) -> None:
    table = Sound(folder=tmp_path / "t")
    far(table)
    table.files.append(lambda folder: (folder / "data/b.parquet").unlink())
    ran = check(table.write(), *deep)
    assert {(finding["id"], finding["where"]) for finding in ran.json["findings"]} == {
        ("file-not-looked-at", TOO_LONG),
        ("file-missing", f"{tmp_path}/t/data/b.parquet"),
    }
    assert ran.code == 16
    assert "did not answer: 1 file; all others were" in ran.err


def test_a_list_out_of_reach_leaves_the_metadata_to_be_checked(tmp_path: Path) -> None:
    table = Sound(folder=tmp_path / "t")
    table.documents.append(current(manifest_list=TOO_LONG))
    far_statistics(table)
    ran = check(table.write())
    assert found(ran) == ["file-not-looked-at"] * 2
    assert ran.code == 16

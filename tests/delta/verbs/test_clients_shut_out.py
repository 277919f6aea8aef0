"""A verb that gives a table features says which clients do not know them, and shuts out the last one only if told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from iceberg_cli.testing.delta_writer import a_commit_info, a_metadata, a_protocol, an_add
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log, the_log

DELTA_RS = f"delta-rs:py-{deltalake.__version__}"
OLD_SPARK = "Apache-Spark/3.2.1 Delta-Lake/2.0.0"
NEW_SPARK = "Apache-Spark/4.1.4 Delta-Lake/4.4.0"
ALLOWED = ("--allow-writer-loss", DELTA_RS)
ROW_TRACKING = "it does not know domainMetadata, rowTracking, and could not write to the table any more"
RAISING = [("assign-row-ids",), ("upgrade-v3", "--feature", "rowTracking")]


def append(root: Path, value: int) -> None:
    deltalake.write_deltalake(root, pa.table({"n": pa.array([value], pa.int64())}), mode="append")


def written_by_delta_rs(root: Path) -> str:
    append(root, 1)
    append(root, 2)
    return str(root)


def written_by(root: Path, *clients: str) -> str:
    first, *others = ([a_commit_info(engineInfo=client)] for client in clients)
    a_log(root, [a_protocol(), a_metadata(), an_add(), *first], *others)
    return str(root)


def files_of(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def in_json(*words: object) -> tuple[int, dict[str, Any]]:
    ran = iceberg_cli(*words, "--format", "json")
    return ran.code, ran.json


@pytest.mark.parametrize("verb", RAISING, ids=lambda verb: verb[0])
def test_the_last_writer_is_not_shut_out_unasked(verb: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = verb
    table = written_by_delta_rs(tmp_path / "t")
    before = files_of(tmp_path)
    ran = iceberg_cli(name, table, *options, "--yes")
    assert ran.code == 11
    assert f"{DELTA_RS} wrote last: {ROW_TRACKING}" in " ".join(ran.err.split())
    assert f"--allow-writer-loss {DELTA_RS}" in " ".join(ran.err.split())
    code, plan = in_json(name, table, *options, "--dry-run")
    assert code == 0
    assert [text for text in plan["blocked_by"] if text.startswith(f"{DELTA_RS} wrote last")]
    [client] = [each for each in plan["verdicts"] if each["subject"] == "client"]
    assert (client["id"], client["reason"]) == (DELTA_RS, f"it wrote version 1; {ROW_TRACKING}")
    assert f"{DELTA_RS}: {ROW_TRACKING}" in plan["warnings"]
    assert files_of(tmp_path) == before
    append(tmp_path / "t", 3)


@pytest.mark.parametrize("verb", RAISING, ids=lambda verb: verb[0])
def test_it_is_where_the_operator_names_it(verb: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = verb
    table = written_by_delta_rs(tmp_path / "t")
    code, report = in_json(name, table, *options, *ALLOWED, "--yes")
    assert (code, report["status"]) == (0, "done")
    assert f"{DELTA_RS}: {ROW_TRACKING}" in report["notes"]
    assert "rowTracking" in (the_log(tmp_path / "t").snapshot().protocol.writer_features or ())
    with pytest.raises(
        deltalake.exceptions.DeltaError, match=r"(?i)unsupported.*(rowTracking|domainMetadata)"
    ):
        append(tmp_path / "t", 3)


def test_a_plan_of_before_is_not_carried_out_over_the_head_of_one_that_wrote_since(tmp_path: Path) -> None:
    table, plan = written_by(tmp_path / "t", NEW_SPARK), tmp_path / "plan.json"
    assert iceberg_cli("plan", table, "upgrade-v3", "--feature", "rowTracking", "-o", plan).code == 0
    append(tmp_path / "t", 3)
    ran = iceberg_cli("apply", plan, "--yes")
    assert ran.code == 11
    assert f"--allow-writer-loss {DELTA_RS}" in " ".join(ran.err.split())
    assert the_log(tmp_path / "t").snapshot().protocol.min_writer_version == 2


@pytest.mark.parametrize(
    ("clients", "code"),
    [
        ((OLD_SPARK, NEW_SPARK), 0),
        ((NEW_SPARK, OLD_SPARK), 11),
        ((OLD_SPARK, "a homemade writer"), 0),
        # Maintenance by this program does not make anybody else a writer of long ago.
        ((OLD_SPARK, "iceberg-cli/1.0.0"), 11),
    ],
)
def test_the_client_that_wrote_last_decides(clients: tuple[str, ...], code: int, tmp_path: Path) -> None:
    table = written_by(tmp_path / "t", *clients)
    _, plan = in_json("upgrade-v3", table, "--dry-run")
    assert bool(plan["blocked_by"]) == bool(code)
    assert [text for text in plan["warnings"] if text.startswith(f"{OLD_SPARK}: it does not know")]
    found, preflight = in_json("upgrade-v3", table, "--check")
    severities = {each["where"]: each["severity"] for each in preflight["findings"]}
    assert (found, severities[OLD_SPARK]) == (code, "blocking" if code else "warning")
    assert [each["id"] for each in preflight["findings"]].count("client-lacks-features") == 1


def test_a_client_that_wrote_its_name_only_as_its_version_is_known(tmp_path: Path) -> None:
    table = tmp_path / "t"
    info = {"commitInfo": {"operation": "WRITE", "clientVersion": "delta-rs.0.17.0"}}
    a_log(table, [a_protocol(), a_metadata(), an_add(), info])
    _, plan = in_json("upgrade-v3", table, "--feature", "rowTracking", "--dry-run")
    assert "--allow-writer-loss delta-rs.0.17.0" in json.dumps(plan["blocked_by"])


def test_nobody_is_asked_about_where_the_protocol_stays(tmp_path: Path) -> None:
    table = written_by(tmp_path / "t", OLD_SPARK)
    code, plan = in_json("upgrade-v3", table, "--feature", "appendOnly", "--dry-run")
    assert (code, plan["warnings"]) == (0, [])
    assert not [each for each in plan["verdicts"] if each["subject"] == "client"]


@pytest.mark.parametrize("verb", ["assign-row-ids", "merge-dvs", "upgrade-v3"])
def test_a_name_that_is_empty_is_refused(verb: str, tmp_path: Path) -> None:
    table = written_by(tmp_path / "t", NEW_SPARK)
    ran = iceberg_cli(verb, table, "--allow-writer-loss", "", "--dry-run")
    assert (ran.code, ran.out) == (2, "")
    assert "--allow-writer-loss is empty" in ran.err

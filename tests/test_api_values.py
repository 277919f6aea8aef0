"""Values of the API: how times are given, what errors name, and how plans, rows and reports show themselves."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import iceberg_cli as ic
from iceberg_cli.errors import IcebergCliError, Refused, UsageError
from tests.cli.lakes import AS_OF_MS, GONE, delta_with_removed_files, four_snapshots
from tests.cli.running import iceberg_cli
from tests.paths import ROOT

DAY_MS = 86_400_000
# The first ms of the year 2000, by the calendar and not by the package.
YEAR_2000_MS = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1_000)
AS_OF = datetime.fromtimestamp(AS_OF_MS / 1_000, UTC)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """`four_snapshots` in a folder."""
    four_snapshots(tmp_path / "t").publish()
    return tmp_path / "t"


def expired(folder: Path, **policy: Any) -> ic.Plan:
    return ic.open_table(str(folder)).plan(ic.iceberg.ExpireSnapshots(**policy), as_of=AS_OF)


def page_in(frame: str | None) -> str:
    """The page in what a notebook gets."""
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', frame or ""
    )
    assert found is not None
    return html.unescape(found[1])


# -- times and durations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        AS_OF_MS - DAY_MS,
        f"{AS_OF_MS - DAY_MS}",
        "1d",
        "P1D",
        timedelta(days=1),
        AS_OF - timedelta(days=1),
        (AS_OF - timedelta(days=1)).astimezone(timezone(timedelta(hours=5, minutes=30))),
        (AS_OF - timedelta(days=1)).isoformat(),
    ],
    ids=str,
)
def test_point_in_time_is_given_in_many_ways(table: Path, given: Any) -> None:
    assert expired(table, older_than=given).content.policy["older_than_ms"] == AS_OF_MS - DAY_MS
    opened = ic.open_table(str(table))
    if isinstance(given, datetime | int):
        assert opened.inspect(as_of=given).to_json()["as_of_ms"] == AS_OF_MS - DAY_MS


def test_now_of_ages_may_be_how_long_ago_it_was(table: Path) -> None:
    opened = ic.open_table(str(table))
    for as_of in (timedelta(hours=1), "1h"):
        before_ms = time.time() * 1_000 - 3_600_000  # noqa: TID251 - of what the package reads itself
        found_ms = opened.inspect(as_of=as_of).to_json()["as_of_ms"]
        assert before_ms - 1 <= found_ms <= before_ms + 60_000


@pytest.mark.parametrize("given", [3_600_000, "1h", "PT1H", timedelta(hours=1)], ids=str)
def test_duration_is_given_in_many_ways(given: Any) -> None:
    assert ic.iceberg.ExpireSnapshots(grace=given).grace == 3_600_000
    assert (
        ic.delta.ExpireSnapshots(retention=given, log_retention=given).to_json()["retention_ms"] == 3_600_000
    )


def test_state_is_chosen_by_when_it_was_current(table: Path) -> None:
    opened = ic.open_table(str(table))
    before_third = AS_OF - timedelta(days=7, hours=12)  # the second of the four is 8 days old, the third 7
    for at in (before_third, before_third.isoformat(), round(before_third.timestamp() * 1_000)):
        paths = opened.inspect("files", at=at).to_arrow()["file_path"].to_pylist()
        assert {path.rpartition("/")[2] for path in paths} == {"keep.parquet", "two.parquet"}


def test_number_before_the_year_2000_is_refused_as_seconds(table: Path) -> None:
    opened = ic.open_table(str(table))
    calls: dict[str, Callable[[Any], object]] = {
        "older_than": lambda ms: ic.iceberg.ExpireSnapshots(older_than=ms),
        "as_of": lambda ms: opened.plan(ic.iceberg.ExpireSnapshots(), as_of=ms),
        "at": lambda ms: opened.inspect("files", at=ms),
        "deadline": lambda ms: ic.new_runtime(deadline=ms),
    }
    for name, call in calls.items():
        for ms in (0, -1, AS_OF_MS // 1_000, YEAR_2000_MS - 1):
            with pytest.raises(UsageError, match=f"^{name}: {ms} is .*milliseconds") as caught:
                call(ms)
            assert "milliseconds and not seconds" in caught.value.next_step
    assert ic.iceberg.ExpireSnapshots(older_than=YEAR_2000_MS).older_than == YEAR_2000_MS
    # A plan file is no program: it may have any number.
    assert ic.iceberg.ExpireSnapshots.from_json(
        {**ic.iceberg.ExpireSnapshots().to_json(), "older_than_ms": 5}
    ).older_than == 5  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2026, 1, 1), "has no zone"),  # noqa: DTZ001 - what is refused
        (True, "True is no time"),
        (1.5, "1.5 is no time"),
        (timedelta(days=-1), "must not be negative"),
        (b"1d", "is no time"),
    ],
)
def test_what_is_no_time_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"^older_than.*{message}"):
        ic.iceberg.ExpireSnapshots(older_than=given)


def test_time_in_the_future_is_refused(table: Path) -> None:
    opened = ic.open_table(str(table))
    for as_of in (datetime(2999, 1, 1, tzinfo=UTC), "2999-01-01"):
        with pytest.raises(UsageError, match=r"^as_of: .* is in the future"):
            opened.inspect(as_of=as_of)


def test_deadline_is_a_time_or_how_long_from_now() -> None:
    for deadline in (timedelta(hours=1), "1h"):
        runtime = ic.new_runtime(deadline=deadline)
        assert runtime.deadline_ms is not None
        assert 3_590_000 < runtime.deadline_ms - runtime.now_ms() <= 3_600_000
    for deadline in (datetime(2999, 1, 1, tzinfo=UTC), "2999-01-01T00:00:00Z", 32_472_144_000_000):
        assert ic.new_runtime(deadline=deadline).deadline_ms == 32_472_144_000_000


# -- errors ----------------------------------------------------------------------------------------------------


def test_errors_name_arguments_and_those_of_the_command_line_options(table: Path, tmp_path: Path) -> None:
    opened = ic.open_table(str(table))
    delta = ic.open_table(delta_with_removed_files(tmp_path / "d", "b"))
    calls: list[tuple[Callable[[], object], str, tuple[object, ...], str]] = [
        (lambda: expired(table, retain_last=0), "retain_last must",
         ("expire-snapshots", table, "--retain-last", 0), "--retain-last must"),
        (lambda: expired(table, older_than="soon"), "older_than: 'soon'",
         ("expire-snapshots", table, "--older-than", "soon"), "--older-than: 'soon'"),
        (lambda: expired(table, snapshot_ids=[9]), "Cannot expire by snapshot_ids 9",
         ("expire-snapshots", table, "--snapshot-id", 9), "Cannot expire by --snapshot-id 9"),
        (lambda: ic.iceberg.UpgradeV3(tags="keep"), "tags='keep' needs recipe",
         ("upgrade-v3", table, "--unsafe-keep-tags"), "--unsafe-keep-tags needs --with"),
        (lambda: opened.inspect("files", version=3), "version is about Delta",
         ("inspect", table, "files", "--version", 3), "--version is about Delta"),
        (lambda: opened.inspect("files", ref="main", snapshot_id=1), "snapshot_id, ref and at each",
         ("inspect", table, "files", "--ref", "main", "--snapshot", 1), "--snapshot, --ref and --at each"),
        (lambda: delta.inspect(recount=True), "recount is about",
         ("inspect", tmp_path / "d", "--recount"), "--recount is about"),
        (lambda: delta.check(snapshots=3), "snapshots is about the snapshots of Iceberg",
         ("inspect", tmp_path / "d", "--check", "--snapshots", 3), "--snapshots is about the snapshots of Iceberg"),
        (lambda: ic.open_table(str(table), allow_roots=["/"]), "allow_roots: '/'",
         ("merge-dvs", table, "--unsafe-allow-root", "/"), "--unsafe-allow-root: '/'"),
        (lambda: ic.EngineChoice(engine="local", master="local[2]"), "engine local takes no master, remote or conf",
         ("inspect", table, "--engine", "local", "--spark-master", "local[2]"),
         "--engine local takes no --spark-master, --spark-remote or --spark-conf"),
    ]  # fmt: skip
    for call, message, command, of_command in calls:
        with pytest.raises(IcebergCliError) as caught:
            call()
        assert str(caught.value).startswith(message)
        assert "--" not in f"{caught.value} {caught.value.next_step}"
        ran = iceberg_cli(*command)
        assert ran.code == 2
        assert f"error: {of_command}" in ran.err
        assert "the call" not in ran.err


def test_interlock_names_the_argument_that_lifts_it(table: Path, tmp_path: Path) -> None:
    (table / "data").rename(tmp_path / "elsewhere")
    (table / "data").symlink_to(tmp_path / "elsewhere")
    plan = expired(table, older_than="1d", retain_last=1)
    assert "--unsafe-allow-root" in str(plan), "it is the text of the command"
    with pytest.raises(Refused) as caught:
        ic.open_table(str(table)).apply(plan)
    assert "allow_roots" in f"{caught.value} {caught.value.next_step}"
    assert "--unsafe" not in f"{caught.value} {caught.value.next_step}"
    allowed = ic.open_table(str(table), allow_roots=[str(tmp_path / "elsewhere")])
    assert (
        allowed.apply(allowed.plan(ic.iceberg.ExpireSnapshots(older_than="1d"), as_of=AS_OF)).status == "done"
    )


def test_usage_error_of_a_program_speaks_of_the_call(table: Path) -> None:
    with pytest.raises(UsageError) as caught:
        expired(table, retain_last=0)
    assert caught.value.next_step == "Correct the call: `help()` of what is called shows its arguments."


# -- names -----------------------------------------------------------------------------------------------------


def test_dir_shows_the_api_and_nothing_else_and_loads_nothing() -> None:
    policies = {
        "AssignRowIds", "ExpireSnapshots", "MergeDvs", "RewriteDataFiles", "RewriteManifests", "Undo", "UpgradeV3",
    }  # fmt: skip
    assert (set(dir(ic.iceberg)), set(dir(ic.delta))) == (
        policies | {"RemoveOrphanFiles", "Restore", "Tag", "Undo"},
        policies | {"Restore", "Undo"},
    )
    assert {
        *("Plan", "Policy", "Report", "Table", "list_tables", "maintain", "open_table", "survey"),
        *("delta", "errors", "iceberg"),
    } < set(dir(ic))
    hidden = {"Any", "TYPE_CHECKING", "annotations", "import_module", "api", "fleet", "plan", "cli"}
    assert not hidden & set(dir(ic))
    program = (
        "import sys, iceberg_cli as ic; dir(ic), ic.maintain, ic.survey, ic.list_tables;"
        "print({*sys.modules} & {'pyarrow', 'numpy', 'rich', 'typer', 'jinja2', 'sqlite3', 'iceberg_cli.api'})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "set()\n"


# -- text, lines, pages and columns ------------------------------------------------------------------------------


def test_plan_and_report_print_as_the_command_does(table: Path) -> None:
    words = ("--older-than", "1d", "--retain-last", 1, "--as-of", AS_OF_MS)
    plan = expired(table, older_than="1d", retain_last=1)
    assert f"{plan}\n" == iceberg_cli("expire-snapshots", table, *words, "--dry-run").out
    assert (
        repr(plan)
        == f"Plan(expire-snapshots of {shortened(table)}: {len(GONE)} files, {size_of(plan)} freed)"
    )
    assert (len(plan.removals), plan.removals.to_arrow().num_rows) == (len(GONE), len(GONE))
    report = ic.open_table(str(table)).apply(plan)
    assert repr(report) == f"Report(expire-snapshots of {shortened(table)}: done, {size_of(plan)} freed)"
    assert str(report).startswith(f"expire-snapshots: Done; {len(GONE)} files deleted, ")
    assert f"table      {table}" in str(report).splitlines()
    assert report.to_json()["table"] == {"name": str(table), "location": str(table), "format": "iceberg"}


def shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 40 else f"...{text[-37:]}"


def size_of(plan: ic.Plan) -> str:
    total = sum(plan.removals.to_arrow()["size_bytes"].to_pylist())
    return f"{total} B" if total < 1024 else f"{total / 1024:.1f} KiB"


def test_inspections_and_checks_print_as_the_command_does(table: Path) -> None:
    opened = ic.open_table(str(table))
    for what in ("summary", "snapshots", "files", "refs", "properties"):
        shown = iceberg_cli("inspect", table, what, "--as-of", AS_OF_MS).out
        assert f"{opened.inspect(what, as_of=AS_OF)}\n" == shown
    assert f"{opened.diff('8d', as_of=AS_OF)}\n".count("\n") > 3
    checked = opened.check(as_of=AS_OF)
    assert f"{checked}\n" == iceberg_cli("inspect", table, "--check", "--as-of", AS_OF_MS).out


def test_every_value_is_named_in_a_line(table: Path) -> None:
    opened = ic.open_table(str(table))
    plan = expired(table, older_than="1d")
    values = [
        opened,
        plan,
        plan.removals,
        opened.inspect(),
        opened.diff("8d"),
        opened.check(),
        opened.apply(plan),
    ]
    for value in values:
        assert "\n" not in repr(value)
        assert len(repr(value)) < 120, repr(value)


def test_pages_of_values_have_what_their_text_has(table: Path) -> None:
    opened = ic.open_table(str(table))
    plan = expired(table, older_than="1d", retain_last=1)
    checked = opened.check()  # its data files are none
    for value, words in (
        (plan, ["Verdict", "older than the cut-off", "manifest lists"]),
        (opened.inspect(), ["Inspection", "Current snapshot"]),
        (opened.inspect("refs"), ["Refs", "branch"]),
        (opened.diff("8d"), ["Diff", "data files"]),
        (checked, ["Check", checked.findings[0]["message"]]),
        (opened.apply(plan), ["Report", "deleted manifest lists"]),
    ):
        page = page_in(value._repr_html_())
        assert page.startswith("<!DOCTYPE html>")
        for word in (*words, str(table)):
            assert word in page, (repr(value), word)


def test_value_has_no_page_where_what_makes_pages_is_not_installed(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "markupsafe", None)  # of jinja2, which this process may have loaded
    assert expired(table)._repr_html_() is None


def test_columns_have_types_also_where_there_are_no_rows(table: Path, tmp_path: Path) -> None:
    opened = ic.open_table(str(table))
    statistics = opened.inspect("statistics", limit=1)
    assert len(opened.inspect("snapshots")) == 4
    assert len(opened.inspect("files", limit=2)) == 2
    assert opened.inspect("snapshots").to_arrow()["snapshot_id"].to_pylist() == [1, 2, 3, 4]
    types = dict(zip(statistics.to_arrow().schema.names, statistics.to_arrow().schema.types, strict=True))
    assert (types["snapshot_id"], types["statistics_path"]) == (pa.int64(), pa.string())
    findings = opened.check()
    assert findings.to_arrow().to_pylist() == list(findings.document["findings"])
    assert len(findings) == len(findings.document["findings"])
    assert findings.to_arrow().schema.names == ["id", "severity", "where", "message", "section", "remedy"]
    for what in ("properties", "row-ids", "metadata-log", "schemas", "specs", "refs", "history", "manifests"):
        columns = opened.inspect(what).to_arrow()
        assert columns.schema == opened.inspect(what, limit=0).to_arrow().schema, what
        assert not [each for each in columns.schema if pa.types.is_null(each.type)], what
    snapshots = opened.inspect("snapshots")
    for column, row in zip(snapshots.to_arrow().to_pylist(), snapshots.to_json()["rows"], strict=True):
        ids = {name: row[name] and int(row[name]) for name in ("snapshot_id", "parent_id", "sequence_number")}
        assert {**column, "summary": dict(column["summary"])} == {**row, **ids}
    delta = ic.open_table(delta_with_removed_files(tmp_path / "d", "b"))
    for what in ("history", "schemas", "properties", "protocol", "features"):
        columns = delta.inspect(what).to_arrow()
        assert columns.num_rows == len(delta.inspect(what).to_json()["rows"])
        assert not [each for each in columns.schema if pa.types.is_null(each.type)], what
    assert delta.inspect("protocol").to_arrow()["minWriterVersion"].to_pylist() == [2]


def test_data_frame_has_the_same_rows_where_pandas_is_installed(table: Path) -> None:
    rows, removals = ic.open_table(str(table)).inspect("snapshots"), expired(table).removals
    if find_spec("pandas") is None:
        for value in (rows, removals):
            with pytest.raises(UsageError, match="needs the Python package pandas") as caught:
                value.to_pandas()
            assert caught.value.next_step == "Install it with: pip install 'pandas'"
        return
    assert rows.to_pandas()["snapshot_id"].tolist() == [1, 2, 3, 4]
    assert len(removals.to_pandas()) == len(GONE)

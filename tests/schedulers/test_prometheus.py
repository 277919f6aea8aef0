"""The alert rules and the dashboard are about series that there are, and the rules fire on what they say, no more."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml

from tests.cli.running import iceberg_cli
from tests.fleet.builder import build_fleet
from tests.fleet.maintaining import EXPIRE, policy_file
from tests.go_servers import PROMTOOL
from tests.prometheus import PREFIX, Samples
from tests.schedulers.machine import EXAMPLES
from tests.servers import go_binary

RULES: Final = EXAMPLES / "iceberg-cli-alerts.yaml"
ALERTS: Final = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
PANELS: Final = json.loads((EXAMPLES / "iceberg-cli-dashboard.json").read_text(encoding="utf-8"))["panels"]
TIMES: Final = "_timestamp_seconds"


@dataclass(frozen=True)
class Night:
    """What a collector reads after a `maintain` and a `survey`, and which table is what."""

    files: tuple[Path, ...]
    samples: Samples
    broken: str
    waiting: str  # it has an open operation
    delta: str
    left_out: str  # of the policy of `maintain`


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    root = tmp_path_factory.mktemp("night")
    ills = ["manifest missing"]
    fleet = build_fleet(root, {("folder", "iceberg"): 3, ("folder", "delta"): 1}, broken=ills)
    broken, waiting, left_out, delta = (table.name for table in fleet.tables)
    waits = 'expire-snapshots = { older-than = "5d", retain-last = 1, grace = "1d" }'
    own = ["[[tables]]", f'match = ["{waiting}"]', waits]
    policy = policy_file(root / "policy.toml", EXPIRE, [broken, waiting, delta], more=own)
    files = root / "nightly.prom", root / "survey.prom", root / "one.prom"
    ran = iceberg_cli("maintain", "--policy", policy, "--yes", "--metrics", files[0])
    assert ran.code == 15, ran.err
    assert iceberg_cli("survey", *fleet.patterns, "--no-cache", "--metrics", files[1]).code == 15
    assert iceberg_cli("merge-dvs", left_out, "--yes", "--metrics", files[2]).code == 0
    return Night(files, Samples.of(*files), broken, waiting, delta, left_out)


# -- names and labels ----------------------------------------------------------------------------------------------


def test_rules_and_panels_name_series_and_labels_that_there_are(night: Night) -> None:
    known = night.samples.names()
    for rule in ALERTS:
        labels = labels_of(promql.parse(rule["expr"]), known)
        texts = " ".join(rule["annotations"].values())
        assert {*re.findall(r"\$labels\.(\w+)", texts)} <= labels, rule["alert"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) > 0
    for panel in PANELS:
        for target in panel["targets"]:
            labels = labels_of(promql.parse(target["expr"]), known)
            assert {*re.findall(r"{{(\w+)}}", target["legendFormat"])} <= labels, panel["title"]


def test_a_name_or_label_that_there_is_not_is_noticed(night: Night) -> None:
    known = night.samples.names()
    for wrong in (
        "max by (table) (iceberg_cli_grades)", 'iceberg_cli_grade{tables=""}', "max by (run_id) (iceberg_cli_grade)",
        "iceberg_cli_grade and on (kind) iceberg_cli_grade", "sum(iceberg_cli_due_bytes{kind=~'.+'}) > 1",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            labels_of(promql.parse(wrong), known)


def test_every_series_of_tables_is_on_the_dashboard(night: Night) -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    of_tables = {PREFIX + each.name for each in night.samples.found if {"table", "run"} <= each.labels.keys()}
    assert of_tables == {name for name in of_tables if name in shown}
    assert len(of_tables) == 6


def labels_of(expression: Any, known: Mapping[str, set[str]]) -> set[str]:
    """The labels of what a query gives.

    Args:
        expression: of PromQL.
        known: the labels of each series that there is.

    Raises:
        AssertionError: it is about a series or a label that there is not.
    """
    match expression:
        case promql.VectorSelector():
            assert expression.name in known
            labels = known[expression.name]
            assert {each.name for each in expression.matchers.matchers} <= labels
            return labels
        case promql.AggregateExpr():
            labels = labels_of(expression.expr, known)
            if expression.modifier is None:
                return labels if str(expression.op) == "topk" else set()
            assert {*expression.modifier.labels} <= labels
            return {*expression.modifier.labels}
        case promql.BinaryExpr():
            left, right = (labels_of(each, known) for each in (expression.lhs, expression.rhs))
            if (modifier := expression.modifier) is not None and modifier.matching is not None:
                assert {*modifier.matching.labels} <= left & right
            return left or right
        case promql.Call():
            return {label for each in expression.args for label in labels_of(each, known)}
        case promql.ParenExpr():
            return labels_of(expression.expr, known)
        case promql.NumberLiteral():
            return set()
    raise AssertionError(f"an expression of another kind: {expression}")


# -- by Prometheus itself ------------------------------------------------------------------------------------------


def promtool(*arguments: object, text: str = "") -> str:
    """What promtool prints, which finds nothing wrong; `text`: its standard input."""
    command = [go_binary(PROMTOOL), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deep  # promtool is built for it
def test_promtool_takes_the_files_and_the_rules(night: Night) -> None:
    for file in night.files:
        assert promtool("check", "metrics", text=file.read_text()) == ""
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", "--lint-fatal", RULES)


@pytest.mark.deep  # promtool is built for it
def test_rules_fire_on_what_they_are_about_and_on_nothing_else(night: Night, tmp_path: Path) -> None:
    never_again = [
        ("IcebergCliDoesNotRun", {"verb": "maintain", "run": "nightly"}),
        ("IcebergCliDoesNotRun", {"verb": "survey", "run": "survey"}),
    ]
    fails = [
        ("IcebergCliRunFails", {"verb": "maintain", "run": "nightly"}),
        ("IcebergCliRunFails", {"verb": "survey", "run": "survey"}),
        ("IcebergVerbFails", {"table": night.broken, "verb": "expire-snapshots"}),
        ("IcebergVerbFails", {"table": night.broken, "verb": "survey"}),
        *(
            ("IcebergVerbHasNoSuccess", {"table": table, "verb": "expire-snapshots"})
            for table in (night.waiting, night.delta)
        ),
        ("IcebergVerbHasNoSuccess", {"table": night.left_out, "verb": "merge-dvs"}),
    ]
    broken = [("IcebergTableBroken", {"table": night.broken})]
    overdue = [("IcebergTableOverdue", {"table": night.left_out})]
    is_open = [("IcebergOperationStaysOpen", {"table": night.waiting})]
    check_firing(
        tmp_path,
        night.samples,
        {
            "1h": broken,
            "27h": broken + never_again,
            "52h": broken + never_again + fails,
            "73h": broken + never_again + fails + overdue,
            "9d": broken + never_again + fails + overdue + is_open,
        },
    )


@pytest.mark.deep  # promtool is built for it
def test_rules_fire_on_what_is_rare(night: Night, tmp_path: Path) -> None:
    rare = {"grade": 4.0, "failed_deletes": 2.0, "due_bytes": 2.0**41}
    samples = [each._replace(value=rare[each.name]) for each in night.samples.found if each.name in rare]
    now = next(each for each in night.samples.found if each.name == f"last_run{TIMES}")
    runs = [
        {"verb": "maintain", "run": "nightly"},
        {"verb": "survey", "run": "survey"},
        {"verb": "merge-dvs"},
    ]
    tables = (night.broken, night.waiting, night.left_out, night.delta)
    check_firing(
        tmp_path,
        Samples([*samples, now]),
        {
            "25h": [],
            "49h": [
                ("IcebergCliDoesNotRun", {"verb": now.labels["verb"], "run": now.labels["run"]}),
                *(("IcebergCliDeletionsFail", run) for run in runs),
                *(("IcebergTableUnreadable", {"table": table}) for table in tables),
                *(("IcebergManyBytesDue", {"table": table}) for table in tables if table != night.broken),
            ],
        },
    )


Alert = tuple[str, Mapping[str, str]]  # its name, and its labels but for the severity


def check_firing(folder: Path, samples: Samples, expected: Mapping[str, Sequence[Alert]]) -> None:
    """Have Prometheus evaluate the rules over series that stay as they are: what fires after some times.

    Args:
        folder: for files.
        samples: of the series.
        expected: by time, the alerts.
    """
    shutil.copy(RULES, folder)
    fires = [
        {
            "expr": 'group by (alertname, table, verb, run) (ALERTS{alertstate="firing"})',
            "eval_time": after,
            "exp_samples": [
                {"labels": as_text({"alertname": name, **labels}), "value": 1} for name, labels in alerts
            ],
        }
        for after, alerts in expected.items()
    ]
    series = list(series_of(samples, intervals=2 * 24 * 10))
    test = {"interval": "30m", "input_series": series, "promql_expr_test": fires}
    document = {"rule_files": [RULES.name], "evaluation_interval": "30m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", folder / "test.yaml")


def series_of(samples: Samples, *, intervals: int) -> Iterator[dict[str, str]]:
    """The samples as series that stay as they are for so many intervals; the first run ended at the epoch."""
    ended_s = min(each.value for each in samples.found if each.name == f"last_run{TIMES}")
    for each in samples.found:
        value = each.value - ended_s if each.name.endswith(TIMES) else each.value
        yield {"series": f"{PREFIX}{each.name}{as_text(each.labels)}", "values": f"{value:.3f}x{intervals}"}


def as_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"

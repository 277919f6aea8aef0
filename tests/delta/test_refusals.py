"""Refusals of Delta tables that no verb's own tests come to: each is seen, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_cli.delta.spec.checkpoints.columns import inferred
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import Refused
from iceberg_cli.plan.plan import Change, Step
from iceberg_cli.testing.delta_writer import a_metadata, a_protocol, a_protocol_with, an_add, write_log
from tests.cli.lakes import unchanged
from tests.cli.running import iceberg_cli
from tests.delta_opened import Operator, a_log, opened

COORDINATOR = "delta.coordinatedCommits.commitCoordinator-preview"


@pytest.mark.parametrize(
    ("protocol", "configuration", "why"),
    [
        (a_protocol(1, 8), {}, "the writer version is 8, and at most 7 is known here"),
        (
            a_protocol(),
            {COORDINATOR: "dynamodb"},
            f"{COORDINATOR} is dynamodb, which decides which commits count",
        ),
    ],
)
def test_a_table_that_is_not_written_to(
    tmp_path: Path, protocol: dict[str, object], configuration: dict[str, str], why: str
) -> None:
    a_log(tmp_path / "t", [protocol, a_metadata(configuration=configuration), an_add()])
    with unchanged(tmp_path / "t"):
        ran = iceberg_cli("rewrite-manifests", tmp_path / "t", "--checkpoint", "classic", "--yes")
    assert ran.code == 11
    assert why in " ".join(ran.err.split())


def test_a_table_that_is_not_written_to_any_more_gets_no_checkpoint(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [a_protocol(), a_metadata(), an_add()])
    operator = Operator(VERBS["rewrite-manifests"])
    table, made = operator.prepare(tmp_path / "t", checkpoint="classic")
    write_log(tmp_path / "t", [a_protocol_with("newFeature")], first=1)
    table.load()
    [step] = made.plan.steps
    with pytest.raises(Refused, match=r"Cannot write to the log of .*newFeature"):
        made.build(step, {})


def test_a_commit_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    a_log(tmp_path / "t", [a_protocol(), a_metadata(), an_add()])
    table = opened(tmp_path / "t")
    change = Change(updates=({"commitInfo": {"operation": "WRITE"}}, {"domainMetadata": {"domain": 5}}))
    with unchanged(tmp_path / "t"), pytest.raises(Refused, match="the table could not be read then"):
        table.bind(
            Step(name="s", change=change), {}, timestamp_ms=1, commit_uuid="c", operation_id="o", mark="0"
        )


def test_values_that_a_checkpoint_would_change_are_not_written() -> None:
    """Of a whole number and one with a fraction Parquet has two fractions, and another text for the first."""
    assert inferred([1, 2], "x").to_pylist() == [1, 2]
    with pytest.raises(Refused, match=r"the values of x, .* would be other ones there"):
        inferred([{"a": 1}, {"b": 2**60 + 1, "a": 1.5}], "x")

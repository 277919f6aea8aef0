"""Asking about many files of which some are out of reach: the others are answered, in few requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from iceberg_cli.errors import BackendUnavailable, UsageError
from iceberg_cli.plan.findings import Findings
from iceberg_cli.table.stored_files import within_reach

ROOT = "/lake/t"
OWN = [f"{ROOT}/{number}.parquet" for number in range(1_000)]
ABROAD = [f"s3://bucket/{number}.parquet" for number in range(1_000)]


class Answers:
    """Answers for files but those that are out of reach, and counts how often it was asked."""

    def __init__(self, out_of_reach: Collection[str], error: type[BackendUnavailable | UsageError]) -> None:
        self.out_of_reach = frozenset(out_of_reach)
        self.error = error
        self.calls = 0

    def __call__(self, paths: Sequence[str]) -> list[str]:
        self.calls += 1
        if bad := self.out_of_reach.intersection(paths):
            raise self.error(f"no answer for {min(bad)}")
        return list(paths)


def answered(
    paths: Sequence[str],
    out_of_reach: Collection[str],
    error: type[BackendUnavailable | UsageError] = BackendUnavailable,
) -> tuple[list[str], Findings, int]:
    findings, answers = Findings(), Answers(out_of_reach, error)
    parts = within_reach(paths, str, answers, findings, root=ROOT)
    return sorted(path for part in parts for path in part), findings, answers.calls


def test_where_all_is_within_reach_it_is_one_request() -> None:
    assert answered(OWN + ABROAD, []) == (sorted(OWN + ABROAD), Findings(), 1)
    assert answered([], []) == ([], Findings(), 0)


def test_one_file_out_of_reach_is_found_among_many_and_the_others_are_answered() -> None:
    for bad in (OWN[0], OWN[617], ABROAD[-1]):
        found, findings, calls = answered(OWN + ABROAD, [bad])
        assert found == sorted({*OWN, *ABROAD} - {bad})
        assert findings.examples == {
            "file-not-looked-at": [(bad, f"it was not looked at: no answer for {bad}")]
        }
        assert calls < 30


def test_a_place_that_does_not_answer_at_all_is_asked_a_few_times_only() -> None:
    found, findings, calls = answered(OWN + ABROAD, ABROAD)
    assert found == sorted(OWN)
    assert findings.totals == {"file-not-looked-at": len(ABROAD)}
    assert calls < 30


def test_files_without_a_storage_here_are_one_finding_of_their_place() -> None:
    found, findings, calls = answered(OWN + ABROAD, ABROAD, UsageError)
    assert (found, calls) == (sorted(OWN), 3)
    assert findings.examples == {"file-out-of-reach": [(ABROAD[0], f"no answer for {min(ABROAD)}")]}
    assert findings.totals == {"file-out-of-reach": len(ABROAD)}

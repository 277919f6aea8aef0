"""What is due as money a month: by prices of a file, beside the bytes and manifests that a survey has."""

from __future__ import annotations

from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.prices import Prices, load_prices
from tests.cli.lakes import AS_OF, AS_OF_MS, four_snapshots
from tests.cli.running import JSON, iceberg_cli


def row(
    *due: tuple[int | None, list[str]], manifests: int = 0, ratio: float | None = None
) -> dict[str, object]:
    return {
        "due": [{"bytes": size, "blocked_by": blocked_by} for size, blocked_by in due],
        "manifests": manifests,
        "manifest_target_ratio": ratio,
    }


def test_bytes_that_are_freed_and_manifests_beyond_those_that_would_do_cost_money() -> None:
    prices = Prices(currency="EUR", storage_gb_month=0.02, requests_1000=0.5, scans_per_month=100)
    # 3 GB at 0.02, and 75 of 100 manifests, each read by a request 100 times a month, at 0.5 a thousand.
    found = prices.cost(row((1_000_000_000, []), (2_000_000_000, []), manifests=100, ratio=4.0))
    assert found == {"currency": "EUR", "month": 0.06 + 3.75}


@pytest.mark.parametrize(
    ("freed", "month"),
    [
        (row((5_000_000_000, ["gc.enabled is false"]), (None, [])), 0.0),
        (row(manifests=10, ratio=1.0), 0.0),
        (row(manifests=10, ratio=0.5), 0.0),
        (row(manifests=10), 0.0),
        (row(manifests=0, ratio=2.0), 0.0),
        (row((1_500_000_000, [])), 3.0),
    ],
    ids=[
        "blocked or unknown",
        "no spare manifests",
        "fewer than would do",
        "unknown ratio",
        "none",
        "storage alone",
    ],
)
def test_what_frees_nothing_costs_nothing(freed: dict[str, object], month: float) -> None:
    prices = Prices(currency="USD", storage_gb_month=2.0, requests_1000=1.0, scans_per_month=1000.0)
    assert prices.cost(freed)["month"] == month


def test_a_file_of_prices_is_read_with_what_it_may_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "USD"\nstorage-gb-month = 1\n')
    assert load_prices(str(path)) == Prices(currency="USD", storage_gb_month=1.0)
    path.write_text('currency = "USD"\nstorage-gb-month = 0.023\nrequests-1000 = 0.4\nscans-per-month = 30\n')
    assert load_prices(str(path)) == Prices(
        currency="USD", storage_gb_month=0.023, requests_1000=0.4, scans_per_month=30.0
    )


GOOD = 'currency = "USD"\nstorage-gb-month = 1\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("currency = ", "Invalid value"),
        (GOOD + "storage = 1\n", "storage is no price"),
        (GOOD + "scans-per-monht = 1\n", "Did you mean 'scans-per-month'?"),
        ("storage-gb-month = 1\n", 'currency must be a text, such as "USD"'),
        ('currency = ""\nstorage-gb-month = 1\n', "currency must be a text"),
        ("currency = 1\nstorage-gb-month = 1\n", "currency must be a text"),
        ('currency = "USD"\n', "storage-gb-month is missing"),
        ('currency = "USD"\nstorage-gb-month = -1\n', "must be a number that is not negative, not -1"),
        ('currency = "USD"\nstorage-gb-month = inf\n', "not inf"),
        ('currency = "USD"\nstorage-gb-month = nan\n', "not nan"),
        ('currency = "USD"\nstorage-gb-month = true\n', "not True"),
        (GOOD + 'requests-1000 = "1"\n', "not '1'"),
    ],
)
def test_a_file_that_has_no_prices_is_one_clear_error(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_prices(str(path))
    assert str(path) in str(caught.value)
    assert message in f"{caught.value} {caught.value.next_step}"
    ran = iceberg_cli("survey", tmp_path, "--prices", path)
    assert (ran.code, ran.out) == (2, "")


def test_a_survey_shows_each_table_and_all_of_them_as_money(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "lake" / "t").publish()
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "USD"\nstorage-gb-month = 1000000\n')  # a thousandth a byte
    arguments = ("survey", table, *AS_OF)
    plain = iceberg_cli(*arguments, *JSON).json
    assert (plain["tables"][0]["cost"], plain["totals"]["cost"]) == (None, [])
    found = iceberg_cli(*arguments, "--prices", prices, *JSON).json
    freed = plain["totals"]["freed_bytes"]
    assert freed > 0
    assert found["tables"][0]["cost"] == {"currency": "USD", "month": freed / 1_000}
    assert found["totals"]["cost"] == [{"currency": "USD", "month": freed / 1_000}]
    shown = iceberg_cli(*arguments, "--prices", prices).out
    assert f", {freed / 1_000:,.2f} USD a month" in shown
    assert "a month" in next(line for line in shown.splitlines() if "grade" in line)
    result = ic.survey(str(table), prices=prices, as_of=AS_OF_MS)
    assert result.to_json()["totals"] == found["totals"]
    assert repr(result).startswith("SurveyResult(1 table, 1 due, ")

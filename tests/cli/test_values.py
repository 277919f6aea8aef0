"""How durations, times and sizes are written; what cannot be read is named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from iceberg_cli.cli.options.arguments import key_value, positive
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Size
from iceberg_cli.plan.text import duration_ms, size_bytes, time_ms
from tests.cli.lakes import four_snapshots
from tests.cli.running import iceberg_cli

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7d", 7 * DAY_MS),
        ("12h", DAY_MS // 2),
        ("30m", 1_800_000),
        ("1w", 7 * DAY_MS),
        ("90s", 90_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("0s", 0),
        ("P7D", 7 * DAY_MS),
        ("P1W", 7 * DAY_MS),
        ("PT12H", DAY_MS // 2),
        ("P1DT1H1M1S", DAY_MS + 3_661_000),
    ],
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    assert duration_ms(text, "--grace") == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "7 d",
        "7y",
        "7D",
        "-7d",
        "7d12h",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "P1DT",
        "1e3s",
        "\u0667d",
        "7d\n",
        "nand",
        "1" * 400 + "s",
    ],
)
def test_a_duration_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        duration_ms(text, "--grace")
    assert "--grace" in caught.value.message
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("text", ["999999999d", "P99999999999W"])
def test_a_duration_of_more_than_a_thousand_years_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="thousand years"):
        duration_ms(text, "--grace")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14T00:00:00Z", datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1_000),
        ("2023-11-14", datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1_000),
        ("2023-11-14T02:00:00+02:00", datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1_000),
        ("2023-11-14T00:00:00.123Z", datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1_000 + 123),
        ("1699999999999", 1_699_999_999_999),
        ("1700000000000", NOW_MS),
        ("7d", NOW_MS - 7 * DAY_MS),
        ("0s", NOW_MS),
        ("P7D", NOW_MS - 7 * DAY_MS),
    ],
)
def test_a_time_is_iso_8601_with_a_zone_a_date_epoch_milliseconds_or_a_duration_ago(
    text: str, milliseconds: float
) -> None:
    assert time_ms(text, "--as-of", now_ms=NOW_MS) == milliseconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "no time"),
        ("", "no time"),
        ("9" * 5_000, "no time"),
        ("1700000000", "no time"),  # seconds would mean 1970, and everything is younger than that
        ("-5d", "no time"),
        ("2023-13-01T00:00:00Z", "no time"),
        ("2023-11-14T00:00:00", "no zone"),
        ("2023-11-15", "future"),
        ("2023-02-29", "no time"),
        ("20231114", "no zone"),
        ("1700000000001", "future"),
        ("2099-01-01T00:00:00Z", "future"),
        ("P1Y", "no duration"),
    ],
)
def test_a_time_that_cannot_be_meant_is_named(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        time_ms(text, "--as-of", now_ms=NOW_MS)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8MiB", 8 << 20),
        ("512MB", 512_000_000),
        ("1gib", 1 << 30),
        ("1.5KiB", 1536),
        ("100", 100),
        ("7 B", 7),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert size_bytes(text, "--target-size") == size


@pytest.mark.parametrize("text", ["", "8M", "-8MiB", "0", "0MiB", "MiB", "8 parsecs", "1e6"])
def test_a_size_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        size_bytes(text, "--target-size")
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("text", ["8", "4095", "512", "4095 B", "3.9KiB", "1.1TiB", "2TB"])
def test_a_target_that_no_file_should_have_is_named_with_the_bounds(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Size().read(text, "--target-size")
    assert f"--target-size must be between 4KiB and 1TiB, not {text!r}, which is " in caught.value.message
    assert "unit" in caught.value.next_step


def test_a_target_is_read_up_to_its_bounds() -> None:
    read = [Size().read(text, "--target-size") for text in ("4KiB", "4096", "1TiB", "1TB")]
    assert read == [4096, 4096, 2**40, 10**12]


def test_counts_are_at_least_one_or_absent() -> None:
    assert positive(None, "--retain-last") is None
    assert positive(1, "--retain-last") == 1
    for value in (0, -1):
        with pytest.raises(UsageError, match=f"at least 1, not {value}"):
            positive(value, "--retain-last")


def test_a_key_and_its_value_are_divided_at_the_first_equals_sign() -> None:
    assert key_value("a=b=c", "--storage-option") == ("a", "b=c")
    assert key_value("a=", "--storage-option") == ("a", "")
    for text in ("secret", "secret:hunter2", "secret hunter2"):
        with pytest.raises(UsageError, match="'secret' is not KEY=VALUE") as caught:
            key_value(text, "--storage-option")
        assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["--older-than", "7 fortnights"], "'7 fortnights'"),
        (["--older-than", ""], "''"),
        (["--as-of", ""], "''"),
        (["--unsafe-allow-root", "/"], "'/'"),
        (["--unsafe-allow-root", "s3://"], "'s3://'"),
        (["--older-than", "2999-01-01T00:00:00Z"], "'2999-01-01T00:00:00Z' is in the future"),
        (["--as-of", "2999-01-01T00:00:00Z"], "'2999-01-01T00:00:00Z' is in the future"),
        (["--as-of", "soon"], "'soon'"),
        (["--retain-last", "0"], "not 0"),
        (["--retain-last", "-3"], "not -3"),
        (["--retain-last", "two"], "two"),
        (["--grace", "1y"], "'1y'"),
        (["--grace", "-1h"], "'-1h'"),
        (["--deadline", "now"], "'now'"),
        (["--limit-deletes", "-1"], "not -1"),
        (["--limit-deletes", "0"], "not 0"),
        (["--cleanup", "some"], "'some'"),
        (["--format", "yaml"], "'yaml'"),
        (["--engine", "duckdb"], "'duckdb'"),
        (["--engine", "local", "--spark-master", "local[2]"], "--engine local takes no --spark-master"),
        (["--storage-option", "novalue"], "'novalue'"),
        (["--storage-option", "key=env:NO_SUCH_VARIABLE_1"], "NO_SUCH_VARIABLE_1"),
        (["--storage-option", "key=@/no/such/file"], "/no/such/file"),
        (["--no-such-option"], "--no-such-option"),
        (["--snapshot-id", "x1"], "x1"),
    ],
)
def test_a_wrong_option_is_exit_2_and_one_line_that_says_what_was_read(
    tmp_path: Path, arguments: list[str], read: str
) -> None:
    table = four_snapshots(tmp_path / "events")
    name, before = table.publish(), table.files()
    ran = iceberg_cli("expire-snapshots", name, "--yes", *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert ran.out == ""
    [line] = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert read in line
    assert table.files() == before

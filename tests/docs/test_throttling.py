"""The numbers of throttling.md are those of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from iceberg_cli.cli.commands.many_tables import DEFAULT_JOBS
from iceberg_cli.engines import local
from iceberg_cli.storage import backoff, many_objects
from iceberg_cli.storage.s3 import listing, options
from tests.docs.pages import PAGES
from tests.docs.test_pages import text_of

PAGE = text_of(PAGES / "throttling.md")


def row(name: str) -> list[str]:
    """The cells of the row that begins so."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def waits(*, throttled: bool) -> Iterator[float]:
    """All waits of a request that fails each time, where none is cut."""
    tries = 1
    while (wait_s := backoff.backoff_s(tries, throttled=throttled, share=0)) is not None:
        yield wait_s
        tries += 1


@pytest.mark.usefixtures("waits_of_users")
@pytest.mark.parametrize(
    ("name", "throttled"),
    [("S3, Google Cloud Storage", True), ("the same", False)],
    ids=["throttled", "other"],
)
def test_waits_are_those_of_the_page(name: str, throttled: bool) -> None:
    _, tries, between, _ = row(name)
    found = list(waits(throttled=throttled))
    assert int(tries) == len(found) + 1
    numbers = [float(number) for number in re.findall(r"[\d.]+(?= s\b)", between)]
    assert (numbers[0], numbers[-1]) == (found[0], pytest.approx(sum(found), abs=0.5))
    if throttled:
        assert numbers[1] == max(found)


def test_waits_for_azure_are_those_of_the_page() -> None:
    blobs = pytest.importorskip("iceberg_cli.storage.azure.blobs")
    _, tries, between, _ = row("Azure")
    first, base, jitter = blobs._WAITS.values()
    found = [first + base**count for count in range(1, blobs._RETRIES + 1)]
    assert int(tries) == blobs._RETRIES + 1
    assert (
        between == f"{', '.join(map(str, found[:-1]))} and {found[-1]} s, each up to {jitter} s more or less"
    )


def test_so_many_requests_are_sent_at_a_time() -> None:
    read = re.findall(r"\d+", row("manifests, lists and files that are read")[0])
    assert read == [str(local._REMOTE_THREADS), str(local._LOCAL_THREADS)]
    for what in ("objects that are looked at one by one", "objects that are tagged"):
        assert row(what)[0] == str(many_objects.THREADS)
    assert row("batches of deletions")[0].startswith(f"{many_objects._BATCHES_AT_ONCE},")
    assert row("full folders that S3 lists side by side")[0] == str(listing._AHEAD)
    assert row("tables of `maintain` and `survey`")[0].startswith(f"{DEFAULT_JOBS} ")
    most = re.findall(r"[\d,]+\d", row("objects in a batch")[0].removeprefix("S3"))
    stores = [pytest.importorskip(f"iceberg_cli.storage.{name}") for name in ("gcs.objects", "azure.blobs")]
    sizes = [options._MOST_IN_BATCH, *(store._BATCH for store in stores)]
    assert [int(each.replace(",", "")) for each in most] == sizes

"""Listings of S3 that read full subfolders side by side, of pages made as the protocol says."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.storage.s3 import listing as s3_listing
from iceberg_cli.storage.s3.listing import Listing
from tests.servers import Versitygw


@dataclass
class Bucket:
    """Answers ListObjectsV2 from its sorted keys.

    Args:
        keys: of its objects.
        page_keys: objects and common prefixes on a page, at most.
        lists_again: whether a common prefix that begins before StartAfter and goes on after it is listed.
        knows_start_after: whether it takes heed of it, as some services do not.
    """

    keys: Sequence[str]
    page_keys: int
    lists_again: bool = True
    knows_start_after: bool = True
    requests: list[Mapping[str, Any]] = field(default_factory=list)

    def page(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        prefix, start_after = request["Prefix"], request.get("StartAfter", "")
        after = request.get("ContinuationToken") or (start_after if self.knows_start_after else "")
        names: dict[str, str] = {}  # of objects and of common prefixes, each with its last key
        for key in sorted(self.keys):
            if key.startswith(prefix) and key > after:
                part, slash, _ = key[len(prefix) :].partition("/")
                folder = f"{prefix}{part}/"
                grouped = slash and "Delimiter" in request
                if not (grouped and folder <= after and not self.lists_again):
                    names[folder if grouped else key] = key
        some = list(names)[: self.page_keys]
        page: dict[str, Any] = {
            "IsTruncated": len(names) > len(some),
            "Contents": [{"Key": name} for name in some if names[name] == name],
            "CommonPrefixes": [{"Prefix": name} for name in some if names[name] != name],
        }
        return page | ({"NextContinuationToken": names[some[-1]]} if page["IsTruncated"] else {})

    def listed(self, prefix: str) -> list[str]:
        return [entry["Key"] for entry in Listing(self.page).entries(prefix)]


NAMES = st.lists(st.sampled_from(["a", "b", "b.c", "b-", "c0", "\u00e9", "k=1"]), min_size=1, max_size=3)


@settings(max_examples=150, derandomize=True)
@given(
    st.sets(NAMES.map("/".join), max_size=60),
    st.integers(1, 4),
    st.sampled_from([(True, True), (False, True), (True, False)]),
    st.sampled_from(["", "b/"]),
)
def test_every_object_comes_once_and_in_order(
    keys: set[str], page_keys: int, service: tuple[bool, bool], prefix: str
) -> None:
    bucket = Bucket(sorted(keys), page_keys, *service)
    assert bucket.listed(prefix) == sorted(key for key in keys if key.startswith(prefix))


def test_full_subfolders_are_read_at_the_same_time() -> None:
    bucket = Bucket([f"t/{folder}/{number:03}" for folder in "abcd" for number in range(150)], 100)
    both, met = threading.Barrier(2), []

    def page(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["Prefix"] in {"t/b/", "t/c/"} and "ContinuationToken" not in request:
            met.append(both.wait(30))
        return bucket.page(request)

    assert [entry["Key"] for entry in Listing(page).entries("t/")] == list(bucket.keys)
    assert sorted(met) == [0, 1]


def test_small_subfolders_are_not_read_one_by_one() -> None:
    full = [f"t/a/{number:04}" for number in range(1500)]
    small = [f"t/k={number:04}/0" for number in range(5000)]
    bucket = Bucket([*full, *small, "t/z/0"], 1000)
    assert bucket.listed("t/") == bucket.keys
    assert len(bucket.requests) < 40  # for 7 pages; each subfolder by a request of its own would be 5,000


def test_no_more_pages_are_read_ahead_than_a_bound() -> None:
    bucket = Bucket([f"t/{folder:02}/{number:03}" for folder in range(60) for number in range(150)], 100)
    entries = Listing(bucket.page).entries("t/")
    for _ in range(101):
        next(entries)
    assert len(bucket.requests) <= 3 + s3_listing._AHEAD


def test_a_flat_folder_is_read_page_after_page() -> None:
    bucket = Bucket([f"t/{number:03}" for number in range(350)], 100)
    assert bucket.listed("t/") == bucket.keys
    assert [sorted(request) for request in bucket.requests] == [
        ["Prefix"],
        *[["ContinuationToken", "Prefix"]] * 3,
    ]


def test_a_listing_of_many_full_folders_in_a_real_service(versitygw: Versitygw) -> None:
    root = str(uuid.uuid4())
    folders = {"a": 1001, "a.b": 3, "b/c": 1200, "b/d": 2, "e": 150}
    keys = [f"{root}/{folder}/{number:05}" for folder, count in folders.items() for number in range(count)]
    keys.append(f"{root}/b.object")
    versitygw.fill(dict.fromkeys(keys, b""))
    listed = list(versitygw.storage.paths(f"s3://{versitygw.bucket}/{root}"))
    assert listed == [f"s3://{versitygw.bucket}/{key}" for key in sorted(keys)]

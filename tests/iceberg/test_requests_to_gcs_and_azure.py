"""How many requests an expiry sends to Google Cloud Storage and to Azure, and that it takes what it should."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import unquote, urlsplit

import pytest

from tests.budget import deep_unless
from tests.builders import TableWriter
from tests.cli.lakes import AS_OF, LONG_AGO_MS
from tests.cli.running import iceberg_cli
from tests.docs.permissions import listed, of_azure, of_gcs
from tests.emulators import ObjectStore
from tests.s3_front import S3Front, s3_front

SNAPSHOTS = 3
# Files of each snapshot and of no other one, deletions that a batch takes, and what the URL of a batch has.
NEEDS = {"fake_gcs": ("Google Cloud Storage", of_gcs), "azurite": ("Azure", of_azure)}
BATCHES = {"fake_gcs": (70, 100, "/batch/"), "azurite": (150, 256, "comp=batch")}


@pytest.mark.parametrize("name", deep_unless(["fake_gcs"], [*BATCHES]))
def test_an_expiry_reads_each_manifest_once_and_deletes_in_batches(
    name: str, request: pytest.FixtureRequest
) -> None:
    store: ObjectStore = request.getfixturevalue(name)
    count, size, mark = BATCHES[name]
    expired = (SNAPSHOTS - 1) * count
    writer = TableWriter(storage=store.storage, location=f"{store.new_folder()}/t")
    live: list[str] = []
    for number in range(1, SNAPSHOTS + 1):
        files = [f"{number}/{file}" for file in range(count)]
        store.create_empty([f"{writer.location}/data/{file}.parquet" for file in files])
        writer.commit(
            number, age_ms=LONG_AGO_MS + (SNAPSHOTS - number) * 86_400_000 * 30, again=files, remove=live
        )
        live = files
    writer.publish("v1.metadata.json")
    with s3_front(store.endpoint, {}) as front:
        options = store.options_at(front.endpoint)
        words = [word for item in options.items() for word in ("--storage-option", "=".join(item))]
        common = (writer.location, "--format", "json", *AS_OF, *words)
        assert iceberg_cli("inspect", *common).code == 0
        refused = iceberg_cli("expire-snapshots", *common, "--older-than", "1s", "--yes")
        assert refused.code == 11
        assert "--unsafe-single-writer" in refused.json["message"]
        front.requests.clear()
        ran = iceberg_cli(
            "expire-snapshots", *common, "--older-than", "1s", "--retain-last", "1", "--yes", "--no-cache",
            "--unsafe-single-writer", "--unsafe-conditional-writes",
        )  # fmt: skip
    assert ran.code == 0, (ran.out, ran.err)
    left = {path.removeprefix(f"{writer.location}/") for path in store.storage.paths(writer.location)}
    assert {path for path in left if path.startswith("data/")} == {f"data/{file}.parquet" for file in live}
    assert not [path for path in left if path.startswith("_iceberg_cli/ops")]
    reads = reads_of_manifests(front)
    assert max(reads.values()) <= 3
    assert sum(reads.values()) <= len(reads) + 4
    batches = [
        len(re.findall(rb"(?:/|%2F)data(?:/|%2F)\d(?:/|%2F)\d+\.parquet", each.body))
        for each in front.requests
        if mark in each.path
    ]
    assert sum(batches) == expired
    assert sorted(batches, reverse=True)[: -(-expired // size)] == [
        *[size] * (expired // size), expired % size,
    ]  # fmt: skip
    column, action = NEEDS[name]
    needed = frozenset().union(*map(action, front.requests))
    assert needed == listed(column)["expire-snapshots"]


def reads_of_manifests(front: S3Front) -> Counter[str]:
    paths = [unquote(urlsplit(each.path).path) for each in front.requests if each.method == "GET"]
    return Counter(path.rpartition("/")[2] for path in paths if re.search(r"\.avro$", path))

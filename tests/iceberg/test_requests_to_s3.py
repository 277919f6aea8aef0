"""How many requests an expiry sends to S3."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from tests.cli.running import iceberg_cli
from tests.docs.permissions import listed, of_s3
from tests.large_tables import Writer
from tests.s3_front import s3_front
from tests.servers import Versitygw

SNAPSHOTS = 25
FILES = 100  # of each snapshot, and no other one's
MANIFESTS = 3  # of each snapshot


def test_an_expiry_reads_each_file_once_lists_each_folder_twice_and_deletes_by_the_thousand(
    versitygw: Versitygw, tmp_path: Path
) -> None:
    folder = versitygw.folder / tmp_path.name
    writer = Writer(f"s3://{versitygw.bucket}/{tmp_path.name}", folder=str(folder))
    for commit in range(1, SNAPSHOTS + 1):
        files = np.arange(commit * FILES, (commit + 1) * FILES)
        parts = np.array_split(files, MANIFESTS)
        writer.snapshot([writer.manifest(part, len(part), commit) for part in parts], added=FILES)
        for file in files:
            Path(writer.path_of(int(file)).replace(writer.location, str(folder))).write_bytes(b"x")
    writer.publish()
    metadata = {path.name for path in (folder / "metadata").glob("*.avro")}
    with s3_front(versitygw.endpoint, {}) as front:
        options = {**versitygw.options, "endpoint_url": front.endpoint}
        words = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
        ran = iceberg_cli(
            "expire-snapshots", writer.location, "--older-than", "1s", "--retain-last", "1", "--yes", "--no-cache",
            "--unsafe-single-writer", "--unsafe-conditional-writes", *words,
        )  # fmt: skip
    assert ran.code == 0, ran
    urls = [(request.method, urlsplit(request.path)) for request in front.requests]
    reads = Counter(
        unquote(url.path).rpartition("/")[2]
        for method, url in urls
        if method == "GET" and url.path.endswith(".avro")
    )
    assert reads.pop(f"snap-{SNAPSHOTS}.avro") <= 3  # the newest, which is kept, again by the sweep
    assert reads == dict.fromkeys(metadata - {f"snap-{SNAPSHOTS}.avro"}, 1)
    queries = [parse_qs(url.query, keep_blank_values=True) for method, url in urls if method == "GET"]
    listings = Counter(
        query["prefix"][0].removeprefix(f"{tmp_path.name}/")
        for query in queries
        if "list-type" in query and "continuation-token" not in query
    )
    assert listings.pop("data/") == 2  # by the plan and by the sweep
    # The opening looks here too for what the folder holds, and each look at the table for its newest version.
    assert listings.pop("") <= 3
    assert listings.pop("metadata/") <= 5
    assert listings.keys() <= {
        "_delta_log/",
        *(name for name in listings if name.startswith("_iceberg_cli/")),
    }
    expired = SNAPSHOTS - 1
    bodies = [request.body for request in front.requests]
    batches = [body.count(b"<Key>") for body in bodies if re.search(b"/data/part|/metadata/(m|snap)-", body)]
    # One kind of files after another.
    assert sorted(batches) == sorted([1_000, 1_000, 400, expired * MANIFESTS, expired])
    needed = frozenset().union(*map(of_s3, front.requests))
    assert needed == listed("S3")["expire-snapshots"]

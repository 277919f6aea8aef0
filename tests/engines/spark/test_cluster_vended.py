"""Spark's workers read S3 with credentials that a REST catalog gave and that end while they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import VersitygwWithUsers
from tests.spark_tables.clusters import Running, finished, on_cluster, start
from tests.vending import replaced, vending

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

ROWS = range(12)
VERBS = {
    "expire-snapshots": ("expire-snapshots", "--older-than", "0s", "--retain-last", "1"),
    "rewrite-manifests": ("rewrite-manifests", "--target-size", "9KiB"),
}


# Before the first request of the program, so that workers begin with credentials that have ended; and while they read.
@pytest.mark.parametrize(("verb", "place"), [("expire-snapshots", 1), ("rewrite-manifests", 20)])
def test_workers_renew_credentials_that_the_storage_refuses(
    cluster: Running,
    rest_with_users: str,
    versitygw_with_users: VersitygwWithUsers,
    tmp_path: Path,
    verb: str,
    place: int,
) -> None:
    with vending(rest_with_users, versitygw_with_users, tmp_path, {place: replaced}, ROWS) as made:
        done = finished(start(*made.arguments(*VERBS[verb], "--yes"), *on_cluster(cluster)))
        assert done["status"] == "done"
        assert made.rows() == [*ROWS]
        # Each process that renews opens the catalog for itself.
        opened = [path for _, path in made.catalog.requests if path.endswith("/config")]
        assert len(opened) > 1
        assert {*made.service.signed_by} == {*made.users}
        assert len(made.users) == 2
        assert made.run(*VERBS[verb], "--yes").json["status"] == "nothing_to_do"
        logs = "".join(
            path.read_text(errors="replace")
            for path in cluster.logs.rglob("*")
            if path.is_file() and path.suffix in {"", ".log"}
        )
        assert not [key for key in made.users if versitygw_with_users.secret_of(key) in logs]

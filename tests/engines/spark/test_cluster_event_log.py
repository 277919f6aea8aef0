"""No secret shows in what Spark keeps of a run on a cluster: its event log, and what its processes log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.markers import Markers, secret_properties
from tests.servers import VersitygwWithUsers
from tests.spark_tables.clusters import Running, finished, on_cluster, start
from tests.vending import Vending, vending

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

VERB: Final = ("expire-snapshots", "--older-than", "0s", "--retain-last", "1", "--yes")
# Settings of Hadoop's storages and of Iceberg's catalogs, which the engine has no use for.
SETTINGS: Final = (
    "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token", "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.azure.account.key.account.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net",
    "spark.sql.catalog.prod.credential", "spark.sql.catalog.prod.token", "spark.sql.catalog.prod.header.X-Api-Key",
    "spark.sql.catalog.prod.s3.secret-access-key", "spark.sql.catalog.prod.jdbc.password",
    "spark.sql.catalog.prod.adls.connection-string.account",
)  # fmt: skip


def given(made: Vending, markers: Markers) -> list[str]:
    """Give the catalog secrets; the options of a command with others.

    Args:
        made: the table.
        markers: get the secrets.
    """
    markers.by_place["key"] = made.s3.secret_of(made.users[-1])
    made.catalog.vended = {
        **(made.catalog.vended or {}),
        "gcs.oauth2.token": markers.at("vended token of Google"),
        "adls.sas-token.account": markers.at("vended SAS"),
    }
    properties = {**secret_properties(markers), "token": markers.at("token of the catalog")}
    config = made.config.read_text()
    made.config.write_text(config + "".join(f"    {name}: {text}\n" for name, text in properties.items()))
    return [f"--storage-option=adls.account-key={markers.at('an option')}"]


def test_nothing_shows_in_event_log_and_logs_of_executors(
    cluster: Running,
    rest_with_users: str,
    versitygw_with_users: VersitygwWithUsers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    markers, events = Markers(), tmp_path / "events"
    events.mkdir()
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PYICEBERG_CATALOG__PROD__HEADER__X_API_KEY"):
        monkeypatch.setenv(name, markers.at(name))
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **{name: markers.at(name) for name in SETTINGS},
    }
    with vending(rest_with_users, versitygw_with_users, tmp_path, {}, range(12)) as made:
        options = given(made, markers)
        done = finished(start(*made.arguments(*VERB), *options, *on_cluster(cluster, **conf)))
        assert done["status"] == "done"
        assert {*made.service.signed_by} == {made.users[-1]}
    assert markers.found_in(json.dumps(done)) == []
    [log] = [path.read_text() for path in events.iterdir()]
    assert "iceberg-cli: " in log
    assert all(f'"{name}"' in log for name in SETTINGS)
    assert markers.found_in(log) == []
    kept = [path for path in cluster.logs.rglob("*") if path.is_file()]
    assert {path.name for path in kept} >= {"stdout", "stderr", "master.log"}
    assert [
        (path, found) for path in kept if (found := markers.found_in(path.read_bytes().decode("latin-1")))
    ] == []

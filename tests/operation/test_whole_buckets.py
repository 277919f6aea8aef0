"""Tables whose location is a whole bucket, or a whole disk."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from iceberg_cli.cli.context import now_ms
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots.plan import VERB
from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.ports import Planned
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.delta_writer import a_remove, an_add
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF_MS, registered
from tests.cli.running import Ran, iceberg_cli
from tests.delta_opened import a_log, a_shell, unseen
from tests.hazard_tables import Hazard, entry
from tests.servers import S3Server


@pytest.fixture
def bucket(versitygw: S3Server) -> str:
    """An empty bucket of its own."""
    boto3 = pytest.importorskip("boto3")
    name = f"b-{uuid.uuid4()}"
    names = {"aws_access_key_id": "AK", "aws_secret_access_key": "a-secret-key", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=versitygw.endpoint, **names).create_bucket(Bucket=name)
    return f"s3://{name}"


def expire(server: S3Server, name: str, *arguments: object) -> Ran:
    options = [part for item in server.options.items() for part in ("--storage-option", "=".join(item))]
    return iceberg_cli(
        "expire-snapshots", name, "--as-of", AS_OF_MS, "--yes", "--format", "json", *options, *arguments
    )


def a_table_that_gives_up_x(location: str, storage: object) -> str:
    """An Iceberg table of two snapshots, whose older one alone has the file x; its metadata's location."""
    table = Hazard(location=location, storage=storage)
    keep, dead = table.data("keep", "x")
    table.snapshot(9, table.manifest("m9", entry(ADDED, keep), entry(ADDED, dead)))
    table.snapshot(1, table.manifest("m1", entry(EXISTING, keep)), parent=9)
    return table.publish(main=1, name="00000-a.metadata.json")


def test_an_iceberg_table_that_is_all_of_a_bucket_is_expired_once_the_bucket_is_allowed(
    versitygw: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(versitygw.options)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.db")
    name = registered(tmp_path / "c.db", a_table_that_gives_up_x(bucket, storage))
    before = set(storage.paths(bucket))
    ran = expire(versitygw, name)
    assert ran.code == 11, ran.out
    assert (
        f"the table's location is all of {bucket}, and others may have files there: 3 files, "
        in ran.json["message"]
    )
    assert f"bytes, go only with --unsafe-allow-root {bucket}" in ran.json["message"]
    assert set(storage.paths(bucket)) == before
    ran = expire(versitygw, name, "--unsafe-allow-root", f"{bucket}/")
    assert ran.code == 0, ran.out + ran.err
    gone = {path.removeprefix(f"{bucket}/") for path in before - set(storage.paths(bucket))}
    assert gone == {"data/x", "metadata/m9.avro", "metadata/snap-9.avro"}


def test_an_iceberg_table_whose_location_is_a_whole_disk_is_never_expired(
    versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "t")
    location = a_table_that_gives_up_x(folder, open_storage())
    text = Path(location).read_text()
    Path(location).write_text(text.replace(f'"location": "{folder}"', '"location": "file:///"'))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.db")
    name = registered(tmp_path / "c.db", location)
    ran = expire(versitygw, name)
    assert ran.code == 11, ran.out
    assert "the table's location is a whole disk, where none is deleted: 3 files, " in ran.json["message"]
    assert (tmp_path / "t" / "data" / "x").exists()


# -- Delta -----------------------------------------------------------------------------------------------------


def a_delta_bucket(server: S3Server, bucket: str, tmp_path: Path) -> None:
    """A Delta table at a bucket's root: a is live, b was removed, and nobody names c."""
    root = tmp_path / "t"
    removed_ms = now_ms() - 60_000
    a_log(root, [an_add(path="a"), an_add(path="b")], [a_remove(path="b", deletionTimestamp=removed_ms)])
    storage = open_storage(server.options)
    for file in root.rglob("*.json"):
        storage.put_if_absent(f"{bucket}/{file.relative_to(root)}", file.read_bytes())
    for name in ("a", "b", "k=1/c"):
        storage.put_if_absent(f"{bucket}/{name}", b"data")


def opened(server: S3Server, bucket: str, *allowed: str) -> DeltaTable:
    table = open_table(
        bucket, storage_options=server.options, allow_roots=allowed, conditional_writes=True, on_event=unseen
    )
    assert isinstance(table, DeltaTable)
    return table


def planned(table: DeltaTable) -> Planned:
    """What goes in twenty days."""
    return VERB.plan(table, ExpireSnapshots(), as_of_ms=now_ms() + 20 * DAY_MS)


def test_a_delta_table_that_is_all_of_a_bucket_is_vacuumed_once_the_bucket_is_allowed(
    versitygw: S3Server, bucket: str, tmp_path: Path
) -> None:
    a_delta_bucket(versitygw, bucket, tmp_path)
    table = opened(versitygw, bucket)
    before = set(table.storage.paths(bucket))
    plan = planned(table)
    [reason] = plan.plan.blocked_by
    assert reason.startswith(
        f"the table's location is all of {bucket}, and others may have files there: 2 files, 8 b"
    )
    assert reason.endswith(f"go only with --unsafe-allow-root {bucket}")
    with pytest.raises(Refused):
        apply(plan, table, VERB, a_shell())
    assert set(table.storage.paths(bucket)) == before
    table = opened(versitygw, f"{bucket}/", f"{bucket}/")
    assert apply(planned(table), table, VERB, a_shell()).status == "done"
    assert before - set(table.storage.paths(bucket)) == {f"{bucket}/b", f"{bucket}/k=1/c"}


def test_no_other_folder_is_allowed_for_a_delta_table(
    versitygw: S3Server, bucket: str, tmp_path: Path
) -> None:
    a_delta_bucket(versitygw, bucket, tmp_path)
    for other in (f"{bucket}-2", f"{bucket}/k=1", "/t"):
        with pytest.raises(UsageError, match="is an option of Iceberg tables"):
            opened(versitygw, bucket, other)

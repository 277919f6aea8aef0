"""Tables below prefixes of Google Cloud Storage and Azure are found as those on S3 are."""

from __future__ import annotations

import pytest

from iceberg_cli.testing.conformance.delta_logs import make_log
from tests.builders import TableWriter
from tests.cli.lakes import LONG_AGO_MS
from tests.cli.running import iceberg_cli
from tests.emulators import ObjectStore


@pytest.mark.parametrize("name", ["fake_gcs", "azurite"])
def test_tables_of_both_formats_are_listed(name: str, request: pytest.FixtureRequest) -> None:
    store: ObjectStore = request.getfixturevalue(name)
    lake = store.new_folder()
    writer = TableWriter(storage=store.storage, location=f"{lake}/db/orders")
    writer.commit(1, age_ms=LONG_AGO_MS, add=["one"])
    writer.publish("v1.metadata.json")
    make_log(f"{lake}/db/visits", store.storage)
    store.storage.put_if_absent(f"{lake}/db/no-table/file", b"")
    options = [part for item in store.options.items() for part in ("--storage-option", "=".join(item))]
    ran = iceberg_cli("list", f"{lake}/**", "--format", "json", *options)
    assert ran.code == 0, ran.err
    found = {each["name"]: each["format"] for each in ran.json["tables"]}
    assert found == {f"{lake}/db/orders": "iceberg", f"{lake}/db/visits": "delta"}

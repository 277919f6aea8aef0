"""The headers of new manifests say what the table's metadata says, whatever those of the old ones say.

Spec: "Manifests": `schema` is the JSON of the table schema, `partition-spec` the JSON array of the spec's fields.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING, manifest
from tests.manifest_tables import BY_ONE, Manifests, columns, entry

TABLE = columns("int", "string", "timestamptz")
WRONG = {
    "fewer columns": columns("int"),
    "another type": columns("int", "string", "timestamp"),
    "as the table says": TABLE,
}
VERBS: dict[str, dict[str, Any]] = {
    "rewrite-manifests": RewriteManifests(all_manifests=True).to_json(),
    "merge-dvs": MergeDvs().to_json(),
}


def an_entry(name: str, content: int) -> dict[str, Any]:
    """A data file, or equality deletes that are as old as every data file."""
    path = f"/lake/data/{name}.parquet"
    if not content:
        return entry(EXISTING, path, partition={"p1": 1})
    number = {"sequence_number": 2, "file_sequence_number": 2} if name == "live" else {}
    return entry(EXISTING, path, content=2, equality_ids=[1], partition={"p1": 1}, **number)


def with_whole_spec(data: bytes) -> bytes:
    """The manifest with the spec's object in its header where the array of the fields belongs."""
    reader = fastavro.reader(io.BytesIO(data))
    records = list(reader)
    header = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    header["partition-spec"] = json.dumps(BY_ONE)
    out = io.BytesIO()
    fastavro.writer(out, json.loads(reader.metadata["avro.schema"]), records, metadata=header)
    return out.getvalue()


@pytest.mark.pairs
@pytest.mark.parametrize("whole_spec", [False, True], ids=["fields", "whole spec"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("version", "verb"), [(2, "rewrite-manifests"), (3, "rewrite-manifests"), (3, "merge-dvs")]
)
def test_headers_come_from_the_table(version: int, verb: str, wrong: str, *, whole_spec: bool) -> None:
    lot = Manifests(schema=TABLE, format_version=version)
    row = {"first_row_id": 0} if version > 2 else {}
    for name, content in (("a", 0), ("b", 0), ("live", 1), ("idle", 1)):
        path = f"{lot.location}/metadata/{name}.avro"
        entries = [an_entry(name, content)]
        if name == "live":
            entries.append(an_entry("idle-too", content))
        data = manifest(
            entries, schema=WRONG[wrong], spec=BY_ONE, version=version, content=content, codec="deflate",
            sync=bytes(16),
        )  # fmt: skip
        data = with_whole_spec(data) if whole_spec else data
        lot.put(path, data, entries, content=content, spec_id=0, **({} if content else row))
    lot.add(entry(ADDED, "/lake/data/c.parquet", partition={"p1": 1}), **row)
    table = lot.table(next_row_id=1_000)
    before = {each["manifest_path"] for each in table.manifests()}
    planned = table.prepare(verb, VERBS[verb])
    assert not planned.plan.blocked_by
    table.apply(planned)
    new = [each for each in table.manifests() if each["manifest_path"] not in before]
    assert new
    for each in new:
        header = fastavro.reader(io.BytesIO(table.storage.read(each["manifest_path"]))).metadata
        assert json.loads(header["schema"]) == TABLE
        assert json.loads(header["partition-spec"]) == BY_ONE["fields"]
        assert (header["schema-id"], header["partition-spec-id"]) == ("0", "0")
        assert header["format-version"] == str(version)
        assert header["content"] == ("deletes" if each["content"] else "data")

"""What metadata alone tells of a table is what reading it whole tells."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.errors import CorruptFile
from iceberg_cli.fleet.facts import FactsStore, decision_key
from iceberg_cli.iceberg.inspect.glance import MetadataGlances, glance_of_metadata, read_glance
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import judge
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import retention_of, within_properties
from tests.paths import FIXTURES

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000


def documents() -> list[Path]:
    return sorted(FIXTURES.glob("**/metadata/*.metadata.json")) if FIXTURES.is_dir() else []


@pytest.mark.skipif(not documents(), reason="the folder of fixtures is absent")
def test_every_fixture_is_read_at_a_glance_as_it_is_read_whole() -> None:
    read = 0
    for path in documents():
        data = path.read_bytes()
        try:
            metadata = TableMetadata.from_json(decode_metadata_file(data, str(path)), path=str(path))
        except CorruptFile:
            continue
        glance = json.loads(json.dumps(read_glance(data, str(path))))
        whole = json.loads(json.dumps(glance_of_metadata(metadata)))
        assert glance["metadata_bytes"] == len(data)
        # Metadata that was read whole has the branch main where the file leaves it out.
        refs = {name: ref for name, ref in whole["refs"].items() if name in glance["refs"] or name != "main"}
        assert {**glance, "metadata_bytes": None} == {**whole, "refs": refs}, path
        policy = ExpireSnapshots(older_than=NOW_MS - DAY_MS, retain_last=2).at(NOW_MS)
        decision = MetadataGlances.decide(glance, policy, str(path), as_of_ms=NOW_MS)
        own = within_properties(metadata, policy, as_of_ms=NOW_MS)
        stated = judge(metadata, retention_of(metadata, own, as_of_ms=NOW_MS), as_of_ms=NOW_MS)
        assert decision.decided[:2] == [  # type: ignore[index]
            sorted(map(str, stated.expired)),
            list(stated.dropped_refs),
        ]
        assert decision.is_due == bool(stated.expired or stated.dropped_refs)
        read += 1
    assert read > 20


def test_a_compressed_file_is_read_too_and_one_that_is_none_is_corrupt() -> None:
    document = {"format-version": 2, "location": "/t", "snapshots": []}
    data = json.dumps(document).encode()
    plain, packed = read_glance(data, "a"), read_glance(gzip.compress(data), "a")
    assert {**plain, "metadata_bytes": 0} == {**packed, "metadata_bytes": 0}
    for bad in (
        b"",
        b"[]",
        b'{"location": "/t"}',
        data[:-3],
        b'{"format-version": 2, "location": "/t", "snapshots": [7]}',
    ):
        with pytest.raises(CorruptFile):
            read_glance(bad, "a")


def test_facts_are_those_of_the_same_location_and_written_whole(tmp_path: Path) -> None:
    store = FactsStore(tmp_path)
    store.put("s3://b/m1", {"a": 1}, now_ms=0)
    store.put("s3://b/m2", {"a": 2}, now_ms=0)
    store.put("s3://b/m1", {"a": 3}, now_ms=0)
    again = FactsStore(tmp_path)
    assert [again.get(f"s3://b/m{number}") for number in (1, 2, 3)] == [{"a": 3}, {"a": 2}, None]
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_of_facts_tells_nothing_false(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("facts")
    FactsStore(folder).put("s3://b/m1", {"a": list(range(100))}, now_ms=0)
    [path] = folder.iterdir()
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert FactsStore(folder).get("s3://b/m1") in (None, {"a": list(range(100))})


def test_facts_that_others_may_write_are_not_believed(tmp_path: Path) -> None:
    FactsStore(tmp_path).put("s3://b/m1", {"a": 1}, now_ms=0)
    [path] = tmp_path.iterdir()
    path.chmod(0o666)
    assert FactsStore(tmp_path).get("s3://b/m1") is None


def test_nothing_is_kept_without_a_folder() -> None:
    store = FactsStore(None)
    store.put("s3://b/m1", {"a": 1}, now_ms=0)
    assert store.get("s3://b/m1") is None


def test_decisions_are_told_apart_by_verb_and_content() -> None:
    keys = {
        decision_key("a", [1]),
        decision_key("a", [2]),
        decision_key("b", [1]),
        decision_key("a", {"x": 1}),
    }
    assert len(keys) == 4
    assert decision_key("a", {"x": 1, "y": 2}) == decision_key("a", {"y": 2, "x": 1})

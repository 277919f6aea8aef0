"""The demo warehouse, read by PyIceberg and DuckDB and checked against its own summaries."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.demo import DAY_MS, DemoTables, create_demo
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.spec.deletes.puffin import read_footer
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, read_entries
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from tests.duckdb_reading import duckdb_with_iceberg

NOW_MS = 1_760_000_000_000
NAMES = ["events", "orders"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoTables:
    return create_demo(str(tmp_path_factory.mktemp("demo")), now_ms=NOW_MS)


def metadata_file(demo: DemoTables, name: str) -> Path:
    folder = Path(getattr(demo, name)) / "metadata"
    return folder / f"v{(folder / 'version-hint.text').read_text()}.metadata.json"


def metadata_of(demo: DemoTables, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(metadata_file(demo, name).read_bytes())
    return document


def avro(path: str) -> list[dict[str, Any]]:
    with open(path, "rb") as file:
        return [record for record in fastavro.reader(file) if isinstance(record, dict)]


def live_files(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    manifests = avro(snapshot["manifest-list"])
    entries = [entry for row in manifests for entry in avro(row["manifest_path"])]
    return [entry["data_file"] for entry in entries if entry["status"] != 2]


def rows_claimed(snapshot: dict[str, Any]) -> int:
    """Rows that a reader gets: every position delete here hits a live row, and none hits it twice."""
    return int(snapshot["summary"]["total-records"]) - int(snapshot["summary"]["total-position-deletes"])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_pyiceberg_reads_every_snapshot_with_the_rows_that_its_summary_claims(
    demo: DemoTables, name: str
) -> None:
    table = StaticTable.from_metadata(str(metadata_file(demo, name)))
    for snapshot in metadata_of(demo, name)["snapshots"]:
        assert len(table.scan(snapshot_id=snapshot["snapshot-id"]).to_arrow()) == rows_claimed(snapshot)


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_reads_every_snapshot_with_the_rows_that_its_summary_claims(
    demo: DemoTables, name: str
) -> None:
    connection = duckdb_with_iceberg()
    for snapshot in metadata_of(demo, name)["snapshots"]:
        which = f"'{metadata_file(demo, name)}', snapshot_from_id={snapshot['snapshot-id']}"
        query = f"SELECT count(*) FROM iceberg_scan({which})"
        assert connection.execute(query).fetchall() == [(rows_claimed(snapshot),)]


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_and_pyiceberg_read_the_same_rows(demo: DemoTables, name: str) -> None:
    ours = StaticTable.from_metadata(str(metadata_file(demo, name))).scan().to_arrow()
    key = ours.column_names[0]
    theirs = (
        duckdb_with_iceberg()
        .execute(f"SELECT * FROM iceberg_scan('{metadata_file(demo, name)}')")
        .to_arrow_table()
    )
    assert ours.sort_by(key).to_pylist() == theirs.sort_by(key).to_pylist()


@pytest.mark.parametrize("name", NAMES)
def test_totals_of_every_summary_count_the_live_files(demo: DemoTables, name: str) -> None:
    for snapshot in metadata_of(demo, name)["snapshots"]:
        files = live_files(snapshot)
        deletes = [f for f in files if f["content"]]
        totals = {
            "total-data-files": len(files) - len(deletes),
            "total-delete-files": len(deletes),
            "total-records": sum(f["record_count"] for f in files if not f["content"]),
            "total-files-size": sum(f.get("content_size_in_bytes") or f["file_size_in_bytes"] for f in files),
            "total-position-deletes": sum(f["record_count"] for f in deletes),
            "total-equality-deletes": 0,
        }
        assert {key: int(snapshot["summary"][key]) for key in totals} == totals


@pytest.mark.parametrize("name", NAMES)
def test_totals_follow_from_those_of_the_parent_and_what_was_added_and_removed(
    demo: DemoTables, name: str
) -> None:
    pairs = {
        "data-files": ("added", "deleted"),
        "delete-files": ("added", "removed"),
        "records": ("added", "deleted"),
        "files-size": ("added", "removed"),
        "position-deletes": ("added", "removed"),
    }
    snapshots = {s["snapshot-id"]: s["summary"] for s in metadata_of(demo, name)["snapshots"]}
    for snapshot in metadata_of(demo, name)["snapshots"]:
        summary = snapshot["summary"]
        parent = snapshots.get(snapshot.get("parent-snapshot-id"), {})
        for what, (plus, minus) in pairs.items():
            expected = int(parent.get(f"total-{what}", 0)) + int(summary.get(f"{plus}-{what}", 0))
            assert int(summary[f"total-{what}"]) == expected - int(summary.get(f"{minus}-{what}", 0))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_a_snapshot_names_exists_with_the_size_it_says(demo: DemoTables, name: str) -> None:
    for snapshot in metadata_of(demo, name)["snapshots"]:
        for row in avro(snapshot["manifest-list"]):
            assert Path(row["manifest_path"]).stat().st_size == row["manifest_length"]
        for file in live_files(snapshot):
            assert Path(file["file_path"]).stat().st_size == file["file_size_in_bytes"]


@pytest.mark.parametrize("name", NAMES)
def test_all_versions_are_there_and_each_logs_those_before_it(demo: DemoTables, name: str) -> None:
    current = metadata_of(demo, name)
    versions = len(current["metadata-log"]) + 1
    for version in range(1, versions + 1):
        path = Path(getattr(demo, name)) / f"metadata/v{version}.metadata.json"
        document = json.loads(path.read_bytes())
        assert document["metadata-log"] == current["metadata-log"][: version - 1]
        assert TableMetadata.from_json(document, path=str(path)).to_json() == document
    for entry in current["metadata-log"]:
        assert (
            json.loads(Path(entry["metadata-file"]).read_bytes())["last-updated-ms"] == entry["timestamp-ms"]
        )


@pytest.mark.parametrize("name", NAMES)
def test_history_of_forty_days_ends_now(demo: DemoTables, name: str) -> None:
    document = metadata_of(demo, name)
    times = [snapshot["timestamp-ms"] for snapshot in document["snapshots"]]
    assert times == sorted(set(times))
    assert times[-1] == document["last-updated-ms"] == NOW_MS
    assert 38 * DAY_MS < NOW_MS - times[0] < 40 * DAY_MS


def test_events_have_a_tag_a_branch_and_a_snapshot_that_was_rolled_back(demo: DemoTables) -> None:
    document = metadata_of(demo, "events")
    assert document["format-version"] == 2
    assert len(document["snapshots"]) == 22
    refs = document["refs"]
    assert {name: ref["type"] for name, ref in refs.items()} == {
        "main": "branch",
        "eom": "tag",
        "audit": "branch",
    }
    assert refs["audit"].keys() >= {"min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"}
    parents = {s["snapshot-id"]: s.get("parent-snapshot-id") for s in document["snapshots"]}
    on_main, at = set(), refs["main"]["snapshot-id"]
    while at is not None:
        on_main.add(at)
        at = parents[at]
    logged = [entry["snapshot-id"] for entry in document["snapshot-log"]]
    rolled_back = set(logged) - on_main
    assert len(rolled_back) == 1
    assert logged[logged.index(*rolled_back) + 1] == parents[next(iter(rolled_back))]
    assert set(parents) - on_main - rolled_back == {refs["audit"]["snapshot-id"]}
    assert logged[-1] == document["current-snapshot-id"] == refs["main"]["snapshot-id"]


def test_operations_of_the_events_are_of_all_four_kinds(demo: DemoTables) -> None:
    operations = {s["summary"]["operation"] for s in metadata_of(demo, "events")["snapshots"]}
    assert operations == {"append", "overwrite", "delete", "replace"}


def test_orders_share_a_puffin_file_of_which_one_deletion_vector_is_still_live(demo: DemoTables) -> None:
    document = metadata_of(demo, "orders")
    assert document["format-version"] == 3
    assert len(document["snapshots"]) == 20
    seen = {}
    for snapshot in document["snapshots"]:
        for file in live_files(snapshot):
            if file["file_format"] == "PUFFIN":
                seen.setdefault(file["file_path"], set()).add(file["content_offset"])
    first = next(iter(seen))
    assert len(seen[first]) == 4
    live = [f["content_offset"] for f in live_files(document["snapshots"][-1]) if f["file_path"] == first]
    assert live == [max(seen[first])]


def test_no_data_file_of_the_orders_ever_has_two_deletion_vectors_or_one_without_the_file(
    demo: DemoTables,
) -> None:
    for snapshot in metadata_of(demo, "orders")["snapshots"]:
        files = live_files(snapshot)
        referenced = [f["referenced_data_file"] for f in files if f["content"]]
        assert len(referenced) == len(set(referenced))
        assert set(referenced) <= {f["file_path"] for f in files}


def test_deletion_vectors_are_where_puffin_footer_and_manifest_say(demo: DemoTables) -> None:
    for file in live_files(metadata_of(demo, "orders")["snapshots"][-1]):
        if file["file_format"] != "PUFFIN":
            continue
        data = Path(file["file_path"]).read_bytes()
        places = {b.offset: b for b in read_footer(data, len(data), file["file_path"]).blobs}
        blob = places[file["content_offset"]]
        assert blob.length == file["content_size_in_bytes"]
        assert blob.properties["referenced-data-file"] == file["referenced_data_file"]
        end = blob.offset + blob.length
        decode(data[blob.offset : end], file["file_path"], cardinality=file["record_count"], max_position=39)


def test_row_ids_of_the_orders_are_disjoint_never_change_and_lie_below_the_next(demo: DemoTables) -> None:
    document = metadata_of(demo, "orders")
    known: dict[str, int] = {}
    next_row_id = 0
    for snapshot in document["snapshots"]:
        assert snapshot["first-row-id"] == next_row_id
        next_row_id += snapshot["added-rows"]
        ranges = []
        for row in avro(snapshot["manifest-list"]):
            source = ManifestSource(
                path=row["manifest_path"],
                data=Path(row["manifest_path"]).read_bytes(),
                content=row["content"],
                sequence_number=row["sequence_number"],
                added_snapshot_id=row["added_snapshot_id"],
                first_row_id=row["first_row_id"],
            )
            columns = ["file_path", "record_count", "first_row_id"]
            for batch in read_entries([source], columns=columns, live_only=True):
                for entry in batch.table.to_pylist():
                    if row["content"]:
                        assert entry["first_row_id"] is None
                        continue
                    first = entry["first_row_id"]
                    assert known.setdefault(entry["file_path"], first) == first
                    ranges.append((first, first + entry["record_count"]))
        ranges.sort()
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(ranges))
        assert ranges[-1][1] <= next_row_id
    assert document["next-row-id"] == next_row_id


def test_same_time_gives_the_same_tables(demo: DemoTables, tmp_path: Path) -> None:
    again = create_demo(str(tmp_path), now_ms=NOW_MS)
    for name in NAMES:
        here, there = Path(getattr(demo, name)), Path(getattr(again, name))
        assert {p.relative_to(here) for p in here.rglob("*")} == {
            p.relative_to(there) for p in there.rglob("*")
        }
        moved = metadata_file(again, name).read_text().replace(str(there), str(here))
        ours = metadata_of(demo, name)
        theirs = json.loads(moved)
        assert [s["snapshot-id"] for s in theirs["snapshots"]] == [
            s["snapshot-id"] for s in ours["snapshots"]
        ]
        assert theirs["refs"] == ours["refs"]
        assert theirs["table-uuid"] == ours["table-uuid"]


def test_existing_table_is_left_alone(demo: DemoTables) -> None:
    before = metadata_file(demo, "events").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        create_demo(str(Path(demo.events).parents[1]), now_ms=NOW_MS + 1)
    assert metadata_file(demo, "events").read_bytes() == before

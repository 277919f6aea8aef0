"""The demo warehouse, read by PyIceberg, DuckDB and delta-rs and checked against its own summaries and log."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from iceberg_cli.demo import DAY_MS, DemoTables, create_demo
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.spec.deletes.puffin import read_footer
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, read_entries
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.testing.delta_vectors import positions_in, vector_file
from tests.cli.running import iceberg_cli
from tests.duckdb_reading import duckdb_with_delta, duckdb_with_iceberg

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


# -- visits, a Delta table -------------------------------------------------------------------------------------------


def log_of(demo: DemoTables) -> list[list[dict[str, Any]]]:
    """The actions of each version."""
    files = sorted(Path(demo.visits, "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def active_files(demo: DemoTables) -> list[dict[str, dict[str, Any]]]:
    """The adds after each version, by path: by the commits alone, without checkpoints."""
    versions: list[dict[str, dict[str, Any]]] = [{}]
    for actions in log_of(demo):
        active = dict(versions[-1])
        for remove in [action["remove"] for action in actions if "remove" in action]:
            assert active.pop(remove["path"]).get("deletionVector") == remove.get("deletionVector")
        versions.append(
            active | {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        )
    return versions[1:]


def visit_ids(demo: DemoTables, active: dict[str, dict[str, Any]]) -> list[int]:
    """The ids of the rows that are not deleted."""
    found = []
    for path, add in active.items():
        ids = pq.read_table(f"{demo.visits}/{path}", columns=["visit_id"])["visit_id"].to_pylist()
        deleted: list[int] = []
        if vector := add.get("deletionVector"):
            deleted = positions_in(Path(vector_file(vector, demo.visits) or "").read_bytes(), vector)
            assert len(deleted) == vector["cardinality"]
        found += [value for position, value in enumerate(ids) if position not in deleted]
    return sorted(found)


def test_delta_rs_reads_every_version_of_the_visits(demo: DemoTables) -> None:
    for version, active in enumerate(active_files(demo)):
        engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(demo.visits, version=version))
        found = pa.table(engine.execute("SELECT visit_id FROM t").read_all())["visit_id"].to_pylist()
        assert sorted(found) == visit_ids(demo, active)


def test_duckdb_reads_the_visits_by_their_newest_checkpoint(demo: DemoTables) -> None:
    query = f"SELECT visit_id FROM delta_scan('{demo.visits}') ORDER BY visit_id"
    ids = [value for (value,) in duckdb_with_delta().execute(query).fetchall()]
    assert ids == visit_ids(demo, active_files(demo)[-1])
    assert len(set(ids)) == 554


def test_statistics_of_the_visits_are_those_of_their_rows(demo: DemoTables) -> None:
    for add in {path: add for active in active_files(demo) for path, add in active.items()}.values():
        rows = pq.read_table(f"{demo.visits}/{add['path']}")
        stats = json.loads(add["stats"])
        assert (stats["numRecords"], add["size"]) == (
            len(rows),
            Path(demo.visits, add["path"]).stat().st_size,
        )
        for name in rows.column_names:
            values = rows[name].to_pylist()
            assert (stats["minValues"][name], stats["maxValues"][name], stats["nullCount"][name]) == (
                *(
                    each if isinstance(each, int | str) else each.isoformat()
                    for each in (min(values), max(values))
                ),
                0,
            )


def test_versions_of_the_visits_are_of_forty_days_and_end_now(demo: DemoTables) -> None:
    times = [actions[0]["commitInfo"]["timestamp"] for actions in log_of(demo)]
    files = sorted(Path(demo.visits, "_delta_log").glob("*.json"))
    assert [file.stat().st_mtime_ns for file in files] == [1_000_000 * each for each in times]
    assert (len(times), times[-1]) == (26, NOW_MS)
    assert 38 * DAY_MS < NOW_MS - times[0] < 40 * DAY_MS
    assert times == sorted(set(times))


def test_check_finds_nothing_in_the_visits_and_three_verbs_have_something_to_do(demo: DemoTables) -> None:
    checked = iceberg_cli("inspect", demo.visits, "--check", "--deep", "--as-of", NOW_MS, "--format", "json")
    assert checked.json["findings"] == []
    plan = iceberg_cli("plan", demo.visits, "--as-of", NOW_MS).out
    assert plan.startswith("expire-snapshots, rewrite-manifests and merge-dvs are due;")


def test_removed_files_of_the_visits_are_partly_past_their_retention(demo: DemoTables) -> None:
    removes = [action["remove"] for actions in log_of(demo) for action in actions if "remove" in action]
    ages = [(NOW_MS - remove["deletionTimestamp"]) / DAY_MS for remove in removes]
    assert min(ages) < 7 < max(ages)
    named = {path for active in active_files(demo) for path in active}
    [left_behind] = {path.name for path in Path(demo.visits).glob("*.parquet")} - named
    assert (NOW_MS - Path(demo.visits, left_behind).stat().st_mtime * 1000) / DAY_MS > 7


# -- all -------------------------------------------------------------------------------------------------------------


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
    assert files_of(again.visits) == files_of(demo.visits)


def files_of(folder: str) -> dict[str, tuple[int, bytes]]:
    """The files below a folder: when they were last written, and what is in them."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def test_the_command_names_all_three(tmp_path: Path) -> None:
    names = [f"{tmp_path}/db/{name}" for name in ("events", "orders", "visits")]
    assert iceberg_cli("demo", tmp_path, "--format", "json").json["tables"] == names


def test_existing_table_is_left_alone(demo: DemoTables) -> None:
    before = metadata_file(demo, "events").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        create_demo(str(Path(demo.events).parents[1]), now_ms=NOW_MS + 1)
    assert metadata_file(demo, "events").read_bytes() == before

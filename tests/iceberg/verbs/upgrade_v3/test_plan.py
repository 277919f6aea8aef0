"""Upgrades as metadata, and the findings before them. Expected values are the specification's, Appendix E."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.spec.manifests.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.upgrade_v3 import rules as upgrade_v3
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.iceberg.verbs.upgrade_v3.preflight import findings, writer_of
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import (
    ListFacts,
    PreflightReads,
    obstructing,
    snapshots_to_read,
)
from iceberg_cli.plan.findings import Finding
from tests.builders import DAY_MS, NOW_MS, a_branch, a_snapshot, a_table, a_table_document, a_tag
from tests.metadata_documents import PATH, without

# One data manifest of seven rows without row ids.
COUNTED = ListFacts(
    uncounted=0, encrypted=0, data_manifests=1, rows_without_ids=7, delete_manifests=0, delete_files=0
)
COUNTS = {
    f"{status}_{unit}_count": 1 for unit in ("files", "rows") for status in ("added", "existing", "deleted")
}


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The document of the same table in version 3."""
    base = TableMetadata.from_json(document, path=PATH)
    updates = updates_from_json(upgrade_v3.updates(base))
    after = with_updates(base, updates, base_location=PATH, timestamp_ms=NOW_MS)
    written: dict[str, Any] = json.loads(json.dumps(after.to_json()))
    TableMetadata.from_json(written, path=PATH)
    return written


def found(
    table: TableMetadata,
    lists: Mapping[int, ListFacts] | None = None,
    *,
    missing: tuple[int, ...] = (),
    repaired: tuple[int, ...] = (),
) -> dict[str, Finding]:
    looked = PreflightReads(lists=lists or {}, missing=frozenset(missing))
    made = findings(table, looked, table="t", as_of_ms=NOW_MS, repaired=frozenset(repaired))
    return {each.id: each for each in made}


# -- metadata ----------------------------------------------------------------------------------------------------


def a_sparse_v1_document() -> dict[str, Any]:
    """As the first writers left it: `schema` and `partition-spec` only, no refs, no ids of partition fields."""
    document = a_table_document(a_snapshot(1, summary={}), a_snapshot(2), format_version=1)
    document = without(
        document, "schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id",
        "sort-orders", "default-sort-order-id", "refs",
    )  # fmt: skip
    document["schema"] = without(document["schema"], "schema-id")
    document["partition-spec"] = [{"name": "n", "transform": "bucket[4]", "source-id": 1}]
    first, second = document["snapshots"]
    document["snapshots"] = [without(first, "summary"), {**second, "manifests": ["m.avro"]}]
    return document


def test_version_1_gets_everything_that_later_versions_require() -> None:
    new = upgraded(a_sparse_v1_document())
    assert new["format-version"] == 3
    assert (new["last-sequence-number"], new["next-row-id"]) == (0, 0)
    assert (new["schemas"][0]["schema-id"], new["current-schema-id"]) == (0, 0)
    field = {"name": "n", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}
    assert new["partition-specs"] == [{"spec-id": 0, "fields": [field]}]
    assert (new["default-spec-id"], new["last-partition-id"]) == (0, 1000)
    assert (new["sort-orders"], new["default-sort-order-id"]) == ([{"order-id": 0, "fields": []}], 0)
    assert new["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}
    assert [snapshot["sequence-number"] for snapshot in new["snapshots"]] == [0, 0]
    assert [snapshot["summary"] for snapshot in new["snapshots"]] == [
        {"operation": "overwrite"},
        {"operation": "append"},
    ]


def test_numbers_that_snapshots_of_version_1_should_not_have_are_none_above_the_tables() -> None:
    document = a_sparse_v1_document()
    document["snapshots"][0]["sequence-number"] = 7
    new = upgraded(document)  # which reads it again
    assert new["last-sequence-number"] == 7
    assert [snapshot["sequence-number"] for snapshot in new["snapshots"]] == [7, 0]


def test_version_1_loses_what_only_it_has() -> None:
    new = upgraded(a_sparse_v1_document())
    assert not {"schema", "partition-spec"} & new.keys()
    assert all("manifests" not in snapshot for snapshot in new["snapshots"])


def test_another_reader_takes_the_upgraded_table_for_version_3() -> None:
    for document in (a_sparse_v1_document(), a_table_document(a_snapshot(1), format_version=2)):
        other = TableMetadataUtil.parse_obj(upgraded(document))
        assert other.format_version == 3
        assert other.current_snapshot() is not None


def test_upgrade_leaves_everything_else_as_it_was() -> None:
    document = a_table_document(
        a_snapshot(1, somebody_elses="note"),
        a_snapshot(2),
        properties={"owner": "lake"},
        tag=a_tag(1),
        fields={"somebody-elses": {"a": 1}, "last-updated-ms": NOW_MS},
    )
    new = upgraded(document)
    changed = {key for key in document.keys() | new.keys() if document.get(key) != new.get(key)}
    assert changed == {"format-version", "next-row-id", "metadata-log"}


def test_snapshots_that_version_1_wrote_are_completed_in_a_version_2_table_too() -> None:
    document = a_table_document(a_snapshot(1), a_snapshot(2), format_version=2)
    first, second = document["snapshots"]
    document["snapshots"] = [without(first, "sequence-number"), second]
    new = upgraded(document)
    assert [snapshot["sequence-number"] for snapshot in new["snapshots"]] == [0, 2]


def test_a_snapshot_that_names_its_manifests_itself_keeps_them() -> None:
    document = a_table_document(a_snapshot(1, manifest_list=None, manifests=["m.avro"]), format_version=1)
    assert upgraded(document)["snapshots"][0]["manifests"] == ["m.avro"]


def test_a_transform_of_one_column_is_written_with_its_source_id() -> None:
    field = {"name": "n", "transform": "identity", "source-ids": [1], "field-id": 1000}
    order = {"transform": "identity", "source-ids": [1], "direction": "asc", "null-order": "nulls-first"}
    document = a_table_document(
        fields={
            "partition-specs": [{"spec-id": 0, "fields": [field]}],
            "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [order]}],
        }
    )
    new = upgraded(document)
    assert new["partition-specs"][0]["fields"][0]["source-id"] == 1
    assert new["sort-orders"][1]["fields"][0]["source-id"] == 1


def test_a_table_without_uuid_gets_the_same_one_whenever_it_is_planned() -> None:
    tables = [a_table(a_snapshot(1), format_version=1, fields={"table-uuid": None}) for _ in range(2)]
    first, second = (upgrade_v3.updates(table) for table in tables)
    assert first == second
    assert [update["action"] for update in first] == ["assign-uuid", "upgrade-format-version"]
    later = a_table(a_snapshot(1), a_snapshot(2, age_ms=-5), format_version=1, fields={"table-uuid": None})
    assert upgrade_v3.updates(later)[0] != first[0]


# -- what is read ------------------------------------------------------------------------------------------------


def test_lists_of_heads_and_of_version_1_are_read_and_no_others() -> None:
    table = a_table(
        a_snapshot(1, sequence_number=0), a_snapshot(2), a_snapshot(3), a_snapshot(4), b=a_branch(3)
    )
    assert [snapshot.snapshot_id for snapshot in snapshots_to_read(table)] == [1, 3, 4]


def test_a_list_in_sum() -> None:
    rows = [
        {"content": 0, **COUNTS, "added_rows_count": 5, "existing_rows_count": 2},
        {"content": 0, **COUNTS, "deleted_rows_count": None},
        {"content": 1, **COUNTS, "key_metadata": b"k"},
    ]
    assert ListFacts.of(pa.Table.from_pylist(rows, schema=MANIFEST_LIST_SCHEMA)) == ListFacts(
        uncounted=1, encrypted=1, data_manifests=2, rows_without_ids=9, delete_manifests=1, delete_files=2
    )


def test_rows_of_manifests_with_row_ids_are_not_without() -> None:
    rows = [
        {"content": 0, **COUNTS, "added_rows_count": 5, "first_row_id": 0},
        {"content": 0, **COUNTS, "added_rows_count": 7},
        {"content": 1, **COUNTS, "added_rows_count": 9},
    ]
    facts = ListFacts.of(pa.Table.from_pylist(rows, schema=MANIFEST_LIST_SCHEMA))
    assert facts.rows_without_ids == 8


def test_snapshots_without_list_or_with_a_list_without_counts_obstruct() -> None:
    table = a_table(
        a_snapshot(1, manifest_list=None, manifests=["m"]), a_snapshot(2), a_snapshot(3), format_version=1
    )
    uncounted = replace(COUNTED, uncounted=2, data_manifests=2, rows_without_ids=None)
    assert list(obstructing(table, PreflightReads(lists={2: uncounted, 3: COUNTED}))) == [1, 2]


# -- findings ----------------------------------------------------------------------------------------------------

FIELD = {"name": "n", "source-id": 1, "field-id": 1000}
OF_TWO_COLUMNS = {"name": "n", "source-ids": [1, 2], "field-id": 1000, "transform": "bucket[4]"}
ENCRYPTED = replace(COUNTED, encrypted=3, data_manifests=3)
BACKLOG = replace(COUNTED, delete_manifests=1, delete_files=4)
UNCOUNTED = replace(COUNTED, uncounted=1, rows_without_ids=None)


def with_type(type_: str, **column: Any) -> dict[str, Any]:
    column = {"id": 1, "name": "n", "required": False, "type": type_, **column}
    return {"schemas": [{"type": "struct", "schema-id": 0, "fields": [column]}]}


def with_specs(*fields: dict[str, Any], default: int = 0) -> dict[str, Any]:
    """Partition specs of one field each, and one without fields in the end."""
    specs = [{"spec-id": number, "fields": [{**FIELD, **each}]} for number, each in enumerate(fields)]
    specs.append({"spec-id": len(fields), "fields": []})
    return {"partition-specs": specs, "default-spec-id": default}


def written_by(version: str) -> dict[str, Any]:
    """A snapshot of a Spark with this version of Iceberg."""
    writer = {"engine-name": "spark", "engine-version": "4.1.4"}
    return a_snapshot(1, summary={**writer, "iceberg-version": f"Apache Iceberg {version} (commit 1)"})


def a_case(
    id_: str,
    severity: str,
    *snapshots: dict[str, Any],
    lists: dict[int, ListFacts] | None = None,
    **values: Any,
) -> Any:
    """A finding, and the table that has it: of one plain snapshot if none are given."""
    table = a_table(*(snapshots or (a_snapshot(1),)), **values)
    return pytest.param(id_, severity, table, lists or {}, id=f"{id_}-{severity}")


@pytest.mark.parametrize(
    ("id_", "severity", "table", "lists"),
    [
        a_case(
            "inline-manifests", "blocking", a_snapshot(1, manifest_list=None, manifests=["m"]), a_snapshot(2),
            format_version=1, lists={2: COUNTED},
        ),
        a_case(
            "uncounted-manifests", "blocking", a_snapshot(1), a_snapshot(2), format_version=1,
            lists={1: UNCOUNTED},
        ),
        a_case("encryption-keys", "blocking", lists={1: ENCRYPTED}),
        a_case("encryption-keys", "blocking", properties={"encryption.key-id": "k"}),
        a_case("encryption-keys", "blocking", a_snapshot(1, key_id="k")),
        a_case("encryption-keys", "blocking", fields={"encryption-keys": [{"key-id": "k"}]}),
        a_case("unknown-type", "blocking", fields=with_type("quaternion")),
        a_case("unknown-transform", "blocking", fields=with_specs({"transform": "zorder"})),
        a_case("unknown-transform", "warning", fields=with_specs({"transform": "zorder"}, default=1)),
        a_case("unknown-field", "info", fields={"somebody-elses": 1}),
        a_case("writer-without-v3", "blocking", written_by("1.7.2")),
        a_case("writer-reads-v3-partly", "warning", written_by("1.9.0")),
        a_case("writer-reads-v3", "info", written_by("1.12.0")),
        a_case("writer-unknown", "warning"),
        a_case(
            "equality-deletes", "warning", a_snapshot(1, summary={"total-equality-deletes": "8"}),
            lists={1: BACKLOG},
        ),
        a_case(
            "position-deletes", "warning", a_snapshot(1, summary={"total-position-deletes": "3"}),
            lists={1: BACKLOG},
        ),
        a_case("position-deletes", "warning", lists={1: BACKLOG}),
        a_case("rows-without-ids", "warning", lists={1: COUNTED}),
        a_case("v1-manifest-lists", "warning", format_version=1, lists={1: COUNTED}),
        a_case("snapshots-without-ids", "warning", eom=a_tag(1)),
        a_case("rare-type", "warning", fields=with_type("timestamp_ns")),
        a_case("default-values", "warning", fields=with_type("long", **{"initial-default": 5})),
        a_case(
            "multi-argument-transform", "warning",
            fields={"partition-specs": [{"spec-id": 0, "fields": [OF_TWO_COLUMNS]}]},
        ),
        a_case("deletion-vectors", "info", properties={"write.delete.mode": "merge-on-read"}),
        a_case("no-table-uuid", "info", format_version=1, fields={"table-uuid": None}),
        a_case("already-v3", "info", format_version=3),
        a_case(
            "partition-field-ids", "warning", format_version=1,
            fields=with_specs({"transform": "identity"}, {"transform": "identity", "source-id": 2}),
        ),
    ],
)  # fmt: skip
def test_each_finding_is_made_and_has_a_way_out(
    id_: str, severity: str, table: TableMetadata, lists: dict[int, ListFacts]
) -> None:
    finding = found(table, lists)[id_]
    assert finding.severity == severity
    assert finding.message
    assert finding.remedy.startswith(("iceberg-cli ", "CALL ", "ALTER ", "CREATE "))


def test_a_plain_table_has_no_blocking_finding_and_numbers_in_its_warnings() -> None:
    table = a_table(a_snapshot(1, age_ms=DAY_MS), a_snapshot(2), b=a_branch(1), eom=a_tag(1))
    made = found(table, {1: COUNTED, 2: COUNTED})
    assert not [each for each in made.values() if each.severity == "blocking"]
    assert made["rows-without-ids"].message.startswith("14 rows of 2 branches, counted once per branch, read")
    assert made["snapshots-without-ids"].message.startswith("2 snapshots and 1 tag (eom)")
    assert made["writer-unknown"].message.startswith("an unnamed writer made 2 snapshots in the last 30 days")


def test_a_table_of_version_3_has_nothing_to_upgrade_and_nothing_blocks() -> None:
    table = a_table(a_snapshot(1), format_version=3, fields={"encryption-keys": [{"key-id": "k"}]})
    made = found(
        table, {1: replace(COUNTED, rows_without_ids=0, position_files=0, positions=0, delete_files=4)}
    )
    assert made["already-v3"].message == "the table has format version 3: nothing to upgrade"
    assert set(made) == {"already-v3"}
    uncounted = found(table, {1: replace(UNCOUNTED, rows_without_ids=3)})
    assert uncounted["uncounted-manifests"].severity == "warning"
    assert uncounted["rows-without-ids"].remedy == "iceberg-cli assign-row-ids t"


def test_deletion_vectors_are_no_position_delete_files() -> None:
    table = a_table(a_snapshot(1, summary={"total-position-deletes": "30"}), format_version=3)
    counted = replace(BACKLOG, position_files=1, positions=3)
    finding = found(table, {1: counted})["position-deletes"]
    assert finding.message.startswith("1 position delete file of 3 positions: ")
    assert finding.remedy == "iceberg-cli merge-dvs t"
    assert "position-deletes" not in found(table, {1: replace(BACKLOG, position_files=0, positions=0)})


def test_merge_dvs_is_offered_for_main_alone() -> None:
    table = a_table(a_snapshot(1), a_snapshot(2), b=a_branch(1))
    made = findings(
        table,
        PreflightReads(lists={1: BACKLOG, 2: BACKLOG}),
        table="t",
        as_of_ms=NOW_MS,
        repaired=frozenset(),
    )
    by_branch = {each.where: each for each in made if each.id == "position-deletes"}
    assert by_branch["branch main"].remedy == "iceberg-cli upgrade-v3 t --with merge-dvs"
    assert by_branch["branch b"].remedy == "iceberg-cli inspect t deletes --ref b"
    assert by_branch["branch b"].message.endswith("merge-dvs does main only")


def test_commands_quote_the_table_and_sql_does_not_name_a_path() -> None:
    table = a_table(a_snapshot(1, summary={"total-equality-deletes": "8"}))
    made = findings(table, PreflightReads(lists={1: BACKLOG}), table="my lake/t", as_of_ms=NOW_MS)
    remedies = {each.id: each.remedy for each in made}
    assert remedies["rows-without-ids"] == "iceberg-cli upgrade-v3 'my lake/t' --with assign-row-ids"
    assert "table => '<catalog.db.table>'" in remedies["equality-deletes"]
    assert not any("my lake/t" in each and "'my lake/t'" not in each for each in remedies.values())


def test_tags_on_snapshots_with_ids_are_not_among_those_without() -> None:
    document = a_table_document(a_snapshot(1), a_snapshot(2), format_version=3, old=a_tag(1), new=a_tag(2))
    first, second = document["snapshots"]
    document["snapshots"] = [without(first, "first-row-id", "added-rows"), second]
    table = TableMetadata.from_json(document, path=PATH)
    assert found(table)["snapshots-without-ids"].message.startswith("1 snapshot and 1 tag (old)")


def test_a_missing_list_is_told_of() -> None:
    assert (
        found(a_table(a_snapshot(1), a_snapshot(2)), missing=(1,))["missing-manifest-list"].severity
        == "warning"
    )


def the_way_out(table: TableMetadata, *missing: int) -> str:
    return found(table, missing=missing)["missing-manifest-list"].remedy


def test_the_way_out_of_a_missing_list_expires_no_snapshot_that_a_ref_still_names() -> None:
    table = a_table(a_snapshot(1), a_snapshot(2), a_snapshot(3), old=a_tag(1))
    expire = "iceberg-cli expire-snapshots t --snapshot-id"
    assert the_way_out(table, 2) == f"{expire} 2"
    assert the_way_out(table, 1) == f"ALTER TABLE <catalog.db.table> DROP TAG `old`; then {expire} 1"
    back = "CALL system.rollback_to_snapshot(table => '<catalog.db.table>', snapshot_id => 2)"
    assert the_way_out(table, 3) == f"{back}; then {expire} 3"


def test_where_no_list_of_main_is_left_one_is_to_be_restored() -> None:
    table = a_table(a_snapshot(1), a_snapshot(2))
    head = table.current_snapshot()
    assert head is not None
    restore = f"restore {head.manifest_list} from a backup"
    assert the_way_out(table, 1, 2) == f"{restore}; then iceberg-cli expire-snapshots t --snapshot-id 1"
    assert the_way_out(a_table(a_snapshot(2)), 2) == restore


def test_what_a_repair_clears_does_not_block() -> None:
    table = a_table(a_snapshot(1), a_snapshot(2), format_version=1)
    assert "uncounted-manifests" not in found(table, {1: UNCOUNTED}, repaired=(1,))


def test_writers_of_long_ago_count_only_where_nobody_wrote_since() -> None:
    old = a_snapshot(1, age_ms=90 * DAY_MS, summary={"iceberg-version": "Apache Iceberg 1.4.0 (commit 1)"})
    new = a_snapshot(2, summary={"iceberg-version": "Apache Iceberg 1.12.0 (commit 2)"})
    assert "writer-without-v3" in found(a_table(old))
    assert "writer-without-v3" not in found(a_table(old, new))


def test_the_writer_that_the_upgrade_shuts_out_wrote_last_or_is_only_warned_of() -> None:
    """This program names no writer in summaries, so that what it made is nobody's."""
    old = {
        "engine-name": "spark",
        "engine-version": "3.4.1",
        "iceberg-version": "Apache Iceberg 1.4.0 (commit 1)",
    }
    new = {
        "engine-name": "spark",
        "engine-version": "4.1.4",
        "iceberg-version": "Apache Iceberg 1.12.0 (commit 2)",
    }
    before, after = a_snapshot(1, age_ms=90 * DAY_MS, summary=old), a_snapshot(2, age_ms=1, summary=new)
    ours = a_snapshot(3, summary={"operation": "replace"})
    severities = {
        name: found(a_table(*snapshots))["writer-without-v3"].severity
        for name, snapshots in {
            "alone": [before],
            "before ours": [before, ours],
            "before another": [a_snapshot(1, age_ms=2, summary=old), after],
            "after another": [after, a_snapshot(3, summary=old)],
        }.items()
    }
    assert severities == {
        "alone": "blocking", "before ours": "blocking", "before another": "warning", "after another": "blocking",
    }  # fmt: skip
    finding = found(a_table(before, ours))["writer-without-v3"]
    assert finding.remedy == "iceberg-cli upgrade-v3 t --allow-writer-loss 'spark 3.4.1'"
    looked = PreflightReads(lists={})
    for name, severity in {"spark 3.4.1": "warning", "spark": "blocking"}.items():
        policy = {"allow_writer_loss": [name]}
        made = findings(a_table(before), looked, table="t", as_of_ms=NOW_MS, policy=policy)
        assert [each.severity for each in made if each.id == "writer-without-v3"] == [severity]


@pytest.mark.parametrize(
    ("summary", "support"),
    [
        (
            {"iceberg-version": "Apache Iceberg 1.7.1 (commit 4a432839233f2343a9eae8255532f911f06358ef)"},
            "not",
        ),
        (
            {"iceberg-version": "Apache Iceberg 1.8.0 (commit c277c2014a1b37ae755c6bb73f1e8ddd9d86dd88)"},
            "partly",
        ),
        ({"iceberg-version": "Apache Iceberg 1.10.0 (commit 2114bf6)"}, "reads"),
        ({"iceberg-version": "Apache Iceberg 2.0.0 (commit 2114bf6)"}, "reads"),
        (
            {"engine-name": "trino", "engine-version": "479", "iceberg-version": "Apache Iceberg 1.10.0"},
            "not",
        ),
        ({"engine-name": "trino", "engine-version": "480-e.2"}, "partly"),
        ({"trino_query_id": "2026_x", "iceberg-version": "Apache Iceberg 1.10.0"}, "unknown"),
        ({"engine-name": "spark", "engine-version": "3.5.0"}, "unknown"),
        ({}, "unknown"),
    ],
    ids=str,
)
def test_what_a_writer_reads_follows_from_its_release(summary: dict[str, str], support: str) -> None:
    assert writer_of(summary).support == support


# -- policy ------------------------------------------------------------------------------------------------------


def test_policy_comes_back_from_its_json_form() -> None:
    policy = UpgradeV3(recipe=("repair-manifests", "assign-row-ids"), tags="drop")
    assert UpgradeV3.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"with": []},
        {"with": "x", "tags": "refuse"},
        {"with": ["x"], "tags": "refuse"},
        {"with": [], "tags": 1},
    ],
    ids=str,
)
def test_a_policy_of_another_shape_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        UpgradeV3.from_json(value)

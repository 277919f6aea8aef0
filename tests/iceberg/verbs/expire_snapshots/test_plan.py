"""What the plan of expire-snapshots says, and the metadata that its commit makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_cli.iceberg.commit.update import updates_from_json, with_updates
from iceberg_cli.iceberg.reachability.question import ReachQuestion, ReferencedIds, snapshot_files
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.rules import kept_snapshots, plan, reach_of
from iceberg_cli.plan.plan import Base, Plan
from iceberg_cli.plan.text import iso
from tests.builders import (
    DAY_MS,
    HOUR_MS,
    LOCATION,
    NOW_MS,
    SCHEMA,
    SPEC,
    a_branch,
    a_snapshot,
    a_statistics_file,
    a_table,
    a_tag,
)

PATH = f"{LOCATION}/metadata/v1.metadata.json"


def planned(table: TableMetadata, facts: ReferencedIds | None = None, **policy: Any) -> Plan:
    base = Base(table_uuid=table.table_uuid or "", version=PATH)
    return plan(
        table, ExpireSnapshots(**policy), base=base, table={"name": "t"}, as_of_ms=NOW_MS, facts=facts
    )


def updates(made: Plan) -> list[dict[str, Any]]:
    return [dict(update) for step in made.steps if step.change for update in step.change.updates]


def after(table: TableMetadata, **policy: Any) -> dict[str, Any]:
    changes = updates_from_json(updates(planned(table, **policy)))
    return with_updates(table, changes, base_location=PATH, timestamp_ms=NOW_MS).to_json()


def reach(table: TableMetadata, **policy: Any) -> ReachQuestion:
    made = planned(table, **policy)
    [step] = made.steps
    return reach_of(table, ExpireSnapshots(**policy), made)[step.name]


def ids(snapshots: Any) -> list[int]:
    return [snapshot.snapshot_id for snapshot in snapshots]


def four_days(**values: Any) -> TableMetadata:
    return a_table(*(a_snapshot(n, age_ms=(10 - n) * DAY_MS) for n in range(1, 5)), **values)


def partition_stats(snapshot_id: int, path: str) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 7}


# -- the change ------------------------------------------------------------------------------------------------


def test_the_commit_removes_refs_then_snapshots_in_the_catalogs_own_words() -> None:
    table = four_days(old=a_tag(1, max_ref_age_ms=1), older=a_branch(2, max_ref_age_ms=1))
    assert updates(planned(table, retain_last=2, older_than=NOW_MS)) == [
        {"action": "remove-snapshot-ref", "ref-name": "old"},
        {"action": "remove-snapshot-ref", "ref-name": "older"},
        {"action": "remove-snapshots", "snapshot-ids": [1, 2]},
    ]


def test_nothing_to_expire_is_a_plan_without_a_step() -> None:
    made = planned(a_table(a_snapshot(1)))
    assert (made.due, made.steps) == (False, ())
    assert [verdict.keep for verdict in made.verdicts] == [True, True]


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    made = planned(a_table())
    assert (made.due, made.verdicts) == (False, ())


def test_parent_ids_of_kept_snapshots_still_name_expired_ones() -> None:
    left = after(four_days(), retain_last=1, older_than=NOW_MS)
    assert [(s["snapshot-id"], s["parent-snapshot-id"]) for s in left["snapshots"]] == [(4, 3)]


def test_the_snapshot_log_starts_after_the_last_expired_entry() -> None:
    # Java, measured: snapshots [0, 1, 2, 3] with 2 expired leave the log [3], though 0 and 1 are kept.
    left = after(four_days(), snapshot_ids=(3,))
    assert [s["snapshot-id"] for s in left["snapshots"]] == [1, 2, 4]
    assert [entry["snapshot-id"] for entry in left["snapshot-log"]] == [4]


def test_statistics_of_expired_snapshots_leave_the_metadata_and_those_of_kept_ones_stay() -> None:
    table = four_days(
        fields={
            "statistics": [a_statistics_file(1, "/s/1"), a_statistics_file(4, "/s/4")],
            "partition-statistics": [partition_stats(2, "/p/2"), partition_stats(4, "/p/4")],
        }
    )
    left = after(table, retain_last=1, older_than=NOW_MS)
    assert [entry["statistics-path"] for entry in left["statistics"]] == ["/s/4"]
    assert [entry["statistics-path"] for entry in left["partition-statistics"]] == ["/p/4"]


def test_fields_and_properties_that_nobody_here_knows_survive_the_commit() -> None:
    table = four_days(properties={"acme.owner": "ops"}, fields={"x-acme": {"deep": [1, 2]}})
    left = after(table, retain_last=1, older_than=NOW_MS)
    assert left["x-acme"] == {"deep": [1, 2]}
    assert left["properties"] == {"acme.owner": "ops"}


# -- the question ----------------------------------------------------------------------------------------------


def test_the_plan_asks_what_expired_snapshots_reach_that_kept_ones_do_not() -> None:
    table = four_days(
        fields={
            "statistics": [a_statistics_file(1, "/s/1"), a_statistics_file(4, "/s/4")],
            "partition-statistics": [partition_stats(2, "/p/2")],
        }
    )
    asked = reach(table, retain_last=2, older_than=NOW_MS)
    assert (ids(asked.expired), ids(asked.kept)) == ([1, 2], [3, 4])
    assert [(file.path, file.size_bytes) for file in asked.expired_files] == [("/s/1", 10), ("/p/2", 7)]
    assert asked.kept_files == {"/s/4"}
    assert asked.content


def test_cleanup_metadata_asks_for_no_content_and_cleanup_none_asks_nothing() -> None:
    assert not reach(four_days(), retain_last=1, cleanup="metadata").content
    nothing = ExpireSnapshots(retain_last=1, cleanup="none")
    assert reach_of(four_days(), nothing, planned(four_days(), retain_last=1, cleanup="none")) == {}


def test_totals_that_are_no_numbers_confirm_nothing() -> None:
    summary = {"total-data-files": "-1", "total-delete-files": "٣", "added-data-files": "7"}
    [snapshot] = a_table(a_snapshot(1, summary=summary)).snapshots
    files = snapshot_files(snapshot)
    assert (files.total_data_files, files.total_delete_files, files.added_data_files) == (None, None, 7)


# -- schemas and specs -----------------------------------------------------------------------------------------


def evolved(**fields: Any) -> TableMetadata:
    """Schemas 0 to 3, of which 3 is current; specs 0 to 2, of which 2 is the default."""
    columns = [
        {"id": number, "name": f"c{number}", "required": False, "type": "long"} for number in (1, 2, 3, 4)
    ]
    schemas = [SCHEMA | {"schema-id": number, "fields": columns[: number + 1]} for number in range(4)]
    specs = [SPEC | {"spec-id": number} for number in range(3)]
    snapshots = [a_snapshot(n, age_ms=(10 - n) * DAY_MS, schema_id=n - 1) for n in range(1, 4)]
    values = {
        "schemas": schemas,
        "current-schema-id": 3,
        "last-column-id": 4,
        "partition-specs": specs,
        "default-spec-id": 2,
    }
    return a_table(*snapshots, fields=values | fields)


def dropped(made: Plan, subject: str) -> set[int]:
    return {int(v.id) for v in made.verdicts if v.subject == subject and not v.keep}


def facts(*spec_ids: int, equality: tuple[int, ...] = ()) -> ReferencedIds:
    return ReferencedIds(partition_spec_ids=frozenset(spec_ids), equality_field_ids=frozenset(equality))


def test_schemas_that_no_kept_snapshot_names_go_but_for_the_current_one() -> None:
    made = planned(evolved(), facts(2), clean_metadata=True, retain_last=1, older_than=NOW_MS)
    assert dropped(made, "schema") == {0, 1}
    assert {"action": "remove-schemas", "schema-ids": [0, 1]} in updates(made)


def test_specs_that_no_kept_manifest_has_go_but_for_the_default_one() -> None:
    made = planned(evolved(), facts(1), clean_metadata=True, retain_last=1, older_than=NOW_MS)
    assert dropped(made, "partition-spec") == {0}
    assert {"action": "remove-partition-specs", "spec-ids": [0]} in updates(made)


def test_a_schema_with_a_field_that_a_live_equality_delete_names_stays() -> None:
    made = planned(evolved(), facts(2, equality=(2,)), clean_metadata=True, retain_last=1, older_than=NOW_MS)
    assert dropped(made, "schema") == {0}


def test_no_schema_goes_while_a_kept_snapshot_does_not_say_which_it_has() -> None:
    table = evolved()
    silent = replace(table.snapshots[-1], schema_id=None)
    table = replace(table, snapshots=(*table.snapshots[:-1], silent))
    made = planned(table, facts(2), clean_metadata=True, retain_last=1, older_than=NOW_MS)
    assert dropped(made, "schema") == set()


def test_clean_metadata_is_due_even_where_no_snapshot_expires() -> None:
    made = planned(evolved(), facts(2), clean_metadata=True, older_than=NOW_MS - 30 * DAY_MS)
    assert dropped(made, "snapshot") == set()
    assert updates(made) == [{"action": "remove-partition-specs", "spec-ids": [0, 1]}]


def test_without_clean_metadata_no_schema_and_no_spec_is_judged() -> None:
    made = planned(evolved(), retain_last=1, older_than=NOW_MS)
    assert {verdict.subject for verdict in made.verdicts} == {"branch", "snapshot"}


def test_what_must_be_read_before_clean_metadata_is_the_kept_snapshots() -> None:
    policy = ExpireSnapshots(clean_metadata=True, retain_last=1, older_than=NOW_MS)
    assert ids(kept_snapshots(evolved(), policy, as_of_ms=NOW_MS)) == [3]


# -- options, warnings, interlocks -----------------------------------------------------------------------------


def test_every_option_says_where_its_value_came_from() -> None:
    table = four_days(properties={"history.expire.min-snapshots-to-keep": "3"})
    options = planned(table, older_than=NOW_MS - 7 * DAY_MS).options
    assert (options["older_than_ms"].value, options["older_than_ms"].source) == (
        NOW_MS - 7 * DAY_MS,
        "--older-than",
    )
    assert options["retain_last"].source == "table property history.expire.min-snapshots-to-keep"
    assert options["cleanup"].source == "default"


@pytest.mark.parametrize("text", ["false", "FALSE", "no", "0", ""])
def test_gc_enabled_false_blocks_and_the_verdicts_are_still_shown(text: str) -> None:
    made = planned(four_days(properties={"gc.enabled": text}), retain_last=1, older_than=NOW_MS)
    assert made.blocked_by == (f"table property gc.enabled={text}: another table may use these files",)
    assert dropped(made, "snapshot") == {1, 2, 3}


def test_a_cut_off_younger_than_a_day_suggests_a_grace() -> None:
    def warned(**policy: Any) -> bool:
        return any("--grace 24h" in text for text in planned(four_days(), **policy).warnings)

    assert warned(older_than=NOW_MS - HOUR_MS)
    assert not warned(older_than=NOW_MS - DAY_MS)
    assert not warned(older_than=NOW_MS - HOUR_MS, grace=DAY_MS)
    assert not warned(snapshot_ids=(1,))


def test_snapshots_of_the_future_are_a_warning() -> None:
    made = planned(a_table(a_snapshot(1, age_ms=DAY_MS), a_snapshot(2, age_ms=-DAY_MS)))
    assert any(
        text.startswith(f"snapshot 2 is dated {iso(NOW_MS + DAY_MS)}, and ages") for text in made.warnings
    )


def test_a_policy_survives_its_json_with_every_field() -> None:
    policy = ExpireSnapshots(
        older_than=NOW_MS,
        retain_last=2,
        snapshot_ids=(2**63 - 1, 7),
        clean_metadata=True,
        cleanup="none",
        grace=9,
    )
    assert ExpireSnapshots.from_json(policy.to_json()) == policy
    assert policy.to_json()["snapshot_ids"] == ["7", str(2**63 - 1)]

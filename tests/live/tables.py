"""Makers of tables: what Spark writes, in a few statements each, and how each is expired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.live.lake import Lake

MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One table and the policy under which it is expired; every snapshot is older than the cut-off."""

    make: Callable[[Lake, str], None]
    retain_last: int = 1
    clean_metadata: bool = False
    row_ids: bool = False
    kinds_removed: frozenset[str] = field(default_factory=frozenset)  # at least these go

    @property
    def name(self) -> str:
        return self.make.__name__


def create(
    lake: Lake,
    table: str,
    columns: str,
    *,
    version: int,
    by: str = "",
    properties: dict[str, str] | None = None,
) -> None:
    """An empty table; a delete leaves delete files, not new data files, where the version has them."""
    given = {"format-version": str(version), **(MERGE_ON_READ if version > 1 else {}), **(properties or {})}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    partitioned = f" PARTITIONED BY ({by})" if by else ""
    lake.sql(table, f"CREATE TABLE {{t}} ({columns}) USING iceberg{partitioned} TBLPROPERTIES ({text})")


def insert(
    lake: Lake, table: str, first: int, last: int, values: str = "concat('k', id % 2)", *, branch: str = ""
) -> None:
    """One snapshot with the rows `first` to `last`, in one file for each partition."""
    target = f"{{t}}.branch_{branch}" if branch else "{t}"
    lake.sql(table, f"INSERT INTO {target} SELECT id, {values} FROM range({first}, {last + 1}, 1, 1)")


def v1_evolved_spec(lake: Lake, table: str) -> None:
    """Version 1; the partition spec changes twice and a column comes and goes."""
    create(lake, table, "id bigint, k string", version=1, by="k")
    insert(lake, table, 0, 9)
    lake.sql(table, "ALTER TABLE {t} REPLACE PARTITION FIELD k WITH bucket(4, id)")
    insert(lake, table, 10, 19)
    lake.sql(table, "ALTER TABLE {t} ADD COLUMN passing int")
    insert(lake, table, 20, 24, "'p', 7")
    lake.sql(table, "ALTER TABLE {t} DROP COLUMN passing")
    lake.sql(table, "ALTER TABLE {t} DROP PARTITION FIELD bucket(4, id)")
    lake.sql(table, "DELETE FROM {t} WHERE id < 18")
    insert(lake, table, 30, 34)


def v2_evolved_spec_and_schema(lake: Lake, table: str) -> None:
    """Version 2; files of three specs are live, of one schema none."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    insert(lake, table, 0, 9)
    lake.sql(table, "ALTER TABLE {t} ADD COLUMN n int AFTER id")
    lake.sql(table, "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, id)")
    insert(lake, table, 10, 13, "1, 'x'")
    lake.sql(table, "ALTER TABLE {t} RENAME COLUMN n TO m")
    lake.sql(table, "ALTER TABLE {t} DROP PARTITION FIELD k")
    insert(lake, table, 14, 17, "2, 'y'")
    lake.sql(table, "DELETE FROM {t} WHERE id IN (3, 11, 15)")
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (14, 3, 'z')")


def v2_position_deletes(lake: Lake, table: str) -> None:
    """Position delete files, some of which a compaction makes superfluous."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    insert(lake, table, 0, 19)
    insert(lake, table, 20, 39)
    for rest in (1, 2, 3):
        lake.sql(table, f"DELETE FROM {{t}} WHERE id % 7 = {rest}")
    where = "where => 'k = \"k0\"', options => map('rewrite-all', 'true')"
    lake.sql(table, f"CALL {{c}}.system.rewrite_data_files(table => '{{t}}', {where})")
    insert(lake, table, 40, 41)


def v2_overwritten_partitions(lake: Lake, table: str) -> None:
    """Whole partitions are written anew, deleted, and the table is truncated once."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    insert(lake, table, 0, 9)
    lake.sql(table, "TRUNCATE TABLE {t}")
    insert(lake, table, 0, 9, "concat('k', id % 3)")
    lake.sql(table, "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(100, 103, 1, 1)")
    lake.sql(table, "DELETE FROM {t} WHERE k = 'k2'")
    lake.sql(table, "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(200, 202, 1, 1)")


def v2_merged_manifests(lake: Lake, table: str) -> None:
    """Every third append merges manifests; a rewrite replaces those that are left."""
    properties = {"commit.manifest.min-count-to-merge": "3"}
    create(lake, table, "id bigint, k string", version=2, properties=properties)
    for first in range(0, 14, 2):
        insert(lake, table, first, first + 1)
    lake.sql(table, "CALL {c}.system.rewrite_manifests('{t}')")
    lake.sql(table, "DELETE FROM {t} WHERE id < 4")


def refs_with_retention(lake: Lake, table: str) -> None:
    """A branch with its own ages, one whose time is over, a tag that stays and one that goes."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    for first in (0, 10):
        insert(lake, table, first, first + 1)
    lake.sql(table, "ALTER TABLE {t} CREATE TAG kept_tag RETAIN 365 DAYS")
    lake.sql(table, "ALTER TABLE {t} CREATE TAG old_tag")
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (20, 'k0')")
    lake.sql(table, "ALTER TABLE {t} CREATE BRANCH audit WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    lake.sql(table, "ALTER TABLE {t} CREATE BRANCH young WITH SNAPSHOT RETENTION 3 DAYS")
    lake.sql(table, "ALTER TABLE {t} CREATE BRANCH old_branch")
    for first in (30, 40, 50):
        insert(lake, table, first, first + 1, branch="audit")
    for branch in ("young", "old_branch"):
        insert(lake, table, 60, 61, branch=branch)
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (70, 'k0')")
    manage = lake.java(table).manageSnapshots()
    manage.setMaxRefAgeMs("old_tag", 1).setMaxRefAgeMs("old_branch", 1).commit()


def rolled_back(lake: Lake, table: str) -> None:
    """Two snapshots left main by a rollback; their rows are written again."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    for first in (0, 10, 20, 30):
        insert(lake, table, first, first + 1)
    second = lake.snapshot_ids(table)[1]
    lake.sql(table, f"CALL {{c}}.system.rollback_to_snapshot('{{t}}', {second})")
    insert(lake, table, 40, 41)
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (50, 'k1')")


def staged_wap(lake: Lake, table: str) -> None:
    """Two snapshots written aside for audit; one of them is published."""
    create(lake, table, "id bigint, k string", version=2, by="k", properties={"write.wap.enabled": "true"})
    insert(lake, table, 0, 9)
    for wap_id, first in (("published", 10), ("forgotten", 20)):
        lake.spark.conf.set("spark.wap.id", f"{table}-{wap_id}")
        insert(lake, table, first, first + 1)
        lake.spark.conf.unset("spark.wap.id")
    insert(lake, table, 30, 31)
    published = lake.snapshot_ids(table)[1]
    lake.sql(table, f"CALL {{c}}.system.cherrypick_snapshot('{{t}}', {published})")
    lake.sql(table, "DELETE FROM {t} WHERE id = 5")


def gzip_metadata(lake: Lake, table: str) -> None:
    """Compressed metadata files, of which two old ones are kept."""
    properties = {
        "write.metadata.compression-codec": "gzip",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    }
    create(lake, table, "id bigint, k string", version=2, properties=properties)
    for first in (0, 10, 20):
        insert(lake, table, first, first + 1)
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (30, 'k')")


def statistics_files(lake: Lake, table: str) -> None:
    """Table and partition statistics for three of four snapshots, the last one's among them."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    for first in (0, 10, 20, 30):
        insert(lake, table, first, first + 1)
        if first != 10:
            lake.sql(table, "CALL {c}.system.compute_table_stats('{t}')")
            lake.sql(table, "CALL {c}.system.compute_partition_stats('{t}')")


def special_paths(lake: Lake, table: str) -> None:
    """Partition values that look like something else in a path."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    values = ("'50%'", "'a/b'", "''", "null", "'a b+c'", "'%2F'", "'../up'", "'gr\u00fc\u00df'")
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    lake.sql(table, f"INSERT INTO {{t}} VALUES {rows}")
    lake.sql(table, f"INSERT OVERWRITE {{t}} VALUES {rows}")
    insert(lake, table, 20, 21)


def data_beside_the_table(lake: Lake, table: str) -> None:
    """The data is not in the table's own folder but where `write.data.path` says."""
    elsewhere = f"{lake.warehouse}/db/{table}-data"
    create(lake, table, "id bigint, k string", version=2, by="k", properties={"write.data.path": elsewhere})
    insert(lake, table, 0, 9)
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (10, 'k0')")
    insert(lake, table, 20, 21)


def v3_deletion_vectors(lake: Lake, table: str) -> None:
    """Deletion vectors that replace each other, and an update."""
    create(lake, table, "id bigint, k string", version=3, by="k")
    insert(lake, table, 0, 19)
    insert(lake, table, 20, 39)
    for rest in (1, 2):
        lake.sql(table, f"DELETE FROM {{t}} WHERE id % 7 = {rest}")
    lake.sql(table, "UPDATE {t} SET k = 'k1' WHERE id IN (0, 20)")
    lake.sql(table, "INSERT OVERWRITE {t} VALUES (100, 'k0')")


def v3_shared_puffin(lake: Lake, table: str) -> None:
    """One Puffin file holds the deletion vectors of two data files; one of the two is replaced later."""
    create(lake, table, "id bigint, k string", version=3)
    insert(lake, table, 0, 9)
    insert(lake, table, 10, 19)
    lake.sql(table, "DELETE FROM {t} WHERE id IN (1, 11)")
    lake.sql(table, "DELETE FROM {t} WHERE id = 2")
    insert(lake, table, 20, 21)


def v3_upgraded(lake: Lake, table: str) -> None:
    """Written as version 2 with position deletes, then upgraded: they live on beside deletion vectors."""
    create(lake, table, "id bigint, k string", version=2, by="k")
    insert(lake, table, 0, 9)
    insert(lake, table, 10, 19)
    lake.sql(table, "DELETE FROM {t} WHERE id IN (1, 2, 12)")
    lake.sql(table, "ALTER TABLE {t} CREATE TAG before_upgrade")
    lake.sql(table, "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    lake.sql(table, "DELETE FROM {t} WHERE id IN (3, 4)")
    lake.sql(table, "DELETE FROM {t} WHERE id = 15")
    lake.sql(table, "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(50, 52, 1, 1)")


_DATA = frozenset({"data_file", "manifest_file", "manifest_list"})
_LISTS = frozenset({"manifest_list"})
_DELETES = frozenset({"position_delete_file", "manifest_file", "manifest_list"})
SCENARIOS = (
    Scenario(make=v1_evolved_spec, clean_metadata=True, kinds_removed=_DATA),
    Scenario(make=v2_evolved_spec_and_schema, retain_last=2, clean_metadata=True, kinds_removed=_LISTS),
    Scenario(make=v2_position_deletes, retain_last=2, kinds_removed=_DELETES | _DATA),
    Scenario(make=v2_overwritten_partitions, kinds_removed=_DATA),
    Scenario(make=v2_merged_manifests, kinds_removed=_DATA),
    Scenario(make=refs_with_retention, kinds_removed=_DATA),
    Scenario(make=rolled_back, retain_last=2, kinds_removed=_DATA),
    Scenario(make=staged_wap, retain_last=2, kinds_removed=_DATA),
    Scenario(make=gzip_metadata, kinds_removed=_DATA),
    Scenario(make=statistics_files, kinds_removed=_LISTS | {"statistics_file"}),
    Scenario(make=special_paths, kinds_removed=_DATA),
    Scenario(make=data_beside_the_table, kinds_removed=_DATA),
    Scenario(make=v3_deletion_vectors, retain_last=2, row_ids=True, kinds_removed=_DELETES),
    Scenario(
        make=v3_shared_puffin, row_ids=True, kinds_removed=frozenset({"manifest_file", "manifest_list"})
    ),
    Scenario(make=v3_upgraded, retain_last=2, row_ids=True, kinds_removed=_LISTS),
)

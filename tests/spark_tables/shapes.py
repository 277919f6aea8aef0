"""Shapes with a name."""

from __future__ import annotations

from tests.spark_tables.shape import UPGRADE, Shape, insert, of_snapshot, ref_ages, staged

# The partition spec changes twice and a column comes and goes.
V1_EVOLVED_SPEC = Shape(name="v1_evolved_spec", version=1, by="k").then(
    insert(0, 9),
    "ALTER TABLE {t} REPLACE PARTITION FIELD k WITH bucket(4, id)",
    insert(10, 19),
    "ALTER TABLE {t} ADD COLUMN passing int",
    insert(20, 24, "'p', 7"),
    "ALTER TABLE {t} DROP COLUMN passing",
    "ALTER TABLE {t} DROP PARTITION FIELD bucket(4, id)",
    "DELETE FROM {t} WHERE id < 18",
    insert(30, 34),
)

# Files of three specs are live, of one schema none.
V2_EVOLVED_SPEC_AND_SCHEMA = Shape(name="v2_evolved_spec_and_schema", version=2, by="k").then(
    insert(0, 9),
    "ALTER TABLE {t} ADD COLUMN n int AFTER id",
    "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, id)",
    insert(10, 13, "1, 'x'"),
    "ALTER TABLE {t} RENAME COLUMN n TO m",
    "ALTER TABLE {t} DROP PARTITION FIELD k",
    insert(14, 17, "2, 'y'"),
    "DELETE FROM {t} WHERE id IN (3, 11, 15)",
    "INSERT OVERWRITE {t} VALUES (14, 3, 'z')",
)

# Position deletes and files of three specs, several manifests of each.
V2_MANIFESTS_OF_THREE_SPECS = Shape(name="v2_manifests_of_three_specs", version=2, by="k").then(
    *(insert(first, first + 9) for first in (0, 20, 40)),
    "DELETE FROM {t} WHERE id % 7 = 1",
    "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, id)",
    *(insert(first, first + 3) for first in (100, 120)),
    "ALTER TABLE {t} ADD COLUMN d decimal(9, 2)",
    "ALTER TABLE {t} ADD PARTITION FIELD d",
    *(insert(first, first + 3, "'k1', cast(id - 210 as decimal(9, 2)) / 4") for first in (200, 220, 240)),
    "DELETE FROM {t} WHERE id % 7 = 2",
    "DELETE FROM {t} WHERE id IN (100, 201)",
)

# Position delete files, some of which a compaction makes superfluous.
V2_POSITION_DELETES = Shape(name="v2_position_deletes", version=2, by="k").then(
    insert(0, 19),
    insert(20, 39),
    *(f"DELETE FROM {{t}} WHERE id % 7 = {rest}" for rest in (1, 2, 3)),
    "CALL {c}.system.rewrite_data_files(table => '{t}', where => 'k = \"k0\"',"
    " options => map('rewrite-all', 'true'))",
    insert(40, 41),
)

# Position deletes, a tag, and a branch that shares files with main.
V2_BRANCHES_AND_DELETES = Shape(name="v2_branches_and_deletes", version=2, by="k").then(
    insert(0, 19),
    "ALTER TABLE {t} CREATE TAG before",
    insert(20, 39),
    "DELETE FROM {t} WHERE id % 7 = 1",
    "ALTER TABLE {t} CREATE BRANCH audit",
    insert(100, 103, branch="audit"),
    "DELETE FROM {t} WHERE id % 7 = 2",
    insert(40, 41),
)

# Whole partitions are written anew, deleted, and the table is truncated once.
V2_OVERWRITTEN_PARTITIONS = Shape(name="v2_overwritten_partitions", version=2, by="k").then(
    insert(0, 9),
    "TRUNCATE TABLE {t}",
    insert(0, 9, "concat('k', id % 3)"),
    "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(100, 103, 1, 1)",
    "DELETE FROM {t} WHERE k = 'k2'",
    "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(200, 202, 1, 1)",
)

# Every third append merges manifests; a rewrite replaces those that are left.
V2_MERGED_MANIFESTS = Shape(
    name="v2_merged_manifests", version=2, properties={"commit.manifest.min-count-to-merge": "3"}
).then(
    *(insert(first, first + 1) for first in range(0, 14, 2)),
    "CALL {c}.system.rewrite_manifests('{t}')",
    "DELETE FROM {t} WHERE id < 4",
)

# A branch with its own ages, one whose time is over, a tag that stays and one that goes.
REFS_WITH_RETENTION = Shape(name="refs_with_retention", version=2, by="k").then(
    insert(0, 1),
    insert(10, 11),
    "ALTER TABLE {t} CREATE TAG kept_tag RETAIN 365 DAYS",
    "ALTER TABLE {t} CREATE TAG old_tag",
    "INSERT OVERWRITE {t} VALUES (20, 'k0')",
    "ALTER TABLE {t} CREATE BRANCH audit WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
    "ALTER TABLE {t} CREATE BRANCH young WITH SNAPSHOT RETENTION 3 DAYS",
    "ALTER TABLE {t} CREATE BRANCH old_branch",
    *(insert(first, first + 1, branch="audit") for first in (30, 40, 50)),
    insert(60, 61, branch="young"),
    insert(60, 61, branch="old_branch"),
    "INSERT OVERWRITE {t} VALUES (70, 'k0')",
    ref_ages(old_tag=1, old_branch=1),
)

# Two snapshots left main by a rollback; their rows are written again.
ROLLED_BACK = Shape(name="rolled_back", version=2, by="k").then(
    *(insert(first, first + 1) for first in (0, 10, 20, 30)),
    of_snapshot(1, "CALL {c}.system.rollback_to_snapshot('{t}', {s})"),
    insert(40, 41),
    "INSERT OVERWRITE {t} VALUES (50, 'k1')",
)

# Two snapshots written aside for audit; one of them is published.
STAGED_WAP = Shape(name="staged_wap", version=2, by="k", properties={"write.wap.enabled": "true"}).then(
    insert(0, 9),
    staged("published", insert(10, 11)),
    staged("forgotten", insert(20, 21)),
    insert(30, 31),
    of_snapshot(1, "CALL {c}.system.cherrypick_snapshot('{t}', {s})"),
    "DELETE FROM {t} WHERE id = 5",
)

# Compressed metadata files, of which two old ones are kept.
GZIP_METADATA = Shape(
    name="gzip_metadata",
    version=2,
    properties={
        "write.metadata.compression-codec": "gzip",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "2",
    },
).then(*(insert(first, first + 1) for first in (0, 10, 20)), "INSERT OVERWRITE {t} VALUES (30, 'k')")

# Table and partition statistics for three of four snapshots, the last one's among them.
_STATISTICS = tuple(f"CALL {{c}}.system.compute_{what}_stats('{{t}}')" for what in ("table", "partition"))
STATISTICS_FILES = Shape(name="statistics_files", version=2, by="k").then(
    *(insert(0, 1), *_STATISTICS),
    insert(10, 11),
    *(insert(20, 21), *_STATISTICS),
    *(insert(30, 31), *_STATISTICS),
)

# Partition values that look like something else in a path.
_ODD = ("'50%'", "'a/b'", "''", "null", "'a b+c'", "'%2F'", "'../up'", "'gr\u00fc\u00df'")
_ODD_ROWS = ", ".join(f"({number}, {value})" for number, value in enumerate(_ODD))
SPECIAL_PATHS = Shape(name="special_paths", version=2, by="k").then(
    f"INSERT INTO {{t}} VALUES {_ODD_ROWS}", f"INSERT OVERWRITE {{t}} VALUES {_ODD_ROWS}", insert(20, 21)
)

# The data is not in the table's own folder but where `write.data.path` says.
DATA_BESIDE_THE_TABLE = Shape(
    name="data_beside_the_table", version=2, by="k", properties={"write.data.path": "{f}-data"}
).then(insert(0, 9), "INSERT OVERWRITE {t} VALUES (10, 'k0')", insert(20, 21))

# Deletion vectors that replace each other, and an update.
V3_DELETION_VECTORS = Shape(name="v3_deletion_vectors", version=3, by="k").then(
    insert(0, 19),
    insert(20, 39),
    *(f"DELETE FROM {{t}} WHERE id % 7 = {rest}" for rest in (1, 2)),
    "UPDATE {t} SET k = 'k1' WHERE id IN (0, 20)",
    "INSERT OVERWRITE {t} VALUES (100, 'k0')",
)

# One Puffin file holds the deletion vectors of two data files; one of the two is replaced later.
V3_SHARED_PUFFIN = Shape(name="v3_shared_puffin", version=3).then(
    insert(0, 9),
    insert(10, 19),
    "DELETE FROM {t} WHERE id IN (1, 11)",
    "DELETE FROM {t} WHERE id = 2",
    insert(20, 21),
)

# Row lineage: appends, an update, deletion vectors.
V3_LINEAGE = Shape(name="v3_lineage", version=3, by="k").then(
    *(insert(first, first + 9) for first in (0, 20, 40, 60)),
    "DELETE FROM {t} WHERE id % 7 = 1",
    "UPDATE {t} SET k = 'k1' WHERE id IN (0, 20)",
    "DELETE FROM {t} WHERE id = 44",
)

# Written as version 2 with position deletes, then upgraded: they live on beside deletion vectors.
V3_UPGRADED = Shape(name="v3_upgraded", version=2, by="k").then(
    insert(0, 9),
    insert(10, 19),
    "DELETE FROM {t} WHERE id IN (1, 2, 12)",
    "ALTER TABLE {t} CREATE TAG before_upgrade",
    UPGRADE,
    "DELETE FROM {t} WHERE id IN (3, 4)",
    "DELETE FROM {t} WHERE id = 15",
    "INSERT OVERWRITE {t} SELECT id, 'k1' FROM range(50, 52, 1, 1)",
)


def upgraded_with_both_deletes(granularity: str) -> Shape:
    """Some of the same data files have position deletes, each file of `granularity`, and deletion vectors."""
    return Shape(
        name=f"both_deletes_of_a_{granularity}",
        version=2,
        by="k",
        properties={"write.delete.granularity": granularity},
    ).then(
        *(insert(first, first + 39) for first in (0, 40, 80)),
        "DELETE FROM {t} WHERE id % 7 = 1",
        "DELETE FROM {t} WHERE id % 7 = 2 AND id < 60",
        UPGRADE,
        "DELETE FROM {t} WHERE id IN (3, 4, 44)",
        "INSERT INTO {t} VALUES (500, 'k0'), (501, 'k1')",
    )


# One data file whose deletes are in a large and in small files of version 2.
TWO_SIZES_OF_DELETES = Shape(
    name="two_sizes_of_deletes", version=2, properties={"write.delete.granularity": "partition"}
).then(
    "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 'k' FROM range(0, 4000, 1, 1)",
    "DELETE FROM {t} WHERE id % 2 = 0 AND id < 3000",
    *(f"DELETE FROM {{t}} WHERE id IN ({number}, {number + 100})" for number in (1, 3, 5)),
    UPGRADE,
)

"""The tables: columns, properties, and a history of statements in which `{t}` is the table.

Every table has the columns `n BIGINT` and `k STRING`, so that `WRITE_ON` goes for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.delta_spark import DELTA

VECTORS = {"delta.enableDeletionVectors": "true"}
ROW_TRACKING = {"delta.enableRowTracking": "true"}
# Nothing of `ODD` is a name that a path may have as it stands, apart from the first.
ODD = ("plain", "two words", "50%", "x+y", "ü漢", "a/b", "c=d", "%2F", "12:30", "it's", "#1?")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table that Delta Spark writes.

    Args:
        name: of its folder.
        more: columns besides `n` and `k`.
        by: PARTITIONED BY or CLUSTER BY, with its columns.
        properties: of the table.
        conf: of the session while it is written; `txnVersion` grows with each statement if it is there.
        history: statements, one commit or more each.
        source: the table that this one clones, `{s}` in its first statement.
        features: what upgrade-v3 is asked for.
        count_rows: assign-row-ids must count the rows of its files itself.
    """

    name: str
    more: str = ""
    by: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    history: tuple[str, ...]
    source: Shape | None = None
    features: tuple[str, ...] = ("deletionVectors", "v2Checkpoint")
    count_rows: bool = False

    @property
    def create(self) -> str:
        """The statement that makes it, unless it is a clone."""
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        properties = f" TBLPROPERTIES ({pairs})" if pairs else ""
        return f"CREATE TABLE {{t}} (n BIGINT, k STRING{self.more}) USING delta {self.by}{properties}"

    @property
    def tracked(self) -> bool:
        """Whether its rows have ids from the start."""
        return ROW_TRACKING.items() <= self.properties.items()


def insert(first: int, last: int, k: str = "concat('k', id % 2)") -> str:
    """One commit with the rows `first` to `last`, in one file for each partition."""
    return f"INSERT INTO {{t}} (n, k) SELECT id, {k} FROM range({first}, {last + 1}, 1, 1)"


def delete(*numbers: int) -> str:
    return f"DELETE FROM {{t}} WHERE n IN ({', '.join(map(str, numbers))})"


def merge(first: int, last: int) -> str:
    """Update those of the rows `first` to `last` that are there, and append the others."""
    return (
        f"MERGE INTO {{t}} t USING (SELECT id AS n, 'k1' AS k FROM range({first}, {last + 1}, 1, 1)) s ON t.n = s.n"
        " WHEN MATCHED THEN UPDATE SET t.k = s.k WHEN NOT MATCHED THEN INSERT (n, k) VALUES (s.n, s.k)"
    )


def _nested(first: int, last: int, lists: str) -> str:
    """Rows of one partition of `COMPATIBLE`."""
    return (
        f"INSERT INTO {{t}} SELECT id, 'x', date'2026-01-01', {lists} FROM range({first}, {last + 1}, 1, 1)"
    )


def odd(first: int) -> str:
    """One row, and one file, for each odd value, null and the empty string."""
    values = [*("'" + value.replace("'", "\\'") + "'" for value in ODD), "NULL", "''"]
    rows = ", ".join(f"({first + number}, {value})" for number, value in enumerate(values))
    return f"INSERT INTO {{t}} (n, k) VALUES {rows}"


WRITE_ON = (insert(900, 905), delete(2, 901), merge(903, 907))

DELETION_VECTORS = Shape(
    name="deletion_vectors",
    properties=VECTORS,
    history=(
        "INSERT INTO {t} (n, k) SELECT /*+ REPARTITION_BY_RANGE(4, id) */ id, 'a' FROM range(0, 40, 1, 1)",
        insert(40, 49),
        *(delete(first + 1) for first in (0, 10, 20, 30, 40)),
        delete(5, 16, 27),  # three vectors in one file
        delete(*range(40, 50)),  # its vector is written, and named by no commit
    ),
)

V2_CHECKPOINTS = Shape(
    name="v2_checkpoints",
    by="PARTITIONED BY (k)",
    properties={**VECTORS, "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"},
    conf={f"{DELTA}.checkpoint.partSize": "3"},
    history=(*(insert(first, first + 3) for first in range(0, 24, 4)), delete(1, 2), delete(9)),
)

MULTI_PART = Shape(
    name="multi_part",
    by="PARTITIONED BY (k)",
    properties={"delta.checkpointInterval": "3"},
    conf={f"{DELTA}.checkpoint.partSize": "3"},
    history=(*(insert(first, first + 3) for first in range(0, 24, 4)), delete(1, 2), delete(9)),
)

ROWS_TRACKED = Shape(
    name="rows_tracked",
    properties={**VECTORS, **ROW_TRACKING},
    history=(
        insert(0, 9),
        insert(10, 19),
        insert(20, 29),
        delete(1, 11),
        delete(25),
        "UPDATE {t} SET k = 'u' WHERE n IN (3, 13)",
        merge(4, 5),
        "OPTIMIZE {t}",
        insert(30, 33),
        delete(31),
    ),
)

TRACKED_LATER = Shape(
    name="tracked_later",
    properties=VECTORS,
    history=(
        *(insert(first, first + 9) for first in (0, 10, 20)),
        delete(1, 11),
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')",
        insert(30, 33),
        delete(21),  # an old file gets ids with its vector
    ),
)

MAPPED = Shape(
    name="mapped",
    more=", `old name` INT",
    by="PARTITIONED BY (k)",
    properties={**VECTORS, "delta.columnMapping.mode": "name"},
    history=(
        odd(0),
        "ALTER TABLE {t} RENAME COLUMN `old name` TO `new, name`",
        odd(20),
        delete(2, 5, 6),
        "ALTER TABLE {t} ADD COLUMN d DATE",
        delete(25, 26, 27),
        "INSERT INTO {t} (n, k) VALUES (40, 'x'), (41, 'x'), (42, 'x')",
        delete(41),
    ),
)

COMPATIBLE = Shape(
    name="compatible",
    more=", d DATE, xs ARRAY<ARRAY<INT>>",
    by="PARTITIONED BY (k, d)",
    properties={"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"},
    history=(
        odd(0),
        _nested(20, 24, "array(array(1, 2), NULL)"),
        _nested(30, 34, "NULL"),
        delete(2, 22),
    ),
)

HIVE_PATHS = Shape(
    name="hive_paths",
    by="PARTITIONED BY (k)",
    history=(
        odd(0),
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (n >= 0)",
        odd(20),
        "DELETE FROM {t} WHERE k = 'two words'",
        delete(2, 25),
    ),
)

CHANGE_DATA = Shape(
    name="change_data",
    properties={"delta.enableChangeDataFeed": "true"},
    history=(
        insert(0, 9),
        insert(10, 19),
        "UPDATE {t} SET k = 'u' WHERE n = 3",
        delete(1, 11),
        merge(8, 21),
    ),
)

IN_COMMIT_TIMES = Shape(
    name="in_commit_times",
    properties={**VECTORS, "delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "4"},
    history=(*(insert(first, first + 3) for first in range(0, 16, 4)), delete(1), delete(5, 9)),
)

CLUSTERED = Shape(
    name="clustered",
    by="CLUSTER BY (n)",
    properties={**VECTORS, **ROW_TRACKING},
    conf={f"{DELTA}.write.txnAppId": "loader", f"{DELTA}.write.txnVersion": "1"},
    history=(
        insert(0, 9),
        insert(10, 19),
        insert(20, 24),
        delete(2, 12),
        "OPTIMIZE {t}",
        insert(30, 33),
        delete(32),
    ),
)

IDENTITY = Shape(
    name="identity",
    more=", id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 5)",
    history=(insert(0, 4), insert(5, 9), delete(1), insert(10, 12)),
)

NO_STATISTICS = Shape(
    name="no_statistics",
    conf={f"{DELTA}.stats.collect": "false"},
    history=(insert(0, 9), insert(10, 19), delete(1, 12)),
    features=("v2Checkpoint",),
    count_rows=True,
)

CLONE = Shape(
    name="clone",
    source=DELETION_VECTORS,
    history=("CREATE TABLE {t} SHALLOW CLONE {s}", insert(100, 104), delete(2, 101), delete(12, 32)),
)

ALL = (
    DELETION_VECTORS, V2_CHECKPOINTS, MULTI_PART, ROWS_TRACKED, TRACKED_LATER, MAPPED, HIVE_PATHS, CHANGE_DATA,
    IN_COMMIT_TIMES, CLUSTERED, IDENTITY, NO_STATISTICS, CLONE,
)  # fmt: skip

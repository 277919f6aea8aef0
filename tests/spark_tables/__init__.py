"""Tables that Spark and Iceberg Java write: the one place where tests get them.

A suite asks for the fixture `lake` (each test runs on both catalogs), `hadoop` (tables by file names only) or `lakes`
(both by name, for fixtures of a wider scope), and has Spark write a table there:

    def test_rows_stay(lake: Lake) -> None:
        write(lake, "orders", shapes.V3_UPGRADED.then("DELETE FROM {t} WHERE id = 6"))
        before = lake.rows("orders", row_ids=True)
        lake.verb("merge-dvs", "orders")
        assert lake.rows("orders", row_ids=True) == before

- `Shape` describes a table: format version, columns, partition fields, properties, and its history, step by step: SQL
  (`{t}`: the table, `{c}`: its catalog, `{f}`: its folder), because the order decides what a table holds, and the few
  steps that SQL cannot say. A statement that writes makes one snapshot with one file for each partition.
- `shapes` are those with a name. `shape.then(...)` goes on with one, and `Shape(...)` makes one for a single test.
- `write` makes Spark write a table of a shape, under a name that no other test takes. The fixture `written` has each
  shape written once, and gives the table to every test as it was then.
- `Lake` is a catalog with its tables: what Spark, Iceberg Java, PyIceberg and DuckDB read from them, their files,
  `save` and `restore` for doing two things to the very same table, `verb` and `cli` for our program.
- `old_writers` makes of a table what writers of version 1 left.

How to come by what a shape needs:

    appends                 `insert(first, last)`, with `branch=` to a branch
    partition fields        `by="k, bucket(4, id)"`
    evolution               "ALTER TABLE {t} ADD COLUMN n int", "... REPLACE PARTITION FIELD k WITH ..."
    position deletes        version 2 and "DELETE FROM {t} ..." or "UPDATE {t} ..." of some rows of a file
    deletion vectors        the same in version 3
    both                    the same before and after `UPGRADE`
    files written anew      the same in version 1, or `COMPACT` in any
    refs                    "ALTER TABLE {t} CREATE TAG old", "... CREATE BRANCH audit"; `ref_ages`
    snapshots off main      `of_snapshot(n, "CALL {c}.system.rollback_to_snapshot('{t}', {s})")`, `staged`

Spark writes no equality deletes: `tests.delete_tables` and fixture 05 have them. The fixture `spark_session` of the
same package is the session of our own engine; it writes no tables.
"""

from tests.spark_tables import shapes
from tests.spark_tables.lake import Lake, in_order, later_ms
from tests.spark_tables.shape import (
    COMPACT,
    UPGRADE,
    Shape,
    Writing,
    insert,
    of_snapshot,
    ref_ages,
    staged,
    write,
)

__all__ = [
    "COMPACT", "UPGRADE", "Lake", "Shape", "Writing", "in_order", "insert", "later_ms", "of_snapshot", "ref_ages",
    "shapes", "staged", "write",
]  # fmt: skip

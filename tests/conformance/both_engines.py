"""Tables on which two engines have to say the same."""

from __future__ import annotations

from pathlib import Path

from iceberg_cli.cli.context import now_ms
from iceberg_cli.storage.local import LocalStorage
from tests.cli.lakes import four_snapshots
from tests.cli.running import Ran, iceberg_cli
from tests.delete_tables import DeleteTable
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.manifest_tables import a_lot

NOW_MS = now_ms()


def both(table: object, command: tuple[str, ...]) -> Ran:
    """Run a command with each engine.

    Returns:
        What both said.
    """
    verb, *options = command
    shared = ("--as-of", NOW_MS, "--format", "json")
    local, spark = (
        iceberg_cli(verb, table, *options, *shared, "--engine", name) for name in ("local", "spark")
    )
    assert spark.out == local.out
    assert spark == local
    return local


def with_deletes(folder: Path) -> None:
    """A table of version 3 with position deletes and deletion vectors of several commits in two partitions."""
    table = DeleteTable(storage=LocalStorage(), location=str(folder))
    for number in range(1, 5):
        table.data(f"d{number}", 100, k=f"k{number % 2}")
        table.commit(number)
    table.positions("p", {"d1": [1, 5], "d3": [7]}, k="k1")
    table.commit(5)
    table.vectors("v1", {"d2": range(10)}, k="k0")
    table.commit(6)
    table.vectors("v2", {"d2": range(20), "d4": [3]}, k="k0")
    table.commit_and_publish(7)


def with_dangling_deletes(folder: Path) -> None:
    """A table of version 2 with position deletes of two partitions that dangle, that are needed, and that do both."""
    table = DeleteTable(storage=LocalStorage(), location=str(folder), format_version=2)
    for name, k in (("a", "x"), ("b", "x"), ("c", "y")):
        table.data(name, 100, k=k)
    table.commit(1)
    table.positions("gone", {"b": [1, 5], "never": [2]}, k="x")
    table.positions("mixed", {"a": [7], "b": [8]}, k="x")
    table.positions("of-y", {"c": [7]}, k="y")
    table.commit(2)
    table.remove("b", "c")
    table.commit_and_publish(3)


def of_four_snapshots(folder: Path) -> None:
    """A table from which three snapshots and what they alone reach can go."""
    four_snapshots(folder).publish()


def of_many_files(folder: Path) -> None:
    """A table of version 2 with 400 files of 20 partitions, strewn over 8 manifests."""
    a_lot(2, storage=LocalStorage(), location=str(folder)).table()


def of_small_files(folder: Path) -> None:
    """A table of version 3 in two partitions of small files, with vectors, equality deletes and ids of rows."""
    table = RowsTable(storage=LocalStorage(), location=str(folder))
    for number in range(6):
        k = f"k{number % 2}"
        table.rows(f"d{number}", [(N, [*range(10 * number, 10 * number + 10)]), (K, [k] * 10)], k=k)
        table.commit(number + 1)
    table.vectors("v", {"d0": {1, 5}, "d2": {9}}, k="k0")
    table.equality_rows("e", [(N, [12, 47, 1])])
    table.commit_and_publish(7)


CARRIED_OUT = {
    "expire": (of_four_snapshots, ("expire-snapshots", "--older-than", "1s", "--retain-last", "1")),
    "rewrite": (with_deletes, ("rewrite-manifests", "--min-manifests", "1")),
    "rewrite into many": (of_many_files, ("rewrite-manifests", "--target-size", "8KiB")),
    "merge": (with_deletes, ("merge-dvs", "--min-files", "1")),
    "merge below version 3": (with_dangling_deletes, ("merge-dvs",)),
    "upgrade": (of_four_snapshots, ("upgrade-v3",)),
    "compact": (of_small_files, ("rewrite-data-files", "--min-input-files", "2")),
}


BY_CHANCE = {"operation_id", "committed_snapshot_id", "metadata_location", "duration_ms", "commits"}
# Whose new files have names that are drawn, so that entries are other ones each time.
DRAWS_NAMES = {"merge-dvs", "rewrite-data-files"}

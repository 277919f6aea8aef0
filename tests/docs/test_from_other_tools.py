"""Pages for users of other tools: each procedure and metadata table has its row, and what the rows name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iceberg_cli.delta import FORMAT as DELTA
from iceberg_cli.iceberg import FORMAT as ICEBERG
from tests.docs.pages import PAGES
from tests.docs.test_pages import rows, text_of

# The procedures that `SparkProcedures` of Iceberg 1.12 makes, and its `MetadataTableType`.
PROCEDURES = {
    "add_files", "ancestors_of", "cherrypick_snapshot", "compute_partition_stats", "compute_table_stats",
    "create_changelog_view", "expire_snapshots", "fast_forward", "migrate", "publish_changes", "register_table",
    "remove_orphan_files", "rewrite_data_files", "rewrite_manifests", "rewrite_position_delete_files",
    "rewrite_table_path", "rollback_to_snapshot", "rollback_to_timestamp", "set_current_snapshot", "snapshot",
}  # fmt: skip
METADATA_TABLES = {
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files", "delete_files",
    "entries", "files", "history", "manifests", "metadata_log_entries", "partitions", "position_deletes", "refs",
    "snapshots",
}  # fmt: skip
PAGES_FOR = [PAGES / f"from-{tool}.md" for tool in ("spark-procedures", "trino", "delta")]


def named(page: str, heading: str) -> list[str]:
    """What the first table below a heading is about, row by row."""
    return [cells[0].strip("`") for cells in rows(page.partition(f"\n## {heading}\n")[2])]


@pytest.mark.parametrize(
    ("heading", "names"),
    [("Procedures", PROCEDURES), ("Metadata tables", METADATA_TABLES)],
    ids=["procedures", "tables"],
)
def test_each_procedure_and_metadata_table_of_iceberg_has_one_row(heading: str, names: set[str]) -> None:
    assert sorted(named(text_of(PAGES_FOR[0]), heading)) == sorted(names)


def test_methods_of_delta_rs_are_there() -> None:
    deltalake = pytest.importorskip("deltalake")
    table = deltalake.DeltaTable
    cells = named(text_of(PAGES / "from-delta.md"), "delta-rs")
    methods = {name for cell in cells for name in re.findall(r"`?((?:optimize\.|alter\.)?[a-z_]+)\(", cell)}
    assert len(methods) > 15
    for name in methods:
        of, _, own = name.rpartition(".")
        owner = {
            "": table,
            "optimize": deltalake.table.TableOptimizer,
            "alter": deltalake.table.TableAlterer,
        }[of]
        assert hasattr(owner, own), name


@pytest.mark.parametrize("page", PAGES_FOR, ids=lambda path: path.stem)
def test_what_inspect_shows_is_what_the_page_names(page: Path) -> None:
    words = re.findall(r"`inspect TABLE ([a-z-]+)", text_of(page))
    assert words
    assert {*words} - {"--check"} <= {*ICEBERG.looking.inspected, *DELTA.looking.inspected}

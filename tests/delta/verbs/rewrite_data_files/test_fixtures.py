"""Tables that other engines wrote have the rows afterwards that delta-kernel read before, or a plan says why not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from iceberg_cli.testing.delta_rows import commits_of
from tests.delta.inspect.test_sample import counted, duckdb_with_delta, sampled
from tests.delta.verbs.rewrite_data_files.test_law import NOW_MS, check_versions, rewritten
from tests.fixtures.delta_tables import a_copy, sound_tables
from tests.paths import needs_fixtures

pytestmark = needs_fixtures


@pytest.mark.few(12)
@pytest.mark.parametrize("folder", sound_tables())
def test_rows_are_those_that_others_read_before(folder: str, tmp_path: Path) -> None:
    root = a_copy(folder, tmp_path / "t")
    if reasons := obstacles_of(root):
        pytest.skip(f"blocked: {reasons[0][:80]}")
    versions = commits_of(root)
    ours = sampled(root)
    try:
        theirs = counted(by_kernel(root))
    except duckdb.Error:
        theirs = None
    report = rewritten(root, rewrite_all=True)
    assert sampled(root) == ours
    if theirs is not None:
        assert counted(by_kernel(root)) == theirs
    if report is not None:
        assert report.status == "done", report
        check_versions(root, int(versions[-1].stem) if versions else -1)


def by_kernel(root: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        duckdb_with_delta().execute(f"SELECT * FROM delta_scan('{root}')").to_arrow_table().to_pylist()
    )
    return rows


def obstacles_of(root: Path) -> tuple[str, ...]:
    from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
    from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
    from iceberg_cli.formats.open import open_table

    table = open_table(str(root), storage_options={}, catalog_config=None, on_event=lambda _: None)
    return VERB.plan(table, RewriteDataFiles(rewrite_all=True), as_of_ms=NOW_MS).plan.blocked_by

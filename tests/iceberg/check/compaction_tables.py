"""Tables that other writers compacted, rightly or not, and what a check says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from iceberg_cli.iceberg.check.table_check import TableCheck, heads_of
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.plan.findings import CheckResult
from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID, LiteralRow
from tests.delete_tables import LONG_AGO_MS
from tests.iceberg.verbs.rewrite_data_files.tables import Columns, K, N, RowsTable, of
from tests.manifest_tables import opened

RULES = (
    "compaction-rows-came-back",
    "compaction-rows-missing",
    "compaction-row-ids-lost",
    "delete-lost",
    "compaction-summary-differs",
)
SPARK = {
    "engine-name": "spark", "engine-version": "4.1.4", "iceberg-version": "Apache Iceberg 1.11.0", "app-id": "local-7",
}  # fmt: skip


@dataclass(kw_only=True)
class CompactedTable(RowsTable):
    """A table on which `compact` commits what was collected as a snapshot that says it changed no row."""

    says: dict[str, str] | None = None  # more of the next summary, or other values

    def compact(self, snapshot_id: int, **says: str) -> None:
        self.time_ms = LONG_AGO_MS + self.document["last-sequence-number"] + 1
        self.says = {**SPARK, **says}
        self.commit_files("replace", self.added, self.gone, snapshot_id=snapshot_id)
        self.added, self.gone, self.says = [], set(), None

    def summary(self, manifests: Any) -> dict[str, str]:
        return super().summary(manifests) | (self.says or {})

    def numbers(self, name: str, numbers: Sequence[int], *, k: str | None = None, **others: Any) -> None:
        """A data file with these values of `n`; `ids` and `updated` are its columns of row lineage, if any."""
        columns: Columns = [(N, list(numbers)), (K, [k] * len(numbers))]
        for field_id, key in ((ROW_ID, "ids"), (LAST_UPDATED, "updated")):
            if key in others:
                columns = [*columns, (of(field_id, key, pa.int64()), others.pop(key))]
        self.rows(name, columns, k=k, **others)

    def drop(self, part: str) -> None:
        """Files whose path has this in it go, and nothing else does."""
        self._drop(lambda entry: part in entry["file_path"])

    def check(self, **options: Any) -> CheckResult:
        """What a check finds of the table as it is."""
        found = opened(self.storage, self.publish()).table
        found.load()
        return check(found, **options)


def check(table: IcebergTable, *, deep: bool = False, **options: Any) -> CheckResult:
    heads = heads_of(table.metadata, None)
    return TableCheck(table=table, heads=heads, deep=deep, **options).run()


def told(result: CheckResult) -> dict[str, str]:
    """By rule what is said of compactions; each rule once."""
    found = [each for each in result.findings() if each.id in RULES]
    assert len({each.id for each in found}) == len(found), found
    return {each.id: each.message for each in found}


def rows_in(message: str) -> int:
    """The number that a message begins with."""
    return int(message.partition(" ")[0].replace(",", ""))


def numbers_of(result: CheckResult) -> dict[str, int]:
    return {rule: rows_in(message) for rule, message in told(result).items() if rule in RULES[:3]}


def of_rows(rows: Sequence[LiteralRow]) -> Columns:
    """The columns of a file with these rows and their lineage."""
    return [
        (N, [row.values[1] for row in rows]),
        (K, [row.values[2] for row in rows]),
        (of(ROW_ID, "_row_id", pa.int64()), [row.row_id for row in rows]),
        (of(LAST_UPDATED, "_last_updated_sequence_number", pa.int64()), [row.last_updated for row in rows]),
    ]

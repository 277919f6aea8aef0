"""What the page of one table shows beside its command's own document, read from the table through the Python API.

What grows with the files comes as Arrow columns, some thousand rows at a time, and leaves counts and the partitions
with the most deletes. Snapshots, versions, refs and manifests are rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.cli.page.distributions import SizeDistribution
from iceberg_cli.errors import IcebergCliError, UsageError
from iceberg_cli.formats import BUILT_IN, format_of, place_of
from iceberg_cli.plan.inspection import SIZES, Row, partition_text
from iceberg_cli.plan.policy import Policy

if TYPE_CHECKING:
    from iceberg_cli.api import Plan, Table
    from iceberg_cli.formats.inspection import Inspection

Part = TypeVar("Part")

_MOST_PARTITIONS: Final = 20
_MOST_VERSIONS: Final = 2_000
_MOST_MANIFESTS: Final = 50_000
_DELETED: Final = ("position_delete_record_count", "deleted_record_count")


@dataclass(frozen=True, kw_only=True)
class PartitionDeletes:
    """The deletes of a partition.

    Args:
        partition: its values, as a path would have them; empty for a table without partitions.
        files: its data files.
        records: their rows, those that deletes hide among them; None where a writer did not record it.
        deleted: rows that position deletes and deletion vectors hide.
        vectors: its deletion vectors.
        keys: of its equality deletes.
    """

    partition: str
    files: int
    records: int | None
    deleted: int
    vectors: int
    keys: int

    @property
    def share(self) -> float | None:
        """Deleted rows by the rows of its data files, at most 1; None where these are not known."""
        return min(1.0, self.deleted / self.records) if self.records else None


@dataclass(frozen=True, kw_only=True)
class TableContent:
    """What is shown of a table.

    Args:
        summary: its `inspection/2` document; None where that cannot be read.
        summary_parts: the same as text.
        states: rows of its snapshots, or of a Delta table's history; these may be the newest ones alone.
        sizes: by what they are the sizes of.
        marks: sizes of data files that matter, by their names.
        partitions: those with most deletes, the first ones first.
        partition_count: of all.
        with_deletes: how many partitions have deletes.
        reads: how many files reads of one value open, by column.
        reads_note: what these do not tell.
        expiry: the plan of expire-snapshots, where one was made.
        warnings: what could not be read, and so is not on the page.
    """

    summary: Row | None
    summary_parts: Sequence[Any]
    states: Sequence[Row]
    sizes: Mapping[str, SizeDistribution] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    partitions: Sequence[PartitionDeletes] = ()
    partition_count: int = 0
    with_deletes: int = 0
    reads: Sequence[Row] = ()
    reads_note: str = ""
    expiry: Plan | None = None
    warnings: Sequence[str] = ()


def read_content(
    table: Table,
    *,
    as_of_ms: int,
    summary: Inspection | None = None,
    state: Mapping[str, Any] | None = None,
    plans: Sequence[Plan] = (),
) -> TableContent:
    """Read what is shown of a table. What cannot be read is left out, and named: the command has said what it found.

    Args:
        table: opened.
        as_of_ms: the "now" of every age.
        summary: where the command has one.
        state: which state of the table is meant, as `Table.inspect` takes it.
        plans: that were made already.

    Raises:
        UsageError: the table is of a format that a package brings.
    """
    if table.format not in BUILT_IN:
        raise UsageError(
            f"--report shows Iceberg and Delta tables, and {table.name} is of format {table.format}"
        )
    reader = _Reader(table=table, as_of_ms=as_of_ms, state=state or {})
    inspected = format_of(table.format).looking.inspected
    document, parts = reader.part("the summary", lambda: _summary(summary or reader.rows("summary"))) or (
        None,
        (),
    )
    sizes = reader.part("sizes of files", lambda: _file_sizes(reader.rows("files"))) or {}
    if "manifests" in inspected:
        manifests = reader.part("sizes of manifests", lambda: _manifest_sizes(reader))
        sizes |= {} if manifests is None else {"manifests": manifests}
    partitions, with_deletes, count = reader.part("deletes", lambda: _deletes(reader.rows("partitions"))) or (
        (),
        0,
        0,
    )
    head = reader.part("reads by column", lambda: reader.rows("files").inspector.head("files")) or {}
    states = "snapshots" if "snapshots" in inspected else "history"
    expiry = next((plan for plan in plans if place_of(table.format, plan.verb).removes), None)
    return TableContent(
        summary=document,
        summary_parts=parts,
        states=reader.part(states, lambda: _states(reader.rows(states, whole=True), states)) or (),
        sizes={name: sizes for name, sizes in sizes.items() if sizes.files},
        marks={} if document is None else _marks(document),
        partitions=partitions,
        partition_count=count,
        with_deletes=with_deletes,
        reads=head.get("reads", ()),
        reads_note=head.get("reads_note", ""),
        expiry=expiry or _expiry(table, as_of_ms=as_of_ms),
        warnings=list(dict.fromkeys(reader.warnings)),
    )


@dataclass(kw_only=True)
class _Reader:
    """Reads parts of a table, and remembers which cannot be read."""

    table: Table
    as_of_ms: int
    state: Mapping[str, Any]
    warnings: list[str] = field(default_factory=list)

    def rows(self, what: str, *, whole: bool = False) -> Inspection:
        """An inspection, of the state that is meant unless it is about the whole table."""
        return self.table.inspect(what, as_of=self.as_of_ms, **({} if whole else self.state))

    def part(self, what: str, read: Callable[[], Part]) -> Part | None:
        """A part, or None and a warning where it cannot be read."""
        try:
            return read()
        except IcebergCliError as error:
            self.warnings.append(f"Not on this page: {what}. {error.message}")
            return None


def _summary(summary: Inspection) -> tuple[Row, Sequence[Any]]:
    """The document, and the same as text."""
    document = summary.to_json()
    return document, list(summary.inspector.summary_text(document))


def _states(states: Inspection, what: str) -> list[Row]:
    return list(states.inspector.rows(what, limit=None if what == "snapshots" else _MOST_VERSIONS))


def _marks(document: Row) -> dict[str, int]:
    sizes = document.get("data_file_sizes")
    return {} if sizes is None else {"target": sizes["target_size_bytes"]}


def _file_sizes(files: Inspection) -> dict[str, SizeDistribution]:
    data, deletes = SizeDistribution(), SizeDistribution()
    for rows in files.inspector.tables(SIZES, limit=None):
        is_data = pc.equal(rows["content"], 0)
        data.add(rows["size_bytes"].filter(is_data))
        deletes.add(rows["size_bytes"].filter(pc.invert(is_data)))
    return {"data files": data, "deletes": deletes}


def _manifest_sizes(reader: _Reader) -> SizeDistribution:
    found = SizeDistribution()
    rows = reader.rows("manifests").inspector.rows("manifests", limit=_MOST_MANIFESTS + 1)
    if len(rows) > _MOST_MANIFESTS:
        reader.warnings.append(f"The sizes of manifests are those of the first {_MOST_MANIFESTS:,}.")
    found.add(pa.array([row["length"] for row in rows[:_MOST_MANIFESTS]], pa.int64()))
    return found


def _deletes(partitions: Inspection) -> tuple[list[PartitionDeletes], int, int]:
    """The partitions with most deleted rows, how many have any, and how many partitions there are."""
    most: list[PartitionDeletes] = []
    count = with_deletes = 0
    for rows in partitions.inspector.tables("partitions", limit=None):
        count += rows.num_rows
        deleted = next(name for name in _DELETED if name in rows.column_names)
        keys = "equality_delete_record_count"
        rank = rows[deleted] if keys not in rows.column_names else pc.add(rows[deleted], rows[keys])
        ranked = rows.append_column("rank", rank).filter(pc.greater(rank, 0))
        with_deletes += ranked.num_rows
        first = ranked.take(pc.select_k_unstable(ranked, _MOST_PARTITIONS, [("rank", "descending")]))
        most += [_partition(row, deleted) for row in first.to_pylist()]
    most.sort(key=lambda each: (-(each.deleted + each.keys), each.partition))
    return most[:_MOST_PARTITIONS], with_deletes, count


def _partition(row: Row, deleted: str) -> PartitionDeletes:
    return PartitionDeletes(
        partition=partition_text(dict(row["partition"] or ())),
        files=row["file_count"],
        records=row["record_count"] if "record_count" in row else row["numRecords"],
        deleted=row[deleted],
        vectors=row["dv_count"],
        keys=row.get("equality_delete_record_count", 0),
    )


def _expiry(table: Table, *, as_of_ms: int) -> Plan | None:
    """What the verb that removes would do by default, where metadata alone tells that: no file is looked for."""
    verbs = format_of(table.format).verbs
    kinds = (verbs.policy(verb) for verb in verbs)
    kind = next((each for each in kinds if each.place.removes), None)
    if kind is None or "cleanup" not in kind.schema()["properties"]:
        return None
    policy: Policy = cast("Any", kind)(cleanup="none")
    try:
        return table.plan(policy, as_of=as_of_ms)
    except IcebergCliError:
        return None  # the page has the graph without what would go, and `plan` says why

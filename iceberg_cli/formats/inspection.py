"""What can be inspected of a table of each format, in which state, and by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.nearest import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.delta.check.table_check import DeltaCheckResult
    from iceberg_cli.delta.inspect.inspector import DeltaTableInspector
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.iceberg.check.table_check import CheckResult
    from iceberg_cli.iceberg.inspect.inspector import TableInspector
    from iceberg_cli.iceberg.table import IcebergTable

WHAT = (
    "summary",
    "snapshots",
    "refs",
    "history",
    "schemas",
    "specs",
    "properties",
    "manifests",
    "files",
    "deletes",
    "partitions",
    "statistics",
    "metadata-log",
    "row-ids",
    "protocol",
    "features",
)
_OF_DELTA = {
    "protocol": "format_version in the summary",
    "features": "format_version in the summary, or properties",
}
_OF_ICEBERG = {
    "snapshots": "history",
    "refs": "history: a Delta table has versions and no branches",
    "specs": "schemas, which has the partition columns",
    "manifests": "the summary, which has checkpoints and commits",
    "statistics": "files, whose stats they are",
    "metadata-log": "history",
}
_OF_TABLE = ("snapshots", "refs", "history", "schemas", "specs", "properties", "statistics", "metadata-log")


def what_of(table_format: str) -> tuple[str, ...]:
    """The values of WHAT for a table of this format, `iceberg` or `delta`."""
    others = _OF_DELTA if table_format == "iceberg" else _OF_ICEBERG
    return tuple(what for what in WHAT if what not in others)


class StateSelector(NamedTuple):
    """What selects a snapshot (Iceberg) or a version (Delta) of the table; nothing: the current one."""

    snapshot_id: int | None = None
    ref: str | None = None
    at_ms: int | None = None
    version: int | None = None

    def given(self) -> list[str]:
        """The options that are given, as they are spelled."""
        spelled = ("--snapshot", "--ref", "--at", "--version")
        return [option for option, value in zip(spelled, self, strict=True) if value is not None]


def check_what(what: str) -> None:
    """Refuse what no format has.

    Raises:
        UsageError: naming what may be meant.
    """
    if what not in WHAT:
        raise UsageError(
            f"{what!r} cannot be inspected.{did_you_mean(what, WHAT)}",
            next_step=f"WHAT is one of: {', '.join(WHAT)}.",
        )


def check_iceberg(what: str, named: StateSelector) -> None:
    """Refuse arguments that have no meaning for an Iceberg table.

    Raises:
        UsageError: naming what was meant.
    """
    if what in _OF_DELTA:
        raise UsageError(
            f"{what!r} is about Delta tables, and this is an Iceberg table",
            next_step=f"Look at {_OF_DELTA[what]}.",
        )
    if named.version is not None:
        raise UsageError(
            "--version is about Delta tables",
            next_step="For an Iceberg table: --snapshot ID, --ref NAME or --at TIME.",
        )
    if len(named.given()) > 1:
        raise UsageError("--snapshot, --ref and --at each name the snapshot; give one of them")
    if named.given() and what in _OF_TABLE:
        raise UsageError(
            f"--snapshot, --ref and --at do not change what {what} shows: it is about the whole table"
        )


def check_delta(what: str, named: StateSelector, *, recount: bool) -> None:
    """Refuse arguments that have no meaning for a Delta table.

    Raises:
        UsageError: naming what was meant.
    """
    if what in _OF_ICEBERG:
        raise UsageError(
            f"{what!r} is about Iceberg tables, and this is a Delta table",
            next_step=f"Look at {_OF_ICEBERG[what]}.",
        )
    for option in {"--snapshot", "--ref"}.intersection(named.given()):
        raise UsageError(
            f"{option} is about Iceberg tables", next_step="For a Delta table: --version N or --at TIME."
        )
    if len(named.given()) > 1:
        raise UsageError("--version and --at each name the version; give one of them")
    if named.given() and what == "history":
        raise UsageError("--version and --at do not change what history shows: it is about the whole table")
    if recount:
        raise UsageError(
            "--recount is about the manifests of Iceberg tables",
            next_step="Leave it out: what a Delta summary says is always counted.",
        )


def inspector_of(
    table: IcebergTable | DeltaTable, what: str, state: StateSelector, *, recount: bool, as_of_ms: int
) -> TableInspector | DeltaTableInspector:
    """The inspector of a table in one of its states.

    Args:
        table: loaded.
        what: of `what_of` its format.
        state: which of its states.
        recount: whether the summary is to count what no list tells.
        as_of_ms: the "now" of every age.

    Raises:
        UsageError: an argument has no meaning for it, or the table has no such state.
    """
    check_what(what)
    if table.format == "iceberg":
        check_iceberg(what, state)
        from iceberg_cli.iceberg.inspect.inspector import TableInspector
        from iceberg_cli.iceberg.inspect.metadata_rows import select_snapshot

        chosen = select_snapshot(
            table.metadata, snapshot_id=state.snapshot_id, ref=state.ref, at_ms=state.at_ms
        )
        return TableInspector(table=table, snapshot=chosen, as_of_ms=as_of_ms)
    check_delta(what, state, recount=recount)
    from iceberg_cli.delta.inspect.inspector import DeltaTableInspector

    snapshot = table.log.snapshot(state.version, at_ms=state.at_ms) if state.given() else table.snapshot
    return DeltaTableInspector(table=table, snapshot=snapshot, as_of_ms=as_of_ms)


def checked(
    inspector: TableInspector | DeltaTableInspector, *, one_snapshot: bool, deep: bool, now_ms: int
) -> CheckedTable:
    """The findings of a check of an inspected table.

    Args:
        inspector: of the table, in the state to be checked.
        one_snapshot: that state alone, of an Iceberg table; else every branch and tag.
        deep: look into Puffin and Parquet files too; Delta: hold every checkpoint against the log.
        now_ms: the time.
    """
    from iceberg_cli.plan.findings import ERROR, UNANSWERED

    result = _check(inspector, one_snapshot=one_snapshot, deep=deep, now_ms=now_ms)
    document = {**inspector.header("check"), **result.to_json()}
    return CheckedTable(
        document=document,
        warnings=_warnings(inspector),
        errors=document["counts"][ERROR],
        unanswered=result.findings.totals.get(UNANSWERED, 0),
    )


def _check(
    inspector: TableInspector | DeltaTableInspector, *, one_snapshot: bool, deep: bool, now_ms: int
) -> CheckResult | DeltaCheckResult:
    if inspector.format == "iceberg":
        from iceberg_cli.iceberg.check.table_check import TableCheck, heads_of

        heads = heads_of(inspector.table.metadata, inspector.snapshot if one_snapshot else None)
        return TableCheck(table=inspector.table, heads=heads, deep=deep, now_ms=now_ms).run()
    from iceberg_cli.delta.check.table_check import DeltaTableCheck

    return DeltaTableCheck(table=inspector.table, snapshot=inspector.snapshot, deep=deep, now_ms=now_ms).run()


def _warnings(inspector: TableInspector | DeltaTableInspector) -> Sequence[str]:
    """What was passed over in reading the table's state."""
    return inspector.snapshot.warnings if inspector.format == "delta" else ()


@dataclass(frozen=True)
class Inspection:
    """What a table is made of, read when it is asked for.

    Args:
        what: `summary`, or which rows.
        inspector: reads them.
        limit: at most this many rows: the newest of a log, the first of anything else.
        recount: whether the summary counts what no list tells.
    """

    what: str
    inspector: TableInspector | DeltaTableInspector = field(repr=False)
    limit: int | None = None
    recount: bool = False

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the table's state."""
        return _warnings(self.inspector)

    def to_json(self) -> dict[str, Any]:
        """The `inspection/2` document; rows are all in memory then."""
        inspector = self.inspector
        if self.what == "summary":
            return (
                inspector.summary(recount=self.recount)
                if inspector.format == "iceberg"
                else inspector.summary()
            )
        head = inspector.header(self.what)
        if inspector.streams(self.what):
            import json

            head |= inspector.head(self.what)
            parts = inspector.lines(self.what, limit=self.limit)
            rows = [json.loads(line) for part in parts for line in part.to_pylist()]
        else:
            rows = inspector.rows(self.what, limit=self.limit)
        return {**head, "row_count": len(rows), "rows": rows}

    def to_arrow(self) -> pa.Table:
        """The rows as columns; those of `files`, `deletes`, `manifests` and the like have a schema of their own.

        Raises:
            UsageError: a summary has no rows.
        """
        import pyarrow as pa

        if self.what == "summary":
            raise UsageError("A summary has no rows; `to_json` is its document")
        if self.inspector.streams(self.what):
            schema = self.inspector.schema(self.what)
            return pa.Table.from_batches(
                (
                    batch
                    for rows in self.inspector.tables(self.what, limit=self.limit)
                    for batch in rows.cast(schema).to_batches()
                ),
                schema,
            )
        return pa.Table.from_pylist(self.inspector.rows(self.what, limit=self.limit))


@dataclass(frozen=True, kw_only=True)
class CheckedTable:
    """The findings of a check.

    Args:
        document: the `inspection/2` document of `check`.
        warnings: what was passed over in reading the table's state.
        errors: how many findings are errors.
        unanswered: how many files were not looked at, for the storage did not answer.
    """

    document: Mapping[str, Any]
    warnings: Sequence[str]
    errors: int
    unanswered: int

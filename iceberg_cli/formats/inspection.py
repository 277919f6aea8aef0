"""What can be inspected of a table of each format, in which state, and by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.formats import BUILT_IN, Format, Inspector, format_of
from iceberg_cli.plan.display import Shown
from iceberg_cli.plan.text import count, did_you_mean, end_of, listed

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.plan.inspection import StateSelector
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.table.table import OpenTable

WHAT: Final = tuple(dict.fromkeys(what for name in BUILT_IN for what in format_of(name).looking.inspected))


SAMPLE_ROWS: Final = 20  # of a sample, where nothing else is said
_NO_ROWS: Final = "A summary has no rows; `to_json` is its document"
DOCUMENTS: Final = ("summary", "diff")
"""The values of WHAT whose document has no list of rows alone."""


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


def check_request(
    own: Format, what: str, state: StateSelector, *, recount: bool = False, compared: int | None = None
) -> None:
    """Refuse arguments that have no meaning for a table of a format.

    Args:
        own: the format.
        what: of `WHAT`.
        state: which of the table's states.
        recount: whether the summary is to count what no list tells.
        compared: how many states a check is to compare with those before them.

    Raises:
        UsageError: naming what was meant.
    """
    title, looking = own.title[1], own.looking
    if what in looking.elsewhere:
        raise UsageError(
            f"{what!r} is about {_title(own, what)} tables, and this is {' '.join(own.title)} table",
            next_step=f"Look at {looking.elsewhere[what]}.",
        )
    given, options = state.given(), list(looking.state_options)
    for option in given:
        if option not in options:
            usage = [f"{name} {takes}" for name, takes in looking.state_options.items()]
            raise UsageError(
                f"{option} is about {_title(own, option)} tables",
                next_step=f"For {' '.join(own.title)} table: {listed(usage, last='or')}.",
            )
    if len(given) > 1:
        raise UsageError(f"{listed(options)} each name the {looking.state}; give one of them")
    if given and what in looking.stateless:
        raise UsageError(f"{listed(options)} do not change what {what} shows: it is about the whole table")
    if recount and not looking.recounts:
        raise UsageError(
            f"--recount is about the manifests of {_title(own)} tables",
            next_step=f"Leave it out: what a {title} summary says is always counted.",
        )
    if compared is not None and not looking.compares:
        raise UsageError(
            f"--snapshots is about the snapshots of {_title(own)} tables",
            next_step=f"Leave it out: of a {title} table the whole log is checked.",
        )
    if compared is not None and compared < 0:
        raise UsageError(f"--snapshots must be at least 0, not {compared}")


def _title(own: Format, word: str = "manifests") -> str:
    """Of the format that has a value of WHAT or an option which this one does not have."""
    others = (each for each in map(format_of, BUILT_IN) if each.name != own.name)
    return next(
        each.title[1] for each in others if word in (*each.looking.inspected, *each.looking.state_options)
    )


def inspector_of(
    table: OpenTable, what: str, state: StateSelector, *, recount: bool, as_of_ms: int
) -> Inspector:
    """The inspector of a table in one of its states.

    Args:
        table: loaded.
        what: of what its format has.
        state: which of its states.
        recount: whether the summary is to count what no list tells.
        as_of_ms: the "now" of every age.

    Raises:
        UsageError: an argument has no meaning for it, or the table has no such state.
    """
    check_what(what)
    if what == "diff":
        raise UsageError("A difference is one of two states: `Table.diff` takes both")
    own = format_of(table.format)
    check_request(own, what, state, recount=recount)
    if what == "sample":
        return own.looking.sample(table, state, (), as_of_ms=as_of_ms)
    return own.looking.inspector(table, state, as_of_ms=as_of_ms)


def with_difference(table: OpenTable, plan: Plan, *, now_ms: int) -> Plan:
    """A plan with what the states before and after it differ in, where it changes which is current.

    What is damaged can be left by such a plan, so that it does not fail where the difference is not known.

    Args:
        table: that it was made for.
        plan: of any verb.
        now_ms: the time now.
    """
    if plan.states is None:
        return plan
    try:
        inspector = format_of(table.format).looking.difference(
            table, plan.states, as_of_ms=plan.as_of_ms, now_ms=now_ms, by_partition=False, limit=None
        )
        difference = inspector.difference.to_json(by_partition=False, limit=None)
    except (CorruptFile, Refused) as error:
        unknown = f"what it changes is not known: {error.message}"
        return replace(plan, warnings=(*plan.warnings, unknown))
    return replace(plan, difference=difference, warnings=(*plan.warnings, *inspector.warnings))


def difference_of(
    table: OpenTable,
    before: str,
    after: str | None,
    *,
    by_partition: bool,
    limit: int | None,
    as_of_ms: int,
    now_ms: int,
) -> Inspection:
    """What two states of a table differ in.

    Args:
        table: loaded.
        before: the first state: a ref, a snapshot id, a Delta version or a time.
        after: the second one; None: the current state.
        by_partition: have the document a row for each partition in which files differ.
        limit: the first so many of these.
        as_of_ms: the "now" of the document.
        now_ms: the time, from which durations count back.

    Raises:
        UsageError: the table has no such state.
    """
    inspector = format_of(table.format).looking.difference(
        table, (before, after), as_of_ms=as_of_ms, now_ms=now_ms, by_partition=by_partition, limit=limit
    )
    return Inspection("diff", inspector, limit)


def sample_of(
    table: OpenTable, state: StateSelector, columns: Sequence[str], *, limit: int | None, as_of_ms: int
) -> Inspection:
    """Rows of one of a table's states, deletes applied.

    Args:
        table: loaded.
        state: which of its states.
        columns: names of the top-level columns to show; none: all.
        limit: at most so many rows; None: all.
        as_of_ms: the "now" of the document.

    Raises:
        UsageError: the table has no such state or column.
    """
    own = format_of(table.format)
    check_request(own, "sample", state)
    inspector = own.looking.sample(table, state, columns, as_of_ms=as_of_ms)
    return Inspection("sample", inspector, limit)


def checked(
    table: OpenTable,
    state: StateSelector,
    *,
    deep: bool,
    as_of_ms: int,
    now_ms: int,
    compared: int | None = None,
) -> CheckedTable:
    """The findings of a check of a table.

    Args:
        table: loaded.
        state: which of its states; none of an Iceberg table is every branch and tag.
        deep: look into Puffin and Parquet files too; Delta: hold every checkpoint against the log.
        as_of_ms: the "now" of every age.
        now_ms: the time.
        compared: Iceberg: so many snapshots that say they changed no row are compared with their parents; None: as
            many as are by default.

    Raises:
        UsageError: see `inspector_of`.
    """
    from iceberg_cli.plan.findings import ERROR, UNANSWERED
    from iceberg_cli.table.unreadable_table import UnreadableTable

    if isinstance(table, UnreadableTable):
        if state.given():
            raise table.damage
        broken = table.check()
        return CheckedTable(
            document={**table.header(as_of_ms=as_of_ms), **broken.to_json()},
            warnings=(),
            errors=broken.counts()[ERROR],
            unanswered=0,
            deep_reads=format_of(table.format).looking.deep_reads,
        )
    own = format_of(table.format)
    check_request(own, "summary", state, compared=compared)
    inspector = inspector_of(table, "summary", state, recount=False, as_of_ms=as_of_ms)
    result = own.looking.checker(
        inspector, one_state=bool(state.given()), deep=deep, now_ms=now_ms, compared=compared
    ).run()
    return CheckedTable(
        document={**inspector.header("check"), **result.to_json()},
        warnings=inspector.warnings,
        errors=result.counts()[ERROR],
        unanswered=result.found.totals.get(UNANSWERED, 0),
        deep_reads=own.looking.deep_reads,
    )


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """What a table is made of, read when it is asked for.

    Args:
        what: `summary`, `diff`, or which rows.
        inspector: reads them.
        limit: at most this many rows: the newest of a log, the first of anything else.
        recount: whether the summary counts what no list tells.
    """

    what: str
    inspector: Inspector
    limit: int | None = None
    recount: bool = False
    shown_as: ClassVar[str] = "inspection"

    def __repr__(self) -> str:
        """Of what it is, and of which table."""
        return f"Inspection({self.what} of {end_of(self.inspector.location)})"

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the table's state."""
        return self.inspector.warnings

    def to_json(self) -> dict[str, Any]:
        """The `inspection/2` document; rows are all in memory then."""
        inspector = self.inspector
        if self.what in DOCUMENTS:
            return inspector.summary(recount=self.recount)
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
        """The rows as columns, of a difference its partitions; those of `files` and the like have their own schema.

        Raises:
            UsageError: a summary has no rows.
        """
        import pyarrow as pa

        if self.what == "summary":
            raise UsageError(_NO_ROWS)
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
        from iceberg_cli.formats.row_types import columns_of

        return columns_of(self.inspector.rows(self.what, limit=self.limit), self.what, self._format)

    @property
    def _format(self) -> str:
        return str(self.inspector.header(self.what)["format"])

    def to_pandas(self) -> Any:
        """The same as a data frame of pandas.

        Raises:
            UsageError: see `to_arrow`; or pandas is not installed.
        """
        from iceberg_cli.encoding.data_frames import to_pandas

        return to_pandas(self.to_arrow())

    def __len__(self) -> int:
        """How many rows there are, which are read to be counted.

        Raises:
            UsageError: a summary has no rows.
        """
        if self.what == "summary":
            raise UsageError(_NO_ROWS)
        inspector = self.inspector
        if inspector.streams(self.what):
            return sum(rows.num_rows for rows in inspector.tables(self.what, limit=self.limit))
        return len(inspector.rows(self.what, limit=self.limit))

    def __bool__(self) -> bool:
        """An inspection is one also where it has no rows."""
        return True


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckedTable(Shown):
    """The findings of a check.

    Args:
        document: the `inspection/2` document of `check`.
        warnings: what was passed over in reading the table's state.
        errors: how many findings are errors.
        unanswered: how many files were not looked at, for the storage did not answer.
        deep_reads: what a deep check does beyond others, in words.
    """

    document: Mapping[str, Any]
    warnings: Sequence[str]
    errors: int
    unanswered: int
    deep_reads: str
    shown_as: ClassVar[str] = "checked_table"

    def __repr__(self) -> str:
        """Numbers alone."""
        name = end_of(self.document["table"]["name"])
        return f"CheckedTable({name}: {count(len(self), 'findings')}, {count(self.errors, 'errors')})"

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        """The findings of the document; of each rule the first ones alone."""
        found: Sequence[Mapping[str, Any]] = self.document["findings"]
        return found

    def __len__(self) -> int:
        """How many findings there are here."""
        return len(self.findings)

    def __bool__(self) -> bool:
        """A check is one also where it found nothing."""
        return True

    def to_arrow(self) -> pa.Table:
        """A row for each finding."""
        from iceberg_cli.formats.row_types import columns_of

        return columns_of(self.findings, "check", str(self.document["format"]))

    def to_pandas(self) -> Any:
        """The same as a data frame of pandas; UsageError: it is not installed."""
        from iceberg_cli.encoding.data_frames import to_pandas

        return to_pandas(self.to_arrow())

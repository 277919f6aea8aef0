"""A table format, in four parts: how tables are opened, the verbs, what is seen of a table, and what surveys keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.operation.verbs import FormatVerbs
    from iceberg_cli.plan.decision import Decision, FileGlances, Glances
    from iceberg_cli.plan.difference import DifferenceInspector
    from iceberg_cli.plan.findings import CheckResult
    from iceberg_cli.plan.inspection import Column, Part, Row, StateSelector
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.storage import Storage
    from iceberg_cli.table.table import OpenRequest, OpenTable


class Inspector(Protocol):
    """Reads what there is to see of a table in one of its states."""

    @property
    def location(self) -> str:
        """The table's folder."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What was passed over in reading the state."""
        ...

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        ...

    def summary(self, *, recount: bool) -> dict[str, Any]:
        """The whole document of a summary; `recount`: count what no list tells."""
        ...

    def summary_text(self, document: Row) -> Iterable[Part]:
        """A summary's document as text."""
        ...

    def text_of(self, what: str, rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
        """The columns of rows as text, and the rows that have them."""
        ...

    def newest_last(self, what: str) -> bool:
        """Whether a limit keeps the end of the rows, not their beginning."""
        ...

    def rows(self, what: str, *, limit: int | None) -> list[dict[str, Any]]:
        """The rows, where they do not stream."""
        ...

    def streams(self, what: str) -> bool:
        """Whether rows come by `lines` and `tables`, not by `rows`."""
        ...

    def head(self, what: str) -> dict[str, Any]:
        """The fields of a document beside streamed rows."""
        ...

    def lines(self, what: str, *, limit: int | None, before: str = "", after: str = "") -> Iterator[pa.Array]:
        """Streamed rows as JSON objects, one string for each row, between `before` and `after`."""
        ...

    def tables(self, what: str, *, limit: int | None) -> Iterator[pa.Table]:
        """Streamed rows as columns of `schema`."""
        ...

    def schema(self, what: str) -> pa.Schema:
        """The columns of streamed rows."""
        ...


class ScanInput(Protocol):
    """What a scan of a table's current state reads, for the choice of an engine."""

    @property
    def words(self) -> str:
        """What holds so many bytes."""
        ...

    def size_bytes(self) -> int:
        """How much it is.

        Raises:
            CorruptFile: that cannot be read.
        """
        ...

    def one_file(self) -> str:
        """A file that workers must be able to read."""
        ...


class Checker(Protocol):
    """Holds a table against its specification."""

    def run(self) -> CheckResult:
        """Every rule that is broken.

        Raises:
            BackendUnavailable: the storage did not answer.
        """
        ...


class Opening(Protocol):
    """How tables of a format are found and opened."""

    def detect(self, request: OpenRequest) -> bool:
        """Whether a name means a table of this format; other formats may know it better."""
        ...

    def open(self, request: OpenRequest, choose_engine: Callable[[Any], None], /) -> OpenTable:
        """The table, loaded once; `choose_engine` is called before what is large is read.

        Raises:
            UsageError, TableNotFound, Refused, CorruptFile, BackendUnavailable.
        """
        ...

    def open_unreadable(self, request: OpenRequest, damage: CorruptFile, /) -> OpenTable:
        """A table that `open` could not read: an `UnreadableTable`, or the error again.

        Raises:
            As `open` does.
        """
        ...

    def scan_input(self, table: Any) -> ScanInput:
        """What a scan of a table that was opened with the local engine reads."""
        ...


class Looking(Protocol):
    """What is seen of a table of a format.

    Args:
        inspected: the values of WHAT.
        elsewhere: for values of WHAT that other formats have, where to look instead.
        state: what a table has many of, in a word.
        state_options: the options that select one, each with what it takes.
        stateless: the values of WHAT that are about the whole table.
        recounts: whether a summary may leave something uncounted.
        compares: whether a check compares states that say they changed no row with those before.
        deep_reads: what a deep check does beyond others, in words.
    """

    @property
    def inspected(self) -> Sequence[str]: ...  # noqa: D102 - see above
    @property
    def elsewhere(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def state_options(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def stateless(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def recounts(self) -> bool: ...  # noqa: D102
    @property
    def compares(self) -> bool: ...  # noqa: D102
    @property
    def deep_reads(self) -> str: ...  # noqa: D102

    def inspector(self, table: Any, state: StateSelector, *, as_of_ms: int) -> Inspector:
        """Reads about one of a table's states.

        Raises:
            UsageError: it has no such state.
        """
        ...

    def difference(
        self,
        table: Any,
        states: tuple[str, str | None],
        *,
        as_of_ms: int,
        now_ms: int,
        by_partition: bool,
        limit: int | None,
    ) -> DifferenceInspector:
        """Reads what two of a table's states differ in: its summary is that, its rows are the partitions.

        Args:
            table: opened.
            states: the names of the first and of the second one; None: the current state.
            as_of_ms: the "now" of the document.
            now_ms: the time, from which durations count back.
            by_partition: have the summary a row for each partition in which files differ.
            limit: the first so many of these.

        Raises:
            UsageError: it has no such state.
        """
        ...

    def sample(self, table: Any, state: StateSelector, columns: Sequence[str], *, as_of_ms: int) -> Inspector:
        """Reads rows of one of a table's states, deletes applied.

        Args:
            table: opened.
            state: which one.
            columns: names of the top-level columns to show; none: all.
            as_of_ms: the "now" of the document.

        Raises:
            UsageError: it has no such state.
        """
        ...

    def quick_check(self, inspector: Any) -> CheckResult:
        """An inspected table against the rules about what is read to open it, and no file beyond."""
        ...

    def checker(
        self, inspector: Any, *, one_state: bool, deep: bool, now_ms: int, compared: int | None
    ) -> Checker:
        """Checks an inspected table.

        Args:
            inspector: of this format.
            one_state: that state alone, where a table has several current ones.
            deep: look into files too.
            now_ms: the time.
            compared: at most so many states are compared with those before them; None: as the format likes.
        """
        ...


class Surveying(Protocol):
    """What surveys of many tables keep of a table of a format, and decide by it."""

    @property
    def glances(self) -> Glances:
        """What glances at tables decide."""
        ...

    @property
    def file_glances(self) -> FileGlances | None:
        """The same by a metadata file; None where there is none that has all of it."""
        ...

    def glance(self, table: Any) -> dict[str, Any] | None:
        """What surveys keep of an opened table's version; None: nothing of this one."""
        ...

    def lasts(self, table: Any, plan: Plan, decision: Decision) -> bool:
        """Whether what a plan frees, and what blocks it, are the same as long as version and decision are.

        Args:
            table: opened.
            plan: of it.
            decision: of the same policy, by the table's glance.
        """
        ...

    def folder_version(self, storage: Storage, folder: str) -> str | None:
        """What one listing tells of the version of a table in a folder: another text where anything changed.

        Args:
            storage: of the folder.
            folder: of the table, canonical.

        Returns:
            Nothing that is compared with another table's; None where the listing does not show it.

        Raises:
            BackendUnavailable: it cannot be listed.
        """
        ...

    def fleet_columns(self, summary: Row) -> dict[str, Any]:
        """The columns of `fleet/1` about a table's size and shape, from the document of its summary."""
        ...


@dataclass(frozen=True, kw_only=True)
class Format:
    """A table format: `FORMAT` of `iceberg_cli.iceberg`, of `iceberg_cli.delta`, or an entry point.

    Args:
        name: as documents have it.
        title: as sentences have it, with its article.
        opening: how its tables are found and opened.
        verbs: by name.
        looking: what is seen of a table.
        surveying: what surveys keep of a table.
        has_protocol: its version is that of the protocol for those that write; readers have one of their own.
        file_kinds: the kinds of files that its verbs delete, as plans name them; none: they are not known before.
    """

    name: str
    title: tuple[str, str]
    opening: Opening
    verbs: FormatVerbs
    looking: Looking
    surveying: Surveying
    has_protocol: bool = False
    file_kinds: Callable[[], Sequence[str]] = tuple

    def version_text(self, table: Row) -> str:
        """The format and its version in words.

        Args:
            table: with its `format_version`, and a `reader_version` where a format has one for those that read.
        """
        version, reader = table["format_version"], table.get("reader_version")
        name = self.title[1]
        if not self.has_protocol:
            return f"{name} v{version}"
        return f"{name}, writer {version}" if reader is None else f"{name}, reader {reader}, writer {version}"

"""The formats of tables: what each is asked, and the formats by name. Nothing of one is loaded before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import listed

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli import delta, iceberg
    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.operation.ports import Verb
    from iceberg_cli.plan.decision import Decision, FileGlances, Glances
    from iceberg_cli.plan.findings import CheckResult
    from iceberg_cli.plan.inspection import Column, Part, Row, StateSelector
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.plan.policy import Policy
    from iceberg_cli.plan.verb_place import VerbPlace
    from iceberg_cli.storage import Storage
    from iceberg_cli.table.table import OpenRequest, OpenTable

__all__ = [
    "BUILT_IN",
    "VERB_NAMES",
    "Checker",
    "Format",
    "Inspector",
    "ScanInput",
    "format_of",
    "is_only_by_name",
    "place_of",
    "plugged_formats",
    "plugged_verbs",
    "policies_of",
    "policy_for",
    "verbs_in_order",
    "verbs_of",
]
BUILT_IN: Final = ("iceberg", "delta")
GROUP: Final = "iceberg_cli.formats"


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


class Format(Protocol):
    """A table format: `FORMAT` of `iceberg_cli.iceberg`, of `iceberg_cli.delta`, or an entry point.

    Args:
        name: as documents have it.
        title: as sentences have it, with its article.
        inspected: the values of WHAT.
        elsewhere: for values of WHAT that other formats have, where to look instead.
        state: what a table has many of, in a word.
        state_options: the options that select one, each with what it takes.
        stateless: the values of WHAT that are about the whole table.
        recounts: whether a summary may leave something uncounted.
        deep_reads: what a deep check does beyond others, in words.
        verbs: by name.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above
    @property
    def title(self) -> tuple[str, str]: ...  # noqa: D102
    @property
    def inspected(self) -> Sequence[str]: ...  # noqa: D102
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
    def deep_reads(self) -> str: ...  # noqa: D102
    @property
    def verbs(self) -> Mapping[str, Verb]: ...  # noqa: D102

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

    def policy(self, verb: str) -> type[Policy]:
        """The policies of a verb, with nothing else of the verb loaded.

        Raises:
            KeyError: it is none of `verbs`.
        """
        ...

    def instead(self, verb: str) -> str | None:
        """What does here what a verb does that only other formats have, as an error can advise it; None: nothing."""
        ...

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
    ) -> Inspector:
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

    def quick_check(self, inspector: Any) -> CheckResult:
        """An inspected table against the rules about what is read to open it, and no file beyond."""
        ...

    def checker(self, inspector: Any, *, one_state: bool, deep: bool, now_ms: int) -> Checker:
        """Checks an inspected table.

        Args:
            inspector: of this format.
            one_state: that state alone, where a table has several current ones.
            deep: look into files too.
            now_ms: the time.
        """
        ...


if TYPE_CHECKING:
    _FORMATS: tuple[Format, ...] = (iceberg.FORMAT, delta.FORMAT)


def format_of(name: str) -> Format:
    """A format by its name.

    Raises:
        UsageError: there is none.
    """
    if name in BUILT_IN:
        found: Format = import_module(f"iceberg_cli.{name}").FORMAT
        return found
    for plugged in plugged_formats():
        if plugged.name == name:
            return plugged
    raise UsageError(f"No format {name!r} is known here", next_step=f"A package can bring it as {GROUP}.")


def plugged_formats() -> Iterator[Format]:
    """The formats that installed packages bring.

    Raises:
        UsageError: a package does not have what it says it brings.
    """
    from iceberg_cli.storage.plugins import entry_points_of  # none for commands that need no other format

    for entry in entry_points_of(GROUP).values():
        try:
            yield entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"Cannot look for tables of the format {entry.name!r}: its entry point {entry.value} cannot be"
                f" loaded: {error}",
                next_step="Install another version of that package, or remove it.",
            ) from error


VERB_NAMES: Final = tuple(dict.fromkeys(verb for name in BUILT_IN for verb in format_of(name).verbs))
"""The verbs of the built-in formats, each once."""


def plugged_verbs() -> dict[str, dict[str, type[Policy]]]:
    """The policies of verbs that only formats of installed packages have, by verb and by format.

    Raises:
        UsageError: a package does not have what it says it brings.
    """
    found: dict[str, dict[str, type[Policy]]] = {}
    for plugged in plugged_formats():
        for verb in plugged.verbs:
            if verb not in VERB_NAMES:
                found.setdefault(verb, {})[plugged.name] = plugged.policy(verb)
    return found


def verbs_of(format_name: str) -> tuple[str, ...]:
    """Those of `VERB_NAMES` that a format has.

    Raises:
        UsageError: there is no such format.
    """
    found = format_of(format_name).verbs
    return tuple(verb for verb in VERB_NAMES if verb in found)


def policy_for(format_name: str, verb: str) -> type[Policy]:
    """The policies of a verb for tables of a format, with nothing else of the verb loaded.

    Raises:
        UsageError: there is no such format, or it has no such verb.
    """
    found = format_of(format_name)
    if verb in found.verbs:
        return found.policy(verb)
    instead, having = found.instead(verb), listed([format_of(name).title[1] for name in policies_of(verb)])
    raise UsageError(
        f"{verb} is no verb of {found.title[1]} tables",
        next_step=instead or f"It is for {having} tables alone.",
    )


def place_of(format_name: str, verb: str) -> VerbPlace:
    """Where a verb stands among others of a format; raises as `policy_for`."""
    return policy_for(format_name, verb).place


@cache
def verbs_in_order(format_name: str | None = None) -> tuple[str, ...]:
    """The verbs of a format, or all, in the order in which those that are due on a table run.

    Raises:
        UsageError: there is no such format.
    """
    names = VERB_NAMES if format_name is None else verbs_of(format_name)
    return tuple(sorted(names, key=lambda verb: max(each.place.order for each in policies_of(verb).values())))


@cache
def is_only_by_name(verb: str) -> bool:
    """Whether a verb runs on many tables only where an entry of a policy file names it."""
    return any(policy.place.only_by_name for policy in policies_of(verb).values())


def policies_of(verb: str) -> dict[str, type[Policy]]:
    """The policy of a verb on tables of each format that has it, by format, with nothing else of a format loaded."""
    built_in = {name: format_of(name).policy(verb) for name in BUILT_IN if verb in format_of(name).verbs}
    return built_in or plugged_verbs().get(verb, {})

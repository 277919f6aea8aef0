"""What an operation of many commits needs of a verb."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from iceberg_cli.operation.ports import Build, Verb, nothing_to_build

if TYPE_CHECKING:
    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.operation.groups.creator import Creator, Written
    from iceberg_cli.operation.groups.results import GroupResult
    from iceberg_cli.plan.column_reads import ColumnReads
    from iceberg_cli.plan.plan import Plan, Step


_LEAST_MS: Final = 60_000  # between two commits, unless it was said when to commit


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTasks:
    """How groups are rewritten, and what each is.

    Args:
        rewrite: see `GroupWork`; picklable, as are the groups, and run by an engine.
        groups: by number, the format's own description of each; one that cannot be rewritten any more is left out.
        suffix: of the names of new files.
        processes: at most so many are rewritten side by side.
        broken: groups that cannot be rewritten because something that must be read cannot be, each with the error.
    """

    rewrite: Callable[[Creator, Any], Written]
    groups: Mapping[int, Any]
    suffix: str
    processes: int
    broken: Mapping[int, CorruptFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPace:
    """How often finished groups are committed, beside the commit at the end.

    Args:
        every_bytes: of files in finished groups; None: a tenth of all, and not twice within a minute.
        every_ms: since the last commit.
        most_commits: in all.
    """

    every_bytes: int | None
    every_ms: int
    most_commits: int

    def is_due(self, waiting_bytes: int, elapsed_ms: int, *, commits: int, of_bytes: int) -> bool:
        """Whether the groups that wait are to be committed now.

        Args:
            waiting_bytes: of the files in them.
            elapsed_ms: since the last commit.
            commits: so far.
            of_bytes: of the files in all groups.
        """
        if commits + 1 >= self.most_commits:
            return False
        if elapsed_ms >= self.every_ms:
            return True
        if self.every_bytes is None:
            return elapsed_ms >= _LEAST_MS and waiting_bytes >= max(1, of_bytes // 10)
        return waiting_bytes >= self.every_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A commit of finished groups on the table as loaded last.

    Args:
        step: None where no group can be committed.
        build: of its files.
        dropped: the groups that cannot be committed any more, each with the reason.
        broken: those that cannot be because something of the table cannot be read.
        lost_deletes: deletes that came too late for files of groups that were committed before, a sentence for each.
    """

    step: Step | None
    build: Build = nothing_to_build
    dropped: Mapping[int, str] = field(default_factory=dict)
    broken: Mapping[int, str] = field(default_factory=dict)
    lost_deletes: tuple[str, ...] = ()


class GroupVerb(Verb, Protocol):
    """A verb whose plans have groups, which are rewritten side by side and committed by and by."""

    def tasks(self, table: Any, plan: Plan, numbers: Sequence[int]) -> GroupTasks:
        """How some groups of a plan are rewritten.

        Args:
            table: the plan's.
            plan: with groups.
            numbers: of the groups.
        """
        ...

    def pace(self, plan: Plan) -> CommitPace:
        """How often finished groups of a plan are committed."""
        ...

    def changed(self, table: Any, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
        """Those of some groups whose files are not what the plan says any more, each with the reason.

        Args:
            table: as loaded last.
            plan: with groups.
            numbers: of groups whose files could not be read.
        """
        ...

    def compares_rows(self, plan: Plan) -> bool:
        """Whether all rows that are written are compared with those that were read."""
        ...

    def reads_now(self, table: Any, plan: Plan) -> Sequence[ColumnReads]:
        """What reads of one value open of a table as loaded last, for each column by which the plan orders rows.

        Raises:
            UsageError: rows cannot be ordered so any more. CorruptFile: what must be read cannot be read whole.
        """
        ...

    def batch(
        self,
        table: Any,
        plan: Plan,
        results: Sequence[GroupResult],
        *,
        committed: Collection[int],
        earlier: Batch | None = None,
    ) -> Batch:
        """The commit of finished groups: those whose files the table has as the plan had them.

        Args:
            table: as loaded last.
            plan: with groups.
            results: of groups that are finished.
            committed: numbers of the groups that were committed before.
            earlier: the last try of the same commit, which lost against another writer's: what it read of the table,
                and others left as it is, need not be read again.

        Raises:
            CorruptFile: what must be read of the table cannot be read whole. Refused: it cannot be committed to.
        """
        ...

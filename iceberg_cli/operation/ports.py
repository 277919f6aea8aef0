"""What carrying a plan out needs of a table and of a verb, whatever the format."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.engines import Engine
    from iceberg_cli.operation.operation_state import Operation
    from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Unknown
    from iceberg_cli.operation.records import CommitIntent
    from iceberg_cli.operation.runtime import Runtime
    from iceberg_cli.operation.workspace import Workspace
    from iceberg_cli.plan.plan import Base, Change, Option, Plan, StagedFile, Step, Task, Voucher
    from iceberg_cli.plan.policy import Policy
    from iceberg_cli.plan.preflight import Preflight
    from iceberg_cli.plan.removals import Removals


class Build(Protocol):
    """Writes the new files of a plan, with what was read to make it."""

    def __call__(self, step: Step, paths: Mapping[Task, str], /) -> Mapping[Task, StagedFile]:
        """Write the files of some of a step's tasks, put-if-absent, each to its path."""
        ...


def nothing_to_build(step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
    """The build of a plan without tasks."""
    raise AssertionError(f"{step.name} has nothing to build, and {len(paths)} paths for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and what carries out its tasks. A plan that was read from a document is planned again for that."""

    plan: Plan
    build: Build = nothing_to_build


class Verb(Protocol):
    """A verb of one format, whose tables it takes."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def policy(self) -> type[Policy]:
        """The type of its policies."""
        ...

    @property
    def result_columns(self) -> Sequence[str]:
        """The columns of its report."""
        ...

    def plan(
        self,
        table: Any,
        policy: Any,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        """What the verb would do to a table, with its removals.

        Args:
            table: planned for as it was loaded last.
            policy: what the operator asked for.
            as_of_ms: the "now" of every age.
            within: the plan that this one takes the place of; it should do nothing that `within` does not list.
            earlier: of that plan, where this process made it: what it has read and written is used again.
        """
        ...

    def options(self, table: Any, policy: Any, *, as_of_ms: int) -> Mapping[str, Option]:  # noqa: ARG002 - as above
        """What a plan has as `options`, with nothing but the table's metadata read: each value and its source.

        Args:
            table: as it was loaded last; its properties decide where the policy does not.
            policy: what the operator asked for.
            as_of_ms: the "now" of every age.

        Raises:
            UsageError: the policy makes no sense for the table.
            InvalidMetadata: a property cannot be read.
        """
        return {
            name: option
            for item in policy.options()
            for name, option in policy.chosen_or_none(item.name).items()
        }

    def preflight(self, table: Any, policy: Any, *, as_of_ms: int) -> Preflight:  # noqa: ARG002 - the port's signature
        """What stands in the way of the verb, for one whose policy has a `preflight`.

        Args:
            table: see `plan`.
            policy: see `plan`.
            as_of_ms: see `plan`.

        Raises:
            UsageError: the verb has none.
        """
        raise UsageError(f"{self.name} has no preflight")

    def first(self, plan: Plan) -> tuple[Verb, Policy] | None:  # noqa: ARG002 - the port's signature
        """Another verb, and what is asked of it, whose operation comes before that of a plan; its steps are first."""
        return None

    def begin(self, table: Any, plan: Plan, runtime: Runtime) -> None:  # noqa: ARG002 - the port's signature
        """Do what comes before the first commit of a plan that is carried out; again where that was not reached.

        Raises:
            Refused, CorruptFile: it cannot be carried out any more; nothing was changed.
        """
        return

    def end(self, table: Any, plan: Plan, runtime: Runtime) -> None:  # noqa: ARG002 - the port's signature
        """Do what comes after the last step of a plan that is carried out; again where the end was not recorded."""
        return

    def undoing(self, operation: Operation) -> Change | None:  # noqa: ARG002 - the port's signature
        """What is committed where an operation of the verb, whose files wait, is taken back; None: nothing.

        Of a format that keeps what a commit took from the table, as `kept_before` of `Table` has it, that comes back.

        Args:
            operation: its state.
        """
        return None

    def unreached(self, table: Any, rows: Any, *, plan: Plan) -> Any:  # noqa: ARG002 - the port's signature
        """Which of n removals nothing reaches by the verb's own rules, once the table was looked at again.

        Args:
            table: loaded again here.
            rows: columns of `removal_rows.SCHEMA`, or of `LISTED_SCHEMA`.
            plan: that they are of.

        Returns:
            n booleans of numpy; None: the verb has no rules of its own, and the paths decide that the table reaches.
        """
        return None

    def unconditional(self, table: Any) -> Build:  # noqa: ARG002 - the port's signature
        """What builds the tasks of unconditional steps, each of which says all that it takes."""
        return nothing_to_build


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how soon a refused commit is tried again: `commit.retry.*`, in attempts and ms."""

    attempts: int
    min_wait_ms: int
    max_wait_ms: int
    total_timeout_ms: int

    def waits_ms(self) -> Iterator[float]:
        """How long to wait before each further attempt: doubling, with up to 10 % of jitter."""
        wait_ms, waited_ms = float(self.min_wait_ms), 0.0
        for _ in range(self.attempts - 1):
            jittered = min(wait_ms, self.max_wait_ms) * (1 + random.random() / 10)  # noqa: S311 - no secret
            if waited_ms + jittered > self.total_timeout_ms:
                return
            waited_ms += jittered
            wait_ms *= 2
            yield jittered


class Table(Protocol):
    """What `apply` needs of a table, whatever its format.

    Args:
        engine: runs tasks over its files.
    """

    engine: Engine

    @property
    def workspace(self) -> Workspace:
        """The files of its operations."""
        ...

    @property
    def send_again_ms(self) -> int | None:
        """How long after it was decided a commit may be sent again as it is; None: always."""
        ...

    @property
    def takes_late_requests(self) -> bool:
        """Whether a commit that was sent to replace one version may still come in once another took its place."""
        ...

    @property
    def workers_write(self) -> bool:
        """Whether other processes write the files of a verb's `build`, which may outlive this one."""
        ...

    def use(self, engine: Engine) -> None:
        """Read with another engine from now on."""
        ...

    def load(self, seen: str | None = None) -> Base:
        """Look at the pointer and read what it points to; `seen` is where it was seen to point just now, or None."""
        ...

    def base(self) -> Base:
        """What the table was when it was loaded last."""
        ...

    def read_only_reason(self) -> str | None:
        """Why the table as loaded last cannot be committed to from here, or None."""
        ...

    def vouchers(self) -> Sequence[Voucher]:
        """What the operator vouches for, as far as changes of the table rest on it."""
        ...

    def probe(self, path: str) -> None:
        """Refuse a storage that is seen not to keep what commits rest on, by creating a file at `path`.

        Raises:
            Refused: it does not.
        """
        ...

    def retries(self) -> Retries:
        """`commit.retry.*` of the table as loaded last."""
        ...

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        """This attempt's commit on the table as loaded last; `mark` is in the names of the files it makes."""
        ...

    def kept_before(self, attempt: Attempt) -> Mapping[str, bytes]:
        """What the journal keeps of a table, by file name, before a commit after which files wait for a grace."""
        ...

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """One swap."""
        ...

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """What came of an earlier swap."""
        ...

    def effects_visible(self, step: Step) -> bool:
        """Whether the table as loaded last already is as the step would leave it."""
        ...

    def rebind(self, step: Step, intent: CommitIntent) -> Attempt | None:
        """The attempt that an intent of the journal describes, byte for byte; None if its base is gone."""
        ...

    def unreachable(self, removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        """Those of `rows` that the table does not reach now, by the rules of `plan` and as of its time.

        Raises:
            Refused: deletions are forbidden by now.
        """
        ...

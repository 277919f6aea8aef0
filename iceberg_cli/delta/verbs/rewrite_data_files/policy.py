"""rewrite-data-files on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Choice, Moment, Policy, Ratio, Size, Switch, Text, Whole, option
from iceberg_cli.plan.text import size_or_duration
from iceberg_cli.plan.times import Time
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.where import Where

VERB_NAME: Final = "rewrite-data-files"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteDataFiles(Policy):
    """The options of rewrite-data-files; None where the table's property or a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(order=3, only_by_policy=True)

    strategy: str | None = option(Choice(("bin-pack",)))
    where: str | None = option(Where())
    older_than: Time | None = option(
        Moment(),
        "Delta: only files that were written before: writers change young ones the most.",
        json_name="older_than_ms",
        own=True,
        elsewhere="--where",
    )
    target_size: int | str | None = option(Size(), json_name="target_size_bytes", own=True)
    min_size: int | str | None = option(Size(), json_name="min_size_bytes")
    max_size: int | str | None = option(Size(), json_name="max_size_bytes")
    min_input_files: int | None = option(Whole())
    delete_ratio: float | None = option(Ratio())
    rewrite_all: bool = option(Switch(), default=False)
    max_group_size: int | str | None = option(Size(), json_name="max_group_size_bytes")
    max_files: int | None = option(Whole())
    max_rewrite_bytes: int | str | None = option(Size(), json_name="max_rewrite_bytes")
    group_order: str | None = option(Choice(("bytes-desc", "bytes-asc", "files-desc", "files-asc")))
    commit_every: str | None = option(Text("SIZE|DURATION", empty=False))
    max_commits: int | None = option(Whole())
    single_commit: bool = option(Switch(), default=False)
    processes: int | None = option(Whole(), in_policy_files=1, not_in_policy_files=True)
    memory: int | str | None = option(Size(), json_name="memory_bytes", not_in_policy_files=True)
    no_verify_rows: bool = option(Switch(), default=False)
    unsafe_accept_space: bool = option(Switch(), default=False)

    def bytes_of(self, name: str) -> int | None:
        """A size, in bytes; None where it was not given."""
        return cast("int | None", getattr(self, name))

    @property
    def older_than_ms(self) -> int | None:
        """`older_than` in ms since the epoch."""
        return cast("int | None", self.older_than)

    @property
    def commit_pace(self) -> tuple[int | None, int | None]:
        """See `size_or_duration`."""
        return size_or_duration(self.commit_every, "--commit-every")

    def check_together(self) -> None:
        """Refuse numbers that exclude each other."""
        _ = self.commit_pace
        if self.single_commit and self.max_commits is not None:
            raise UsageError("--single-commit and --max-commits exclude each other")


POLICY: Final = RewriteDataFiles

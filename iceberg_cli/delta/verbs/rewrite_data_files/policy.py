"""rewrite-data-files on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.compaction_policy import VERB_NAME, CompactionPolicy
from iceberg_cli.plan.policy import Moment, Switch, option
from iceberg_cli.plan.times import Time
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteDataFiles(CompactionPolicy):
    """The options of rewrite-data-files; None where the table's property or a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=3,
        only_by_policy=True,
        undo=WayBack(
            why_not="`restore --to N` goes back to the version before it, as long as its files are there"
        ),
    )

    older_than: Time | None = option(
        Moment(),
        "Delta: only files that were written before: writers change young ones the most.",
        json_name="older_than_ms",
        own=True,
        elsewhere="--where",
    )

    purge: bool = option(
        Switch(),
        "Delta: only files with deleted rows, however few, or with columns that the schema has no more.",
        default=False,
        omitted=True,
        elsewhere="--delete-ratio",
    )

    leave_iceberg_behind: bool = option(
        Switch(),
        "Delta: also where UniForm's Iceberg metadata stays a version behind until Delta Spark commits again.",
        default=False,
        omitted=True,
    )

    def check_together(self) -> None:
        """As `Policy`."""
        super().check_together()
        if self.purge and self.order_strategy is not None:
            raise UsageError(f"--purge and --strategy {self.order_strategy} exclude each other")

    @property
    def older_than_ms(self) -> int | None:
        """`older_than` in ms since the epoch."""
        return cast("int | None", self.older_than)


POLICY: Final = RewriteDataFiles

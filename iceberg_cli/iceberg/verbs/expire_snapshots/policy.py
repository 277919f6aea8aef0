"""expire-snapshots on an Iceberg table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.plan.deleting_policy import DeletingPolicy, grace_option
from iceberg_cli.plan.policy import Choice, Id, Moment, Several, Switch, Whole, option
from iceberg_cli.plan.times import Span, Time
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "expire-snapshots"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExpireSnapshots(DeletingPolicy):
    """The options of expire-snapshots; None where the table's property or the specification's default decides.

    `older_than_ms` is a point in time, in ms since the epoch. Spec: "Snapshot Retention Policy".
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=6,
        removes=True,
        by_age=True,
        names_elsewhere=(
            "clean",
            "cleanup",
            "delete-snapshots",
            "expire",
            "expire-snapshot",
            "gc",
            "prune",
            "remove-snapshots",
        ),
        undo=WayBack(while_waiting=True),
    )
    about: ClassVar[str] = """
        Forget snapshots by refs, ages and counts; then delete what nothing reaches. Delta: VACUUM and log cleanup.

        Retention is the table's own: what a branch or tag says comes first, then an option, then a table
        property, then the default. main and the head of every kept branch and tag stay. Files go only after
        the commit, and only if the committed table, looked at again, does not reach them.
        """
    examples: ClassVar = (
        (
            "Show what would go:",
            "expire-snapshots prod.sales.orders --older-than 7d --retain-last 10 --dry-run",
        ),
    )

    older_than: Time | None = option(
        Moment(),
        "Expire what is older; default: history.expire.max-snapshot-age-ms, else 5d.",
        json_name="older_than_ms",
        elsewhere="--retention",
    )
    retain_last: int | None = option(
        Whole(),
        "Keep the newest N of each branch; default: history.expire.min-snapshots-to-keep, else 1.",
        elsewhere="--retention",
    )
    snapshot_ids: Sequence[int] = option(
        Several(Id(), ordered=True),
        "Expire these snapshots. Alone, only the named ones go (Spark also applies the age rule); "
        "with --older-than or --retain-last, both.",
        default=(),
        flag="--snapshot-id",
        elsewhere="--log-retention",
    )
    clean_metadata: bool = option(
        Switch(),
        "Also drop schemas and partition specs that nothing kept needs.",
        default=False,
        elsewhere="--log-retention",
    )
    cleanup: str = option(
        Choice(("all", "metadata", "none")),
        "Which files to delete: all, only metadata files, or none.",
        default="all",
        elsewhere="--mode",
    )
    keep_writer_state: bool = option(
        Switch(),
        "Keep the newest snapshot that holds the state of a streaming writer, and those after it.",
        default=False,
        elsewhere="--retention",
        omitted=True,
        in_policy_files=True,
    )
    grace: Span = grace_option(omitted=False)

    @property
    def older_than_ms(self) -> int | None:
        """`older_than` in ms since the epoch."""
        return cast("int | None", self.older_than)


POLICY: Final = ExpireSnapshots

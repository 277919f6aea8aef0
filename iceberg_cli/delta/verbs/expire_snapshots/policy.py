"""expire-snapshots on a Delta table, VACUUM and log cleanup: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.deleting_policy import DeletingPolicy
from iceberg_cli.plan.policy import Choice, Duration, Switch, Text, option
from iceberg_cli.plan.times import Span
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "expire-snapshots"
FULL, LITE = "full", "lite"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExpireSnapshots(DeletingPolicy):
    """The options of expire-snapshots; None where the table's property or the protocol's default decides.

    `retention_ms` is of files that no live version needs, `log_retention_ms` of commits and checkpoints. `inventory`
    is a file that lists the table's files in place of the storage. `unsafe_short_retention`: below what the table
    itself promises.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=6,
        removes=True,
        by_age=True,
        names_elsewhere=("log-cleanup", "vacuum"),
        undo=WayBack(while_waiting=True),
    )
    examples: ClassVar = (
        ("VACUUM and log cleanup of a Delta table:", "expire-snapshots /lake/db/clicks --retention 7d --yes"),
    )

    retention: Span | None = option(
        Duration(),
        "Delta: delete files that were removed longer ago; default: delta.deletedFileRetentionDuration, else 7d.",
        json_name="retention_ms",
        elsewhere="--older-than",
    )
    mode: str = option(
        Choice((FULL, LITE)),
        "Delta: find files by listing the table's folder, or from the log alone.",
        default=FULL,
        elsewhere="--cleanup",
    )
    log_retention: Span | None = option(
        Duration(),
        "Delta: clean up the log before this time; default: delta.logRetentionDuration, else 30d.",
        json_name="log_retention_ms",
        elsewhere="the table property write.metadata.previous-versions-max",
    )
    inventory: str | None = option(
        Text("FILE"),
        "Delta: a listing of the table's folder, Parquet or JSON lines with path, length, isDir and modificationTime.",
    )
    unsafe_short_retention: bool = option(
        Switch(),
        "Delta: accept a --retention below the table's own: running readers and writers may fail.",
        default=False,
        flag="--unsafe-allow-short-retention",
        elsewhere="--older-than",
    )

    @property
    def retention_ms(self) -> int | None:
        """`retention` in ms."""
        return cast("int | None", self.retention)

    @property
    def log_retention_ms(self) -> int | None:
        """`log_retention` in ms."""
        return cast("int | None", self.log_retention)

    def check_together(self) -> None:
        """Refuse a listing where none is made."""
        if self.mode == LITE and self.inventory is not None:
            raise UsageError("--inventory takes the place of a listing, and --mode lite makes none")


POLICY: Final = ExpireSnapshots

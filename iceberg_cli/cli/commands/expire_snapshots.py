"""`expire-snapshots`: expire snapshots by refs, ages and counts; then delete unreachable files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from iceberg_cli.cli.commands.carry_out import ApplyOptions, carry_out
from iceberg_cli.cli.commands.formats import DELTA, ICEBERG, Foreign
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options import spread
from iceberg_cli.cli.values import duration_ms, integer, positive, time_ms
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.delta.verbs import policies
    from iceberg_cli.iceberg.verbs.expire_snapshots.rules import ExpirePolicy


@dataclass(frozen=True, kw_only=True)
class ExpireOptions:
    """The options of `expire-snapshots`."""

    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION",
            help="Expire what is older; default: history.expire.max-snapshot-age-ms, else 5d.",
        ),
    ] = None
    retain_last: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=integer,
            help="Keep the newest N of each branch; default: history.expire.min-snapshots-to-keep, else 1.",
        ),
    ] = None
    snapshot_id: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID",
            parser=integer,
            help="Expire this snapshot. Alone, only the named ones go (Spark also applies the age rule); "
            "with --older-than or --retain-last, both.",
        ),
    ] = None
    clean_metadata: Annotated[
        bool,
        typer.Option(
            "--clean-metadata", help="Also drop schemas and partition specs that nothing kept needs."
        ),
    ] = False
    cleanup: Annotated[
        str,
        typer.Option(
            metavar="all|metadata|none", help="Which files to delete: all, only metadata files, or none."
        ),
    ] = "all"
    grace: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Commit now, delete later: the next run or resume sweeps after this time.",
        ),
    ] = "0s"
    retention: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Delta: delete files that were removed longer ago; default: "
            "delta.deletedFileRetentionDuration, else 7d.",
        ),
    ] = None
    mode: Annotated[
        str,
        typer.Option(
            metavar="full|lite",
            help="Delta: find files by listing the table's folder, or from the log alone.",
        ),
    ] = "full"
    log_retention: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Delta: clean up the log before this time; default: delta.logRetentionDuration, else 30d.",
        ),
    ] = None
    inventory: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Delta: a listing of the table's folder, Parquet or JSON lines with path, length, isDir and "
            "modificationTime.",
        ),
    ] = None
    unsafe_allow_short_retention: Annotated[
        bool,
        typer.Option(
            "--unsafe-allow-short-retention",
            help="Delta: accept a --retention below the table's own: running readers and writers may fail.",
        ),
    ] = False
    FOREIGN: ClassVar[Foreign] = {
        ICEBERG: {
            "retention": "--older-than",
            "mode": "--cleanup",
            "log_retention": "the table property write.metadata.previous-versions-max",
            "inventory": "",
            "unsafe_allow_short_retention": "--older-than",
        },
        DELTA: {
            "older_than": "--retention",
            "retain_last": "--retention",
            "snapshot_id": "--log-retention",
            "clean_metadata": "--log-retention",
            "cleanup": "--mode",
            "grace": "--retention",
        },
    }

    def policy(self, *, now_ms: int) -> ExpirePolicy:
        """The policy that the options spell.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.iceberg.verbs.expire_snapshots.rules import ExpirePolicy

        if self.cleanup not in ("all", "metadata", "none"):
            raise UsageError(f"--cleanup must be all, metadata or none, not {self.cleanup!r}")
        older_than = self.older_than
        return ExpirePolicy(
            older_than_ms=None if older_than is None else time_ms(older_than, "--older-than", now_ms=now_ms),
            retain_last=positive(self.retain_last, "--retain-last"),
            snapshot_ids=tuple(sorted(set(self.snapshot_id or ()))),
            clean_metadata=self.clean_metadata,
            cleanup=self.cleanup,
            grace_ms=duration_ms(self.grace, "--grace"),
        )

    def delta_policy(self, *, now_ms: int) -> policies.ExpirePolicy:  # noqa: ARG002 - durations, not times
        """The policy for a Delta table.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.delta.verbs.policies import FULL, LITE, ExpirePolicy

        if self.mode not in (FULL, LITE):
            raise UsageError(f"--mode must be full or lite, not {self.mode!r}")
        if self.mode == LITE and self.inventory is not None:
            raise UsageError("--inventory takes the place of a listing, and --mode lite makes none")
        retention, log_retention = self.retention, self.log_retention
        return ExpirePolicy(
            retention_ms=None if retention is None else duration_ms(retention, "--retention"),
            mode=self.mode,
            log_retention_ms=None if log_retention is None else duration_ms(log_retention, "--log-retention"),
            inventory=self.inventory,
            unsafe_short_retention=self.unsafe_allow_short_retention,
        )


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "expire-snapshots")
    @spread("carry", ApplyOptions)
    @spread("options", ExpireOptions)
    def expire_snapshots(run: Run, carry: ApplyOptions, options: ExpireOptions, table: TableArgument) -> None:
        """Forget snapshots by refs, ages and counts; then delete what nothing reaches. Delta: VACUUM and log cleanup.

        Retention is the table's own: what a branch or tag says comes first, then an option, then a table
        property, then the default. main and the head of every kept branch and tag stay. Files go only after
        the commit, and only if the committed table, looked at again, does not reach them.
        """
        carry_out(run, carry, "expire-snapshots", table, options)

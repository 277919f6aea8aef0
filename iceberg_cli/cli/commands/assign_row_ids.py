"""`assign-row-ids`: first row ids for the manifests that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from iceberg_cli.cli.commands.carry_out import ApplyOptions, carry_out
from iceberg_cli.cli.commands.formats import DELTA, ICEBERG, Foreign
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options import spread
from iceberg_cli.cli.values import integer, positive

if TYPE_CHECKING:
    from iceberg_cli.delta.verbs import policies
    from iceberg_cli.iceberg.verbs.assign_row_ids.rules import AssignPolicy


@dataclass(frozen=True, kw_only=True)
class AssignOptions:
    """The options of `assign-row-ids`."""

    ref: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This branch; default: main, then every other.")
    ] = None
    share_ids: Annotated[
        bool,
        typer.Option(
            "--share-ids",
            help="Rows that main has too get main's ids; writes the manifests anew that hold them.",
        ),
    ] = False

    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", parser=integer, help="Delta: files in one commit; default: 22,000."),
    ] = None
    count_rows: Annotated[
        bool,
        typer.Option(
            "--count-rows",
            help="Delta: read the footers of files whose statistics do not tell how many rows they have.",
        ),
    ] = False
    FOREIGN: ClassVar[Foreign] = {
        ICEBERG: {"batch_size": "", "count_rows": ""},
        DELTA: {"ref": "", "share_ids": ""},
    }

    def policy(self, *, now_ms: int) -> AssignPolicy:  # noqa: ARG002 - every group of options has this signature
        """The policy that the options spell."""
        from iceberg_cli.iceberg.verbs.assign_row_ids.rules import AssignPolicy

        return AssignPolicy(refs=tuple(dict.fromkeys(self.ref or ())), share_ids=self.share_ids)

    def delta_policy(self, *, now_ms: int) -> policies.AssignPolicy:  # noqa: ARG002 - no age decides here
        """The policy for a Delta table.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.delta.verbs.policies import AssignPolicy

        return AssignPolicy(batch_size=positive(self.batch_size, "--batch-size"), count_rows=self.count_rows)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "assign-row-ids")
    @spread("carry", ApplyOptions)
    @spread("options", AssignOptions)
    def assign_row_ids(run: Run, carry: ApplyOptions, options: AssignOptions, table: TableArgument) -> None:
        """Give row ids to the rows of a version 3 table that have none, as after an upgrade.

        One snapshot for each branch, main first; only its manifest list is written. Ids that are there never
        change. Tags and older snapshots cannot be changed: their rows read without ids for good.
        """
        carry_out(run, carry, "assign-row-ids", table, options)

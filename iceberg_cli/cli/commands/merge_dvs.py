"""`merge-dvs`: one deletion vector for each data file, in few files, and no dangling deletes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from iceberg_cli.cli.commands.carry_out import ApplyOptions, carry_out
from iceberg_cli.cli.commands.formats import DELTA, ICEBERG, Foreign
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options import spread
from iceberg_cli.cli.values import integer, positive, target_bytes
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.delta.verbs import policies
    from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergePolicy


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """The options of `merge-dvs`."""

    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="About how large new files of deletion vectors are; default: write.delete.target-file-size-bytes, "
            "else 64MiB; Delta: 2MiB.",
        ),
    ] = None
    min_files: Annotated[
        int | None,
        typer.Option(metavar="N", parser=integer, help="Fewer small files than this stay; default: 5."),
    ] = None
    dead_ratio: Annotated[
        str | None,
        typer.Option(metavar="R", help="Rewrite a file from this part of dead bytes on; default: 0.3."),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Only these partitions: field = 'value' AND field IN (1, 2), by partition field.",
        ),
    ] = None
    keep_dangling: Annotated[
        bool, typer.Option("--keep-dangling", help="Keep deletes that no data file needs.")
    ] = False

    FOREIGN: ClassVar[Foreign] = {ICEBERG: {}, DELTA: {"where": "", "keep_dangling": ""}}

    def policy(self, *, now_ms: int) -> MergePolicy:  # noqa: ARG002 - no age decides here
        """The policy that the options spell.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergePolicy

        policy = MergePolicy(
            target_size_bytes=target_bytes(self.target_size, "--target-size"),
            min_files=positive(self.min_files, "--min-files"),
            dead_ratio=None if self.dead_ratio is None else _ratio(self.dead_ratio),
            where=self.where,
            keep_dangling=self.keep_dangling,
        )
        return MergePolicy.from_json(policy.to_json())

    def delta_policy(self, *, now_ms: int) -> policies.MergePolicy:  # noqa: ARG002 - no age decides here
        """The policy for a Delta table.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.delta.verbs.policies import MergePolicy

        ratio = None if self.dead_ratio is None else _ratio(self.dead_ratio)
        if ratio is not None and not 0 <= ratio <= 1:
            raise UsageError(f"--dead-ratio must be between 0 and 1, not {self.dead_ratio}")
        return MergePolicy(
            target_size=target_bytes(self.target_size, "--target-size"),
            min_files=positive(self.min_files, "--min-files"),
            dead_ratio=ratio,
        )


def _ratio(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--dead-ratio: {text!r} is no number; write 0.3") from None


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "merge-dvs")
    @spread("carry", ApplyOptions)
    @spread("options", MergeOptions)
    def merge_dvs(run: Run, carry: ApplyOptions, options: MergeOptions, table: TableArgument) -> None:
        """Turn position deletes into deletion vectors, and many or mostly dead files of vectors into few.

        The files are Puffin files in Iceberg, deletion_vector_*.bin in Delta, where there are no position deletes.
        What readers see does not change. A data file gets all position deletes that apply to it or none; where a
        deletion vector lacks older position deletes, both are left alone and reported. Before Iceberg's version 3 only
        position delete files go of which each named data file is gone or newer. No file is deleted: expire-snapshots
        does that once no snapshot needs it.
        """
        carry_out(run, carry, "merge-dvs", table, options)

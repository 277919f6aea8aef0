"""`rewrite-manifests`: regroup data and delete manifests by partition, to a target size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.carry_out import Carry, carry_out
from iceberg_cli.cli.options import spread
from iceberg_cli.cli.run import Run, TableArgument, command
from iceberg_cli.cli.values import integer, positive, size_bytes
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.iceberg.rewrite_policy import RewritePolicy


@dataclass(frozen=True, kw_only=True)
class RewriteManifestsOptions:
    """What an operator can say about a rewrite of manifests."""

    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of a new manifest; default: commit.manifest.target-size-bytes, else 8MiB.",
        ),
    ] = None
    spec_id: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID", parser=integer, help="Only manifests of this partition spec; default: all."
        ),
    ] = None
    content: Annotated[
        str, typer.Option(metavar="data|deletes|all", help="Only manifests of data or of deletes.")
    ] = "all"
    sort_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Sort by this partition field; default: all fields of the spec, in its order.",
        ),
    ] = None
    min_manifests: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=integer, help="Merge only where there are at least N of a kind; default: 2."
        ),
    ] = None

    def policy(self, *, now_ms: int) -> RewritePolicy:  # noqa: ARG002 - nothing here has an age
        """The policy that the options spell.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.iceberg.rewrite_policy import CONTENTS, RewritePolicy

        if self.content not in CONTENTS:
            raise UsageError(f"--content must be data, deletes or all, not {self.content!r}")
        size = None if self.target_size is None else size_bytes(self.target_size, "--target-size")
        return RewritePolicy(
            target_size_bytes=positive(size, "--target-size"),
            spec_ids=tuple(sorted(set(self.spec_id or ()))),
            content=self.content,
            sort_by=tuple(self.sort_by or ()),
            min_manifests=positive(self.min_manifests, "--min-manifests"),
        )


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "rewrite-manifests")
    @spread("carry", Carry)
    @spread("options", RewriteManifestsOptions)
    def rewrite_manifests(
        run: Run, carry: Carry, options: RewriteManifestsOptions, table: TableArgument
    ) -> None:
        """Regroup the data and delete manifests of main by partition, to a target size.

        Live entries keep their snapshot, sequence numbers and row ids; what readers see does not change. Every
        partition spec is done, each for itself. A layout that is good already is left alone.
        """
        carry_out(run, carry, "rewrite-manifests", table, options.policy(now_ms=run.as_of_ms).to_json())

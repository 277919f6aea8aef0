"""`rewrite-manifests`: regroup data and delete manifests by partition, to a target size."""

from __future__ import annotations

import re
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
    from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewritePolicy


@dataclass(frozen=True, kw_only=True)
class RewriteManifestsOptions:
    """The options of `rewrite-manifests`."""

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
    all_manifests: Annotated[
        bool,
        typer.Option(
            "--all-manifests",
            help="Write every manifest and its row of the manifest list anew, whatever its size and partitions.",
        ),
    ] = False
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="classic|v2", help="Delta: the kind of checkpoint; default: delta.checkpointPolicy."
        ),
    ] = None
    part_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=integer,
            help="Delta: actions in one sidecar of a V2 checkpoint; default: 50,000.",
        ),
    ] = None
    compact_log: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help="Delta: also write a log compaction file for these versions, both included.",
        ),
    ] = None
    FOREIGN: ClassVar[Foreign] = {
        ICEBERG: {"checkpoint": "", "part_size": "--target-size", "compact_log": ""},
        DELTA: {
            "target_size": "--part-size",
            "spec_id": "",
            "content": "",
            "sort_by": "",
            "min_manifests": "",
            "all_manifests": "",
        },
    }

    def policy(self, *, now_ms: int) -> RewritePolicy:  # noqa: ARG002 - nothing here has an age
        """The policy that the options spell.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import CONTENTS, RewritePolicy

        if self.content not in CONTENTS:
            raise UsageError(f"--content must be data, deletes or all, not {self.content!r}")
        return RewritePolicy(
            target_size_bytes=target_bytes(self.target_size, "--target-size"),
            spec_ids=tuple(sorted(set(self.spec_id or ()))),
            content=self.content,
            sort_by=tuple(self.sort_by or ()),
            min_manifests=positive(self.min_manifests, "--min-manifests"),
            all_manifests=self.all_manifests,
        )

    def delta_policy(self, *, now_ms: int) -> policies.CheckpointPolicy:  # noqa: ARG002 - nothing here has an age
        """The policy for a Delta table.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.delta.verbs.policies import CLASSIC, V2, CheckpointPolicy

        if self.checkpoint not in (None, CLASSIC, V2):
            raise UsageError(f"--checkpoint must be classic or v2, not {self.checkpoint!r}")
        return CheckpointPolicy(
            checkpoint=self.checkpoint,
            part_size=positive(self.part_size, "--part-size"),
            compact_log=None if self.compact_log is None else _versions(self.compact_log),
        )


def _versions(text: str) -> tuple[int, int]:
    """Two versions from `FROM..TO`, the first below the second.

    Raises:
        UsageError: anything else.
    """
    match = re.fullmatch(r"([0-9]{1,18})\.\.([0-9]{1,18})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--compact-log: {text!r} is no range of versions; write 10..19")
    return int(match[1]), int(match[2])


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "rewrite-manifests")
    @spread("carry", ApplyOptions)
    @spread("options", RewriteManifestsOptions)
    def rewrite_manifests(
        run: Run, carry: ApplyOptions, options: RewriteManifestsOptions, table: TableArgument
    ) -> None:
        """Regroup the data and delete manifests of main by partition, to a target size. Delta: write a checkpoint.

        Live entries keep their snapshot, sequence numbers and row ids; what readers see does not change. Every
        partition spec is done, each for itself. A layout that is good already is left alone.
        """
        carry_out(run, carry, "rewrite-manifests", table, options)

"""rewrite-manifests on a Delta table, checkpoints and log compactions: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Choice, Policy, VersionRange, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace, long_after_its_checkpoint
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "rewrite-manifests"
CLASSIC, V2 = "classic", "v2"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteManifests(Policy):
    """The options of rewrite-manifests: a checkpoint of the newest version, and a log compaction.

    No `checkpoint`: the kind that delta.checkpointPolicy names. `part_size`: actions in one sidecar.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=5,
        by_age=True,
        overdue=long_after_its_checkpoint,
        names_elsewhere=("checkpoint", "compact-log", "create-checkpoint", "log-compaction"),
        undo=WayBack(why_not="checkpoints and compacted commits change nothing that readers see"),
    )
    examples: ClassVar = (
        ("A checkpoint of a Delta table now:", "rewrite-manifests /lake/db/clicks --checkpoint v2 --yes"),
    )

    checkpoint: str | None = option(
        Choice((CLASSIC, V2)), "Delta: the kind of checkpoint; default: delta.checkpointPolicy."
    )
    part_size: int | None = option(
        Whole(),
        "Delta: actions in one sidecar of a V2 checkpoint; default: 50,000.",
        elsewhere="--target-size",
    )
    compact_log: tuple[int, int] | None = option(
        VersionRange(), "Delta: also write a log compaction file for these versions, both included."
    )


POLICY: Final = RewriteManifests

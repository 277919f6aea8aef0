"""rewrite-manifests on an Iceberg table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.plan.policy import Choice, Policy, Several, Size, Switch, Text, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace, with_many_manifests
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "rewrite-manifests"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteManifests(Policy):
    """The options of rewrite-manifests; None where the table's property or a default decides.

    No `spec_ids`: all partition specs. No `sort_by`: by all partition fields of a spec, in its order.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=5,
        overdue=with_many_manifests,
        names_elsewhere=("merge-manifests", "optimize-manifests"),
        undo=WayBack(while_at_head=True),
    )
    about: ClassVar[str] = """
        Regroup the data and delete manifests of main by partition, to a target size. Delta: write a checkpoint.

        Live entries keep their snapshot, sequence numbers and row ids; what readers see does not change. Every
        partition spec is done, each for itself. A layout that is good already is left alone.
        """
    examples: ClassVar = (
        ("Manifests of 16 MiB, by partition:", "rewrite-manifests prod.sales.orders --target-size 16MiB"),
    )

    target_size: int | str | None = option(
        Size(),
        "Size of a new manifest; default: commit.manifest.target-size-bytes, else 8MiB.",
        json_name="target_size_bytes",
        elsewhere="--part-size",
    )
    spec_ids: Sequence[int] = option(
        Several(Whole(least=None, metavar="ID"), ordered=True),
        "Only manifests of these partition specs; default: all.",
        default=(),
        flag="--spec-id",
    )
    content: str = option(
        Choice(("data", "deletes", "all")), "Only manifests of data or of deletes.", default="all"
    )
    sort_by: Sequence[str] = option(
        Several(Text("FIELD")),
        "Sort by these partition fields; default: all fields of the spec, in its order.",
        default=(),
    )
    min_manifests: int | None = option(
        Whole(), "Merge only where there are at least N of a kind; default: 2."
    )
    # Left out where it is not set, as plans of the first release do: each version reads those of the other.
    all_manifests: bool = option(
        Switch(),
        "Write every manifest and its row of the manifest list anew, whatever its size and partitions.",
        default=False,
        omitted=True,
    )

    @property
    def target_size_bytes(self) -> int | None:
        """`target_size` in bytes."""
        return cast("int | None", self.target_size)


POLICY: Final = RewriteManifests

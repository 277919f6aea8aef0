"""merge-dvs on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.plan.policy import Policy, Ratio, Size, Switch, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace, with_many_deletes
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.where import Where

VERB_NAME: Final = "merge-dvs"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MergeDvs(Policy):
    """The options of merge-dvs; None where the table's property or a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=4,
        overdue=with_many_deletes,
        names_elsewhere=("merge-deletes", "rewrite-position-delete-files", "rewrite-position-deletes"),
        undo=WayBack(while_at_head=True),
    )
    about: ClassVar[str] = """
        Turn position deletes into deletion vectors, and many or mostly dead files of vectors into few.

        The files are Puffin files in Iceberg, deletion_vector_*.bin in Delta, where there are no position deletes.
        What readers see does not change. A data file gets all position deletes that apply to it or none; where a
        deletion vector lacks older position deletes, both are left alone and reported. Before Iceberg's version 3 only
        position delete files go of which each named data file is gone or newer. No file is deleted: expire-snapshots
        does that once no snapshot needs it.
        """
    examples: ClassVar = (
        ("All partitions, without a question:", "merge-dvs prod.sales.orders --yes"),
        ("One day only:", "merge-dvs prod.sales.orders --where \"day = '2026-11-01'\""),
    )

    target_size: int | str | None = option(
        Size(),
        "About how large new files of deletion vectors are; default: write.delete.target-file-size-bytes, "
        "else 64MiB; Delta: 2MiB.",
        json_name="target_size_bytes",
    )
    min_files: int | None = option(Whole(), "Fewer small files than this stay; default: 5.")
    dead_ratio: float | None = option(
        Ratio(), "Rewrite a file from this part of dead bytes on; default: 0.3."
    )
    where: str | None = option(
        Where(),
        "Only these partitions: field = 'value' AND field IN (1, 2), by partition field or its column.",
    )
    keep_dangling: bool = option(Switch(), "Keep deletes that no data file needs.", default=False)

    @property
    def target_size_bytes(self) -> int | None:
        """`target_size` in bytes."""
        return cast("int | None", self.target_size)


POLICY: Final = MergeDvs

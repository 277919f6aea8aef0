"""merge-dvs on a Delta table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.plan.policy import Policy, Ratio, Size, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace, with_many_deletes
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.writer_loss import allow_writer_loss

VERB_NAME: Final = "merge-dvs"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MergeDvs(Policy):
    """The options of merge-dvs; None where a default decides. `target_size`: bytes of a new deletion vector file."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=4,
        overdue=with_many_deletes,
        undo=WayBack(
            why_not="`restore --to N` goes back to the version before it, as long as its files are there"
        ),
    )

    target_size: int | str | None = option(Size())
    min_files: int | None = option(Whole())
    dead_ratio: float | None = option(Ratio(from_zero=True))
    allow_writer_loss: Sequence[str] = allow_writer_loss("Delta: ")

    @property
    def target_size_bytes(self) -> int | None:
        """`target_size` in bytes."""
        return cast("int | None", self.target_size)


POLICY: Final = MergeDvs

"""assign-row-ids on a Delta table, the backfill of row tracking: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Switch, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.writer_loss import allow_writer_loss

VERB_NAME: Final = "assign-row-ids"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AssignRowIds(Policy):
    """The options of assign-row-ids; None where a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=2,
        only_by_name=True,
        after="upgrade-v3",
        names_elsewhere=("backfill", "row-tracking"),
        undo=WayBack(why_not="readers have seen the row ids, which other rows would get then"),
    )

    batch_size: int | None = option(Whole(), "Delta: files in one commit; default: 22,000.")
    count_rows: bool = option(
        Switch(),
        "Delta: read the footers of files whose statistics do not tell how many rows they have.",
        default=False,
    )
    allow_writer_loss: Sequence[str] = allow_writer_loss("Delta: ")


POLICY: Final = AssignRowIds

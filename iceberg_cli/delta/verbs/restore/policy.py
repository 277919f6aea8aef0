"""restore on a Delta table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Text, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.writer_loss import allow_writer_loss

VERB_NAME: Final = "restore"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Restore(Policy):
    """The options of restore.

    Args:
        to: the version that the table is set back to, or a time: the newest version of then.
        allow_writer_loss: clients that may be shut out, where the version has features that the table has no more.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=7,
        only_alone=True,
        names_elsewhere=("restore-table",),
        undo=WayBack(why_not="`restore --to` the version before it does it"),
    )

    to: str | None = option(
        Text("VERSION|TIME", empty=False),
        "The version that the table is set back to, or a time; of a time the newest version of then.",
        required=True,
        own=True,
    )
    allow_writer_loss: Sequence[str] = allow_writer_loss("Delta: ")


POLICY: Final = Restore

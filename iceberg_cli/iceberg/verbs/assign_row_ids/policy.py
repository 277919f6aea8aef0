"""assign-row-ids on an Iceberg table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Several, Switch, Text, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "assign-row-ids"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AssignRowIds(Policy):
    """The options of assign-row-ids: branches by name, all of them where none is named."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=2,
        only_by_name=True,
        after="upgrade-v3",
        names_elsewhere=("row-lineage",),
        undo=WayBack(why_not="readers have seen the row ids, which other rows would get then"),
    )
    about: ClassVar[str] = """
        Give row ids to the rows of a version 3 table that have none, as after an upgrade.

        One snapshot for each branch, main first; only its manifest list is written. Ids that are there never
        change. Tags and older snapshots cannot be changed: their rows read without ids for good.
        """
    examples: ClassVar = (
        ("Every branch, main first:", "assign-row-ids prod.sales.orders"),
        (
            "One branch, in which rows of main get the ids that they have there:",
            "assign-row-ids prod.sales.orders --ref audit --share-ids",
        ),
    )

    refs: Sequence[str] = option(
        Several(Text("NAME")), "These branches; default: main, then every other.", default=(), flag="--ref"
    )
    share_ids: bool = option(
        Switch(),
        "Rows that main has too get main's ids; writes the manifests anew that hold them.",
        default=False,
    )


POLICY: Final = AssignRowIds

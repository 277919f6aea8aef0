"""restore on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Switch, Text, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "restore"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Restore(Policy):
    """The options of restore.

    Args:
        to: the state that becomes current: a snapshot id, a branch or tag, or a time.
        branch: that is set back.
        keep_as: the tag on the branch's old head; None: named after the time, where commits leave the branch.
        not_an_ancestor: whether the state may be one that the branch does not come from.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=7,
        only_alone=True,
        names_elsewhere=(
            "checkout",
            "revert",
            "roll-back",
            "rollback",
            "rollback-to-snapshot",
            "rollback-to-timestamp",
            "set-current-snapshot",
        ),
        undo=WayBack(why_not="`restore --to` the tag on the old head, with --not-an-ancestor, does it"),
    )
    about: ClassVar[str] = """
        Set a branch of an Iceberg table, or a Delta table, back to an earlier state, after a bad write.

        The plan shows what rows, files and columns differ, and which commits are taken back. It is one commit: no file
        is deleted, and every file of the state is looked for first. Iceberg: schema, partition spec and properties stay
        as they are; the old head gets a tag, so that another restore takes this one back as long as the tag holds.
        Delta: as its RESTORE, with schema and properties of then; another restore takes this one back until VACUUM.
        """
    examples: ClassVar = (
        (
            "What an hour ago would bring back, and what would leave:",
            "restore prod.sales.orders --to 1h --dry-run",
        ),
        ("A Delta table back to version 41:", "restore /lake/db/clicks --to 41"),
    )

    to: str | None = option(
        Text("SNAPSHOT|REF|VERSION|TIME", empty=False),
        "The state that becomes current: a snapshot id, a branch or tag, or a time; of a time the newest ancestor of "
        "that age or older. Delta: a version, or a time; of a time the newest version of then.",
        required=True,
        own=True,
    )
    branch: str = option(Text("NAME", empty=False), "The branch that is set back.", default="main", own=True)
    keep_as: str | None = option(
        Text("NAME", empty=False),
        "The tag on the old head; default: before-restore-TIME, where commits leave the branch.",
        own=True,
    )
    not_an_ancestor: bool = option(
        Switch(), "Allow a state that the branch does not come from.", default=False, own=True
    )


POLICY: Final = Restore

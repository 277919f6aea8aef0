"""undo on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Text, option
from iceberg_cli.plan.verb_place import UNDO, VerbPlace

VERB_NAME: Final = UNDO


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(Policy):
    """The operation that is taken back, by its id; None: the newest one."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=8,
        only_alone=True,
        names_elsewhere=("undelete", "unexpire"),
    )
    about: ClassVar[str] = """
        Take back an operation of this program: one whose files still wait for their grace, or a rewrite.

        An expiry that was given --grace comes back: its snapshots, branches and tags, schemas and specs are put
        into the table as it is now, with their ids and row ids. What deletes without a commit is closed, and its
        files stay. Of rewrite-manifests and merge-dvs a branch goes back to the snapshot before, as long as nothing
        came after. Every file of what comes back is looked for first.
        """
    examples: ClassVar = (
        ("Show what would come back:", "undo prod.sales.orders --dry-run"),
        ("Take back the expiry that still waits:", "undo prod.sales.orders --yes"),
    )

    operation: str | None = option(
        Text("OP_ID"),
        "The operation, as `history` and `resume --list` show it; without it the newest.",
        positional=True,
    )


POLICY: Final = Undo

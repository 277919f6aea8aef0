"""undo on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from iceberg_cli.plan.undo_policy import UndoPolicy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(UndoPolicy):
    """The options of undo."""

    place: ClassVar = replace(UndoPolicy.place, names_elsewhere=("undelete", "unexpire"))
    about: ClassVar[str] = """
        Take back an operation of this program: one whose files still wait for their grace, or a rewrite.

        An Iceberg expiry that was given --grace comes back: its snapshots, branches and tags, schemas and specs are
        put into the table as it is now, with their ids and row ids. Of rewrite-manifests and merge-dvs a branch goes
        back to the snapshot before, as long as nothing came after. Every file of what comes back is looked for first.
        What deletes without a commit is closed, and its files stay, as do those of a VACUUM of a Delta table.
        """
    examples: ClassVar = (
        ("Show what would come back:", "undo prod.sales.orders --dry-run"),
        ("Take back the expiry that still waits:", "undo prod.sales.orders --yes"),
    )


POLICY: Final = Undo

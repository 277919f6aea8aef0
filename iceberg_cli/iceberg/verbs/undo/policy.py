"""undo on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.undo_policy import AGAIN, UndoPolicy
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(UndoPolicy):
    """The operation that is taken back, by its id; None: the newest one."""

    place: ClassVar = VerbPlace(
        order=8,
        only_alone=True,
        names_elsewhere=("undelete", "unexpire"),
        undo=WayBack(why_not=AGAIN),
    )
    about: ClassVar[str] = """
        Take back the newest operation of this program on a table, or the one that is named, while that is possible.

        What was given --grace: an expiry comes back, with its snapshots, branches and tags, schemas and specs, into
        the table as it is now; what deletes without a commit is closed; and the files stay. A rewrite that is still
        the newest of its branch: the branch goes back to the snapshot before it. Every file of what comes back is
        looked for first. Delta: a VACUUM that waits is closed, and the log says that it failed.
        """
    examples: ClassVar = (("Show what would come back:", "undo prod.sales.orders --dry-run"),)


POLICY: Final = Undo

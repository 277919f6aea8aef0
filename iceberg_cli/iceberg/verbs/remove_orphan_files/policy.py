"""remove-orphan-files on an Iceberg table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.plan.deleting_policy import DeletingPolicy
from iceberg_cli.plan.policy import Moment, Several, Switch, Text, option
from iceberg_cli.plan.times import Time
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "remove-orphan-files"
_WEEK_MS: Final = 604_800_000


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemoveOrphanFiles(DeletingPolicy):
    """The options of remove-orphan-files. `older_than_ms` is a point in time, in ms since the epoch."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=7,
        removes=True,
        by_age=True,
        only_by_name=True,
        planned_by_name=True,
        usual_every_ms=_WEEK_MS,
        looks_count=True,
        names_elsewhere=(
            "clean-orphan-files",
            "clean-orphans",
            "delete-orphan-files",
            "orphan",
            "orphan-files",
            "orphans",
            "remove-orphans",
        ),
        undo=WayBack(while_waiting=True),
    )
    about: ClassVar[str] = """
        Delete files in the folders of an Iceberg table that no metadata names, once they are old enough.

        What failed writers and other tools left behind. A file stays if any file that the table reaches has
        its name, wherever that is; if it is young, or of a writer that wrote lately; if another table, a
        clone or an open operation may need it. The plan counts what each rule keeps. Each file is looked at
        again right before it goes.
        """
    examples: ClassVar = (
        (
            "Show which files nothing names:",
            "remove-orphan-files prod.sales.orders --older-than 7d --dry-run",
        ),
        (
            "Delete them a day later, so that a mistake has a way back:",
            "remove-orphan-files prod.sales.orders --grace 1d",
        ),
    )

    older_than: Time | None = option(
        Moment(),
        "Delete only what was last written before; no writer may take longer to commit.  [default: 3d]",
        json_name="older_than_ms",
        own=True,
    )
    location: Sequence[str] = option(
        Several(Text("URI"), by_commas=False),
        "Look through this folder too, inside the table's location, or outside with --unsafe-allow-root.",
        default=(),
    )
    inventory: str | None = option(
        Text("FILE"),
        "Take the files from this listing in place of looking: Parquet or JSON lines with path, length, isDir and "
        "modificationTime.",
        own=True,
    )
    metadata_files: bool = option(
        Switch(),
        "Also delete metadata files of versions before the oldest that the table's log names.",
        default=False,
    )
    unsafe_young: bool = option(
        Switch(),
        "Accept an --older-than of less than 24h: files of running writers may go.",
        default=False,
        flag="--unsafe-allow-young",
    )

    @property
    def older_than_ms(self) -> int | None:
        """`older_than` in ms since the epoch."""
        return cast("int | None", self.older_than)


POLICY: Final = RemoveOrphanFiles

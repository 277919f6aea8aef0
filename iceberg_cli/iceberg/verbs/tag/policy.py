"""tag on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Duration, Id, Policy, Switch, Text, option
from iceberg_cli.plan.times import Span
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack

VERB_NAME: Final = "tag"
_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tag(Policy):
    """The options of tag.

    Args:
        name: of the tag.
        snapshot_id: what it is put on; None: the head of `ref`.
        ref: the branch or tag whose snapshot it is put on; None, and no `snapshot_id`: main.
        max_age: how long it holds its snapshot, in ms from when the snapshot was made; None: as the tag that it
            replaces, else for ever, unless the table's property says otherwise.
        replace: whether a tag that is there is put elsewhere.
        drop: whether the tag is dropped; nothing else is given then.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=8,
        only_alone=True,
        names_elsewhere=("create-tag", "drop-tag", "label", "replace-tag", "untag"),
        undo=WayBack(why_not="`tag --drop` or `tag --replace` does it"),
    )
    about: ClassVar[str] = """
        Make, replace or drop a tag of an Iceberg table.

        A tag holds its snapshot: expire-snapshots leaves it as long as the tag is younger than its maximum age,
        and restore goes back to it by name. A tag that is there is replaced only with --replace, and a branch never.
        One commit of metadata; no file is written or deleted.
        """
    examples: ClassVar = (
        ("Hold what main is now for a year:", "tag prod.sales.orders audit-2026 --max-age 365d"),
        ("Let it go again:", "tag prod.sales.orders audit-2026 --drop"),
    )

    name: str | None = option(
        Text("NAME", empty=False),
        "The tag that is made, replaced or dropped.",
        positional=True,
        required=True,
    )
    snapshot_id: int | None = option(
        Id(), "Put it on this snapshot; default: the head of main.", flag="--snapshot", own=True
    )
    ref: str | None = option(
        Text("NAME", empty=False), "Put it on the snapshot of this branch or tag; default: main.", own=True
    )
    max_age: Span | None = option(
        Duration(),
        "Hold the snapshot until it is this old; default: history.expire.max-ref-age-ms, else for ever.",
        json_name="max_age_ms",
        own=True,
    )
    replace: bool = option(Switch(), "Put a tag that is there elsewhere.", default=False, own=True)
    drop: bool = option(Switch(), "Drop the tag.", default=False, own=True)

    @property
    def max_age_ms(self) -> int | None:
        """`max_age` in ms."""
        return cast("int | None", self.max_age)

    def check_together(self) -> None:
        """Refuse an age of nothing, two snapshots, and anything beside --drop."""
        if self.max_age_ms == 0:
            raise UsageError("--max-age must be above 0: the specification has no tag that holds nothing")
        if self.max_age_ms is not None and self.max_age_ms > _MAX_LONG:
            raise UsageError("--max-age is longer than any table can say; without it a tag holds for ever")
        if self.snapshot_id is not None and self.ref is not None:
            raise UsageError("--snapshot and --ref exclude each other: a tag is on one snapshot")
        beside = [
            flag
            for flag, value in (
                ("--snapshot", self.snapshot_id),
                ("--ref", self.ref),
                ("--max-age", self.max_age_ms),
                ("--replace", self.replace or None),
            )
            if value is not None
        ]
        if self.drop and beside:
            raise UsageError(
                f"--drop and {' and '.join(beside)} exclude each other: a dropped tag is nowhere"
            )


POLICY: Final = Tag

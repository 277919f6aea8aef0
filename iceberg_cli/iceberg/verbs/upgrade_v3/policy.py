"""upgrade-v3 on an Iceberg table: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Policy, Selection, Switches, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.writer_loss import allow_writer_loss

VERB_NAME: Final = "upgrade-v3"
REPAIR, MERGE, ASSIGN = "repair-manifests", "merge-dvs", "assign-row-ids"
RECIPE: Final = (REPAIR, MERGE, ASSIGN)  # in the order in which they run, the upgrade after the first
REFUSE, DROP, KEEP = "refuse", "drop", "keep"
_TAGS: Final = {
    "--unsafe-drop-tags": (DROP, "repair-manifests drops the tags on snapshots that have to go."),
    "--unsafe-keep-tags": (KEEP, "repair-manifests leaves such tags and their snapshots as they are."),
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UpgradeV3(Policy):
    """The options of upgrade-v3.

    Args:
        recipe: of `RECIPE`.
        tags: of snapshots that obstruct the upgrade: `REFUSE`, `DROP` or `KEEP` them.
    """

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=1,
        only_by_name=True,
        names_elsewhere=("upgrade", "upgrade-format", "upgrade-table"),
        undo=WayBack(why_not="clients have seen the new format, and no format version goes back"),
    )
    about: ClassVar[str] = """
        Look for what stands in the way of format version 3, then upgrade the table to it.

        The upgrade is one commit of metadata; no file is written anew. It cannot be taken back, and engines that
        do not read version 3 stop reading the table at once: --check lists who wrote lately.
        """
    preflight: ClassVar[str] = (
        "Only look: print what is found, exit 11 if it blocks, else 0. Not with options that carry out."
    )
    examples: ClassVar = (
        ("What stands in the way, and what to do about it:", "upgrade-v3 prod.sales.orders --check"),
        (
            "Upgrade, then merge deletes and give row ids, as one plan:",
            "upgrade-v3 prod.sales.orders --with merge-dvs,assign-row-ids",
        ),
    )

    recipe: Sequence[str] = option(
        Selection(RECIPE),
        "Do these too, each as a step of its own: repair-manifests before the upgrade, the others after it.",
        default=(),
        flag="--with",
        json_name="with",
        elsewhere="--feature",
    )
    tags: str = option(Switches(_TAGS, otherwise=REFUSE), default=REFUSE)
    allow_writer_loss: Sequence[str] = allow_writer_loss()

    def check_together(self) -> None:
        """Refuse what is to become of tags where nothing is repaired."""
        if self.tags != REFUSE and REPAIR not in self.recipe:
            raise UsageError(f"--unsafe-{self.tags}-tags needs --with repair-manifests, which it is about")


POLICY: Final = UpgradeV3

"""upgrade-v3 on a Delta table, which is the move to table features: the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Several, Text, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack
from iceberg_cli.plan.writer_loss import allow_writer_loss

VERB_NAME: Final = "upgrade-v3"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UpgradeV3(Policy):
    """The options of upgrade-v3: table features by the protocol's names, the default set where none is named."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=1,
        only_by_name=True,
        undo=WayBack(why_not="clients have seen the features, which others rest on by now"),
    )

    features: Sequence[str] = option(
        Several(Text("NAME")),
        "Delta: table features by the protocol's names, such as deletionVectors or v2Checkpoint.",
        default=(),
        flag="--feature",
        elsewhere="--with",
    )
    allow_writer_loss: Sequence[str] = allow_writer_loss()


POLICY: Final = UpgradeV3

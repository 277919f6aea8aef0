"""What an operator may ask of every verb that deletes files, whatever the table's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from iceberg_cli.plan.alarm import ACCEPT_OPTION, DEFAULT_FACTOR
from iceberg_cli.plan.option_kinds import Factor
from iceberg_cli.plan.policy import Policy, PolicyOption, Switch, option

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Option


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeletingPolicy(Policy):
    """The options that verbs share which delete files; `alarm` is a factor, or "off"."""

    alarm: float | str = option(
        Factor(),
        "Refuse to delete more than FACTOR times the median of the last ten runs here; off: whatever these deleted.",
        default=DEFAULT_FACTOR,
        omitted=True,
    )
    unsafe_accept_alarm: bool = option(
        Switch(),
        "Delete although it is abnormally much.",
        default=False,
        flag=ACCEPT_OPTION,
        omitted=True,
    )

    @classmethod
    def options(cls) -> Iterator[PolicyOption]:
        """As `Policy`: the verb's own first."""
        shared = {each.name for each in fields(DeletingPolicy)}
        yield from sorted(super().options(), key=lambda each: each.name in shared)

    def chosen_of_all(self) -> Mapping[str, Option]:
        """What was given of the options that these verbs share, as `Plan.options` holds it."""
        return {**self.chosen_or_none("alarm"), **self.chosen_or_none("unsafe_accept_alarm")}

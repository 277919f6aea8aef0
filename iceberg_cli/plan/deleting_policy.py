"""What an operator may ask of every verb that deletes files, whatever the table's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self, cast

from iceberg_cli.plan.alarm import ACCEPT_OPTION, DEFAULT_FACTOR
from iceberg_cli.plan.option_kinds import Duration, Factor
from iceberg_cli.plan.policy import OF_TABLE, Policy, PolicyOption, Switch, option
from iceberg_cli.plan.text import duration_ms
from iceberg_cli.plan.times import Span

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Option

GRACE_PROPERTY: Final = "iceberg-cli.grace"
"""The property by which a table asks that files wait before they are deleted."""

_SOURCE: Final = f"{OF_TABLE}{GRACE_PROPERTY}"


def least_grace_ms(text: str) -> int:
    """What `GRACE_PROPERTY` asks for, in ms; raises UsageError: it is no duration."""
    return duration_ms(text, _SOURCE)


def grace_option(*, omitted: bool = True) -> Any:
    """The field `grace`.

    Args:
        omitted: see `PolicyOption`; not where the JSON form of plans has had it since the first release.
    """
    return option(
        Duration(),
        "Commit now, delete later: the next run or resume sweeps after this time.",
        default=0,
        json_name="grace_ms",
        omitted=omitted,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeletingPolicy(Policy):
    """The options that verbs share which delete files; `alarm` is a factor, or "off"."""

    grace: Span = grace_option()
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
        names = (each.name for each in fields(DeletingPolicy))
        return {key: chosen for name in names for key, chosen in self.chosen_or_none(name).items()}

    def within(self, table: Any) -> Self:
        """As `Policy`: files wait as long as the table asks for, unless the command line says otherwise."""
        text = table.properties().get(GRACE_PROPERTY)
        if text is None:
            return self
        least_ms = least_grace_ms(text)
        if self.is_explicit("grace") or self.grace_ms >= least_ms:
            return self
        return self._with({"grace": least_ms}, {**self.sources, "grace": _SOURCE})

    @property
    def grace_ms(self) -> int:
        """`grace` in ms."""
        return cast("int", self.grace)

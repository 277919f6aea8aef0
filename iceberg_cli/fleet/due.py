"""The maintenance of one table: which verbs may run on it, by which policies, and their plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.fleet.policy_file import ALWAYS, DUE, NEVER, GivenOptions, VerbPolicy
from iceberg_cli.fleet.table_properties import narrowed
from iceberg_cli.fleet.thresholds import not_reached, usual_thresholds
from iceberg_cli.formats import is_only_by_name, is_only_by_policy, verbs_in_order
from iceberg_cli.plan.policy import DEFAULT

if TYPE_CHECKING:
    from iceberg_cli.api import Plan, Table
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.policy_file import PolicyFile, TablePolicy
    from iceberg_cli.plan.policy import Policy

_NOTHING: Final = GivenOptions()


@dataclass(frozen=True, kw_only=True)
class FleetPolicy:
    """Which verbs are looked at on which table, and by which options.

    Args:
        file: the policy file; None: every verb but those that only an entry of one may name, by their defaults.
        weaker: by verb, what the configuration file gives.
        stronger: by verb, what variables give.
        only: the verbs that are looked at; none: all.
        memory: what verbs may hold of the rows of one table, over all that is given elsewhere; None: as that says.
    """

    file: PolicyFile | None = None
    weaker: Mapping[str, GivenOptions] = field(default_factory=dict)
    stronger: Mapping[str, GivenOptions] = field(default_factory=dict)
    only: frozenset[str] = frozenset()
    memory: GivenOptions | None = None
    _made: dict[str, Policy] = field(default_factory=dict, repr=False, compare=False)

    def of_table(self, names: list[str]) -> TablePolicy | None:
        """What the policy file has for the table of these names; None where it has nothing, or there is no file."""
        return None if self.file is None else self.file.of_table(names)

    def as_narrowed(
        self, names: list[str], properties: Mapping[str, str], *, as_of_ms: int
    ) -> TablePolicy | None:
        """The same, as far as the table's properties let it.

        Args:
            names: all of the table.
            properties: all of the table, or those that decide.
            as_of_ms: the "now" of every age.
        """
        own = self.of_table(names)
        return None if own is None else narrowed(own, properties, as_of_ms=as_of_ms)

    def verbs(self, own: TablePolicy | None, format_name: str) -> list[VerbPolicy]:
        """The verbs that are looked at on a table, in the order in which they run; those of other formats are not.

        Args:
            own: what the policy file has for it.
            format_name: of the table.
        """
        having: Mapping[str, VerbPolicy] = _unnamed()
        if self.file is not None:
            having = {} if own is None or not own.maintain else own.verbs
        return [
            having[verb]
            for verb in verbs_in_order(format_name)
            if verb in having and having[verb].when != NEVER and (not self.only or verb in self.only)
        ]

    def policy(self, verb: VerbPolicy, table: Table, *, as_of_ms: int) -> Policy:
        """The policy of a verb for a table; raises as `policy_of`."""
        return self.policy_of(verb, table.format, as_of_ms=as_of_ms)

    def policy_of(self, verb: VerbPolicy, format_name: str, *, as_of_ms: int) -> Policy:
        """The policy of a verb for tables of a format.

        Raises:
            UsageError: an option has no meaning.
        """
        # Most tables of a fleet have the same one.
        key = f"{format_name} {as_of_ms} {verb}"
        if key not in self._made:
            self._made[key] = verb.policy(
                format_name,
                now_ms=as_of_ms,
                weaker=self.weaker.get(verb.verb, _NOTHING),
                stronger=(self.memory or _NOTHING).over(self.stronger.get(verb.verb, _NOTHING)),
            )
        return self._made[key]


@cache
def _unnamed() -> Mapping[str, VerbPolicy]:
    """The verbs that need no policy file to run."""
    return {
        verb: VerbPolicy(
            verb=verb,
            when=DUE,
            when_source=DEFAULT,
            given={},
            sources={},
            thresholds=usual_thresholds(verb),
            is_named=False,
        )
        for verb in verbs_in_order()
        if not is_only_by_name(verb)
    }


def names_of(listed: ListedTable, location: str | None = None) -> list[str]:
    """Every name by which a table is known, its location among them."""
    places = [each for each in (listed.location, location) if each is not None]
    return list(dict.fromkeys([listed.name, *listed.also, *places]))


def is_due(plan: Plan, verb: VerbPolicy) -> bool:
    """Whether a plan is to be carried out: what is an offer alone only where the policy wants the verb.

    Args:
        plan: made.
        verb: whose it is.
    """
    return plan.due and why_not_due(plan, verb) is None


def why_not_due(plan: Plan, verb: VerbPolicy) -> str | None:
    """Why a plan that can be carried out does not count as due; None where it does."""
    if verb.when == ALWAYS:
        return None
    is_named = is_only_by_name(verb.verb) or (verb.is_named and is_only_by_policy(verb.verb))
    offer = None if is_named else plan.content.offer
    return offer or not_reached(plan.content, verb.thresholds)


def is_offer(verb: VerbPolicy) -> bool:
    """Whether what a verb would do is shown and makes nothing due: nobody asked for it, and it rewrites rows."""
    return not verb.is_named and is_only_by_policy(verb.verb)


class PlannedVerb(NamedTuple):
    """A verb's plan for a table, or the error that there is instead."""

    verb: VerbPolicy
    plan: Plan | None
    error: IcebergCliError | None


def plans_of(
    table: Table, policy: FleetPolicy, verbs: list[VerbPolicy], *, as_of_ms: int
) -> Iterator[PlannedVerb]:
    """The plans of verbs for a table as it is now, each by itself.

    Args:
        table: opened.
        policy: of the fleet.
        verbs: of the table.
        as_of_ms: the "now" of every age.
    """
    for verb in verbs:
        try:
            plan = table.plan(policy.policy(verb, table, as_of_ms=as_of_ms), as_of=as_of_ms)
        except IcebergCliError as error:
            yield PlannedVerb(verb, None, error)
        else:
            yield PlannedVerb(verb, plan, None)

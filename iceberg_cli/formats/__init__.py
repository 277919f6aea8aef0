"""The formats of tables by name, and their verbs. Nothing of one is loaded before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import listed
from iceberg_cli.table.format import Format, Inspector

if TYPE_CHECKING:
    from iceberg_cli.plan.policy import Policy
    from iceberg_cli.plan.verb_place import VerbPlace

__all__ = [
    "BUILT_IN",
    "VERB_NAMES",
    "Format",
    "Inspector",
    "format_of",
    "is_only_alone",
    "is_only_by_name",
    "is_only_by_policy",
    "maintenance_verbs",
    "place_of",
    "plugged_formats",
    "plugged_verbs",
    "policies_of",
    "policy_for",
    "usual_every_ms",
    "verbs_in_order",
    "verbs_of",
]
BUILT_IN: Final = ("iceberg", "delta")
GROUP: Final = "iceberg_cli.formats"


def format_of(name: str) -> Format:
    """A format by its name.

    Raises:
        UsageError: there is none.
    """
    if name in BUILT_IN:
        found: Format = import_module(f"iceberg_cli.{name}").FORMAT
        return found
    for plugged in plugged_formats():
        if plugged.name == name:
            return plugged
    raise UsageError(f"No format {name!r} is known here", next_step=f"A package can bring it as {GROUP}.")


def plugged_formats() -> Iterator[Format]:
    """The formats that installed packages bring.

    Raises:
        UsageError: a package does not have what it says it brings.
    """
    from iceberg_cli.storage.plugins import entry_points_of  # none for commands that need no other format

    for entry in entry_points_of(GROUP).values():
        try:
            yield entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"Cannot look for tables of the format {entry.name!r}: its entry point {entry.value} cannot be"
                f" loaded: {error}",
                next_step="Install another version of that package, or remove it.",
            ) from error


VERB_NAMES: Final = tuple(dict.fromkeys(verb for name in BUILT_IN for verb in format_of(name).verbs))
"""The verbs of the built-in formats, each once."""


def plugged_verbs() -> dict[str, dict[str, type[Policy]]]:
    """The policies of verbs that only formats of installed packages have, by verb and by format.

    Raises:
        UsageError: a package does not have what it says it brings.
    """
    found: dict[str, dict[str, type[Policy]]] = {}
    for plugged in plugged_formats():
        for verb in plugged.verbs:
            if verb not in VERB_NAMES:
                found.setdefault(verb, {})[plugged.name] = plugged.verbs.policy(verb)
    return found


def verbs_of(format_name: str) -> tuple[str, ...]:
    """Those of `VERB_NAMES` that a format has.

    Raises:
        UsageError: there is no such format.
    """
    found = format_of(format_name).verbs
    return tuple(verb for verb in VERB_NAMES if verb in found)


def policy_for(format_name: str, verb: str) -> type[Policy]:
    """The policies of a verb for tables of a format, with nothing else of the verb loaded.

    Raises:
        UsageError: there is no such format, or it has no such verb.
    """
    found = format_of(format_name)
    if verb in found.verbs:
        return found.verbs.policy(verb)
    instead, having = (
        found.verbs.instead(verb),
        listed([format_of(name).title[1] for name in policies_of(verb)]),
    )
    raise UsageError(
        f"{verb} is no verb of {found.title[1]} tables",
        next_step=instead or f"It is for {having} tables alone.",
    )


def place_of(format_name: str, verb: str) -> VerbPlace:
    """Where a verb stands among others of a format; raises as `policy_for`."""
    return policy_for(format_name, verb).place


@cache
def verbs_in_order(format_name: str | None = None) -> tuple[str, ...]:
    """The verbs of a format, or all, that are part of maintenance, in the order in which those that are due run.

    Raises:
        UsageError: there is no such format.
    """
    every = VERB_NAMES if format_name is None else verbs_of(format_name)
    names = [verb for verb in every if not is_only_alone(verb)]
    return tuple(sorted(names, key=lambda verb: max(each.place.order for each in policies_of(verb).values())))


@cache
def maintenance_verbs() -> tuple[str, ...]:
    """Those of `VERB_NAMES` that are part of maintenance, in the same order."""
    return tuple(verb for verb in VERB_NAMES if not is_only_alone(verb))


@cache
def is_only_alone(verb: str) -> bool:
    """Whether a verb is never part of maintenance: it acts on what an operator names."""
    return any(policy.place.only_alone for policy in policies_of(verb).values())


@cache
def is_only_by_name(verb: str) -> bool:
    """Whether a verb runs on many tables only where an entry of a policy file names it."""
    return any(policy.place.only_by_name for policy in policies_of(verb).values())


@cache
def is_only_by_policy(verb: str) -> bool:
    """Whether what a verb would do is an offer, unless a policy file names it."""
    return any(policy.place.only_by_policy for policy in policies_of(verb).values())


@cache
def usual_every_ms(verb: str) -> int | None:
    """How long a verb rests on one of many tables after a run, where a policy file does not say; None: not at all."""
    declared = [policy.place.usual_every_ms for policy in policies_of(verb).values()]
    return max((each for each in declared if each is not None), default=None)


def policies_of(verb: str) -> dict[str, type[Policy]]:
    """The policy of a verb on tables of each format that has it, by format, with nothing else of a format loaded."""
    built_in = {
        name: format_of(name).verbs.policy(verb) for name in BUILT_IN if verb in format_of(name).verbs
    }
    return built_in or plugged_verbs().get(verb, {})

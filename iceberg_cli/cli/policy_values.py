"""What variables and the configuration file have for the verbs that run by a policy file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iceberg_cli.fleet.policy_file import GivenOptions
from iceberg_cli.formats import policies_of

if TYPE_CHECKING:
    from iceberg_cli.cli.settings import EverySettings

_VARIABLE: Final = "variable "  # how the source of a variable's value begins


def values_around(every: EverySettings | None, verb: str) -> tuple[GivenOptions, GivenOptions]:
    """What is weaker and what is stronger than a policy file.

    Args:
        every: the settings of all commands; None where there are no others.
        verb: whose options are meant; they are as on its own command line.

    Returns:
        Of the configuration file, and of variables.
    """
    if every is None:
        return GivenOptions(), GivenOptions()
    settings = every.of_command(verb)
    flags = {
        flag for policy in policies_of(verb).values() for each in policy.options() for flag in each.help_of
    }
    sources = {flag: source for flag, source in settings.sources.items() if flag in flags}
    weaker, stronger = (
        {flag: source for flag, source in sources.items() if source.startswith(_VARIABLE) is variable}
        for variable in (False, True)
    )
    return (
        GivenOptions(given={flag: settings.values[flag] for flag in weaker}, sources=weaker),
        GivenOptions(given={flag: settings.values[flag] for flag in stronger}, sources=stronger),
    )

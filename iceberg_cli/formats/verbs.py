"""The verbs and the policies of each format, with nothing else of a format loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_cli.formats import BUILT_IN, format_of
from iceberg_cli.operation.verbs import VERB_NAMES

if TYPE_CHECKING:
    from iceberg_cli.plan.policy import Policy

__all__ = ["VERB_NAMES", "policies_of"]


def policies_of(verb: str) -> dict[str, type[Policy]]:
    """The policy of a verb on tables of each format, by format."""
    return {name: format_of(name).policy(verb) for name in BUILT_IN}

"""The verbs and the policies of each format, with nothing else of a format loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iceberg_cli.operation.verbs import VERB_NAMES, policy_of

if TYPE_CHECKING:
    from iceberg_cli.plan.policy import Policy

__all__ = ["VERB_NAMES", "policies_of"]
_FORMATS: Final = ("iceberg", "delta")


def policies_of(verb: str) -> dict[str, type[Policy]]:
    """The policy of a verb on tables of each format, by format."""
    return {name: policy_of(f"iceberg_cli.{name}", verb) for name in _FORMATS}

"""The verbs and the policies of each format, with nothing else of a format loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from iceberg_cli.operation.verbs import VERB_NAMES
from iceberg_cli.plan.policy import Policy

__all__ = ["VERB_NAMES", "policies_of"]
_FORMATS: Final = ("iceberg", "delta")


def policies_of(verb: str) -> dict[str, type[Policy]]:
    """The policy of a verb on tables of each format, by format: `POLICY` of `policy.py` in the verb's folder."""
    folder = verb.replace("-", "_")
    return {name: import_module(f"iceberg_cli.{name}.verbs.{folder}.policy").POLICY for name in _FORMATS}

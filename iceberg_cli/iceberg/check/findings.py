"""What `inspect --check` found in an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from iceberg_cli.iceberg.check.rules import RULES
from iceberg_cli.plan.findings import EXAMPLES, Bools, Ints, Rule, RuleFindings, Told, reason_of

__all__ = ["EXAMPLES", "Bools", "Findings", "Ints", "Told", "reason_of"]


@dataclass(slots=True)
class Findings(RuleFindings):
    """By the rules of the Iceberg table specification."""

    RULES: ClassVar[Mapping[str, Rule]] = RULES

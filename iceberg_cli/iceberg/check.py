"""What `inspect --check` found in an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from iceberg_cli.findings import EXAMPLES, Bools, Ints, Rule, RuleFindings, Told, reason_of
from iceberg_cli.iceberg.check_rules import RULES

__all__ = ["EXAMPLES", "Bools", "Findings", "Ints", "Told", "reason_of"]


@dataclass(slots=True)
class Findings(RuleFindings):
    """By the rules of the Iceberg table specification."""

    RULES: ClassVar[Mapping[str, Rule]] = RULES

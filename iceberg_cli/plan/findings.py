"""Findings of a check: for each rule the first examples, and how often it is broken in all.

A rule is an error where readers may fail or give other rows, or where this tool's own verbs rely on it; a warning where
the specification is broken and readers do without; information where nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from iceberg_cli.errors import CorruptFile

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"
SEVERITIES: Final = (ERROR, WARNING, INFO)
LEFTOVER: Final = "`resume` deletes it, and so does the next verb that writes."  # a remedy of both formats
EXAMPLES: Final = 20  # of each rule
UNANSWERED: Final = "file-not-looked-at"  # what a check ends with exit code 16 for

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Example = tuple[str, str]  # where, what


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that a sound table keeps."""

    severity: str
    section: str  # of the specification
    remedy: str  # what the operator can do


@dataclass(slots=True)
class RuleFindings:
    """Findings by rule, small enough to be sent between processes; each format's subclass has the rules of its own."""

    RULES: ClassVar[Mapping[str, Rule]]
    examples: dict[str, list[Example]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def add(self, rule: str, where: str, message: str, *, times: int = 1) -> None:
        """Add one finding, or one that stands for `times`."""
        examples = self.examples.setdefault(rule, [])
        if len(examples) < EXAMPLES:
            examples.append((where, message))
        self.totals[rule] = self.totals.get(rule, 0) + times

    def add_rows(self, rule: str, bad: Bools, tell: Callable[[int], Example]) -> None:
        """Add a finding for every bad row; `tell` is called for the first ones only."""
        total = int(np.count_nonzero(bad))
        if not total:
            return
        examples = self.examples.setdefault(rule, [])
        examples.extend(tell(int(row)) for row in np.flatnonzero(bad)[: EXAMPLES - len(examples)])
        self.totals[rule] = self.totals.get(rule, 0) + total

    def merge(self, other: Self) -> None:
        """Add the findings of another one after these."""
        for rule, examples in other.examples.items():
            mine = self.examples.setdefault(rule, [])
            mine.extend(examples[: EXAMPLES - len(mine)])
            self.totals[rule] = self.totals.get(rule, 0) + other.totals[rule]

    def counts(self) -> dict[str, int]:
        """The number of findings of each severity."""
        counts = dict.fromkeys(SEVERITIES, 0)
        for rule, total in self.totals.items():
            counts[self.RULES[rule].severity] += total
        return counts

    def left_out(self) -> dict[str, int]:
        """By rule, the number of findings that are not among `rows`."""
        more = {rule: total - len(self.examples[rule]) for rule, total in self.totals.items()}
        return {rule: more[rule] for rule in self.RULES if more.get(rule)}

    def rows(self) -> list[dict[str, Any]]:
        """The examples, the worst first, in the order of the rules."""
        return [
            {
                "id": rule,
                "severity": self.RULES[rule].severity,
                "where": where,
                "message": message,
                "section": self.RULES[rule].section,
                "remedy": self.RULES[rule].remedy,
            }
            for severity in SEVERITIES
            for rule in self.RULES
            if self.RULES[rule].severity == severity
            for where, message in self.examples.get(rule, ())
        ]


def reason_of(error: CorruptFile) -> str:
    """The message of an error in a file, without the file's path."""
    if error.offset is None:
        return error.reason
    place = f"byte {error.offset}" if isinstance(error.offset, int) else error.offset
    return f"{place}: {error.reason}"

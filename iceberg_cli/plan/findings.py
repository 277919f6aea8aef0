"""Findings of a check: for each rule the first examples, and how often it is broken in all.

A rule is an error where readers may fail or give other rows, or where this tool's own verbs rely on it; a warning where
the specification is broken and readers do without; information where nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

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


def error(section: str, remedy: str) -> Rule:
    """A rule without which readers may fail or give other rows, or on which a verb relies."""
    return Rule(severity=ERROR, section=section, remedy=remedy)


def warning(section: str, remedy: str) -> Rule:
    """A rule without which readers do."""
    return Rule(severity=WARNING, section=section, remedy=remedy)


def info(section: str, remedy: str) -> Rule:
    """A rule of which to know does no harm."""
    return Rule(severity=INFO, section=section, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, or may be, and where. `remedy` is what gets it out of the way, or shows more of it."""

    id: str
    severity: str
    where: str
    message: str
    section: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """JSON form."""
        return {
            "id": self.id,
            "severity": self.severity,
            "where": self.where,
            "message": self.message,
            "section": self.section,
            "remedy": self.remedy,
        }


@dataclass(slots=True)
class Findings:
    """Findings by rule, small enough to be sent between processes."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The findings of a check, by the rules of a format.

    Args:
        rules: by id, in the order in which they are reported.
        found: what breaks them.
        deep: whether files were looked into.
        checked: by what was read, how many of it.
        fields: of the document beside these.
    """

    rules: Mapping[str, Rule]
    found: Findings
    deep: bool
    checked: Mapping[str, int]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """The number of findings of each severity."""
        counts = dict.fromkeys(SEVERITIES, 0)
        for rule, total in self.found.totals.items():
            counts[self.rules[rule].severity] += total
        return counts

    def left_out(self) -> dict[str, int]:
        """By rule, the number of findings that are not among `findings`."""
        more = {rule: total - len(self.found.examples[rule]) for rule, total in self.found.totals.items()}
        return {rule: more[rule] for rule in self.rules if more.get(rule)}

    def findings(self) -> list[Finding]:
        """The examples, the worst first, in the order of the rules."""
        return [
            Finding(
                id=id_,
                severity=severity,
                where=where,
                message=message,
                section=rule.section,
                remedy=rule.remedy,
            )
            for severity in SEVERITIES
            for id_, rule in self.rules.items()
            if rule.severity == severity
            for where, message in self.found.examples.get(id_, ())
        ]

    def to_json(self) -> dict[str, Any]:
        """The fields of the document after its header."""
        return {
            "deep": self.deep,
            **self.fields,
            "checked": dict(self.checked),
            "counts": self.counts(),
            "left_out": self.left_out(),
            "findings": [each.to_json() for each in self.findings()],
        }


def reason_of(error: CorruptFile) -> str:
    """The message of an error in a file, without the file's path."""
    if error.offset is None:
        return error.reason
    place = f"byte {error.offset}" if isinstance(error.offset, int) else error.offset
    return f"{place}: {error.reason}"

"""merge-dvs on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Ratio, Size, Whole, option

VERB_NAME: Final = "merge-dvs"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy(Policy):
    """The options of merge-dvs; None where a default decides. `target_size`: bytes of a new deletion vector file."""

    verb: ClassVar[str] = VERB_NAME

    target_size: int | None = option(Size())
    min_files: int | None = option(Whole())
    dead_ratio: float | None = option(Ratio(from_zero=True))


POLICY: Final = MergePolicy

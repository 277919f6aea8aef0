"""What calls of a table take beside policies: states, times, and the names of these in errors."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iceberg_cli.plan.arguments import OPEN_ARGUMENTS, naming
from iceberg_cli.plan.inspection import StateSelector
from iceberg_cli.plan.times import Time, moment_ms

if TYPE_CHECKING:
    from iceberg_cli.plan.policy import Policy

# What a program gives where the command line has options.
_NAMES: Final = {
    **OPEN_ARGUMENTS,
    "--snapshot": "snapshot_id",
    "--ref": "ref",
    "--at": "at",
    "--version": "version",
    "--recount": "recount",
    "--snapshots": "snapshots",
    "--as-of": "as_of",
    "--columns": "columns",
    "--limit": "limit",
}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Reads the arguments of a table's calls.

    Args:
        names_options: the command line calls. It has read what was typed, and errors name its options.
    """

    names_options: bool

    def state(
        self, snapshot_id: int | None, ref: str | None, at: Time | None, version: int | None
    ) -> StateSelector:
        """What selects a state; raises as `moment_ms`."""
        at_ms = None if at is None else self._moment_ms(at, "at")
        return StateSelector(snapshot_id=snapshot_id, ref=ref, at_ms=at_ms, version=version)

    def as_of_ms(self, as_of: Time | None) -> int:
        """The "now" of every age; raises as `moment_ms`."""
        return now_ms() if as_of is None else self._moment_ms(as_of, "as_of")

    def naming(self, policy: Policy | None = None) -> AbstractContextManager[None]:
        """Has the errors of a block name arguments, those of a policy that a program made among them."""
        names = _NAMES if policy is None else {**_NAMES, **policy.argument_names()}
        is_of_options = policy is not None and policy.is_of_options
        return naming(names, names_options=self.names_options or is_of_options)

    def _moment_ms(self, given: Time, name: str) -> int:
        # A command line may name any year: what was not meant shows there.
        if self.names_options and isinstance(given, int):
            return given
        return moment_ms(given, name, now_ms=now_ms())


def now_ms() -> int:
    """The time."""
    return time.time_ns() // 1_000_000  # noqa: TID251 - the clock of real runs

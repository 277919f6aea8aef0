"""The policy of a table's format from a verb's options, and the refusal of options of the other format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from iceberg_cli.cli.options import given
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.operation.ports import Policy

ICEBERG, DELTA = "Iceberg", "Delta"
_A = {ICEBERG: "an Iceberg", DELTA: "a Delta"}
Foreign = Mapping[str, Mapping[str, str]]
"""By format, the options that its tables do not have; each with the one that an operator may mean, or ""."""


class VerbOptions(Protocol):
    """The options of a verb that has rules for both formats."""

    FOREIGN: ClassVar[Foreign]

    def policy(self, *, now_ms: int) -> Policy:
        """The policy for an Iceberg table."""
        ...

    def delta_policy(self, *, now_ms: int) -> Policy:
        """The policy for a Delta table."""
        ...


def policy_of(options: VerbOptions, table: IcebergTable | DeltaTable, *, now_ms: int) -> Policy:
    """The policy that the options spell for a table.

    Raises:
        UsageError: an option has no meaning, or none for the table's format.
    """
    if table.format == "iceberg":
        refuse_foreign(options, ICEBERG, table.name)
        return options.policy(now_ms=now_ms)
    refuse_foreign(options, DELTA, table.name)
    return options.delta_policy(now_ms=now_ms)


def refuse_foreign(options: VerbOptions, table_format: str, name: str) -> None:
    """Refuse an option of the other format, and name the one that may be meant.

    Raises:
        UsageError: one was given.
    """
    foreign = options.FOREIGN[table_format]
    other = ICEBERG if table_format == DELTA else DELTA
    for field, flag in given(type(options), options).items():
        if field in foreign:
            raise UsageError(
                f"{flag} is an option of {other} tables, and {name} is {_A[table_format]} table",
                next_step=f"Use {foreign[field]}." if foreign[field] else "Leave it out.",
            )

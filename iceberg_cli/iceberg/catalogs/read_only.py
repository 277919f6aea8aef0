"""What every committer does that commits nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from iceberg_cli.errors import Refused
from iceberg_cli.operation.outcomes import Attempt, Outcome, Unknown

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit


class ReadOnlyCommitter(ABC):
    """A table that is shown and never committed to: a subclass says why, and which version is current."""

    @abstractmethod
    def read_only_reason(self) -> str:
        """Why this table cannot be committed to from here."""

    @abstractmethod
    def current(self) -> str:
        """The current metadata location.

        Raises:
            TableNotFound: there is no such table.
            BackendUnavailable: the backend did not answer.
        """

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """Always refused."""
        raise Refused(
            f"Cannot commit {len(commit.updates)} changes to {base_location}: {self.read_only_reason()}."
        )

    def commit(self, attempt: Attempt) -> Outcome:
        """Always refused."""
        raise Refused(f"Cannot commit {attempt.target}: {self.read_only_reason()}.")

    def settle(self, attempt: Attempt) -> Outcome:
        """Always unknown."""
        return Unknown(cause=f"{attempt.target} cannot be looked up: {self.read_only_reason()}")

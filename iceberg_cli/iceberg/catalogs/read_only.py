"""What every committer does that commits nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.operation.outcomes import Attempt, Outcome, Unknown

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata


class ReadOnlyCommitter(Committer):
    """A table that is shown and never committed to: a subclass says why, and which version is current."""

    @abstractmethod
    def read_only_reason(self) -> str:
        """Why this table cannot be committed to from here."""

    def takes_late_requests(self) -> bool:
        """Whether what was sent may still come in: nothing is sent from here."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: what may be hidden is not removed from here."""
        return None

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:  # noqa: ARG002 - the port's
        """None: nothing is written."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:  # noqa: ARG002 - the port's
        """Always refused."""
        raise Refused(f"Cannot commit: {self.read_only_reason()}")

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

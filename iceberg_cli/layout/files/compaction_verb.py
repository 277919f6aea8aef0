"""What rewriting data files is on both formats, as a verb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iceberg_cli.layout.files import budget
from iceberg_cli.operation.groups.ports import CommitPace, GroupVerb
from iceberg_cli.plan.compaction_policy import VERB_NAME, CompactionPolicy

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Plan


class CompactionVerb(GroupVerb):
    """A rewrite of data files; its format says how rows are read and what a commit is."""

    name: str = VERB_NAME
    policy: type[CompactionPolicy]
    result_columns: Sequence[str] = (
        "rewritten_data_files_count",
        "added_data_files_count",
        "rewritten_bytes_count",
        "added_bytes_count",
        "removed_delete_files_count",
        "rewritten_rows_count",
        "dropped_rows_count",
        "remapped_deletes_count",
    )

    def pace(self, plan: Plan) -> CommitPace:
        """As `GroupVerb`."""
        policy = self.policy.of_plan(plan)
        return budget.pace_of(policy.commit_pace, policy.max_commits, single_commit=policy.single_commit)

    def compares_rows(self, plan: Plan) -> bool:
        """As `GroupVerb`."""
        return not self.policy.of_plan(plan).no_verify_rows

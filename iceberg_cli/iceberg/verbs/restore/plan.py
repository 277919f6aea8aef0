"""restore: the plan, from the metadata, the manifests of the target, and a look for each of its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iceberg_cli.iceberg.branch.target_files import look_for_files
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.restore import rules
from iceberg_cli.iceberg.verbs.restore.policy import VERB_NAME, Restore
from iceberg_cli.iceberg.verbs.restore.rules import Move
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.text import count


class RestoreVerb(Verb):
    """Sets a branch back to an earlier snapshot, and keeps the old head by a tag."""

    name: Final = VERB_NAME
    policy: Final = Restore
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: Restore,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan.

        Raises:
            UsageError: there is no such branch or state.
            Refused: the branch is a tag; or the target is encrypted.
            CommitConflict: the branch has moved since `within`.
            CorruptFile: a list or manifest of the target is there and cannot be read whole.
        """
        move = rules.move_of(table.metadata, policy, as_of_ms=as_of_ms, within=within)
        missing: Sequence[str] = ()
        warnings: Sequence[str] = ()
        if not move.is_done:
            missing, warnings = _looked_for(table, move)
        plan = rules.plan(
            table.metadata,
            policy,
            move,
            base=table.base(),
            table=table.describe(),
            as_of_ms=as_of_ms,
            missing=missing,
            warnings=warnings,
        )
        return Planned(plan=table.resolve(plan))


def _looked_for(table: IcebergTable, move: Move) -> tuple[Sequence[str], list[str]]:
    """The files of the target that are not there, and a warning where its rows get other ids.

    Raises:
        Refused: the target is encrypted. CorruptFile: a list or manifest is there and cannot be read whole.
    """
    found = look_for_files(table, move.target.snapshot)
    if not found.without_ids:
        return found.missing, []
    manifests = count(found.without_ids, "data manifests")
    ids = "ids, which are other ones than commits that leave may have given them"
    return found.missing, [
        f"{manifests} of the target have no row ids: the next commit gives their rows {ids}"
    ]


VERB: Final = RestoreVerb()

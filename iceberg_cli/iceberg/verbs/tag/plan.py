"""tag: the plan, from the metadata alone."""

from __future__ import annotations

from typing import Final

from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.tag import rules
from iceberg_cli.iceberg.verbs.tag.policy import VERB_NAME, Tag
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Plan


class TagVerb(Verb):
    """Makes, replaces or drops a tag."""

    name: Final = VERB_NAME
    policy: Final = Tag
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: Tag,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan; raises as `rules.plan`."""
        plan = rules.plan(
            table.metadata,
            policy,
            base=table.base(),
            table=table.describe(),
            as_of_ms=as_of_ms,
            within=within,
        )
        return Planned(plan=table.resolve(plan))


VERB: Final = TagVerb()

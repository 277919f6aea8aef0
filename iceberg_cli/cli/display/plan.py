"""What a verb would do to a table."""

from __future__ import annotations

from iceberg_cli.api import Plan
from iceberg_cli.cli.display import TextScreen
from iceberg_cli.cli.page import page_of
from iceberg_cli.cli.page.table_content import TableContent
from iceberg_cli.cli.render.plan import show_plan


def text(plan: Plan) -> str:
    """What `plan` and `--dry-run` print."""
    screen = TextScreen(as_of_ms=plan.as_of_ms)
    show_plan(screen, plan.content)
    return screen.text


def page(plan: Plan) -> str:
    """The page of `plan --report`, without what only the table itself tells: a plan is no open table."""
    content = TableContent(summary=None, summary_parts=(), states=())
    return page_of(plan.to_json(), content=content, plans=[plan])

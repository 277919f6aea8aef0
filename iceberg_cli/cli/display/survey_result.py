"""What is due in many tables."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen, text_with_rest
from iceberg_cli.cli.page import page_of
from iceberg_cli.cli.render.survey import show_rest, show_surveyed, show_verdict
from iceberg_cli.fleet.calls.survey_result import SurveyResult


def text(survey: SurveyResult) -> str:
    """What `survey` prints."""
    screen = TextScreen(as_of_ms=survey.as_of_ms)
    show_verdict(screen, survey.totals)
    if survey:
        show_surveyed(screen, survey.totals, [each.row for each in survey])
    show_rest(screen, survey.totals, shown=len(survey), quick=survey.quick)
    return text_with_rest(screen, survey)


def page(survey: SurveyResult) -> str:
    """The page of `survey --report`."""
    return page_of(survey.to_json())

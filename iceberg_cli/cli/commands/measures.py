"""What commands about many tables pass on of each table and verb, for the file of `--metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from iceberg_cli.errors import worst_of
from iceberg_cli.plan.events import TableMeasured

if TYPE_CHECKING:
    from iceberg_cli.fleet.survey import SurveyedTable
    from iceberg_cli.fleet.verb_run import VerbRun

_SUCCESSES: Final = ("done", "nothing_to_do", "waiting", "partial", "not_due")


def measures_of(found: SurveyedTable) -> Iterator[TableMeasured]:
    """A table of a survey, and each verb of which it is known whether it is due."""
    from iceberg_cli.fleet.grades import GRADES

    row = found.row
    name, table_format = str(row["table"]["name"]), str(row["table"]["format"])
    yield TableMeasured(
        name,
        table_format,
        exit_code=found.exit_code,
        grade=GRADES.index(row["grade"]),
        oldest_snapshot_ms=row["oldest_snapshot_ms"],
        open_operations=row["open_operations"],
    )
    for verb, size_bytes in found.due_bytes.items():
        yield TableMeasured(name, table_format, verb, due_bytes=size_bytes)


class MaintenanceMeasures:
    """The verbs of a maintenance, each with the worst of its exit codes: finishing what was left open has one, too."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str | None], int] = {}
        self._files = self._size_bytes = 0

    def of(self, run: VerbRun) -> Iterator[TableMeasured]:
        """A verb on a table as it is by now; nothing for another name of a table."""
        from iceberg_cli.fleet.verb_run import HELD, IN_NO_POLICY, SAME_TABLE

        if run.skipped_for == SAME_TABLE:
            return
        key = run.name, run.verb
        code = self._codes[key] = worst_of((self._codes.get(key, 0), run.exit_code))
        if run.due is not None:
            self._files += run.due[0]
            self._size_bytes += run.due[1]
        yield TableMeasured(
            run.name,
            str(run.table["format"]),
            run.verb,
            exit_code=code,
            is_success=None
            if run.skipped_for in (HELD, IN_NO_POLICY)
            else not code and run.status in _SUCCESSES,
            due_bytes=None if run.due is None else run.due[1],
        )

    @property
    def due(self) -> tuple[int, int]:
        """Files and bytes that all of them are to delete and that are still there."""
        return self._files, self._size_bytes

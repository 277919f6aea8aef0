"""What is due in many tables, and the bytes that it frees. Nothing here writes to a table."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import BackendUnavailable, CorruptFile, IcebergCliError
from iceberg_cli.fleet.due import FleetPolicy, PlannedVerb, is_due, names_of, plans_of
from iceberg_cli.fleet.side_by_side import side_by_side
from iceberg_cli.plan.findings import ERROR
from iceberg_cli.plan.text import age, count, iso

if TYPE_CHECKING:
    from iceberg_cli.api import Plan, Table
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.policy_file import TablePolicy
    from iceberg_cli.fleet.prices import Prices

OK, DUE, OVERDUE, BROKEN, UNREADABLE = "ok", "due", "overdue", "broken", "unreadable"
GRADES: Final = (OK, DUE, OVERDUE, BROKEN, UNREADABLE)  # the worse the later
_BUG: Final = 1  # exit code
# Beyond these something is overdue and not only due.
_OVERDUE_AGES: Final = 2  # times the age that a policy lets a snapshot get
_OVERDUE_DELETE_RATIO: Final = 0.3
_OVERDUE_MANIFESTS: Final = 10  # times as many as would do, of so many at least:
_MANY_MANIFESTS: Final = 100
_OVERDUE_INTERVALS: Final = 10  # of checkpoints
_COLUMNS: Final = (
    "snapshots", "oldest_snapshot_ms", "files", "small_files", "data_bytes", "delete_ratio", "manifests",
    "manifest_target_ratio", "metadata_bytes", "log_versions_since_checkpoint",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SurveyedTable:
    """One table of a survey.

    Args:
        listed: as it was listed.
        row: as an element of `fleet/1`.
        exit_code: 0, unless it is broken or cannot be read.
        traceback: of a bug.
    """

    listed: ListedTable
    row: Mapping[str, Any]
    exit_code: int = 0
    traceback: str = ""

    @property
    def freed_bytes(self) -> int:
        """What carrying out all that is due frees, in bytes."""
        return sum(each["bytes"] or 0 for each in self.row["due"] if not each["blocked_by"])

    @property
    def is_due(self) -> bool:
        """Whether something is due that nothing blocks."""
        return any(not each["blocked_by"] for each in self.row["due"])


@dataclass(kw_only=True)
class Survey:
    """A survey of many tables. Iterate over it once.

    Args:
        tables: those that are listed.
        opener: opens them.
        policy: says which verbs are looked at.
        as_of_ms: the "now" of every age.
        jobs: how many tables are read side by side.
        prices: of storage and requests; None: no cost is shown.
    """

    tables: Iterable[ListedTable]
    opener: TableOpener
    policy: FleetPolicy = field(default_factory=FleetPolicy)
    as_of_ms: int
    jobs: int = 4
    prices: Prices | None = None
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __iter__(self) -> Iterator[SurveyedTable]:
        """Each table once, as it is ready."""
        yield from side_by_side(self._look_at, self.tables, jobs=self.jobs)

    def _look_at(self, listed: ListedTable) -> Iterator[SurveyedTable]:
        """One table; nothing where another name of it was looked at."""
        table: Table | None = None
        try:
            table = self.opener.open(listed, believe_list=True)
            yield from self._row_of(listed, table)
        except IcebergCliError as error:
            identity = _identity(listed) if table is None else table.identity
            yield unreadable(listed, identity, error)
        except Exception as error:  # noqa: BLE001 - a bug met on one table says nothing of the others
            yield _bug(listed, error)
        finally:
            if table is not None:
                table.save_cache()

    def _row_of(self, listed: ListedTable, table: Table) -> Iterator[SurveyedTable]:
        inspection = table.inspect("summary", as_of_ms=self.as_of_ms)
        summary = inspection.to_json()
        with self._lock:
            if table.key in self._seen:
                return
            self._seen.add(table.key)
        columns = table.fleet_columns(summary)
        findings = table.quick_check(as_of_ms=self.as_of_ms)
        own = self.policy.of_table(names_of(listed, table.identity["location"]))
        verbs = self.policy.verbs(own)
        planned = list(plans_of(table, self.policy, verbs, as_of_ms=self.as_of_ms))
        due = [_due(each.plan) for each in planned if each.plan is not None and is_due(each.plan, each.verb)]
        row: dict[str, Any] = {
            "table": {**table.identity, "also": list(listed.also)},
            "format_version": summary["format_version"],
            **dict.fromkeys(("grade", "rule"), ""),
            **{name: columns[name] for name in _COLUMNS},
            "oldest_snapshot": iso(columns["oldest_snapshot_ms"]),
            "due": sorted(due, key=lambda each: -(each["bytes"] or 0)),
            "open_operations": len(summary["open_operations"]),
            "findings": [
                *(each.to_json() for each in findings.findings()),
                *(_finding_of(each) for each in planned if each.error is not None),
            ],
            "cost": None,
            "from_cache": False,
        }
        row["grade"], row["rule"], code = _grade(row, planned, as_of_ms=self.as_of_ms)
        if row["grade"] == OK and self.policy.file is not None and not verbs:
            row["rule"] = _why_no_verb(own)
        if self.prices is not None:
            row["cost"] = self.prices.cost(row)
        yield SurveyedTable(listed=listed, row=row, exit_code=code)


def unreadable(listed: ListedTable, identity: Mapping[str, Any], error: IcebergCliError) -> SurveyedTable:
    """A table that could not be read.

    Args:
        listed: which one.
        identity: its `name`, `location` and `format`, as far as they are known.
        error: why.
    """
    row: dict[str, Any] = {
        "table": {**identity, "also": list(listed.also)},
        "format_version": None,
        "grade": UNREADABLE,
        "rule": error.message,
        **dict.fromkeys(_COLUMNS),
        "oldest_snapshot": None,
        "due": [],
        "open_operations": None,
        "findings": [],
        "cost": None,
        "from_cache": False,
    }
    return SurveyedTable(listed=listed, row=row, exit_code=error.exit_code)


def _bug(listed: ListedTable, error: Exception) -> SurveyedTable:
    told = IcebergCliError(f"a bug of iceberg-cli was met: {error!r}")
    found = unreadable(listed, _identity(listed), told)
    return SurveyedTable(
        listed=listed, row=found.row, exit_code=_BUG, traceback="".join(traceback.format_exception(error))
    )


def _identity(listed: ListedTable) -> dict[str, Any]:
    return {"name": listed.name, "location": listed.location, "format": listed.format}


def _why_no_verb(own: TablePolicy | None) -> str:
    """Why a policy file has no verb run on a table."""
    if own is None:
        return "no entry of the policy file matches it"
    if not own.maintain:
        return f"not maintained{f': {own.reason}' if own.reason else ''}"
    return "the policy file names no verb for it"


def _due(plan: Plan) -> dict[str, Any]:
    """An element of `due`."""
    return {
        "operation": plan.verb,
        "bytes": plan.removals.size_bytes,
        "files": plan.removals.count,
        "exact": True,
        "blocked_by": list(plan.blocked_by),
    }


def _finding_of(planned: PlannedVerb) -> dict[str, Any]:
    """An error of planning a verb as a finding."""
    error = planned.error
    assert error is not None
    return {
        "id": f"{planned.verb.verb}-cannot-be-planned",
        "severity": ERROR if isinstance(error, CorruptFile) else "warning",
        "where": getattr(error, "path", "") or planned.verb.verb,
        "message": error.message,
        "section": "",
        "remedy": error.next_step,
    }


def _grade(row: Mapping[str, Any], planned: list[PlannedVerb], *, as_of_ms: int) -> tuple[str, str, int]:
    """The grade of a table that could be opened, the rule that gave it, and its exit code."""
    failed = [each.error for each in planned if each.error is not None]
    if unanswered := next((each for each in failed if isinstance(each, BackendUnavailable)), None):
        return UNREADABLE, unanswered.message, unanswered.exit_code
    errors = [each for each in row["findings"] if each["severity"] == ERROR]
    if errors:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return BROKEN, f"{errors[0]['message']}{more}", CorruptFile.exit_code
    if failed:
        return UNREADABLE, failed[0].message, failed[0].exit_code
    due = [each for each in planned if each.plan is not None and is_due(each.plan, each.verb)]
    free = [each.plan for each in due if each.plan is not None and not each.plan.blocked_by]
    if not free:
        blocked = [f"{each.plan.verb} is blocked by {each.plan.blocked_by[0]}" for each in due if each.plan]
        return OK, blocked[0] if blocked else "nothing is due", 0
    for plan in free:
        if rule := _overdue(plan, row, as_of_ms=as_of_ms):
            return OVERDUE, f"{plan.verb}: {rule}", 0
    return DUE, f"{', '.join(plan.verb for plan in free)} {'is' if len(free) == 1 else 'are'} due", 0


def _overdue(plan: Plan, row: Mapping[str, Any], *, as_of_ms: int) -> str | None:
    """Why a verb that is due is overdue, or None."""
    match plan.verb:
        case "expire-snapshots":
            cutoff = plan.content.options.get("older_than_ms")
            going = [
                each.timestamp_ms
                for each in plan.verdicts
                if not each.keep and each.subject == "snapshot" and each.timestamp_ms is not None
            ]
            if cutoff is None or cutoff.value is None or not going:
                return None
            allowed_ms, oldest_ms = as_of_ms - int(cutoff.value), as_of_ms - min(going)
            if oldest_ms > _OVERDUE_AGES * allowed_ms:
                return (
                    f"its oldest snapshot is {age(oldest_ms)} old, more than {_OVERDUE_AGES} times the"
                    f" {age(allowed_ms)} that it may get"
                )
        case "merge-dvs":
            ratio = row["delete_ratio"]
            if ratio is not None and ratio > _OVERDUE_DELETE_RATIO:
                return f"{ratio:.0%} of its rows are deleted, more than {_OVERDUE_DELETE_RATIO:.0%}"
        case "rewrite-manifests":
            ratio, versions = row["manifest_target_ratio"], row["log_versions_since_checkpoint"]
            if ratio is not None and ratio > _OVERDUE_MANIFESTS and row["manifests"] >= _MANY_MANIFESTS:
                return (
                    f"it has {ratio:.0f} times as many manifests as would do, more than {_OVERDUE_MANIFESTS}"
                )
            interval = plan.content.options.get("checkpoint_interval")
            usual = int(interval.value) if interval is not None and interval.value else 10
            if versions is not None and versions > _OVERDUE_INTERVALS * usual:
                since = count(versions, "versions")
                return f"{since} since its last checkpoint, more than {_OVERDUE_INTERVALS} intervals"
    return None

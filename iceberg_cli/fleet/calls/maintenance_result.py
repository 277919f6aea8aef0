"""What came of the maintenance of many tables, as `maintain` has it: the runs of verbs, and sums over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iceberg_cli.errors import worst_of
from iceberg_cli.fleet.calls.result import FleetResult, columns_of
from iceberg_cli.fleet.listing import Failures
from iceberg_cli.fleet.verb_run import SKIPS, STATUSES, VerbRun
from iceberg_cli.plan.text import count, size

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.fleet.policy_file import PolicyFile

MAINTENANCE_SCHEMA: Final = "iceberg-cli/maintenance/1"
CHANGING: Final = ("done", "waiting", "partial", "unknown")
"""Statuses of runs that wrote to a table."""
_MOST_FAILED: Final = 20  # that are kept for their reasons
# What came of a table, the one first that is told where its verbs came to several.
FAILED, SKIPPED = "failed", "skipped"
OUTCOMES: Final = (FAILED, "left", "blocked", "worked_on", "due", "not_due", SKIPPED)
_OUTCOME_OF: Final = {
    **dict.fromkeys(("done", "waiting", "nothing_to_do"), "worked_on"),
    **{status: status for status in ("left", "blocked", "due", "not_due", SKIPPED)},
    "partial": "left",
}


class MaintenanceResult(FleetResult[VerbRun]):
    """What came of each verb on each table; a table that was not come to at all has one run without a verb.

    Args:
        runs: of verbs.
        failed: see `FleetResult`.
        run_id: of the whole run.
        policy: the policy file.
        as_of_ms: the "now" of every age.
        dry_run: whether it was only planned.
        views: see `FleetResult`.
        warnings: what the operator should know.
    """

    shown_as: ClassVar[str] = "maintenance_result"

    def __init__(
        self,
        runs: Iterable[VerbRun],
        *,
        failed: Failures,
        run_id: str,
        policy: PolicyFile,
        as_of_ms: int,
        dry_run: bool = False,
        views: int = 0,
        warnings: Sequence[str] = (),
    ) -> None:
        super().__init__(runs, failed=failed, views=views)
        self.run_id, self.policy, self.as_of_ms, self.dry_run = run_id, policy, as_of_ms, dry_run
        self.warnings = warnings
        self.totals = MaintenanceTotals()
        for each in self:
            self.totals.add(each)

    def __repr__(self) -> str:
        """Numbers alone."""
        parts = [count(len(self.totals.tables), "tables")]
        parts += [f"{number:,} {name}" for name in OUTCOMES if (number := self.totals.outcomes[name])]
        if self.totals.files:
            freed = "to be freed" if self.dry_run else "freed"
            parts.append(f"{size(self.totals.size_bytes)} {freed}")
        return f"MaintenanceResult({', '.join(parts)})"

    def _codes(self) -> Iterable[int]:
        return (each.exit_code for each in self)

    @property
    def left(self) -> list[dict[str, Any]]:
        """What a bound left undone, as the field of this name in `maintenance/1`."""
        return [left_undone(each) for each in self if each.is_left]

    def to_json(self) -> dict[str, Any]:
        """The `maintenance/1` document."""
        return {
            "schema": MAINTENANCE_SCHEMA,
            **maintenance_head(self.run_id, self.as_of_ms, self.policy),
            "runs": [each.to_json() for each in self],
            "left": self.left,
            "failed": self.failed.to_json(),
            "exit_code": self.exit_code,
            "totals": self.totals.to_json([self.exit_code]),
        }

    def to_arrow(self) -> pa.Table:
        """A row for each run of a verb."""
        import pyarrow as pa

        texts = ("operation", "status", "reason", "skipped_for", "operation_id", "committed_snapshot_id")
        numbers = (
            *("committed_version", "exit_code", "deleted_files_count", "reclaimed_bytes"),
            "duration_ms",
        )
        error = pa.struct([(name, pa.string()) for name in ("error", "message", "state", "next")])
        schema = pa.schema(
            [
                *((name, pa.string()) for name in ("name", "location", "format")),
                ("also", pa.list_(pa.string())),
                *((name, pa.string()) for name in texts),
                *((name, pa.int64()) for name in numbers),
                ("error", error),
            ]
        )
        return columns_of((each.to_json() for each in self), schema)


def maintenance_head(run_id: str, as_of_ms: int, policy: PolicyFile) -> dict[str, Any]:
    """The fields of `maintenance/1` that stand before the runs."""
    return {"run_id": run_id, "as_of_ms": as_of_ms, "policy": policy.to_json()}


def left_undone(run: VerbRun) -> dict[str, Any]:
    """A run as an element of `left` in `maintenance/1`."""
    return {"table": dict(run.table), "operation": run.verb, "reason": run.reason}


class MaintenanceTotals:
    """Sums over the runs of verbs; `failed` are the first of those that did not end well."""

    def __init__(self) -> None:
        self.failed: list[VerbRun] = []
        self.failures = 0
        self.statuses: Counter[str] = Counter()
        self.tables: dict[str, str] = {}  # the worst of `OUTCOMES` by table
        self.skips: Counter[str] = Counter()
        self.files = self.size_bytes = 0

    @property
    def is_any_changed(self) -> bool:
        """Whether something was written."""
        return any(self.statuses[status] for status in CHANGING)

    def add(self, each: VerbRun) -> None:
        """Take a run into account."""
        if each.exit_code:
            self.failures += 1
            self.failed += [each] if len(self.failed) < _MOST_FAILED else []
        self.statuses[each.status] += 1
        self.skips[each.skipped_for] += bool(each.skipped_for)
        before, outcome = self.tables.get(each.name, SKIPPED), _OUTCOME_OF.get(each.status, FAILED)
        self.tables[each.name] = min(before, outcome, key=OUTCOMES.index)
        self.files += each.deleted_files
        self.size_bytes += each.freed_bytes

    @property
    def outcomes(self) -> Counter[str]:
        """The number of tables by what came of them."""
        return Counter(self.tables.values())

    def consequence(self) -> str:
        """What would be done, in words."""
        return (
            f"{count(self.statuses['due'], 'verbs')} on {count(len(self.tables), 'tables')}; "
            f"{count(self.files, 'files')} of {size(self.size_bytes)} are deleted for good"
        )

    def to_json(self, codes: Sequence[int]) -> dict[str, Any]:
        """The field `totals`, and the exit code."""
        return {
            "tables": len(self.tables),
            "outcomes": {outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "skipped_for": {kind: self.skips[kind] for kind in SKIPS},
            "statuses": {status: self.statuses[status] for status in STATUSES},
            "deleted_files_count": self.files,
            "reclaimed_bytes": self.size_bytes,
            "exit_code": worst_of(codes),
        }

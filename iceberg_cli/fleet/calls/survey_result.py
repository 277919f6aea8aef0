"""What is due in many tables, as `survey` has it: the tables, ranked, and sums over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iceberg_cli.fleet.calls.result import FleetResult, columns_of
from iceberg_cli.fleet.grades import BROKEN, GRADES, UNREADABLE
from iceberg_cli.fleet.listing import Failures
from iceberg_cli.fleet.survey import SurveyedTable
from iceberg_cli.plan.events import FleetCounted
from iceberg_cli.plan.text import count, size

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.fleet.policy_file import PolicyFile

FLEET_SCHEMA: Final = "iceberg-cli/fleet/1"
SORTS: Final = ("freed", "grade", "name")


class SurveyResult(FleetResult[SurveyedTable]):
    """What is due in many tables, those of which most is freed first, unless they are ranked otherwise.

    Args:
        tables: surveyed.
        failed: see `FleetResult`.
        sort: of `SORTS`.
        policy: the policy file that says which verbs are looked at, or None.
        as_of_ms: the "now" of every age.
        views: see `FleetResult`.
        quick: whether no manifest was read.
    """

    shown_as: ClassVar[str] = "survey_result"

    def __init__(
        self,
        tables: Iterable[SurveyedTable],
        *,
        failed: Failures,
        sort: str = SORTS[0],
        policy: PolicyFile | None,
        as_of_ms: int,
        views: int = 0,
        quick: bool = False,
    ) -> None:
        super().__init__(sorted(tables, key=rank(sort)), failed=failed, views=views)
        self.policy, self.as_of_ms, self.quick = policy, as_of_ms, quick
        self.totals = SurveyTotals()
        for each in self:
            self.totals.add(each)

    def __repr__(self) -> str:
        """Numbers alone."""
        freed = size(self.totals.sums["freed_bytes"])
        return f"SurveyResult({count(len(self), 'tables')}, {self.totals.due:,} due, {freed} freed)"

    def _codes(self) -> Iterable[int]:
        return (each.exit_code for each in self)

    def to_json(self) -> dict[str, Any]:
        """The `fleet/1` document."""
        return {
            "schema": FLEET_SCHEMA,
            **survey_head(self.as_of_ms, self.policy),
            "tables": [dict(each.row) for each in self],
            "failed": self.failed.to_json(),
            "totals": self.totals.to_json(),
        }

    def to_arrow(self) -> pa.Table:
        """A row for each table; what is due of it is a list of structs."""
        import pyarrow as pa

        due = [
            ("operation", pa.string()),
            ("reason", pa.string()),
            ("bytes", pa.int64()),
            ("files", pa.int64()),
        ]
        due += [("exact", pa.bool_()), ("blocked_by", pa.list_(pa.string()))]
        numbers = (
            *("snapshots", "oldest_snapshot_ms", "files", "small_files", "data_bytes", "manifests"),
            *("metadata_bytes", "log_versions_since_checkpoint", "open_operations"),
        )
        schema = pa.schema(
            [
                *((name, pa.string()) for name in ("name", "location", "format")),
                ("also", pa.list_(pa.string())),
                ("format_version", pa.int64()),
                ("grade", pa.string()),
                ("rule", pa.string()),
                ("due", pa.list_(pa.struct(due))),
                *((name, pa.int64()) for name in numbers),
                *((name, pa.float64()) for name in ("delete_ratio", "manifest_target_ratio")),
                ("cost", pa.struct([("currency", pa.string()), ("month", pa.float64())])),
                ("from_cache", pa.bool_()),
            ]
        )
        return columns_of((each.row for each in self), schema)


def survey_head(as_of_ms: int, policy: PolicyFile | None) -> dict[str, Any]:
    """The fields of `fleet/1` that stand before the tables."""
    return {"as_of_ms": as_of_ms, "policy": None if policy is None else policy.to_json()}


class SurveyTotals:
    """Sums over the tables of a survey; `bad` is the name of the first that is broken or unreadable."""

    def __init__(self) -> None:
        self.bad = ""
        self.tables = 0
        self.due = 0
        self.grades: Counter[str] = Counter()
        self.offers: Counter[str] = Counter()  # tables by verb
        self.sums: Counter[str] = Counter()
        self.money: Counter[str] = Counter()

    def add(self, found: SurveyedTable) -> None:
        """Take a table into account."""
        if is_bad(found.row):
            self.bad = self.bad or found.name
        self.tables += 1
        self.due += found.is_due
        self.grades[found.row["grade"]] += 1
        self.offers.update(each["operation"] for each in found.row["offers"])
        self.sums["freed_bytes"] += found.freed_bytes
        self.sums["freed_files"] += sum(
            each["files"] or 0 for each in found.row["due"] if not each["blocked_by"]
        )
        for name in ("open_operations", "snapshots", "files", "small_files", "data_bytes", "metadata_bytes"):
            self.sums[name] += found.row[name] or 0
        if (cost := found.row["cost"]) is not None:
            self.money[cost["currency"]] += cost["month"]

    def counted(self) -> FleetCounted:
        """The same for listeners."""
        return FleetCounted(
            what="tables",
            label="grade",
            counts=self.to_json()["grades"],
            due=(self.sums["freed_files"], self.sums["freed_bytes"]),
        )

    def to_json(self) -> dict[str, Any]:
        """The field `totals`."""
        return {
            "tables": self.tables,
            "due": self.due,
            "grades": {grade: self.grades[grade] for grade in GRADES},
            "offers": dict(sorted(self.offers.items())),
            **{
                name: self.sums[name]
                for name in (
                    "open_operations",
                    "freed_bytes",
                    "freed_files",
                    "snapshots",
                    "files",
                    "small_files",
                    "data_bytes",
                    "metadata_bytes",
                )
            },
            "cost": [
                {"currency": name, "month": round(value, 6)} for name, value in sorted(self.money.items())
            ],
        }


def rank(sort: str) -> Callable[[SurveyedTable], Any]:
    """By what tables are put in order.

    Args:
        sort: of `SORTS`; by `freed` those that are broken or unreadable come first.
    """

    def grade(each: SurveyedTable) -> int:
        return -GRADES.index(each.row["grade"])

    def name(each: SurveyedTable) -> str:
        return str(each.row["table"]["name"])

    if sort == "name":
        return name
    if sort == "grade":
        return lambda each: (grade(each), -each.freed_bytes, name(each))
    return lambda each: (not is_bad(each.row), -each.freed_bytes, grade(each), name(each))


def is_bad(row: Mapping[str, Any]) -> bool:
    """Whether a table is broken or cannot be read."""
    return row["grade"] in (BROKEN, UNREADABLE)

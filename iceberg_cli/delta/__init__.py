"""Delta Lake: everything that knows the transaction log protocol. Public: its verbs' policies, and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.table.format import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iceberg_cli.delta.check.table_check import DeltaTableCheck
    from iceberg_cli.delta.inspect.difference import VersionDifference
    from iceberg_cli.delta.inspect.inspector import DeltaTableInspector
    from iceberg_cli.delta.inspect.sample import VersionSample
    from iceberg_cli.delta.open import LogInput
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.delta.unreadable_table import UnreadableDeltaTable
    from iceberg_cli.delta.verbs.assign_row_ids.policy import AssignRowIds
    from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
    from iceberg_cli.delta.verbs.merge_dvs.policy import MergeDvs
    from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
    from iceberg_cli.delta.verbs.rewrite_manifests.policy import RewriteManifests
    from iceberg_cli.delta.verbs.undo.policy import Undo
    from iceberg_cli.delta.verbs.upgrade_v3.policy import UpgradeV3
    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.plan.decision import Decision, Glances
    from iceberg_cli.plan.findings import CheckResult
    from iceberg_cli.plan.inspection import Row, StateSelector
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.storage import Storage
    from iceberg_cli.table.table import OpenRequest

__all__ = [
    "AssignRowIds",
    "ExpireSnapshots",
    "MergeDvs",
    "RewriteDataFiles",
    "RewriteManifests",
    "Undo",
    "UpgradeV3",
]


if not TYPE_CHECKING:  # for whom every name would be one

    def __getattr__(name: str) -> Any:
        """A policy, imported when it is used."""
        return VERBS.policy_called(name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)


class DeltaOpening:
    """See `iceberg_cli.table.format.Opening`."""

    def detect(self, request: OpenRequest) -> bool:
        """Whether the folder has a log."""
        from iceberg_cli.paths import METADATA_SUFFIXES

        if request.location is None or request.location.endswith(METADATA_SUFFIXES):
            return False
        return request.storage.holds_any(f"{request.folder}/_delta_log")

    def open(self, request: OpenRequest, choose_engine: Callable[[Any], None]) -> DeltaTable:
        """The table in a folder."""
        from iceberg_cli.delta.open import open_in_folder

        return open_in_folder(request, choose_engine)

    def open_unreadable(self, request: OpenRequest, damage: CorruptFile) -> UnreadableDeltaTable:
        """The same of a table whose newest version cannot be read."""
        from iceberg_cli.delta.open import open_unreadable

        return open_unreadable(request, damage)

    def scan_input(self, table: DeltaTable) -> LogInput:
        """The log of the newest version."""
        from iceberg_cli.delta.open import LogInput

        return LogInput(table=table)


class DeltaLooking:
    """See `iceberg_cli.table.format.Looking`."""

    inspected: Final = (
        "summary", "history", "schemas", "properties", "files", "deletes", "partitions", "row-ids", "diff", "sample",
        "protocol", "features",
    )  # fmt: skip
    elsewhere: Final = {
        "snapshots": "history",
        "refs": "history: a Delta table has versions and no branches",
        "specs": "schemas, which has the partition columns",
        "manifests": "the summary, which has checkpoints and commits",
        "statistics": "files, whose stats they are",
        "metadata-log": "history",
    }
    state: Final = "version"
    state_options: Final = {"--version": "N", "--at": "TIME"}
    stateless: Final = ("history",)
    recounts: Final = False
    compares: Final = False
    deep_reads: Final = "reads every checkpoint and opens Parquet files too"

    def inspector(self, table: DeltaTable, state: StateSelector, *, as_of_ms: int) -> DeltaTableInspector:
        """Reads about the version that is selected."""
        from iceberg_cli.delta.inspect.inspector import DeltaTableInspector

        snapshot = table.log.snapshot(state.version, at_ms=state.at_ms) if state.given() else table.snapshot
        return DeltaTableInspector(table=table, snapshot=snapshot, as_of_ms=as_of_ms)

    def difference(
        self,
        table: DeltaTable,
        states: tuple[str, str | None],
        *,
        as_of_ms: int,
        now_ms: int,
        by_partition: bool,
        limit: int | None,
    ) -> VersionDifference:
        """Reads what two versions differ in."""
        from iceberg_cli.delta.inspect.difference import VersionDifference, snapshot_named

        before, after = (snapshot_named(table, state, now_ms=now_ms) for state in states)
        return VersionDifference(
            table=table, before=before, after=after, as_of_ms=as_of_ms, by_partition=by_partition, limit=limit
        )

    def sample(
        self, table: DeltaTable, state: StateSelector, columns: Sequence[str], *, as_of_ms: int
    ) -> VersionSample:
        """Reads rows of the version that is selected."""
        from iceberg_cli.delta.inspect.sample import VersionSample

        snapshot = table.log.snapshot(state.version, at_ms=state.at_ms) if state.given() else table.snapshot
        return VersionSample(table=table, snapshot=snapshot, columns=columns, as_of_ms=as_of_ms)

    def quick_check(self, inspector: DeltaTableInspector) -> CheckResult:
        """The version of an inspector and the log's listing against their rules."""
        from iceberg_cli.delta.check.table_check import DeltaTableCheck

        return DeltaTableCheck(table=inspector.table, snapshot=inspector.snapshot, deep=False).run_quick()

    def checker(
        self,
        inspector: DeltaTableInspector,
        *,
        one_state: bool,  # noqa: ARG002 - a table has one newest version
        deep: bool,
        now_ms: int,
        compared: int | None,  # noqa: ARG002 - a commit of the log says itself what it changed
    ) -> DeltaTableCheck:
        """Checks the version of an inspector, and the whole log."""
        from iceberg_cli.delta.check.table_check import DeltaTableCheck

        return DeltaTableCheck(table=inspector.table, snapshot=inspector.snapshot, deep=deep, now_ms=now_ms)


class DeltaSurveying:
    """See `iceberg_cli.table.format.Surveying`."""

    @property
    def glances(self) -> Glances:
        """What a glance at a log tells."""
        from iceberg_cli.delta.inspect.glance import LogGlances

        return LogGlances()

    file_glances: Final = None  # its log is many files

    def glance(self, table: DeltaTable) -> dict[str, Any] | None:
        """The times in its log, and the properties about them."""
        from iceberg_cli.delta.inspect.glance import glance_of

        return glance_of(table)

    def lasts(self, table: DeltaTable, plan: Plan, decision: Decision) -> bool:  # noqa: ARG002 - the port's signature
        """Not where age alone, or metadata of Iceberg, decides about files that the log does not name."""
        from iceberg_cli.delta.verbs.expire_snapshots.plan import goes_by_the_log

        return goes_by_the_log(table, plan)

    def folder_version(self, storage: Storage, folder: str) -> str | None:
        """By all files of the log."""
        from iceberg_cli.delta.spec.log import LOG
        from iceberg_cli.storage.listing_digest import listing_digest

        log = f"{folder}/{LOG}"
        return listing_digest(log, storage.list(log))

    def fleet_columns(self, summary: Row) -> dict[str, Any]:
        """The columns of `fleet/1` about size and shape."""
        from iceberg_cli.delta.inspect.summary import fleet_columns

        return fleet_columns(summary)


def _file_kinds() -> Sequence[str]:
    from iceberg_cli.plan.removal_rows import DELTA_KINDS  # loads Arrow

    return DELTA_KINDS


FORMAT: Final = Format(
    name="delta",
    title=("a", "Delta"),
    opening=DeltaOpening(),
    verbs=VERBS,
    looking=DeltaLooking(),
    surveying=DeltaSurveying(),
    has_protocol=True,
    file_kinds=_file_kinds,
)

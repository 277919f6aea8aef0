"""Apache Iceberg: everything that knows the format. Public: the policies of its verbs, and the format itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.table.format import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.iceberg.check.table_check import TableCheck
    from iceberg_cli.iceberg.inspect.difference import SnapshotDifference
    from iceberg_cli.iceberg.inspect.inspector import TableInspector
    from iceberg_cli.iceberg.inspect.sample import SnapshotSample
    from iceberg_cli.iceberg.open import ManifestInput
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.iceberg.unreadable_table import UnreadableIcebergTable
    from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
    from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
    from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
    from iceberg_cli.iceberg.verbs.remove_orphan_files.policy import RemoveOrphanFiles
    from iceberg_cli.iceberg.verbs.restore.policy import Restore
    from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
    from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
    from iceberg_cli.iceberg.verbs.tag.policy import Tag
    from iceberg_cli.iceberg.verbs.undo.policy import Undo
    from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
    from iceberg_cli.plan.decision import Decision, FileGlances
    from iceberg_cli.plan.findings import CheckResult
    from iceberg_cli.plan.inspection import Row, StateSelector
    from iceberg_cli.plan.plan import Plan
    from iceberg_cli.storage import Storage
    from iceberg_cli.table.table import OpenRequest

__all__ = [
    "AssignRowIds",
    "ExpireSnapshots",
    "MergeDvs",
    "RemoveOrphanFiles",
    "Restore",
    "RewriteDataFiles",
    "RewriteManifests",
    "Tag",
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


class IcebergOpening:
    """See `iceberg_cli.table.format.Opening`."""

    def detect(self, request: OpenRequest) -> bool:  # noqa: ARG002 - the port's signature
        """Whatever no other format knows, so that it is refused by what Iceberg's would be."""
        return True

    def open(self, request: OpenRequest, choose_engine: Callable[[Any], None]) -> IcebergTable:
        """The table of a catalog, in a folder or of a metadata file."""
        from iceberg_cli.iceberg.open import open_named

        return open_named(request, choose_engine)

    def open_unreadable(self, request: OpenRequest, damage: CorruptFile) -> UnreadableIcebergTable:
        """The same of a table whose current metadata file cannot be read."""
        from iceberg_cli.iceberg.open import open_unreadable

        return open_unreadable(request, damage)

    def scan_input(self, table: IcebergTable) -> ManifestInput:
        """The current manifests."""
        from iceberg_cli.iceberg.open import ManifestInput

        return ManifestInput(table=table)


class IcebergLooking:
    """See `iceberg_cli.table.format.Looking`."""

    inspected: Final = (
        "summary", "snapshots", "refs", "history", "schemas", "specs", "properties", "manifests", "files", "deletes",
        "partitions", "statistics", "metadata-log", "row-ids", "diff", "sample",
    )  # fmt: skip
    elsewhere: Final = {
        "protocol": "format_version in the summary",
        "features": "format_version in the summary, or properties",
    }
    state: Final = "snapshot"
    state_options: Final = {"--snapshot": "ID", "--ref": "NAME", "--at": "TIME"}
    stateless: Final = (
        "snapshots", "refs", "history", "schemas", "specs", "properties", "statistics", "metadata-log",
    )  # fmt: skip
    recounts: Final = True
    compares: Final = True
    deep_reads: Final = "opens Puffin and Parquet files too"

    def inspector(self, table: IcebergTable, state: StateSelector, *, as_of_ms: int) -> TableInspector:
        """Reads about the snapshot that is selected."""
        from iceberg_cli.iceberg.inspect.inspector import TableInspector
        from iceberg_cli.iceberg.inspect.metadata_rows import select_snapshot

        chosen = select_snapshot(
            table.metadata, snapshot_id=state.snapshot_id, ref=state.ref, at_ms=state.at_ms
        )
        return TableInspector(table=table, snapshot=chosen, as_of_ms=as_of_ms)

    def difference(
        self,
        table: IcebergTable,
        states: tuple[str, str | None],
        *,
        as_of_ms: int,
        now_ms: int,
        by_partition: bool,
        limit: int | None,
    ) -> SnapshotDifference:
        """Reads what two snapshots differ in."""
        from iceberg_cli.iceberg.inspect.difference import SnapshotDifference, state_named

        before, after = (state_named(table.metadata, state, now_ms=now_ms) for state in states)
        return SnapshotDifference(
            table=table, before=before, after=after, as_of_ms=as_of_ms, by_partition=by_partition, limit=limit
        )

    def sample(
        self, table: IcebergTable, state: StateSelector, columns: Sequence[str], *, as_of_ms: int
    ) -> SnapshotSample:
        """Reads rows of the snapshot that is selected: of a branch by the table's schema, else by the snapshot's."""
        from iceberg_cli.iceberg.inspect.metadata_rows import select_snapshot
        from iceberg_cli.iceberg.inspect.sample import SnapshotSample, schema_of

        metadata = table.metadata
        chosen = select_snapshot(metadata, snapshot_id=state.snapshot_id, ref=state.ref, at_ms=state.at_ms)
        schema = schema_of(metadata, chosen, state)
        return SnapshotSample(table=table, snapshot=chosen, schema=schema, columns=columns, as_of_ms=as_of_ms)

    def quick_check(self, inspector: TableInspector) -> CheckResult:
        """The metadata of an inspected table against the rules about it."""
        from iceberg_cli.iceberg.check.metadata import check_metadata
        from iceberg_cli.iceberg.check.rules import RULES
        from iceberg_cli.plan.findings import CheckResult, Findings

        findings = Findings()
        check_metadata(inspector.table.metadata, findings)
        return CheckResult(rules=RULES, found=findings, deep=False, checked={})

    def checker(
        self, inspector: TableInspector, *, one_state: bool, deep: bool, now_ms: int, compared: int | None
    ) -> TableCheck:
        """Checks the snapshot of an inspector, or the heads of all branches and tags."""
        from iceberg_cli.iceberg.check.compactions import COMPARED
        from iceberg_cli.iceberg.check.table_check import TableCheck, heads_of

        heads = heads_of(inspector.table.metadata, inspector.snapshot if one_state else None)
        return TableCheck(
            table=inspector.table,
            heads=heads,
            deep=deep,
            now_ms=now_ms,
            compactions=COMPARED if compared is None else compared,
        )


class IcebergSurveying:
    """See `iceberg_cli.table.format.Surveying`."""

    @property
    def glances(self) -> FileGlances:
        """What a metadata file tells."""
        from iceberg_cli.iceberg.inspect.glance import MetadataGlances

        return MetadataGlances()

    file_glances = glances

    def glance(self, table: IcebergTable) -> dict[str, Any]:
        """What its metadata tells of expiries."""
        from iceberg_cli.iceberg.inspect.glance import glance_of_metadata

        return glance_of_metadata(table.metadata)

    def lasts(self, table: IcebergTable, plan: Plan, decision: Decision) -> bool:
        """All that goes is named by metadata; what else blocks a plan in a catalog may be otherwise next time."""
        return table.committer.by_file_names or set(plan.blocked_by) <= set(decision.blocked_by)

    def folder_version(self, storage: Storage, folder: str) -> str | None:
        """By the metadata files and the version hint, for their names have numbers that may come again."""
        from iceberg_cli.iceberg.catalogs.files.versions import pointing_files
        from iceberg_cli.storage.listing_digest import listing_digest

        return listing_digest(f"{folder}/metadata", pointing_files(folder, storage))

    def fleet_columns(self, summary: Row) -> dict[str, Any]:
        """The columns of `fleet/1` about size and shape."""
        from iceberg_cli.iceberg.inspect.summary import fleet_columns

        return fleet_columns(summary)


def _file_kinds() -> Sequence[str]:
    from iceberg_cli.plan.removal_rows import ICEBERG_KINDS  # loads Arrow

    return ICEBERG_KINDS


FORMAT: Final = Format(
    name="iceberg",
    title=("an", "Iceberg"),
    opening=IcebergOpening(),
    verbs=VERBS,
    looking=IcebergLooking(),
    surveying=IcebergSurveying(),
    file_kinds=_file_kinds,
)

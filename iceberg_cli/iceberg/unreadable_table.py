"""An Iceberg table whose current metadata file cannot be read: which older one can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.files.versions import number_of
from iceberg_cli.iceberg.check.rules import METADATA_UNREADABLE
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.paths import METADATA_SUFFIXES
from iceberg_cli.plan.findings import CheckResult, Findings, reason_of
from iceberg_cli.plan.inspection import INSPECTION_SCHEMA
from iceberg_cli.plan.text import iso
from iceberg_cli.table.unreadable_table import UnreadableTable, newest_readable_message

_TRIES: Final = 20  # older metadata files that are tried


@dataclass(kw_only=True)
class UnreadableIcebergTable(UnreadableTable):
    """One Iceberg table whose current metadata file cannot be read.

    Args:
        committer: how its pointer moves.
    """

    format: ClassVar[str] = "iceberg"
    committer: Committer

    def pointer(self) -> str:
        """The current metadata file."""
        return self.committer.current()

    def header(self, *, as_of_ms: int) -> dict[str, Any]:
        """By the newest older metadata file that can be read."""
        location = self.pointer()
        older = self._older(location)
        return {
            "schema": INSPECTION_SCHEMA,
            "what": "check",
            "table": dict(self.identity),
            "format": self.format,
            "format_version": None if older is None else older[1].format_version,
            "table_uuid": None if older is None else older[1].table_uuid,
            "location": self.location,
            "metadata_location": location,
            "current_snapshot_id": None,
            "as_of_ms": as_of_ms,
            "as_of": iso(as_of_ms),
        }

    def check(self) -> CheckResult:
        """The file that cannot be read, and the newest older one that can."""
        findings, damage = Findings(), self.damage
        older = self._older(self.pointer())
        which = None if older is None else f"{older[0]}, of {iso(older[1].last_updated_ms)},"
        rule = "metadata-unreadable"
        findings.add(rule, damage.path, newest_readable_message(reason_of(damage), which))
        return CheckResult(
            rules={rule: METADATA_UNREADABLE},
            found=findings,
            deep=False,
            checked={"snapshots": 0, "manifests": 0, "files": 0},
            fields={"snapshot_ids": []},
        )

    def _older(self, current: str) -> tuple[str, TableMetadata] | None:
        """The newest metadata file beside the current one that is older and can be read, and its content."""
        folder = current.rpartition("/")[0]
        files = [info for info in self.storage.list(folder) if info.path.rpartition("/")[0] == folder]
        older = [
            info
            for info in files
            if info.path.endswith(METADATA_SUFFIXES)
            and info.path != current
            and 0 <= number_of(info.path) <= number_of(current)
        ]
        older.sort(key=lambda info: (number_of(info.path), info.modified_ms), reverse=True)
        for info in older[:_TRIES]:
            try:
                document = decode_metadata_file(self.storage.read(info.path), info.path)
                return info.path, TableMetadata.from_json(document, path=info.path)
            except (CorruptFile, Refused, FileNotFoundError):
                continue
        return None

"""A Delta table whose newest version cannot be read: what of its log is damaged, and which older version would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from iceberg_cli.delta.check.rules import RULES
from iceberg_cli.delta.check.state import check_listing
from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.spec.log import Listing
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.plan.findings import CheckResult, Findings, reason_of
from iceberg_cli.plan.inspection import INSPECTION_SCHEMA
from iceberg_cli.plan.text import iso
from iceberg_cli.table.unreadable_table import UnreadableTable, newest_readable_message

_TRIES: Final = 20  # older versions that are tried


@dataclass(kw_only=True)
class UnreadableDeltaTable(UnreadableTable):
    """One Delta table whose newest version cannot be read.

    Args:
        log: of the table.
    """

    format: ClassVar[str] = "delta"
    log: DeltaLog

    def pointer(self) -> str:
        """The newest version in the log."""
        return str(self.log.listing().latest)

    def header(self, *, as_of_ms: int) -> dict[str, Any]:
        """By the newest older version that can be read."""
        listing = self.log.listing()
        older = self._older(listing)
        return {
            "schema": INSPECTION_SCHEMA,
            "what": "check",
            "table": dict(self.identity),
            "format": self.format,
            "format_version": None if older is None else older.protocol.min_writer_version,
            "table_uuid": None if older is None else older.metadata.id,
            "location": self.location,
            "version": listing.latest,
            "as_of_ms": as_of_ms,
            "as_of": iso(as_of_ms),
        }

    def check(self) -> CheckResult:
        """Every commit that is gone or cannot be read, and the file that made the newest version unreadable."""
        listing, findings = self.log.listing(), Findings()
        check_listing(listing, self.log.folder, findings)
        unreadable = self._unreadable_commits(listing)
        for path, message in unreadable.items():
            findings.add("commit-unreadable", path, message)
        damage, missing = self.damage, "commit-missing" in findings.totals
        if damage.path not in unreadable and not (missing and damage.path.endswith(".json")):
            of_checkpoint = ".checkpoint" in damage.path or "/_sidecars/" in damage.path
            rule = "checkpoint-unreadable" if of_checkpoint else "commit-unreadable"
            findings.add(rule, damage.path, reason_of(damage))
        older = self._older(listing)
        where = None if older is None else f"version {older.version}"
        for examples in findings.examples.values():
            path, message = examples[-1]
            examples[-1] = path, newest_readable_message(message, where)
        checked = {"commits": len(listing.commits), "checkpoints": 0, "checksums": 0, "files": 0}
        return CheckResult(rules=RULES, found=findings, deep=False, checked=checked)

    def _unreadable_commits(self, listing: Listing) -> Mapping[str, str]:
        """What is wrong with each commit that cannot be read, by path."""
        found = {}
        for file in listing.commits:
            try:
                self.log.commits(file.version, file.version, listing=listing)
            except CorruptFile as error:
                found[error.path] = reason_of(error)
        return found

    def _older(self, listing: Listing) -> Snapshot | None:
        """The newest version that can be read, None where none of the last ones can."""
        for version in range(listing.latest - 1, max(-1, listing.latest - 1 - _TRIES), -1):
            try:
                return self.log.snapshot(version, listing=listing)
            except (CorruptFile, Refused, UsageError):
                continue
        return None

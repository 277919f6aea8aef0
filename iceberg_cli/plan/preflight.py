"""Findings of an upgrade's preflight, and the `preflight/2` document of both formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.plan.findings import INFO, WARNING, Finding

SCHEMA: Final = "iceberg-cli/preflight/2"
BLOCKING: Final = "blocking"
SECTIONS: Final[Mapping[str, str]] = {
    # Iceberg
    "inline-manifests": "Snapshots",
    "uncounted-manifests": "Manifest Lists",
    "missing-manifest-list": "Snapshots",
    "repair-blocked": "Appendix E",
    "file-unreadable": "Manifests",
    "upgrade-refused": "Format Versioning",
    "encryption-keys": "Encryption Keys",
    "unknown-type": "Primitive Types",
    "unknown-transform": "Partition Transforms",
    "unknown-field": "Table Metadata Fields",
    "writer-reads-v3": "Appendix E",
    "writer-reads-v3-partly": "Appendix E",
    "writer-without-v3": "Appendix E",
    "writer-unknown": "Appendix E",
    "equality-deletes": "Row Lineage",
    "position-deletes": "Delete Formats",
    "rows-without-ids": "Row Lineage for Upgraded Tables",
    "snapshots-without-ids": "Row Lineage for Upgraded Tables",
    "v1-manifest-lists": "Appendix E",
    "rare-type": "Primitive Types",
    "default-values": "Default values",
    "multi-argument-transform": "Partition Transforms",
    "deletion-vectors": "Deletion Vectors",
    "already-v3": "Format Versioning",
    "no-table-uuid": "Table Metadata Fields",
    "partition-field-ids": "Partitioning",
    # Delta, which has upgrade-refused as well
    "deletion-vectors-excluded": "Deletion Vectors",
    "column-mapping-undeclared": "Column Mapping",
    "data-files-not-parquet": "Format Specification",
    "change-data-column": "Add CDC File",
    "passed-over": "Delta Log Entries",
    "feature-turned-on": "Table Features",
    "feature-kept": "Table Features",
    "client-lacks-features": "Table Features",
    "client-unknown": "Table Features",
    "client-knows-features": "Table Features",
}
"""The section of the format's specification that each rule is about."""


def blocking(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding that blocks the upgrade; `id_` is one of `SECTIONS`."""
    return _finding(id_, BLOCKING, where, message, remedy)


def warning(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding that is a warning."""
    return _finding(id_, WARNING, where, message, remedy)


def info(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding that only informs."""
    return _finding(id_, INFO, where, message, remedy)


def _finding(id_: str, severity: str, where: str, message: str, remedy: str) -> Finding:
    return Finding(
        id=id_, severity=severity, where=where, message=message, section=SECTIONS[id_], remedy=remedy
    )


def worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by their severity, else in the order in which they were found."""
    return tuple(sorted(found, key=lambda each: (BLOCKING, WARNING, INFO).index(each.severity)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The findings on one table.

    Args:
        findings: the blocking ones first.
        table: its `name`, `location`, `format` and `format_version`.
        base: the version of the table that was checked, in its JSON form.
        target: {`format_version`}, or of a Delta table {`min_reader_version`, `min_writer_version`, `features`}.
        recipe: the steps that are done together with the upgrade.
        nothing_due: why there is nothing to upgrade, or "".
    """

    findings: tuple[Finding, ...]
    table: Mapping[str, Any]
    base: Mapping[str, Any]
    target: Mapping[str, Any]
    recipe: Sequence[str] = ()
    nothing_due: str = ""

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The findings that block the upgrade."""
        return tuple(each for each in self.findings if each.severity == BLOCKING)

    def to_json(self) -> dict[str, Any]:
        """The `preflight/2` document."""
        return {
            "schema": SCHEMA,
            "table": dict(self.table),
            "base": dict(self.base),
            "target": dict(self.target),
            "with": list(self.recipe),
            "blocked": bool(self.blocking),
            "findings": [each.to_json() for each in self.findings],
        }

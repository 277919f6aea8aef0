"""What a preflight finds, one by one and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.iceberg import v3_readers

SCHEMA: Final = "iceberg-cli/preflight/1"
BLOCKING, WARNING, INFO = "blocking", "warning", "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know before an upgrade.

    `remedy` is the command that gets it out of the way, or shows more of it.
    """

    id: str
    severity: str  # blocking, warning, info
    where: str
    message: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """JSON form."""
        return {
            "id": self.id,
            "severity": self.severity,
            "where": self.where,
            "message": self.message,
            "remedy": self.remedy,
        }


def blocking(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding of this severity."""
    return Finding(id=id_, severity=BLOCKING, where=where, message=message, remedy=remedy)


def warning(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding of this severity."""
    return Finding(id=id_, severity=WARNING, where=where, message=message, remedy=remedy)


def info(id_: str, where: str, message: str, remedy: str) -> Finding:
    """A finding of this severity."""
    return Finding(id=id_, severity=INFO, where=where, message=message, remedy=remedy)


def document(
    made: Sequence[Finding], *, table: Mapping[str, Any], metadata_location: str, recipe: Sequence[str]
) -> dict[str, Any]:
    """The `preflight/1` document."""
    return {
        "schema": SCHEMA,
        "table": dict(table),
        "metadata_location": metadata_location,
        "target_format_version": 3,
        "with": list(recipe),
        "readers_as_of": v3_readers.AS_OF,
        "blocked": any(each.severity == BLOCKING for each in made),
        "findings": [each.to_json() for each in made],
    }

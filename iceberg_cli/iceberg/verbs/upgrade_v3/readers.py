"""The support of format version 3 by the writers that snapshot summaries name, as of a date.

Apache Iceberg's library was measured in 1.11 and 1.12; that deletion vectors came with 1.8 and row ids with 1.10 was
not. Trino's release notes name deletes in version 3 tables for 480, and row ids for no release up to 481.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AS_OF: Final = "2026-05"  # of this table
# Its error is that the required sequence_number is null; a manifest list of version 1 has none, which stands for 0.
NO_V1_LISTS: Final = "DuckDB 1.5"
NO_V1_LISTS_AS_OF: Final = "1.5.5, 2026-11"
READS, PARTLY, NOT, UNKNOWN = "reads", "partly", "not", "unknown"

_LIBRARY = re.compile(r"Apache Iceberg (\d+)\.(\d+)")
_NUMBER = re.compile(r"\d+")
_LIBRARY_PARTLY: Final = (1, 8)
_LIBRARY_READS: Final = (1, 10)
_TRINO_PARTLY: Final = 480  # it has readers of its own, so its library decides nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The engine and library that made a snapshot, and their support of version 3.

    Args:
        name: engine and version, as summaries spell them; "an unnamed writer" where they have none.
        library: of Apache Iceberg's library, or "".
        support: of version 3: `READS`, `PARTLY`, `NOT` or `UNKNOWN`.
        why: the reason of the verdict.
    """

    name: str
    library: str
    support: str
    why: str


def writer_of(summary: Mapping[str, str] | None) -> Writer:
    """The writer of a snapshot, by its summary."""
    found = summary or {}
    engine, version = found.get("engine-name", ""), found.get("engine-version", "")
    if not engine and "trino_query_id" in found:
        engine = "trino"
    library = found.get("iceberg-version", "").partition(" (")[0]
    name = " ".join(part for part in (engine, version) if part) or library or "an unnamed writer"
    support, why = _judged(engine, version, library)
    return Writer(name=name, library=library, support=support, why=why)


def _judged(engine: str, version: str, library: str) -> tuple[str, str]:
    if engine == "trino":
        number = _NUMBER.match(version)
        if number is None:
            return UNKNOWN, f"Trino reads version 3 since {_TRINO_PARTLY}, and its snapshots name no release"
        if int(number[0]) >= _TRINO_PARTLY:
            return PARTLY, "it reads deletion vectors; its release notes do not say that it keeps row ids"
        return NOT, f"Trino reads version 3 since {_TRINO_PARTLY} only"
    match = _LIBRARY.match(library)
    if match is None:
        return UNKNOWN, "its snapshots do not say which library it has"
    release = (int(match[1]), int(match[2]))
    if release >= _LIBRARY_READS:
        return READS, f"{library} reads version 3, deletion vectors and row ids"
    if release >= _LIBRARY_PARTLY:
        return PARTLY, f"{library} reads deletion vectors, and keeps row ids only since 1.10"
    return NOT, f"{library} does not read deletion vectors, which Apache Iceberg does since 1.8"

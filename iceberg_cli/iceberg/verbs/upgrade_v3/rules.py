"""upgrade-v3: the updates of the commit that sets format version 3.

Spec: Appendix E; "Row Lineage for Upgraded Tables".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.iceberg.spec.metadata import TableMetadata

TARGET: Final = 3
COLUMNS: Final = (
    "upgraded_tables_count",
    "repaired_heads_count",
    "recounted_manifests_count",
    "dropped_tags_count",
)


def updates(metadata: TableMetadata) -> tuple[Mapping[str, Any], ...]:
    """The updates of the one metadata commit that upgrades, in the REST specification's wire form.

    A version 1 table may lack a UUID, which later versions require. It comes from the location and last update, so that
    every plan gives a table the same one.
    """
    found: tuple[Mapping[str, Any], ...] = ()
    if metadata.table_uuid is None:
        own = uuid.uuid5(uuid.NAMESPACE_URL, f"{metadata.location}#{metadata.last_updated_ms}")
        found = ({"action": "assign-uuid", "uuid": str(own)},)
    return (*found, {"action": "upgrade-format-version", "format-version": TARGET})

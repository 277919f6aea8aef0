"""upgrade-v3: the policy, and the updates of the commit that sets format version 3.

Spec: Appendix E; "Row Lineage for Upgraded Tables".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.plan.policy import policy_fields

VERB_NAME: Final = "upgrade-v3"
TARGET: Final = 3
REPAIR, MERGE, ASSIGN = "repair-manifests", "merge-dvs", "assign-row-ids"
RECIPE: Final = (REPAIR, MERGE, ASSIGN)  # in the order in which they run, the upgrade after the first
REFUSE, DROP, KEEP = "refuse", "drop", "keep"
COLUMNS: Final = (
    "upgraded_tables_count",
    "repaired_heads_count",
    "recounted_manifests_count",
    "dropped_tags_count",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePolicy:
    """The options of upgrade-v3.

    Args:
        recipe: of `RECIPE`.
        tags: of snapshots that obstruct the upgrade: `REFUSE`, `DROP` or `KEEP` them.
    """

    recipe: tuple[str, ...] = ()
    tags: str = REFUSE

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"with": list(self.recipe), "tags": self.tags}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> UpgradePolicy:
        """Inverse of `to_json`.

        Raises:
            UsageError: a field is missing, unknown or of another type.
        """
        shape = {"with": [frozenset(RECIPE)], "tags": frozenset({REFUSE, DROP, KEEP})}
        fields = policy_fields(value, shape)
        return cls(recipe=fields["with"], tags=fields["tags"])


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

"""Apache Iceberg: everything that knows the format. Public: the policies of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.iceberg.verbs.assign_row_ids.policy import AssignRowIds
    from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
    from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
    from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
    from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3

__all__ = ["AssignRowIds", "ExpireSnapshots", "MergeDvs", "RewriteManifests", "UpgradeV3"]


def __getattr__(name: str) -> Any:
    """A policy, imported when it is used."""
    from iceberg_cli.operation.verbs import policy_called

    return policy_called(__name__, name)

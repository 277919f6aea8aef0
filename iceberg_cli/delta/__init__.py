"""Delta Lake: everything that knows the transaction log protocol. Public: the policies of its verbs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.delta.verbs.assign_row_ids.policy import AssignRowIds
    from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
    from iceberg_cli.delta.verbs.merge_dvs.policy import MergeDvs
    from iceberg_cli.delta.verbs.rewrite_manifests.policy import RewriteManifests
    from iceberg_cli.delta.verbs.upgrade_v3.policy import UpgradeV3

__all__ = ["AssignRowIds", "ExpireSnapshots", "MergeDvs", "RewriteManifests", "UpgradeV3"]

_FOLDER_OF = {
    "AssignRowIds": "assign_row_ids",
    "ExpireSnapshots": "expire_snapshots",
    "MergeDvs": "merge_dvs",
    "RewriteManifests": "rewrite_manifests",
    "UpgradeV3": "upgrade_v3",
}


def __getattr__(name: str) -> Any:
    """A policy, imported when it is used."""
    if name not in _FOLDER_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.verbs.{_FOLDER_OF[name]}.policy"), name)

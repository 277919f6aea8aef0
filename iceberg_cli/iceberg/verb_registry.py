"""The verbs of Iceberg tables by name. One more is its folder in `verbs/` and its name here."""

from __future__ import annotations

from typing import Final

from iceberg_cli.operation.verbs import Verbs

VERBS: Final = Verbs(
    "iceberg_cli.iceberg.verbs",
    "expire-snapshots",
    "rewrite-manifests",
    "merge-dvs",
    "upgrade-v3",
    "assign-row-ids",
    "rewrite-data-files",
    "remove-orphan-files",
    "undo",
    "restore",
    "tag",
    seen_by_inspect=("expire-snapshots", "rewrite-manifests", "merge-dvs"),
)

"""The verbs of Delta tables by name. One more is its folder in `verbs/` and its name here."""

from __future__ import annotations

from typing import Final

from iceberg_cli.operation.verbs import Verbs

VERBS: Final = Verbs(
    "iceberg_cli.delta.verbs",
    "expire-snapshots",
    "rewrite-manifests",
    "rewrite-data-files",
    "merge-dvs",
    "upgrade-v3",
    "assign-row-ids",
    "undo",
    instead={
        "remove-orphan-files": "`expire-snapshots TABLE --mode full` deletes what no version of a Delta table needs.",
        "restore": "Delta has its own: `RESTORE TABLE ... TO VERSION AS OF N` in Spark, `restore` in delta-rs.",
        "tag": "Delta has no tags: no name holds a version. `delta.deletedFileRetentionDuration` says how long VACUUM "
        "leaves what old versions need.",
    },
)

"""The commands, as the command line has them."""

from __future__ import annotations

VERBS = (
    "expire-snapshots", "rewrite-manifests", "merge-dvs", "upgrade-v3", "assign-row-ids", "rewrite-data-files",
    "remove-orphan-files", "undo", "restore", "tag",
)  # fmt: skip
COMMANDS = (
    "inspect", "plan", *VERBS, "apply", "resume", "history", "demo", "policy", "config", "completion", "list", "survey",
    "maintain",
)  # fmt: skip

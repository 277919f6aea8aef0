"""The commands, as the command line has them."""

from __future__ import annotations

COMMANDS = (
    "inspect",
    "plan",
    "expire-snapshots",
    "rewrite-manifests",
    "merge-dvs",
    "upgrade-v3",
    "assign-row-ids",
    "apply",
    "resume",
    "demo",
    "completion",
)

"""The kinds of files that a table has, in words."""

from __future__ import annotations

from typing import Final

KIND_NAMES: Final = {
    "orphan_file": "orphan files",
    "data_file": "data files",
    "position_delete_file": "position delete files",
    "equality_delete_file": "equality delete files",
    "statistics_file": "statistics files",
    "manifest_file": "manifests",
    "manifest_list": "manifest lists",
    "metadata_file": "metadata files",
    "deletion_vector_file": "deletion vector files",
    "change_data_file": "change data files",
    "untracked_file": "untracked files",
    "compacted_file": "compacted log files",
    "checksum_file": "version checksums",
    "commit_file": "commits of the log",
    "checkpoint_file": "checkpoint files",
    "sidecar_file": "checkpoint sidecars",
}

"""Processes that die before a commit, and tables that are opened after."""

from __future__ import annotations

from pathlib import Path

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from tests.delta_opened import unseen

DAY_MS = 86_400_000


REWRITE = RewriteManifests(target_size=8 << 10).to_json()


class Died(BaseException):
    """The process ends."""


def opened(root: Path) -> IcebergTable | DeltaTable:
    return open_table(str(root), storage_options={}, on_event=unseen)

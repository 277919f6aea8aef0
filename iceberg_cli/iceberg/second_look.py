"""The look at a table right before its files are deleted: what it reaches then, and whether it forbids that by then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import Bools
from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.metadata_beside import MetadataBeside
from iceberg_cli.iceberg.ownership import files_of_metadata
from iceberg_cli.iceberg.reachability.keys import KnownKeys, keys_of
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.unknown_metadata import forgotten_metadata, reached
from iceberg_cli.plan.plan import Plan

STATE: Final = "The commit is done. Some unreferenced files are still there."


@dataclass(kw_only=True)
class SecondLook:
    """The keys of all that a table reaches, of its newest version.

    Args:
        reachability: what was read of manifests.
        beside: the metadata files beside the table's own.
        newest: loads the table; its metadata, and where that is.
    """

    reachability: Reachability
    beside: MetadataBeside
    newest: Callable[[], tuple[TableMetadata, str]]
    _live: KnownKeys | None = field(default=None, init=False)
    _location: str = field(default="", init=False)

    def unreached(self, request: pa.Table, plan: Plan) -> Bools:
        """Which of n removals neither the table reaches by their paths, looked at now, nor metadata files beside it.

        Args:
            request: rows of `plan.removal_rows.SCHEMA`.
            plan: that lists them, and says which metadata files are none of any table.
        """
        live = self._live_now()
        paths = request["path"].cast(pa.string()).combine_chunks()
        # A link that the operator allowed can lead to a file that the table reaches by another name.
        names = [keys_of(request["as_written"]), keys_of(paths), *self.reachability.other_keys(paths)]
        known = live.contains(np.concatenate(names)).reshape(len(names), -1)
        found: Bools = np.logical_or.reduce(known, axis=0)
        return ~found & ~reached(request, self.beside.unknown(forgotten_metadata(plan)))

    def _live_now(self) -> KnownKeys:
        metadata, location = self.newest()
        if self._live is None or self._location != location:
            self._live = self.reachability.everything_live(
                [snapshot_files(each) for each in metadata.snapshots], files_of_metadata(metadata, location)
            )
            self._location = location
        return self._live


def check_deletions_allowed(name: str, metadata: TableMetadata) -> None:
    """Ask again what forbids deletions: a property may have been set since the commit.

    Raises:
        Refused: the table `name` forbids them.
    """
    if not metadata.property_bool("gc.enabled", default=True):
        raise Refused(
            f"Cannot delete files of {name}: table property gc.enabled is not true any more",
            state=STATE,
            next_step="Set gc.enabled=true and `resume`, or close the operation with `resume --abandon`.",
        )


def check_owner(name: str, reason: str | None) -> None:
    """Refuse to delete files of the table `name` where another one has come to share its folder.

    Args:
        name: of the table.
        reason: which one, or None.

    Raises:
        Refused: one has.
    """
    if reason is not None:
        raise Refused(
            f"Cannot delete files of {name} any more: {reason}",
            state=STATE,
            next_step="`resume --abandon` closes the operation and leaves them.",
        )

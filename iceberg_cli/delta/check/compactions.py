"""Files that a compaction replaced, and that a writer which did not look added again: their rows are live twice.

`compaction-delta.md` E9 and hazard 31.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.plan.findings import Findings

_Partition = frozenset[tuple[str, str | None]]


def check_compacted_files(actions: Actions, snapshot: Snapshot, findings: Findings) -> None:
    """Tell of active files that a commit rewrote to others, which are active too.

    Args:
        actions: of commits that follow each other.
        snapshot: the version that is checked.
        findings: which are added to.
    """
    live, removed = snapshot.adds["path"], actions.removes["path"].combine_chunks()
    if not pc.any(pc.is_in(live, value_set=removed)).as_py():
        return
    rewrites = _Rewrites.of(actions, live)
    outputs: dict[tuple[int, _Partition], list[str]] = {}  # files of one commit and partition share them
    for row, version in rewrites.last_before(snapshot):
        place = version, _partition(snapshot.adds["partitionValues"][row].as_py())
        if place not in outputs:
            outputs[place] = rewrites.still_active(*place)
        if outputs[place]:
            message = (
                f"version {version} rewrote its rows to other files, of which {outputs[place][0]} is active, and "
                f"version {snapshot.add_versions[row]} added it again: its rows are in the table twice"
            )
            findings.add("compacted-file-added-again", live[row].as_py(), message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrites:
    """What commits wrote anew without a change of rows.

    Args:
        removes: files with the version that replaced them: `path`, `version`.
        adds: likewise of those that took their place, with their `partition`, and whether each `is_active`.
    """

    removes: pa.Table
    adds: pa.Table

    @classmethod
    def of(cls, actions: Actions, live: pa.ChunkedArray) -> Self:
        """Those of some commits, by the paths that are active."""
        removes = pa.table({"path": actions.removes["path"], "version": actions.remove_versions})
        adds = pa.table(
            {
                "path": actions.adds["path"],
                "version": actions.add_versions,
                "partition": actions.adds["partitionValues"],
                "is_active": pc.is_in(actions.adds["path"], value_set=live.combine_chunks()),
            }
        )
        removes = removes.filter(pc.invert(actions.removes["dataChange"]))
        adds = adds.filter(pc.invert(actions.adds["dataChange"]))
        # A file that has another deletion vector, or another id, is removed and added at once.
        stays = removes.join(adds.select(["path", "version"]), ["path", "version"], join_type="left anti")
        return cls(removes=stays, adds=adds)

    def last_before(self, snapshot: Snapshot) -> list[tuple[int, int]]:
        """The rows of active files that were replaced before they were added, each with the last such version."""
        added = pa.table({"path": snapshot.adds["path"], "added": snapshot.add_versions})
        added = added.append_column("row", pa.array(np.arange(len(added))))
        pairs = self.removes.join(added, "path", join_type="inner")
        pairs = pairs.filter(pc.less(pairs["version"], pairs["added"]))
        found = pairs.group_by("row").aggregate([("version", "max")]).sort_by("row")
        return [*zip(found["row"].to_pylist(), found["version_max"].to_pylist(), strict=True)]

    def still_active(self, version: int, partition: _Partition) -> list[str]:
        """The files that a version wrote for a partition, or that took their place since, and that are active."""
        found: list[str] = []
        versions, seen = [version], set[int]()
        while versions:
            version = versions.pop()
            seen.add(version)
            written = self.adds.filter(pc.equal(self.adds["version"], version)).to_pylist()
            own = [each for each in written if _partition(each["partition"]) == partition]
            found += [each["path"] for each in own if each["is_active"]]
            gone = pa.array([each["path"] for each in own if not each["is_active"]], pa.string())
            later = self.removes.filter(
                pc.and_(
                    pc.is_in(self.removes["path"], value_set=gone),
                    pc.greater(self.removes["version"], version),
                )
            )
            versions += {*later["version"].to_pylist()} - seen
        return sorted(found)


def _partition(values: Any) -> _Partition:
    return frozenset((name, value or None) for name, value in dict(values or ()).items())

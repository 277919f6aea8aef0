"""Files that a compaction replaced, and that a writer which did not look added again: their rows are live twice.

`compaction-delta.md` E9 and hazard 31.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.plan.findings import Findings


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
    rewritten = _Rewrites.of(actions)
    again = np.flatnonzero(pc.is_in(live, value_set=rewritten.removes["path"].combine_chunks()))
    active = set(live.to_pylist()) if len(again) else set()
    for row in again.tolist():  # of which there are few, so that each is looked up by itself
        path, added = live[row].as_py(), int(snapshot.add_versions[row])
        version = rewritten.last_before(path, added)
        if version is None:
            continue
        outputs = rewritten.still_active(version, snapshot.adds["partitionValues"][row].as_py(), active)
        if outputs:
            message = (
                f"version {version} rewrote its rows to other files, of which {outputs[0]} is active, and version "
                f"{added} added it again: its rows are in the table twice"
            )
            findings.add("compacted-file-added-again", path, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewrites:
    """What commits wrote anew without a change of rows.

    Args:
        removes: files with the version that replaced them: `path`, `version`.
        adds: likewise of those that took their place, with their `partition`.
    """

    removes: pa.Table
    adds: pa.Table

    @classmethod
    def of(cls, actions: Actions) -> Self:
        removes = pa.table(
            {
                "path": actions.removes["path"],
                "version": actions.remove_versions,
                "changes": actions.removes["dataChange"],
            }
        )
        adds = pa.table(
            {
                "path": actions.adds["path"],
                "version": actions.add_versions,
                "partition": actions.adds["partitionValues"],
                "changes": actions.adds["dataChange"],
            }
        )
        removes, adds = (
            each.filter(pc.invert(each["changes"])).drop(["changes"]) for each in (removes, adds)
        )
        # A file that has another deletion vector, or another id, is removed and added at once.
        stays = removes.join(adds.select(["path", "version"]), ["path", "version"], join_type="left anti")
        return cls(removes=stays, adds=adds)

    def last_before(self, path: str, version: int) -> int | None:
        """The last version before another one that replaced a file; None: none did."""
        own = self.removes.filter(
            pc.and_(pc.equal(self.removes["path"], path), pc.less(self.removes["version"], version))
        )
        found: int | None = pc.max(own["version"]).as_py()
        return found

    def still_active(self, version: int, partition: Any, active: set[str]) -> list[str]:
        """The files that a version wrote for a partition, or that took their place since, and that are active."""
        found: list[str] = []
        versions, seen = [version], set[int]()
        while versions:
            version = versions.pop()
            seen.add(version)
            for each in self.adds.filter(pc.equal(self.adds["version"], version)).to_pylist():
                if _values(each["partition"]) != _values(partition):
                    continue
                if each["path"] in active:
                    found.append(each["path"])
                else:
                    own = self.removes.filter(
                        pc.and_(
                            pc.equal(self.removes["path"], each["path"]),
                            pc.greater(self.removes["version"], version),
                        )
                    )
                    versions += {*own["version"].to_pylist()} - seen
        return sorted(found)


def _values(partition: Any) -> Mapping[str, str | None]:
    return {name: value or None for name, value in dict(partition or ()).items()}

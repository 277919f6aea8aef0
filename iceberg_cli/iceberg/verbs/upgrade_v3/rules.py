"""upgrade-v3: manifest lists in sum, the snapshots that obstruct an upgrade, and the updates of the commit.

Spec: Appendix E; "Row Lineage for Upgraded Tables".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH
from iceberg_cli.plan.text import count

TARGET: Final = 3
COLUMNS: Final = (
    "upgraded_tables_count",
    "repaired_heads_count",
    "recounted_manifests_count",
    "dropped_tags_count",
)
COUNTS: Final = tuple(
    f"{status}_{unit}_count" for unit in ("files", "rows") for status in ("added", "existing", "deleted")
)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFacts:
    """Totals of one manifest list. Rows and files are None where a count is null.

    Its delete files are of any kind. Only their manifests show which of them are position delete files, and not
    deletion vectors or equality deletes: `position_files` and `positions` are None where those were not read.
    """

    uncounted: int  # manifests without one of the counts
    encrypted: int  # manifests
    data_manifests: int
    rows_without_ids: (
        int | None
    )  # of data manifests without a `first_row_id`, which is all of them before version 3
    delete_manifests: int
    delete_files: int | None
    position_files: int | None = None
    positions: int | None = None

    @classmethod
    def of(cls, rows: pa.Table) -> ListFacts:
        """The totals of a list's rows, columns of `MANIFEST_LIST_SCHEMA`."""
        unknown = np.zeros(rows.num_rows, np.bool_)
        for name in COUNTS:
            unknown |= rows[name].is_null().to_numpy()
        data = pc.equal(rows["content"], 0)
        return cls(
            uncounted=int(unknown.sum()),
            encrypted=rows.num_rows - rows["key_metadata"].null_count,
            data_manifests=int(pc.sum(data).as_py() or 0),
            rows_without_ids=_live(rows.filter(pc.and_(data, rows["first_row_id"].is_null())), "rows"),
            delete_manifests=int(pc.sum(pc.invert(data)).as_py() or 0),
            delete_files=_live(rows.filter(pc.invert(data)), "files"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReads:
    """What the preflight has read: manifest lists by snapshot id; `missing` are ids whose list is gone."""

    lists: Mapping[int, ListFacts] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()


def snapshots_to_read(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots whose manifest lists decide: every branch head, and all that version 1 wrote.

    Version 2 and later cannot write a list without counts.
    """
    heads = {ref.snapshot_id for ref in metadata.refs.values() if ref.type == BRANCH}
    return [
        snapshot
        for snapshot in metadata.snapshots
        if snapshot.manifest_list is not None
        and (snapshot.sequence_number == 0 or snapshot.snapshot_id in heads)
    ]


def obstructing(metadata: TableMetadata, looked: PreflightReads) -> dict[int, str]:
    """The snapshots that later versions do not allow, by id, in the order of the metadata; with the reason.

    Once the table is upgraded, Iceberg's Java library cannot write to a branch with such a head any more.
    """
    found = {}
    for snapshot in metadata.snapshots:
        if snapshot.manifest_list is None:
            found[snapshot.snapshot_id] = "names its manifests itself, without a manifest list"
        elif (facts := looked.lists.get(snapshot.snapshot_id)) is not None and facts.uncounted:
            found[snapshot.snapshot_id] = f"lists {count(facts.uncounted, 'manifests')} without counts"
    return found


def _live(rows: pa.Table, unit: str) -> int | None:
    counts = pc.add(rows[f"added_{unit}_count"], rows[f"existing_{unit}_count"])
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)


def ids_of(ids: Sequence[int]) -> str:
    """The first few ids, and how many more there are."""
    return some([str(each) for each in ids])


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def updates(metadata: TableMetadata) -> tuple[Mapping[str, Any], ...]:
    """The updates of the one metadata commit that upgrades, in the REST specification's wire form.

    A version 1 table may lack a UUID, which later versions require. It comes from the location and last update, so that
    every plan gives a table the same one.
    """
    found: tuple[Mapping[str, Any], ...] = ()
    if metadata.table_uuid is None:
        own = uuid.uuid5(uuid.NAMESPACE_URL, f"{metadata.location}#{metadata.last_updated_ms}")
        found = ({"action": "assign-uuid", "uuid": str(own)},)
    return (*found, {"action": "upgrade-format-version", "format-version": TARGET})

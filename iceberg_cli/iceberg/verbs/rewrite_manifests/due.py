"""rewrite-manifests: whether it is due, from the manifest list alone.

A table that is written to has some manifests more each day than would do, which costs a reader little. It is due
where a rewrite makes fewer than half as many and there are as many small ones as writers would merge by themselves
(`commit.manifest.min-count-to-merge`), where some are mere crumbs, and where one is far too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.inspected import Inspected
from iceberg_cli.iceberg.verbs.rewrite_manifests.layout import (
    DEFAULT_TARGET_BYTES,
    LARGE,
    SMALL,
    TARGET_PROPERTY,
    outputs,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import VERB_NAME, RewriteManifests
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import Group

_LEAST_PROPERTY: Final = "commit.manifest.min-count-to-merge"
_LEAST_SMALL: Final = 100
_CRUMBS: Final = 20
_OF_TARGET: Final = 0.1  # below this part of the target size on average they are crumbs


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """What a rewrite of some manifests would do, as far as their list tells.

    Args:
        manifests: that are written anew.
        small: those of them that are small.
        large: those that are split.
        made: about how many there are afterwards.
        mean_of_target: their average part of the target size.
    """

    manifests: int
    small: int
    large: int
    made: int
    mean_of_target: float

    @property
    def reason(self) -> str:
        """What there is to do, in counts."""
        return would_do(self.manifests, self.made)

    def early(self, metadata: TableMetadata) -> str | None:
        """Why it does not count as due yet, or None.

        Raises:
            InvalidMetadata: the table's property is no number.
        """
        least = _least(metadata)
        many = self.small >= least and 2 * self.made < self.manifests
        crumbs = self.manifests >= _CRUMBS and self.mean_of_target < _OF_TARGET
        if self.large or many or crumbs:
            return None
        return f"{self.reason}, fewer than {least:,} are small"


def would_do(manifests: int, made: int) -> str:
    """What there is to do, in counts."""
    return f"{count(manifests, 'manifests')} where {made:,} would do"


def regrouping(chosen: Iterable[tuple[Group, Mapping[int, str]]]) -> Regrouping:
    """What rewrites would do.

    Args:
        chosen: groups with the manifests of each that are written anew, see `rules.due`.
    """
    manifests = small = large = made = 0
    parts: list[Any] = []
    for group, reasons in chosen:
        if group.layout is None or not reasons:
            continue
        rows = group.rows.filter(pa.array([place in reasons for place in group.places], pa.bool_()))
        live = _numbers(rows, "added_files_count") + _numbers(rows, "existing_files_count")
        entries = live + _numbers(rows, "deleted_files_count")
        lengths = np.maximum(_numbers(rows, "manifest_length") - group.layout.header_bytes, 1)
        bodies = (lengths * live / np.maximum(entries, 1))[live > 0]
        manifests += rows.num_rows
        small += int((bodies < SMALL * group.layout.body_bytes).sum())
        large += int((bodies > LARGE * group.layout.body_bytes).sum())
        made += outputs(group.layout, body_bytes=float(bodies.sum()), live_files=int(live.sum()))
        parts.append(bodies / group.layout.body_bytes)
    together = np.concatenate(parts) if parts else np.empty(0)
    mean = float(together.mean()) if len(together) else 0.0
    return Regrouping(manifests=manifests, small=small, large=large, made=made, mean_of_target=mean)


def suggestion(inspected: Inspected) -> dict[str, Any] | None:
    """What `inspect` says of it; None where it is not due, or `plan` ends with an error."""
    rows, metadata = inspected.manifests, inspected.table.metadata
    if not rows.num_rows:
        return None
    row: dict[str, Any] = {"operation": VERB_NAME, "certain": True, "blocked_by": []}
    policy = RewriteManifests()
    try:
        counted = not any(rows[name].null_count for name in ("added_files_count", "existing_files_count"))
        if (counted or metadata.format_version == 1) and _are_few_and_small(rows, metadata):
            return None  # of most tables no more has to be loaded
        if not counted or rows["manifest_length"].null_count:
            return {**row, "reason": "the manifest list has no counts", "certain": False}
        from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import due, groups, settings_of

        found = groups(rows, metadata, policy, settings_of(metadata, policy))
        regroup = regrouping((group, due(group)) for group in found)
        is_due = bool(regroup.manifests) and regroup.early(metadata) is None
    except IcebergCliError:
        return None
    return {**row, "reason": regroup.reason} if is_due else None


def _are_few_and_small(rows: pa.Table, metadata: TableMetadata) -> bool:
    """Whether there are so few manifests, none above the target size, that no rule can make them due."""
    if rows["manifest_length"].null_count:
        return False
    target = metadata.property_int(TARGET_PROPERTY, DEFAULT_TARGET_BYTES)
    return (
        rows.num_rows < min(_CRUMBS, _least(metadata))
        and int(pc.max(rows["manifest_length"]).as_py()) <= target
    )


def _least(metadata: TableMetadata) -> int:
    """From how many small manifests on writers merge them."""
    return metadata.property_int(_LEAST_PROPERTY, _LEAST_SMALL)


def _numbers(rows: pa.Table, name: str) -> Any:
    return pc.fill_null(rows[name], 0).to_numpy().astype(np.int64)

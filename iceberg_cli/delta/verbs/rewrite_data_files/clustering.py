"""How a run keeps what a clustered table declares: which strategy it takes, and which it does not.

Spec: Delta protocol, "Clustered Table".
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.clustering import PROVIDER, clustering_columns, logical_names
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.layout.rolling import Bools
from iceberg_cli.plan.compaction_policy import DECLARED
from iceberg_cli.plan.groups import Groups
from iceberg_cli.plan.sort_terms import sort_terms
from iceberg_cli.plan.text import count, listed

CLUSTERED_ANEW: Final = "the table is clustered by other columns by now"
_BASE: Final = "clustering"


def declared_names(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns by which the table is clustered, as users know them; none: it is not."""
    return logical_names(clustering_columns(snapshot), snapshot.metadata)


def as_declared(policy: RewriteDataFiles, snapshot: Snapshot) -> RewriteDataFiles:
    """What the operator asked for, with the strategy that the table declares where none was named."""
    is_named = policy.strategy is not None or policy.order_strategy is not None or policy.purge
    if is_named or not clustering_columns(snapshot):
        return policy
    return replace(policy, strategy=DECLARED)


def clustered_by(policy: RewriteDataFiles, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns by which new files are clustered as the table declares it; none: they are not."""
    names, policy = declared_names(snapshot), as_declared(policy, snapshot)
    if policy.strategy == DECLARED:
        return names
    is_the_same = policy.order_strategy == "hilbert" and tuple(policy.curve_by) == names
    return names if is_the_same else ()


def clustering_base(snapshot: Snapshot) -> dict[str, str]:
    """What a plan has of the clustering that it was made for; nothing where there is none."""
    columns = clustering_columns(snapshot)
    return {_BASE: json.dumps(columns)} if columns else {}


def clustering_changed(groups: Groups, snapshot: Snapshot) -> str | None:
    """That a plan was made for another clustering than the table has, in words, or None."""
    now = clustering_base(snapshot)
    return None if groups.base.get(_BASE) == now.get(_BASE) else CLUSTERED_ANEW


def clustering_obstacles(policy: RewriteDataFiles, snapshot: Snapshot) -> tuple[str, ...]:
    """Why rows of a clustered table are not brought into the order that the operator asked for, in words."""
    names, strategy = declared_names(snapshot), policy.order_strategy
    if not names or strategy in (None, DECLARED) or clustered_by(policy, snapshot):
        return ()
    same = {"sort": {each.name for each in sort_terms(policy.sort_by)}, "hilbert": {*policy.curve_by}}
    if same.get(strategy) == {*names}:
        return ()
    by = f"it is clustered by {listed(names)}"
    return (f"{by}: --strategy declared keeps that, and --strategy bin-pack leaves new files unclustered",)


def others_clustered(policy: RewriteDataFiles, snapshot: Snapshot) -> Bools:
    """Which live files another program clustered in its own way, which stay as they are without `--full`."""
    if policy.full or not clustered_by(policy, snapshot):
        return np.zeros(len(snapshot.adds), np.bool_)
    is_other = pc.fill_null(pc.not_equal(snapshot.adds["clusteringProvider"], pa.scalar(PROVIDER)), False)  # noqa: FBT003
    return np.asarray(is_other.to_numpy(), np.bool_)


def clustering_notes(policy: RewriteDataFiles, snapshot: Snapshot) -> tuple[str, ...]:
    """Sentences for a plan: what becomes of the clustering of a table."""
    names = declared_names(snapshot)
    if not names:
        return ()
    if not clustered_by(policy, snapshot):
        return (
            f"The table is clustered by {listed(names)}, and new files are not: --strategy declared would do that.",
        )
    others = int(others_clustered(policy, snapshot).sum())
    if not others:
        return ()
    return (
        f"{count(others, 'data files')} that another program clustered in its own way stay: --full takes them.",
    )

"""Rules about the rows of a manifest list.

Spec: "Manifest Lists", "First Row ID Assignment".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.spec.metadata import Snapshot, TableMetadata
from iceberg_cli.paths import canonical
from iceberg_cli.plan.findings import Findings

COUNTS: Final = tuple(
    f"{status}_{what}_count" for what in ("files", "rows") for status in ("existing", "added", "deleted")
)


def check_list(
    rows: pa.Table, snapshot: Snapshot, metadata: TableMetadata, label: str, findings: Findings
) -> None:
    """Hold the rows of a snapshot's manifest list against the rules about them.

    Args:
        rows: columns of `MANIFEST_LIST_SCHEMA`.
        snapshot: whose list it is.
        metadata: the table.
        label: how findings name the snapshot.
        findings: to add to.
    """
    paths = rows["manifest_path"].to_pylist()

    def tell(message: Any) -> Any:
        return lambda row: (paths[row], f"listed in {label}: {message(row)}")

    _check_repeats(paths, label, findings)
    content = rows["content"].to_numpy()
    numbers, lowest = rows["sequence_number"].to_numpy(), rows["min_sequence_number"].to_numpy()
    findings.add_rows(
        "manifest-sequence-number-too-high",
        numbers > snapshot.sequence_number,
        tell(lambda i: f"sequence number {numbers[i]}, the snapshot has {snapshot.sequence_number}"),
    )
    findings.add_rows(
        "manifest-min-sequence-number-too-high",
        (lowest > numbers) & (numbers <= snapshot.sequence_number),
        tell(lambda i: f"min_sequence_number {lowest[i]} is above its sequence number {numbers[i]}"),
    )
    if metadata.format_version == 1:
        findings.add_rows(
            "deletes-before-v2", content == 1, tell(lambda _: "a delete manifest in a table of version 1")
        )
    if snapshot.manifest_list is not None:
        _check_written_list(rows, metadata, label, findings, tell)
    if metadata.format_version > 2:
        _check_row_ids(rows, snapshot, findings, tell)


def _check_repeats(paths: Sequence[str], label: str, findings: Findings) -> None:
    seen: set[str] = set()
    for path in paths:
        if (key := canonical(path)) in seen:
            message = f"listed more than once in {label}, and all its files with it"
            findings.add("manifest-listed-twice", path, message)
        seen.add(key)


def _check_written_list(
    rows: pa.Table, metadata: TableMetadata, label: str, findings: Findings, tell: Any
) -> None:
    """Check the fields that only a manifest list has, not a version 1 snapshot that names its manifests itself."""
    spec_ids = rows["partition_spec_id"].to_numpy()
    fields = {spec.spec_id: len(spec.fields) for spec in metadata.partition_specs}
    findings.add_rows(
        "manifest-spec-missing",
        ~np.isin(spec_ids, list(fields)),
        tell(lambda i: f"partition spec {spec_ids[i]} is not in the table"),
    )
    expected = np.array([fields.get(spec_id, -1) for spec_id in spec_ids.tolist()], np.int64)
    listed = pc.fill_null(pc.list_value_length(rows["partitions"]), -1).to_numpy()
    findings.add_rows(
        "partition-summary-unfit",
        (listed >= 0) & (expected >= 0) & (listed != expected),
        tell(lambda i: f"{listed[i]} field summaries, partition spec {spec_ids[i]} has {expected[i]} fields"),
    )
    unknown = np.zeros(len(rows), np.bool_)
    for name in COUNTS:
        unknown |= rows[name].is_null().to_numpy()
    if metadata.format_version > 1 and unknown.any():
        message = f"{int(unknown.sum())} of {len(rows)} manifests have no counts, as version 1 wrote them"
        findings.add("manifest-counts-unknown", label, message)


def _check_row_ids(rows: pa.Table, snapshot: Snapshot, findings: Findings, tell: Any) -> None:
    if snapshot.first_row_id is None:
        return  # of before the upgrade
    data = rows["content"].to_numpy() == 0
    none = rows["first_row_id"].is_null().to_numpy()
    first = pc.fill_null(rows["first_row_id"], 0).to_numpy()
    own = pc.fill_null(rows["added_snapshot_id"], -1).to_numpy() == snapshot.snapshot_id
    findings.add_rows(
        "manifest-first-row-id-missing",
        data & none,
        tell(lambda _: "a data manifest without first_row_id: the rows of its files have no ids"),
    )
    findings.add_rows(
        "delete-manifest-has-first-row-id", ~data & ~none, tell(lambda i: f"it has first_row_id {first[i]}")
    )
    findings.add_rows(
        "manifest-first-row-id-too-low",
        data & ~none & own & (first < snapshot.first_row_id),
        tell(lambda i: f"first_row_id {first[i]} is below the snapshot's {snapshot.first_row_id}"),
    )

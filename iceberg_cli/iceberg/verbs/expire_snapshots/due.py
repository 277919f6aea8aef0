"""expire-snapshots: whether it is due, from the metadata alone."""

from __future__ import annotations

from typing import Any

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.spec.table_metadata.encryption import check_plain_list
from iceberg_cli.iceberg.table import base_of
from iceberg_cli.iceberg.verbs.expire_snapshots import rules
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import VERB_NAME, ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import reason_of
from iceberg_cli.iceberg.verbs.inspected import Inspected
from iceberg_cli.plan.text import age, iso


def suggestion(inspected: Inspected) -> dict[str, Any] | None:
    """What `inspect` says of it: None where nothing goes, or a snapshot is encrypted, of which `plan` says so."""
    table = inspected.table
    try:
        for snapshot in table.metadata.snapshots:
            check_plain_list(snapshot)
        plan = rules.plan(
            table.metadata,
            ExpireSnapshots(),
            base=base_of(table.metadata, table.metadata_location),
            table=table.describe(),
            as_of_ms=inspected.as_of_ms,
        )
    except Refused:
        return None
    going = [verdict.subject for verdict in plan.verdicts if not verdict.keep]
    snapshots, refs = going.count("snapshot"), going.count("branch") + going.count("tag")
    if not plan.counts_as_due:
        return None
    cutoff = plan.options["older_than_ms"]
    return {
        "operation": VERB_NAME,
        "reason": f"{reason_of(snapshots, refs)} (cut-off {age(inspected.as_of_ms - cutoff.value)} by {cutoff.source})",
        "certain": True,
        "snapshots": snapshots,
        "refs": refs,
        "older_than_ms": cutoff.value,
        "older_than": iso(cutoff.value),
        "older_than_source": cutoff.source,
        "blocked_by": list(plan.blocked_by),
    }

"""Log compaction: the commits of a range of versions as one file of reconciled actions.

A reader replays it in place of the commits, on whatever came before. So a tombstone is kept whatever its age, also of a
file that was added inside the range: the file, or its tombstone, may be in a checkpoint or a commit before it. Of a
domain that was removed the removal is kept.

Spec: Delta protocol, "Log Compaction Files", "Action Reconciliation".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.columns import file_lines
from iceberg_cli.delta.spec.log import Listing
from iceberg_cli.delta.spec.snapshot import reconcile
from iceberg_cli.errors import UsageError


def compacted_name(first: int, last: int) -> str:
    """The name of the compaction of the versions from `first` to `last`."""
    return f"{first:020}.{last:020}.compacted.json"


def check_range(listing: Listing, first: int, last: int) -> None:
    """Whether the commits from `first` to `last`, both included, can be compacted.

    Raises:
        UsageError: the range is none, or a commit of it is not in the log.
    """
    if not 0 <= first < last:
        raise UsageError(f"Cannot compact versions {first} to {last}: a range has two versions or more")
    there = {file.version for file in listing.commits}
    missing = [version for version in (first, last) if version not in there]
    missing = missing or [version for version in range(first, last) if version not in there]
    if missing:
        raise UsageError(f"Cannot compact versions {first} to {last}: the log has no commit {missing[0]}")


def compacted(actions: Actions) -> bytes:
    """The compaction of some commits.

    Args:
        actions: all of theirs.

    Returns:
        One action on each line: adds and removes as the newest commit has them, the newest transaction of each
        application and the newest state of each domain, actions of unknown kind as they are, the newest metadata and
        protocol if there is one. No commitInfo and no cdc.
    """
    left = reconcile([actions])
    lines = [*file_lines("add", left.adds), *file_lines("remove", left.removes)]
    lines += [_line({"txn": transaction}) for transaction in left.transactions.values()]
    lines += [_line({"domainMetadata": domain}) for domain in left.domains.values()]
    lines += [_line(action) for action in left.unknown]
    if left.metadata is not None:
        lines.append(_line({"metaData": left.metadata.to_json()}))
    if left.protocol is not None:
        lines.append(_line({"protocol": left.protocol.to_json()}))
    return "".join(f"{line}\n" for line in lines).encode()


def _line(action: Mapping[str, Any]) -> str:
    return json.dumps(action, ensure_ascii=False, separators=(",", ":"))

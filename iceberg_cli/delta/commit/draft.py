"""A commit to the Delta log without what is known only when its version is.

`Change.updates` are small actions in their JSON form, each a mapping of one action: `{"commitInfo": {"operation": ...,
"operationParameters": {...}}}`, `{"protocol": {...}}`, `{"metaData": {...}}`, `{"txn": {...}}`, `{"domainMetadata":
{...}}`. `Change.draft` is a `CommitDraft` where there are adds or removes. See `bind.py` for what is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from iceberg_cli.delta.spec.columns import ADD, REMOVE


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDraft:
    """The file actions of a commit.

    Args:
        adds: columns of `actions.ADD` and unknown ones, one row for each add. A null `defaultRowCommitVersion` beside
            a `baseRowId` becomes the version that is written.
        removes: columns of `actions.REMOVE` and unknown ones. A null `deletionTimestamp` becomes the commit's time.
        facts: what an operator may want to know, for the plan's document.
    """

    adds: pa.Table = field(default_factory=ADD.empty_table)
    removes: pa.Table = field(default_factory=REMOVE.empty_table)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """How many, and the facts; not the actions themselves."""
        return {"adds": self.adds.num_rows, "removes": self.removes.num_rows, **self.facts}

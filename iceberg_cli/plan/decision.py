"""What a verb would do, as far as the metadata of a table alone decides it."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """What a verb would do to one version of a table.

    Args:
        decided: as JSON: while this and the metadata file are the same, the same is freed.
        is_due: whether it is due; None where manifests decide that.
        blocked_by: why it would not be carried out, by the metadata.
        oldest_ms: when the oldest snapshot was made that goes, in ms since the epoch, or None.
        allowed_ms: how old a snapshot may get, or None.
    """

    decided: object
    is_due: bool | None
    blocked_by: tuple[str, ...] = ()
    oldest_ms: int | None = None
    allowed_ms: int | None = None

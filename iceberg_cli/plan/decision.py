"""What is kept of a version of a table, a glance, and what a verb would do as far as that decides it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol


class Decision(NamedTuple):
    """What a verb would do to one version of a table.

    Args:
        decided: as JSON: while this and the version are the same, the same is freed.
        is_due: whether it is due; None where more has to be read to tell.
        blocked_by: why it would not be carried out, by the metadata.
        oldest_ms: when the oldest snapshot was made that goes, in ms since the epoch, or None.
        allowed_ms: how old a snapshot may get, or None.
        cut_ms: files of this time and later stay, where files go that no metadata names: what a listing told holds for
            this cut-off and for later ones, up to the time of the listing. None: no listing decides.
        reason: what there is to do, in counts; "" where that is not known.
    """

    decided: object
    is_due: bool | None
    blocked_by: tuple[str, ...] = ()
    oldest_ms: int | None = None
    allowed_ms: int | None = None
    cut_ms: int | None = None
    reason: str = ""


class Glances(Protocol):
    """What a version of a table decides, by what surveys keep of it: a glance, which is JSON."""

    def properties(self, glance: Mapping[str, Any], /) -> Mapping[str, str]:
        """The table's properties, those at least that decide."""
        ...

    def decide(self, glance: Mapping[str, Any], policy: Any, path: str, /, *, as_of_ms: int) -> Decision:
        """What a verb would do by a policy.

        Raises:
            UsageError: the policy has no meaning for the table.
            CorruptFile: what it says contradicts itself.
        """
        ...


class FileGlances(Glances, Protocol):
    """The same, where one metadata file has all of it."""

    @property
    def decides(self) -> Collection[str]:
        """The verbs about which it says whether they are due."""
        ...

    def read(self, data: bytes, path: str, /) -> dict[str, Any]:
        """The glance of a metadata file.

        Raises:
            CorruptFile: it cannot be read.
        """
        ...

    def of_document(self, document: Any, path: str, /) -> dict[str, Any]:
        """The glance of a metadata document as a catalog gives it.

        Raises:
            CorruptFile: it is none.
        """
        ...

    def columns(self, glance: Mapping[str, Any], /) -> dict[str, Any]:
        """The columns of `fleet/1`, as far as it tells them."""
        ...

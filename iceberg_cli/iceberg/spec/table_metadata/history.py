"""The snapshots of a table, the refs to them, and the properties of the table: what retention goes by.

Spec: "Snapshots", "Snapshot References".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.iceberg.spec.json_fields import shown
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, MAIN, SnapshotRef

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class DatedSnapshot(Protocol):
    """A snapshot as far as its age and its ancestors go."""

    @property
    def snapshot_id(self) -> int:
        """Its id."""
        ...

    @property
    def parent_snapshot_id(self) -> int | None:
        """That of its parent, which the table may have no more."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """When it was made, in ms since the epoch."""
        ...

    @property
    def sequence_number(self) -> int:
        """0 in v1."""
        ...


S = TypeVar("S", bound=DatedSnapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHistory(Generic[S]):
    """The snapshots of a table and the refs to them, with its properties. Maps and tuples are in the file's order."""

    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None  # None where absent, null or -1
    snapshots: tuple[S, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(
        default_factory=dict
    )  # with main wherever there is a current snapshot
    _snapshots_by_id: Mapping[int, S] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}
        object.__setattr__(self, "_snapshots_by_id", by_id)

    def snapshot(self, snapshot_id: int) -> S | None:
        """The snapshot with this id, found at once."""
        return self._snapshots_by_id.get(snapshot_id)

    def current_snapshot(self) -> S | None:
        """The head of main; None for a table without data."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def ancestors(self, head: S) -> Iterator[S]:
        """`head` and its ancestors that are still in the table, newest first; a cycle ends the walk."""
        seen: set[int] = set()
        snapshot: S | None = head
        while snapshot is not None and snapshot.snapshot_id not in seen:
            seen.add(snapshot.snapshot_id)
            yield snapshot
            parent_id = snapshot.parent_snapshot_id
            snapshot = None if parent_id is None else self.snapshot(parent_id)

    def dangling_refs(self) -> tuple[str, ...]:
        """Names of refs whose snapshot is missing. Java refuses such a table; here it is a finding."""
        return tuple(name for name, ref in self.refs.items() if ref.snapshot_id not in self._snapshots_by_id)

    def property_int(self, name: str, default: int) -> int:
        """An integer table property.

        Raises:
            InvalidMetadata: its text is no integer.
        """
        text = self.properties.get(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text):
            reason = f"an integer is expected, not {shown(text)}"
            raise InvalidMetadata(self.location, f"properties.{name}", reason)
        return int(text)

    def property_bool(self, name: str, *, default: bool) -> bool:
        """A boolean table property; as in Java every text but "true" is false."""
        text = self.properties.get(name)
        return default if text is None else text.lower() == "true"


AnyHistory: TypeAlias = SnapshotHistory[Any]


def derived_refs(current_snapshot_id: int | None) -> dict[str, SnapshotRef]:
    """Spec: "There is always a main branch [...] even if the refs map is null"."""
    if current_snapshot_id is None:
        return {}
    return {MAIN: SnapshotRef(snapshot_id=current_snapshot_id, type=BRANCH)}


def interlock_of(history: AnyHistory) -> str | None:
    """Why no file of a table may be deleted, by its own property, or None."""
    if history.property_bool("gc.enabled", default=True):
        return None
    value = history.properties["gc.enabled"]
    return f"table property gc.enabled={value}: another table may use these files"

"""What installed packages bring by entry points. They are looked for once: that takes longer than most commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points_of(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group, by name; of several by one name the first."""
    return _entry_points(group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:  # noqa: ARG001 - where they are found
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return found
